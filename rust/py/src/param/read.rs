//! Reading: what may bring the value into being.

use lazyparam_core::Slot as _;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::declare::state_over;
use super::{Param, ParamMapper};
use crate::backend::Backend;
use crate::errors::no_attribute;
use crate::gate::Cx;
use crate::python;

#[pymethods]
impl Param {
    /// The value. Waits, detached, if another thread is making it.
    ///
    /// Args:
    ///     timeout: seconds to wait for another thread's initialiser; None is for ever.
    ///
    /// Returns:
    ///     An array of the device's library. NumPy arrays are read-only.
    ///
    /// Raises:
    ///     LazyCycleError: if the initialiser needs this very value.
    ///     InitError: if the initialiser gives something else than was declared.
    ///     TimeoutError: if `timeout` seconds have passed; the initialisation goes on.
    ///     BaseException: whatever the initialiser raises, with a note naming the parameter.
    #[pyo3(signature = (timeout = None))]
    fn val(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        if let Some(value) = self.core.get() {
            return Ok(value.object.clone_ref(py));
        }
        Ok(self.force(Cx::within(py, timeout)?)?.object.clone_ref(py))
    }

    /// The stored value, without what is attached to the parameter. See `val`.
    #[pyo3(signature = (timeout = None))]
    fn base(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.val(py, timeout)
    }

    /// What is asked for attributes that are not there: the value, until it has been asked for.
    fn _missing(slf: &Bound<'_, Self>, name: &str) -> PyResult<Py<PyAny>> {
        if name != "value" {
            return Err(no_attribute(slf, name));
        }
        let value = slf.get().val(slf.py(), None)?;
        Ok(slf.get().answer.publish(value).clone_ref(slf.py()))
    }

    #[allow(clippy::wrong_self_convention)] // Burn's name; Python has no consuming methods.
    /// The stored value, for a caller that is done with the parameter. Burn's ``into_value``.
    fn into_value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.base(py, None)
    }

    /// Identity, stored value, and the mappers with the intent; ``from_mapped_value`` undoes it.
    fn consume(slf: &Bound<'_, Self>) -> PyResult<(u64, Py<PyAny>, ParamMapper)> {
        let this = slf.get();
        let value = this.base(slf.py(), None)?;
        Ok((
            this.core.id(),
            value,
            ParamMapper {
                handle: slf.clone().unbind(),
            },
        ))
    }

    /// A ready parameter from what ``consume`` gave, with a value of the caller's.
    #[classmethod]
    fn from_mapped_value(
        _cls: &Bound<'_, PyType>,
        id: u64,
        value: &Bound<'_, PyAny>,
        mapper: &ParamMapper,
    ) -> PyResult<Self> {
        let py = value.py();
        let cx = Cx::new(py);
        let this = mapper.handle.bind(py).get();
        let state = state_over(value)?;
        Ok(this.next(this.core.with_ready(id, state, cx)))
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__(
        &self,
        py: Python<'_>,
        dtype: Option<&Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let host = self.force(Cx::new(py))?.to_host(py)?;
        Ok(python::HOST_EXPORT
            .get(py)?
            .call1((host, dtype, copy))?
            .unbind())
    }

    /// The value for libraries that take arrays by DLPack, detached.
    ///
    /// What nobody may write to (NumPy's and JAX's values) is handed out as a copy, since few
    /// libraries heed a read-only mark; ``copy=False`` hands out the value itself.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let value = self.force(Cx::new(py))?;
        let backend = value.device.served_by(py)?;
        python::HOST_DLPACK.get(py)?.call1((
            backend,
            &value.object,
            stream,
            max_version,
            dl_device,
            copy,
        ))
    }

    /// Kind and number of the device as DLPack counts them.
    fn __dlpack_device__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.force(Cx::new(py))?;
        value.object.bind(py).call_method0("__dlpack_device__")
    }

    /// The gradient that the value has by now, or None: before it was read in training, and where
    /// none is wanted. Detached; Burn's ``grad``. Initialises nothing.
    ///
    /// Raises:
    ///     AutodiffUnsupported: if arrays of the device's library do not record gradients.
    fn grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let backend = Backend::of(py, self.core.device())?;
        let leaf = match self.core.state().get_leaf() {
            Some(leaf) if self.core.is_active() => leaf.object.bind(py),
            _ if backend.records_gradients()? => return Ok(None),
            // It is for the backend to say that there are none.
            _ => &py.None().into_bound(py),
        };
        let gradient = backend.grad(leaf)?;
        Ok((!gradient.is_none()).then_some(gradient))
    }

    /// A draft of another value: ``with p.writable() as draft`` gives ``draft.array``, a writable
    /// copy; afterwards ``draft.param`` is the parameter with it. This one never changes.
    fn writable<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python::DRAFT.get(slf.py())?.call1((slf,))
    }
}
