//! Tail probabilities of the normal distribution in `f64`, for the constants of a truncated one.
//!
//! From `+ - * /` alone: these constants decide bits, and no two mathematical libraries agree on the last one.
#![allow(
    clippy::excessive_precision,
    reason = "coefficients as printed in their sources"
)]

/// e^x, below 1 ulp: the algorithm and coefficients of `e_exp.c` in Sun's fdlibm. 0 below −744.
pub(crate) fn exp(x: f64) -> f64 {
    const LN2_HIGH: f64 = 6.931_471_803_691_238_164_90e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_700_02e-10;
    const P: [f64; 5] = [
        4.138_136_797_057_238_460_39e-8,
        -1.653_390_220_546_525_153_90e-6,
        6.613_756_321_437_934_361_17e-5,
        -2.777_777_777_701_559_338_42e-3,
        1.666_666_666_666_660_190_37e-1,
    ];
    if x < -744.0 {
        return 0.0;
    }
    // To the nearest integer, or next to it: the polynomial reaches a little further than it has to.
    let k = (x * std::f64::consts::LOG2_E + 0.5_f64.copysign(x)) as i32;
    let high = x - f64::from(k) * LN2_HIGH;
    let low = f64::from(k) * LN2_LOW;
    let r = high - low;
    let square = r * r;
    let c = r - square * P.iter().fold(0.0, |sum, p| sum * square + p);
    let y = 1.0 - ((low - (r * c) / (2.0 - c)) - high);
    // In two steps, so that subnormal results are reached.
    let half = k / 2;
    y * power_of_two(half) * power_of_two(k - half)
}

/// 2^k, for k within the exponents of normal numbers.
pub(crate) fn power_of_two(k: i32) -> f64 {
    f64::from_bits(((k + 1023) as u64) << 52)
}

/// The density of the standard normal distribution.
fn density(z: f64) -> f64 {
    const ONE_OVER_SQRT_2PI: f64 = 0.398_942_280_401_432_7;
    exp(z * z * -0.5) * ONE_OVER_SQRT_2PI
}

/// P(Z > z), for any `z`; relative error about 1e-14 · max(1, z²).
///
/// Near the mean by Taylor's series about 0; from 1.5 on by Laplace's continued fraction
/// z + 1/(z + 2/(z + 3/(z + …))), cut where further terms change nothing.
pub(crate) fn upper_tail(z: f64) -> f64 {
    const FROM: f64 = 1.5;
    const TERMS: u32 = 160;
    if z < 0.0 {
        return 1.0 - upper_tail(-z);
    }
    // Beyond, the density is 0 in f64; so it is at infinity, where the fraction would be undefined.
    if z > 39.0 {
        return 0.0;
    }
    if z >= FROM {
        let fraction = (1..=TERMS).rev().fold(z, |sum, k| z + f64::from(k) / sum);
        return density(z) / fraction;
    }
    let mut term = z;
    let mut sum = z;
    let mut odd = 1.0;
    // The terms are positive and end below 2⁻⁵³ of the sum; 40 are enough for z = 1.5.
    for _ in 0..40 {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    0.5 - density(z) * sum
}
