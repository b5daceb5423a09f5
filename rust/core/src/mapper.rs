//! What is done to a value on its way from a file and to a file.
//!
//! Mappers chain so that each pair added together undoes itself: loading applies the load mappers
//! in the order they were added, saving applies the save mappers in the opposite order. (Burn's
//! `load_mapper` and `save_mapper` replace; [`Mappers::only_load`] and [`Mappers::only_save`] are
//! for that wish.)

use crate::value::{Shape, Value};

/// The load and save mappers of one handle.
pub struct Mappers<V: Value> {
    load: Vec<V::Step>,
    save: Vec<V::Step>,
    /// The shape in files, where it was declared to differ from the live one.
    pub stored: Option<Shape>,
}

impl<V: Value> Default for Mappers<V> {
    fn default() -> Self {
        Self {
            load: Vec::new(),
            save: Vec::new(),
            stored: None,
        }
    }
}

impl<V: Value> Mappers<V> {
    /// Load mappers, in the order they are applied.
    pub fn load(&self) -> &[V::Step] {
        &self.load
    }

    /// Save mappers, in the order they were added; saving applies the last one first.
    pub fn save(&self) -> &[V::Step] {
        &self.save
    }

    /// Whether a value goes through neither.
    pub fn is_empty(&self) -> bool {
        self.load.is_empty() && self.save.is_empty()
    }

    /// Another handle on the same mappers.
    pub fn share(&self, cx: V::Cx<'_>) -> Self {
        let each = |steps: &[V::Step]| steps.iter().map(|step| V::share_step(step, cx)).collect();
        Self {
            load: each(&self.load),
            save: each(&self.save),
            stored: self.stored.clone(),
        }
    }

    /// These mappers with `step` applied after the others on load.
    #[must_use]
    pub fn and_load(mut self, step: V::Step, stored: Option<Shape>) -> Self {
        self.load.push(step);
        self.storing(stored)
    }

    /// These mappers with `step` applied before the others on save.
    #[must_use]
    pub fn and_save(mut self, step: V::Step, stored: Option<Shape>) -> Self {
        self.save.push(step);
        self.storing(stored)
    }

    /// These mappers with `step` (or nothing) as the only one on load.
    #[must_use]
    pub fn only_load(mut self, step: Option<V::Step>, stored: Option<Shape>) -> Self {
        self.load = step.into_iter().collect();
        self.storing(stored)
    }

    /// These mappers with `step` (or nothing) as the only one on save.
    #[must_use]
    pub fn only_save(mut self, step: Option<V::Step>, stored: Option<Shape>) -> Self {
        self.save = step.into_iter().collect();
        self.storing(stored)
    }

    fn storing(mut self, stored: Option<Shape>) -> Self {
        self.stored = stored.or(self.stored);
        self
    }
}
