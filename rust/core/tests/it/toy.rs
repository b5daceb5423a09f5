//! A toy tensor: the least that a parameter can hold. It keeps a diary of what was done where.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lazyparam_core::{Bell, Cycle, Device, Fault, Label, Origin, Param, Plan, Shape, Value};

/// Element types. Everything is stored as `f32`, rounded to what the type can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Half,
    Int,
    Bool,
}

impl Kind {
    pub(crate) fn round(self, x: f32) -> f32 {
        match self {
            Self::Float => x,
            Self::Half => (x * 64.0).round() / 64.0,
            Self::Int => x.floor(),
            Self::Bool => f32::from(u8::from(x >= 0.5)),
        }
    }
}

/// A place, which may be able to record gradients, and be spelled so that it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    able: bool,
    on: bool,
}

/// A place that cannot record gradients.
pub(crate) const fn plain(name: &'static str) -> Place {
    Place {
        name,
        able: false,
        on: false,
    }
}

/// A place that can record gradients and does.
pub(crate) const fn tracking(name: &'static str) -> Place {
    Place {
        name,
        able: true,
        on: true,
    }
}

/// A place that can record gradients, spelled so that it does not.
pub(crate) const fn untracked(name: &'static str) -> Place {
    Place {
        name,
        able: true,
        on: false,
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Device for Place {
    fn is_autodiff(&self) -> bool {
        self.on
    }

    fn autodiff(&self) -> Self {
        Self {
            on: self.able,
            ..*self
        }
    }

    fn inner(&self) -> Self {
        Self { on: false, ..*self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Oops {
    Cycle(Cycle),
    Fault(Fault),
    Raised(&'static str),
    Unlike(&'static str),
    Interrupted,
}

impl From<Cycle> for Oops {
    fn from(cycle: Cycle) -> Self {
        Self::Cycle(cycle)
    }
}

impl From<Fault> for Oops {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Cycle(cycle) => Self::Cycle(cycle),
            fault => Self::Fault(fault),
        }
    }
}

/// What is passed along: a diary, and a way to interrupt whoever waits with this world at hand.
#[derive(Default)]
pub(crate) struct World {
    diary: Mutex<Vec<String>>,
    pub(crate) interrupted: AtomicBool,
    pub(crate) naps: AtomicUsize,
}

impl World {
    fn note(&self, line: String) {
        self.diary.lock().unwrap().push(line);
    }

    /// What happened since the last time this was asked.
    pub(crate) fn diary(&self) -> Vec<String> {
        std::mem::take(&mut *self.diary.lock().unwrap())
    }
}

#[derive(Clone)]
pub(crate) struct Toy {
    pub(crate) data: Arc<[f32]>,
    pub(crate) shape: Shape,
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    /// The leaf in the graph of gradients, if they are recorded.
    pub(crate) leaf: Option<Arc<()>>,
}

impl fmt::Debug for Toy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tracked = if self.leaf.is_some() { " tracked" } else { "" };
        write!(
            out,
            "{:?}{:?}{tracked} {:?}",
            self.kind, self.shape, self.data
        )
    }
}

impl Toy {
    /// The planned tensor with `element(i)` at `i`.
    pub(crate) fn planned(plan: &Plan<Self>, element: impl Fn(usize) -> f32) -> Self {
        let size = plan.shape.iter().product();
        Self {
            data: (0..size)
                .map(|index| plan.dtype.round(element(index)))
                .collect(),
            shape: plan.shape.clone(),
            kind: plan.dtype,
            place: plan.device,
            leaf: None,
        }
    }

    pub(crate) fn is_tracked(&self) -> bool {
        self.leaf.is_some()
    }

    fn check(self, plan: &Plan<Self>) -> Result<Self, Oops> {
        match () {
            () if self.shape != plan.shape => Err(Oops::Unlike("shape")),
            () if self.kind != plan.dtype => Err(Oops::Unlike("dtype")),
            () if self.place != plan.device => Err(Oops::Unlike("device")),
            () => Ok(self),
        }
    }
}

/// The element at `index` of the tensor drawn with `seed`: nothing else has a say in it.
pub(crate) fn drawn_element(seed: u64, index: usize) -> f32 {
    let mut bits = ((seed << 32) | index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((bits >> 44) as u32) as f32 / 1024.0
}

pub(crate) type Call = Arc<dyn Fn(&Plan<Toy>) -> Result<Toy, Oops> + Send + Sync>;
pub(crate) type Step = Arc<dyn Fn(Toy) -> Result<Toy, Oops> + Send + Sync>;

impl Value for Toy {
    type Cx<'a> = &'a World;
    type Dtype = Kind;
    type Device = Place;
    type Draw = u64;
    type Read = Vec<f32>;
    type Call = Call;
    type Step = Step;
    type Tag = ();
    type Error = Oops;

    fn draw(seed: &u64, plan: &Plan<Self>, cx: &World) -> Result<Self, Oops> {
        cx.note(format!("draw on {}", plan.device.name));
        Ok(Self::planned(plan, |index| drawn_element(*seed, index)))
    }

    fn read(span: &Vec<f32>, plan: &Plan<Self>, cx: &World) -> Result<Self, Oops> {
        cx.note(format!("read on {}", plan.device.name));
        Ok(Self::planned(plan, |index| span[index]))
    }

    fn call(call: &Call, plan: &Plan<Self>, cx: &World) -> Result<Self, Oops> {
        cx.note(format!("call on {}", plan.device.name));
        call(plan)
    }

    fn apply(step: &Step, value: Self, _: &Plan<Self>, _: &World) -> Result<Self, Oops> {
        step(value)
    }

    fn settle(self, plan: &Plan<Self>, _: &World) -> Result<Self, Oops> {
        Ok(Self {
            place: plan.device,
            leaf: None,
            ..self.check(plan)?
        })
    }

    fn share(&self, _: &World) -> Self {
        self.clone()
    }

    fn duplicate(&self, cx: &World) -> Result<Self, Oops> {
        cx.note(format!("copy on {}", self.place.name));
        Ok(Self {
            data: self.data.iter().copied().collect(),
            ..self.clone()
        })
    }

    fn to_device(&self, place: &Place, cx: &World) -> Result<Self, Oops> {
        if self.place != *place {
            cx.note(format!("move from {} to {}", self.place.name, place.name));
        }
        Ok(Self {
            place: *place,
            ..self.clone()
        })
    }

    fn leaf(&self, _: &World) -> Result<Self, Oops> {
        if !self.place.able || !Self::can_train(&self.kind) {
            return Err(Oops::Unlike("what can be tracked"));
        }
        Ok(Self {
            place: self.place.autodiff(),
            leaf: Some(Arc::new(())),
            ..self.clone()
        })
    }

    fn can_train(kind: &Kind) -> bool {
        matches!(kind, Kind::Float | Kind::Half)
    }

    fn share_call(call: &Call, _: &World) -> Call {
        call.clone()
    }

    fn share_step(step: &Step, _: &World) -> Step {
        step.clone()
    }

    fn nap(cx: &World, bell: &Bell) {
        cx.naps.fetch_add(1, SeqCst);
        bell.wait_for(Duration::from_millis(5));
    }

    fn poll(cx: &World) -> Result<(), Oops> {
        if cx.interrupted.load(SeqCst) {
            Err(Oops::Interrupted)
        } else {
            Ok(())
        }
    }
}

// ---- short ways to say what the tests say often -------------------------------------------

pub(crate) type P = Param<Toy>;

/// Nobody gave it a name.
pub(crate) const ANON: Label = None;

pub(crate) const HERE: Place = tracking("here");
pub(crate) const THERE: Place = tracking("there");
pub(crate) const NUMPY: Place = plain("numpy");

pub(crate) fn label(name: &str) -> Label {
    Some(Arc::from(name))
}

pub(crate) fn call(
    call: impl Fn(&Plan<Toy>) -> Result<Toy, Oops> + Send + Sync + 'static,
) -> Origin<Toy> {
    let call: Call = Arc::new(call);
    Origin::Call(call)
}

/// An initialiser that must not run.
pub(crate) fn raising() -> Origin<Toy> {
    call(|_| Err(Oops::Raised("it was run")))
}

/// An initialiser that never gives the same tensor twice, and how often it has run.
pub(crate) fn fresh() -> (Arc<AtomicU64>, Origin<Toy>) {
    let runs = Arc::new(AtomicU64::new(0));
    let counter = runs.clone();
    let origin = call(move |plan| {
        let run = counter.fetch_add(1, SeqCst) + 1;
        Ok(Toy::planned(plan, |index| (run * 10) as f32 + index as f32))
    });
    (runs, origin)
}

/// A parameter of two by three floats with the wish to be trained.
pub(crate) fn declared(place: Place, origin: Origin<Toy>) -> P {
    of_kind(Kind::Float, place, origin)
}

pub(crate) fn of_kind(kind: Kind, place: Place, origin: Origin<Toy>) -> P {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    P::declare(
        NEXT.fetch_add(1, SeqCst),
        Shape::from([2, 3]),
        kind,
        place,
        true,
        origin,
    )
}

pub(crate) fn step(step: impl Fn(Toy) -> Result<Toy, Oops> + Send + Sync + 'static) -> Step {
    Arc::new(step)
}

pub(crate) fn each(element: impl Fn(f32) -> f32 + Send + Sync + 'static) -> Step {
    step(move |toy| {
        let data = toy
            .data
            .iter()
            .map(|x| toy.kind.round(element(*x)))
            .collect();
        Ok(Toy { data, ..toy })
    })
}

pub(crate) fn twice() -> Step {
    each(|x| 2.0 * x)
}

pub(crate) fn transpose() -> Step {
    step(|toy| {
        let &[rows, columns] = &*toy.shape else {
            return Err(Oops::Unlike("a matrix"));
        };
        let data = (0..rows * columns)
            .map(|i| toy.data[(i % rows) * columns + i / rows])
            .collect();
        Ok(Toy {
            data,
            shape: Shape::from([columns, rows]),
            ..toy
        })
    })
}

/// The elements, brought into being if need be.
pub(crate) fn read(param: &P, world: &World) -> Vec<f32> {
    param.val(&ANON, world).unwrap().data.to_vec()
}
