//! Native initialisers: the same bits for any order, thread count, shard, layout and instruction set.
//!
//! An [`Init`] says what to draw, a [`Key`] which draw it is, and a [`Plan`] brings both together with a shape,
//! a dtype and a box. Then [`fill()`] makes the values, or a [`Fill`] writes them into memory of the caller's,
//! on the caller's threads.
//!
//! ```
//! use lazyparam_bytes::Dtype;
//! use lazyparam_bytes::fill::{Init, Key, Plan, Region, fill};
//!
//! let key = Key::new(42, ["layers".into(), 3.into(), "weight".into()]);
//! let init = Init::normal(0.0, 0.02)?;
//! let shape = [1024, 4096];
//! let whole = fill(&Plan::new(&init, &key, &shape, Dtype::F32)?, 4)?;
//! let region = Region::new([512, 0], [2, 4096]);
//! let shard = fill(&Plan::of_region(&init, &key, &shape, Dtype::F32, &[], &region)?, 1)?;
//! assert_eq!(shard.as_slice(), &whole.as_slice()[512 * 4096 * 4..][..2 * 4096 * 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The rules, `rng-1`
//!
//! They decide bits; a change of bits would change the name. All arithmetic is IEEE 754 `+ - * / √` in the
//! default environment, without contraction, and of integers.
//!
//! - **Identity.** BLAKE2b of seed and path gives the 64-bit key k₀ k₁ and the upper 64 bits c₂ c₃ of the counter
//!   ([`Key::id`]). A slice of a stacked parameter has a path of its own.
//! - **Words.** Element *i*, in C order of the *global* shape, belongs to group g = ⌊i / 64⌋, and with j = i mod 64
//!   to word w = ⌊j / 16⌋ of block 16 g + j mod 16. The block is Philox4x32-10 ([`philox`]) of the counter
//!   (block mod 2³², ⌊block / 2³²⌋, c₂, c₃). `f64` has words of 64 bits, whose lower halves come from the same block with
//!   c₃ ⊕ 2³¹.
//! - **Uniform.** ⌊W / 2⁸⌋ · (2⁻²⁴ · width) + low, or with 53 bits in `f64`; what rounds up to `high` or above becomes
//!   the largest value below it.
//! - **Normal.** Words 2h and 2h + 1 give a pair by Box and Muller: with s = W₀ | 1 as a signed integer, the radius is
//!   √(−2 ln |s| 2⁻³¹) with the sign of s; W₁ as a signed integer times π/2 · 2⁻³² is the angle from an axis, and its
//!   last bit says from which. Values reach 6.5556 standard deviations (9.3457 in `f64`).
//! - **Truncated normal.** By inversion, one word for each element: k = (⌊W / 2⌋ + ½) 2⁻³¹ (52 bits in `f64`) lies
//!   left or right of the mean; either half is computed from its own tail probability, whose quantile is a ratio of
//!   polynomials in q (1 − q), or in √(−2 ln q) for the tails. Beyond the reach of normal draws on both sides it is
//!   the normal law.
//! - **f16 and bf16** hold the `f32` value, rounded to nearest even. Bounds are put on bounds of the dtype.
//! - **Sparse.** Column c keeps the rows r with the smallest (word, r), word number c · rows + r of a stream of its
//!   own.
//! - **Orthogonal.** Householder vector k of length m − k is normal elements from k m + k on, of a stream of its own,
//!   for the m × n matrix with m ≥ n (or its transpose). It is computed in `f32`, or `f64` for `f64`, in sums of one
//!   fixed order; so here, too, the bits are the same everywhere, though no more than an error of 2e-6 is
//!   promised.
//!
//! # Memory
//!
//! Element-wise fills need some kilobytes of stack for each thread. Sparse matrices need twelve bytes for each row,
//! orthogonal ones up to 512 + 64 numbers for each row of the tall matrix, for each thread.

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

pub(crate) use env::at_default;
pub use error::InitError;
pub(crate) use error::tuple;
pub use fans::{Axis, Compat, Fans, Layout};
pub use gain::Nonlinearity;
pub use init::{Init, Mode, Spread};
pub use job::{Fill, Target, fill};
pub use key::{Id, Key, Part, Stream};
pub use number::Number;
pub use parts::Arg;
pub use pattern::repeat;
pub use philox::block as philox;
pub use plan::Plan;
pub use region::Region;
pub use resolve::{Distribution, Ones};
pub use simd::Isa;
pub(crate) use simd::{Simd, Task};
