//! Orthogonal matrices, uniformly distributed, strip by strip.
//!
//! G. W. Stewart, *The efficient generation of random orthogonal matrices with an application to condition
//! estimators*, 1980: the Q of a Gaussian matrix's QR decomposition is a product of reflectors whose vectors are
//! independent Gaussian vectors of decreasing length. So they are drawn directly, and only the second half of
//! the decomposition is computed.

use std::ops::Range;

use super::job::Window;
use super::kernel::{Blocks, Format, Recipe, draw};
use super::key::{Id, Stream};
use super::law::{Law, Normal};
use super::number::round_into;
use super::philox::GROUP;
use super::plan::Plan;
use super::reflect::{BLOCK, Panels, Real, Reflect};
use super::region::Walk;
use super::simd::Isa;
use crate::dtype::Dtype;

/// Columns in a strip. Each strip draws the vectors again; the wider, the less often.
const STRIP: usize = 512;

/// An orthogonal matrix, divided into strips of columns that are computed independently.
///
/// It is tall, or the transpose of what is wanted; column j is H₁ H₂ … H_j e_j, with the sign that makes the
/// distribution uniform.
#[derive(Debug)]
pub(crate) struct Strips {
    /// The longer side.
    long: usize,
    /// The shorter side: the number of columns, and of reflectors.
    short: usize,
    /// Columns of the matrix that is wanted.
    cols: usize,
    transposed: bool,
    gain: f64,
    strips: usize,
    slices: usize,
}

impl Strips {
    pub(crate) fn new(walk: &Walk, rows: usize, cols: usize, gain: f64) -> Self {
        let (long, short) = (rows.max(cols), rows.min(cols));
        let empty = walk.slice_len() == 0;
        Self {
            long,
            short,
            cols,
            transposed: rows < cols,
            gain,
            strips: if empty { 0 } else { short.div_ceil(STRIP) },
            slices: walk.slices(),
        }
    }

    pub(crate) fn chunks(&self) -> usize {
        self.strips * self.slices
    }

    pub(crate) fn run(
        &self,
        plan: &Plan,
        walk: &Walk,
        isa: Isa,
        ticket: usize,
        window: &mut Window<'_>,
    ) -> usize {
        // The last strips take longest, so they come first.
        let (strip, slice) = (self.strips - 1 - ticket / self.slices, ticket % self.slices);
        let from = strip * STRIP;
        let to = self.short.min(from + STRIP);
        let (coordinates, offset) = walk.slice(slice);
        let mut box_elements = 0;
        self.in_strip(walk, offset, from..to, |segment| {
            box_elements += segment.len
        });
        if box_elements == 0 {
            return 0;
        }
        let id = plan.key.slice_id(Stream::Orthogonal, &coordinates);
        if plan.dtype == Dtype::F64 {
            let strip = self.compute::<f64>(isa, id, from, to);
            self.in_strip(walk, offset, from..to, |segment| {
                for (row, col, offset) in segment.elements(self.transposed) {
                    let bytes = strip.get(row, col).to_le_bytes();
                    window.elements(offset, 1, 8).copy_from_slice(&bytes);
                }
            });
        } else {
            let strip = self.compute::<f32>(isa, id, from, to);
            let size = plan.dtype.size();
            self.in_strip(walk, offset, from..to, |segment| {
                for (row, col, offset) in segment.elements(self.transposed) {
                    let to = window.elements(offset, 1, size);
                    round_into(strip.get(row, col), plan.dtype, to);
                }
            });
        }
        box_elements
    }

    /// Calls `f` with the parts of the box that lie in these columns of the tall matrix.
    fn in_strip(
        &self,
        walk: &Walk,
        offset: isize,
        strip: Range<usize>,
        mut f: impl FnMut(Segment),
    ) {
        let cols = self.cols as u64;
        walk.runs(offset, 0, walk.slice_len(), |run| {
            let mut at = 0;
            while at < run.len {
                let index = run.index + at as u64 * run.index_step;
                let (row, col) = ((index / cols) as usize, (index % cols) as usize);
                // Up to the end of the row, where the run goes along rows.
                let len = if run.index_step == 1 {
                    (self.cols - col).min(run.len - at)
                } else {
                    1
                };
                let (inside, skipped, kept) = if self.transposed {
                    (strip.contains(&row), 0, len)
                } else {
                    let begin = strip.start.max(col);
                    let end = strip.end.min(col + len);
                    (
                        begin < end,
                        begin.saturating_sub(col),
                        end.saturating_sub(begin),
                    )
                };
                if inside {
                    f(Segment {
                        row,
                        col: col + skipped,
                        len: kept,
                        offset: run.offset + (at + skipped) as isize * run.offset_step,
                        offset_step: run.offset_step,
                        from: strip.start,
                    });
                }
                at += len;
            }
        });
    }

    /// The columns `from..to`.
    fn compute<R: Drawn>(&self, isa: Isa, id: Id, from: usize, to: usize) -> Panels<R> {
        let mut strip = Panels::<R>::new(self.long, to - from);
        for col in from..to {
            *strip.at(col, col - from) = R::ONE;
        }
        let mut scratch = Vec::new();
        let mut signs = vec![R::ONE; to - from];
        for first in (0..to).step_by(BLOCK).rev() {
            let height = self.long - first;
            let mut vectors = Panels::<R>::new(height, BLOCK);
            for number in 0..BLOCK.min(to - first) {
                let reflector = first + number;
                let vector = R::gaussian(isa, id, self.long, reflector, &mut scratch);
                let negative = unit_reflector(vector);
                for (row, &x) in vector.iter().enumerate() {
                    *vectors.at(number + row, number) = x;
                }
                // The diagonal of R has the opposite sign; it is made positive.
                if reflector >= from && !negative {
                    signs[reflector - from] = R::default() - R::ONE;
                }
            }
            isa.run(Reflect {
                vectors: &vectors,
                from: first,
                target: &mut strip,
            });
        }
        let gain = R::from_wide(self.gain);
        for (col, &sign) in signs.iter().enumerate() {
            for row in 0..self.long {
                let number = strip.at(row, col);
                *number = *number * sign * gain;
            }
        }
        strip
    }
}

/// Elements of one row of the matrix that is wanted, all in one strip.
struct Segment {
    row: usize,
    col: usize,
    len: usize,
    offset: isize,
    offset_step: isize,
    /// First column of the strip.
    from: usize,
}

impl Segment {
    /// Row and column of each element in the strip, and its offset in the target.
    fn elements(&self, transposed: bool) -> impl Iterator<Item = (usize, usize, isize)> {
        (0..self.len).map(move |number| {
            let offset = self.offset + number as isize * self.offset_step;
            if transposed {
                (self.col + number, self.row - self.from, offset)
            } else {
                (self.row, self.col + number - self.from, offset)
            }
        })
    }
}

/// Turns x into the v of the reflector 1 − v vᵀ that maps x to ∓|x| e₁; whether x₁ is negative.
fn unit_reflector<R: Real>(x: &mut [R]) -> bool {
    let squares = x.iter().fold(0.0, |sum, x| sum + x.wide() * x.wide());
    let norm = squares.sqrt();
    let Some(first) = x.first_mut() else {
        return false;
    };
    let negative = first.wide() < 0.0;
    let far = first.wide().abs() + norm;
    *first = R::from_wide(if negative { -far } else { far });
    // |v|² = 2 |x| (|x| + |x₁|), which has to become 2. A vector of zeros cannot be drawn: it would need 24
    // zeros in a row of every word.
    let scale = 1.0 / (norm * far).sqrt();
    for x in x {
        *x = R::from_wide(x.wide() * scale);
    }
    negative
}

/// A precision that Gaussian vectors are drawn in.
trait Drawn: Real {
    /// The standard normal elements of the `number`th vector: those from `number · (length + 1)` on, as many as
    /// are left of `length` after `number`.
    fn gaussian(
        isa: Isa,
        id: Id,
        length: usize,
        number: usize,
        scratch: &mut Vec<Self>,
    ) -> &mut [Self];
}

/// Draws the group-aligned elements around those wanted; gives how many to skip.
fn drawn_bytes(isa: Isa, recipe: Recipe, id: Id, length: usize, number: usize) -> (Vec<u8>, usize) {
    let begin = number as u64 * length as u64 + number as u64;
    let inside = (begin % GROUP as u64) as usize;
    let groups = (inside + length - number).div_ceil(GROUP);
    let mut bytes = vec![0; groups * GROUP * recipe.size()];
    let first = Blocks::Groups(begin / GROUP as u64);
    draw(isa, recipe, id, first, &mut bytes);
    (bytes, inside)
}

impl Drawn for f32 {
    fn gaussian(
        isa: Isa,
        id: Id,
        length: usize,
        number: usize,
        scratch: &mut Vec<Self>,
    ) -> &mut [Self] {
        let normal = Law::Normal(Normal {
            mean: 0.0,
            std: 1.0,
        });
        let recipe = Recipe::Narrow(normal, Format::Single);
        let (bytes, inside) = drawn_bytes(isa, recipe, id, length, number);
        let numbers = bytes.as_chunks().0[inside..].iter();
        scratch.clear();
        scratch.extend(
            numbers
                .take(length - number)
                .map(|bytes| Self::from_le_bytes(*bytes)),
        );
        scratch
    }
}

impl Drawn for f64 {
    fn gaussian(
        isa: Isa,
        id: Id,
        length: usize,
        number: usize,
        scratch: &mut Vec<Self>,
    ) -> &mut [Self] {
        let recipe = Recipe::Wide(Law::Normal(Normal {
            mean: 0.0,
            std: 1.0,
        }));
        let (bytes, inside) = drawn_bytes(isa, recipe, id, length, number);
        let numbers = bytes.as_chunks().0[inside..].iter();
        scratch.clear();
        scratch.extend(
            numbers
                .take(length - number)
                .map(|bytes| Self::from_le_bytes(*bytes)),
        );
        scratch
    }
}
