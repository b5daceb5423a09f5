//! Packed floats: one byte per element in memory, shared bytes in the file.

use std::collections::BTreeMap;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, Tensor, write};
use proptest::prelude::*;

use crate::support::{Folder, file, open, read};

#[test]
fn the_first_f4_of_a_byte_lies_in_its_low_half() {
    let bytes = file(
        r#"{"t":{"dtype":"F4","shape":[2,2],"data_offsets":[0,2]}}"#,
        &[0x21, 0xF3],
    );
    assert_eq!(read(&open(&bytes).unwrap(), "t"), [1, 2, 3, 15]);
}

#[test]
fn four_f6_fill_a_little_endian_number_of_24_bits() {
    let word: u32 = 1 | 2 << 6 | 3 << 12 | 63 << 18;
    let bytes = file(
        r#"{"t":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}"#,
        &word.to_le_bytes()[..3],
    );
    assert_eq!(read(&open(&bytes).unwrap(), "t"), [1, 2, 3, 63]);
}

#[test]
fn bits_above_the_element_are_dropped_when_packing() {
    let folder = Folder::new();
    let path = folder.at("t.safetensors");
    let tensor = Tensor {
        name: "t",
        dtype: Dtype::F4,
        shape: &[2],
        data: &[0xF1, 0x82],
    };
    write(&path, &BTreeMap::new(), &[tensor]).unwrap();
    assert_eq!(read(&Checkpoint::open(&path).unwrap(), "t"), [1, 2]);
}

/// Lengths below, at and above the pieces in which packing and reading work.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        0_usize..40,
        16_380_usize..16_390,
        1_048_570_usize..1_048_580
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn packed_floats_survive_a_round_trip(groups in lengths(), which in 0..3_usize) {
        let dtype = [Dtype::F4, Dtype::F6E2M3, Dtype::F6E3M2][which];
        let mask = (1_u8 << dtype.stored_bits()) - 1;
        let data: Vec<u8> = crate::support::noise(groups * 4)
            .into_iter()
            .map(|byte| byte & mask)
            .collect();
        let folder = Folder::new();
        let path = folder.at("t.safetensors");
        let tensor = Tensor { name: "t", dtype, shape: &[groups, 4], data: &data };
        write(&path, &BTreeMap::new(), &[tensor]).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        prop_assert_eq!(checkpoint.entries()[0].len, data.len() * dtype.stored_bits() / 8);
        prop_assert!(read(&checkpoint, "t") == data);
    }
}

#[test]
fn large_packed_tensors_are_read_by_several_threads() {
    let data: Vec<u8> = crate::support::noise(20 << 20)
        .iter()
        .map(|b| b & 63)
        .collect();
    let folder = Folder::new();
    let path = folder.at("t.safetensors");
    let tensor = Tensor {
        name: "t",
        dtype: Dtype::F6E3M2,
        shape: &[20 << 20],
        data: &data,
    };
    write(&path, &BTreeMap::new(), &[tensor]).unwrap();
    assert!(read(&Checkpoint::open(&path).unwrap(), "t") == data);
}
