//! Verbs: each returns a new parameter, and a lazy one stays lazy.

use lazyparam_core::Change;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::declare::checked;
use super::{Param, mapper_step};
use crate::arguments::{path_in, seed_in, shape_of};
use crate::array::Array;
use crate::device::device_of;
use crate::draw::Draw;
use crate::dtype::dtype_of;
use crate::gate::Cx;
use crate::pickle::CopyMemo;
use crate::python;

#[pymethods]
impl Param {
    /// The parameter whose stored value is ``f`` of this one's. Lazy stays lazy.
    ///
    /// Args:
    ///     f: from array to array. It sees an untracked, read-only value.
    ///     shape: the shape of the result, if it differs.
    ///     dtype: the dtype of the result, if it differs.
    #[pyo3(signature = (f, shape = None, dtype = None))]
    fn map(
        &self,
        f: Py<PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let step = mapper_step(f, py)?;
        let change = self.changed(py, shape, dtype)?;
        let cx = Cx::new(py);
        let core = self.try_with(py, |label| self.core.map(step, change, label, cx))?;
        Ok(self.next(core))
    }

    /// The parameter whose initial value is ``f`` of this one's effective value; chains.
    ///
    /// Means the same for a lazy and a ready parameter; a lazy one stays lazy, and this one is
    /// untouched either way. Arguments as in `map`.
    #[pyo3(signature = (f, shape = None, dtype = None))]
    fn init_mapper(
        &self,
        f: Py<PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        // Nothing is attached to a parameter yet, so the effective value is the stored one.
        self.map(f, shape, dtype, py)
    }

    /// The parameter on `device`. Lazy stays lazy: where its recipe runs is decided at first read.
    fn to_device(&self, device: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = device.py();
        let device = device_of(device)?;
        let core = self.try_with(py, |label| self.core.to_device(&device, label, Cx::new(py)))?;
        Ok(self.next(core))
    }

    /// As `to_device`, and always with a state (and a gradient) of its own. Burn's ``fork``.
    fn fork(&self, device: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = device.py();
        let device = device_of(device)?;
        let core = self.try_with(py, |label| self.core.fork(&device, label, Cx::new(py)))?;
        Ok(self.next(core))
    }

    /// The parameter for validation: read untracked, the wish to train kept. Burn's ``valid``.
    fn valid(&self, py: Python<'_>) -> Self {
        self.next(self.core.valid(Cx::new(py)))
    }

    /// The parameter for training: the wish takes effect where the device can honour it.
    fn train(&self, py: Python<'_>) -> Self {
        self.next(self.core.train(Cx::new(py)))
    }

    /// ``set_requires_grad(False)``.
    fn no_grad(&self, py: Python<'_>) -> Self {
        self.set_requires_grad(false, py)
    }

    /// The parameter with another wish to train. Clones keep theirs.
    fn set_requires_grad(&self, requires_grad: bool, py: Python<'_>) -> Self {
        self.next(self.core.set_requires_grad(requires_grad, Cx::new(py)))
    }

    /// The parameter with its native draw decided by `seed` and `path`; see ``Module.seed``. `memo`
    /// is one dict for all parameters of a module: it keeps ties.
    fn _seeded(
        &self,
        seed: &Bound<'_, PyAny>,
        path: &Bound<'_, PyTuple>,
        memo: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let py = memo.py();
        let (seed, path) = (seed_in(seed)?, path_in(path)?);
        let redraw = |draw: &Draw| draw.seeded(seed, &path);
        let core = CopyMemo::with(memo, |states| {
            self.try_with(py, |_| self.core.redrawn(states, Cx::new(py), redraw))
        })?;
        Ok(self.next(core))
    }

    /// The parameter with a reparameterisation attached, which its value goes through when read:
    /// an :class:`AdaptedParam`. This one stays as it is.
    ///
    /// Args:
    ///     reparameterization: a ``Reparameterization``.
    ///     name: what it is called in paths; its ``NAME`` if not given.
    ///
    /// Raises:
    ///     ModuleError: if it is no reparameterisation, or the name cannot be part of a path.
    #[pyo3(signature = (reparameterization, name = None))]
    fn with_reparameterization<'py>(
        slf: &Bound<'py, Self>,
        reparameterization: &Bound<'py, PyAny>,
        name: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        python::ATTACH
            .get(slf.py())?
            .call1((slf, reparameterization, name))
    }

    /// The parameter with what is attached to it folded in; here nothing is, so a clone.
    fn materialize(&self, py: Python<'_>) -> Self {
        self.next(self.core.share(Cx::new(py)))
    }

    /// Another handle.
    ///
    /// Args:
    ///     independent: False shares this one's coming-into-being, so both always have the same
    ///         value. True gives a state of its own: a lazy one runs its recipe for itself.
    #[pyo3(signature = (independent = false))]
    fn clone(&self, independent: bool, py: Python<'_>) -> PyResult<Self> {
        let cx = Cx::new(py);
        let core = if independent {
            self.try_with(py, |_| self.core.independent(&mut Default::default(), cx))?
        } else {
            self.core.share(cx)
        };
        Ok(self.next(core))
    }
}

impl Param {
    /// What a transformation of this parameter does to shape and dtype.
    fn changed(
        &self,
        py: Python<'_>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Change<Array>> {
        let change = Change {
            shape: shape.map(shape_of).transpose()?,
            dtype: dtype.map(dtype_of).transpose()?,
        };
        let dims = change.shape.as_ref().unwrap_or(self.core.shape());
        checked(py, dims, change.dtype.unwrap_or(*self.core.dtype()))?;
        Ok(change)
    }
}
