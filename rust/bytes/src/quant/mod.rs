//! Quantisation: floats as integers of eight or four bits, with a scale for each block of them.
//!
//! A [`Scheme`] says how, a [`Plan`] brings it together with a shape and a dtype, and then [`quantize`] makes
//! codes and scales and [`dequantize`] makes elements of them again, on any number of threads and with the same bits for
//! each.
//!
//! ```
//! use lazyparam_bytes::Dtype;
//! use lazyparam_bytes::quant::{Code, Crew, Plan, Scheme, quantize};
//!
//! let elements: Vec<u8> = [0.5_f32, -1.0, 0.25, 127.0].iter().flat_map(|x| x.to_le_bytes()).collect();
//! let scheme = Scheme::new(Code::Q8S, None, Dtype::F32)?;
//! let plan = Plan::new(&scheme, &[2, 2], Dtype::F32)?;
//! let (mut values, mut scales) = (vec![0; plan.values_len()], vec![0; plan.scales_len()]);
//! quantize(&plan, &elements, None, &mut values, &mut scales, Crew::new(2))?;
//! assert_eq!(values, [1, 255, 0, 127]);
//! assert_eq!(scales, 1.0_f32.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The rules
//!
//! Elements are `f32`, `f16`, `bf16` or `f64`; all arithmetic is that of `f32` in the default environment, so
//! `f64` elements are rounded to `f32` first. An element that is not finite then is refused.
//!
//! - **Q8S and Q4S.** The limit L is 127, or 7. The scale of a block is its largest magnitude divided by L, or the
//!   smallest normal `f32` if that is more, rounded *up* to the dtype that it is stored in. The code of an element
//!   is the element divided by the scale *as it is stored*, rounded to nearest with ties away from zero, and put within
//!   ±L. It stands for its product with the scale. These are Burn's rules.
//! - **NF4.** A block is so many elements in C order, the last one may be shorter. Its scale is its largest magnitude;
//!   a short block's at least 10⁻³⁸. Elements are multiplied by the inverse of the scale (of 10⁻³⁸ if that is more);
//!   in a short block divided by it. The code is the number of midpoints of neighbouring values in the
//!   [table](NF4) that are less. Bytes and scales are those of bitsandbytes 0.50 on the CPU.
//!
//! # The layout
//!
//! Codes are bytes. Q8S: a signed integer for each element. Q4S: two's complement of four bits, the first of two in the
//! low half of the byte; each row (along the last dimension) begins with a new byte, and a half that is left over is
//! zero. NF4: the first of two in the *high* half, rows follow each other, and a half that is left over is 7, the code of
//! zero. Scales are in C order of the blocks.
//!
//! # Memory and time
//!
//! Blocks that lie close together are measured and encoded while they are in the cache. If they do not (one scale for a
//! large tensor, or for each column) its elements are read twice.

mod coding;
mod crew;
mod element;
mod error;
mod pass;
mod plan;
mod scheme;
mod tiles;

pub use coding::NF4;
pub use crew::Crew;
pub use error::{Parts, QuantError};
pub use pass::{absmax, dequantize, quantize};
pub use plan::Plan;
pub use scheme::{Code, Scheme};
