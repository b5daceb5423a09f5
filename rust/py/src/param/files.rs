//! From files and to files: a load replaces the recipe, a save takes the value through mappers.

use std::sync::Arc;

use lazyparam_bytes::Dtype;
use lazyparam_core::{Lazy, Origin, Param as Core, Plan, Recipe, Shape};
use pyo3::prelude::*;

use super::Param;
use super::declare::{id_of, state_of, state_over};
use crate::array::{Array, Read, Step};
use crate::backend::Backend;
use crate::checkpoint::{Checkpoint, Mode};
use crate::dtype::dtype_of;
use crate::errors::{Failure, Raise};
use crate::gate::Cx;

#[pymethods]
impl Param {
    /// The parameter with the value `tensor`, given in its stored form: moved to this one's
    /// device and taken through the load mappers. The initialiser never runs.
    ///
    /// Args:
    ///     tensor: an array of any library; or a parameter, which is taken in its stored form and
    ///         stays lazy if it is.
    ///     id: the identity that the record carries, if it does.
    ///     dtype: cast to it; without, the dtype has to be this one's already.
    ///
    /// Raises:
    ///     ShapeMismatch: if `tensor` does not have `stored_shape`.
    ///     InitError: if the dtype, or the shape after the load mappers, is not this one's.
    #[pyo3(signature = (tensor, id = None, dtype = None))]
    fn transform_for_load(
        &self,
        tensor: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = id_of)] id: Option<u64>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = tensor.py();
        let source = match tensor.cast::<Self>() {
            Ok(param) => self.apart(py, param.get().core.state())?,
            Err(_) => self.located(py, state_over(tensor).map_err(Failure::from))?,
        };
        self.loaded(py, source, dtype.map(dtype_of).transpose()?, id)
    }

    /// The parameter with the value that `checkpoint` holds under `name`; nothing is read now.
    #[pyo3(signature = (checkpoint, name, mode, dtype = None, id = None))]
    fn _load_from(
        &self,
        checkpoint: &Checkpoint,
        name: &str,
        mode: &str,
        dtype: Option<&Bound<'_, PyAny>>,
        id: Option<u64>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let mode = Mode::parse(py, mode)?;
        let store = &checkpoint.store;
        let found = store
            .find(name)
            .and_then(|at| Some((at, store.entries().get(at)?)));
        let Some((at, entry)) = found else {
            return Err(Raise::new(
                "MissingParams",
                format!("no tensor {name:?} in the checkpoint"),
            )
            .path(store.path().display().to_string())
            .err(py));
        };
        let dtype = dtype.map(dtype_of).transpose()?;
        // A read gives what is planned, cast from what is stored; only mappers see the latter.
        let cast_by_read = dtype.filter(|_| self.core.mappers().load().is_empty());
        let plan = Plan {
            shape: Shape::from(entry.shape.as_slice()),
            dtype: cast_by_read.unwrap_or(entry.dtype),
            device: self.core.device().clone(),
            requires_grad: false,
        };
        let read = Read {
            store: store.clone(),
            entry: at,
            mode,
        };
        let source = Lazy::new(plan, Recipe::Origin(Origin::Read(read)));
        self.loaded(py, source, dtype, id)
    }

    /// Whether the value is not there yet, and ``clone(independent=True)`` will have the same one,
    /// bit for bit: it is drawn natively or read from a file, and no function has a part in it.
    #[getter]
    fn _repeats(&self) -> bool {
        self.core.state().repeats()
    }

    /// A ready parameter with the value as it is saved: after the save mappers, without them.
    fn transform_for_save(&self, py: Python<'_>) -> PyResult<Self> {
        let cx = Cx::new(py);
        let value = self.try_with(py, |label| self.core.transform_for_save(label, cx))?;
        let state = if self.core.mappers().save().is_empty() {
            self.core.state().clone()
        } else {
            self.located(py, state_of(value, py).map_err(Failure::from))?
        };
        let device = self.core.device().clone();
        let core = Core::over(self.core.id(), state, device, self.core.requires_grad());
        Ok(self.next(core))
    }
}

impl Param {
    /// A state of its own with the value of `source`: whoever writes to the one does not reach the
    /// other. It is made now if `source` is there and may be written to at any time.
    fn apart(&self, py: Python<'_>, source: &Arc<Lazy<Array>>) -> PyResult<Arc<Lazy<Array>>> {
        let derive = Recipe::Derive {
            source: source.clone(),
            steps: Vec::new(),
        };
        let apart = Lazy::new(source.plan().clone(), derive);
        if source.get().is_some() && Backend::of(py, &source.plan().device)?.is_mutable()? {
            self.try_with(py, |label| apart.force(label, Cx::new(py)).map(drop))?;
        }
        Ok(apart)
    }

    /// The parameter with the value of `source` in its stored form; never runs the initialiser.
    ///
    /// With nothing between the tensor and the parameter, a cast is made where the tensor is: the
    /// bits do not depend on the device then, and that need not have the tensor's dtype.
    fn loaded(
        &self,
        py: Python<'_>,
        source: Arc<Lazy<Array>>,
        dtype: Option<Dtype>,
        id: Option<u64>,
    ) -> PyResult<Self> {
        let cx = Cx::new(py);
        let mut last: Vec<Step> = dtype.map(Step::Cast).into_iter().collect();
        let core = self.try_with(py, |label| {
            let mut source = source;
            if let Some(dtype) = dtype
                && self.core.mappers().load().is_empty()
            {
                let steps = std::mem::take(&mut last);
                if source.plan().dtype != dtype {
                    let plan = Plan {
                        dtype,
                        ..source.plan().clone()
                    };
                    let eager = source.get().is_some();
                    source = Lazy::new(plan, Recipe::Derive { source, steps });
                    if eager {
                        source.force(label, cx)?;
                    }
                }
            }
            self.core
                .transform_for_load(id, source, last, dtype, label, cx)
        })?;
        Ok(self.next(core))
    }
}
