//! `Tiles`: which element belongs to which block, in as few dimensions as possible.

use std::ops::Range;

/// A tensor cut into blocks, in C order. Dimensions that blocks do not distinguish are merged: blocks along the last
/// dimension, whole rows and the whole tensor all have one dimension left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// All dimensions but the last, first one first.
    outer: Vec<Axis>,
    last: Axis,
}

/// One dimension: its extent, that of a block, and how far apart two neighbouring blocks are in the order of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    len: usize,
    tile: usize,
    stride: usize,
}

impl Axis {
    fn blocks(self) -> usize {
        self.len.div_ceil(self.tile)
    }
}

impl Tiles {
    /// `tile` has an extent for each dimension, which divides that of `shape`. There is no dimension of extent 0.
    pub(crate) fn new(shape: &[usize], tile: &[usize]) -> Self {
        let mut axes = shape
            .iter()
            .zip(tile)
            .rev()
            .map(|(&len, &tile)| (len, tile));
        let mut merged = vec![axes.next().unwrap_or((1, 1))];
        for (len, tile) in axes {
            let at = merged.len() - 1;
            let (inner_len, inner_tile) = merged[at];
            if inner_tile == inner_len {
                merged[at] = (len * inner_len, tile * inner_len);
            } else if tile == 1 {
                merged[at] = (len * inner_len, inner_tile);
            } else {
                merged.push((len, tile));
            }
        }
        let mut stride = 1;
        let mut axes = merged.into_iter().map(|(len, tile)| {
            let axis = Axis { len, tile, stride };
            stride *= axis.blocks();
            axis
        });
        let last = axes.next().unwrap_or(Axis {
            len: 1,
            tile: 1,
            stride: 1,
        });
        let mut outer: Vec<Axis> = axes.collect();
        outer.reverse();
        Self { outer, last }
    }

    /// Blocks of so many of `len` elements; the last one may have fewer.
    pub(crate) fn flat(len: usize, tile: usize) -> Self {
        let last = Axis {
            len,
            tile,
            stride: 1,
        };
        Self {
            outer: Vec::new(),
            last,
        }
    }

    /// How many elements, from any multiple of that many on, are whole blocks, next to each other also in the order
    /// of blocks.
    pub(crate) fn slab(&self) -> usize {
        match self.outer.first() {
            None => self.last.tile,
            Some(first) => {
                let inner: usize = self.outer[1..].iter().map(|axis| axis.len).product();
                first.tile * inner * self.last.len
            }
        }
    }

    /// How many blocks a slab consists of.
    pub(crate) fn blocks_in_slab(&self) -> usize {
        self.outer.first().map_or(1, |first| first.stride)
    }

    /// Elements of a block along the last dimension.
    pub(crate) fn width(&self) -> usize {
        self.last.tile
    }

    /// The parts of `run` that lie in one row of one block, each with the number of the block.
    ///
    /// An iterator, because the body of a loop is compiled for the instruction set of the function around it, and a
    /// closure is not.
    #[inline(always)]
    pub(crate) fn walk(&self, run: Range<usize>) -> Walk<'_> {
        Walk {
            tiles: self,
            at: run.start,
            run_end: run.end,
            row_end: run.start,
            block: 0,
            block_end: 0,
        }
    }

    /// The block of the first element of a row.
    fn first_block(&self, mut row: usize) -> usize {
        let mut block = 0;
        for axis in self.outer.iter().rev() {
            block += row % axis.len / axis.tile * axis.stride;
            row /= axis.len;
        }
        block
    }
}

/// See [`Tiles::walk`].
pub(crate) struct Walk<'a> {
    tiles: &'a Tiles,
    at: usize,
    run_end: usize,
    /// Where the row ends, or the run.
    row_end: usize,
    block: usize,
    /// Where the block ends in this row.
    block_end: usize,
}

impl Walk<'_> {
    /// Goes to the block of the next element, which may be anywhere in its row.
    fn begin_row(&mut self) {
        let Axis { len, tile, .. } = self.tiles.last;
        let row = self.at / len;
        let column = self.at - row * len;
        self.row_end = self.run_end.min((row + 1) * len);
        self.block = self.tiles.first_block(row) + column / tile;
        self.block_end = self.at + tile - column % tile;
    }
}

impl Iterator for Walk<'_> {
    type Item = (usize, Range<usize>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.row_end {
            if self.at >= self.run_end {
                return None;
            }
            self.begin_row();
        }
        let part = self.at..self.block_end.min(self.row_end);
        let block = self.block;
        self.at = part.end;
        self.block += 1;
        self.block_end += self.tiles.last.tile;
        Some((block, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_blocks_do_not_distinguish_are_merged() {
        let dims = |shape: &[usize], tile: &[usize]| Tiles::new(shape, tile).outer.len() + 1;
        assert_eq!(dims(&[4, 6, 8], &[1, 1, 4]), 1);
        assert_eq!(dims(&[4, 6, 8], &[1, 1, 8]), 1);
        assert_eq!(dims(&[4, 6, 8], &[1, 2, 8]), 1);
        assert_eq!(dims(&[4, 6, 8], &[4, 6, 8]), 1);
        assert_eq!(dims(&[4, 6, 8], &[1, 3, 4]), 2);
        assert_eq!(dims(&[4, 6, 8], &[2, 6, 4]), 2);
        assert_eq!(dims(&[4, 6, 8], &[2, 3, 4]), 3);
        assert_eq!(dims(&[4, 6, 8], &[2, 3, 8]), 2);
        assert_eq!(dims(&[], &[]), 1);
    }

    #[test]
    fn a_slab_is_made_of_whole_blocks_in_order() {
        let tiles = Tiles::new(&[4, 6, 8], &[2, 3, 4]);
        assert_eq!((tiles.slab(), tiles.blocks_in_slab()), (96, 4));
        let mut seen: Vec<usize> = tiles
            .walk(96..192)
            .flat_map(|(block, part)| part.map(move |_| block))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen.len(), 96);
        assert_eq!((seen[0], seen[95]), (4, 7));
        assert!(seen.chunks(24).all(|block| block[0] == block[23]));
    }
}
