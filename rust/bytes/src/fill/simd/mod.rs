//! Vectors of one instruction set, behind one trait, so that every formula is written once.
//!
//! A formula is generic over [`Simd`] and uses IEEE 754 `+ - * / √`, comparisons and integers only. Each
//! of these is exact or correctly rounded, and none is contracted, so every instruction set computes
//! the same bits. The formulas are inlined into one function per instruction set ([`Simd::vectorize`]),
//! which is compiled with that set enabled.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Sub};

/// An instruction set that fills can be computed with. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: whatever the compiler makes of it for the baseline of the target.
    Portable,
    /// ARM's 128-bit vectors; every 64-bit ARM has them.
    Neon,
    /// 256-bit vectors of x86-64, with half-precision conversions (Haswell, Zen and later).
    Avx2,
    /// 512-bit vectors of x86-64: F, BW, DQ and VL (Skylake-X, Zen 4 and later).
    Avx512,
}

impl Isa {
    /// All, slowest first.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Neon, Self::Avx2, Self::Avx512];

    /// The fastest that this machine has.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// Those that this machine has, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::Avx2::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::Avx512::detect().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The name in reports: `"portable"`, `"neon"`, `"avx2"` or `"avx512"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Runs the task with this instruction set, or portably where the machine lacks it.
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Avx2 => {
                if let Some(simd) = avx2::Avx2::detect() {
                    return simd.vectorize(task);
                }
            }
            Self::Avx512 => {
                if let Some(simd) = avx512::Avx512::detect() {
                    return simd.vectorize(task);
                }
            }
            Self::Portable | Self::Neon => {}
        }
        #[cfg(target_arch = "aarch64")]
        if self == Self::Neon {
            return neon::Neon::new().vectorize(task);
        }
        portable::Portable.vectorize(task)
    }
}

/// A computation that is generic over the instruction set.
pub(crate) trait Task {
    /// What it gives.
    type Output;

    /// Runs it. Implementations are `#[inline(always)]`, down to the last call.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// An instruction set: a token that exists only where the machine has it, and that makes vectors.
///
/// There is one number of lanes, for all element types: a `D` is as many machine words as it takes.
pub(crate) trait Simd: Copy {
    /// Lanes in a vector: 4, 8 or 16.
    const LANES: usize;

    /// Unsigned 32-bit integers, wrapping.
    type U: Copy
        + Add<Output = Self::U>
        + Sub<Output = Self::U>
        + BitAnd<Output = Self::U>
        + BitOr<Output = Self::U>
        + BitXor<Output = Self::U>;
    /// `f32`.
    type F: Copy
        + Add<Output = Self::F>
        + Sub<Output = Self::F>
        + Mul<Output = Self::F>
        + Div<Output = Self::F>;
    /// `f64`.
    type D: Copy
        + Add<Output = Self::D>
        + Sub<Output = Self::D>
        + Mul<Output = Self::D>
        + Div<Output = Self::D>;
    /// A choice per lane of `F`.
    type M: Copy;
    /// A choice per lane of `D`.
    type N: Copy;

    /// Runs a task in a function that is compiled for this instruction set.
    fn vectorize<T: Task>(self, task: T) -> T::Output;

    /// The same integer in all lanes.
    fn u(self, value: u32) -> Self::U;
    /// The same `f32` in all lanes.
    fn f(self, value: f32) -> Self::F;
    /// The same `f64` in all lanes.
    fn d(self, value: f64) -> Self::D;
    /// 0, 1, 2 …
    fn lane_numbers(self) -> Self::U;
    /// The first elements of a slice that has enough.
    fn load_u(self, from: &[u32]) -> Self::U;
    /// The first elements of a slice that has enough.
    fn load_f(self, from: &[f32]) -> Self::F;
    /// The first elements of a slice that has enough.
    fn load_d(self, from: &[f64]) -> Self::D;
    /// Overwrites the first elements of a slice that has enough.
    fn save_f(self, a: Self::F, to: &mut [f32]);
    /// Overwrites the first elements of a slice that has enough.
    fn save_d(self, a: Self::D, to: &mut [f64]);

    /// This many rounds of Philox, with this key in the first of them.
    fn philox(self, state: [Self::U; 4], key: [u32; 2], rounds: u32) -> [Self::U; 4];
    /// High and low word of the products with one number.
    fn mul_wide(self, a: Self::U, b: u32) -> (Self::U, Self::U);
    /// Shift to the left.
    fn shl<const BY: i32>(self, a: Self::U) -> Self::U;
    /// Shift to the right, zeros from the left.
    fn shr<const BY: i32>(self, a: Self::U) -> Self::U;
    /// Shift to the right, copies of the sign bit from the left.
    fn sar<const BY: i32>(self, a: Self::U) -> Self::U;

    /// The bits of an `f32`.
    fn bits(self, a: Self::F) -> Self::U;
    /// The `f32` with these bits.
    fn float(self, bits: Self::U) -> Self::F;
    /// A signed integer as `f32`, to nearest even.
    fn signed(self, a: Self::U) -> Self::F;
    /// √
    fn sqrt(self, a: Self::F) -> Self::F;
    /// `a` where it is less, else `b`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a` where it is greater, else `b`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Where `a` is less than `b`.
    fn less(self, a: Self::F, b: Self::F) -> Self::M;
    /// Where the sign bit is set.
    fn negative(self, a: Self::U) -> Self::M;
    /// `a` where chosen, else `b`.
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// Whether any lane is chosen.
    fn any(self, mask: Self::M) -> bool;

    /// A signed integer as `f64`, exactly.
    fn signed_wide(self, a: Self::U) -> Self::D;
    /// An unsigned integer as `f64`, exactly.
    fn unsigned_wide(self, a: Self::U) -> Self::D;
    /// Mantissa in [√½, √2) and exponent of positive normal numbers: `a` = mantissa × 2^exponent.
    fn split_wide(self, a: Self::D) -> (Self::D, Self::D);
    /// √
    fn sqrt_wide(self, a: Self::D) -> Self::D;
    /// `a` where it is less, else `b`.
    fn min_wide(self, a: Self::D, b: Self::D) -> Self::D;
    /// `a` where it is greater, else `b`.
    fn max_wide(self, a: Self::D, b: Self::D) -> Self::D;
    /// Where `a` is less than `b`.
    fn less_wide(self, a: Self::D, b: Self::D) -> Self::N;
    /// Where the sign bit of the integer is set.
    fn negative_wide(self, a: Self::U) -> Self::N;
    /// `a` where chosen, else `b`.
    fn select_wide(self, mask: Self::N, a: Self::D, b: Self::D) -> Self::D;
    /// Whether any lane is chosen.
    fn any_wide(self, mask: Self::N) -> bool;

    /// Stores four bytes per lane at the start of a slice that is long enough, at any address.
    fn store_u(self, a: Self::U, to: &mut [u8]);
    /// Stores four bytes per lane.
    fn store_f(self, a: Self::F, to: &mut [u8]);
    /// Stores eight bytes per lane.
    fn store_d(self, a: Self::D, to: &mut [u8]);
    /// Stores the low two bytes of each lane. The high two are zero.
    fn store_low(self, a: Self::U, to: &mut [u8]);
    /// Stores as half precision, to nearest even.
    fn store_half(self, a: Self::F, to: &mut [u8]) {
        self.store_low(half_bits(self, a), to);
    }
}

/// An `f32` to the nearest half-precision number, ties to even, in the low 16 bits; finite and within
/// range.
///
/// Subnormal results come from an addition to ½, whose last bit is the smallest half: the sum is rounded as
/// the result has to be.
#[inline(always)]
fn half_bits<S: Simd>(s: S, a: S::F) -> S::U {
    const SMALLEST_NORMAL: f32 = 6.103_515_6e-5;
    let bits = s.bits(a);
    let sign = bits & s.u(0x8000_0000);
    let magnitude = bits ^ sign;
    let tie = s.shr::<13>(bits) & s.u(1);
    // The exponent is biased by 127 and has to be by 15: 112 less.
    let normal = s.shr::<13>(magnitude + s.u(0xFFF) + tie) - s.u(112 << 10);
    let subnormal = s.bits(s.float(magnitude) + s.f(0.5)) - s.u(0x3F00_0000);
    let small = s.less(s.float(magnitude), s.f(SMALLEST_NORMAL));
    let chosen = s.select(small, s.float(subnormal), s.float(normal));
    s.bits(chosen) | s.shr::<16>(sign)
}

/// Added to the bits of an `f64`, so that the exponent counts up at √½ instead of ½.
const SPLIT_OFFSET: u64 = (1023 << 52) - 0x3FE6_A09E_667F_3BCD;
