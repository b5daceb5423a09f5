//! The state machine of lazyparam: everything that has to be *proved*, and no Python.
//!
//! Floors, each using only the ones before it:
//!
//! * `sync`: the synchronisation primitives, chosen in one place;
//! * [`cell`] (over `graph`): a once-cell that can fail, be retried, and never deadlocks silently;
//! * [`value`]: what the core asks of a tensor;
//! * [`lazy`]: a plan and a recipe that become a value exactly once;
//! * [`mapper`]: what is done to a value on its way from and to a file;
//! * [`param`]: a handle on a lazy state, with its own intent, device and mappers.
//!
//! A caller brings a [`Value`] of its own. The tests bring a toy tensor; the Python glue brings
//! array objects.

#![forbid(unsafe_code)]

pub mod cell;
mod graph;
pub mod lazy;
pub mod mapper;
pub mod param;
mod sync;
pub mod value;

pub use cell::{Block, OnceCell, Patience, Slot, get_or_try_init_at};
pub use graph::{Bell, Cycle, Helping, Label, Named, Place, after_fork_in_child, this_thread};
pub use lazy::{Lazy, Memo, Origin, Part, Recipe};
pub use mapper::Mappers;
pub use param::{Change, Param};
pub use sync::{Arc, Latch};
pub use value::{Device, Fault, Plan, Shape, Value};
