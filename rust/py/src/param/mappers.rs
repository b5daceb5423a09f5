//! Load and save mappers: what is done to a value on its way from a file and to a file.

use lazyparam_core::{Mappers, Shape};
use pyo3::prelude::*;

use super::{Param, mapper_step};
use crate::arguments::shape_of;
use crate::array::Array;
use crate::gate::Cx;

#[pymethods]
impl Param {
    /// Apply ``f`` to what is loaded, after the load mappers there are.
    ///
    /// ``load_mapper(f).load_mapper(g)`` loads ``g(f(x))``.
    ///
    /// Args:
    ///     f: from array to array.
    ///     stored_shape: the shape in files, if it differs from the declared one.
    #[pyo3(signature = (f, stored_shape = None))]
    fn load_mapper(
        &self,
        f: Py<PyAny>,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let step = mapper_step(f, py)?;
        self.remapped(stored_shape, py, |mappers, stored| {
            mappers.and_load(step, stored)
        })
    }

    /// Apply ``f`` to what is saved, before the save mappers there are.
    ///
    /// ``save_mapper(f).save_mapper(g)`` saves ``f(g(x))``, so that a load mapper and a save mapper
    /// added together undo each other. Arguments as in `load_mapper`.
    #[pyo3(signature = (f, stored_shape = None))]
    fn save_mapper(
        &self,
        f: Py<PyAny>,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let step = mapper_step(f, py)?;
        self.remapped(stored_shape, py, |mappers, stored| {
            mappers.and_save(step, stored)
        })
    }

    /// Make ``f`` the only load mapper; None removes them all.
    #[pyo3(signature = (f, stored_shape = None))]
    fn replace_load_mapper(
        &self,
        f: Option<Py<PyAny>>,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let step = f.map(|f| mapper_step(f, py)).transpose()?;
        self.remapped(stored_shape, py, |mappers, stored| {
            mappers.only_load(step, stored)
        })
    }

    /// Make ``f`` the only save mapper; None removes them all.
    #[pyo3(signature = (f, stored_shape = None))]
    fn replace_save_mapper(
        &self,
        f: Option<Py<PyAny>>,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let step = f.map(|f| mapper_step(f, py)).transpose()?;
        self.remapped(stored_shape, py, |mappers, stored| {
            mappers.only_save(step, stored)
        })
    }
}

impl Param {
    /// The handle with its mappers changed, and the shape in files where that is said.
    fn remapped(
        &self,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
        change: impl FnOnce(Mappers<Array>, Option<Shape>) -> Mappers<Array>,
    ) -> PyResult<Self> {
        let stored = stored_shape.map(shape_of).transpose()?;
        let cx = Cx::new(py);
        let mappers = change(self.core.mappers().share(cx), stored);
        Ok(self.next(self.core.with_mappers(mappers, cx)))
    }
}
