//! What the core asks of a tensor: the trait [`Value`] and the plan a value is checked against.

use std::fmt;

use crate::graph::{Bell, Cycle};
use crate::sync::Frozen;

/// The extent of a tensor along each axis. Cheap to clone.
pub type Shape = Frozen<[usize]>;

/// Where tensors live. Equality is about the place; it ignores the autodiff flag.
pub trait Device: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// Whether values here can record gradients.
    fn is_autodiff(&self) -> bool;

    /// The same place with gradients recorded, or the same device where the place cannot.
    fn autodiff(&self) -> Self;

    /// The same place without gradients.
    fn inner(&self) -> Self;

    /// This place in the autodiff context of `other`: a moved value keeps what it was built with.
    fn with_context_from(&self, other: &Self) -> Self {
        if other.is_autodiff() {
            self.autodiff()
        } else {
            self.inner()
        }
    }
}

/// What is known of a value before it exists.
pub struct Plan<V: Value> {
    /// Extents, in elements.
    pub shape: Shape,
    /// Element type.
    pub dtype: V::Dtype,
    /// Where the value is made.
    pub device: V::Device,
    /// Whether gradients are wanted and can be recorded there.
    pub requires_grad: bool,
}

impl<V: Value> Plan<V> {
    /// The same plan, carried out elsewhere: without gradients where they cannot be recorded.
    pub fn at(&self, device: &V::Device) -> Self {
        let requires_grad = self.requires_grad && device.is_autodiff();
        Self {
            device: device.clone(),
            requires_grad,
            ..self.clone()
        }
    }
}

impl<V: Value> Clone for Plan<V> {
    fn clone(&self) -> Self {
        Self {
            shape: self.shape.clone(),
            dtype: self.dtype.clone(),
            device: self.device.clone(),
            requires_grad: self.requires_grad,
        }
    }
}

impl<V: Value> fmt::Debug for Plan<V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Plan")
            .field("shape", &self.shape)
            .field("dtype", &self.dtype)
            .field("device", &self.device)
            .field("requires_grad", &self.requires_grad)
            .finish()
    }
}

/// What can go wrong in the core itself, apart from what a [`Value`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An initialiser needs, directly or not, the value it is making.
    Cycle(Cycle),
    /// The recipe was taken away before a value was read (its owner was garbage).
    Discarded,
    /// A stored tensor has another shape than the parameter stores.
    StoredShape {
        /// The shape that the parameter stores.
        expected: Shape,
        /// The shape that was offered.
        found: Shape,
    },
}

impl From<Cycle> for Fault {
    fn from(cycle: Cycle) -> Self {
        Self::Cycle(cycle)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(cycle) => cycle.fmt(out),
            Self::Discarded => out.write_str("the recipe of this value has been discarded"),
            Self::StoredShape { expected, found } => {
                write!(
                    out,
                    "the stored shape is {expected:?}, but a tensor of {found:?} came"
                )
            }
        }
    }
}

impl std::error::Error for Fault {}

/// A tensor, as far as parameters care: a cheap handle on data that nobody changes in place.
///
/// Every method may be called from any thread, never with a lock of this crate held, and may run
/// arbitrary code of the user's. `Cx` is whatever the implementation needs to have at hand (the
/// proof of being attached to an interpreter, say); the core only passes it on.
pub trait Value: Sized + Send + Sync + 'static {
    /// Passed through to every method.
    type Cx<'a>: Copy;
    /// Element type.
    type Dtype: Clone + PartialEq + fmt::Debug + Send + Sync;
    /// Place.
    type Device: Device;
    /// A native initialiser: plain data, the same values wherever and whenever it runs.
    type Draw: Clone + Send + Sync;
    /// A span of a file: plain data, the same values wherever and whenever it is read.
    type Read: Clone + Send + Sync;
    /// A function of the user's.
    type Call: Send + Sync;
    /// One transformation of a value.
    type Step: Send + Sync;
    /// What a caller of the core keeps beside a lazy state. The core never looks at it.
    type Tag: Default + Send + Sync;
    /// What reading can fail with.
    type Error: From<Fault> + From<Cycle>;

    /// Make the planned value with a native initialiser.
    fn draw(draw: &Self::Draw, plan: &Plan<Self>, cx: Self::Cx<'_>) -> Result<Self, Self::Error>;

    /// Read the planned value from a file.
    fn read(read: &Self::Read, plan: &Plan<Self>, cx: Self::Cx<'_>) -> Result<Self, Self::Error>;

    /// Make the planned value with the user's function.
    fn call(call: &Self::Call, plan: &Plan<Self>, cx: Self::Cx<'_>) -> Result<Self, Self::Error>;

    /// Transform a value. The result is to be as `plan` says.
    fn apply(
        step: &Self::Step,
        value: Self,
        plan: &Plan<Self>,
        cx: Self::Cx<'_>,
    ) -> Result<Self, Self::Error>;

    /// Check a new value against its plan and make it fit to be shared: complete, untracked, and
    /// out of reach of whoever made it.
    fn settle(self, plan: &Plan<Self>, cx: Self::Cx<'_>) -> Result<Self, Self::Error>;

    /// Another handle on the same data.
    fn share(&self, cx: Self::Cx<'_>) -> Self;

    /// The same data in memory of its own.
    fn duplicate(&self, cx: Self::Cx<'_>) -> Result<Self, Self::Error>;

    /// The same data on another device.
    fn to_device(&self, device: &Self::Device, cx: Self::Cx<'_>) -> Result<Self, Self::Error>;

    /// A leaf over the same data that records gradients.
    fn leaf(&self, cx: Self::Cx<'_>) -> Result<Self, Self::Error>;

    /// Whether gradients mean anything for this element type.
    fn can_train(dtype: &Self::Dtype) -> bool;

    /// Another handle on the same function.
    fn share_call(call: &Self::Call, cx: Self::Cx<'_>) -> Self::Call;

    /// Another handle on the same transformation.
    fn share_step(step: &Self::Step, cx: Self::Cx<'_>) -> Self::Step;

    /// Sleep until `bell` rings, or for a while (see [`Patience`](crate::Patience)).
    fn nap(cx: Self::Cx<'_>, bell: &Bell);

    /// Answer signals, look at the clock; an error ends the wait.
    fn poll(cx: Self::Cx<'_>) -> Result<(), Self::Error>;
}
