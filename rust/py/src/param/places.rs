//! A parameter as a place in a tree: all that a handle says of itself, and no value.

use std::sync::Arc;

use lazyparam_core::{Lazy, Origin, Plan, Recipe, Shape};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::declare::named;
use super::{Param, ParamMapper};
use crate::array::{Array, Step};
use crate::backend::Backend;
use crate::device::Device;
use crate::draw::Draw;
use crate::gate::Cx;

#[pymethods]
impl Param {
    /// This parameter without its value and its recipe. What keeps the form of a tree for long
    /// keeps such parameters, so that it keeps no weights.
    fn _emptied(&self, py: Python<'_>) -> Self {
        let plan = self.core.state().plan().clone();
        let empty = Lazy::new(plan, Recipe::Origin(Origin::Draw(Draw::Missing)));
        self.next(self.core.with_ready(self.core.id(), empty, Cx::new(py)))
    }

    /// This parameter with `value`, an array on `device` that its backend calls public: it is
    /// neither copied nor waited for.
    fn _holding(&self, value: &Bound<'_, PyAny>, device: Device) -> PyResult<Self> {
        let py = value.py();
        let (dims, name) = Backend::of(py, &device)?.meta(value)?;
        let plan = Plan {
            shape: Shape::from(dims),
            dtype: named(py, &name)?,
            device: device.clone(),
            requires_grad: false,
        };
        let held: Arc<Lazy<Array>> =
            Lazy::ready(plan, Array::borrowed(value.clone().unbind(), device));
        Ok(self.next(self.core.with_ready(self.core.id(), held, Cx::new(py))))
    }

    /// The third of what ``consume`` gives; nothing comes into being.
    fn _mapper(slf: &Bound<'_, Self>) -> ParamMapper {
        let handle = slf.clone().unbind();
        ParamMapper { handle }
    }

    /// What tells two parameters apart besides their values: identity, wish, the shape in files
    /// and the functions of the load and save mappers.
    #[getter]
    fn _traits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mappers = self.core.mappers();
        let functions = |steps: &[Step]| {
            let each = steps.iter().map(|step| match step {
                Step::Map(function) => Ok(function.bind(py).clone()),
                Step::Cast(dtype) => Ok(dtype.name().into_pyobject(py)?.into_any()),
            });
            PyTuple::new(py, each.collect::<PyResult<Vec<_>>>()?)
        };
        let stored = mappers.stored.as_ref().map(|shape| shape.to_vec());
        let (id, wish) = (self.core.id(), self.core.requires_grad());
        let stored = stored.map(|shape| PyTuple::new(py, shape)).transpose()?;
        let (load, save) = (functions(mappers.load())?, functions(mappers.save())?);
        (id, wish, stored, load, save).into_pyobject(py)
    }
}
