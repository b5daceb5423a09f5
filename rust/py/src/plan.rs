//! `Plan`: what an initialiser is told, as a frozen Python object.

use lazyparam_bytes::Dtype;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::Array;
use crate::backend::Backend;
use crate::device::Device;
use crate::errors::shape_text;

/// What is known of a value before it exists; an initialiser gets it and returns an array.
///
/// Attributes:
///     shape: extents, in elements.
///     dtype: name of the element type, such as ``"float32"`` (``np.zeros`` takes it as it is).
///     device: where the value is to be made.
///     requires_grad: whether gradients are wanted *and* can be recorded there.
///     native_dtype: `dtype` as the device's library has it: a ``torch.dtype``, a NumPy dtype.
///     native_device: `device` as the library has it: ``torch.ones(plan.shape,
///         dtype=plan.native_dtype, device=plan.native_device)``.
#[pyclass(frozen, module = "lazyparam")]
pub(crate) struct Plan {
    shape: lazyparam_core::Shape,
    dtype: Dtype,
    device: Device,
    requires_grad: bool,
}

impl Plan {
    pub(crate) fn new(plan: &lazyparam_core::Plan<Array>) -> Self {
        Self {
            shape: plan.shape.clone(),
            dtype: plan.dtype,
            device: plan.device.clone(),
            requires_grad: plan.requires_grad,
        }
    }
}

#[pymethods]
impl Plan {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.shape.iter())
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    #[getter]
    fn device(&self) -> Device {
        self.device.clone()
    }

    #[getter]
    fn native_dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Backend::of(py, &self.device)?.native_dtype(self.dtype.name())
    }

    #[getter]
    fn native_device<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Backend::of(py, &self.device)?.native_device(&self.device)
    }

    #[getter]
    fn requires_grad(&self) -> bool {
        self.requires_grad
    }

    fn __repr__(&self) -> String {
        format!(
            "Plan(shape={}, dtype='{}', device='{}', requires_grad={})",
            shape_text(&self.shape),
            self.dtype.name(),
            self.device,
            if self.requires_grad { "True" } else { "False" },
        )
    }
}
