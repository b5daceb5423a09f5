//! Checkpoint files: opening, reading, viewing and writing `safetensors`, whole or in shards.
//!
//! [`Checkpoint::open`] reads headers only and checks them strictly; from then on every [`Entry`]
//! says where its bytes lie. They are brought in by copying ([`Checkpoint::read`]) or, without a copy,
//! by mapping the file ([`Checkpoint::view`]). [`write()`] makes a new file, or replaces one in a
//! single step. [`encode`] and [`decode`] do the same for a file that is bytes in memory.

mod candidate;
mod checkpoint;
mod error;
mod file;
mod header;
mod index;
mod json;
mod layout;
mod map;
mod memory;
mod pack;
mod quote;
mod read;
mod replace;
mod shard;
mod sharded;
mod sniff;
mod view;
mod write;

pub use checkpoint::{Checkpoint, Entry, OpenOptions};
pub use error::StoreError;
pub use map::{Pages, View};
pub use memory::{Contents, decode};
pub use shard::Shard;
pub use write::{Tensor, encode, write};
