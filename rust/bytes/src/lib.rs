//! What turns into tensor bytes: dtypes, shapes, memory, fills and checkpoint files.
//!
//! This crate knows nothing of Python and nothing of parameters. It answers four questions: what an
//! element is ([`Dtype`]), how many bytes a shape needs ([`shape`]), where those bytes live
//! ([`Buffer`]) and how they get there ([`fill`] draws initial values, [`quant`] quantises,
//! [`store`] reads and writes `safetensors` checkpoints).
//!
//! `unsafe` is denied here and allowed where there is no other way: in the two files that map memory
//! (`buffer.rs` and `store/map.rs`), and under `fill` in `job.rs` (one slice for many threads), `env.rs` (a
//! control register) and the instruction sets in `simd`.

#![deny(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!(
    "checkpoint bytes are little-endian and are handed out as they lie in the file; a big-endian \
     host would read every number reversed"
);

mod buffer;
mod dtype;
pub mod fill;
pub mod quant;
pub mod shape;
pub mod store;
mod widen;

pub use buffer::{Buffer, OutOfMemory};
pub use dtype::{Dtype, Kind};
