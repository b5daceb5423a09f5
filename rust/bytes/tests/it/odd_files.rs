//! Paths that are no readable regular file: the right kind of error, and never a wait.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use lazyparam_bytes::store::{Checkpoint, StoreError};

use crate::support::{Folder, file};

#[track_caller]
fn io_kind(path: &Path) -> ErrorKind {
    match Checkpoint::open(path) {
        Err(StoreError::Io { source, .. }) => source.kind(),
        other => panic!("expected an error of the system, got {other:?}"),
    }
}

#[test]
fn a_missing_file_is_not_found() {
    let folder = Folder::new();
    assert_eq!(io_kind(&folder.at("none.safetensors")), ErrorKind::NotFound);
    assert_eq!(io_kind(&folder.at("no/folder/none")), ErrorKind::NotFound);
}

#[cfg(unix)]
#[test]
fn a_dangling_link_names_its_target() {
    let folder = Folder::new();
    let link = folder.at("model.safetensors");
    std::os::unix::fs::symlink("blobs/4d7a21", &link).unwrap();
    let error = Checkpoint::open(&link).unwrap_err();
    assert!(error.to_string().contains("blobs/4d7a21"), "{error}");
    assert_eq!(io_kind(&link), ErrorKind::NotFound);
}

#[cfg(unix)]
#[test]
fn a_file_without_permission_is_permission_denied() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.put("model.safetensors", file("{}", &[]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        return; // nothing is forbidden to root
    }
    assert_eq!(io_kind(&path), ErrorKind::PermissionDenied);
}

#[test]
fn a_folder_named_as_a_shard_is_a_directory() {
    let folder = Folder::new();
    fs::create_dir(folder.at("a.safetensors")).unwrap();
    let index = folder.put(
        "m.safetensors.index.json",
        r#"{"weight_map":{"t":"a.safetensors"}}"#,
    );
    assert_eq!(io_kind(&index), ErrorKind::IsADirectory);
}

#[cfg(unix)]
#[test]
fn a_named_pipe_is_refused_at_once() {
    let folder = Folder::new();
    let path = folder.at("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let error = Checkpoint::open(&path).unwrap_err();
    assert!(error.to_string().contains("named pipe"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_device_is_refused() {
    for path in ["/dev/null", "/dev/zero"] {
        let error = Checkpoint::open(Path::new(path)).unwrap_err();
        assert!(error.to_string().contains("a device"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_socket_is_refused() {
    let folder = Folder::new();
    let path = folder.at("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(Checkpoint::open(&path).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_not_utf8_opens() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let path = folder
        .path()
        .join(std::ffi::OsStr::from_bytes(b"m\xff.safetensors"));
    fs::write(&path, file("{}", &[])).unwrap();
    assert!(Checkpoint::open(&path).is_ok());
}
