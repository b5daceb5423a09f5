//! Native initialisers: the same bits for any order, thread count, shard, layout and instruction set.
//!
//! An [`Init`] says what to draw, a [`Key`] which draw it is, and a [`Plan`] brings both together with a shape,
//! a dtype and a box. Then [`fill()`] makes the values, or a [`Fill`] writes them into memory of the caller's,
//! on the caller's threads.
//!
//! Element *i* (its index in C order in the *global* shape) is a function of the key and of *i*: one word of
//! Philox4x32-10, or two words that a pair of elements shares. All arithmetic on the way is IEEE 754
//! `+ - * / √` without contraction, in the default environment. The rules are called `rng-1`; a change of
//! bits would change the name.

mod content;
mod cut;
#[cfg(test)]
mod edge;
mod env;
mod error;
mod fans;
mod gain;
mod init;
mod job;
mod kernel;
mod key;
mod law;
mod math32;
mod math64;
mod number;
mod orthogonal;
mod parts;
mod pattern;
mod pen;
mod philox;
mod plan;
mod reflect;
mod region;
mod resolve;
mod simd;
mod sparse;
mod special;
mod tiles;
mod work;

pub use error::InitError;
pub use fans::{Axis, Compat, Fans, Layout};
pub use gain::Nonlinearity;
pub use init::{Init, Mode, Spread};
pub use job::{Fill, Target, fill};
pub use key::{Id, Key, Part, Stream};
pub use number::Number;
pub use parts::Arg;
pub use pattern::{eye, repeat};
pub use philox::block as philox;
pub use plan::Plan;
pub use region::Region;
pub use resolve::{Distribution, Ones};
pub use simd::Isa;
