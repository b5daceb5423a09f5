//! NEON, the 128-bit vectors that every 64-bit ARM has: four lanes.
#![allow(unsafe_code)] // calls the intrinsics of an instruction set that the target has

use std::arch::aarch64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Sub};

use super::{Simd, Task};
use crate::fill::philox::{MULTIPLIERS, bumped};

/// NEON is part of the target.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

impl Neon {
    /// Always there.
    pub(super) const fn new() -> Self {
        const { assert!(cfg!(target_feature = "neon")) };
        Self(())
    }
}

/// Four 32-bit integers.
#[derive(Clone, Copy)]
pub(super) struct U(uint32x4_t);
/// Four `f32`.
#[derive(Clone, Copy)]
pub(super) struct F(float32x4_t);
/// Four `f64`: lanes 0 and 1, and 2 and 3.
#[derive(Clone, Copy)]
pub(super) struct D([float64x2_t; 2]);

/// Calls intrinsics.
macro_rules! neon {
    ($($call:tt)*) => {{
        // SAFETY: NEON is part of the target: `Neon::new` asserts it at compile time. Where this is a load
        // or a store, the line before has checked the length.
        #[allow(unused_unsafe, reason = "some are safe where NEON is part of the target")]
        unsafe { $($call)* }
    }};
}

macro_rules! operators {
    ($($vector:ident: $operator:ident $method:ident $intrinsic:ident;)*) => {$(
        impl $operator for $vector {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(neon!($intrinsic(self.0, other.0)))
            }
        }
    )*};
}

operators! {
    U: Add add vaddq_u32;
    U: Sub sub vsubq_u32;
    U: BitAnd bitand vandq_u32;
    U: BitOr bitor vorrq_u32;
    U: BitXor bitxor veorq_u32;
    F: Add add vaddq_f32;
    F: Sub sub vsubq_f32;
    F: Mul mul vmulq_f32;
    F: Div div vdivq_f32;
}

/// Calls an intrinsic on both halves.
macro_rules! halves {
    ($intrinsic:ident($($argument:expr),*)) => {
        [neon!($intrinsic($($argument[0]),*)), neon!($intrinsic($($argument[1]),*))]
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
    Add add vaddq_f64;
    Sub sub vsubq_f64;
    Mul mul vmulq_f64;
    Div div vdivq_f64;
}

impl Simd for Neon {
    const LANES: usize = 4;
    type U = U;
    type F = F;
    type D = D;
    type M = uint32x4_t;
    type N = [uint64x2_t; 2];

    #[inline(never)] // so that no floating-point operation moves out of where its environment is set
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        task.run(self)
    }

    #[inline(always)]
    fn u(self, value: u32) -> U {
        U(neon!(vdupq_n_u32(value)))
    }
    #[inline(always)]
    fn f(self, value: f32) -> F {
        F(neon!(vdupq_n_f32(value)))
    }
    #[inline(always)]
    fn d(self, value: f64) -> D {
        D([neon!(vdupq_n_f64(value)); 2])
    }
    #[inline(always)]
    fn lane_numbers(self) -> U {
        self.load_u(&[0, 1, 2, 3])
    }
    #[inline(always)]
    fn load_u(self, from: &[u32]) -> U {
        assert!(from.len() >= Self::LANES);
        U(neon!(vld1q_u32(from.as_ptr())))
    }
    #[inline(always)]
    fn load_f(self, from: &[f32]) -> F {
        assert!(from.len() >= Self::LANES);
        F(neon!(vld1q_f32(from.as_ptr())))
    }
    #[inline(always)]
    fn load_d(self, from: &[f64]) -> D {
        assert!(from.len() >= Self::LANES);
        D(neon!([
            vld1q_f64(from.as_ptr()),
            vld1q_f64(from.as_ptr().add(2))
        ]))
    }
    #[inline(always)]
    fn save_f(self, a: F, to: &mut [f32]) {
        assert!(to.len() >= Self::LANES);
        neon!(vst1q_f32(to.as_mut_ptr(), a.0));
    }
    #[inline(always)]
    fn save_d(self, a: D, to: &mut [f64]) {
        assert!(to.len() >= Self::LANES);
        neon!({
            vst1q_f64(to.as_mut_ptr(), a.0[0]);
            vst1q_f64(to.as_mut_ptr().add(2), a.0[1]);
        });
    }

    #[inline(always)]
    fn philox(self, state: [U; 4], key: [u32; 2], rounds: u32) -> [U; 4] {
        let [mut c0, mut c1, mut c2, mut c3] = state;
        for round in 0..rounds {
            let [k0, k1] = bumped(key, round);
            let (high0, low0) = self.mul_wide(c0, MULTIPLIERS[0]);
            let (high1, low1) = self.mul_wide(c2, MULTIPLIERS[1]);
            c0 = high1 ^ c1 ^ self.u(k0);
            c2 = high0 ^ c3 ^ self.u(k1);
            (c1, c3) = (low1, low0);
        }
        [c0, c1, c2, c3]
    }
    #[inline(always)]
    fn mul_wide(self, a: U, b: u32) -> (U, U) {
        let b = self.u(b).0;
        neon!({
            let low = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a.0), vget_low_u32(b)));
            let high = vreinterpretq_u32_u64(vmull_high_u32(a.0, b));
            (U(vuzp2q_u32(low, high)), U(vuzp1q_u32(low, high)))
        })
    }
    #[inline(always)]
    fn shl<const BY: i32>(self, a: U) -> U {
        U(neon!(vshlq_n_u32::<BY>(a.0)))
    }
    #[inline(always)]
    fn shr<const BY: i32>(self, a: U) -> U {
        U(neon!(vshrq_n_u32::<BY>(a.0)))
    }
    #[inline(always)]
    fn sar<const BY: i32>(self, a: U) -> U {
        U(neon!(vreinterpretq_u32_s32(vshrq_n_s32::<BY>(
            vreinterpretq_s32_u32(a.0)
        ))))
    }

    #[inline(always)]
    fn bits(self, a: F) -> U {
        U(neon!(vreinterpretq_u32_f32(a.0)))
    }
    #[inline(always)]
    fn float(self, bits: U) -> F {
        F(neon!(vreinterpretq_f32_u32(bits.0)))
    }
    #[inline(always)]
    fn signed(self, a: U) -> F {
        F(neon!(vcvtq_f32_s32(vreinterpretq_s32_u32(a.0))))
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        F(neon!(vsqrtq_f32(a.0)))
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        self.select(self.less(a, b), a, b)
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        self.select(self.less(b, a), a, b)
    }
    #[inline(always)]
    fn less(self, a: F, b: F) -> uint32x4_t {
        neon!(vcltq_f32(a.0, b.0))
    }
    #[inline(always)]
    fn negative(self, a: U) -> uint32x4_t {
        neon!(vcltzq_s32(vreinterpretq_s32_u32(a.0)))
    }
    #[inline(always)]
    fn select(self, mask: uint32x4_t, a: F, b: F) -> F {
        F(neon!(vbslq_f32(mask, a.0, b.0)))
    }
    #[inline(always)]
    fn any(self, mask: uint32x4_t) -> bool {
        neon!(vmaxvq_u32(mask)) != 0
    }

    #[inline(always)]
    fn signed_wide(self, a: U) -> D {
        neon!({
            let a = vreinterpretq_s32_u32(a.0);
            let low = vcvtq_f64_s64(vmovl_s32(vget_low_s32(a)));
            D([low, vcvtq_f64_s64(vmovl_high_s32(a))])
        })
    }
    #[inline(always)]
    fn unsigned_wide(self, a: U) -> D {
        neon!({
            let low = vcvtq_f64_u64(vmovl_u32(vget_low_u32(a.0)));
            D([low, vcvtq_f64_u64(vmovl_high_u32(a.0))])
        })
    }
    #[inline(always)]
    fn split_wide(self, a: D) -> (D, D) {
        let (mut mantissa, mut exponent) = (a, a);
        for half in 0..2 {
            neon!({
                let bits = vreinterpretq_u64_f64(a.0[half]);
                let biased = vshrq_n_u64::<52>(vaddq_u64(bits, vdupq_n_u64(super::SPLIT_OFFSET)));
                let steps = vsubq_u64(biased, vdupq_n_u64(1023));
                let m = vsubq_u64(bits, vshlq_n_u64::<52>(steps));
                mantissa.0[half] = vreinterpretq_f64_u64(m);
                exponent.0[half] = vcvtq_f64_s64(vreinterpretq_s64_u64(steps));
            });
        }
        (mantissa, exponent)
    }
    #[inline(always)]
    fn sqrt_wide(self, a: D) -> D {
        D(halves!(vsqrtq_f64(a.0)))
    }
    #[inline(always)]
    fn min_wide(self, a: D, b: D) -> D {
        self.select_wide(self.less_wide(a, b), a, b)
    }
    #[inline(always)]
    fn max_wide(self, a: D, b: D) -> D {
        self.select_wide(self.less_wide(b, a), a, b)
    }
    #[inline(always)]
    fn less_wide(self, a: D, b: D) -> [uint64x2_t; 2] {
        halves!(vcltq_f64(a.0, b.0))
    }
    #[inline(always)]
    fn negative_wide(self, a: U) -> [uint64x2_t; 2] {
        neon!({
            let a = vreinterpretq_s32_u32(a.0);
            let low = vcltzq_s64(vmovl_s32(vget_low_s32(a)));
            [low, vcltzq_s64(vmovl_high_s32(a))]
        })
    }
    #[inline(always)]
    fn select_wide(self, mask: [uint64x2_t; 2], a: D, b: D) -> D {
        D(halves!(vbslq_f64(mask, a.0, b.0)))
    }
    #[inline(always)]
    fn any_wide(self, mask: [uint64x2_t; 2]) -> bool {
        neon!(vmaxvq_u32(vreinterpretq_u32_u64(vorrq_u64(
            mask[0], mask[1]
        )))) != 0
    }

    #[inline(always)]
    fn store_u(self, a: U, to: &mut [u8]) {
        assert!(to.len() >= 16);
        neon!(vst1q_u8(to.as_mut_ptr(), vreinterpretq_u8_u32(a.0)));
    }
    #[inline(always)]
    fn store_f(self, a: F, to: &mut [u8]) {
        self.store_u(self.bits(a), to);
    }
    #[inline(always)]
    fn store_d(self, a: D, to: &mut [u8]) {
        let (low, high) = to.split_at_mut(16);
        self.store_u(U(neon!(vreinterpretq_u32_f64(a.0[0]))), low);
        self.store_u(U(neon!(vreinterpretq_u32_f64(a.0[1]))), high);
    }
    #[inline(always)]
    fn store_low(self, a: U, to: &mut [u8]) {
        assert!(to.len() >= 8);
        neon!(vst1_u8(
            to.as_mut_ptr(),
            vreinterpret_u8_u16(vmovn_u32(a.0))
        ));
    }
}
