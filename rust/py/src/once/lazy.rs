//! `Lazy`: a value together with the function that makes it.

use std::sync::{Mutex, PoisonError};

use lazyparam_core::{Fault, Helping, Slot as _, this_thread};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::{Cell, Name, deep_copy, make, remember, shown};
use crate::errors::{Failure, no_attribute};
use crate::exit::Inside;
use crate::function::{self, picklable};
use crate::gate::Cx;
use crate::python;
use crate::raw::{Ready, Slot};

/// A value that is made by `factory` when it is first needed: exactly once, whoever asks.
///
/// Threads that ask meanwhile wait with the interpreter free to run, and Ctrl-C ends a wait. A
/// factory that raises is tried again by the next who asks; one that needs its own value, directly
/// or through other cells, gets a :class:`LazyCycleError` instead of a deadlock. The factory is let
/// go of once it has succeeded.
///
/// ``copy.copy`` gives the same cell; ``copy.deepcopy`` and ``pickle`` take the value if it is
/// there, otherwise the factory, and never run it.
///
/// Args:
///     factory: called without arguments. Not a coroutine function; see :meth:`aget`.
///
/// Raises:
///     LazyTypeError: if `factory` cannot be called, or is a coroutine function.
///
/// Example:
///     >>> import lazyparam as lp
///     >>> table = lp.Lazy(lambda: print("building") or {"a": 1})
///     >>> table
///     <Lazy empty>
///     >>> table.value, table.value
///     building
///     ({'a': 1}, {'a': 1})
#[pyclass(frozen, generic, weakref, module = "lazyparam")]
pub(crate) struct Lazy {
    cell: Cell,
    /// What makes the value, until it has. The lock is held to copy or take it, no longer.
    factory: Mutex<Option<Py<PyAny>>>,
}

impl Lazy {
    /// A cell with neither value nor factory.
    pub(super) fn empty() -> Self {
        Self::over(Slot::default(), None)
    }

    fn over(slot: Slot, factory: Option<Py<PyAny>>) -> Self {
        Self {
            cell: Cell::over(slot),
            factory: Mutex::new(factory),
        }
    }

    pub(super) fn slot(&self) -> &Slot {
        self.cell.slot()
    }

    fn factory<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let slot = self.factory.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(|factory| factory.bind(py).clone())
    }

    /// The value, made if need be.
    fn force(&self, mut cx: Cx<'_>) -> PyResult<Py<PyAny>> {
        let py = cx.py;
        let _inside = Inside::enter(py);
        // Without a factory the value is there, or the cell is garbage.
        let factory = self.factory(py);
        let name = Name {
            class: "Lazy",
            factory: factory.as_ref(),
        };
        let mut is_mine = false;
        let outcome = self.cell.get_or_try_init(&name, &mut cx, || {
            let factory = factory.as_ref().ok_or(Failure::Fault(Fault::Discarded))?;
            let value = make(factory)?;
            is_mine = true;
            Ok(value)
        });
        let value = outcome.map(|value| value.clone_ref(py));
        if is_mine {
            // Its destructor may read the cell, which is nobody's turn any more.
            self.retire();
        }
        value.map_err(|failure| failure.into_err_of(py, &name))
    }

    /// Let go of the factory.
    fn retire(&self) {
        let spent = self
            .factory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(spent);
    }
}

impl Ready for Lazy {
    const METHOD: &'static str = "get";
    const WHOLE: &'static str = "_get";

    fn ready(&self) -> Option<&Py<PyAny>> {
        self.cell.get()
    }
}

#[pymethods]
impl Lazy {
    #[new]
    #[pyo3(signature = (factory, /))]
    fn new(factory: &Bound<'_, PyAny>) -> PyResult<Self> {
        function::usable(factory)?;
        Ok(Self::over(Slot::default(), Some(factory.clone().unbind())))
    }

    /// A cell born ready.
    #[classmethod]
    #[pyo3(signature = (value, /))]
    fn of(_cls: &Bound<'_, PyType>, value: Py<PyAny>) -> Self {
        let lazy = Self::empty();
        lazy.slot().publish(value);
        lazy
    }

    /// The value, made if need be.
    ///
    /// Args:
    ///     timeout: seconds to wait for another thread's factory; None is for ever. A factory
    ///         that runs on this thread is never cut short.
    ///
    /// Raises:
    ///     LazyCycleError: if the factory needs this very value.
    ///     TimeoutError: if `timeout` seconds have passed; the factory goes on.
    ///     BaseException: whatever the factory raises, as it is; the cell is empty then.
    #[pyo3(signature = (timeout = None))]
    fn get(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        match self.cell.get() {
            Some(value) => Ok(value.clone_ref(py)),
            None => self.force(Cx::within(py, timeout)?),
        }
    }

    /// The value if it is there, otherwise `default`. Never makes it, never waits.
    #[pyo3(signature = (default = None))]
    fn peek(&self, py: Python<'_>, default: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
        match self.cell.get() {
            Some(value) => Some(value.clone_ref(py)),
            None => default,
        }
    }

    /// Whether the value is there. False while it is being made.
    #[getter]
    fn is_ready(&self) -> bool {
        self.cell.get().is_some()
    }

    /// The value, for coroutines: at once if it is there, else made by a thread of the loop's
    /// executor, one for all who await it there. Cancelling one of them leaves the factory alone.
    fn aget<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python::AGET.get(slf.py())?.call1((slf,))
    }

    /// `get`, on a thread that works for the thread `caller` (see `thread_number`): if that one is
    /// making a value itself, a wait that leads back to it is seen.
    fn _get_for(&self, py: Python<'_>, caller: u64) -> PyResult<Py<PyAny>> {
        let _helping = (caller != this_thread()).then(|| Helping::of(caller));
        self.force(Cx::new(py))
    }

    /// What is asked for attributes that are not there: the value, as long as there is none.
    fn _missing(slf: &Bound<'_, Self>, name: &str) -> PyResult<Py<PyAny>> {
        if name == "value" {
            return slf.get().get(slf.py(), None);
        }
        Err(no_attribute(slf, name))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        shown(slf, "Lazy", &slf.get().cell)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__<'py>(
        slf: &Bound<'py, Self>,
        memo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        // In this order: a factory goes only after the value has come.
        let factory = slf.get().factory(py);
        let copy = match slf.get().cell.get() {
            Some(_) => Self::empty(),
            None => Self::over(Slot::default(), factory.map(Bound::unbind)),
        };
        let is_ready = copy.factory(py).is_none();
        let copy = Bound::new(py, copy)?;
        remember(memo, slf, &copy)?;
        if is_ready && let Some(value) = slf.get().cell.get() {
            copy.get().slot().publish(deep_copy(value, memo)?);
        }
        Ok(copy)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let rebuild = py.import("lazyparam._core")?.getattr("rebuild_lazy")?;
        // In this order: a factory goes only after the value has come.
        let factory = slf.get().factory(py);
        let (value, factory) = match (slf.get().cell.get(), factory) {
            (Some(value), _) => (Some(value.clone_ref(py)), None),
            (None, Some(factory)) => (None, Some(picklable(&factory, "factory", None)?)),
            (None, None) => (None, None),
        };
        let state = (value.is_some(), value, factory);
        // Both go by `__setstate__`, after the cell: they may contain the cell.
        (rebuild, (), state).into_pyobject(py)
    }

    fn __setstate__(&self, state: (bool, Py<PyAny>, Option<Py<PyAny>>)) {
        let (is_ready, value, factory) = state;
        if is_ready {
            self.slot().publish(value);
        } else if self.cell.get().is_none() {
            let old = std::mem::replace(
                &mut *self.factory.lock().unwrap_or_else(PoisonError::into_inner),
                factory,
            );
            drop(old);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.slot().visit(&visit)?;
        // Nobody holds the lock while the collector can run, but on free-threaded builds, where
        // what it cannot see now it sees the next time.
        match self.factory.try_lock() {
            Ok(factory) => visit.call(&*factory),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.retire();
        self.slot().clear();
    }
}

/// This thread's own number, for those who work for it.
#[pyfunction]
pub(crate) fn thread_number() -> u64 {
    this_thread()
}

/// A cell with nothing in it, which pickle then fills.
#[pyfunction]
pub(crate) fn rebuild_lazy() -> Lazy {
    Lazy::empty()
}
