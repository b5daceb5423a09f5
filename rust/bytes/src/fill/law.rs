//! The element-wise laws: from random words to numbers.

use super::math32;
use super::math64;
use super::simd::Simd;

/// The numbers of a law in the precision it is drawn in: `f32` for every dtype but `f64`.
///
/// Each element has one word (`f32`) or two (`f64`, the first of them the same), so the draws of one key in
/// different dtypes are the same up to rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Law<R> {
    /// The words themselves.
    Words,
    /// Uniform on [low, high).
    Uniform(Uniform<R>),
    /// Normal.
    Normal(Normal<R>),
    /// Normal, with what lies outside the bounds put on them: for bounds so far out that it is less than
    /// 1e-10 of the draws.
    Clamped(Normal<R>, Bounds<R>),
    /// Truncated normal.
    Truncated(Truncated<R>, Normal<R>, Bounds<R>),
}

/// Uniform on [low, high).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Uniform<R> {
    pub(crate) low: R,
    /// The width, times 2⁻²⁴ (`f32`) or 2⁻⁵³ (`f64`).
    pub(crate) step: R,
    /// The largest value below `high` that the dtype has.
    pub(crate) top: R,
}

/// Mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Normal<R> {
    pub(crate) mean: R,
    pub(crate) std: R,
}

/// Smallest and largest value of the dtype within the bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds<R> {
    pub(crate) low: R,
    pub(crate) high: R,
}

/// Where a uniform number lands in a normal distribution that is cut on both sides.
///
/// A quantile k below `split` belongs to the left half and has the tail probability `lower + k · mass`; the
/// others have `upper + (1 − k) · mass`, so that both halves are computed from their own, small tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Truncated<R> {
    /// P(Z < lower bound) · 2^−shift.
    pub(crate) lower: R,
    /// P(Z > upper bound) · 2^−shift.
    pub(crate) upper: R,
    /// P(Z between the bounds) · 2^−shift.
    pub(crate) mass: R,
    /// Above 1 where all is left, 0 where all is right.
    pub(crate) split: R,
    /// 0, unless all of the mass lies in one tail; then negative, so that its probabilities keep their
    /// precision and do not underflow.
    pub(crate) shift: i32,
}

/// A law that draws four numbers from a block of four words.
pub(crate) trait Draw: Copy {
    /// The four numbers of a block in each lane.
    fn narrow<S: Simd>(self, s: S, words: [S::U; 4]) -> [S::F; 4];
}

/// As [`Draw`], from words of 64 bits in halves.
pub(crate) trait DrawWide: Copy {
    /// The four numbers of a block in each lane.
    fn wide<S: Simd>(self, s: S, high: [S::U; 4], low: [S::U; 4]) -> [S::D; 4];
}

impl Draw for Uniform<f32> {
    #[inline(always)]
    fn narrow<S: Simd>(self, s: S, words: [S::U; 4]) -> [S::F; 4] {
        let mut out = [s.f(0.0); 4];
        for (out, word) in out.iter_mut().zip(words) {
            let x = s.signed(s.shr::<8>(word)) * s.f(self.step) + s.f(self.low);
            *out = s.min(x, s.f(self.top));
        }
        out
    }
}

impl DrawWide for Uniform<f64> {
    #[inline(always)]
    fn wide<S: Simd>(self, s: S, high: [S::U; 4], low: [S::U; 4]) -> [S::D; 4] {
        let mut out = [s.d(0.0); 4];
        for w in 0..4 {
            // The top 53 bits: 32 of the first word, 21 of the second.
            let top = s.unsigned_wide(high[w]) * s.d(2_097_152.0);
            let u = top + s.signed_wide(s.shr::<11>(low[w]));
            let x = u * s.d(self.step) + s.d(self.low);
            out[w] = s.min_wide(x, s.d(self.top));
        }
        out
    }
}

/// G. E. P. Box and M. E. Muller, *A note on the generation of random normal deviates*, 1958: one word gives
/// the radius and the half-plane, the other the angle within ±45° of an axis and, by its last bit, which.
impl Draw for Normal<f32> {
    #[inline(always)]
    fn narrow<S: Simd>(self, s: S, words: [S::U; 4]) -> [S::F; 4] {
        let [a, b] = self.pair(s, words[0], words[1]);
        let [c, d] = self.pair(s, words[2], words[3]);
        [a, b, c, d]
    }
}

impl Normal<f32> {
    #[inline(always)]
    fn pair<S: Simd>(self, s: S, word0: S::U, word1: S::U) -> [S::F; 2] {
        let number = s.signed(word0 | s.u(1));
        let magnitude = s.float(s.bits(number) & s.u(0x7FFF_FFFF));
        let squared = math32::ln(s, magnitude, -31) * s.f(-2.0);
        let std = s.select(s.negative(word0), s.f(-self.std), s.f(self.std));
        let r = s.sqrt(s.max(squared, s.f(0.0))) * std;
        let (sine, cosine) = math32::sin_cos(s, word1);
        let swap = s.negative(s.shl::<31>(word1));
        let mean = s.f(self.mean);
        [
            r * s.select(swap, sine, cosine) + mean,
            r * s.select(swap, cosine, sine) + mean,
        ]
    }
}

impl DrawWide for Normal<f64> {
    #[inline(always)]
    fn wide<S: Simd>(self, s: S, high: [S::U; 4], low: [S::U; 4]) -> [S::D; 4] {
        let [a, b] = self.pair_wide(s, [high[0], high[1]], [low[0], low[1]]);
        let [c, d] = self.pair_wide(s, [high[2], high[3]], [low[2], low[3]]);
        [a, b, c, d]
    }
}

impl Normal<f64> {
    #[inline(always)]
    fn pair_wide<S: Simd>(self, s: S, high: [S::U; 2], low: [S::U; 2]) -> [S::D; 2] {
        let number = math64::signed(s, high[0], low[0] | s.u(1));
        let magnitude = s.max_wide(number, number * s.d(-1.0));
        let squared = math64::ln(s, magnitude, -63) * s.d(-2.0);
        let negative = s.negative_wide(high[0]);
        let std = s.select_wide(negative, s.d(-self.std), s.d(self.std));
        let r = s.sqrt_wide(s.max_wide(squared, s.d(0.0))) * std;
        let (sine, cosine) = math64::sin_cos(s, high[1], low[1]);
        let swap = s.negative_wide(s.shl::<31>(high[1]));
        let mean = s.d(self.mean);
        [
            r * s.select_wide(swap, sine, cosine) + mean,
            r * s.select_wide(swap, cosine, sine) + mean,
        ]
    }
}

/// A law and the bounds that its numbers are put on.
#[derive(Clone, Copy)]
pub(crate) struct Within<L, R>(pub(crate) L, pub(crate) Bounds<R>);

impl<L: Draw> Draw for Within<L, f32> {
    #[inline(always)]
    fn narrow<S: Simd>(self, s: S, words: [S::U; 4]) -> [S::F; 4] {
        let mut out = self.0.narrow(s, words);
        for out in &mut out {
            *out = s.min(s.max(*out, s.f(self.1.low)), s.f(self.1.high));
        }
        out
    }
}

impl<L: DrawWide> DrawWide for Within<L, f64> {
    #[inline(always)]
    fn wide<S: Simd>(self, s: S, high: [S::U; 4], low: [S::U; 4]) -> [S::D; 4] {
        let mut out = self.0.wide(s, high, low);
        for out in &mut out {
            *out = s.min_wide(s.max_wide(*out, s.d(self.1.low)), s.d(self.1.high));
        }
        out
    }
}

/// A truncated normal by inversion: one uniform number per element, no rejection.
#[derive(Clone, Copy)]
pub(crate) struct Inverse<R>(pub(crate) Truncated<R>, pub(crate) Normal<R>);

impl Draw for Inverse<f32> {
    #[inline(always)]
    fn narrow<S: Simd>(self, s: S, words: [S::U; 4]) -> [S::F; 4] {
        let Self(law, Normal { mean, std }) = self;
        let mut out = [s.f(0.0); 4];
        for (out, word) in out.iter_mut().zip(words) {
            let number = s.shr::<1>(word);
            let k = middle(s, number);
            let complement = middle(s, number ^ s.u(0x7FFF_FFFF));
            let left = s.less(k, s.f(law.split));
            let mass = s.f(law.mass);
            let q = s.select(left, k, complement) * mass
                + s.select(left, s.f(law.lower), s.f(law.upper));
            let z = if law.shift == 0 {
                let tail = s.less(q, s.f(math32::CENTRAL_FROM));
                let central = math32::quantile_central(s, q);
                if s.any(tail) {
                    s.select(tail, math32::quantile_tail(s, q, 0), central)
                } else {
                    central
                }
            } else {
                math32::quantile_tail(s, q, law.shift)
            };
            *out = z * s.select(left, s.f(-std), s.f(std)) + s.f(mean);
        }
        out
    }
}

/// The middle of the `number`th of 2³¹ equal parts of [0, 1].
#[inline(always)]
fn middle<S: Simd>(s: S, number: S::U) -> S::F {
    const PART: f32 = 4.656_613e-10;
    s.signed(number) * s.f(PART) + s.f(PART / 2.0)
}

impl DrawWide for Inverse<f64> {
    #[inline(always)]
    fn wide<S: Simd>(self, s: S, high: [S::U; 4], low: [S::U; 4]) -> [S::D; 4] {
        let Self(law, Normal { mean, std }) = self;
        let mut out = [s.d(0.0); 4];
        for w in 0..4 {
            let k = middle_wide(s, high[w], low[w]);
            let ones = s.u(u32::MAX);
            let complement = middle_wide(s, high[w] ^ ones, low[w] ^ ones);
            let left = s.less_wide(k, s.d(law.split));
            let q = s.select_wide(left, k, complement) * s.d(law.mass)
                + s.select_wide(left, s.d(law.lower), s.d(law.upper));
            let z = math64::quantile(s, q, law.shift);
            out[w] = z * s.select_wide(left, s.d(-std), s.d(std)) + s.d(mean);
        }
        out
    }
}

/// The middle of one of 2⁵² equal parts of [0, 1], which the top 52 of these 64 bits number; exact.
#[inline(always)]
fn middle_wide<S: Simd>(s: S, high: S::U, low: S::U) -> S::D {
    const PART: f64 = 1.0 / 4_503_599_627_370_496.0;
    let number = s.unsigned_wide(high) * s.d(1_048_576.0) + s.signed_wide(s.shr::<12>(low));
    number * s.d(PART) + s.d(PART / 2.0)
}
