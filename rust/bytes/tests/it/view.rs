//! Views: no copy, aligned or not at all, and an error instead of a signal.

use std::collections::BTreeMap;
use std::fs;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, StoreError, Tensor, write};

use crate::support::{Folder, file, noise, open, read, write_bytes};

#[test]
fn a_view_shows_what_a_copy_reads() {
    let folder = Folder::new();
    let data = noise(3 << 20);
    write_bytes(&folder.at("m"), &[("a", &data), ("b", b"tail")]);
    let checkpoint = Checkpoint::open(&folder.at("m")).unwrap();
    for (index, entry) in checkpoint.entries().iter().enumerate() {
        let view = checkpoint.view(index).unwrap().unwrap();
        assert_eq!(view.len(), entry.len);
        assert!(view.as_slice() == read(&checkpoint, &entry.name));
    }
}

#[test]
fn views_of_a_written_file_are_aligned_to_their_items() {
    let folder = Folder::new();
    let path = folder.at("m");
    let data = [7; 24];
    let of = |name, dtype, shape| Tensor {
        name,
        dtype,
        shape,
        data: &data,
    };
    let tensors = [
        of("a", Dtype::U8, &[24][..]),
        of("b", Dtype::F64, &[3]),
        of("c", Dtype::BF16, &[12]),
        of("d", Dtype::F32, &[6]),
    ];
    write(&path, &BTreeMap::new(), &tensors).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    for (index, entry) in checkpoint.entries().iter().enumerate() {
        let view = checkpoint.view(index).unwrap().unwrap();
        assert_eq!(view.as_ptr() as usize % entry.dtype.size(), 0);
    }
    let first = checkpoint.view(0).unwrap().unwrap();
    assert_eq!(first.as_ptr() as usize % 64, 0);
}

#[test]
fn a_tensor_that_is_not_aligned_has_no_view_but_its_neighbour_does() {
    let header = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
        "b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}"#;
    let padded = format!("{header:0$}", header.len().next_multiple_of(8));
    let checkpoint = open(&file(&padded, &[1, 2, 3, 4, 5])).unwrap();
    assert!(checkpoint.view(0).unwrap().is_some());
    assert!(checkpoint.view(1).unwrap().is_none());
    assert_eq!(read(&checkpoint, "b"), [2, 3, 4, 5]);
}

#[test]
fn a_header_without_padding_leaves_wide_tensors_without_a_view() {
    let header = r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let padded = format!("{header:0$}", header.len().next_multiple_of(8) + 3);
    let checkpoint = open(&file(&padded, &[0; 4])).unwrap();
    assert!(checkpoint.view(0).unwrap().is_none());
}

#[test]
fn packed_and_empty_tensors_have_no_view() {
    let checkpoint = open(&file(
        r#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]},
            "b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
        &[0x21],
    ))
    .unwrap();
    for entry in 0..2 {
        assert!(checkpoint.view(entry).unwrap().is_none());
        assert!(checkpoint.pages(entry).unwrap().is_none());
    }
}

#[test]
fn a_view_outlives_its_checkpoint_and_its_file() {
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", b"data")]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let view = checkpoint.view(0).unwrap().unwrap();
    drop(checkpoint);
    fs::remove_file(&path).unwrap();
    assert_eq!(view.as_slice(), b"data");
}

#[test]
fn a_view_keeps_the_old_bytes_when_the_file_is_replaced() {
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", b"old")]);
    let view = Checkpoint::open(&path).unwrap().view(0).unwrap().unwrap();
    write_bytes(&path, &[("t", b"new")]);
    assert_eq!(view.as_slice(), b"old");
}

#[test]
fn views_of_one_file_share_one_map() {
    let folder = Folder::new();
    write_bytes(&folder.at("m"), &[("a", b"aaaa"), ("b", b"bbbb")]);
    let checkpoint = Checkpoint::open(&folder.at("m")).unwrap();
    let at = |entry| checkpoint.view(entry).unwrap().unwrap().as_ptr() as usize;
    let (a, b) = (at(0), at(1));
    assert_eq!(b - a, 4);
    assert_eq!(at(0), a);
}

#[cfg(target_os = "linux")]
#[test]
fn reading_copies_maps_no_file() {
    let folder = Folder::new();
    write_bytes(&folder.at("never-mapped"), &[("t", &noise(2 << 20))]);
    let checkpoint = Checkpoint::open(&folder.at("never-mapped")).unwrap();
    let mapped = || {
        fs::read_to_string("/proc/self/maps")
            .unwrap()
            .contains("never-mapped")
    };
    let buffer = checkpoint.read(0, 2).unwrap();
    assert!(!mapped());
    let view = checkpoint.view(0).unwrap().unwrap();
    assert!(mapped());
    drop((checkpoint, view, buffer));
    assert!(!mapped());
}

#[cfg(target_os = "linux")]
#[test]
fn the_map_is_for_reading_only_and_private() {
    let folder = Folder::new();
    write_bytes(&folder.at("read-only-map"), &[("t", b"data")]);
    let checkpoint = Checkpoint::open(&folder.at("read-only-map")).unwrap();
    let _view = checkpoint.view(0).unwrap().unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps
        .lines()
        .find(|line| line.contains("read-only-map"))
        .unwrap();
    assert!(line.contains(" r--p "), "{line}");
}

/// Two pages of data, cut to nothing but the header after the first view or before it.
#[cfg(target_os = "linux")]
fn view_of_truncated_file(mapped_before: bool) -> Result<bool, StoreError> {
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", &noise(64 << 10))]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    if mapped_before {
        checkpoint.view(0).unwrap();
    }
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    Ok(checkpoint.view(0)?.is_some())
}

#[cfg(target_os = "linux")]
#[test]
fn a_view_of_a_truncated_file_is_an_error_and_no_signal() {
    for mapped_before in [false, true] {
        match view_of_truncated_file(mapped_before) {
            Err(StoreError::Changed { found: 100, .. }) => {}
            other => panic!("expected a changed file, got {other:?}"),
        }
    }
}

#[test]
fn a_file_that_grew_has_no_views() {
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", b"data")]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let len = checkpoint.shards()[0].file_len();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(len + 1)
        .unwrap();
    assert!(matches!(
        checkpoint.view(0),
        Err(StoreError::Changed { .. })
    ));
}

#[test]
fn many_threads_view_at_the_same_time() {
    let folder = Folder::new();
    write_bytes(&folder.at("m"), &[("t", b"data")]);
    let checkpoint = Checkpoint::open(&folder.at("m")).unwrap();
    let addresses: Vec<usize> = std::thread::scope(|scope| {
        let view = || checkpoint.view(0).unwrap().unwrap().as_ptr() as usize;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(view)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(addresses.iter().all(|&address| address == addresses[0]));
}

#[cfg(target_os = "linux")]
#[test]
fn views_are_preferred_unless_others_may_write_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", b"data")]);
    for (mode, prefers) in [(0o644, true), (0o600, true), (0o664, false), (0o646, false)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(
            Checkpoint::open(&path).unwrap().prefers_view(),
            prefers,
            "{mode:o}"
        );
    }
}

#[test]
fn what_is_written_to_pages_reaches_neither_the_file_nor_its_other_readers() {
    let folder = Folder::new();
    let path = folder.at("m");
    let data: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
    write_bytes(&path, &[("t", &data)]);
    let before = fs::read(&path).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let view = checkpoint.view(0).unwrap().unwrap();
    let (mut one, mut other) = (
        checkpoint.pages(0).unwrap().unwrap(),
        checkpoint.pages(0).unwrap().unwrap(),
    );
    assert!(one.as_mut_slice() == data);
    one.as_mut_slice().fill(7);
    other.as_mut_slice()[3] = 9;
    assert!(one.as_mut_slice().iter().all(|&byte| byte == 7));
    assert!(other.as_mut_slice()[4..] == data[4..]);
    assert!(view.as_slice() == data && read(&checkpoint, "t") == data);
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn pages_outlive_their_file_and_are_aligned_as_views_are() {
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", b"data")]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let mut pages = checkpoint.pages(0).unwrap().unwrap();
    let view = checkpoint.view(0).unwrap().unwrap();
    assert_eq!(pages.as_ptr() as usize % 64, view.as_ptr() as usize % 64);
    drop(checkpoint);
    fs::remove_file(&path).unwrap();
    assert_eq!(
        (pages.len(), pages.as_mut_slice() as &[u8]),
        (4, &b"data"[..])
    );
}

#[test]
fn pages_of_a_file_that_was_cut_short_are_an_error() {
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", &[1; 9000])]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    assert!(checkpoint.pages(0).is_err());
}
