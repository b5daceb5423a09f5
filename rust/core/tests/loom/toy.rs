//! The least value that a state can hold, made of memory whose every use the checker sees.

use std::sync::{Arc, Mutex, Weak};

use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lazyparam_core::{Bell, Device, Fault, Lazy, Origin, Plan, Recipe, Shape, Value};

use crate::cell::{Count, Refusal};
use crate::explore::{Bare, unpoisoned};

/// A shared state, behind the core's `Arc`; that of the tests is out of the checker's sight.
pub(crate) type State = lazyparam_core::Arc<Lazy<Toy>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) &'static str);

pub(crate) const HERE: Place = Place("here");
pub(crate) const THERE: Place = Place("there");
pub(crate) const ELSEWHERE: Place = Place("elsewhere");

impl Device for Place {
    fn is_autodiff(&self) -> bool {
        false
    }

    fn autodiff(&self) -> Self {
        *self
    }

    fn inner(&self) -> Self {
        *self
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        // No test here expects one.
        panic!("{fault:?}")
    }
}

/// What is passed along: a diary of what was done where, and how often anything was called.
#[derive(Clone, Default)]
pub(crate) struct World {
    diary: Arc<Mutex<Vec<String>>>,
    runs: Count,
}

impl World {
    fn note(&self, line: String) {
        unpoisoned(&self.diary).push(line);
    }

    /// What was done, in alphabetical order: threads have none.
    pub(crate) fn deeds(&self) -> Vec<String> {
        let mut deeds = std::mem::take(&mut *unpoisoned(&self.diary));
        deeds.sort();
        deeds
    }
}

/// A number at a place, made with memory that its maker wrote.
#[derive(Clone)]
pub(crate) struct Toy {
    number: usize,
    pub(crate) place: Place,
    bare: Arc<Bare>,
}

impl Toy {
    fn new(number: usize, place: Place) -> Self {
        let bare = Arc::new(Bare::written());
        Self {
            number,
            place,
            bare,
        }
    }

    /// The number. A data race unless the reader is ordered after the maker.
    pub(crate) fn read(&self) -> usize {
        self.bare.read();
        self.number
    }
}

/// Something of the user's. To free it is a use of its memory as well, ordered after all others.
pub(crate) struct Held {
    bare: Bare,
    _alive: Arc<()>,
}

impl Held {
    fn new() -> (Weak<()>, Self) {
        let alive = Arc::new(());
        let watch = Arc::downgrade(&alive);
        let bare = Bare::written();
        (
            watch,
            Self {
                bare,
                _alive: alive,
            },
        )
    }

    pub(crate) fn read(&self) {
        self.bare.read();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.bare.write();
        }
    }
}

/// A function that never gives the same number twice, after it has failed `failures` times.
pub(crate) struct Call {
    failures: usize,
    pub(crate) held: Held,
    // Changed and read by one operation, which finds the newest value and orders nobody.
    running: AtomicUsize,
}

impl Call {
    fn new(failures: usize, held: Held) -> Self {
        Self {
            failures,
            held,
            running: AtomicUsize::new(0),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.fetch_add(0, Relaxed) > 0
    }
}

impl Value for Toy {
    type Cx<'a> = &'a World;
    type Dtype = ();
    type Device = Place;
    type Draw = ();
    type Read = ();
    type Call = Call;
    type Step = Held;
    type Tag = ();
    type Error = Refusal;

    fn draw((): &(), plan: &Plan<Self>, cx: &World) -> Result<Self, Refusal> {
        cx.note(format!("draw {}", plan.device.0));
        Ok(Self::new(7, plan.device))
    }

    fn read((): &(), plan: &Plan<Self>, cx: &World) -> Result<Self, Refusal> {
        Self::draw(&(), plan, cx)
    }

    fn call(call: &Call, plan: &Plan<Self>, cx: &World) -> Result<Self, Refusal> {
        call.held.read();
        call.running.fetch_add(1, Relaxed);
        cx.note(format!("call {}", plan.device.0));
        let run = cx.runs.next();
        call.running.fetch_sub(1, Relaxed);
        if run < call.failures {
            return Err(Refusal::Raised);
        }
        Ok(Self::new(10 * (run + 1), plan.device))
    }

    fn apply(step: &Held, value: Self, _: &Plan<Self>, cx: &World) -> Result<Self, Refusal> {
        step.read();
        cx.note(format!("step {}", value.place.0));
        Ok(Self::new(value.read() + 1, value.place))
    }

    fn settle(self, plan: &Plan<Self>, _: &World) -> Result<Self, Refusal> {
        assert_eq!(self.place, plan.device);
        Ok(self)
    }

    fn share(&self, _: &World) -> Self {
        self.bare.read();
        self.clone()
    }

    fn duplicate(&self, cx: &World) -> Result<Self, Refusal> {
        cx.note(format!("copy {}", self.place.0));
        Ok(Self::new(self.read(), self.place))
    }

    fn to_device(&self, place: &Place, cx: &World) -> Result<Self, Refusal> {
        if self.place != *place {
            cx.note(format!("move {} to {}", self.place.0, place.0));
        }
        Ok(Self::new(self.read(), *place))
    }

    fn leaf(&self, cx: &World) -> Result<Self, Refusal> {
        cx.note(format!("leaf {}", self.place.0));
        Ok(Self::new(self.read(), self.place))
    }

    fn can_train((): &()) -> bool {
        false
    }

    fn share_call(call: &Call, _: &World) -> Call {
        call.held.read();
        Call::new(call.failures, Held::new().1)
    }

    fn share_step(step: &Held, _: &World) -> Held {
        step.read();
        Held::new().1
    }

    fn nap(_: &World, bell: &Bell) {
        bell.wait();
    }

    fn poll(_: &World) -> Result<(), Refusal> {
        Ok(())
    }
}

fn plan(place: Place) -> Plan<Toy> {
    Plan {
        shape: Shape::from([]),
        dtype: (),
        device: place,
        requires_grad: false,
    }
}

/// A state here whose call fails so many times, and a way to see whether anybody holds the call.
pub(crate) fn called(failures: usize) -> (Weak<()>, State) {
    let (watch, held) = Held::new();
    let origin = Origin::Call(Call::new(failures, held));
    (watch, Lazy::new(plan(HERE), Recipe::Origin(origin)))
}

/// A state here that is drawn.
pub(crate) fn drawn() -> State {
    Lazy::new(plan(HERE), Recipe::Origin(Origin::Draw(())))
}

/// A state at `place` made of `source` in so many steps.
pub(crate) fn derived(source: &State, place: Place, steps: usize) -> State {
    let steps = (0..steps).map(|_| Held::new().1).collect();
    let source = source.clone();
    Lazy::new(plan(place), Recipe::Derive { source, steps })
}

/// The number that `state` holds, brought into being if need be.
pub(crate) fn force(state: &State, world: &World) -> Result<usize, Refusal> {
    state.force(&None, world).map(Toy::read)
}
