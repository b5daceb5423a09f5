//! The chunks of a fill: what they are, and how one is filled.

use super::content::Content;
use super::job::Window;
use super::key::Stream;
use super::orthogonal::Strips;
use super::pattern;
use super::pen::Pen;
use super::plan::Plan;
use super::region::{Run, Walk};
use super::resolve::Ones;
use super::simd::Isa;
use super::sparse::Columns;
use super::tiles::Tiles;

/// Elements in a chunk: enough that a ticket costs nothing, few enough that many threads share one tensor.
const CHUNK: usize = 1 << 16;
/// Bytes of a huge page on x86-64, and on ARM with 4 KiB base pages.
const HUGE_PAGE: usize = 2 << 20;
/// From this many bytes on, a chunk is a huge page. The first to write to a fresh one has it cleared; two that come
/// at once would both clear one, and one of the two would be thrown away.
const LARGE: usize = 16 * HUGE_PAGE;

/// How a fill is divided among threads. What goes where does not depend on it.
#[derive(Debug)]
pub(crate) enum Work {
    /// Elements of the box, in C order of each slice, slice after slice.
    Elements { chunks: usize, chunk: usize },
    /// Tiles of a target whose contiguous axis is not the last one.
    Tiles(Tiles),
    /// Blocks of columns.
    Sparse(Columns),
    /// Strips of columns of an orthogonal matrix.
    Orthogonal(Strips),
}

impl Work {
    pub(crate) fn new(plan: &Plan, walk: &Walk) -> Self {
        let size = plan.dtype.size();
        let chunk = if plan.bytes() >= LARGE {
            HUGE_PAGE / size
        } else {
            CHUNK
        };
        let elements = Self::Elements {
            chunks: walk.len().div_ceil(chunk),
            chunk,
        };
        match plan.content {
            Content::Sparse { rows, kept, values } => {
                Self::Sparse(Columns::new(plan, walk, rows, kept, values))
            }
            Content::Orthogonal { rows, cols, gain } => {
                Self::Orthogonal(Strips::new(walk, rows, cols, gain))
            }
            Content::Draw(recipe) => Tiles::new(walk, recipe).map_or(elements, Self::Tiles),
            _ => elements,
        }
    }

    pub(crate) fn chunks(&self) -> usize {
        match self {
            Self::Elements { chunks, .. } => *chunks,
            Self::Tiles(tiles) => tiles.chunks(),
            Self::Sparse(columns) => columns.chunks(),
            Self::Orthogonal(strips) => strips.chunks(),
        }
    }

    /// Fills the chunk of this ticket; gives its number of elements.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        walk: &Walk,
        isa: Isa,
        ticket: usize,
        window: &mut Window<'_>,
    ) -> usize {
        match self {
            Self::Elements { chunk, .. } => {
                let from = ticket * chunk;
                let to = walk.len().min(from + chunk);
                elements(plan, walk, isa, from, to, window);
                to - from
            }
            Self::Tiles(tiles) => tiles.run(plan, walk, isa, ticket, window),
            Self::Sparse(columns) => columns.run(plan, walk, isa, ticket, window),
            Self::Orthogonal(strips) => strips.run(plan, walk, isa, ticket, window),
        }
    }
}

/// The elements `from..to` of the box.
fn elements(plan: &Plan, walk: &Walk, isa: Isa, from: usize, to: usize, window: &mut Window<'_>) {
    let slice_len = walk.slice_len();
    let mut at = from;
    while at < to {
        let (slice, begin) = (at / slice_len, at % slice_len);
        let end = slice_len.min(begin + (to - at));
        let (coordinates, offset) = walk.slice(slice);
        match &plan.content {
            Content::Draw(recipe) => {
                let id = plan.key.slice_id(Stream::Values, &coordinates);
                let mut pen = Pen::new(isa, *recipe, id, window);
                walk.runs(offset, begin, end, |run| pen.write(run));
                pen.finish();
            }
            Content::Repeat(element) => {
                walk.runs(offset, begin, end, |run| repeat(window, run, element));
            }
            Content::Ones { ones, zero, one } => {
                walk.runs(offset, begin, end, |run| repeat(window, run, zero));
                walk.runs(offset, begin, end, |run| put_ones(window, run, *ones, one));
            }
            Content::Sparse { .. } | Content::Orthogonal { .. } => {}
        }
        at += end - begin;
    }
}

/// One element over and over.
pub(crate) fn repeat(window: &mut Window<'_>, run: Run, element: &[u8]) {
    if run.offset_step == 1 {
        pattern::repeat(window.elements(run.offset, run.len, element.len()), element);
        return;
    }
    for number in 0..run.len {
        let offset = run.offset + number as isize * run.offset_step;
        window
            .elements(offset, 1, element.len())
            .copy_from_slice(element);
    }
}

/// The ones that are among the elements of a run.
fn put_ones(window: &mut Window<'_>, run: Run, ones: Ones, one: &[u8]) {
    if run.index_step != 1 {
        for number in 0..run.len {
            let single = Run {
                index: run.index + number as u64 * run.index_step,
                index_step: 1,
                offset: run.offset + number as isize * run.offset_step,
                len: 1,
                ..run
            };
            put_ones(window, single, ones, one);
        }
        return;
    }
    let end = run.index + run.len as u64;
    for group in 0..ones.groups {
        let first = ones.start + group * ones.group_step;
        let skipped = run.index.saturating_sub(first).div_ceil(ones.step);
        for number in skipped..ones.count {
            let index = first + number * ones.step;
            if index >= end {
                break;
            }
            let offset = run.offset + (index - run.index) as isize * run.offset_step;
            window.elements(offset, 1, one.len()).copy_from_slice(one);
        }
    }
}
