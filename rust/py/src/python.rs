//! The functions of `lazyparam`'s Python half that Rust calls, looked up once.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A Python function, imported at its first use.
pub(crate) struct Function {
    module: &'static str,
    name: &'static str,
    found: PyOnceLock<Py<PyAny>>,
}

impl Function {
    const fn new(module: &'static str, name: &'static str) -> Self {
        Self {
            module,
            name,
            found: PyOnceLock::new(),
        }
    }

    /// The function itself.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        if let Some(found) = self.found.get(py) {
            return Ok(found.bind(py));
        }
        // Imports run anybody's code, so no lock is held here; all who race find the same one.
        let function = py.import(self.module)?.getattr(self.name)?.unbind();
        Ok(self.found.get_or_init(py, || function).bind(py))
    }
}

/// `_host.array(buffer, shape, dtype)`
pub(crate) static HOST_ARRAY: Function = Function::new("lazyparam._host", "array");
/// `_host.element(value, dtype)`
pub(crate) static HOST_ELEMENT: Function = Function::new("lazyparam._host", "element");
/// `_host.export(array, dtype, copy)`
pub(crate) static HOST_EXPORT: Function = Function::new("lazyparam._host", "export");
/// `devices.backend_of(device)`
pub(crate) static BACKEND_OF: Function = Function::new("lazyparam.devices", "backend_of");
/// `drafts.Draft(param)`
pub(crate) static DRAFT: Function = Function::new("lazyparam.drafts", "Draft");
/// `errors.locate(error, path)`
pub(crate) static LOCATE: Function = Function::new("lazyparam.errors", "locate");
/// `_host.numbers(data, dtype)`
pub(crate) static HOST_NUMBERS: Function = Function::new("lazyparam._host", "numbers");
/// `_host.dtype_name(spec)`
pub(crate) static HOST_DTYPE_NAME: Function = Function::new("lazyparam._host", "dtype_name");
/// `once.aget(lazy)`
pub(crate) static AGET: Function = Function::new("lazyparam.once", "aget");
