//! Element counts and byte lengths that overflow are refused.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::shape::{checked_len, elements};

#[test]
fn a_scalar_has_one_element() {
    assert_eq!(elements(&[]), Some(1));
    assert_eq!(checked_len(&[], Dtype::F64), Some(8));
}

#[test]
fn a_zero_dimension_makes_the_shape_empty() {
    assert_eq!(elements(&[3, 0, 5]), Some(0));
    assert_eq!(checked_len(&[3, 0, 5], Dtype::F32), Some(0));
}

#[test]
fn the_dimensions_that_are_not_zero_must_not_overflow_either() {
    assert_eq!(checked_len(&[1 << 62, 0], Dtype::F32), None);
    assert_eq!(checked_len(&[0, 1 << 40, 1 << 40], Dtype::U8), None);
    assert_eq!(elements(&[0, 1 << 40, 1 << 40]), None);
}

#[test]
fn lengths_end_at_the_largest_signed_number() {
    assert_eq!(
        checked_len(&[isize::MAX as usize], Dtype::U8),
        Some(isize::MAX as usize)
    );
    assert_eq!(checked_len(&[isize::MAX as usize + 1], Dtype::U8), None);
    assert_eq!(checked_len(&[usize::MAX, 2], Dtype::U8), None);
}

#[test]
fn packed_elements_count_a_byte_each() {
    assert_eq!(checked_len(&[6], Dtype::F4), Some(6));
}
