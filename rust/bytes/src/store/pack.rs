//! Packed floats: elements of 4 or 6 bits share bytes in a file and have one byte each in memory.
//!
//! Elements follow one another from the lowest bit up, as in PyTorch's `float4_e2m1fn_x2` and the
//! OCP microscaling formats: an `F4` pair has its first element in the low half of the byte, four `F6`
//! fill the bits of a little-endian 24-bit number.

use crate::dtype::Dtype;

/// Elements per group of [`group_bytes`] bytes: the smallest number that fills whole bytes.
const fn group_elements(dtype: Dtype) -> usize {
    if dtype.stored_bits() == 4 { 2 } else { 4 }
}

const fn group_bytes(dtype: Dtype) -> usize {
    group_elements(dtype) * dtype.stored_bits() / 8
}

/// Spreads packed elements to one byte each, the value in its low bits. `elements` says how many by
/// its length, which must fill whole groups.
pub(crate) fn unpack(dtype: Dtype, packed: &[u8], elements: &mut [u8]) {
    let bits = dtype.stored_bits();
    let mask = (1 << bits) - 1;
    let groups = packed.chunks_exact(group_bytes(dtype));
    for (group, out) in groups.zip(elements.chunks_exact_mut(group_elements(dtype))) {
        let mut word = group
            .iter()
            .rev()
            .fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        for element in out {
            *element = (word & mask) as u8;
            word >>= bits;
        }
    }
}

/// Packs elements of one byte each; bits above their width are dropped.
pub(crate) fn pack(dtype: Dtype, elements: &[u8], packed: &mut [u8]) {
    let bits = dtype.stored_bits();
    let mask = (1 << bits) - 1;
    let groups = elements.chunks_exact(group_elements(dtype));
    for (group, out) in groups.zip(packed.chunks_exact_mut(group_bytes(dtype))) {
        let mut word = group.iter().rev().fold(0_u32, |word, &element| {
            word << bits | (u32::from(element) & mask)
        });
        for byte in out {
            *byte = (word & 0xFF) as u8;
            word >>= 8;
        }
    }
}
