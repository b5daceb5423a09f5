//! Numbers at the edges: ties, the largest, the smallest, none at all.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::quant::Code;

use super::naive::Case;
use super::support::{FLOATS, SCALES, case, dequantised, numbers, quantised};

fn codes(case: &Case) -> Vec<i8> {
    let (values, _) = quantised(case, 1).unwrap();
    values.into_iter().map(|value| value as i8).collect()
}

fn scale(case: &Case) -> f32 {
    let (_, scales) = quantised(case, 1).unwrap();
    f32::from_le_bytes(scales[..4].try_into().unwrap())
}

/// numpy, torch and jax round ties to even: 0.5, 1.5 and 2.5 would become 0, 2 and 2.
#[test]
fn ties_are_rounded_away_from_zero() {
    let numbers = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5];
    let case = case(Code::Q8S, None, &[8], &numbers);
    assert_eq!(codes(&case), [127, 1, 2, 3, -1, -2, -3, 127]);
    let below = numbers.map(|number: f32| {
        if number == 127.0 {
            number
        } else {
            number * (1.0 - 6e-8)
        }
    });
    let case = super::support::case(Code::Q8S, None, &[8], &below);
    assert_eq!(codes(&case), [127, 0, 1, 2, 0, -1, -2, 126]);
}

#[test]
fn the_largest_magnitude_becomes_the_limit_on_either_side_and_never_more() {
    for most in [
        1.0_f32,
        3.3,
        1e-30,
        1e30,
        f32::MAX / 1.01,
        f32::MIN_POSITIVE * 127.0,
        0.1,
        7e-38 * 127.0,
    ] {
        let case = case(Code::Q8S, None, &[3], &[most, -most, most.next_down()]);
        assert_eq!(codes(&case), [127, -127, 127], "{most}");
        let meant = dequantised(&case, &quantised(&case, 1).unwrap(), Dtype::F32, 1);
        assert!(
            numbers(Dtype::F32, &meant)
                .iter()
                .all(|number| number.is_finite())
        );
    }
}

/// A scale is rounded, here up, so the limit times the scale may be more than there is.
#[test]
fn the_largest_number_that_there_is_may_come_back_as_infinity() {
    let case = case(Code::Q8S, None, &[1], &[f32::MAX]);
    assert_eq!(codes(&case), [127]);
    let meant = dequantised(&case, &quantised(&case, 1).unwrap(), Dtype::F32, 1);
    assert_eq!(numbers(Dtype::F32, &meant), [f64::INFINITY]);
}

#[test]
fn a_block_of_zeros_has_codes_of_zero_and_a_scale_that_can_be_divided_by() {
    for dtype in FLOATS {
        for scale in SCALES {
            for block in [None, Some(vec![4])] {
                for code in [Code::Q8S, Code::Q4S] {
                    let case = Case {
                        dtype,
                        scale,
                        block: block.clone(),
                        bytes: vec![0; 8 * dtype.size()],
                        ..case(code, None, &[8], &[])
                    };
                    let made = quantised(&case, 1).unwrap();
                    assert!(made.0.iter().all(|&value| value == 0));
                    let scales = numbers(scale, &made.1);
                    assert!(
                        scales
                            .iter()
                            .all(|&scale| scale >= f64::from(f32::MIN_POSITIVE))
                    );
                    let meant = dequantised(&case, &made, Dtype::F32, 1);
                    assert!(meant.iter().all(|&byte| byte == 0));
                }
            }
        }
    }
    let negative = case(Code::Q8S, None, &[2], &[-0.0, -0.0]);
    assert_eq!(codes(&negative), [0, 0]);
}

#[test]
fn a_subnormal_scale_becomes_the_smallest_normal_number() {
    let case = case(Code::Q8S, None, &[2], &[1e-42, f32::MIN_POSITIVE * 2.4]);
    assert_eq!(scale(&case), f32::MIN_POSITIVE);
    assert_eq!(codes(&case), [0, 2]);
    let tiny = super::support::case(Code::Q4S, None, &[2], &[1e-45, -1e-45]);
    assert_eq!(scale(&tiny), f32::MIN_POSITIVE);
    assert_eq!(codes(&tiny), [0]);
}

#[test]
fn empty_tensors_and_single_numbers_have_a_layout_too() {
    let empty = case(Code::Q8S, None, &[0, 4], &[]);
    assert_eq!(scale(&empty), f32::MIN_POSITIVE);
    assert!(codes(&empty).is_empty());
    let blocks = case(Code::Q4S, Some(&[2]), &[0, 4], &[]);
    assert_eq!(quantised(&blocks, 1).unwrap(), (vec![], vec![]));
    let none = case(Code::Nf4, Some(&[64]), &[0], &[]);
    assert_eq!(quantised(&none, 1).unwrap(), (vec![], vec![]));
    for code in [Code::Q8S, Code::Q4S] {
        let scalar = case(code, None, &[], &[-3.5]);
        let made = quantised(&scalar, 1).unwrap();
        assert_eq!(made.0.len(), 1);
        let meant = numbers(Dtype::F32, &dequantised(&scalar, &made, Dtype::F32, 1));
        assert!((meant[0] + 3.5).abs() < 1e-6);
    }
}

#[test]
fn doubles_are_rounded_to_singles_before_anything_else() {
    // As a double the first would be nearer to 1; as a single it is a tie.
    let doubles = [0.499_999_999_9_f64, 127.0];
    let case = Case {
        dtype: Dtype::F64,
        bytes: doubles
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect(),
        ..case(Code::Q8S, None, &[2], &[])
    };
    assert_eq!(codes(&case), [1, 127]);
}
