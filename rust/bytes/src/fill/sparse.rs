//! Sparse matrices: which entries of a column stay, and their values.

use super::job::Window;
use super::kernel::{Blocks, Format, Recipe, draw};
use super::key::Stream;
use super::law::Law;
use super::pen::Pen;
use super::philox::GROUP;
use super::plan::Plan;
use super::region::Walk;
use super::simd::Isa;
use super::work::repeat;

/// Columns in a chunk: a cache line of the narrowest dtype, and then some.
const COLUMNS: usize = 64;

/// A sparse matrix, divided into blocks of columns.
///
/// Column c keeps the `kept` rows r with the smallest (word, r), where the word is number c · rows + r of the
/// stream for sparse matrices. That needs the whole column, whatever the box.
#[derive(Debug)]
pub(crate) struct Columns {
    rows: usize,
    kept: usize,
    values: Recipe,
    /// The box within a slice.
    first_row: usize,
    box_rows: usize,
    first_col: usize,
    box_cols: usize,
    row_step: isize,
    col_step: isize,
    blocks: usize,
    slices: usize,
}

impl Columns {
    pub(crate) fn new(plan: &Plan, walk: &Walk, rows: usize, kept: usize, values: Recipe) -> Self {
        let steps = walk.strides();
        let axes: Vec<usize> = (0..plan.shape.len())
            .filter(|axis| !plan.batch_axes.contains(axis))
            .collect();
        // `resolve` has seen to it that there are two.
        let (row, col) = (axes[0], axes[1]);
        let (start, shape) = (plan.region.start(), plan.region.shape());
        let blocks = if shape[row] == 0 {
            0
        } else {
            shape[col].div_ceil(COLUMNS)
        };
        Self {
            rows,
            kept,
            values,
            first_row: start[row],
            box_rows: shape[row],
            first_col: start[col],
            box_cols: shape[col],
            row_step: steps[row],
            col_step: steps[col],
            blocks,
            slices: walk.slices(),
        }
    }

    pub(crate) fn chunks(&self) -> usize {
        self.slices * self.blocks
    }

    pub(crate) fn run(
        &self,
        plan: &Plan,
        walk: &Walk,
        isa: Isa,
        ticket: usize,
        window: &mut Window<'_>,
    ) -> usize {
        let (coordinates, offset) = walk.slice(ticket / self.blocks);
        let from = ticket % self.blocks * COLUMNS;
        let to = self.box_cols.min(from + COLUMNS);
        let place = |row: usize, col: usize| {
            offset + row as isize * self.row_step + col as isize * self.col_step
        };
        let zero = vec![0; plan.dtype.size()];
        for row in 0..self.box_rows {
            let run = super::region::Run {
                index: 0,
                index_step: 1,
                offset: place(row, from),
                offset_step: self.col_step,
                len: to - from,
            };
            repeat(window, run, &zero);
        }
        let mask = plan.key.slice_id(Stream::Sparse, &coordinates);
        let values = plan.key.slice_id(Stream::Values, &coordinates);
        let cols = plan_cols(plan);
        let mut pen = Pen::new(isa, self.values, values, window);
        let mut words = Vec::new();
        let mut ranked = Vec::with_capacity(self.rows);
        for col in from..to {
            let global_col = (self.first_col + col) as u64;
            let begin = global_col * self.rows as u64;
            let inside = (begin % GROUP as u64) as usize;
            words.resize((inside + self.rows).next_multiple_of(GROUP) * 4, 0);
            let recipe = Recipe::Narrow(Law::Words, Format::Single);
            let first = Blocks::Groups(begin / GROUP as u64);
            draw(isa, recipe, mask, first, &mut words);
            ranked.clear();
            let (words, _) = words.as_chunks();
            ranked.extend(
                (0_u64..)
                    .zip(&words[inside..][..self.rows])
                    .map(|(row, word)| u64::from(u32::from_le_bytes(*word)) << 32 | row),
            );
            if self.kept < self.rows {
                ranked.select_nth_unstable(self.kept);
            }
            for ranked in &ranked[..self.kept] {
                let row = (ranked & 0xFFFF_FFFF) as usize;
                if (self.first_row..self.first_row + self.box_rows).contains(&row) {
                    let index = row as u64 * cols + global_col;
                    pen.single(index, place(row - self.first_row, col));
                }
            }
        }
        pen.finish();
        self.box_rows * (to - from)
    }
}

/// Columns of a whole slice.
fn plan_cols(plan: &Plan) -> u64 {
    let last = (0..plan.shape.len()).rfind(|axis| !plan.batch_axes.contains(axis));
    last.map_or(1, |axis| plan.shape[axis] as u64)
}
