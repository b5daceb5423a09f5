//! Logarithm, sine, cosine and the normal quantile in `f64`, from `+ - * / √` alone.
#![allow(
    clippy::excessive_precision,
    reason = "coefficients as printed in their sources"
)]

use super::simd::Simd;

/// The natural logarithm of `a · 2^shift`, for a positive normal `a`; below 1 ulp.
///
/// The algorithm and the coefficients of `e_log.c` in Sun's fdlibm: with m in [√½, √2), f = m − 1 and
/// s = f / (2 + f), ln m = f − f²/2 + s (f²/2 + R(s²)).
#[inline(always)]
pub(crate) fn ln<S: Simd>(s: S, a: S::D, shift: i32) -> S::D {
    const LN2_HIGH: f64 = 6.931_471_803_691_238_164_90e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_700_02e-10;
    const R: [f64; 7] = [
        1.479_819_860_511_658_591e-1,
        1.531_383_769_920_937_332e-1,
        1.818_357_216_161_805_012e-1,
        2.222_219_843_214_978_396e-1,
        2.857_142_874_366_239_149e-1,
        3.999_999_999_940_941_908e-1,
        6.666_666_666_666_735_13e-1,
    ];
    let (m, e) = s.split_wide(a);
    let k = e + s.d(f64::from(shift));
    let f = m - s.d(1.0);
    let ratio = f / (f + s.d(2.0));
    let z = ratio * ratio;
    let half_square = f * f * s.d(0.5);
    let r = horner(s, z, R) * z;
    let low = ratio * (half_square + r) + k * s.d(LN2_LOW);
    k * s.d(LN2_HIGH) - ((half_square - low) - f)
}

/// Sine and cosine of a 64-bit word, given as its halves, as an angle in [−π/4, π/4]; 2 ulp or so.
///
/// The polynomials of `k_sin.c` and `k_cos.c` in Sun's fdlibm.
#[inline(always)]
pub(crate) fn sin_cos<S: Simd>(s: S, high: S::U, low: S::U) -> (S::D, S::D) {
    /// π/2 · 2⁻⁶⁴: the quarter turn that 2⁶⁴ words divide among them.
    const STEP: f64 = std::f64::consts::FRAC_PI_2 / 4_294_967_296.0 / 4_294_967_296.0;
    let t = signed(s, high, low) * s.d(STEP);
    let y = t * t;
    let sine = horner(
        s,
        y,
        [
            1.589_690_995_211_550_102_21e-10,
            -2.505_076_025_340_686_341_95e-8,
            2.755_731_370_707_006_767_89e-6,
            -1.984_126_982_985_794_931_34e-4,
            8.333_333_333_322_489_461_24e-3,
            -1.666_666_666_666_663_243_48e-1,
        ],
    );
    let cosine = horner(
        s,
        y,
        [
            -1.135_964_755_778_819_482_65e-11,
            2.087_572_321_298_174_827_90e-9,
            -2.755_731_435_139_066_330_35e-7,
            2.480_158_728_947_672_941_78e-5,
            -1.388_888_888_887_410_957_49e-3,
            4.166_666_666_666_660_190_37e-2,
        ],
    );
    let half = y * s.d(0.5);
    let w = s.d(1.0) - half;
    let correction = (s.d(1.0) - w) - half;
    (t + (y * t) * sine, w + (correction + y * (y * cosine)))
}

/// A 64-bit signed integer, given as its halves, to the nearest `f64`: both parts are exact, so the sum is
/// the one rounding.
#[inline(always)]
pub(crate) fn signed<S: Simd>(s: S, high: S::U, low: S::U) -> S::D {
    s.signed_wide(high) * s.d(4_294_967_296.0) + s.unsigned_wide(low)
}

/// A polynomial, highest power first.
#[inline(always)]
fn horner<S: Simd, const N: usize>(s: S, x: S::D, coefficients: [f64; N]) -> S::D {
    let mut sum = s.d(coefficients[0]);
    for &c in &coefficients[1..] {
        sum = sum * x + s.d(c);
    }
    sum
}

/// |z| of a tail probability `q · 2^shift` in (0, ½]; relative error about 1e-16.
///
/// Algorithm AS 241, PPND16: M. J. Wichura, *The percentage points of the normal distribution*, Applied
/// Statistics 37, 1988.
#[inline(always)]
pub(crate) fn quantile<S: Simd>(s: S, q: S::D, shift: i32) -> S::D {
    const CENTRAL: [[f64; 8]; 2] = [
        [
            2.509_080_928_730_122_672_7e3,
            3.343_057_558_358_812_810_5e4,
            6.726_577_092_700_870_085_3e4,
            4.592_195_393_154_987_145_7e4,
            1.373_169_376_550_946_112_5e4,
            1.971_590_950_306_551_442_7e3,
            1.331_416_678_917_843_774_5e2,
            3.387_132_872_796_366_608_0,
        ],
        [
            5.226_495_278_852_854_561_0e3,
            2.872_908_573_572_194_267_4e4,
            3.930_789_580_009_271_061_0e4,
            2.121_379_430_158_659_586_7e4,
            5.394_196_021_424_751_107_7e3,
            6.871_870_074_920_579_083_0e2,
            4.231_333_070_160_091_125_2e1,
            1.0,
        ],
    ];
    let tail = s.less_wide(q, s.d(0.075));
    let mut z = s.d(0.0);
    if shift == 0 {
        let x = s.d(0.5) - q;
        let r = s.d(0.180_625) - x * x;
        z = x * ratio(s, r, CENTRAL);
    }
    if shift != 0 || s.any_wide(tail) {
        let r = s.sqrt_wide(ln(s, q, shift) * s.d(-1.0));
        let in_tail = quantile_tail(s, r);
        z = if shift == 0 {
            s.select_wide(tail, in_tail, z)
        } else {
            in_tail
        };
    }
    z
}

/// |z| from r = √(−ln q).
#[inline(always)]
fn quantile_tail<S: Simd>(s: S, r: S::D) -> S::D {
    const NEAR: [[f64; 8]; 2] = [
        [
            7.745_450_142_783_414_076_40e-4,
            2.272_384_498_926_918_458_33e-2,
            2.417_807_251_774_506_117_70e-1,
            1.270_458_252_452_368_382_58,
            3.647_848_324_763_204_605_04,
            5.769_497_221_460_691_405_50,
            4.630_337_846_156_545_295_90,
            1.423_437_110_749_683_577_34,
        ],
        [
            1.050_750_071_644_416_843_24e-9,
            5.475_938_084_995_344_946_00e-4,
            1.519_866_656_361_645_719_66e-2,
            1.481_039_764_274_800_745_90e-1,
            6.897_673_349_851_000_045_50e-1,
            1.676_384_830_183_803_849_40,
            2.053_191_626_637_758_821_87,
            1.0,
        ],
    ];
    const FAR: [[f64; 8]; 2] = [
        [
            2.010_334_399_292_288_132_65e-7,
            2.711_555_568_743_487_578_15e-5,
            1.242_660_947_388_078_438_60e-3,
            2.653_218_952_657_612_309_30e-2,
            2.965_605_718_285_048_912_30e-1,
            1.784_826_539_917_291_335_80,
            5.463_784_911_164_114_369_90,
            6.657_904_643_501_103_777_20,
        ],
        [
            2.044_263_103_389_939_785_64e-15,
            1.421_511_758_316_445_888_70e-7,
            1.846_318_317_510_054_681_80e-5,
            7.868_691_311_456_132_591_00e-4,
            1.487_536_129_085_061_485_25e-2,
            1.369_298_809_227_358_053_10e-1,
            5.998_322_065_558_879_376_90e-1,
            1.0,
        ],
    ];
    let near = ratio(s, r - s.d(1.6), NEAR);
    let far = s.less_wide(s.d(5.0), r);
    if s.any_wide(far) {
        s.select_wide(far, ratio(s, r - s.d(5.0), FAR), near)
    } else {
        near
    }
}

/// The first polynomial over the second.
#[inline(always)]
fn ratio<S: Simd>(s: S, x: S::D, [top, bottom]: [[f64; 8]; 2]) -> S::D {
    horner(s, x, top) / horner(s, x, bottom)
}
