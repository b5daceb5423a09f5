//! The specification once more, one element at a time and in plain Rust, as a check on the vectors.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Id, Init, Stream, philox};

use super::support::{f32s, f64s, golden_key, part, u16s};
use lazyparam_bytes::fill::Region;

/// The block that element `i` is drawn from, and which of its words is the element's.
fn block(Id([k0, k1, c2, c3]): Id, i: u64) -> ([u32; 4], usize) {
    let (group, j) = (i / 64, i % 64);
    let number = 16 * group + j % 16;
    let counter = [number as u32, (number >> 32) as u32, c2, c3];
    (philox(counter, [k0, k1]), (j / 16) as usize)
}

fn low_half(Id([k0, k1, c2, c3]): Id) -> Id {
    Id([k0, k1, c2, c3 ^ 0x8000_0000])
}

fn normal(id: Id, i: u64, mean: f32, std: f32) -> f32 {
    let (words, w) = block(id, i);
    let (w0, w1) = (words[w & !1], words[w | 1]);
    let s = (w0 | 1).cast_signed() as f32;
    let a = s.abs();
    let bits = a.to_bits().cast_signed();
    let e = (bits - 0x3f35_04f3) >> 23;
    let m = f32::from_bits((bits - (e << 23)).cast_unsigned());
    let g = m - 1.0;
    let z = g * g;
    let mut p = f32::from_bits(0x3db6_a2dd);
    for c in [
        0xbe12_f228,
        0x3e18_571e,
        0xbe29_a1d2,
        0x3e4c_7217,
        0xbe80_024a,
        0x3eaa_ab5b,
    ] {
        p = p * g + f32::from_bits(c);
    }
    let ln = (e - 31) as f32 * f32::from_bits(0x3f31_7218) + (g + (z * -0.5 + (p * g) * z));
    let r = (-2.0 * ln).max(0.0).sqrt().copysign(s) * std;
    let t = w1.cast_signed() as f32 * f32::from_bits(0x2fc9_0fdb);
    let y = t * t;
    let [s2, s1, s0] = [0xb94c_a759, 0x3c08_83b0, 0xbe2a_aaa3].map(f32::from_bits);
    let sine = (((s2 * y + s1) * y + s0) * y) * t + t;
    let [c2, c1, c0] = [0x37cd_012c, 0xbab6_0646, 0x3d2a_aaa5].map(f32::from_bits);
    let cosine = (((c2 * y + c1) * y + c0) * y - 0.5) * y + 1.0;
    let even = w & 1 == 0;
    let x = if even == (w1 & 1 == 1) { sine } else { cosine };
    r * x + mean
}

const STARTS: [usize; 4] = [0, 17, (1 << 36) - 40, (1 << 40) + 5];
const LEN: usize = 200;

fn drawn(init: &Init, start: usize, dtype: Dtype) -> Vec<u8> {
    let region = Region::new([start], [LEN]);
    part(init, &golden_key(), &[1 << 41], dtype, &region)
}

#[test]
fn normal_draws_are_those_of_the_specification() {
    let id = golden_key().id(Stream::Values);
    let init = Init::normal(0.25, 0.02).unwrap();
    for start in STARTS {
        let found = f32s(&drawn(&init, start, Dtype::F32));
        let brain = u16s(&drawn(&init, start, Dtype::BF16));
        for (number, (found, brain)) in found.into_iter().zip(brain).enumerate() {
            let expected = normal(id, (start + number) as u64, 0.25, 0.02);
            assert_eq!(found.to_bits(), expected.to_bits());
            let bits = expected.to_bits();
            assert_eq!(brain, ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16);
        }
    }
}

#[test]
fn uniform_draws_are_those_of_the_specification() {
    let id = golden_key().id(Stream::Values);
    let (low, high) = (-0.3, 0.7);
    let init = Init::uniform(low, high).unwrap();
    for start in STARTS {
        let narrow = f32s(&drawn(&init, start, Dtype::F32));
        let wide = f64s(&drawn(&init, start, Dtype::F64));
        for (number, (narrow, wide)) in narrow.into_iter().zip(wide).enumerate() {
            let i = (start + number) as u64;
            let (words, w) = block(id, i);
            let u = (words[w] >> 8) as f32 * 2_f32.powi(-24);
            let x = u * (high - low) as f32 + low as f32;
            let top = (high as f32).next_down();
            assert_eq!(narrow.to_bits(), x.min(top).to_bits());
            let (lows, _) = block(low_half(id), i);
            let word = u64::from(words[w]) << 32 | u64::from(lows[w]);
            let u = (word >> 11) as f64 * 2_f64.powi(-53);
            let x = u * (high - low) + low;
            assert_eq!(wide.to_bits(), x.min(high.next_down()).to_bits());
        }
    }
}

/// The quantile within ±2 standard deviations.
fn central(q: f32) -> f32 {
    let p = q - q * q;
    let top = (((36539.594 * p + 98763.67) * p + 24918.736) * p + 1070.1937) * p + 6.230_244_6;
    let bottom = (((42435.55 * p + 45688.12) * p + 7427.658) * p + 233.025_48) * p + 1.0;
    (0.5 - q) * (top / bottom)
}

#[test]
fn truncated_draws_are_those_of_the_specification() {
    let id = golden_key().id(Stream::Values);
    let init = Init::trunc_normal(0.0, 1.0, -2.0, 2.0).unwrap();
    // P(Z > 2), and what is left between the bounds.
    let (tail, mass) = (0.022_750_132_f32, 0.954_499_7_f32);
    for start in STARTS {
        let found = f32s(&drawn(&init, start, Dtype::F32));
        for (number, found) in found.into_iter().enumerate() {
            let (words, w) = block(id, (start + number) as u64);
            let number = words[w] >> 1;
            let part = |number: u32| number as f32 * 2_f32.powi(-31) + 2_f32.powi(-32);
            let (k, complement) = (part(number), part(0x7fff_ffff - number));
            let z = if k < 0.5 {
                -central(k * mass + tail)
            } else {
                central(complement * mass + tail)
            };
            assert_eq!(found.to_bits(), z.clamp(-2.0, 2.0).to_bits());
        }
    }
}
