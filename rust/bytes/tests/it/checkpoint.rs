//! What an open checkpoint tells about itself, and how a folder is opened.

use std::fmt::Write;
use std::fs;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, StoreError};

use crate::support::{Folder, file, open, read, write_bytes};

const TWO: &str = r#"{"__metadata__":{"format":"pt"},
    "b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},
    "a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;

#[test]
fn entries_come_in_the_order_of_their_data() {
    let checkpoint = open(&file(TWO, &[0; 12])).unwrap();
    let [a, b] = checkpoint.entries() else {
        panic!("expected two entries")
    };
    let data = 8 + TWO.len() as u64;
    assert_eq!(
        (&*a.name, a.dtype, &a.shape[..]),
        ("a", Dtype::U8, &[4][..])
    );
    assert_eq!((a.shard, a.begin, a.len), (0, data, 4));
    assert_eq!(
        (&*b.name, b.dtype, &b.shape[..]),
        ("b", Dtype::F32, &[2, 1][..])
    );
    assert_eq!((b.shard, b.begin, b.len), (0, data + 4, 8));
}

#[test]
fn tensors_are_found_by_name() {
    let checkpoint = open(&file(TWO, &[0; 12])).unwrap();
    assert_eq!(checkpoint.find("a"), Some(0));
    assert_eq!(checkpoint.find("b"), Some(1));
    assert_eq!(checkpoint.find("c"), None);
    assert_eq!(checkpoint.find("__metadata__"), None);
}

#[test]
fn metadata_and_lengths_are_told() {
    let checkpoint = open(&file(TWO, &[0; 12])).unwrap();
    assert_eq!(checkpoint.metadata()["format"], "pt");
    assert_eq!(checkpoint.stored_bytes(), 12);
    let [shard] = checkpoint.shards() else {
        panic!("expected one file")
    };
    assert_eq!(shard.header_len(), TWO.len() as u64);
    assert_eq!(shard.file_len(), 8 + TWO.len() as u64 + 12);
}

#[test]
fn the_path_is_kept_as_it_was_given() {
    let folder = Folder::new();
    let path = folder.put("m.safetensors", file(TWO, &[0; 12]));
    assert_eq!(Checkpoint::open(&path).unwrap().path(), path);
    let whole = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(whole.path(), folder.path());
    assert_eq!(whole.shards()[0].path(), path);
}

#[test]
fn a_checkpoint_outlives_the_path_of_its_file() {
    let folder = Folder::new();
    let path = folder.at("m.safetensors");
    write_bytes(&path, &[("t", b"old")]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    write_bytes(&path, &[("t", b"new")]);
    assert_eq!(read(&checkpoint, "t"), b"old");
    fs::remove_file(&path).unwrap();
    assert_eq!(read(&checkpoint, "t"), b"old");
}

#[test]
fn a_checkpoint_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Checkpoint>();
    shared::<lazyparam_bytes::store::View>();
    shared::<lazyparam_bytes::Buffer>();
    shared::<StoreError>();
}

#[test]
fn a_position_beyond_the_last_tensor_is_an_error() {
    let checkpoint = open(&file(TWO, &[0; 12])).unwrap();
    assert!(matches!(
        checkpoint.read(2, 1),
        Err(StoreError::Unsupported(_))
    ));
    assert!(matches!(
        checkpoint.view(2),
        Err(StoreError::Unsupported(_))
    ));
}

#[test]
fn the_fingerprint_is_the_same_for_the_same_header_on_every_machine() {
    let fingerprint = |header: &str| open(&file(header, &[0; 12])).unwrap().fingerprint();
    assert_eq!(fingerprint(TWO), fingerprint(TWO));
    assert_eq!(fingerprint(TWO), 13_455_990_856_266_520_585);
    for (from, to) in [("\"a\"", "\"A\""), ("[2,1]", "[1,2]"), ("F32", "I32")] {
        assert_ne!(
            fingerprint(TWO),
            fingerprint(&TWO.replace(from, to)),
            "{to}"
        );
    }
}

// Folders.

#[test]
fn a_folder_with_one_file_opens_it() {
    let folder = Folder::new();
    write_bytes(&folder.at("model.safetensors"), &[("t", b"x")]);
    folder.put("config.json", "{}");
    assert_eq!(read(&Checkpoint::open(folder.path()).unwrap(), "t"), b"x");
}

#[test]
fn a_folder_with_several_files_and_no_index_lists_them() {
    let folder = Folder::new();
    write_bytes(&folder.at("b.safetensors"), &[("t", b"x")]);
    write_bytes(&folder.at("a.safetensors"), &[("t", b"x")]);
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains(r#""a.safetensors", "b.safetensors""#),
        "{error}"
    );
}

#[test]
fn a_folder_with_several_indexes_lists_them() {
    let folder = Folder::new();
    folder.put("model.safetensors.index.json", "{}");
    folder.put("model.fp16.safetensors.index.json", "{}");
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("model.fp16.safetensors.index.json"),
        "{error}"
    );
}

#[test]
fn a_folder_with_neither_says_so() {
    let folder = Folder::new();
    folder.put("pytorch_model.bin", "");
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Format { .. }));
    assert!(error.to_string().contains("no safetensors file"), "{error}");
}

// Size.

#[test]
fn a_hundred_thousand_tensors_open() {
    let mut header = String::from("{");
    for index in 0..100_000 {
        let comma = if index == 0 { "" } else { "," };
        let (begin, end) = (index * 4, index * 4 + 4);
        write!(
            header,
            "{comma}\"model.layers.{index}.mlp.experts.gate_proj.weight\":\
             {{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[{begin},{end}]}}"
        )
        .unwrap();
    }
    header.push('}');
    let checkpoint = open(&file(&header, &vec![0; 400_000])).unwrap();
    assert_eq!(checkpoint.entries().len(), 100_000);
    let last = "model.layers.99999.mlp.experts.gate_proj.weight";
    assert_eq!(checkpoint.find(last), Some(99_999));
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_larger_than_memory_opens_and_its_small_tensors_are_read() {
    let header = r#"{"huge":{"dtype":"U8","shape":[68719476736],"data_offsets":[0,68719476736]},
        "tail":{"dtype":"U8","shape":[4],"data_offsets":[68719476736,68719476740]}}"#;
    let folder = Folder::new();
    let path = folder.put("m.safetensors", file(header, &[]));
    let sparse = fs::File::options().write(true).open(&path).unwrap();
    sparse
        .set_len(8 + header.len() as u64 + (64 << 30) + 4)
        .unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(read(&checkpoint, "tail"), [0; 4]);
    let tail = checkpoint.find("tail").unwrap();
    assert_eq!(checkpoint.view(tail).unwrap().unwrap().as_slice(), [0; 4]);
}
