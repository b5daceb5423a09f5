//! Where a file is written to: modes, links, and what is left after an error.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, StoreError, Tensor, write};

use crate::support::{Folder, read, write_bytes};

fn try_write(path: &Path) -> Result<(), StoreError> {
    let tensor = Tensor {
        name: "t",
        dtype: Dtype::U8,
        shape: &[3],
        data: b"new",
    };
    write(path, &BTreeMap::new(), &[tensor])
}

#[track_caller]
fn io_kind(path: &Path) -> ErrorKind {
    match try_write(path) {
        Err(StoreError::Io { source, .. }) => source.kind(),
        other => panic!("expected an error of the system, got {other:?}"),
    }
}

#[test]
fn an_existing_file_is_replaced_and_nothing_else_is_left() {
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", b"old")]);
    try_write(&path).unwrap();
    assert_eq!(read(&Checkpoint::open(&path).unwrap(), "t"), b"new");
    assert_eq!(folder.names(), ["m"]);
}

#[test]
fn a_folder_in_the_place_of_the_file_is_an_error_and_stays() {
    let folder = Folder::new();
    fs::create_dir(folder.at("m")).unwrap();
    assert_eq!(io_kind(&folder.at("m")), ErrorKind::IsADirectory);
    assert!(folder.at("m").is_dir());
    assert_eq!(folder.names(), ["m"]);
}

#[test]
fn a_missing_folder_is_not_found() {
    let folder = Folder::new();
    assert_eq!(io_kind(&folder.at("none/m")), ErrorKind::NotFound);
}

#[test]
fn a_refused_tensor_leaves_the_old_file() {
    let folder = Folder::new();
    let path = folder.at("m");
    write_bytes(&path, &[("t", b"old")]);
    let tensor = Tensor {
        name: "__metadata__",
        dtype: Dtype::U8,
        shape: &[0],
        data: &[],
    };
    write(&path, &BTreeMap::new(), &[tensor]).unwrap_err();
    assert_eq!(read(&Checkpoint::open(&path).unwrap(), "t"), b"old");
    assert_eq!(folder.names(), ["m"]);
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_new_file_has_the_mode_of_any_new_file() {
        let folder = Folder::new();
        let plain = folder.put("plain", "");
        try_write(&folder.at("m")).unwrap();
        assert_eq!(mode(&folder.at("m")), mode(&plain));
    }

    #[test]
    fn an_existing_file_keeps_its_mode() {
        let folder = Folder::new();
        let path = folder.put("m", "");
        for wanted in [0o664, 0o600, 0o640, 0o444, 0o666] {
            set_mode(&path, wanted);
            try_write(&path).unwrap();
            assert_eq!(mode(&path), wanted, "{wanted:o}");
        }
    }

    #[test]
    fn an_existing_file_keeps_its_owner_where_that_is_allowed() {
        let folder = Folder::new();
        let path = folder.put("m", "");
        if std::os::unix::fs::chown(&path, Some(1234), Some(4321)).is_err() {
            return; // only root gives files away
        }
        set_mode(&path, 0o640);
        try_write(&path).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 4321));
        assert_eq!(mode(&path), 0o640);
    }

    #[test]
    fn a_link_stays_and_its_target_is_replaced() {
        let folder = Folder::new();
        fs::create_dir(folder.at("blobs")).unwrap();
        fs::create_dir(folder.at("snapshot")).unwrap();
        write_bytes(&folder.at("blobs/4d7a"), &[("t", b"old")]);
        symlink("../blobs/4d7a", folder.at("snapshot/inner")).unwrap();
        symlink(folder.at("snapshot/inner"), folder.at("outer")).unwrap();
        try_write(&folder.at("outer")).unwrap();
        assert!(
            fs::symlink_metadata(folder.at("outer"))
                .unwrap()
                .is_symlink()
        );
        assert!(
            fs::symlink_metadata(folder.at("snapshot/inner"))
                .unwrap()
                .is_symlink()
        );
        let target = Checkpoint::open(&folder.at("blobs/4d7a")).unwrap();
        assert_eq!(read(&target, "t"), b"new");
    }

    #[test]
    fn a_dangling_link_gets_its_target() {
        let folder = Folder::new();
        symlink("target", folder.at("link")).unwrap();
        try_write(&folder.at("link")).unwrap();
        assert_eq!(folder.names(), ["link", "target"]);
    }

    #[test]
    fn links_in_a_circle_are_an_error() {
        let folder = Folder::new();
        symlink("b", folder.at("a")).unwrap();
        symlink("a", folder.at("b")).unwrap();
        assert!(try_write(&folder.at("a")).is_err());
    }

    #[test]
    fn a_folder_without_permission_is_an_error_and_the_old_file_stays() {
        let folder = Folder::new();
        fs::create_dir(folder.at("locked")).unwrap();
        let path = folder.at("locked/m");
        write_bytes(&path, &[("t", b"old")]);
        set_mode(&folder.at("locked"), 0o555);
        let root = fs::File::create(folder.at("locked/probe")).is_ok();
        if !root {
            assert_eq!(io_kind(&path), ErrorKind::PermissionDenied);
            assert_eq!(read(&Checkpoint::open(&path).unwrap(), "t"), b"old");
        }
        set_mode(&folder.at("locked"), 0o755);
    }

    #[test]
    fn a_device_is_not_replaced() {
        assert!(try_write(Path::new("/dev/null")).is_err());
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_leaves_the_old_file_and_no_temporary_one() {
        // A limit on the size of files stands in for a full device; it holds for a child process
        // alone, and there it fails the write in the middle of the data.
        let folder = Folder::new();
        let path = folder.at("m");
        write_bytes(&path, &[("t", b"old")]);
        let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"";
        let status = std::process::Command::new("sh")
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "replace::unix::the_child_of_the_full_device",
                "--ignored",
            ])
            .env("LAZYPARAM_TEST_FULL_DEVICE", &path)
            .output()
            .unwrap();
        assert!(status.status.success(), "{status:?}");
        assert_eq!(read(&Checkpoint::open(&path).unwrap(), "t"), b"old");
        assert_eq!(folder.names(), ["m"]);
    }

    #[test]
    #[ignore = "run by the test of the full device, in a process of its own"]
    fn the_child_of_the_full_device() {
        let Some(path) = std::env::var_os("LAZYPARAM_TEST_FULL_DEVICE") else {
            return;
        };
        let data = vec![1; 4 << 20];
        let tensor = Tensor {
            name: "t",
            dtype: Dtype::U8,
            shape: &[4 << 20],
            data: &data,
        };
        let error = write(Path::new(&path), &BTreeMap::new(), &[tensor]).unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
    }
}
