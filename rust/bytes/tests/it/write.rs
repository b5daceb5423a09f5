//! What a written file holds, as this crate and the reference read it, and what is refused.

use std::collections::BTreeMap;
use std::fs;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, StoreError, Tensor, write};
use safetensors::SafeTensors;

use crate::support::{Folder, noise, read, write_bytes};

fn tensor<'a>(name: &'a str, dtype: Dtype, shape: &'a [usize], data: &'a [u8]) -> Tensor<'a> {
    Tensor {
        name,
        dtype,
        shape,
        data,
    }
}

/// Writes into a fresh folder and returns the bytes of the file.
fn written(tensors: &[Tensor<'_>]) -> Result<Vec<u8>, StoreError> {
    let folder = Folder::new();
    let path = folder.at("m.safetensors");
    let result = write(&path, &BTreeMap::new(), tensors);
    assert_eq!(path.exists(), result.is_ok());
    result.map(|()| fs::read(&path).unwrap())
}

#[track_caller]
fn assert_unsupported(tensors: &[Tensor<'_>], because: &str) {
    match written(tensors) {
        Err(StoreError::Unsupported(text)) => assert!(text.contains(because), "{text}"),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn the_reference_reads_what_is_written() {
    let (a, b, c) = (noise(24), noise(6), noise(3));
    let bytes = written(&[
        tensor("a", Dtype::F32, &[2, 3], &a),
        tensor("b", Dtype::F16, &[3], &b),
        tensor("c\n\"ключ\"", Dtype::Bool, &[3, 1], &c),
        tensor("scalar", Dtype::U8, &[], &[9]),
        tensor("none", Dtype::I64, &[0, 7], &[]),
    ])
    .unwrap();
    let oracle = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(oracle.len(), 5);
    assert_eq!(oracle.tensor("a").unwrap().data(), a);
    assert_eq!(oracle.tensor("a").unwrap().shape(), [2, 3]);
    assert_eq!(oracle.tensor("b").unwrap().data(), b);
    assert_eq!(oracle.tensor("c\n\"ключ\"").unwrap().data(), c);
    assert_eq!(oracle.tensor("scalar").unwrap().data(), [9]);
    assert_eq!(oracle.tensor("none").unwrap().shape(), [0, 7]);
}

#[test]
fn metadata_is_written_and_read_back() {
    let folder = Folder::new();
    let metadata = BTreeMap::from([
        ("format".to_owned(), "np".to_owned()),
        ("quote\"\n".to_owned(), "\u{1F600}".to_owned()),
    ]);
    write(&folder.at("m"), &metadata, &[]).unwrap();
    assert_eq!(
        Checkpoint::open(&folder.at("m")).unwrap().metadata(),
        &metadata
    );
    let bytes = fs::read(folder.at("m")).unwrap();
    let (_, oracle) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(oracle.metadata().as_ref().unwrap()["format"], "np");
}

#[test]
fn a_checkpoint_without_tensors_is_written() {
    let bytes = written(&[]).unwrap();
    assert!(SafeTensors::deserialize(&bytes).unwrap().is_empty());
    assert_eq!(bytes.len(), 64);
}

#[test]
fn the_data_begins_at_a_multiple_of_64_whatever_the_names() {
    for len in 0..130 {
        let name = "n".repeat(len);
        let folder = Folder::new();
        write_bytes(&folder.at("m"), &[(&name, b"x")]);
        let checkpoint = Checkpoint::open(&folder.at("m")).unwrap();
        assert_eq!(checkpoint.entries()[0].begin % 64, 0);
    }
}

#[test]
fn wide_elements_come_first_and_names_in_order() {
    let folder = Folder::new();
    let data = noise(16);
    let of = |name, dtype: Dtype| {
        let shape: &'static [usize] = match dtype.size() {
            1 => &[16],
            2 => &[8],
            4 => &[4],
            _ => &[2],
        };
        tensor(name, dtype, shape, &data)
    };
    let tensors = [
        of("b", Dtype::U8),
        of("d", Dtype::F32),
        of("a", Dtype::F16),
        of("c", Dtype::I32),
        of("z", Dtype::C64),
        of("p", Dtype::F4),
        of("q", Dtype::F6E2M3),
    ];
    write(&folder.at("m"), &BTreeMap::new(), &tensors).unwrap();
    let checkpoint = Checkpoint::open(&folder.at("m")).unwrap();
    let names: Vec<_> = checkpoint
        .entries()
        .iter()
        .map(|entry| &*entry.name)
        .collect();
    assert_eq!(names, ["z", "c", "d", "a", "b", "q", "p"]);
    for entry in checkpoint.entries() {
        assert_eq!(entry.begin % entry.dtype.size() as u64, 0);
    }
}

#[test]
fn the_order_of_the_tensors_given_does_not_change_the_file() {
    let tensors = [
        tensor("a", Dtype::U8, &[1], &[1]),
        tensor("b", Dtype::I16, &[1], &[2, 3]),
        tensor("c", Dtype::U8, &[1], &[4]),
    ];
    let mut reversed = tensors;
    reversed.reverse();
    assert_eq!(written(&tensors).unwrap(), written(&reversed).unwrap());
}

#[test]
fn a_large_tensor_and_many_small_ones_are_written() {
    let folder = Folder::new();
    let large = noise((5 << 20) + 1);
    let names: Vec<String> = (0..5_000).map(|index| format!("t{index}")).collect();
    let mut tensors: Vec<(&str, &[u8])> = names
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), &large[index..index + 100]))
        .collect();
    tensors.push(("large", &large));
    write_bytes(&folder.at("m"), &tensors);
    let checkpoint = Checkpoint::open(&folder.at("m")).unwrap();
    for (name, data) in tensors {
        assert!(read(&checkpoint, name) == data);
    }
}

#[test]
fn the_reserved_name_is_refused() {
    assert_unsupported(&[tensor("__metadata__", Dtype::U8, &[1], &[1])], "reserves");
}

#[test]
fn a_name_twice_is_refused() {
    let tensors = [
        tensor("a", Dtype::U8, &[1], &[1]),
        tensor("a", Dtype::I16, &[1], &[1, 2]),
    ];
    assert_unsupported(&tensors, "\"a\": it appears twice");
}

#[test]
fn complex128_is_refused_by_name() {
    assert_unsupported(&[tensor("z", Dtype::C128, &[1], &[0; 16])], "complex128");
}

#[test]
fn data_of_another_length_than_the_shape_is_refused() {
    for data in [&[0; 3][..], &[0; 5], &[]] {
        assert_unsupported(&[tensor("t", Dtype::F16, &[2], data)], "needs 4 bytes");
    }
}

#[test]
fn an_odd_number_of_f4_is_refused() {
    assert_unsupported(&[tensor("t", Dtype::F4, &[3], &[0; 3])], "whole bytes");
}

#[test]
fn shapes_that_cannot_be_read_back_are_refused() {
    assert_unsupported(&[tensor("t", Dtype::U8, &[1; 65], &[0])], "65 dimensions");
    assert_unsupported(&[tensor("t", Dtype::F32, &[1 << 62, 0], &[])], "address");
}

#[test]
fn names_and_metadata_beyond_the_cap_are_refused() {
    let folder = Folder::new();
    let metadata = BTreeMap::from([("k".to_owned(), "v".repeat(100_000_001))]);
    let error = write(&folder.at("m"), &metadata, &[]).unwrap_err();
    assert!(
        error.to_string().contains("100000000 are allowed"),
        "{error}"
    );
    assert!(folder.names().is_empty());
}
