//! The inner loops: groups of 64 elements, from counter to bytes.

use super::key::Id;
use super::law::{Draw, DrawWide, Inverse, Law, Within};
use super::philox::{BLOCKS, GROUP, consecutive, low_half, scattered};
use super::simd::{Isa, Simd, Task};

/// How numbers become bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    /// `f32`
    Single,
    /// Half precision, to nearest even.
    Half,
    /// The upper half of an `f32`, to nearest even.
    Brain,
}

/// A law in the precision of its dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Recipe {
    /// Drawn in `f32`.
    Narrow(Law<f32>, Format),
    /// Drawn in `f64`.
    Wide(Law<f64>),
}

impl Recipe {
    /// Bytes per element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Wide(_) => 8,
            Self::Narrow(_, Format::Single) => 4,
            Self::Narrow(_, Format::Half | Format::Brain) => 2,
        }
    }
}

/// Which blocks to draw.
#[derive(Clone, Copy)]
pub(crate) enum Blocks<'a> {
    /// Whole groups, from this one on, as many as the bytes hold.
    Groups(u64),
    /// The blocks of one tile, by number: for elements that lie apart.
    Single(&'a [u64; BLOCKS]),
}

/// Draws blocks into bytes, a whole number of groups. Element `16 w + b` of a group comes from word `w` of its
/// block `b`.
pub(crate) fn draw(isa: Isa, recipe: Recipe, id: Id, blocks: Blocks<'_>, to: &mut [u8]) {
    isa.run(Drawing {
        recipe,
        id,
        blocks,
        to,
    });
}

struct Drawing<'a> {
    recipe: Recipe,
    id: Id,
    blocks: Blocks<'a>,
    to: &'a mut [u8],
}

impl Task for Drawing<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.recipe {
            Recipe::Narrow(law, format) => match format {
                Format::Single => self.narrow(s, law, Single),
                Format::Half => self.narrow(s, law, Half),
                Format::Brain => self.narrow(s, law, Brain),
            },
            Recipe::Wide(law) => match law {
                Law::Words => self.blocks(s, Words),
                Law::Uniform(law) => self.blocks(s, Wide(law)),
                Law::Normal(law) => self.blocks(s, Wide(law)),
                Law::Clamped(law, bounds) => self.blocks(s, Wide(Within(law, bounds))),
                Law::Truncated(law, normal, bounds) => {
                    self.blocks(s, Wide(Within(Inverse(law, normal), bounds)));
                }
            },
        }
    }
}

impl Drawing<'_> {
    #[inline(always)]
    fn narrow<S: Simd, E: Store>(self, s: S, law: Law<f32>, store: E) {
        match law {
            Law::Words => self.blocks(s, Words),
            Law::Uniform(law) => self.blocks(s, Narrow(law, store)),
            Law::Normal(law) => self.blocks(s, Narrow(law, store)),
            Law::Clamped(law, bounds) => self.blocks(s, Narrow(Within(law, bounds), store)),
            Law::Truncated(law, normal, bounds) => {
                self.blocks(s, Narrow(Within(Inverse(law, normal), bounds), store));
            }
        }
    }

    #[inline(always)]
    fn blocks<S: Simd, K: Kernel>(self, s: S, kernel: K) {
        let tiles = self.to.chunks_exact_mut(GROUP * K::SIZE);
        match self.blocks {
            Blocks::Groups(first) => {
                for (group, tile) in (first..).zip(tiles) {
                    let mut lane = 0;
                    while lane < BLOCKS {
                        let block = group * BLOCKS as u64 + lane as u64;
                        let words = Consecutive(block);
                        kernel.block(s, words, self.id, &mut tile[lane * K::SIZE..]);
                        lane += S::LANES;
                    }
                }
            }
            Blocks::Single(numbers) => {
                let low = numbers.map(|number| number as u32);
                let high = numbers.map(|number| (number >> 32) as u32);
                for tile in tiles.take(1) {
                    let mut lane = 0;
                    while lane < BLOCKS {
                        let (low, high) = (s.load_u(&low[lane..]), s.load_u(&high[lane..]));
                        let words = Scattered::<S>(low, high);
                        kernel.block(s, words, self.id, &mut tile[lane * K::SIZE..]);
                        lane += S::LANES;
                    }
                }
            }
        }
    }
}

/// One block in each lane, in any stream. (Not a closure: those are compiled without the instruction set, and are
/// slow where they are not inlined.)
trait Source<S: Simd>: Copy {
    fn of(self, s: S, id: Id) -> [S::U; 4];
}

/// Blocks from this number on.
#[derive(Clone, Copy)]
struct Consecutive(u64);

impl<S: Simd> Source<S> for Consecutive {
    #[inline(always)]
    fn of(self, s: S, id: Id) -> [S::U; 4] {
        consecutive(s, id, self.0)
    }
}

/// Blocks with these numbers, as low and high words.
#[derive(Clone, Copy)]
struct Scattered<S: Simd>(S::U, S::U);

impl<S: Simd> Source<S> for Scattered<S> {
    #[inline(always)]
    fn of(self, s: S, id: Id) -> [S::U; 4] {
        scattered(s, id, self.0, self.1)
    }
}

/// From the words of one block per lane to bytes.
trait Kernel: Copy {
    /// Bytes per element.
    const SIZE: usize;

    /// Writes word `w` of the lanes at element `16 w` of `to`.
    fn block<S: Simd>(self, s: S, words: impl Source<S>, id: Id, to: &mut [u8]);
}

/// How an `f32` is stored.
trait Store: Copy {
    const SIZE: usize;
    fn store<S: Simd>(self, s: S, a: S::F, to: &mut [u8]);
}

#[derive(Clone, Copy)]
struct Single;
#[derive(Clone, Copy)]
struct Half;
#[derive(Clone, Copy)]
struct Brain;

impl Store for Single {
    const SIZE: usize = 4;
    #[inline(always)]
    fn store<S: Simd>(self, s: S, a: S::F, to: &mut [u8]) {
        s.store_f(a, to);
    }
}

impl Store for Half {
    const SIZE: usize = 2;
    #[inline(always)]
    fn store<S: Simd>(self, s: S, a: S::F, to: &mut [u8]) {
        s.store_half(a, to);
    }
}

impl Store for Brain {
    const SIZE: usize = 2;
    #[inline(always)]
    fn store<S: Simd>(self, s: S, a: S::F, to: &mut [u8]) {
        let bits = s.bits(a);
        // Half a unit, less a little where the last bit that stays is even: ties go down there.
        let tie = s.shr::<16>(bits) & s.u(1);
        s.store_low(s.shr::<16>(bits + s.u(0x7FFF) + tie), to);
    }
}

/// The words as they are.
#[derive(Clone, Copy)]
struct Words;

impl Kernel for Words {
    const SIZE: usize = 4;
    #[inline(always)]
    fn block<S: Simd>(self, s: S, words: impl Source<S>, id: Id, to: &mut [u8]) {
        for (w, word) in words.of(s, id).into_iter().enumerate() {
            s.store_u(word, &mut to[w * BLOCKS * Self::SIZE..]);
        }
    }
}

/// Numbers drawn in `f32`.
#[derive(Clone, Copy)]
struct Narrow<L, E>(L, E);

impl<L: Draw, E: Store> Kernel for Narrow<L, E> {
    const SIZE: usize = E::SIZE;
    #[inline(always)]
    fn block<S: Simd>(self, s: S, words: impl Source<S>, id: Id, to: &mut [u8]) {
        let numbers = self.0.narrow(s, words.of(s, id));
        for (w, number) in numbers.into_iter().enumerate() {
            self.1.store(s, number, &mut to[w * BLOCKS * Self::SIZE..]);
        }
    }
}

/// Numbers drawn in `f64`.
#[derive(Clone, Copy)]
struct Wide<L>(L);

impl<L: DrawWide> Kernel for Wide<L> {
    const SIZE: usize = 8;
    #[inline(always)]
    fn block<S: Simd>(self, s: S, words: impl Source<S>, id: Id, to: &mut [u8]) {
        let numbers = self.0.wide(s, words.of(s, id), words.of(s, low_half(id)));
        for (w, number) in numbers.into_iter().enumerate() {
            s.store_d(number, &mut to[w * BLOCKS * Self::SIZE..]);
        }
    }
}
