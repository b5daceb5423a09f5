//! Repeated elements and identity matrices.

use lazyparam_bytes::fill::{eye, repeat};
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_byte_is_the_pattern_at_its_place(
        len in 0_usize..100_000,
        pattern in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let mut buf = vec![0xAA; len];
        repeat(&mut buf, &pattern);
        for (index, byte) in buf.into_iter().enumerate() {
            prop_assert_eq!(byte, pattern[index % pattern.len()]);
        }
    }
}

#[test]
fn a_pattern_longer_than_the_block_is_repeated_too() {
    let pattern: Vec<u8> = (0..40_000_u32).map(|index| (index % 251) as u8).collect();
    let mut buf = vec![0; 100_000];
    repeat(&mut buf, &pattern);
    assert_eq!(&buf[40_000..80_000], pattern);
    assert_eq!(&buf[80_000..], &pattern[..20_000]);
}

#[test]
fn a_uniform_pattern_fills() {
    let mut buf = [0; 7];
    repeat(&mut buf, &[3, 3]);
    assert_eq!(buf, [3; 7]);
}

#[test]
fn an_empty_pattern_or_buffer_changes_nothing() {
    let mut buf = [1, 2];
    repeat(&mut buf, &[]);
    assert_eq!(buf, [1, 2]);
    repeat(&mut [], &[1, 2]);
}

#[test]
fn eye_puts_ones_on_the_diagonal() {
    for (rows, cols) in [(3, 3), (2, 5), (5, 2), (1, 1), (0, 3), (3, 0)] {
        let mut buf = vec![0; rows * cols * 4];
        eye(&mut buf, rows, cols, &1_f32.to_le_bytes());
        for row in 0..rows {
            for col in 0..cols {
                let at = (row * cols + col) * 4;
                let value = f32::from_le_bytes(buf[at..at + 4].try_into().unwrap());
                assert_eq!(value, if row == col { 1.0 } else { 0.0 });
            }
        }
    }
}

#[test]
fn eye_with_an_empty_one_or_a_short_buffer_does_not_panic() {
    eye(&mut [0; 4], 2, 2, &[]);
    let mut short = [0; 3];
    eye(&mut short, 2, 2, &[1]);
    assert_eq!(short, [1, 0, 0]);
}
