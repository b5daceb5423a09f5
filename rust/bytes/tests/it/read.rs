//! Copies: whole, by any number of threads, and honest about files that change.

use std::fs;

use lazyparam_bytes::store::{Checkpoint, StoreError};

use crate::support::{Folder, noise, read, write_bytes};

/// A file of one large and one small tensor, and what is in them.
fn large_and_small() -> (Folder, Checkpoint, Vec<u8>) {
    let folder = Folder::new();
    let data = noise((20 << 20) + 5);
    let path = folder.at("m.safetensors");
    write_bytes(&path, &[("large", &data), ("small", b"small")]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    (folder, checkpoint, data)
}

#[test]
fn the_number_of_threads_does_not_change_the_bytes() {
    let (_folder, checkpoint, data) = large_and_small();
    let large = checkpoint.find("large").unwrap();
    for threads in [0, 1, 2, 5, 64, 100_000] {
        let buffer = checkpoint.read(large, threads).unwrap();
        assert!(buffer.as_slice() == data, "{threads} threads");
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
    }
}

#[test]
fn a_small_tensor_is_read() {
    let (_folder, checkpoint, _) = large_and_small();
    assert_eq!(read(&checkpoint, "small"), b"small");
}

#[test]
fn an_empty_tensor_is_read_as_nothing() {
    let folder = Folder::new();
    write_bytes(&folder.at("m"), &[("none", b"")]);
    let checkpoint = Checkpoint::open(&folder.at("m")).unwrap();
    assert!(checkpoint.read(0, 1).unwrap().is_empty());
}

#[test]
fn several_threads_read_at_the_same_time() {
    let (_folder, checkpoint, data) = large_and_small();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(read(&checkpoint, "large") == data));
        }
    });
}

#[test]
fn reading_into_memory_of_the_caller_fills_it() {
    let (_folder, checkpoint, _) = large_and_small();
    let mut out = [0; 5];
    let small = checkpoint.find("small").unwrap();
    checkpoint.read_into(small, &mut out, 1).unwrap();
    assert_eq!(&out, b"small");
}

#[test]
fn memory_of_another_length_is_refused() {
    let (_folder, checkpoint, _) = large_and_small();
    let small = checkpoint.find("small").unwrap();
    for len in [0, 4, 6] {
        let error = checkpoint
            .read_into(small, &mut vec![0; len], 1)
            .unwrap_err();
        assert!(matches!(error, StoreError::Unsupported(_)));
        assert!(
            error.to_string().contains("\"small\" has 5 bytes"),
            "{error}"
        );
    }
}

/// Sets the length of the file behind an open checkpoint.
fn resize(checkpoint: &Checkpoint, len: u64) {
    let path = checkpoint.shards()[0].path();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

#[track_caller]
fn assert_changed(result: Result<impl std::fmt::Debug, StoreError>, was: u64, is: u64) {
    match result {
        Err(StoreError::Changed {
            expected, found, ..
        }) => assert_eq!((expected, found), (was, is)),
        other => panic!("expected a changed file, got {other:?}"),
    }
}

#[test]
fn a_file_cut_short_after_opening_is_reported_with_both_lengths() {
    for threads in [1, 4] {
        let (_folder, checkpoint, _) = large_and_small();
        let was = checkpoint.shards()[0].file_len();
        resize(&checkpoint, 1000);
        for entry in 0..2 {
            assert_changed(checkpoint.read(entry, threads), was, 1000);
        }
    }
}

#[test]
fn a_file_that_grew_after_opening_is_reported() {
    let (_folder, checkpoint, _) = large_and_small();
    let was = checkpoint.shards()[0].file_len();
    resize(&checkpoint, was + 1);
    assert_changed(checkpoint.read(0, 2), was, was + 1);
}

#[test]
fn a_changed_file_is_described_in_a_sentence() {
    let (folder, checkpoint, _) = large_and_small();
    let was = checkpoint.shards()[0].file_len();
    resize(&checkpoint, 7);
    let error = checkpoint
        .read(checkpoint.find("small").unwrap(), 1)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "Cannot read tensor \"small\" from {}: the file had {was} bytes when it was opened and \
             has 7 now.",
            folder.at("m.safetensors").display()
        )
    );
    assert_eq!(error.tensor(), Some("small"));
    assert_eq!(error.expected().unwrap(), format!("a file of {was} bytes"));
    assert_eq!(error.found().unwrap(), "a file of 7 bytes");
}

#[cfg(target_os = "linux")]
#[test]
fn a_tensor_larger_than_memory_is_out_of_memory() {
    let overcommit = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    if overcommit.trim() == "1" {
        return; // this system promises any amount of memory
    }
    let elements = 1_u64 << 43;
    let header =
        format!(r#"{{"t":{{"dtype":"U8","shape":[{elements}],"data_offsets":[0,{elements}]}}}}"#);
    let folder = Folder::new();
    let path = folder.put("m", crate::support::file(&header, &[]));
    let sparse = fs::File::options().write(true).open(&path).unwrap();
    sparse.set_len(8 + header.len() as u64 + elements).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    match checkpoint.read(0, 2) {
        Err(StoreError::OutOfMemory { bytes }) => assert_eq!(bytes as u64, elements),
        other => panic!("expected a lack of memory, got {other:?}"),
    }
}
