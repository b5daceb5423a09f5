//! Tests of the laws on words of choice: the edges of every transformation, and all of the uniform grid.

mod accuracy;

use super::content::Content;
use super::cut::Cut;
use super::law::{Bounds, Draw, DrawWide, Inverse, Normal, Within};
use super::simd::{Isa, Simd, Task};
use super::special::{exp, upper_tail};
use super::{Distribution, Init, kernel, law};
use crate::dtype::Dtype;

/// A law on blocks of four words, sixteen at a time.
struct Narrow<'a, L> {
    law: L,
    words: &'a [[u32; 4]],
}

impl<L: Draw> Task for Narrow<'_, L> {
    type Output = Vec<[f32; 4]>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<[f32; 4]> {
        let mut out = Vec::with_capacity(self.words.len());
        for words in self.words.chunks(S::LANES) {
            let word = |w: usize| {
                let mut lanes = [0; 16];
                for (lane, block) in lanes.iter_mut().zip(words) {
                    *lane = block[w];
                }
                s.load_u(&lanes)
            };
            let numbers = self.law.narrow(s, [word(0), word(1), word(2), word(3)]);
            let lanes = numbers.map(|number| {
                let mut lanes = [0.0; 16];
                s.save_f(number, &mut lanes);
                lanes
            });
            let block = |lane: usize| [0, 1, 2, 3].map(|w| lanes[w][lane]);
            out.extend((0..words.len()).map(block));
        }
        out
    }
}

/// The same with words of 64 bits.
struct Wide<'a, L> {
    law: L,
    words: &'a [[u64; 4]],
}

impl<L: DrawWide> Task for Wide<'_, L> {
    type Output = Vec<[f64; 4]>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<[f64; 4]> {
        let mut out = Vec::with_capacity(self.words.len());
        for words in self.words.chunks(S::LANES) {
            let word = |w: usize, shift: u32| {
                let mut lanes = [0; 16];
                for (lane, block) in lanes.iter_mut().zip(words) {
                    *lane = (block[w] >> shift) as u32;
                }
                s.load_u(&lanes)
            };
            let high = [word(0, 32), word(1, 32), word(2, 32), word(3, 32)];
            let low = [word(0, 0), word(1, 0), word(2, 0), word(3, 0)];
            let lanes = self.law.wide(s, high, low).map(|number| {
                let mut lanes = [0.0; 16];
                s.save_d(number, &mut lanes);
                lanes
            });
            let block = |lane: usize| [0, 1, 2, 3].map(|w| lanes[w][lane]);
            out.extend((0..words.len()).map(block));
        }
        out
    }
}

const EDGES: [u32; 13] = [
    0,
    1,
    2,
    3,
    (1 << 30) - 1,
    1 << 30,
    (1 << 31) - 2,
    (1 << 31) - 1,
    1 << 31,
    (1 << 31) + 1,
    3 << 30,
    u32::MAX - 1,
    u32::MAX,
];

fn edge_blocks() -> Vec<[u32; 4]> {
    let pairs = EDGES.into_iter().flat_map(|a| EDGES.map(|b| [a, b]));
    pairs.map(|[a, b]| [a, b, b, a]).collect()
}

fn edge_blocks_wide() -> Vec<[u64; 4]> {
    let words = || {
        EDGES
            .into_iter()
            .flat_map(|a| EDGES.map(|b| u64::from(a) << 32 | u64::from(b)))
    };
    words()
        .flat_map(|a| words().map(move |b| [a, b, b, a]))
        .collect()
}

const STANDARD: Normal<f32> = Normal {
    mean: 0.0,
    std: 1.0,
};
const STANDARD_WIDE: Normal<f64> = Normal {
    mean: 0.0,
    std: 1.0,
};

/// inducer/pyopencl#318, JuliaGPU/CUDA.jl#1464, #1513, omnetpp/omnetpp#43,
/// arrayfire/arrayfire#1610: log(0).
#[test]
fn words_at_the_edges_give_finite_normals_within_reach() {
    for isa in Isa::available() {
        let blocks = edge_blocks();
        let law = STANDARD;
        let numbers = isa.run(Narrow {
            law,
            words: &blocks,
        });
        assert!(numbers.as_flattened().iter().all(|z| z.abs() <= 6.5556));
        let blocks = edge_blocks_wide();
        let law = STANDARD_WIDE;
        let numbers = isa.run(Wide {
            law,
            words: &blocks,
        });
        assert!(numbers.as_flattened().iter().all(|z| z.abs() <= 9.3457));
    }
}

#[test]
fn words_at_the_edges_give_the_same_bits_with_every_instruction_set() {
    let blocks = edge_blocks();
    let wide_blocks = edge_blocks_wide();
    let draws = |isa: Isa| {
        let mut bits: Vec<u64> = Vec::new();
        let mut narrow = |numbers: Vec<[f32; 4]>| {
            bits.extend(
                numbers
                    .as_flattened()
                    .iter()
                    .map(|x| u64::from(x.to_bits())),
            );
        };
        narrow(isa.run(Narrow {
            law: STANDARD,
            words: &blocks,
        }));
        for cut in cuts() {
            narrow(isa.run(Narrow {
                law: Inverse(cut.narrowed(), STANDARD),
                words: &blocks,
            }));
        }
        let mut wide = |numbers: Vec<[f64; 4]>| {
            bits.extend(numbers.as_flattened().iter().map(|x| x.to_bits()));
        };
        wide(isa.run(Wide {
            law: STANDARD_WIDE,
            words: &wide_blocks,
        }));
        for cut in cuts() {
            wide(isa.run(Wide {
                law: Inverse(cut, STANDARD_WIDE),
                words: &wide_blocks,
            }));
        }
        bits
    };
    let portable = draws(Isa::Portable);
    for isa in Isa::available() {
        assert!(draws(isa) == portable, "{isa:?}");
    }
}

const INTERVALS: [[f64; 2]; 11] = [
    [-2.0, 2.0],
    [-1.0, 3.0],
    [-0.5, 0.25],
    [2.0, 4.0],
    [3.0, f64::INFINITY],
    [8.0, 12.0],
    [-12.0, -8.0],
    [30.0, f64::INFINITY],
    [f64::NEG_INFINITY, 0.0],
    [0.0, 1e-6],
    [-6.0, 7.0],
];

fn cuts() -> Vec<law::Truncated<f64>> {
    INTERVALS
        .iter()
        .map(|&[low, high]| match Cut::new(low, high) {
            Ok(Cut::Within(cut)) => cut,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn truncated_normals_are_finite_and_near_their_interval_before_they_are_put_on_its_bounds() {
    for (cut, [low, high]) in cuts().into_iter().zip(INTERVALS) {
        let law = Inverse(cut.narrowed(), STANDARD);
        let words = &edge_blocks();
        for z in Isa::detect().run(Narrow { law, words }).as_flattened() {
            let slack = 2e-6 * z.abs().max(1.0);
            assert!(z.is_finite(), "{z} for {low} {high}");
            let z = f64::from(*z);
            assert!(
                z >= low - f64::from(slack) && z <= high + f64::from(slack),
                "{z} for {low} {high}"
            );
        }
        let law = Inverse(cut, STANDARD_WIDE);
        let words = &edge_blocks_wide();
        for z in Isa::detect().run(Wide { law, words }).as_flattened() {
            let slack = 1e-12 * z.abs().max(1.0);
            assert!(
                *z >= low - slack && *z <= high + slack,
                "{z} for {low} {high}"
            );
        }
    }
}

/// All words that come near a bound, one after the other.
#[test]
fn the_bounds_of_a_truncated_normal_are_no_more_probable_than_their_neighbours() {
    let grid = |first: u32| -> Vec<[u32; 4]> {
        (0..1 << 15)
            .map(|k| [0, 1, 2, 3].map(|w| first.wrapping_add(4 * k + w)))
            .collect()
    };
    for (cut, [low, high]) in cuts().into_iter().zip(INTERVALS).take(6) {
        let bounds = Bounds {
            low: low as f32,
            high: high as f32,
        };
        let law = Within(Inverse(cut.narrowed(), STANDARD), bounds);
        // The smallest and the largest words.
        for (words, bound) in [(grid(0), low), (grid(0_u32.wrapping_sub(1 << 17)), high)] {
            let numbers = Isa::detect().run(Narrow { law, words: &words });
            let at_bound = numbers
                .as_flattened()
                .iter()
                .filter(|z| f64::from(**z) == bound)
                .count();
            let probability = at_bound as f64 / 2_f64.powi(32);
            // Twice what a step of `f32` has by its width and the density there.
            let density = exp(bound * bound / -2.0) / std::f64::consts::TAU.sqrt();
            let mass = if low > 0.0 {
                upper_tail(low) - upper_tail(high)
            } else {
                upper_tail(-high) - upper_tail(-low)
            };
            let step = f64::from((bound as f32).abs().next_up()) - bound.abs();
            let limit = 2.0 * step * density / mass;
            assert!(
                probability < limit || bound.is_infinite(),
                "{bound} in {low} {high}: {probability:e}"
            );
        }
    }
}

/// pytorch/pytorch#96947, #197079, #2740, tinygrad/tinygrad#3654, JuliaMath/BFloat16s.jl#71: the
/// excluded bound, after rounding.
/// All 2²⁴ numbers that a uniform draw in `f32` can start from.
#[test]
fn no_point_of_the_uniform_grid_leaves_the_interval_or_reaches_its_end() {
    let grid: Vec<[u32; 4]> = (0..1_u32 << 22)
        .map(|k| [0, 1, 2, 3].map(|w| (4 * k + w) << 8))
        .collect();
    for (low, high) in [
        (0.0, 1.0),
        (-0.1, 0.1),
        (1e6, 1e6 + 1.0),
        (-3e38, 3e37),
        (0.7, 0.700_000_3),
    ] {
        let Ok(kernel::Recipe::Narrow(law::Law::Uniform(law), _)) = recipe(low, high, Dtype::F32)
        else {
            panic!("{low} {high}");
        };
        let numbers = Isa::detect().run(Narrow { law, words: &grid });
        let (low, high) = (low as f32, high as f32);
        assert!(
            numbers.as_flattened().iter().all(|&x| x >= low && x < high),
            "{low} {high}"
        );
        assert_eq!(numbers[0][0], low);
    }
}

fn recipe(low: f64, high: f64, dtype: Dtype) -> Result<kernel::Recipe, super::InitError> {
    match Content::of(&Distribution::Uniform { low, high }, dtype)? {
        Content::Draw(recipe) => Ok(recipe),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_uniform_draw_needs_a_value_of_the_dtype_between_its_bounds() {
    assert!(recipe(1.001, 1.002, Dtype::BF16).is_err());
    assert!(recipe(1.0, 1.002, Dtype::BF16).is_ok());
    assert!(Init::uniform(1.0, 1.0).is_err());
}
