//! A lazy state: a plan, a recipe as data, and the value they become exactly once.
//!
//! States are shared behind `Arc` by all the handles that are clones of each other, and by the
//! states derived from them. The plan sits outside every lock, so metadata is free at any time.
//! The recipe sits behind a lock that guards a pointer swap: it is copied out, run with no lock
//! held, and taken away ("retired") once the value is there, so whatever it held is freed.
//!
//! Chains of derived states are forced and dropped by loops, never by recursion.

use std::collections::HashMap;

use crate::cell::{Entry, OnceCell, Patience, Turn};
use crate::graph::{Bell, Named};
use crate::sync::{self, Arc, Mutex};
use crate::value::{Fault, Plan, Value};

/// Where a value comes from when it is not derived from another one.
pub enum Origin<V: Value> {
    /// Draw it: a native initialiser. Its values do not depend on the place.
    Draw(V::Draw),
    /// Read it: a span of a file. Its values do not depend on the place.
    Read(V::Read),
    /// Call it: a function of the user's.
    Call(V::Call),
}

/// How a value comes into being.
pub enum Recipe<V: Value> {
    /// From nothing else.
    Origin(Origin<V>),
    /// From another state: moved where the plan says, then taken through the steps in order.
    Derive {
        /// The state it is derived from.
        source: Arc<Lazy<V>>,
        /// What is done to the source's value; nothing at all for a mere move.
        steps: Vec<V::Step>,
    },
}

impl<V: Value> Recipe<V> {
    /// Whether the values are the same wherever this is carried out: a draw, a read, or moves of
    /// one, or of what is there already.
    fn is_placeless(recipe: &Arc<Self>) -> bool {
        let mut recipe = recipe.clone();
        loop {
            let below = match &*recipe {
                Self::Origin(Origin::Draw(_) | Origin::Read(_)) => return true,
                Self::Derive { source, steps } if steps.is_empty() => {
                    // In this order: a recipe goes only after the value has come.
                    let below = source.recipe();
                    match below {
                        Some(below) if source.get().is_none() => below,
                        _ => return true,
                    }
                }
                Self::Origin(Origin::Call(_)) | Self::Derive { .. } => return false,
            };
            recipe = below;
        }
    }

    fn share_origin(origin: &Origin<V>, cx: V::Cx<'_>) -> Origin<V> {
        match origin {
            Origin::Draw(draw) => Origin::Draw(draw.clone()),
            Origin::Read(read) => Origin::Read(read.clone()),
            Origin::Call(call) => Origin::Call(V::share_call(call, cx)),
        }
    }
}

/// Something that a state or a handle owns and that a garbage collector may want to see.
pub enum Part<'a, V: Value> {
    /// A value in being.
    Value(&'a V),
    /// A function of the user's.
    Call(&'a V::Call),
    /// A transformation.
    Step(&'a V::Step),
}

/// Which states have been copied already: keeps ties within one deep copy.
///
/// It keeps the originals alive, so an address in it never means two states.
pub type Memo<V> = HashMap<usize, (Arc<Lazy<V>>, Arc<Lazy<V>>)>;

/// A value that is planned, and made when first needed.
pub struct Lazy<V: Value> {
    plan: Plan<V>,
    cell: OnceCell<V>,
    leaf: OnceCell<V>,
    recipe: Mutex<Option<Arc<Recipe<V>>>>,
    /// What the caller of the core keeps here.
    pub tag: V::Tag,
}

// What counts owners is given its `Arc` by name: Rust takes the standard library's as a method's
// receiver, and no other that `sync` might choose.
impl<V: Value> Lazy<V> {
    /// A state that will be made by `recipe`.
    pub fn new(plan: Plan<V>, recipe: Recipe<V>) -> Arc<Self> {
        Self::build(plan, OnceCell::new(), Some(Arc::new(recipe)))
    }

    /// A state born ready. `value` must be settled.
    pub fn ready(plan: Plan<V>, value: V) -> Arc<Self> {
        Self::build(plan, OnceCell::with(value), None)
    }

    fn build(plan: Plan<V>, cell: OnceCell<V>, recipe: Option<Arc<Recipe<V>>>) -> Arc<Self> {
        let recipe = Mutex::new(recipe);
        Arc::new(Self {
            plan,
            cell,
            leaf: OnceCell::new(),
            recipe,
            tag: V::Tag::default(),
        })
    }

    /// What is known of the value; free at any time.
    pub fn plan(&self) -> &Plan<V> {
        &self.plan
    }

    /// The value, if it is in being; never waits.
    pub fn get(&self) -> Option<&V> {
        self.cell.get()
    }

    /// The tracked leaf, if it is in being; never waits.
    pub fn get_leaf(&self) -> Option<&V> {
        self.leaf.get()
    }

    /// The recipe, until the value is there.
    pub fn recipe(&self) -> Option<Arc<Recipe<V>>> {
        sync::lock(&self.recipe).clone()
    }

    /// The value, brought into being if need be.
    pub fn force(&self, label: &dyn Named, cx: V::Cx<'_>) -> Result<&V, V::Error> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        match self.cell.enter(label, &mut Waiter::<V> { cx })? {
            Entry::Ready(value) => Ok(value),
            Entry::Vacant(turn) => {
                let value = self.evaluate(label, cx)?;
                let value = turn.fill(&self.cell, value);
                self.retire();
                Ok(value)
            }
        }
    }

    /// The leaf that records gradients, one for all handles that want gradients.
    pub fn force_leaf(&self, label: &dyn Named, cx: V::Cx<'_>) -> Result<&V, V::Error> {
        if let Some(leaf) = self.leaf.get() {
            return Ok(leaf);
        }
        let value = self.force(label, cx)?;
        self.leaf
            .get_or_try_init(label, &mut Waiter::<V> { cx }, || value.leaf(cx))
    }

    /// Make the value, holding this state's turn, and leave it to the caller to publish.
    ///
    /// First down the chain of sources to something that exists or can be made from nothing, then
    /// back up. *Where* is decided on the way down: a source that nobody else can read is made
    /// where it is needed, without a cell of its own; so is one whose values do not depend on the
    /// place. Any other is made at home, once, for all who share it.
    fn evaluate(&self, label: &dyn Named, cx: V::Cx<'_>) -> Result<V, V::Error> {
        let mut pending: Vec<Pending<V>> = Vec::new();
        let mut here = Pending {
            recipe: self.recipe().ok_or(Fault::Discarded)?,
            plan: self.plan.clone(),
            publish: None,
        };
        // Of the source's recipe, if it has been asked for; a mere move is as its source is, so a
        // chain of moves is looked through once.
        let mut placeless = None;
        let mut value = loop {
            let recipe = here.recipe.clone();
            let Recipe::Derive { source, steps } = &*recipe else {
                break here.originate(cx)?;
            };
            if !steps.is_empty() {
                placeless = None;
            }
            let device = &here.plan.device;
            let below = match Self::approach(source, device, &mut placeless, label, cx)? {
                Source::Value(value) => break here.derive(value, cx)?,
                Source::Here(recipe) => Pending {
                    recipe,
                    plan: source.plan.at(&here.plan.device),
                    publish: None,
                },
                Source::Turn(recipe, turn) => {
                    let publish = Some((turn, source.clone()));
                    Pending {
                        recipe,
                        plan: source.plan.clone(),
                        publish,
                    }
                }
            };
            pending.push(std::mem::replace(&mut here, below));
        };
        for mut step in pending.into_iter().rev() {
            value = step.derive(value, cx)?;
        }
        Ok(value)
    }

    /// `source` as the source of a state that is being made on `device`.
    fn approach(
        source: &Arc<Self>,
        device: &V::Device,
        placeless: &mut Option<bool>,
        label: &dyn Named,
        cx: V::Cx<'_>,
    ) -> Result<Source<V>, V::Error> {
        let found = |value: &V| Ok(Source::Value(value.share(cx)));
        if let Some(value) = source.get() {
            return found(value);
        }
        // One owner: the recipe that is being carried out, by the only thread that may. Counted
        // before looking for the recipe: who publishes drops that first, and its reference then.
        let unshared = Arc::strong_count(source) == 1;
        if let Some(recipe) = source.recipe() {
            let mut roams = || *placeless.get_or_insert_with(|| Recipe::is_placeless(&recipe));
            if unshared || (*device != source.plan.device && roams()) {
                return Ok(Source::Here(recipe));
            }
        }
        match source.cell.enter(label, &mut Waiter::<V> { cx })? {
            Entry::Ready(value) => found(value),
            Entry::Vacant(turn) => Ok(Source::Turn(source.recipe().ok_or(Fault::Discarded)?, turn)),
        }
    }

    /// Let go of the recipe: the value is there.
    fn retire(&self) {
        let spent = sync::lock(&self.recipe).take();
        drop(spent);
    }

    /// A state of its own with the same plan: a lazy one draws for itself, a ready one gets a
    /// copy of the data.
    ///
    /// `memo` keeps what was tied within one copy tied, sources of derived states included.
    pub fn independent(
        state: &Arc<Self>,
        memo: &mut Memo<V>,
        cx: V::Cx<'_>,
    ) -> Result<Arc<Self>, V::Error> {
        Self::over_another(state, memo, cx, |end| match end {
            End::Value(state, value) => Ok(Self::ready(state.plan.clone(), value.duplicate(cx)?)),
            End::Origin(state, origin) => {
                let origin = Recipe::share_origin(origin, cx);
                Ok(Self::new(state.plan.clone(), Recipe::Origin(origin)))
            }
        })
    }

    /// This state, but with another draw where it is to be drawn, or derived from what is. What is
    /// there already, and what comes from elsewhere, stays as it is.
    ///
    /// `memo` is as for [`Lazy::independent`].
    pub fn redrawn(
        state: &Arc<Self>,
        memo: &mut Memo<V>,
        cx: V::Cx<'_>,
        redraw: impl FnOnce(&V::Draw) -> V::Draw,
    ) -> Result<Arc<Self>, V::Error> {
        Self::over_another(state, memo, cx, |end| match end {
            End::Origin(state, Origin::Draw(draw)) => {
                let origin = Origin::Draw(redraw(draw));
                Ok(Self::new(state.plan.clone(), Recipe::Origin(origin)))
            }
            End::Value(state, _) | End::Origin(state, _) => Ok(state.clone()),
        })
    }

    /// This state over what `replace` makes of the end of its chain of sources.
    fn over_another(
        state: &Arc<Self>,
        memo: &mut Memo<V>,
        cx: V::Cx<'_>,
        replace: impl FnOnce(End<'_, V>) -> Result<Arc<Self>, V::Error>,
    ) -> Result<Arc<Self>, V::Error> {
        // Down: the chain of states that have not been replaced yet. Up: what replaces them.
        let mut chain: Vec<(Arc<Self>, Arc<Recipe<V>>)> = Vec::new();
        let mut at = state.clone();
        let mut new = loop {
            if let Some((_, new)) = memo.get(&at.key()) {
                break new.clone();
            }
            // In this order: a recipe goes only after the value has come.
            let recipe = at.recipe();
            let end = match (at.get(), recipe.as_deref()) {
                (Some(value), _) => End::Value(&at, value),
                (None, Some(Recipe::Origin(origin))) => End::Origin(&at, origin),
                (None, Some(Recipe::Derive { source, .. })) => {
                    let below = source.clone();
                    chain.extend(recipe.map(|recipe| (std::mem::replace(&mut at, below), recipe)));
                    continue;
                }
                (None, None) => return Err(Fault::Discarded.into()),
            };
            let new = replace(end)?;
            memo.insert(at.key(), (at, new.clone()));
            break new;
        };
        for (state, recipe) in chain.into_iter().rev() {
            let Recipe::Derive { source, steps } = &*recipe else {
                continue;
            };
            if source.key() == new.key() {
                new = state.clone();
            } else {
                let steps = steps.iter().map(|step| V::share_step(step, cx)).collect();
                let derive = Recipe::Derive { source: new, steps };
                new = Self::new(state.plan.clone(), derive);
            }
            memo.insert(state.key(), (state, new.clone()));
        }
        Ok(new)
    }

    /// Whether the value is not there yet, and an [`independent`](Self::independent) state will have
    /// the same one, bit for bit: no function of the user's has a part in it.
    pub fn repeats(&self) -> bool {
        // In this order: a recipe goes only after the value has come.
        let recipe = self.recipe();
        self.get().is_none() && recipe.is_some_and(|recipe| Recipe::is_placeless(&recipe))
    }

    /// A number that is this state's alone while it lives.
    pub fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Show `visit` everything that is owned through this one reference, and nothing else.
    ///
    /// A collector counts each reference it is shown against its target's count, so what several
    /// owners can reach must not be shown by each of them: a state or recipe is entered only
    /// while it has one owner. Takes no lock that anybody waits for.
    pub fn visit_owned<E>(
        state: &Arc<Self>,
        visit: &mut dyn FnMut(Part<'_, V>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = state.clone();
        // The owner's reference, and the one just made.
        while Arc::strong_count(&state) == 2 {
            for value in [state.cell.get(), state.leaf.get()].into_iter().flatten() {
                visit(Part::Value(value))?;
            }
            let Ok(slot) = state.recipe.try_lock() else {
                break;
            };
            let Some(recipe) = slot
                .as_ref()
                .filter(|recipe| Arc::strong_count(recipe) == 1)
            else {
                break;
            };
            let below = match &**recipe {
                Recipe::Origin(Origin::Call(call)) => {
                    visit(Part::Call(call))?;
                    break;
                }
                Recipe::Origin(_) => break,
                Recipe::Derive { source, steps } => {
                    steps.iter().try_for_each(|step| visit(Part::Step(step)))?;
                    source.clone()
                }
            };
            drop(slot);
            state = below;
        }
        Ok(())
    }

    /// Take away the recipe if this reference is the only one: its owner is garbage.
    pub fn discard(state: &Arc<Self>) {
        if Arc::strong_count(state) == 1 {
            state.retire();
        }
    }
}

impl<V: Value> Drop for Lazy<V> {
    fn drop(&mut self) {
        let mut spent = sync::lock(&self.recipe).take();
        while let Some(recipe) = spent.take() {
            if let Some(Recipe::Derive { source, .. }) = sync::into_inner(recipe)
                && let Some(source) = sync::into_inner(source)
            {
                spent = sync::lock(&source.recipe).take();
            }
        }
    }
}

/// Where a chain of sources ends.
enum End<'a, V: Value> {
    /// In a value that is there.
    Value(&'a Arc<Lazy<V>>, &'a V),
    /// In something that is made from nothing else.
    Origin(&'a Arc<Lazy<V>>, &'a Origin<V>),
}

/// A state on the way to its value, with the turn to publish it where it has readers of its own.
struct Pending<V: Value> {
    recipe: Arc<Recipe<V>>,
    plan: Plan<V>,
    // In this order: a turn is given back before its cell may go.
    publish: Option<(Turn, Arc<Lazy<V>>)>,
}

impl<V: Value> Pending<V> {
    fn originate(&mut self, cx: V::Cx<'_>) -> Result<V, V::Error> {
        let value = match &*self.recipe {
            Recipe::Origin(Origin::Draw(draw)) => V::draw(draw, &self.plan, cx)?,
            Recipe::Origin(Origin::Read(read)) => V::read(read, &self.plan, cx)?,
            Recipe::Origin(Origin::Call(call)) => V::call(call, &self.plan, cx)?,
            Recipe::Derive { .. } => return Err(Fault::Discarded.into()),
        };
        self.finish(value, cx)
    }

    fn derive(&mut self, source: V, cx: V::Cx<'_>) -> Result<V, V::Error> {
        let mut value = source.to_device(&self.plan.device, cx)?;
        if let Recipe::Derive { steps, .. } = &*self.recipe {
            for step in steps {
                value = V::apply(step, value, &self.plan, cx)?;
            }
        }
        self.finish(value, cx)
    }

    fn finish(&mut self, value: V, cx: V::Cx<'_>) -> Result<V, V::Error> {
        let value = value.settle(&self.plan, cx)?;
        if let Some((turn, state)) = self.publish.take() {
            turn.fill(&state.cell, value.share(cx));
            state.retire();
        }
        Ok(value)
    }
}

/// What a source answers to the state that is derived from it.
enum Source<V: Value> {
    /// It is in being.
    Value(V),
    /// Make it on the spot; nobody will look for it in its cell.
    Here(Arc<Recipe<V>>),
    /// Make it for all who share it.
    Turn(Arc<Recipe<V>>, Turn),
}

struct Waiter<'a, V: Value> {
    cx: V::Cx<'a>,
}

impl<V: Value> Patience for Waiter<'_, V> {
    type Error = V::Error;

    fn nap(&mut self, bell: &Bell) {
        V::nap(self.cx, bell);
    }

    fn poll(&mut self) -> Result<(), Self::Error> {
        V::poll(self.cx)
    }
}
