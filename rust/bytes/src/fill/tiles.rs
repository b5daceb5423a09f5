//! Targets whose contiguous axis is not the last one, such as arrays in Fortran order: drawn along one axis, written
//! along the other.
//!
//! Written element by element, a row of such a target touches one cache line per element, and the next row touches
//! them all again, when they are gone. A tile is drawn whole and then written a cache line at a time.

use super::job::Window;
use super::kernel::{Blocks, Recipe, draw};
use super::key::Stream;
use super::philox::GROUP;
use super::plan::Plan;
use super::region::{Dim, Walk};
use super::simd::Isa;

/// Bytes of a tile along the axis that is contiguous in the target: a cache line.
const LINE: usize = 64;
/// Elements of a tile along the axis that is contiguous in the draw.
const COLS: usize = 256;
/// A row of a tile begins and ends anywhere in a group.
const ROOM: usize = COLS + 2 * GROUP;
/// Tiles in a chunk.
const TILES: usize = 16;

/// A box divided into tiles.
#[derive(Debug)]
pub(crate) struct Tiles {
    recipe: Recipe,
    /// The last axis: contiguous in the draw.
    cols: Dim,
    /// The axis that is contiguous in the target.
    rows: Dim,
    /// All others.
    outer: Vec<Dim>,
    /// Tiles along the rows, and along the columns.
    high: usize,
    wide: usize,
    /// Tiles in a slice.
    per_slice: usize,
    tiles: usize,
}

impl Tiles {
    /// Tiles for this box, where they help.
    pub(crate) fn new(walk: &Walk, recipe: Recipe) -> Option<Self> {
        let (cols, others) = walk.dims().split_last()?;
        let at = others.iter().position(|dim| dim.offset_step == 1)?;
        let rows = others[at];
        if cols.offset_step == 1 || cols.index_step != 1 || cols.len < GROUP || rows.len < 2 {
            return None;
        }
        let mut outer = others.to_vec();
        outer.remove(at);
        let high = rows.len.div_ceil(LINE / recipe.size());
        let wide = cols.len.div_ceil(COLS);
        let per_slice = outer.iter().map(|dim| dim.len).product::<usize>() * high * wide;
        Some(Self {
            recipe,
            cols: *cols,
            rows,
            outer,
            high,
            wide,
            per_slice,
            tiles: per_slice * walk.slices(),
        })
    }

    pub(crate) fn chunks(&self) -> usize {
        self.tiles.div_ceil(TILES)
    }

    pub(crate) fn run(
        &self,
        plan: &Plan,
        walk: &Walk,
        isa: Isa,
        ticket: usize,
        window: &mut Window<'_>,
    ) -> usize {
        let from = ticket * TILES;
        (from..self.tiles.min(from + TILES))
            .map(|tile| self.tile(plan, walk, isa, tile, window))
            .sum()
    }

    fn tile(
        &self,
        plan: &Plan,
        walk: &Walk,
        isa: Isa,
        tile: usize,
        window: &mut Window<'_>,
    ) -> usize {
        let size = self.recipe.size();
        let (coordinates, mut offset) = walk.slice(tile / self.per_slice);
        let id = plan.key.slice_id(Stream::Values, &coordinates);
        // Neighbouring tiles write neighbouring cache lines.
        let mut rest = tile % self.per_slice;
        let row = rest % self.high * (LINE / size);
        rest /= self.high;
        let col = rest % self.wide * COLS;
        rest /= self.wide;
        let mut index = walk.first() + row as u64 * self.rows.index_step + col as u64;
        offset += row as isize + col as isize * self.cols.offset_step;
        for dim in self.outer.iter().rev() {
            let place = rest % dim.len;
            rest /= dim.len;
            index += place as u64 * dim.index_step;
            offset += place as isize * dim.offset_step;
        }
        let rows = (self.rows.len - row).min(LINE / size);
        let cols = (self.cols.len - col).min(COLS);
        let mut drawn = [0; ROOM * LINE];
        let mut begins = [0; LINE / 2];
        for (row, begin) in begins.iter_mut().enumerate().take(rows) {
            let index = index + row as u64 * self.rows.index_step;
            let inside = (index % GROUP as u64) as usize;
            let groups = (inside + cols).div_ceil(GROUP);
            *begin = row * ROOM + inside;
            let line = &mut drawn[row * ROOM * size..][..groups * GROUP * size];
            let first = Blocks::Groups(index / GROUP as u64);
            draw(isa, self.recipe, id, first, line);
        }
        let begins = &begins[..rows];
        for col in 0..cols {
            let at = offset + col as isize * self.cols.offset_step;
            let line = window.elements(at, rows, size);
            match size {
                2 => gather::<2>(&drawn, begins, col, line),
                4 => gather::<4>(&drawn, begins, col, line),
                _ => gather::<8>(&drawn, begins, col, line),
            }
        }
        rows * cols
    }
}

/// Collects one element of each row.
#[inline(always)]
fn gather<const SIZE: usize>(drawn: &[u8], begins: &[usize], col: usize, to: &mut [u8]) {
    let (drawn, _) = drawn.as_chunks::<SIZE>();
    for (to, begin) in to.as_chunks_mut::<SIZE>().0.iter_mut().zip(begins) {
        *to = drawn[begin + col];
    }
}
