//! A parameter: a handle on a lazy state, with its own identity, intent, device and mappers.
//!
//! Clones share the state, so they share its one coming-into-being. What a handle says of itself
//! (is it to be trained? in which autodiff context is it read? what happens to it on load?) is
//! never written into what it shares. Every verb answers with a new handle.

use crate::graph::Named;
use crate::lazy::{Lazy, Memo, Origin, Part, Recipe};
use crate::mapper::Mappers;
use crate::sync::Arc;
use crate::value::{Device, Fault, Plan, Shape, Value};

/// What a transformation does to shape and dtype. Nothing, unless said.
pub struct Change<V: Value> {
    /// The shape of the result.
    pub shape: Option<Shape>,
    /// The dtype of the result.
    pub dtype: Option<V::Dtype>,
}

impl<V: Value> Default for Change<V> {
    fn default() -> Self {
        Self {
            shape: None,
            dtype: None,
        }
    }
}

/// A lazy, shareable parameter.
pub struct Param<V: Value> {
    id: u64,
    state: Arc<Lazy<V>>,
    device: V::Device,
    requires_grad: bool,
    mappers: Mappers<V>,
    declared: Shape,
}

impl<V: Value> Param<V> {
    /// Declare a parameter that `origin` will make when it is first needed.
    ///
    /// `requires_grad` is the wish; the plan that the initialiser sees says whether it takes
    /// effect (element types and places that cannot train ignore it).
    pub fn declare(
        id: u64,
        shape: Shape,
        dtype: V::Dtype,
        device: V::Device,
        requires_grad: bool,
        origin: Origin<V>,
    ) -> Self {
        let plan = Self::plan_for(shape, dtype, &device, requires_grad);
        Self::over(
            id,
            Lazy::new(plan, Recipe::Origin(origin)),
            device,
            requires_grad,
        )
    }

    /// A parameter that is there already. The value is settled first.
    pub fn initialized(
        id: u64,
        value: V,
        shape: Shape,
        dtype: V::Dtype,
        device: V::Device,
        requires_grad: bool,
        cx: V::Cx<'_>,
    ) -> Result<Self, V::Error> {
        let plan = Self::plan_for(shape, dtype, &device, requires_grad);
        let value = value.settle(&plan, cx)?;
        Ok(Self::over(
            id,
            Lazy::ready(plan, value),
            device,
            requires_grad,
        ))
    }

    /// A handle on `state`, without mappers.
    pub fn over(id: u64, state: Arc<Lazy<V>>, device: V::Device, requires_grad: bool) -> Self {
        let declared = state.plan().shape.clone();
        Self {
            id,
            state,
            device,
            requires_grad,
            mappers: Mappers::default(),
            declared,
        }
    }

    fn plan_for(shape: Shape, dtype: V::Dtype, device: &V::Device, requires_grad: bool) -> Plan<V> {
        let requires_grad = requires_grad && device.is_autodiff() && V::can_train(&dtype);
        Plan {
            shape,
            dtype,
            device: device.clone(),
            requires_grad,
        }
    }

    // ---- what is free to ask --------------------------------------------------------------

    /// Identity: kept by every verb but a load that brings its own.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The live shape.
    pub fn shape(&self) -> &Shape {
        &self.state.plan().shape
    }

    /// The element type.
    pub fn dtype(&self) -> &V::Dtype {
        &self.state.plan().dtype
    }

    /// Where the value is or will be, in this handle's autodiff context.
    pub fn device(&self) -> &V::Device {
        &self.device
    }

    /// Whether the value is in being. Never waits; false while it is being made.
    pub fn is_initialized(&self) -> bool {
        self.state.get().is_some()
    }

    /// The wish to be trained, as given.
    pub fn requires_grad(&self) -> bool {
        self.requires_grad
    }

    /// The wish as far as the element type can honour it: kept through `valid` and `train`.
    pub fn is_active(&self) -> bool {
        self.requires_grad && V::can_train(self.dtype())
    }

    /// Whether a value read through this handle records gradients.
    pub fn is_tracked(&self) -> bool {
        self.is_active() && self.device.is_autodiff()
    }

    /// The shape in files.
    ///
    /// The live one, unless a mapper was added with another; with mappers and no word about it,
    /// the shape that was declared before any transformation.
    pub fn stored_shape(&self) -> &Shape {
        match &self.mappers.stored {
            _ if self.mappers.is_empty() => self.shape(),
            Some(stored) => stored,
            None => &self.declared,
        }
    }

    /// The shape before any transformation.
    pub fn declared_shape(&self) -> &Shape {
        &self.declared
    }

    /// The load and save mappers.
    pub fn mappers(&self) -> &Mappers<V> {
        &self.mappers
    }

    /// The shared state.
    pub fn state(&self) -> &Arc<Lazy<V>> {
        &self.state
    }

    /// The value as this handle reads it, if that is in being already.
    pub fn get(&self) -> Option<&V> {
        if self.is_tracked() {
            self.state.get_leaf()
        } else {
            self.state.get()
        }
    }

    // ---- what may bring the value into being ------------------------------------------------

    /// The value: tracked if this handle wants gradients and its device records them.
    pub fn val(&self, label: &dyn Named, cx: V::Cx<'_>) -> Result<&V, V::Error> {
        if self.is_tracked() {
            self.state.force_leaf(label, cx)
        } else {
            self.state.force(label, cx)
        }
    }

    /// The value as it is saved: taken through the save mappers, the last one added first.
    pub fn transform_for_save(&self, label: &dyn Named, cx: V::Cx<'_>) -> Result<V, V::Error> {
        let mut value = self.state.force(label, cx)?.share(cx);
        for step in self.mappers.save().iter().rev() {
            value = V::apply(step, value, self.state.plan(), cx)?;
        }
        Ok(value)
    }

    // ---- verbs ------------------------------------------------------------------------------

    /// Another handle on the same state.
    pub fn share(&self, cx: V::Cx<'_>) -> Self {
        self.with_state(self.state.clone(), cx)
    }

    /// The same handle on a state of its own; see [`Lazy::independent`].
    pub fn independent(&self, memo: &mut Memo<V>, cx: V::Cx<'_>) -> Result<Self, V::Error> {
        Ok(self.with_state(Lazy::independent(&self.state, memo, cx)?, cx))
    }

    /// The same handle on a state with another draw; see [`Lazy::redrawn`].
    pub fn redrawn(
        &self,
        memo: &mut Memo<V>,
        cx: V::Cx<'_>,
        redraw: impl FnOnce(&V::Draw) -> V::Draw,
    ) -> Result<Self, V::Error> {
        Ok(self.with_state(Lazy::redrawn(&self.state, memo, cx, redraw)?, cx))
    }

    /// A parameter whose value is this one's, transformed. Lazy if this one is lazy.
    ///
    /// The step sees an untracked value; its result is a leaf of its own.
    pub fn map(
        &self,
        step: V::Step,
        change: Change<V>,
        label: &dyn Named,
        cx: V::Cx<'_>,
    ) -> Result<Self, V::Error> {
        let shape = change.shape.unwrap_or_else(|| self.shape().clone());
        let dtype = change.dtype.unwrap_or_else(|| self.dtype().clone());
        let plan = Self::plan_for(shape, dtype, &self.device, self.requires_grad);
        self.derived(self.state.clone(), plan, vec![step], label, cx)
    }

    /// The parameter elsewhere, in the autodiff context it was built with. Lazy stays lazy, and
    /// where its recipe runs is decided when a value is read.
    pub fn to_device(
        &self,
        device: &V::Device,
        label: &dyn Named,
        cx: V::Cx<'_>,
    ) -> Result<Self, V::Error> {
        if *device == self.device {
            return Ok(self.share(cx));
        }
        self.fork(device, label, cx)
    }

    /// As [`to_device`](Self::to_device), and always a state and a leaf of its own.
    pub fn fork(
        &self,
        device: &V::Device,
        label: &dyn Named,
        cx: V::Cx<'_>,
    ) -> Result<Self, V::Error> {
        let device = device.with_context_from(&self.device);
        let (shape, dtype) = (self.shape().clone(), self.dtype().clone());
        let plan = Self::plan_for(shape, dtype, &device, self.requires_grad);
        let mut forked = self.derived(self.state.clone(), plan, Vec::new(), label, cx)?;
        forked.device = device;
        Ok(forked)
    }

    /// The parameter for validation: read untracked, the wish kept.
    pub fn valid(&self, cx: V::Cx<'_>) -> Self {
        Self {
            device: self.device.inner(),
            ..self.share(cx)
        }
    }

    /// The parameter for training: the wish takes effect again where the device can honour it.
    pub fn train(&self, cx: V::Cx<'_>) -> Self {
        Self {
            device: self.device.autodiff(),
            ..self.share(cx)
        }
    }

    /// The parameter with another wish. Clones keep theirs.
    pub fn set_requires_grad(&self, requires_grad: bool, cx: V::Cx<'_>) -> Self {
        Self {
            requires_grad,
            ..self.share(cx)
        }
    }

    /// The handle on another state: same wish, mappers and autodiff context.
    pub fn with_ready(&self, id: u64, state: Arc<Lazy<V>>, cx: V::Cx<'_>) -> Self {
        let device = state.plan().device.with_context_from(&self.device);
        Self {
            id,
            device,
            ..self.with_state(state, cx)
        }
    }

    /// The parameter as if it had been declared with another shape before its transformations.
    pub fn with_declared_shape(self, declared: Shape) -> Self {
        Self { declared, ..self }
    }

    /// The parameter with other mappers.
    pub fn with_mappers(&self, mappers: Mappers<V>, cx: V::Cx<'_>) -> Self {
        Self {
            mappers,
            ..self.share(cx)
        }
    }

    /// The parameter with the value of `source`, a tensor in its stored form, once that has moved
    /// here and gone through the load mappers and then `last`. This one's own recipe never runs.
    ///
    /// Device, wish, mappers and dtype are this one's unless `dtype` says otherwise; the id is
    /// `id` if the source carries one. Lazy if `source` is.
    pub fn transform_for_load(
        &self,
        id: Option<u64>,
        source: Arc<Lazy<V>>,
        last: Vec<V::Step>,
        dtype: Option<V::Dtype>,
        label: &dyn Named,
        cx: V::Cx<'_>,
    ) -> Result<Self, V::Error> {
        let found = &source.plan().shape;
        if *found != *self.stored_shape() {
            let (expected, found) = (self.stored_shape().clone(), found.clone());
            return Err(Fault::StoredShape { expected, found }.into());
        }
        let dtype = dtype.unwrap_or_else(|| self.dtype().clone());
        let plan = Self::plan_for(
            self.shape().clone(),
            dtype,
            &self.device,
            self.requires_grad,
        );
        let mut steps: Vec<V::Step> = self
            .mappers
            .load()
            .iter()
            .map(|step| V::share_step(step, cx))
            .collect();
        steps.extend(last);
        let as_stored = steps.is_empty()
            && (&plan.shape, &plan.dtype, &plan.device)
                == (
                    &source.plan().shape,
                    &source.plan().dtype,
                    &source.plan().device,
                );
        let mut loaded = if as_stored {
            self.with_state(source, cx)
        } else {
            self.derived(source, plan, steps, label, cx)?
        };
        loaded.id = id.unwrap_or(self.id);
        Ok(loaded)
    }

    /// Show `visit` everything that this handle alone owns; see [`Lazy::visit_owned`].
    pub fn visit_owned<E>(
        &self,
        visit: &mut dyn FnMut(Part<'_, V>) -> Result<(), E>,
    ) -> Result<(), E> {
        for step in self.mappers.load().iter().chain(self.mappers.save()) {
            visit(Part::Step(step))?;
        }
        Lazy::visit_owned(&self.state, visit)
    }

    /// Let go of a recipe that this handle alone owns; see [`Lazy::discard`].
    pub fn discard(&self) {
        Lazy::discard(&self.state);
    }

    fn derived(
        &self,
        source: Arc<Lazy<V>>,
        plan: Plan<V>,
        steps: Vec<V::Step>,
        label: &dyn Named,
        cx: V::Cx<'_>,
    ) -> Result<Self, V::Error> {
        let eager = source.get().is_some();
        let state = Lazy::new(plan, Recipe::Derive { source, steps });
        if eager {
            state.force(label, cx)?;
        }
        Ok(self.with_state(state, cx))
    }

    fn with_state(&self, state: Arc<Lazy<V>>, cx: V::Cx<'_>) -> Self {
        Self {
            id: self.id,
            state,
            device: self.device.clone(),
            requires_grad: self.requires_grad,
            mappers: self.mappers.share(cx),
            declared: self.declared.clone(),
        }
    }
}
