//! Files that are bytes in memory: the same bytes as on disk, and the same checks.

use std::collections::BTreeMap;
use std::fs;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{StoreError, Tensor, decode, encode, write};

use crate::support::{Folder, file, noise, one_tensor};

#[test]
fn encoding_gives_the_bytes_that_writing_writes_and_decoding_what_went_in() {
    let (a, b) = (noise(24), noise(3));
    let tensors = [
        Tensor {
            name: "b",
            dtype: Dtype::Bool,
            shape: &[3],
            data: &b,
        },
        Tensor {
            name: "a",
            dtype: Dtype::F32,
            shape: &[2, 3],
            data: &a,
        },
        Tensor {
            name: "packed",
            dtype: Dtype::F4,
            shape: &[2, 2],
            data: &[1, 2, 3, 15],
        },
        Tensor {
            name: "none",
            dtype: Dtype::I64,
            shape: &[0, 7],
            data: &[],
        },
    ];
    let metadata = BTreeMap::from([("who".to_owned(), "we".to_owned())]);
    let folder = Folder::new();
    let path = folder.at("m.safetensors");
    write(&path, &metadata, &tensors).unwrap();
    let bytes = encode(&metadata, &tensors).unwrap();
    assert_eq!(bytes, fs::read(&path).unwrap());
    let contents = decode(&bytes).unwrap();
    assert_eq!(contents.metadata, metadata);
    assert_eq!(contents.tensors.len(), tensors.len());
    for tensor in tensors {
        let (_, dtype, shape, elements) = contents
            .tensors
            .iter()
            .find(|(name, ..)| name == tensor.name)
            .unwrap();
        assert_eq!((*dtype, &**shape), (tensor.dtype, tensor.shape));
        assert_eq!(elements.as_slice(), tensor.data);
    }
}

#[test]
fn bytes_are_checked_as_files_are_and_any_cut_is_refused() {
    let whole = one_tensor(crate::support::GOOD);
    assert!(decode(&whole).is_ok());
    for len in 0..whole.len() {
        match decode(&whole[..len]) {
            Err(StoreError::Format { path, .. }) => {
                assert_eq!(path.to_str(), Some("these bytes"));
            }
            other => panic!("{len} bytes: {other:?}"),
        }
    }
    assert!(decode(&[&*whole, &[0]].concat()).is_err());
    let outside = file(
        r#"{"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#,
        &[0; 3],
    );
    assert!(decode(&outside).is_err());
    assert!(decode(b"{\"weight_map\":{}}").is_err(), "an index");
}

#[test]
fn what_no_file_can_hold_is_not_encoded() {
    let tensor = Tensor {
        name: "__metadata__",
        dtype: Dtype::U8,
        shape: &[1],
        data: &[0],
    };
    assert!(matches!(
        encode(&BTreeMap::new(), &[tensor]),
        Err(StoreError::Unsupported(_))
    ));
}
