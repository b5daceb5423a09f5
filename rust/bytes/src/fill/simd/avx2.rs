//! AVX2 with F16C: eight lanes.
#![allow(unsafe_code)] // calls the intrinsics of an instruction set that was detected

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Sub};

use super::{Simd, Task};
use crate::fill::philox::{MULTIPLIERS, bumped};

/// 2⁵²: an integer below it, as the low bits of its representation, is its distance from it.
const TWO_52: f64 = 4_503_599_627_370_496.0;

/// Proof that the machine has AVX2 and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// The proof, where it holds.
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")).then_some(Self(()))
    }
}

/// Eight 32-bit integers.
#[derive(Clone, Copy)]
pub(super) struct U(__m256i);
/// Eight `f32`.
#[derive(Clone, Copy)]
pub(super) struct F(__m256);
/// Eight `f64`: lanes 0 to 3, and 4 to 7.
#[derive(Clone, Copy)]
pub(super) struct D([__m256d; 2]);
/// A choice for each `f32`, in the sign bits.
#[derive(Clone, Copy)]
pub(super) struct M(__m256);
/// A choice for each `f64`, in the sign bits.
#[derive(Clone, Copy)]
pub(super) struct N([__m256d; 2]);

/// Calls intrinsics.
macro_rules! avx2 {
    ($($call:tt)*) => {{
        // SAFETY: every value here is, or was made by, an `Avx2`, which exists only where the machine has
        // what these intrinsics need.
        unsafe { $($call)* }
    }};
}

macro_rules! operators {
    ($($vector:ident: $operator:ident $method:ident $intrinsic:ident;)*) => {$(
        impl $operator for $vector {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(avx2!($intrinsic(self.0, other.0)))
            }
        }
    )*};
}

operators! {
    U: Add add _mm256_add_epi32;
    U: Sub sub _mm256_sub_epi32;
    U: BitAnd bitand _mm256_and_si256;
    U: BitOr bitor _mm256_or_si256;
    U: BitXor bitxor _mm256_xor_si256;
    F: Add add _mm256_add_ps;
    F: Sub sub _mm256_sub_ps;
    F: Mul mul _mm256_mul_ps;
    F: Div div _mm256_div_ps;
}

/// Calls an intrinsic on both halves.
macro_rules! halves {
    ($intrinsic:ident($($argument:expr),*)) => {
        [avx2!($intrinsic($($argument[0]),*)), avx2!($intrinsic($($argument[1]),*))]
    };
}

macro_rules! wide_operators {
    ($($operator:ident $method:ident $intrinsic:ident;)*) => {$(
        impl $operator for D {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(halves!($intrinsic(self.0, other.0)))
            }
        }
    )*};
}

wide_operators! {
    Add add _mm256_add_pd;
    Sub sub _mm256_sub_pd;
    Mul mul _mm256_mul_pd;
    Div div _mm256_div_pd;
}

/// The low and the high four lanes.
#[inline(always)]
fn split(a: U) -> [__m128i; 2] {
    avx2!([
        _mm256_castsi256_si128(a.0),
        _mm256_extracti128_si256::<1>(a.0)
    ])
}

/// The same number in the low half of each 64 bits.
#[inline(always)]
fn in_pairs(value: u32) -> __m256i {
    avx2!(_mm256_set1_epi64x(i64::from(value)))
}

/// The even lanes of a vector of 32-bit words, each in the low half of 64 bits, and the odd ones.
///
/// This is how 32-bit multiplication takes its operands and gives its products, so a state of Philox stays
/// in this form. The high halves hold anything: the multiplication does not look at them.
#[derive(Clone, Copy)]
struct Parity([__m256i; 2]);

impl Parity {
    #[inline(always)]
    fn of(a: U) -> Self {
        Self(avx2!([a.0, _mm256_srli_epi64::<32>(a.0)]))
    }

    #[inline(always)]
    fn mul(self, by: __m256i) -> Self {
        Self(avx2!([
            _mm256_mul_epu32(self.0[0], by),
            _mm256_mul_epu32(self.0[1], by)
        ]))
    }

    #[inline(always)]
    fn high(self) -> Self {
        Self(avx2!([
            _mm256_srli_epi64::<32>(self.0[0]),
            _mm256_srli_epi64::<32>(self.0[1])
        ]))
    }

    #[inline(always)]
    fn xor(self, other: Self, key: __m256i) -> Self {
        Self(avx2!([
            _mm256_xor_si256(_mm256_xor_si256(self.0[0], other.0[0]), key),
            _mm256_xor_si256(_mm256_xor_si256(self.0[1], other.0[1]), key)
        ]))
    }

    #[inline(always)]
    fn joined(self) -> U {
        U(avx2!(_mm256_blend_epi32::<0b1010_1010>(
            self.0[0],
            _mm256_slli_epi64::<32>(self.0[1])
        )))
    }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    type U = U;
    type F = F;
    type D = D;
    type M = M;
    type N = N;

    fn vectorize<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx2,f16c")]
        fn compiled<T: Task>(simd: Avx2, task: T) -> T::Output {
            task.run(simd)
        }
        avx2!(compiled(self, task))
    }

    #[inline(always)]
    fn u(self, value: u32) -> U {
        U(avx2!(_mm256_set1_epi32(value.cast_signed())))
    }
    #[inline(always)]
    fn f(self, value: f32) -> F {
        F(avx2!(_mm256_set1_ps(value)))
    }
    #[inline(always)]
    fn d(self, value: f64) -> D {
        D([avx2!(_mm256_set1_pd(value)); 2])
    }
    #[inline(always)]
    fn lane_numbers(self) -> U {
        U(avx2!(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)))
    }
    #[inline(always)]
    fn load_u(self, from: &[u32]) -> U {
        assert!(from.len() >= Self::LANES);
        // SAFETY: `self` proves AVX2, and there are eight integers.
        U(unsafe { _mm256_loadu_si256(from.as_ptr().cast()) })
    }
    #[inline(always)]
    fn load_f(self, from: &[f32]) -> F {
        assert!(from.len() >= Self::LANES);
        // SAFETY: `self` proves AVX2, and there are eight numbers.
        F(unsafe { _mm256_loadu_ps(from.as_ptr()) })
    }
    #[inline(always)]
    fn load_d(self, from: &[f64]) -> D {
        assert!(from.len() >= Self::LANES);
        let from = from.as_ptr();
        // SAFETY: `self` proves AVX2, and there are eight numbers.
        D(unsafe { [_mm256_loadu_pd(from), _mm256_loadu_pd(from.add(4))] })
    }
    #[inline(always)]
    fn save_f(self, a: F, to: &mut [f32]) {
        assert!(to.len() >= Self::LANES);
        // SAFETY: `self` proves AVX2, and there is room for eight numbers.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), a.0) }
    }
    #[inline(always)]
    fn save_d(self, a: D, to: &mut [f64]) {
        assert!(to.len() >= Self::LANES);
        let to = to.as_mut_ptr();
        // SAFETY: `self` proves AVX2, and there is room for eight numbers.
        unsafe {
            _mm256_storeu_pd(to, a.0[0]);
            _mm256_storeu_pd(to.add(4), a.0[1]);
        }
    }

    #[inline(always)]
    fn philox(self, state: [U; 4], key: [u32; 2], rounds: u32) -> [U; 4] {
        let [c0, c1, c2, c3] = state;
        let (mut c0, mut c1) = (Parity::of(c0), Parity::of(c1));
        let (mut c2, mut c3) = (Parity::of(c2), Parity::of(c3));
        let by = [in_pairs(MULTIPLIERS[0]), in_pairs(MULTIPLIERS[1])];
        for round in 0..rounds {
            let key = bumped(key, round);
            let (product0, product1) = (c0.mul(by[0]), c2.mul(by[1]));
            c0 = product1.high().xor(c1, in_pairs(key[0]));
            c2 = product0.high().xor(c3, in_pairs(key[1]));
            (c1, c3) = (product1, product0);
        }
        [c0.joined(), c1.joined(), c2.joined(), c3.joined()]
    }
    #[inline(always)]
    fn mul_wide(self, a: U, b: u32) -> (U, U) {
        let product = Parity::of(a).mul(in_pairs(b));
        (product.high().joined(), product.joined())
    }
    #[inline(always)]
    fn shl<const BY: i32>(self, a: U) -> U {
        U(avx2!(_mm256_slli_epi32::<BY>(a.0)))
    }
    #[inline(always)]
    fn shr<const BY: i32>(self, a: U) -> U {
        U(avx2!(_mm256_srli_epi32::<BY>(a.0)))
    }
    #[inline(always)]
    fn sar<const BY: i32>(self, a: U) -> U {
        U(avx2!(_mm256_srai_epi32::<BY>(a.0)))
    }

    #[inline(always)]
    fn bits(self, a: F) -> U {
        U(avx2!(_mm256_castps_si256(a.0)))
    }
    #[inline(always)]
    fn float(self, bits: U) -> F {
        F(avx2!(_mm256_castsi256_ps(bits.0)))
    }
    #[inline(always)]
    fn signed(self, a: U) -> F {
        F(avx2!(_mm256_cvtepi32_ps(a.0)))
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        F(avx2!(_mm256_sqrt_ps(a.0)))
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        F(avx2!(_mm256_min_ps(a.0, b.0)))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        F(avx2!(_mm256_max_ps(a.0, b.0)))
    }
    #[inline(always)]
    fn less(self, a: F, b: F) -> M {
        M(avx2!(_mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0)))
    }
    #[inline(always)]
    fn negative(self, a: U) -> M {
        M(avx2!(_mm256_castsi256_ps(a.0)))
    }
    #[inline(always)]
    fn select(self, mask: M, a: F, b: F) -> F {
        F(avx2!(_mm256_blendv_ps(b.0, a.0, mask.0)))
    }
    #[inline(always)]
    fn any(self, mask: M) -> bool {
        avx2!(_mm256_movemask_ps(mask.0)) != 0
    }

    #[inline(always)]
    fn signed_wide(self, a: U) -> D {
        let a = split(a);
        D([
            avx2!(_mm256_cvtepi32_pd(a[0])),
            avx2!(_mm256_cvtepi32_pd(a[1])),
        ])
    }
    #[inline(always)]
    fn unsigned_wide(self, a: U) -> D {
        // 2³¹ less as a signed integer, and 2³¹ more as a number.
        self.signed_wide(a ^ self.u(0x8000_0000)) + self.d(2_147_483_648.0)
    }
    #[inline(always)]
    fn split_wide(self, a: D) -> (D, D) {
        let (mut mantissa, mut exponent) = (a, a);
        for half in 0..2 {
            avx2!({
                let bits = _mm256_castpd_si256(a.0[half]);
                // Added so that √½ begins an exponent, and that exponents stay positive.
                let offset = _mm256_set1_epi64x(super::SPLIT_OFFSET.cast_signed());
                let biased = _mm256_srli_epi64::<52>(_mm256_add_epi64(bits, offset));
                let steps = _mm256_sub_epi64(biased, _mm256_set1_epi64x(1023));
                let m = _mm256_sub_epi64(bits, _mm256_slli_epi64::<52>(steps));
                mantissa.0[half] = _mm256_castsi256_pd(m);
                // An integer below 2⁵² in the mantissa of 2⁵².
                let two52 = _mm256_set1_pd(TWO_52);
                let number = _mm256_or_si256(biased, _mm256_castpd_si256(two52));
                let bias = _mm256_set1_pd(TWO_52 + 1023.0);
                exponent.0[half] = _mm256_sub_pd(_mm256_castsi256_pd(number), bias);
            });
        }
        (mantissa, exponent)
    }
    #[inline(always)]
    fn sqrt_wide(self, a: D) -> D {
        D(halves!(_mm256_sqrt_pd(a.0)))
    }
    #[inline(always)]
    fn min_wide(self, a: D, b: D) -> D {
        D(halves!(_mm256_min_pd(a.0, b.0)))
    }
    #[inline(always)]
    fn max_wide(self, a: D, b: D) -> D {
        D(halves!(_mm256_max_pd(a.0, b.0)))
    }
    #[inline(always)]
    fn less_wide(self, a: D, b: D) -> N {
        N(avx2!([
            _mm256_cmp_pd::<_CMP_LT_OQ>(a.0[0], b.0[0]),
            _mm256_cmp_pd::<_CMP_LT_OQ>(a.0[1], b.0[1])
        ]))
    }
    #[inline(always)]
    fn negative_wide(self, a: U) -> N {
        let a = split(a);
        N(avx2!([
            _mm256_castsi256_pd(_mm256_cvtepi32_epi64(a[0])),
            _mm256_castsi256_pd(_mm256_cvtepi32_epi64(a[1]))
        ]))
    }
    #[inline(always)]
    fn select_wide(self, mask: N, a: D, b: D) -> D {
        D(halves!(_mm256_blendv_pd(b.0, a.0, mask.0)))
    }
    #[inline(always)]
    fn any_wide(self, mask: N) -> bool {
        avx2!(_mm256_movemask_pd(_mm256_or_pd(mask.0[0], mask.0[1]))) != 0
    }

    #[inline(always)]
    fn store_u(self, a: U, to: &mut [u8]) {
        assert!(to.len() >= 32);
        // SAFETY: `self` proves AVX2, and there is room for 32 bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), a.0) }
    }
    #[inline(always)]
    fn store_f(self, a: F, to: &mut [u8]) {
        self.store_u(self.bits(a), to);
    }
    #[inline(always)]
    fn store_d(self, a: D, to: &mut [u8]) {
        let (low, high) = to.split_at_mut(32);
        self.store_u(U(avx2!(_mm256_castpd_si256(a.0[0]))), low);
        self.store_u(U(avx2!(_mm256_castpd_si256(a.0[1]))), high);
    }
    #[inline(always)]
    fn store_low(self, a: U, to: &mut [u8]) {
        let [low, high] = split(a);
        store_16(avx2!(_mm_packus_epi32(low, high)), to);
    }
    #[inline(always)]
    fn store_half(self, a: F, to: &mut [u8]) {
        store_16(avx2!(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a.0)), to);
    }
}

/// Stores sixteen bytes.
#[inline(always)]
fn store_16(a: __m128i, to: &mut [u8]) {
    assert!(to.len() >= 16);
    // SAFETY: SSE2 is part of x86-64, and there is room for 16 bytes.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), a) }
}
