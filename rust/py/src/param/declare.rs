//! Declaring parameters, lazy or ready, from whatever a user may write.

use std::sync::Arc;

use lazyparam_bytes::{Dtype, shape};
use lazyparam_core::{Device as _, Lazy, Origin, Param as Core, Plan, Shape, Value};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::Param;
use crate::arguments::{axes_of, shape_of, shown, text_in};
use crate::array::Array;
use crate::backend::Backend;
use crate::device::{Device, device_of};
use crate::draw::Draw;
use crate::dtype::dtype_of;
use crate::errors::{Raise, shape_text};
use crate::function::name_of;
use crate::gate::Cx;
use crate::init::{Init, refuse_uncalled};
use crate::python;

/// A parameter to look at, that nobody ever reads.
pub(super) fn probe() -> Param {
    let missing = Origin::Draw(Draw::Missing);
    let shape = Shape::from([]);
    Param::new(
        Core::declare(0, shape, Dtype::F32, Device::cpu(), false, missing),
        None,
    )
}

#[pymethods]
impl Param {
    #[new]
    #[pyo3(signature = (
        shape, init = None, dtype = None, device = None, requires_grad = true, id = None,
        rng_name = None, batch_axes = None
    ))]
    #[allow(clippy::too_many_arguments)] // the arguments of the constructor
    fn declare(
        shape: &Bound<'_, PyAny>,
        init: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        requires_grad: bool,
        #[pyo3(from_py_with = id_of)] id: Option<u64>,
        rng_name: Option<&Bound<'_, PyAny>>,
        batch_axes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = shape.py();
        let dims = shape_of(shape)?;
        let dtype = dtype.map_or(Ok(Dtype::F32), dtype_of)?;
        checked(py, &dims, dtype)?;
        let device = device.map_or_else(|| Ok(Device::cpu()), device_of)?;
        let origin = match init {
            None => Origin::Draw(Draw::Missing),
            Some(init) => match init.cast::<Init>() {
                Ok(native) => {
                    let name = rng_name
                        .map(|name| text_in(name, "an rng_name"))
                        .transpose()?;
                    let axes = axes_of(batch_axes, dims.len())?;
                    let draw = Draw::declared(native.get(), name, axes)?;
                    draw.check(py, &dims, dtype)?;
                    Origin::Draw(draw)
                }
                Err(_) if init.is_callable() => {
                    refuse_uncalled(init)?;
                    if rng_name.is_some() || batch_axes.is_some() {
                        let problem = "rng_name and batch_axes are for native initialisers";
                        return Err(Raise::new("DeclarationError", problem)
                            .expected("one of lazyparam.init")
                            .found(name_of(init))
                            .err(py));
                    }
                    Origin::Call(init.clone().unbind())
                }
                Err(_) => {
                    return Err(Raise::new("DeclarationError", "this is not an initialiser")
                        .expected("one of lazyparam.init, or a function of the plan")
                        .found(init.get_type().name()?.to_string())
                        .remedy("Param.from_tensor(x) takes a value that is there already.")
                        .err(py));
                }
            },
        };
        let id = id.map_or_else(random_id, Ok)?;
        Ok(Self::new(
            Core::declare(id, dims, dtype, device, requires_grad, origin),
            None,
        ))
    }

    /// A parameter that is there already, with identity and intent of the caller's choice.
    ///
    /// The array is copied, unless nobody can write to it. It may be one of any library; without
    /// `device` it stays where it is, in the autodiff context it has.
    #[classmethod]
    #[pyo3(signature = (value, id = None, requires_grad = false, device = None))]
    fn initialized(
        _cls: &Bound<'_, PyType>,
        value: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = id_of)] id: Option<u64>,
        requires_grad: bool,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = value.py();
        let cx = Cx::new(py);
        let state = state_over(value)?;
        let found = state.plan().device.clone();
        let id = id.map_or_else(random_id, Ok)?;
        let there = Self::new(Core::over(id, state, found, requires_grad), None);
        let Some(device) = device.map(device_of).transpose()? else {
            return Ok(there);
        };
        let core = there.try_with(py, |label| there.core.to_device(&device, label, cx))?;
        Ok(there.next(if device.is_autodiff() {
            core.train(cx)
        } else {
            core.valid(cx)
        }))
    }

    /// A trainable parameter with the value of `tensor` (copied). Burn's ``Param::from_tensor``.
    #[classmethod]
    fn from_tensor(cls: &Bound<'_, PyType>, tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::initialized(cls, tensor, None, true, None)
    }

    /// A trainable parameter with the numbers in `data`: nested sequences, a number, or an array.
    ///
    /// Burn's ``Param::from_data``.
    #[classmethod]
    #[pyo3(signature = (data, device = None, dtype = None))]
    fn from_data(
        cls: &Bound<'_, PyType>,
        data: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = data.py();
        let target = device.map_or_else(|| Ok(Device::cpu()), device_of)?;
        let dtype = dtype.map(dtype_of).transpose()?.map(Dtype::name);
        let host = python::HOST_NUMBERS.get(py)?.call1((data, dtype))?;
        let array = Backend::ready(py, &target)?.from_host(host, &target, false)?;
        let target = Bound::new(py, target)?;
        Self::initialized(cls, &array, None, true, Some(target.as_any()))
    }
}

pub(super) fn checked(py: Python<'_>, shape: &Shape, dtype: Dtype) -> PyResult<()> {
    let problem = if shape.len() > shape::MAX_RANK {
        format!("a tensor has at most {} dimensions", shape::MAX_RANK)
    } else if shape::checked_len(shape, dtype).is_none() {
        "a tensor of this shape is larger than any memory".to_owned()
    } else {
        return Ok(());
    };
    Err(Raise::new("DeclarationError", problem)
        .found(shape_text(shape))
        .err(py))
}

/// An identity from Python; None is the caller's to fill in.
pub(super) fn id_of(id: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if id.is_none() {
        return Ok(None);
    }
    id.extract().map(Some).map_err(|_| {
        Raise::new("DeclarationError", "an id is an unsigned 64-bit number")
            .found(shown(id))
            .err(id.py())
    })
}

pub(super) fn random_id() -> PyResult<u64> {
    getrandom::u64().map_err(|error| pyo3::exceptions::PyOSError::new_err(error.to_string()))
}

/// An array of the user's, of any library, as a settled state on the device it is on.
pub(super) fn state_over(value: &Bound<'_, PyAny>) -> PyResult<Arc<Lazy<Array>>> {
    let backend = Backend::holding(value)?;
    backend.admit(value)?;
    let device = backend.device_of(value)?;
    state_of(Array::borrowed(value.clone().unbind(), device), value.py())
}

/// The dtype that a library calls `name`.
pub(super) fn named(py: Python<'_>, name: &str) -> PyResult<Dtype> {
    Dtype::from_name(name).ok_or_else(|| {
        Raise::new("InitError", "arrays of this dtype cannot be parameters")
            .found(name)
            .err(py)
    })
}

/// A value as a settled state on the device it is on.
pub(super) fn state_of(array: Array, py: Python<'_>) -> PyResult<Arc<Lazy<Array>>> {
    let backend = Backend::of(py, &array.device)?;
    let value = array.object.bind(py);
    backend.admit(value)?;
    let (dims, name) = backend.meta(value)?;
    let dtype = named(py, &name)?;
    let plan = Plan {
        shape: Shape::from(dims),
        dtype,
        device: backend.device_of(value)?,
        requires_grad: false,
    };
    let settled = array.settle(&plan, Cx::new(py));
    Ok(Lazy::ready(
        plan,
        settled.map_err(|failure| failure.into_err(py))?,
    ))
}
