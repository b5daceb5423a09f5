//! `Plan`: a scheme for a tensor of a shape and dtype, checked, with the layout of what it gives.

use std::ops::Range;

use super::error::QuantError;
use super::scheme::{Code, Scheme};
use super::tiles::Tiles;
use crate::dtype::Dtype;
use crate::shape;

/// Elements that a thread takes at once: they and their codes fit into the second-level cache.
const CHUNK: usize = 1 << 15;

/// If a slab of blocks is larger than that, its elements are read twice, in pieces, so that threads can share it.
const LARGEST_SLAB: usize = 1 << 18;

/// A scheme, and the tensor that it is for. Everything there is to refuse without looking at elements has been.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) scheme: Scheme,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) tiles: Tiles,
    /// How many elements there are.
    pub(crate) len: usize,
    /// How many blocks there are.
    pub(crate) blocks: usize,
    /// After so many elements, codes begin with a new byte.
    lane: usize,
    values_shape: Vec<usize>,
    scales_shape: Vec<usize>,
}

impl Plan {
    /// Brings a scheme together with a tensor of this shape and dtype.
    pub fn new(scheme: &Scheme, shape: &[usize], dtype: Dtype) -> Result<Self, QuantError> {
        if !matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F64) {
            return Err(QuantError::Elements(dtype));
        }
        // Even in `f64` it has to be possible, so that every dtype can be dequantised to.
        shape::checked_len(shape, Dtype::F64).ok_or_else(|| QuantError::Shape(shape.to_vec()))?;
        let len: usize = shape.iter().product();
        let row = shape.last().copied().unwrap_or(1);
        let (tiles, scales_shape) = match (scheme.code, &scheme.block) {
            (Code::Nf4, block) => {
                let size = block.as_ref().map_or(1, |block| block.iter().product());
                (Tiles::flat(len, size), vec![len.div_ceil(size)])
            }
            (_, None) => (Tiles::flat(len, len.max(1)), Vec::new()),
            (_, Some(block)) => {
                let tile = tile(block, shape)?;
                let grid = shape.iter().zip(&tile).map(|(len, tile)| len / tile);
                let grid: Vec<usize> = grid.collect();
                let tiles = if len == 0 {
                    Tiles::flat(0, 1)
                } else {
                    Tiles::new(shape, &tile)
                };
                (tiles, grid)
            }
        };
        let (lane, values_shape) = match scheme.code {
            Code::Q8S => (len, shape.to_vec()),
            Code::Nf4 => (len, vec![len.div_ceil(2)]),
            Code::Q4S => {
                let mut packed = shape.to_vec();
                match packed.last_mut() {
                    None => packed.push(1),
                    Some(last) => *last = row.div_ceil(2),
                }
                // Rows of an even length follow each other like one.
                (if row.is_multiple_of(2) { len } else { row }, packed)
            }
        };
        Ok(Self {
            blocks: scales_shape.iter().product(),
            scheme: scheme.clone(),
            shape: shape.to_vec(),
            dtype,
            tiles,
            len,
            lane,
            values_shape,
            scales_shape,
        })
    }

    /// The shape of the array of codes, one byte each: that of the tensor for Q8S; for Q4S with half the last
    /// dimension, rounded up; one dimension for NF4.
    pub fn values_shape(&self) -> &[usize] {
        &self.values_shape
    }

    /// Whether a byte of the values is a signed integer, and not two codes.
    pub fn is_signed(&self) -> bool {
        self.scheme.code.per_byte() == 1
    }

    /// The shape of the array of scales: how many blocks there are in each dimension. No dimension for one block.
    pub fn scales_shape(&self) -> &[usize] {
        &self.scales_shape
    }

    /// Bytes of all elements.
    pub fn elements_len(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// Bytes of all codes.
    pub fn values_len(&self) -> usize {
        self.values_shape.iter().product()
    }

    /// Bytes of all scales.
    pub fn scales_len(&self) -> usize {
        self.blocks * self.scheme.scale.size()
    }

    /// Bytes of the codes of a run: whole lanes, or a part of one from an even place on.
    pub(crate) fn packed_len(&self, run: &Range<usize>) -> usize {
        let per_byte = self.scheme.code.per_byte();
        if run.is_empty() {
            return 0;
        }
        let (lanes, rest) = (run.len() / self.lane, run.len() % self.lane);
        lanes * self.lane.div_ceil(per_byte) + rest.div_ceil(per_byte)
    }

    /// The lanes, or parts of one, that codes of a run of elements are packed by.
    pub(crate) fn lane(&self) -> usize {
        self.lane.max(1)
    }

    /// How many elements make whole blocks and whole bytes, if that is few enough for one thread.
    fn slab(&self) -> Option<usize> {
        let bytes = match self.scheme.code.per_byte() {
            1 => 1,
            _ if self.lane == self.len => 2,
            _ => self.lane,
        };
        let slab = least_common_multiple(self.tiles.slab(), bytes)?;
        (self.len > 0 && slab <= LARGEST_SLAB).then_some(slab)
    }

    /// Runs of whole blocks that can be worked on one by one, and how many blocks each has at most; `None` if blocks
    /// are too large.
    pub(crate) fn whole_blocks(
        &self,
    ) -> Option<(usize, impl Iterator<Item = Range<usize>> + use<>)> {
        let slab = self.slab()?;
        let (len, size) = (self.len, slab * (CHUNK / slab).max(1));
        let blocks = size / self.tiles.slab() * self.tiles.blocks_in_slab();
        let runs = (0..len).step_by(size).map(move |at| at..len.min(at + size));
        Some((blocks, runs))
    }

    /// Runs of whole bytes that can be worked on one by one.
    pub(crate) fn whole_bytes(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (len, lane) = (self.len, self.lane());
        let mut at = 0;
        std::iter::from_fn(move || {
            let size = if lane < CHUNK {
                CHUNK / lane * lane
            } else {
                CHUNK.min(lane - at % lane)
            };
            let run = at..len.min(at + size);
            at = run.end;
            (!run.is_empty()).then_some(run)
        })
    }

    /// More threads than that find nothing to do.
    pub(crate) fn pieces(&self) -> usize {
        self.len.div_ceil(CHUNK)
    }

    /// The place of an element, in every dimension.
    pub(crate) fn index(&self, mut element: usize) -> Vec<usize> {
        let mut index: Vec<usize> = self
            .shape
            .iter()
            .rev()
            .map(|&len| {
                let place = element % len;
                element /= len;
                place
            })
            .collect();
        index.reverse();
        index
    }

    /// Refuses an array that has not the length it should have.
    pub(crate) fn check(
        what: &'static str,
        expected: usize,
        found: usize,
    ) -> Result<(), QuantError> {
        if expected == found {
            return Ok(());
        }
        Err(QuantError::Length {
            what,
            expected,
            found,
        })
    }
}

/// An extent of the block for each dimension of the tensor.
fn tile(block: &[usize], shape: &[usize]) -> Result<Vec<usize>, QuantError> {
    let divides = |(&len, &tile): (&usize, &usize)| len % tile == 0;
    let reached = shape.len().checked_sub(block.len());
    match reached {
        Some(before) if shape[before..].iter().zip(block).all(divides) => {
            Ok([&vec![1; before], block].concat())
        }
        _ => Err(QuantError::Block {
            block: block.to_vec(),
            shape: shape.to_vec(),
        }),
    }
}

fn least_common_multiple(a: usize, b: usize) -> Option<usize> {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a.checked_div(divisor)?.checked_mul(b)
}
