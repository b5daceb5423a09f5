//! NF4 where it is bitsandbytes' own: the table, ties, short blocks, tiny magnitudes.

use lazyparam_bytes::quant::{Code, NF4};

use super::naive::{Case, TABLE};
use super::support::{case, quantised};

fn nf4(numbers: &[f32]) -> Case {
    case(Code::Nf4, Some(&[32]), &[numbers.len()], numbers)
}

/// A block of these numbers and a one.
fn block(numbers: &[f32]) -> Vec<f32> {
    let mut block = vec![1.0; 32];
    block[..numbers.len()].copy_from_slice(numbers);
    block
}

#[test]
fn the_table_is_that_of_bitsandbytes_bit_for_bit() {
    assert_eq!(NF4.map(f32::to_bits), TABLE);
}

#[test]
fn every_value_of_the_table_becomes_its_own_code_high_half_first() {
    let (values, _) = quantised(&nf4(&block(&NF4)), 1).unwrap();
    assert_eq!(
        values[..8],
        [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]
    );
    assert_eq!(values[8..], [0xFF; 8]);
}

#[test]
fn a_number_halfway_between_two_values_gets_the_lower_code() {
    let ties: Vec<f32> = NF4
        .windows(2)
        .map(|pair| (pair[0] + pair[1]) / 2.0)
        .collect();
    let (values, _) = quantised(&nf4(&block(&ties)), 1).unwrap();
    assert_eq!(
        values[..8],
        [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]
    );
}

#[test]
fn half_a_byte_that_is_left_over_holds_the_code_of_zero() {
    let (values, scales) = quantised(&nf4(&[1.0, -1.0, 1.0]), 1).unwrap();
    assert_eq!(values, [0xF0, 0xF7]);
    assert_eq!(scales, 1.0_f32.to_le_bytes());
}

#[test]
fn a_block_of_zeros_has_the_scale_zero_and_a_short_one_the_floor() {
    let (values, scales) = quantised(&nf4(&[0.0; 40]), 1).unwrap();
    assert_eq!(values, [0x77; 20]);
    assert_eq!(
        scales,
        [0.0_f32.to_le_bytes(), 1e-38_f32.to_le_bytes()].concat()
    );
}

#[test]
fn magnitudes_below_the_floor_keep_their_scale_and_lose_their_digits() {
    let mut numbers = vec![0.0; 32];
    numbers[..2].copy_from_slice(&[5e-39, -1e-42]);
    let (values, scales) = quantised(&nf4(&numbers), 1).unwrap();
    assert_eq!(values[0], 0xC7);
    assert_eq!(scales, 5e-39_f32.to_le_bytes());
}
