//! Plain Rust over arrays: the reference for the others, and what is left where there is nothing better.

use std::array::from_fn;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Sub};

use super::{Simd, Task};
use crate::fill::philox::{MULTIPLIERS, bumped};

/// Lanes in an array: enough for the compiler to fill the vectors of the target's baseline.
const LANES: usize = 16;

/// Needs nothing.
#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Sixteen numbers.
#[derive(Clone, Copy)]
pub(super) struct Lanes<T>([T; LANES]);

impl<T: Copy> Lanes<T> {
    #[inline(always)]
    fn map<R>(self, f: impl Fn(T) -> R) -> Lanes<R> {
        Lanes(from_fn(|lane| f(self.0[lane])))
    }

    #[inline(always)]
    fn zip<O: Copy, R>(self, other: Lanes<O>, f: impl Fn(T, O) -> R) -> Lanes<R> {
        Lanes(from_fn(|lane| f(self.0[lane], other.0[lane])))
    }

    /// Writes each number as bytes.
    #[inline(always)]
    fn store<const SIZE: usize>(self, to: &mut [u8], bytes: impl Fn(T) -> [u8; SIZE]) {
        for (to, &number) in to.as_chunks_mut::<SIZE>().0[..LANES]
            .iter_mut()
            .zip(&self.0)
        {
            *to = bytes(number);
        }
    }
}

macro_rules! operators {
    ($($number:ident: $operator:ident $method:ident $f:expr;)*) => {$(
        impl $operator for Lanes<$number> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.zip(other, $f)
            }
        }
    )*};
}

operators! {
    u32: Add add u32::wrapping_add;
    u32: Sub sub u32::wrapping_sub;
    u32: BitAnd bitand |a, b| a & b;
    u32: BitOr bitor |a, b| a | b;
    u32: BitXor bitxor |a, b| a ^ b;
    f32: Add add |a, b| a + b;
    f32: Sub sub |a, b| a - b;
    f32: Mul mul |a, b| a * b;
    f32: Div div |a, b| a / b;
    f64: Add add |a, b| a + b;
    f64: Sub sub |a, b| a - b;
    f64: Mul mul |a, b| a * b;
    f64: Div div |a, b| a / b;
}

/// High and low word of a product.
#[inline(always)]
fn mul_wide(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

impl Simd for Portable {
    const LANES: usize = LANES;
    type U = Lanes<u32>;
    type F = Lanes<f32>;
    type D = Lanes<f64>;
    type M = Lanes<bool>;
    type N = Lanes<bool>;

    #[inline(never)] // so that no floating-point operation moves out of where its environment is set
    fn vectorize<T: Task>(self, task: T) -> T::Output {
        task.run(self)
    }

    #[inline(always)]
    fn u(self, value: u32) -> Lanes<u32> {
        Lanes([value; LANES])
    }
    #[inline(always)]
    fn f(self, value: f32) -> Lanes<f32> {
        Lanes([value; LANES])
    }
    #[inline(always)]
    fn d(self, value: f64) -> Lanes<f64> {
        Lanes([value; LANES])
    }
    #[inline(always)]
    fn lane_numbers(self) -> Lanes<u32> {
        Lanes(from_fn(|lane| lane as u32))
    }
    #[inline(always)]
    fn load_u(self, from: &[u32]) -> Lanes<u32> {
        Lanes(from_fn(|lane| from[lane]))
    }
    #[inline(always)]
    fn load_f(self, from: &[f32]) -> Lanes<f32> {
        Lanes(from_fn(|lane| from[lane]))
    }
    #[inline(always)]
    fn load_d(self, from: &[f64]) -> Lanes<f64> {
        Lanes(from_fn(|lane| from[lane]))
    }
    #[inline(always)]
    fn save_f(self, a: Lanes<f32>, to: &mut [f32]) {
        to[..LANES].copy_from_slice(&a.0);
    }
    #[inline(always)]
    fn save_d(self, a: Lanes<f64>, to: &mut [f64]) {
        to[..LANES].copy_from_slice(&a.0);
    }

    #[inline(always)]
    fn philox(self, state: [Lanes<u32>; 4], key: [u32; 2], rounds: u32) -> [Lanes<u32>; 4] {
        let [mut c0, mut c1, mut c2, mut c3] = state;
        for round in 0..rounds {
            let [k0, k1] = bumped(key, round);
            for lane in 0..LANES {
                let (high0, low0) = mul_wide(c0.0[lane], MULTIPLIERS[0]);
                let (high1, low1) = mul_wide(c2.0[lane], MULTIPLIERS[1]);
                c0.0[lane] = high1 ^ c1.0[lane] ^ k0;
                c2.0[lane] = high0 ^ c3.0[lane] ^ k1;
                (c1.0[lane], c3.0[lane]) = (low1, low0);
            }
        }
        [c0, c1, c2, c3]
    }
    #[inline(always)]
    fn mul_wide(self, a: Lanes<u32>, b: u32) -> (Lanes<u32>, Lanes<u32>) {
        (a.map(|a| mul_wide(a, b).0), a.map(|a| mul_wide(a, b).1))
    }
    #[inline(always)]
    fn shl<const BY: i32>(self, a: Lanes<u32>) -> Lanes<u32> {
        a.map(|a| a << BY)
    }
    #[inline(always)]
    fn shr<const BY: i32>(self, a: Lanes<u32>) -> Lanes<u32> {
        a.map(|a| a >> BY)
    }
    #[inline(always)]
    fn sar<const BY: i32>(self, a: Lanes<u32>) -> Lanes<u32> {
        a.map(|a| (a.cast_signed() >> BY).cast_unsigned())
    }

    #[inline(always)]
    fn bits(self, a: Lanes<f32>) -> Lanes<u32> {
        a.map(f32::to_bits)
    }
    #[inline(always)]
    fn float(self, bits: Lanes<u32>) -> Lanes<f32> {
        bits.map(f32::from_bits)
    }
    #[inline(always)]
    fn signed(self, a: Lanes<u32>) -> Lanes<f32> {
        a.map(|a| a.cast_signed() as f32)
    }
    #[inline(always)]
    fn sqrt(self, a: Lanes<f32>) -> Lanes<f32> {
        a.map(f32::sqrt)
    }
    #[inline(always)]
    fn min(self, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<f32> {
        a.zip(b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<f32> {
        a.zip(b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn less(self, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<bool> {
        a.zip(b, |a, b| a < b)
    }
    #[inline(always)]
    fn negative(self, a: Lanes<u32>) -> Lanes<bool> {
        a.map(|a| a.cast_signed() < 0)
    }
    #[inline(always)]
    fn select(self, mask: Lanes<bool>, a: Lanes<f32>, b: Lanes<f32>) -> Lanes<f32> {
        Lanes(from_fn(
            |lane| if mask.0[lane] { a.0[lane] } else { b.0[lane] },
        ))
    }
    #[inline(always)]
    fn any(self, mask: Lanes<bool>) -> bool {
        mask.0.contains(&true)
    }

    #[inline(always)]
    fn signed_wide(self, a: Lanes<u32>) -> Lanes<f64> {
        a.map(|a| f64::from(a.cast_signed()))
    }
    #[inline(always)]
    fn unsigned_wide(self, a: Lanes<u32>) -> Lanes<f64> {
        a.map(f64::from)
    }
    #[inline(always)]
    fn split_wide(self, a: Lanes<f64>) -> (Lanes<f64>, Lanes<f64>) {
        let exponent = |a: f64| (a.to_bits().wrapping_add(super::SPLIT_OFFSET) >> 52) as i32 - 1023;
        let mantissa =
            |a: f64| f64::from_bits(a.to_bits().wrapping_sub((exponent(a) as u64) << 52));
        (a.map(mantissa), a.map(|a| f64::from(exponent(a))))
    }
    #[inline(always)]
    fn sqrt_wide(self, a: Lanes<f64>) -> Lanes<f64> {
        a.map(f64::sqrt)
    }
    #[inline(always)]
    fn min_wide(self, a: Lanes<f64>, b: Lanes<f64>) -> Lanes<f64> {
        a.zip(b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max_wide(self, a: Lanes<f64>, b: Lanes<f64>) -> Lanes<f64> {
        a.zip(b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn less_wide(self, a: Lanes<f64>, b: Lanes<f64>) -> Lanes<bool> {
        a.zip(b, |a, b| a < b)
    }
    #[inline(always)]
    fn negative_wide(self, a: Lanes<u32>) -> Lanes<bool> {
        self.negative(a)
    }
    #[inline(always)]
    fn select_wide(self, mask: Lanes<bool>, a: Lanes<f64>, b: Lanes<f64>) -> Lanes<f64> {
        Lanes(from_fn(
            |lane| if mask.0[lane] { a.0[lane] } else { b.0[lane] },
        ))
    }
    #[inline(always)]
    fn any_wide(self, mask: Lanes<bool>) -> bool {
        self.any(mask)
    }

    #[inline(always)]
    fn store_u(self, a: Lanes<u32>, to: &mut [u8]) {
        a.store(to, u32::to_le_bytes);
    }
    #[inline(always)]
    fn store_f(self, a: Lanes<f32>, to: &mut [u8]) {
        a.store(to, f32::to_le_bytes);
    }
    #[inline(always)]
    fn store_d(self, a: Lanes<f64>, to: &mut [u8]) {
        a.store(to, f64::to_le_bytes);
    }
    #[inline(always)]
    fn store_low(self, a: Lanes<u32>, to: &mut [u8]) {
        a.store(to, |a| (a as u16).to_le_bytes());
    }
}
