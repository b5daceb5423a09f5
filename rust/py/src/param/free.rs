//! What is free to ask: nothing here runs a recipe or waits for one.

use std::sync::{Arc, PoisonError};

use lazyparam_core::{Origin, Recipe};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::Param;
use crate::device::Device;
use crate::draw::Draw;
use crate::function::name_of;
use crate::gate::Cx;
use crate::init::Init;

#[pymethods]
impl Param {
    /// Identity, an unsigned 64-bit number. Kept by every verb but a load that brings its own.
    #[getter]
    fn id(&self) -> u64 {
        self.core.id()
    }

    /// Extents, in elements.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.shape().iter())
    }

    /// The shape in files; differs from `shape` where load and save mappers change it.
    #[getter]
    fn stored_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.stored_shape().iter())
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.core.shape().len()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        // Checked when the parameter was declared.
        self.core.shape().iter().product()
    }

    /// Name of the element type, such as ``"float32"``.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.core.dtype().name()
    }

    /// What the elements are: ``"float"``, ``"int"``, ``"bool"`` or ``"complex"``.
    #[getter]
    fn kind(&self) -> &'static str {
        self.core.dtype().kind().as_str()
    }

    /// Where the value is, or will be.
    #[getter]
    fn device(&self) -> Device {
        self.core.device().clone()
    }

    /// Bytes that the value takes in memory, or will take.
    #[getter]
    fn nbytes(&self) -> usize {
        self.byte_len()
    }

    /// Whether the value is in being. False while it is being made.
    #[getter]
    fn is_initialized(&self) -> bool {
        self.core.is_initialized()
    }

    /// The wish to train, as given. Burn's ``planned_is_require_grad``.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.core.requires_grad()
    }

    /// The configured training state: the wish, for elements that can train.
    ///
    /// ``valid()`` suspends its effect and keeps it; ``train()`` restores the effect.
    #[getter]
    fn is_active(&self) -> bool {
        self.core.is_active()
    }

    /// The dotted path by which a module last reached this parameter, or None.
    #[getter(path)]
    fn py_path(&self) -> Option<String> {
        self.path().map(|path| path.to_string())
    }

    /// How the value will come into being, or ``"ready"``.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        self.state_text(py)
    }

    /// Whether `other` shares this parameter's one coming-into-being (is it, or a clone of it).
    fn is_tied_to(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.core.state(), other.core.state())
    }

    /// A number that tied parameters have in common, and no others that live now.
    #[getter]
    fn _tie(&self) -> usize {
        self.core.state().key()
    }

    /// Whether loads go through a mapper.
    #[getter]
    fn _has_load_mapper(&self) -> bool {
        !self.core.mappers().load().is_empty()
    }

    /// This handle, tied to `now` as it was to `was`: what `was` became by some verb.
    ///
    /// Its own wish and mappers stay, unless the verb changed the wish.
    fn _retied(&self, was: &Self, now: &Self, py: Python<'_>) -> Self {
        let cx = Cx::new(py);
        let unchanged = was.core.requires_grad() == now.core.requires_grad();
        let wish = if unchanged {
            self.core.requires_grad()
        } else {
            now.core.requires_grad()
        };
        let core = now
            .core
            .share(cx)
            .with_mappers(self.core.mappers().share(cx), cx);
        self.next(core.set_requires_grad(wish, cx))
    }

    /// Remember the path by which a module reached this parameter.
    fn _found_at(&self, path: &str) {
        let path = Some(Arc::from(path));
        let old = std::mem::replace(
            &mut *self.path.lock().unwrap_or_else(PoisonError::into_inner),
            path,
        );
        drop(old);
    }
}

impl Param {
    /// Bytes that the value takes in memory.
    pub(crate) fn byte_len(&self) -> usize {
        self.size() * self.core.dtype().size()
    }

    /// How the value will come into being; walks down to where it begins.
    pub(super) fn state_text(&self, py: Python<'_>) -> PyResult<String> {
        if self.core.is_initialized() {
            return Ok("ready".to_owned());
        }
        let mut derived = "";
        let mut state = self.core.state().clone();
        let recipe = loop {
            let recipe = state.recipe();
            match recipe.as_deref() {
                Some(Recipe::Derive { source, .. }) => state = source.clone(),
                _ => break recipe,
            }
            derived = ", derived";
        };
        let origin = match recipe.as_deref() {
            // It came into being meanwhile, or it is derived from one that is in being.
            None | Some(Recipe::Derive { .. }) if derived.is_empty() => {
                return Ok("ready".to_owned());
            }
            None | Some(Recipe::Derive { .. }) => return Ok("lazy: derived".to_owned()),
            Some(Recipe::Origin(Origin::Draw(Draw::Missing))) => "lazy: to be loaded".to_owned(),
            Some(Recipe::Origin(Origin::Draw(Draw::Keyed(keyed)))) => {
                let init = keyed.init.clone();
                format!("lazy: {}", Init { init }.__repr__(py)?)
            }
            Some(Recipe::Origin(Origin::Read(read))) => {
                let entry = read.store.entries().get(read.entry);
                format!("lazy: read {:?}", entry.map_or("?", |entry| &*entry.name))
            }
            Some(Recipe::Origin(Origin::Call(call))) => format!("lazy: {}", name_of(call.bind(py))),
        };
        Ok(format!("{origin}{derived}"))
    }
}
