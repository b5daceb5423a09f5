//! Logarithm, sine, cosine and the normal quantile in `f32`, from `+ - * / √` alone.
//!
//! Every operation is correctly rounded and none is contracted, so the bits are the same everywhere.
//! The polynomials are minimax fits, with their coefficients rounded to `f32`.

use super::simd::Simd;

/// The natural logarithm of `a · 2^shift`, for a positive normal `a`; 1 ulp or so.
///
/// a = m · 2^e with m in [√½, √2); ln m is a polynomial in m − 1.
#[inline(always)]
pub(crate) fn ln<S: Simd>(s: S, a: S::F, shift: i32) -> S::F {
    const SQRT_HALF: u32 = 0x3F35_04F3;
    const P: [f32; 7] = [
        0.089_177_825,
        -0.143_501_88,
        0.148_769_83,
        -0.165_656_36,
        0.199_653_97,
        -0.250_017_46,
        0.333_338_6,
    ];
    let bits = s.bits(a);
    let e = s.sar::<23>(bits - s.u(SQRT_HALF));
    let g = s.float(bits - s.shl::<23>(e)) - s.f(1.0);
    let z = g * g;
    let p = horner(s, g, P);
    let exponent = s.signed(e + s.u(shift.cast_unsigned()));
    exponent * s.f(std::f32::consts::LN_2) + (g + (z * s.f(-0.5) + (p * g) * z))
}

/// Sine and cosine of a word as an angle in [−π/4, π/4); 2 ulp or so.
#[inline(always)]
pub(crate) fn sin_cos<S: Simd>(s: S, word: S::U) -> (S::F, S::F) {
    /// π/2 · 2⁻³²: the quarter turn that 2³² words divide among them.
    const STEP: f32 = 3.657_295_3e-10;
    let t = s.signed(word) * s.f(STEP);
    let y = t * t;
    let sine = horner(s, y, [-0.000_195_172_98, 0.008_332_178, -0.166_666_55]);
    let cosine = horner(
        s,
        y,
        [2.443_845e-5, -0.001_388_736_8, 0.041_666_646, -0.5, 1.0],
    );
    ((sine * y) * t + t, cosine)
}

/// A polynomial, highest power first.
#[inline(always)]
fn horner<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
    let mut sum = s.f(coefficients[0]);
    for &c in &coefficients[1..] {
        sum = sum * x + s.f(c);
    }
    sum
}

/// Tail probabilities from here on, up to ½, have the central formula; it reaches |z| = 2.0099.
pub(crate) const CENTRAL_FROM: f32 = 0.0222;

/// |z| of a tail probability q in [`CENTRAL_FROM`, ½]; error below 7e-7.
///
/// z / (½ − q) is even about q = ½, hence a function of q(1 − q); here a ratio of two quartics.
#[inline(always)]
pub(crate) fn quantile_central<S: Simd>(s: S, q: S::F) -> S::F {
    let p = q - q * q;
    let top = [36539.594, 98763.67, 24918.736, 1070.1937, 6.230_244_6];
    let bottom = [42435.55, 45688.12, 7427.658, 233.025_48, 1.0];
    (s.f(0.5) - q) * (horner(s, p, top) / horner(s, p, bottom))
}

/// |z| of a tail probability `q · 2^shift` below [`CENTRAL_FROM`]; relative error below 1e-6, down to
/// probabilities of e⁻⁸⁰⁰.
///
/// With r = √(−2 ln q), r − z is small and smooth; here a ratio of two cubics in r.
#[inline(always)]
pub(crate) fn quantile_tail<S: Simd>(s: S, q: S::F, shift: i32) -> S::F {
    let r = s.sqrt(ln(s, q, shift) * s.f(-2.0));
    let top = [0.000_157_55, 0.100_483_66, 1.580_451, 2.575_17];
    let bottom = [0.018_360_145, 0.501_435_7, 1.840_386_3, 1.0];
    r - horner(s, r, top) / horner(s, r, bottom)
}
