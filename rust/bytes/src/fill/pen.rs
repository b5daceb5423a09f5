//! Writes drawn elements to where they belong: whole groups at once, parts of groups, or single ones.

use super::job::Window;
use super::kernel::{Blocks, Recipe, draw};
use super::key::Id;
use super::philox::{BLOCKS, GROUP};
use super::region::Run;
use super::simd::Isa;

/// Bytes of a group of the widest dtype.
const GROUP_BYTES: usize = GROUP * 8;
/// Groups that are drawn at once before they are spread over a target with strides.
const SPREAD: usize = 8;
/// From this length on, drawing the groups that a run touches is faster than drawing its elements one by one,
/// sixteen at a time, with three of four words thrown away.
const LONG: usize = BLOCKS / 2;

/// Draws the elements of one slice of one parameter.
pub(crate) struct Pen<'p, 'm> {
    isa: Isa,
    recipe: Recipe,
    size: usize,
    id: Id,
    window: &'p mut Window<'m>,
    tile: [u8; GROUP_BYTES * SPREAD],
    /// Single elements that wait until there are enough of them.
    indices: [u64; BLOCKS],
    offsets: [isize; BLOCKS],
    waiting: usize,
}

impl<'p, 'm> Pen<'p, 'm> {
    pub(crate) fn new(isa: Isa, recipe: Recipe, id: Id, window: &'p mut Window<'m>) -> Self {
        Self {
            isa,
            recipe,
            size: recipe.size(),
            id,
            window,
            tile: [0; GROUP_BYTES * SPREAD],
            indices: [0; BLOCKS],
            offsets: [0; BLOCKS],
            waiting: 0,
        }
    }

    /// Writes the elements of a run.
    pub(crate) fn write(&mut self, run: Run) {
        if run.index_step != 1 || run.len < LONG {
            for number in 0..run.len {
                self.single(
                    run.index + number as u64 * run.index_step,
                    run.offset + number as isize * run.offset_step,
                );
            }
            return;
        }
        let mut run = run;
        while run.len > 0 {
            let inside = (run.index % GROUP as u64) as usize;
            let whole = if run.offset_step == 1 && inside == 0 {
                run.len / GROUP * GROUP
            } else {
                0
            };
            let len = if whole > 0 {
                let to = self.window.elements(run.offset, whole, self.size);
                let first = Blocks::Groups(run.index / GROUP as u64);
                draw(self.isa, self.recipe, self.id, first, to);
                whole
            } else {
                self.part(run, inside)
            };
            run.index += len as u64;
            run.offset += len as isize * run.offset_step;
            run.len -= len;
        }
    }

    /// Draws groups into the tile and writes what belongs to the run; gives how many elements.
    fn part(&mut self, run: Run, inside: usize) -> usize {
        // Where the target is contiguous, only the ends of a run come here: one group is enough.
        let most = if run.offset_step == 1 { 1 } else { SPREAD };
        let groups = (inside + run.len).div_ceil(GROUP).min(most);
        let len = (groups * GROUP - inside).min(run.len);
        let tile = &mut self.tile[..groups * GROUP * self.size];
        let first = Blocks::Groups(run.index / GROUP as u64);
        draw(self.isa, self.recipe, self.id, first, tile);
        let values = &tile[inside * self.size..][..len * self.size];
        if run.offset_step == 1 {
            let to = self.window.elements(run.offset, len, self.size);
            to.copy_from_slice(values);
        } else {
            match self.size {
                2 => spread::<2>(self.window, run, values),
                4 => spread::<4>(self.window, run, values),
                _ => spread::<8>(self.window, run, values),
            }
        }
        len
    }

    /// Writes one element, sooner or later.
    pub(crate) fn single(&mut self, index: u64, offset: isize) {
        self.indices[self.waiting] = index;
        self.offsets[self.waiting] = offset;
        self.waiting += 1;
        if self.waiting == BLOCKS {
            self.singles();
        }
    }

    /// Writes the elements that wait. Before the pen goes, somebody has to.
    pub(crate) fn finish(mut self) {
        self.singles();
    }

    fn singles(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let group = GROUP as u64;
        let blocks = self
            .indices
            .map(|index| index / group * BLOCKS as u64 + index % BLOCKS as u64);
        let tile = &mut self.tile[..GROUP * self.size];
        draw(
            self.isa,
            self.recipe,
            self.id,
            Blocks::Single(&blocks),
            tile,
        );
        for (lane, &index) in self.indices[..self.waiting].iter().enumerate() {
            let word = (index % group) as usize / BLOCKS;
            let value = &tile[(word * BLOCKS + lane) * self.size..][..self.size];
            let to = self.window.elements(self.offsets[lane], 1, self.size);
            to.copy_from_slice(value);
        }
        self.waiting = 0;
    }
}

/// Writes elements of this size to equally spaced places.
fn spread<const SIZE: usize>(window: &mut Window<'_>, run: Run, values: &[u8]) {
    let mut offset = run.offset;
    for value in values.as_chunks::<SIZE>().0 {
        window.elements(offset, 1, SIZE).copy_from_slice(value);
        offset += run.offset_step;
    }
}
