//! Truncated normal draws: their distribution, their bounds, and every dtype.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::Init;

use super::laws::kolmogorov;
use super::support::{key, standard_normal, values, whole};

const INF: f64 = f64::INFINITY;

/// In standard deviations, the mean being 0.
const INTERVALS: [[f64; 2]; 10] = [
    [-2.0, 2.0],
    [-1.0, 3.0],
    [-0.5, 0.25],
    [2.0, 4.0],
    [3.0, INF],
    [8.0, 12.0],
    [-12.0, -8.0],
    [-INF, 1.0],
    [-7.0, 5.0],
    [-100.0, 100.0],
];

/// P(Z > z).
fn upper(z: f64) -> f64 {
    0.5 * libm::erfc(z / std::f64::consts::SQRT_2)
}

/// P(Z < x | low < Z < high), computed in the tail where the interval lies.
fn cdf(x: f64, [low, high]: [f64; 2]) -> f64 {
    let between = |a: f64, b: f64| {
        if a > 0.0 {
            upper(a) - upper(b)
        } else {
            upper(-b) - upper(-a)
        }
    };
    between(low, x.clamp(low, high)) / between(low, high)
}

#[test]
fn every_interval_has_its_conditional_distribution() {
    for interval in INTERVALS {
        let [low, high] = interval;
        let init = Init::trunc_normal(0.0, 1.0, low, high).unwrap();
        for dtype in [Dtype::F32, Dtype::F64] {
            let sample = values(&whole(&init, &key(1), &[1 << 19], dtype), dtype);
            assert!(
                sample.iter().all(|x| (low..=high).contains(x)),
                "{interval:?} {dtype:?}"
            );
            let distance = kolmogorov(sample, |x| cdf(x, interval));
            assert!(distance < 2.2, "{interval:?} {dtype:?}: {distance}");
        }
    }
}

#[test]
fn bounds_are_kept_in_every_dtype_and_by_mean_and_scale() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64] {
        for (mean, std, low, high) in [
            (0.0, 1.0, -2.0, 2.0),
            (0.1, 0.3, -0.2001, 0.7001),
            (5.0, 0.02, 4.999, 5.5),
            (0.0, 0.02, -0.04, 0.04),
            (100.0, 1.0, 99.3, 101.7),
        ] {
            let init = Init::trunc_normal(mean, std, low, high).unwrap();
            let sample = values(&whole(&init, &key(2), &[1 << 16], dtype), dtype);
            assert!(
                sample.iter().all(|x| *x >= low && *x <= high),
                "{dtype:?} {low} {high}"
            );
        }
    }
}

/// pytorch/pytorch#145498, #175046, #155588, #174164, pytorch/torchtitan#2269: a mass on the
/// bounds.
///
/// Rejection and rounding put a pile of values on the bounds in other libraries.
#[test]
fn no_values_pile_up_on_the_bounds() {
    for interval in INTERVALS.into_iter().take(7) {
        let [low, high] = interval;
        let init = Init::trunc_normal(0.0, 1.0, low, high).unwrap();
        let sample = values(&whole(&init, &key(3), &[1 << 22], Dtype::F32), Dtype::F32);
        let on_bounds = sample.iter().filter(|x| **x == low || **x == high).count();
        // A value of `f32` at a bound has a probability of its own, up to 1e-6 where the density is 8.
        assert!(
            on_bounds <= if low.abs() >= 8.0 { 30 } else { 6 },
            "{interval:?}: {on_bounds}"
        );
    }
}

#[test]
fn a_cut_beyond_everything_that_is_drawn_leaves_a_normal_law() {
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F64] {
        let plain = Init::normal(0.0, 0.02).unwrap();
        let cut = Init::trunc_normal(0.0, 0.02, -2.0, 2.0).unwrap();
        let draw = |init| whole(init, &key(4), &[100_000], dtype);
        assert!(draw(&plain) == draw(&cut));
    }
    let outliers = values(
        &whole(&standard_normal(), &key(4), &[1 << 20], Dtype::F32),
        Dtype::F32,
    );
    assert!(outliers.iter().all(|x| x.abs() < 6.6));
}

#[test]
fn intervals_without_a_value_or_too_far_out_are_refused() {
    let refusal = |low, high| {
        Init::trunc_normal(0.0, 1.0, low, high)
            .unwrap_err()
            .to_string()
    };
    for (low, high) in [
        (1.0, 1.0),
        (2.0, 1.0),
        (f64::NAN, 1.0),
        (0.0, f64::NAN),
        (INF, INF),
    ] {
        assert!(
            refusal(low, high).contains("nothing between the bounds"),
            "{low} {high}"
        );
    }
    assert!(refusal(40.0, 50.0).contains("too far from the mean"));
    assert!(refusal(-INF, -37.0).contains("too far from the mean"));
    assert!(Init::trunc_normal(0.0, 1.0, 36.0, INF).is_ok());
    assert!(Init::trunc_normal(0.0, 1.0, -INF, INF).is_ok());
    let narrow = Init::trunc_normal(0.0, 1.0, 1.001, 1.002).unwrap();
    let error = narrow.check(&[4], Dtype::BF16, &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("bfloat16 has no value between the bounds"),
        "{error}"
    );
    assert!(narrow.check(&[4], Dtype::F32, &[]).is_ok());
}
