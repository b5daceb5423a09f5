//! Checkpoints in several files: index and files must agree.

use std::fs;

use lazyparam_bytes::store::{Checkpoint, StoreError};

use crate::support::{Folder, read, write_bytes};

const INDEX: &str = "model.safetensors.index.json";

/// Two files, `1` with a and b, `2` with c.
fn two_shards() -> Folder {
    let folder = Folder::new();
    write_bytes(&folder.at("1.safetensors"), &[("a", b"aa"), ("b", b"b")]);
    write_bytes(&folder.at("2.safetensors"), &[("c", b"ccc")]);
    folder
}

const WHOLE: &str = r#""weight_map":{"c":"2.safetensors","a":"1.safetensors","b":"1.safetensors"}"#;

fn open_with(folder: &Folder, index: &str) -> Result<Checkpoint, StoreError> {
    Checkpoint::open(&folder.put(INDEX, index))
}

/// The problem and the tensor of an index that is refused.
fn refusal(folder: &Folder, index: &str) -> (String, Option<String>) {
    match open_with(folder, index) {
        Err(StoreError::Format {
            problem, tensor, ..
        }) => (problem, tensor),
        other => panic!("expected a refusal of the contents, got {other:?}"),
    }
}

#[test]
fn an_index_opens_all_its_files() {
    let folder = two_shards();
    let checkpoint = open_with(&folder, &format!("{{{WHOLE}}}")).unwrap();
    assert_eq!(checkpoint.shards().len(), 2);
    assert_eq!(checkpoint.stored_bytes(), 6);
    for (name, data) in [("a", "aa"), ("b", "b"), ("c", "ccc")] {
        assert_eq!(read(&checkpoint, name), data.as_bytes());
    }
    let shards: Vec<_> = checkpoint
        .entries()
        .iter()
        .map(|entry| entry.shard)
        .collect();
    assert_eq!(shards, [0, 0, 1]);
    assert!(checkpoint.warnings().is_empty());
}

#[test]
fn a_folder_prefers_its_index_to_its_files() {
    let folder = two_shards();
    folder.put(INDEX, format!("{{{WHOLE}}}"));
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.entries().len(), 3);
    assert_eq!(checkpoint.path(), folder.path());
}

#[test]
fn an_index_is_known_by_its_contents() {
    let folder = two_shards();
    let path = folder.put("odd name", format!("  {{{WHOLE}}}"));
    assert_eq!(Checkpoint::open(&path).unwrap().entries().len(), 3);
}

#[test]
fn stray_files_beside_an_index_are_ignored() {
    let folder = two_shards();
    folder.put("stray.safetensors", "no checkpoint at all");
    assert!(open_with(&folder, &format!("{{{WHOLE}}}")).is_ok());
}

#[test]
fn metadata_of_the_first_file_wins() {
    use crate::support::file;
    let folder = Folder::new();
    folder.put(
        "1.safetensors",
        file(
            r#"{"__metadata__":{"k":"1"},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
            &[],
        ),
    );
    folder.put("2.safetensors", file(r#"{"__metadata__":{"k":"2","l":"2"},"b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#, &[]));
    let index = r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#;
    let checkpoint = open_with(&folder, index).unwrap();
    assert_eq!(checkpoint.metadata()["k"], "1");
    assert_eq!(checkpoint.metadata()["l"], "2");
}

#[test]
fn missing_files_are_all_named_before_any_is_read() {
    let folder = two_shards();
    folder.put("2.safetensors", "broken, but that is not the point");
    let index = r#"{"weight_map":{"x":"9.safetensors","c":"2.safetensors","y":"3.safetensors"}}"#;
    match open_with(&folder, index) {
        Err(StoreError::Missing { path, files }) => {
            assert_eq!(files, ["3.safetensors", "9.safetensors"]);
            assert_eq!(path, folder.at(INDEX));
        }
        other => panic!("expected the missing files, got {other:?}"),
    }
}

#[test]
fn the_message_for_missing_files_names_them() {
    let folder = two_shards();
    let error = open_with(&folder, r#"{"weight_map":{"x":"9.safetensors"}}"#).unwrap_err();
    let text = error.to_string();
    assert!(
        text.ends_with(r#"1 of the files it names is missing: "9.safetensors"."#),
        "{text}"
    );
}

#[test]
fn a_file_name_that_leaves_the_folder_is_refused() {
    let folder = two_shards();
    let names = [
        "../1.safetensors",
        "/etc/passwd",
        "a/../../x",
        "sub/1.safetensors",
        "..",
        ".",
        "",
        r"..\\x",
        r"C:\\x",
        "1.safetensors\\u0000",
    ];
    for name in names {
        let (problem, tensor) = refusal(&folder, &format!(r#"{{"weight_map":{{"t":"{name}"}}}}"#));
        assert!(problem.contains("file name"), "{name}: {problem}");
        assert_eq!(tensor.as_deref(), Some("t"));
    }
}

#[cfg(unix)]
#[test]
fn a_relative_link_into_a_cache_is_followed() {
    let folder = Folder::new();
    fs::create_dir_all(folder.at("blobs")).unwrap();
    fs::create_dir_all(folder.at("snapshots/abc")).unwrap();
    write_bytes(&folder.at("blobs/4d7a"), &[("t", b"data")]);
    folder.put("blobs/index", r#"{"weight_map":{"t":"1.safetensors"}}"#);
    let link = |target: &str, name: &str| {
        let name = folder.at("snapshots/abc").join(name);
        std::os::unix::fs::symlink(target, name).unwrap();
    };
    link("../../blobs/4d7a", "1.safetensors");
    link("../../blobs/index", INDEX);
    let checkpoint = Checkpoint::open(&folder.at("snapshots/abc")).unwrap();
    assert_eq!(read(&checkpoint, "t"), b"data");
}

#[cfg(unix)]
#[test]
fn a_dangling_link_counts_as_missing() {
    let folder = two_shards();
    std::os::unix::fs::symlink("nowhere", folder.at("3.safetensors")).unwrap();
    let error = open_with(&folder, r#"{"weight_map":{"x":"3.safetensors"}}"#).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
}

#[test]
fn a_tensor_twice_in_the_index_is_refused() {
    let folder = two_shards();
    let (problem, _) = refusal(
        &folder,
        r#"{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}"#,
    );
    assert!(problem.contains("\"a\" appears twice"), "{problem}");
}

#[test]
fn a_tensor_in_two_files_is_refused() {
    let folder = two_shards();
    write_bytes(&folder.at("2.safetensors"), &[("c", b"ccc"), ("a", b"AA")]);
    let (problem, tensor) = refusal(&folder, &format!("{{{WHOLE}}}"));
    assert!(problem.contains("more than one"), "{problem}");
    assert_eq!(tensor.as_deref(), Some("a"));
}

#[test]
fn a_tensor_that_is_in_no_file_is_refused() {
    let folder = two_shards();
    let (problem, tensor) = refusal(
        &folder,
        r#"{"weight_map":{"a":"1.safetensors","b":"1.safetensors","d":"2.safetensors"}}"#,
    );
    assert!(problem.contains("not in the files"), "{problem}");
    assert_eq!(tensor.as_deref(), Some("d"));
}

#[test]
fn a_tensor_in_another_file_than_the_index_says_is_refused() {
    let folder = two_shards();
    let (problem, tensor) = refusal(
        &folder,
        r#"{"weight_map":{"a":"2.safetensors","b":"1.safetensors","c":"2.safetensors"}}"#,
    );
    assert!(problem.contains("\"2.safetensors\""), "{problem}");
    assert_eq!(tensor.as_deref(), Some("a"));
}

#[test]
fn a_tensor_that_the_index_does_not_list_is_there_with_a_warning() {
    let folder = two_shards();
    let index = r#"{"weight_map":{"a":"1.safetensors","c":"2.safetensors"}}"#;
    let checkpoint = open_with(&folder, index).unwrap();
    assert!(checkpoint.find("b").is_some());
    let [warning] = checkpoint.warnings() else {
        panic!("expected one warning")
    };
    assert!(warning.contains("\"b\""), "{warning}");
}

#[test]
fn another_total_size_is_a_warning() {
    let folder = two_shards();
    let right = format!(r#"{{"metadata":{{"total_size":6}},{WHOLE}}}"#);
    assert!(open_with(&folder, &right).unwrap().warnings().is_empty());
    let wrong = format!(r#"{{"metadata":{{"total_size":7}},{WHOLE}}}"#);
    let checkpoint = open_with(&folder, &wrong).unwrap();
    let [warning] = checkpoint.warnings() else {
        panic!("expected one warning")
    };
    assert!(
        warning.contains("7 bytes") && warning.contains("have 6"),
        "{warning}"
    );
}

#[test]
fn an_index_of_the_wrong_form_is_refused() {
    let folder = two_shards();
    for index in [
        "{\"weight_map\":[]}",
        "{\"weight_map\":null}",
        "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{},\"weight_map\":{}}",
        "{\"weight_map\":{}} {}",
        "{\"weight_map\":{\"a\":",
        "{\"metadata\":{}}",
    ] {
        refusal(&folder, index);
    }
    let deep = format!(
        "{{\"x\":{}1{},{WHOLE}}}",
        "[".repeat(9999),
        "]".repeat(9999)
    );
    refusal(&folder, &deep);
}

#[test]
fn a_broken_file_is_named_by_its_own_path() {
    let folder = two_shards();
    let broken = folder.put(
        "2.safetensors",
        "version https://git-lfs.github.com/spec/v1\n",
    );
    let error = open_with(&folder, &format!("{{{WHOLE}}}")).unwrap_err();
    assert_eq!(error.path(), Some(&*broken));
    assert!(error.to_string().contains("git-lfs"), "{error}");
}

#[test]
fn the_fingerprint_depends_on_the_file_of_a_tensor() {
    let one = Folder::new();
    write_bytes(&one.at("1.safetensors"), &[("a", b"x")]);
    write_bytes(&one.at("2.safetensors"), &[("b", b"x")]);
    let index = r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#;
    let first = open_with(&one, index).unwrap().fingerprint();
    write_bytes(&one.at("1.safetensors"), &[("b", b"x")]);
    write_bytes(&one.at("2.safetensors"), &[("a", b"x")]);
    let index = r#"{"weight_map":{"b":"1.safetensors","a":"2.safetensors"}}"#;
    assert_ne!(open_with(&one, index).unwrap().fingerprint(), first);
}
