//! Repeated elements.

use lazyparam_bytes::fill::repeat;
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
