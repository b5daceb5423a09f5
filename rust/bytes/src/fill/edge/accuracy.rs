//! Tests of the laws against their formulas in higher precision.
#![allow(
    clippy::excessive_precision,
    reason = "reference values as they were computed"
)]

use super::{INTERVALS, Narrow, STANDARD, STANDARD_WIDE, Wide, cuts};
use crate::fill::law::{Bounds, Inverse, Uniform, Within};
use crate::fill::simd::{Isa, Simd, Task};
use crate::fill::special::upper_tail;
use crate::fill::{math32, math64, philox};

/// The value as defined, in `f64` throughout.
fn reference([word0, word1]: [u32; 2]) -> (f64, [f64; 2]) {
    let u = f64::from((word0 | 1).cast_signed()) / 2_f64.powi(31);
    let r = (-2.0 * u.abs().ln()).sqrt();
    let angle = f64::from(word1.cast_signed()) * std::f64::consts::FRAC_PI_2 / 2_f64.powi(32);
    let (sine, cosine) = angle.sin_cos();
    let (x, y) = if word1 & 1 == 1 {
        (sine, cosine)
    } else {
        (cosine, sine)
    };
    (r, [r.copysign(u) * x, r.copysign(u) * y])
}

/// Words without a pattern.
fn words(count: usize) -> Vec<[u32; 4]> {
    (0..count as u32)
        .map(|number| philox([number, 0, 0, 0], [1, 2]))
        .collect()
}

#[test]
fn normals_in_f32_are_within_8_units_in_the_last_place_of_the_formula() {
    let words = words(1 << 18);
    let law = STANDARD;
    let numbers = Isa::detect().run(Narrow { law, words: &words });
    for (words, numbers) in words.iter().zip(numbers) {
        for pair in [0, 2] {
            let (r, exact) = reference([words[pair], words[pair + 1]]);
            for (z, exact) in numbers[pair..pair + 2].iter().zip(exact) {
                let error = (f64::from(*z) - exact).abs();
                let unit = f64::from(z.abs().next_up() - z.abs());
                let near = error <= 8.0 * unit || r <= 0.3 || z.abs() <= 0.05;
                assert!(near && error < 5e-5, "{z} instead of {exact}");
            }
        }
    }
}

/// Mean squares of the difference between the widths of words would hide the tails; so each pair is compared.
#[test]
fn draws_in_f64_are_those_in_f32_up_to_rounding() {
    let narrow_words = words(1 << 16);
    let wide_words: Vec<[u64; 4]> = narrow_words
        .iter()
        .zip(words(1 << 17).into_iter().rev())
        .map(|(high, low)| [0, 1, 2, 3].map(|w| u64::from(high[w]) << 32 | u64::from(low[w])))
        .collect();
    let isa = Isa::detect();
    let mut pairs = vec![(
        isa.run(Narrow {
            law: STANDARD,
            words: &narrow_words,
        }),
        isa.run(Wide {
            law: STANDARD_WIDE,
            words: &wide_words,
        }),
        5e-5,
    )];
    for (cut, [low, high]) in cuts().into_iter().zip(INTERVALS) {
        let narrow = Bounds {
            low: low as f32,
            high: high as f32,
        };
        let within = Within(Inverse(cut.narrowed(), STANDARD), narrow);
        let wide = Within(Inverse(cut, STANDARD_WIDE), Bounds { low, high });
        pairs.push((
            isa.run(Narrow {
                law: within,
                words: &narrow_words,
            }),
            isa.run(Wide {
                law: wide,
                words: &wide_words,
            }),
            // The wider word distinguishes quantiles that are the same in `f32`.
            4e-5,
        ));
    }
    let uniform = Uniform {
        low: -1.0,
        step: 2_f32.powi(-23),
        top: 1_f32.next_down(),
    };
    let uniform_wide = Uniform {
        low: -1.0,
        step: 2_f64.powi(-52),
        top: 1_f64.next_down(),
    };
    pairs.push((
        isa.run(Narrow {
            law: uniform,
            words: &narrow_words,
        }),
        isa.run(Wide {
            law: uniform_wide,
            words: &wide_words,
        }),
        1.3e-7,
    ));
    for (case, (narrow, wide, tolerance)) in pairs.into_iter().enumerate() {
        let mut worst = 0_f64;
        for (a, b) in narrow.as_flattened().iter().zip(wide.as_flattened()) {
            worst = worst.max((f64::from(*a) - b).abs());
        }
        assert!(worst < tolerance, "case {case}: {worst}");
    }
}

/// Computed with 60 digits.
#[test]
fn normals_in_f64_are_within_4_units_in_the_last_place() {
    let exact = [
        (
            0xf2a74de452e6b438,
            0x6513270e269e0d37,
            -1.7303958963730657,
            -1.2358345566432485,
        ),
        (
            0x0c5c7fd0a6a3a450,
            0xd23f0824128b2f33,
            2.077507281153241,
            -0.5990648393492001,
        ),
        (
            0x1818e811892f902b,
            0x9531985d5d9dc9f8,
            -1.1137706075330267,
            1.4489225995754742,
        ),
        (
            0xe8e25d940ed90475,
            0x36f675cc81e74ef5,
            -1.7459234119837126,
            -0.612195009213481,
        ),
        (
            0x1600a35a099950d8,
            0x6b0d549b6f03675a,
            1.1459390229892281,
            1.4861267759381434,
        ),
        (
            0x3d9c172411e20b8f,
            0x8d116ece1738f7d9,
            0.9208542102439368,
            -0.7838676468023625,
        ),
        (
            0x0f21ddb66cad4a26,
            0x90c192cfd3ac94af,
            -1.3035445624309323,
            1.6034869658003685,
        ),
        (
            0xf28c105d1fb17c23,
            0xa170b33839263059,
            -1.775277689941772,
            1.1636425266491306,
        ),
        (
            0x953f48f1a09f76b5,
            0x0fd630f1f29d0da9,
            -0.0584562671581766,
            -0.5996763770885702,
        ),
        (
            0x95e60af593bd04cf,
            0x0cb1e29c658cda14,
            -0.6107354201372321,
            -0.04766951058199426,
        ),
        (
            0x3898d190f9ebdacc,
            0x8e81973e0becd7b0,
            0.9800944913291475,
            -0.8194908190600071,
        ),
        (
            0x2217beaddbc496cb,
            0x6b4cb2424a23d596,
            1.2866286207004916,
            0.9952274233717064,
        ),
    ];
    let blocks = exact.map(|(a, b, ..)| [a, b, a, b]);
    let numbers = Isa::detect().run(Wide {
        law: STANDARD_WIDE,
        words: &blocks,
    });
    for ((.., x, y), numbers) in exact.into_iter().zip(numbers) {
        for (number, exact) in numbers.into_iter().zip([x, y, x, y]) {
            let unit = f64::abs(exact).next_up() - f64::abs(exact);
            assert!(
                (number - exact).abs() <= 4.0 * unit,
                "{number} instead of {exact}"
            );
        }
    }
}

/// Computed with 40 digits.
#[test]
fn tail_probabilities_are_those_of_the_complementary_error_function() {
    let exact = [
        (-3.0, 0.99865010196836991),
        (-0.25, 0.59870632568292372),
        (0.0, 0.5),
        (0.5, 0.3085375387259869),
        (1.0, 0.15865525393145705),
        (1.49, 0.068112117966725455),
        (1.5, 0.066807201268858066),
        (2.0, 0.022750131948179207),
        (3.0, 0.0013498980316300945),
        (5.0, 2.8665157187919391e-7),
        (8.0, 6.2209605742717841e-16),
        (12.0, 1.776482112077679e-33),
        (30.0, 4.9067139271481871e-198),
        (36.5, 5.5447257130748446e-292),
    ];
    for (z, exact) in exact {
        let found = upper_tail(z);
        let error = ((found - exact) / exact).abs();
        assert!(
            error < 2e-14 * f64::max(1.0, z * z),
            "{z}: {found} instead of {exact}"
        );
    }
    assert_eq!(upper_tail(f64::INFINITY), 0.0);
    assert_eq!(upper_tail(f64::NEG_INFINITY), 1.0);
}

/// |z| of tail probabilities, in both precisions.
struct Quantiles<'a>(&'a [f32]);

impl Task for Quantiles<'_> {
    type Output = Vec<(f32, f64)>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = Vec::new();
        for q in self.0.chunks_exact(16) {
            let mut narrow = [0.0; 16];
            let mut wide = [0.0; 16];
            let mut doubled = [0.0; 16];
            for (to, q) in doubled.iter_mut().zip(q) {
                *to = f64::from(*q);
            }
            let mut lane = 0;
            while lane < 16 {
                let z = if q[0] < math32::CENTRAL_FROM {
                    math32::quantile_tail(s, s.load_f(&q[lane..]), 0)
                } else {
                    math32::quantile_central(s, s.load_f(&q[lane..]))
                };
                s.save_f(z, &mut narrow[lane..]);
                let z = math64::quantile(s, s.load_d(&doubled[lane..]), 0);
                s.save_d(z, &mut wide[lane..]);
                lane += S::LANES;
            }
            out.extend(narrow.into_iter().zip(wide));
        }
        out
    }
}

#[test]
fn normal_quantiles_in_f32_have_an_error_below_2e_6() {
    let central = math32::CENTRAL_FROM;
    let grid = |from: f32, to: f32, count: u32| -> Vec<f32> {
        let (from, to) = (from.to_bits(), to.to_bits());
        (0..count)
            .map(|k| f32::from_bits(from + ((to - from) / count) * k))
            .collect()
    };
    let mut worst = 0_f64;
    for q in [
        grid(central, 0.5, 1 << 16),
        grid(1e-10, central.next_down(), 1 << 16),
    ] {
        for (q, (narrow, wide)) in q.iter().zip(Isa::detect().run(Quantiles(&q))) {
            worst = worst.max((f64::from(narrow) - wide).abs());
            let back = upper_tail(wide);
            assert!((back / f64::from(*q) - 1.0).abs() < 1e-12, "{q}");
        }
    }
    assert!(worst < 2e-6, "{worst}");
}
