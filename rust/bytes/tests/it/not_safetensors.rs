//! Files of other kinds: the message says what they are.

use lazyparam_bytes::store::{Checkpoint, StoreError};

use crate::support::{Folder, assert_refused, file, one_tensor, raw_file};

#[test]
fn an_empty_file_is_called_empty() {
    assert_refused(b"", "empty");
}

#[test]
fn a_git_lfs_pointer_is_recognised_and_the_remedy_is_git_lfs_pull() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    let folder = Folder::new();
    let error = Checkpoint::open(&folder.put("model.safetensors", pointer)).unwrap_err();
    assert!(error.to_string().contains("git-lfs pointer"), "{error}");
    assert!(error.remedy().unwrap().contains("git lfs pull"));
}

#[test]
fn a_web_page_is_recognised() {
    assert_refused(b"<!DOCTYPE html><html><body>404</body></html>", "web page");
    assert_refused(b"\n\n<html>", "web page");
}

#[test]
fn compressed_data_and_archives_are_recognised() {
    assert_refused(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03abc", "gzip");
    assert_refused(b"\x28\xb5\x2f\xfd\x24\x0d\x69\x00\x00", "zstd");
    assert_refused(
        b"PK\x03\x04\x14\x00\x00\x00\x08\x00 and so on",
        "zip archive",
    );
}

#[test]
fn a_pickle_is_recognised() {
    assert_refused(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "pickle");
    assert_refused(b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}.", "pickle");
}

#[test]
fn other_tensor_formats_are_recognised() {
    assert_refused(
        b"GGUF\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        "GGUF",
    );
    assert_refused(b"\x93NUMPY\x01\x00v\x00{'descr'", "NumPy");
    assert_refused(b"\x89HDF\r\n\x1a\n\x00\x00\x00\x00", "HDF5");
}

#[test]
fn a_json_text_that_is_no_index_is_recognised() {
    assert_refused(br#"{"architectures": ["LlamaForCausalLM"]}"#, "weight_map");
    assert_refused(b"{}", "weight_map");
    assert_refused(b"[1, 2, 3, 4, 5, 6]", "JSON");
}

#[test]
fn a_header_longer_than_the_file_is_refused() {
    let mut bytes = file("{}", &[0; 56]);
    bytes[..8].copy_from_slice(&1_000_000_u64.to_le_bytes());
    assert_eq!(bytes.len(), 66);
    assert_refused(&bytes, "1000000 bytes, but the file has only 66");
}

#[test]
fn a_header_longer_than_the_cap_is_refused() {
    for len in [100_000_001, u64::MAX] {
        let mut bytes = file("{}", &[]);
        bytes[..8].copy_from_slice(&len.to_le_bytes());
        assert_refused(&bytes, "100000000 are allowed");
    }
}

#[test]
fn a_file_of_fewer_than_eight_bytes_is_refused() {
    for len in 1..8 {
        assert_refused(&vec![0; len], "too few");
    }
}

#[test]
fn a_file_of_zeros_is_refused() {
    assert_refused(&[0; 100], "header");
}

#[test]
fn a_header_length_that_looks_like_another_format_does_no_harm() {
    // 0x8B1F is the mark of gzip and a fine header length.
    let header = format!("{:1$}", "{}", 0x8B1F);
    assert!(crate::support::open(&file(&header, &[])).is_ok());
    // And with a real problem in the header, it is that which is told.
    let header = format!("{:1$}", "{\"t\":1}", 0x8B1F);
    assert_refused(&file(&header, &[]), "\"t\"");
    // 123 is the code of an opening brace.
    let header = format!("{:1$}", "{}", 123);
    assert!(crate::support::open(&file(&header, &[])).is_ok());
}

#[test]
fn what_follows_the_length_decides_between_bad_header_and_other_format() {
    assert_refused(&raw_file(&vec![b'x'; 0x8B1F], &[]), "gzip");
    assert_refused(&raw_file(&vec![b'x'; 1000], &[]), "header is not valid");
}

#[test]
fn the_name_of_the_file_plays_no_part() {
    let folder = Folder::new();
    let good = one_tensor(r#""dtype":"U8","shape":[4],"data_offsets":[0,4]"#);
    for name in ["model.bin", "blob", "odd.json", "odd.index.json"] {
        assert!(Checkpoint::open(&folder.put(name, &good)).is_ok(), "{name}");
    }
}

#[test]
fn the_message_is_a_sentence_with_path_problem_and_remedy() {
    let folder = Folder::new();
    let path = folder.put("m.safetensors", b"GGUF\x03\0\0\0\0\0\0\0");
    let error = Checkpoint::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Format { .. }));
    assert_eq!(
        error.to_string(),
        format!(
            "Cannot read {}: it is not a safetensors file but a GGUF file, the format of llama.cpp. \
             Load it with the library that wrote it and save it as safetensors.",
            path.display()
        )
    );
    assert_eq!(error.path(), Some(&*path));
}
