//! `OnceCell`: a box that is filled once, by whoever comes first.

use lazyparam_core::Slot as _;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{Cell, Name, deep_copy, make, remember, shown};
use crate::errors::{Raise, no_attribute};
use crate::exit::Inside;
use crate::function;
use crate::gate::Cx;
use crate::raw::Slot;

/// A box that is empty, then holds one value for ever.
///
/// Any number of threads may fill it or wait for it; exactly one of those that ask together runs
/// its factory, the others wait with the interpreter free to run. A factory that raises leaves the
/// box empty, and one of those who wait has the next turn. None is a value like any other.
///
/// Rust's ``OnceLock``, with failure, cycles, timeouts, signals and forks taken care of.
///
/// Example:
///     >>> import lazyparam as lp
///     >>> cell = lp.OnceCell()
///     >>> cell.get_or_init(lambda: 3)
///     3
///     >>> cell.get_or_init(lambda: 4), cell.value, cell.is_set
///     (3, 3, True)
#[pyclass(frozen, generic, weakref, module = "lazyparam")]
pub(crate) struct OnceCell {
    cell: Cell,
}

impl OnceCell {
    pub(super) fn empty() -> Self {
        Self {
            cell: Cell::over(Slot::default()),
        }
    }

    pub(super) fn slot(&self) -> &Slot {
        self.cell.slot()
    }
}

#[pymethods]
impl OnceCell {
    #[new]
    fn new() -> Self {
        Self::empty()
    }

    /// The value, or `default` if there is none yet. Never waits, never raises.
    #[pyo3(signature = (default = None))]
    fn get(&self, py: Python<'_>, default: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
        match self.cell.get() {
            Some(value) => Some(value.clone_ref(py)),
            None => default,
        }
    }

    /// Put `value` in. Waits, detached, while another thread's factory is running.
    ///
    /// Raises:
    ///     AlreadySetError: if there is a value.
    ///     LazyCycleError: if this is called by the factory that is making the value.
    fn set(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<()> {
        let _inside = Inside::enter(py);
        let mut is_mine = false;
        let name = Name {
            class: "OnceCell",
            factory: None,
        };
        let outcome = self.cell.get_or_try_init(&name, &mut Cx::new(py), || {
            is_mine = true;
            Ok(value)
        });
        match outcome {
            Ok(_) if is_mine => Ok(()),
            Ok(_) => Err(Raise::new("AlreadySetError", "the cell has a value")
                .remedy("It is set once; get_or_init takes what is there.")
                .err(py)),
            Err(failure) => Err(failure.into_err_of(py, &name)),
        }
    }

    /// The value, made by `factory` if there is none yet.
    ///
    /// Args:
    ///     factory: called without arguments, at most once among all who ask together.
    ///     timeout: seconds to wait for another thread's factory; None is for ever.
    ///
    /// Raises:
    ///     LazyCycleError: if the factory needs this very value.
    ///     LazyTypeError: if `factory` cannot be called, or is a coroutine function.
    ///     TimeoutError: if `timeout` seconds have passed; the other factory goes on.
    ///     BaseException: whatever the factory raises, as it is; the cell is empty then.
    #[pyo3(signature = (factory, *, timeout = None))]
    fn get_or_init(&self, factory: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let py = factory.py();
        if let Some(value) = self.cell.get() {
            return Ok(value.clone_ref(py));
        }
        function::usable(factory)?;
        let mut cx = Cx::within(py, timeout)?;
        let _inside = Inside::enter(py);
        let name = Name {
            class: "OnceCell",
            factory: Some(factory),
        };
        let made = self
            .cell
            .get_or_try_init(&name, &mut cx, || Ok(make(factory)?));
        match made {
            Ok(value) => Ok(value.clone_ref(py)),
            Err(failure) => Err(failure.into_err_of(py, &name)),
        }
    }

    /// Whether there is a value. False while one is being made.
    #[getter]
    fn is_set(&self) -> bool {
        self.cell.get().is_some()
    }

    /// What is asked for attributes that are not there: the value, as long as there is none.
    fn _missing(slf: &Bound<'_, Self>, name: &str) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if name != "value" {
            return Err(no_attribute(slf, name));
        }
        match slf.get().cell.get() {
            Some(value) => Ok(value.clone_ref(py)),
            None => Err(Raise::new("UnsetError", "the cell has no value yet")
                .remedy("Set it, or use get(default) or get_or_init(factory).")
                .err(py)),
        }
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        shown(slf, "OnceCell", &slf.get().cell)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__<'py>(
        slf: &Bound<'py, Self>,
        memo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        let copy = Bound::new(slf.py(), Self::empty())?;
        remember(memo, slf, &copy)?;
        if let Some(value) = slf.get().cell.get() {
            copy.get().slot().publish(deep_copy(value, memo)?);
        }
        Ok(copy)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let rebuild = py.import("lazyparam._core")?.getattr("rebuild_cell")?;
        match slf.get().cell.get() {
            // The value goes by `__setstate__`, after the cell: it may contain the cell.
            Some(value) => (rebuild, (), (value.clone_ref(py),)).into_pyobject(py),
            None => (rebuild, ()).into_pyobject(py),
        }
    }

    fn __setstate__(&self, py: Python<'_>, state: (Py<PyAny>,)) -> PyResult<()> {
        self.set(py, state.0)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.slot().visit(&visit)
    }

    fn __clear__(&self) {
        self.slot().clear();
    }
}

/// An empty cell, which pickle then fills.
#[pyfunction]
pub(crate) fn rebuild_cell() -> OnceCell {
    OnceCell::empty()
}
