//! Where codes and scales lie.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::quant::{Code, Plan, Scheme};

use super::support::{case, dequantised, numbers, quantised};

fn shapes(code: Code, block: Option<&[usize]>, shape: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let scheme = Scheme::new(code, block.map(<[usize]>::to_vec), Dtype::F32).unwrap();
    let plan = Plan::new(&scheme, shape, Dtype::F32).unwrap();
    (plan.values_shape().to_vec(), plan.scales_shape().to_vec())
}

#[test]
fn the_shapes_of_values_and_scales_follow_from_shape_and_block() {
    type Layout<'a> = (
        Code,
        Option<&'a [usize]>,
        &'a [usize],
        &'a [usize],
        &'a [usize],
    );
    let table: [Layout<'_>; 9] = [
        (Code::Q8S, None, &[4, 6], &[4, 6], &[]),
        (Code::Q8S, Some(&[3]), &[4, 6], &[4, 6], &[4, 2]),
        (Code::Q8S, Some(&[4, 1]), &[4, 6], &[4, 6], &[1, 6]),
        (Code::Q8S, Some(&[2, 3]), &[5, 4, 6], &[5, 4, 6], &[5, 2, 2]),
        (Code::Q4S, None, &[4, 7], &[4, 4], &[]),
        (Code::Q4S, Some(&[7]), &[4, 7], &[4, 4], &[4, 1]),
        (Code::Q4S, None, &[], &[1], &[]),
        (Code::Nf4, Some(&[64]), &[5, 13], &[33], &[2]),
        (Code::Nf4, Some(&[32]), &[2, 32], &[32], &[2]),
    ];
    for (code, block, shape, values, scales) in table {
        assert_eq!(
            shapes(code, block, shape),
            (values.to_vec(), scales.to_vec()),
            "{shape:?}"
        );
    }
}

#[test]
fn of_two_integers_of_four_bits_the_first_is_in_the_low_half() {
    let case = case(Code::Q4S, None, &[4], &[1.0, 7.0, -1.0, -7.0]);
    assert_eq!(quantised(&case, 1).unwrap().0, [0x71, 0x9F]);
}

#[test]
fn each_row_of_odd_length_ends_with_half_a_byte_of_zero() {
    let case = case(Code::Q4S, None, &[2, 3], &[1.0, 2.0, 3.0, -1.0, -2.0, 7.0]);
    let made = quantised(&case, 1).unwrap();
    assert_eq!(made.0, [0x21, 0x03, 0xEF, 0x07]);
    let meant = numbers(Dtype::F32, &dequantised(&case, &made, Dtype::F32, 1));
    assert_eq!(meant, [1.0, 2.0, 3.0, -1.0, -2.0, 7.0]);
}

#[test]
fn scales_are_in_the_order_of_the_blocks() {
    let elements: Vec<f32> = (0..16)
        .map(|at| [1.0, 2.0, 3.0, 4.0][at / 8 * 2 + at % 4 / 2])
        .collect();
    let case = case(Code::Q8S, Some(&[2, 2]), &[4, 4], &elements);
    let (_, scales) = quantised(&case, 1).unwrap();
    let scales: Vec<f64> = numbers(Dtype::F32, &scales)
        .iter()
        .map(|scale| scale * 127.0)
        .collect();
    for (scale, expected) in scales.iter().zip([1.0, 2.0, 3.0, 4.0]) {
        assert!((scale - expected).abs() < 1e-6);
    }
}
