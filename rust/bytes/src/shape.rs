//! How many elements and bytes a shape needs, in arithmetic that cannot overflow.

use crate::dtype::Dtype;

/// The most dimensions a tensor may have: NumPy's limit.
pub const MAX_RANK: usize = 64;

/// Number of elements of a shape.
///
/// `None` when the product of the dimensions *that are not zero* exceeds `isize::MAX`. A shape such
/// as `[2⁶², 0]` holds no elements, yet array libraries that multiply its strides out overflow, so it
/// is refused as well.
pub fn elements(shape: &[usize]) -> Option<usize> {
    let extent = extent(shape, 1)?;
    Some(if shape.contains(&0) { 0 } else { extent })
}

/// Bytes in memory of a tensor of this shape and dtype; `None` under the rule of [`elements`], with
/// the size of an element multiplied in.
pub fn checked_len(shape: &[usize], dtype: Dtype) -> Option<usize> {
    let extent = extent(shape, dtype.size())?;
    Some(if shape.contains(&0) { 0 } else { extent })
}

/// The product of the dimensions that are not zero, times the item size, within `isize::MAX`.
fn extent(shape: &[usize], item: usize) -> Option<usize> {
    shape
        .iter()
        .filter(|&&dim| dim != 0)
        .try_fold(item, |product, &dim| product.checked_mul(dim))
        .filter(|&bytes| isize::try_from(bytes).is_ok())
}
