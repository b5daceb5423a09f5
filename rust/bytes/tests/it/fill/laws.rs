//! The distributions, on fixed seeds: these tests have one outcome.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::Init;

use super::support::{f32s, key, standard_normal, u16s, values, whole};

const MILLION: usize = 1 << 20;

/// P(Z < z).
fn phi(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// √n times the largest distance between the empirical distribution function and `cdf`; above 2.2 with
/// probability 1e-4.
pub(crate) fn kolmogorov(mut sample: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let distance = sample
        .iter()
        .enumerate()
        .map(|(number, &x)| {
            let p = cdf(x);
            (p - number as f64 / n).max((number + 1) as f64 / n - p)
        })
        .fold(0.0, f64::max);
    distance * n.sqrt()
}

fn moments(sample: &[f64]) -> [f64; 4] {
    let n = sample.len() as f64;
    [1, 2, 3, 4].map(|power| sample.iter().map(|x| x.powi(power)).sum::<f64>() / n)
}

/// pytorch/pytorch#91944: not normal.
#[test]
fn normal_draws_have_the_moments_and_the_distribution_of_a_normal_law() {
    for seed in 0..8 {
        let sample = values(
            &whole(&standard_normal(), &key(seed), &[MILLION], Dtype::F32),
            Dtype::F32,
        );
        let root = (MILLION as f64).sqrt();
        // Standard deviations of the moments of a normal law: 1, √2, √15, √96.
        let [mean, variance, third, fourth] = moments(&sample);
        for (found, expected, deviation) in [
            (mean, 0.0, 1.0),
            (variance, 1.0, 2_f64.sqrt()),
            (third, 0.0, 15_f64.sqrt()),
            (fourth, 3.0, 96_f64.sqrt()),
        ] {
            assert!(
                (found - expected).abs() * root / deviation < 4.5,
                "{seed}: {found}"
            );
        }
        assert!(kolmogorov(sample, phi) < 2.2, "{seed}");
    }
}

#[test]
fn neighbours_are_uncorrelated_at_every_distance_that_the_layout_of_blocks_suggests() {
    let sample = values(
        &whole(&standard_normal(), &key(9), &[MILLION], Dtype::F32),
        Dtype::F32,
    );
    let next = values(
        &whole(&standard_normal(), &key(10), &[MILLION], Dtype::F32),
        Dtype::F32,
    );
    let child = values(
        &whole(&standard_normal(), &key(9).child(0), &[MILLION], Dtype::F32),
        Dtype::F32,
    );
    let correlation = |a: &[f64], b: &[f64]| {
        let n = a.len().min(b.len());
        a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / (n as f64).sqrt()
    };
    let squares = |sample: &[f64]| -> Vec<f64> {
        sample
            .iter()
            .map(|x| (x * x - 1.0) / 2_f64.sqrt())
            .collect()
    };
    for lag in [1, 2, 8, 15, 16, 17, 32, 48, 64, 128] {
        assert!(correlation(&sample, &sample[lag..]).abs() < 4.5, "{lag}");
        assert!(
            correlation(&squares(&sample), &squares(&sample[lag..])).abs() < 4.5,
            "{lag}"
        );
    }
    for other in [next, child] {
        assert!(correlation(&sample, &other).abs() < 4.5);
        assert!(correlation(&squares(&sample), &squares(&other)).abs() < 4.5);
    }
}

/// The two halves of a pair are sixteen elements apart.
#[test]
fn pairs_have_an_exponential_squared_radius_and_a_uniform_angle() {
    let sample = values(
        &whole(&standard_normal(), &key(16), &[MILLION], Dtype::F32),
        Dtype::F32,
    );
    let pairs = || {
        let (groups, _) = sample.as_chunks::<32>();
        groups
            .iter()
            .flat_map(|half| (0..16).map(|lane| (half[lane], half[lane + 16])))
    };
    let radii = pairs().map(|(x, y)| x * x + y * y).collect();
    assert!(kolmogorov(radii, |square| 1.0 - (-square / 2.0).exp()) < 2.2);
    let angles = pairs().map(|(x, y)| y.atan2(x)).collect();
    let turn = std::f64::consts::TAU;
    assert!(kolmogorov(angles, |angle| angle / turn + 0.5) < 2.2);
}

#[test]
fn tails_of_normal_draws_are_as_heavy_as_they_should_be() {
    let mut beyond = [0_f64; 2];
    for seed in 20..28 {
        for z in f32s(&whole(
            &standard_normal(),
            &key(seed),
            &[MILLION],
            Dtype::F32,
        )) {
            for (count, limit) in beyond.iter_mut().zip([3.0, 4.0]) {
                *count += f64::from(u8::from(z.abs() > limit));
            }
        }
    }
    for (found, limit) in beyond.into_iter().zip([3.0, 4.0]) {
        let expected = 2.0 * phi(-limit) * 8.0 * MILLION as f64;
        assert!(
            (found - expected).abs() < 4.5 * expected.sqrt(),
            "{found} of {expected}"
        );
    }
}

/// numpy/numpy#17478: a wasted bit.
#[test]
fn uniform_draws_are_uniform_and_use_24_bits() {
    let init = Init::uniform(0.0, 1.0).unwrap();
    for dtype in [Dtype::F32, Dtype::F64] {
        let sample = values(&whole(&init, &key(11), &[MILLION], dtype), dtype);
        assert!(kolmogorov(sample.clone(), |x| x.clamp(0.0, 1.0)) < 2.2);
        let mut distinct: Vec<u64> = sample.iter().map(|x| x.to_bits()).collect();
        distinct.sort_unstable();
        distinct.dedup();
        // Of 2²⁴ values, 2²⁰ draws repeat about 2¹⁵; of 2⁵³ none.
        assert!(distinct.len() > MILLION - (1 << 16), "{}", distinct.len());
    }
}

/// pytorch/pytorch#96947, #197079, #2740, tinygrad/tinygrad#3654, JuliaMath/BFloat16s.jl#71: the
/// excluded bound, after rounding.
#[test]
fn a_uniform_draw_never_reaches_its_upper_bound_in_any_dtype() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64] {
        for (low, high) in [
            (0.0, 1.0),
            (-0.030_618_6, 0.030_618_6),
            (1.0, 1.015_625),
            (-2.0, -1.0),
        ] {
            let init = Init::uniform(low, high).unwrap();
            let sample = values(&whole(&init, &key(12), &[1 << 18], dtype), dtype);
            let max = sample.iter().copied().fold(f64::MIN, f64::max);
            let min = sample.iter().copied().fold(f64::MAX, f64::min);
            assert!(max < high, "{dtype:?} {low} {high}: {max}");
            // The lower bound is rounded to the dtype, like everything else.
            let slack = if dtype == Dtype::F64 {
                0.0
            } else {
                low.abs() * 2_f64.powi(-8)
            };
            assert!(min >= low - slack, "{dtype:?} {low} {high}: {min}");
        }
    }
}

/// jax-ml/jax#27002: values that depend on the precision.
#[test]
fn narrow_dtypes_hold_the_rounded_f32_values_and_not_a_coarser_draw() {
    let inits = [
        standard_normal(),
        Init::trunc_normal(0.0, 1.0, -2.0, 2.0).unwrap(),
        Init::uniform(-1.0, 1.0).unwrap(),
    ];
    for init in inits {
        let wide = f32s(&whole(&init, &key(13), &[1 << 18], Dtype::F32));
        let brain = u16s(&whole(&init, &key(13), &[1 << 18], Dtype::BF16));
        let half = values(&whole(&init, &key(13), &[1 << 18], Dtype::F16), Dtype::F16);
        for ((wide, brain), half) in wide.iter().zip(&brain).zip(half) {
            let bits = wide.to_bits();
            let rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16;
            let at_the_end = *wide > 0.998 && init.name() == "uniform";
            assert!(*brain == rounded || at_the_end, "{wide} {brain:x}");
            let error = (half - f64::from(*wide)).abs();
            assert!(error <= f64::from(wide.abs()) / 2048.0 + 2_f64.powi(-25) || at_the_end);
        }
    }
    let mut brain = u16s(&whole(
        &standard_normal(),
        &key(14),
        &[1 << 22],
        Dtype::BF16,
    ));
    let largest = values(
        &whole(&standard_normal(), &key(14), &[1 << 22], Dtype::BF16),
        Dtype::BF16,
    )
    .into_iter()
    .fold(0.0, |max: f64, x| max.max(x.abs()));
    brain.sort_unstable();
    brain.dedup();
    assert!(brain.len() >= 4000, "{}", brain.len());
    assert!(largest > 4.5);
}

#[test]
fn subnormal_halves_are_rounded_like_all_others() {
    let init = Init::normal(0.0, 1e-5).unwrap();
    let wide = f32s(&whole(&init, &key(15), &[1 << 16], Dtype::F32));
    let half = values(&whole(&init, &key(15), &[1 << 16], Dtype::F16), Dtype::F16);
    for (wide, half) in wide.into_iter().zip(half) {
        let steps = (f64::from(wide) * 2_f64.powi(24)).round_ties_even();
        assert_eq!(half, steps * 2_f64.powi(-24));
    }
}
