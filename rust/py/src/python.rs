//! What Rust needs of Python modules, those of `lazyparam` above all, looked up once.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A function or class of a Python module, imported at its first use.
pub(crate) struct Global {
    module: &'static str,
    name: &'static str,
    found: PyOnceLock<Py<PyAny>>,
}

impl Global {
    const fn new(module: &'static str, name: &'static str) -> Self {
        Self {
            module,
            name,
            found: PyOnceLock::new(),
        }
    }

    /// The function or class itself.
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
pub(crate) static HOST_ARRAY: Global = Global::new("lazyparam._host", "array");
/// `_host.export(array, dtype, copy)`
pub(crate) static HOST_EXPORT: Global = Global::new("lazyparam._host", "export");
/// `devices.backend_of(device)`
pub(crate) static BACKEND_OF: Global = Global::new("lazyparam.devices", "backend_of");
/// `devices.backend_holding(array)`
pub(crate) static BACKEND_HOLDING: Global = Global::new("lazyparam.devices", "backend_holding");
/// `devices.device_named_by(object)`
pub(crate) static DEVICE_NAMED_BY: Global = Global::new("lazyparam.devices", "device_named_by");
/// `_host.dlpack(backend, array, ...)`
pub(crate) static HOST_DLPACK: Global = Global::new("lazyparam._host", "dlpack");
/// `drafts.Draft(param)`
pub(crate) static DRAFT: Global = Global::new("lazyparam.drafts", "Draft");
/// `reparam.attach(param, reparameterization, name)`
pub(crate) static ATTACH: Global = Global::new("lazyparam.reparam", "attach");
/// `errors.locate(error, path)`
pub(crate) static LOCATE: Global = Global::new("lazyparam.errors", "locate");
/// `_host.numbers(data, dtype)`
pub(crate) static HOST_NUMBERS: Global = Global::new("lazyparam._host", "numbers");
/// `_host.dtype_name(spec)`
pub(crate) static HOST_DTYPE_NAME: Global = Global::new("lazyparam._host", "dtype_name");
/// `_awaiting.aget(lazy)`
pub(crate) static AGET: Global = Global::new("lazyparam._awaiting", "aget");
/// `types.CoroutineType`
pub(crate) static COROUTINE: Global = Global::new("types", "CoroutineType");
/// `types.MemberDescriptorType`
pub(crate) static MEMBER: Global = Global::new("types", "MemberDescriptorType");
/// `types.GetSetDescriptorType`
pub(crate) static GETSET: Global = Global::new("types", "GetSetDescriptorType");
