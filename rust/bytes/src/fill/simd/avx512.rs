//! AVX-512 with F, BW, DQ and VL: sixteen lanes.
#![allow(unsafe_code)] // calls the intrinsics of an instruction set that was detected

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Sub};

use super::{Simd, Task};
use crate::fill::philox::{MULTIPLIERS, bumped};

/// Proof that the machine has AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// The proof, where it holds.
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl"))
        .then_some(Self(()))
    }
}

/// Sixteen 32-bit integers.
#[derive(Clone, Copy)]
pub(super) struct U(__m512i);
/// Sixteen `f32`.
#[derive(Clone, Copy)]
pub(super) struct F(__m512);
/// Sixteen `f64`: lanes 0 to 7, and 8 to 15.
#[derive(Clone, Copy)]
pub(super) struct D([__m512d; 2]);

/// Calls intrinsics.
macro_rules! avx512 {
    ($($call:tt)*) => {{
        // SAFETY: every value here is, or was made by, an `Avx512`, which exists only where the machine
        // has what these intrinsics need.
        unsafe { $($call)* }
    }};
}

macro_rules! operators {
    ($($vector:ident: $operator:ident $method:ident $intrinsic:ident;)*) => {$(
        impl $operator for $vector {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(avx512!($intrinsic(self.0, other.0)))
            }
        }
    )*};
}

operators! {
    U: Add add _mm512_add_epi32;
    U: Sub sub _mm512_sub_epi32;
    U: BitAnd bitand _mm512_and_si512;
    U: BitOr bitor _mm512_or_si512;
    U: BitXor bitxor _mm512_xor_si512;
    F: Add add _mm512_add_ps;
    F: Sub sub _mm512_sub_ps;
    F: Mul mul _mm512_mul_ps;
    F: Div div _mm512_div_ps;
}

/// Calls an intrinsic on both halves.
macro_rules! halves {
    ($intrinsic:ident($($argument:expr),*)) => {
        [avx512!($intrinsic($($argument[0]),*)), avx512!($intrinsic($($argument[1]),*))]
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
    Add add _mm512_add_pd;
    Sub sub _mm512_sub_pd;
    Mul mul _mm512_mul_pd;
    Div div _mm512_div_pd;
}

/// The low and the high eight lanes.
#[inline(always)]
fn split(a: U) -> [__m256i; 2] {
    avx512!([
        _mm512_castsi512_si256(a.0),
        _mm512_extracti64x4_epi64::<1>(a.0)
    ])
}

/// The same number in the low half of each 64 bits.
#[inline(always)]
fn in_pairs(value: u32) -> __m512i {
    avx512!(_mm512_set1_epi64(i64::from(value)))
}

/// The even lanes of a vector of 32-bit words, each in the low half of 64 bits, and the odd ones.
///
/// This is how 32-bit multiplication takes its operands and gives its products, so a state of Philox stays
/// in this form. The high halves hold anything: the multiplication does not look at them.
#[derive(Clone, Copy)]
struct Parity([__m512i; 2]);

impl Parity {
    #[inline(always)]
    fn of(a: U) -> Self {
        Self(avx512!([a.0, _mm512_srli_epi64::<32>(a.0)]))
    }

    #[inline(always)]
    fn mul(self, by: __m512i) -> Self {
        Self(avx512!([
            _mm512_mul_epu32(self.0[0], by),
            _mm512_mul_epu32(self.0[1], by)
        ]))
    }

    #[inline(always)]
    fn high(self) -> Self {
        Self(avx512!([
            _mm512_srli_epi64::<32>(self.0[0]),
            _mm512_srli_epi64::<32>(self.0[1])
        ]))
    }

    #[inline(always)]
    fn xor(self, other: Self, key: __m512i) -> Self {
        const XOR3: i32 = 0b1001_0110;
        Self(avx512!([
            _mm512_ternarylogic_epi64::<XOR3>(self.0[0], other.0[0], key),
            _mm512_ternarylogic_epi64::<XOR3>(self.0[1], other.0[1], key)
        ]))
    }

    #[inline(always)]
    fn joined(self) -> U {
        U(avx512!(_mm512_mask_blend_epi32(
            0b1010_1010_1010_1010,
            self.0[0],
            _mm512_slli_epi64::<32>(self.0[1])
        )))
    }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    type U = U;
    type F = F;
    type D = D;
    type M = __mmask16;
    type N = [__mmask8; 2];

    fn vectorize<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn compiled<T: Task>(simd: Avx512, task: T) -> T::Output {
            task.run(simd)
        }
        avx512!(compiled(self, task))
    }

    #[inline(always)]
    fn u(self, value: u32) -> U {
        U(avx512!(_mm512_set1_epi32(value.cast_signed())))
    }
    #[inline(always)]
    fn f(self, value: f32) -> F {
        F(avx512!(_mm512_set1_ps(value)))
    }
    #[inline(always)]
    fn d(self, value: f64) -> D {
        D([avx512!(_mm512_set1_pd(value)); 2])
    }
    #[inline(always)]
    fn lane_numbers(self) -> U {
        U(avx512!(_mm512_setr_epi32(
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
        )))
    }
    #[inline(always)]
    fn load_u(self, from: &[u32]) -> U {
        assert!(from.len() >= Self::LANES);
        // SAFETY: `self` proves AVX-512, and there are sixteen integers.
        U(unsafe { _mm512_loadu_si512(from.as_ptr().cast()) })
    }
    #[inline(always)]
    fn load_f(self, from: &[f32]) -> F {
        assert!(from.len() >= Self::LANES);
        // SAFETY: `self` proves AVX-512, and there are sixteen numbers.
        F(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    }
    #[inline(always)]
    fn load_d(self, from: &[f64]) -> D {
        assert!(from.len() >= Self::LANES);
        let from = from.as_ptr();
        // SAFETY: `self` proves AVX-512, and there are sixteen numbers.
        D(unsafe { [_mm512_loadu_pd(from), _mm512_loadu_pd(from.add(8))] })
    }
    #[inline(always)]
    fn save_f(self, a: F, to: &mut [f32]) {
        assert!(to.len() >= Self::LANES);
        // SAFETY: `self` proves AVX-512, and there is room for sixteen numbers.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), a.0) }
    }
    #[inline(always)]
    fn save_d(self, a: D, to: &mut [f64]) {
        assert!(to.len() >= Self::LANES);
        let to = to.as_mut_ptr();
        // SAFETY: `self` proves AVX-512, and there is room for sixteen numbers.
        unsafe {
            _mm512_storeu_pd(to, a.0[0]);
            _mm512_storeu_pd(to.add(8), a.0[1]);
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
        U(avx512!(_mm512_sll_epi32(a.0, _mm_cvtsi32_si128(BY))))
    }
    #[inline(always)]
    fn shr<const BY: i32>(self, a: U) -> U {
        U(avx512!(_mm512_srl_epi32(a.0, _mm_cvtsi32_si128(BY))))
    }
    #[inline(always)]
    fn sar<const BY: i32>(self, a: U) -> U {
        U(avx512!(_mm512_sra_epi32(a.0, _mm_cvtsi32_si128(BY))))
    }

    #[inline(always)]
    fn bits(self, a: F) -> U {
        U(avx512!(_mm512_castps_si512(a.0)))
    }
    #[inline(always)]
    fn float(self, bits: U) -> F {
        F(avx512!(_mm512_castsi512_ps(bits.0)))
    }
    #[inline(always)]
    fn signed(self, a: U) -> F {
        F(avx512!(_mm512_cvtepi32_ps(a.0)))
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        F(avx512!(_mm512_sqrt_ps(a.0)))
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        F(avx512!(_mm512_min_ps(a.0, b.0)))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        F(avx512!(_mm512_max_ps(a.0, b.0)))
    }
    #[inline(always)]
    fn less(self, a: F, b: F) -> __mmask16 {
        avx512!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a.0, b.0))
    }
    #[inline(always)]
    fn negative(self, a: U) -> __mmask16 {
        avx512!(_mm512_movepi32_mask(a.0))
    }
    #[inline(always)]
    fn select(self, mask: __mmask16, a: F, b: F) -> F {
        F(avx512!(_mm512_mask_blend_ps(mask, b.0, a.0)))
    }
    #[inline(always)]
    fn any(self, mask: __mmask16) -> bool {
        mask != 0
    }

    #[inline(always)]
    fn signed_wide(self, a: U) -> D {
        let a = split(a);
        D(halves!(_mm512_cvtepi32_pd(a)))
    }
    #[inline(always)]
    fn unsigned_wide(self, a: U) -> D {
        let a = split(a);
        D(halves!(_mm512_cvtepu32_pd(a)))
    }
    #[inline(always)]
    fn split_wide(self, a: D) -> (D, D) {
        let (mut mantissa, mut exponent) = (a, a);
        for half in 0..2 {
            avx512!({
                let bits = _mm512_castpd_si512(a.0[half]);
                let offset = _mm512_set1_epi64(super::SPLIT_OFFSET.cast_signed());
                let biased = _mm512_srli_epi64::<52>(_mm512_add_epi64(bits, offset));
                let steps = _mm512_sub_epi64(biased, _mm512_set1_epi64(1023));
                let m = _mm512_sub_epi64(bits, _mm512_slli_epi64::<52>(steps));
                mantissa.0[half] = _mm512_castsi512_pd(m);
                exponent.0[half] = _mm512_cvtepi64_pd(steps);
            });
        }
        (mantissa, exponent)
    }
    #[inline(always)]
    fn sqrt_wide(self, a: D) -> D {
        D(halves!(_mm512_sqrt_pd(a.0)))
    }
    #[inline(always)]
    fn min_wide(self, a: D, b: D) -> D {
        D(halves!(_mm512_min_pd(a.0, b.0)))
    }
    #[inline(always)]
    fn max_wide(self, a: D, b: D) -> D {
        D(halves!(_mm512_max_pd(a.0, b.0)))
    }
    #[inline(always)]
    fn less_wide(self, a: D, b: D) -> [__mmask8; 2] {
        avx512!([
            _mm512_cmp_pd_mask::<_CMP_LT_OQ>(a.0[0], b.0[0]),
            _mm512_cmp_pd_mask::<_CMP_LT_OQ>(a.0[1], b.0[1])
        ])
    }
    #[inline(always)]
    fn negative_wide(self, a: U) -> [__mmask8; 2] {
        self.negative(a).to_le_bytes()
    }
    #[inline(always)]
    fn select_wide(self, mask: [__mmask8; 2], a: D, b: D) -> D {
        D(halves!(_mm512_mask_blend_pd(mask, b.0, a.0)))
    }
    #[inline(always)]
    fn any_wide(self, mask: [__mmask8; 2]) -> bool {
        mask != [0, 0]
    }

    #[inline(always)]
    fn store_u(self, a: U, to: &mut [u8]) {
        assert!(to.len() >= 64);
        // SAFETY: `self` proves AVX-512, and there is room for 64 bytes.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), a.0) }
    }
    #[inline(always)]
    fn store_f(self, a: F, to: &mut [u8]) {
        self.store_u(self.bits(a), to);
    }
    #[inline(always)]
    fn store_d(self, a: D, to: &mut [u8]) {
        let (low, high) = to.split_at_mut(64);
        self.store_u(U(avx512!(_mm512_castpd_si512(a.0[0]))), low);
        self.store_u(U(avx512!(_mm512_castpd_si512(a.0[1]))), high);
    }
    #[inline(always)]
    fn store_low(self, a: U, to: &mut [u8]) {
        store_32(avx512!(_mm512_cvtepi32_epi16(a.0)), to);
    }
    #[inline(always)]
    fn store_half(self, a: F, to: &mut [u8]) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        store_32(avx512!(_mm512_cvtps_ph::<NEAREST>(a.0)), to);
    }
}

/// Stores 32 bytes.
#[inline(always)]
fn store_32(a: __m256i, to: &mut [u8]) {
    assert!(to.len() >= 32);
    // SAFETY: `a` was made by an `Avx512`, AVX is part of that, and there is room for 32 bytes.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), a) }
}
