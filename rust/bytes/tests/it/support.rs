//! Builders of files, good and bad, and of the temporary folders they live in.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, StoreError, Tensor, write};
use tempfile::TempDir;

/// The fields of a tensor of four bytes that is in order.
pub(crate) const GOOD: &str = r#""dtype":"U8","shape":[4],"data_offsets":[0,4]"#;

/// A file with this header text and this data.
pub(crate) fn file(header: &str, data: &[u8]) -> Vec<u8> {
    raw_file(header.as_bytes(), data)
}

/// A file whose header need not even be text.
pub(crate) fn raw_file(header: &[u8], data: &[u8]) -> Vec<u8> {
    let len = header.len() as u64;
    [&len.to_le_bytes(), header, data].concat()
}

/// A file of one `U8` tensor `t` of four bytes, its header entry given without the braces.
pub(crate) fn one_tensor(entry: &str) -> Vec<u8> {
    file(&format!("{{\"t\":{{{entry}}}}}"), &[0; 4])
}

/// A folder that is gone when the test ends.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// Names of everything in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path())
            .unwrap()
            .map(|item| item.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Opens these bytes as a file of their own. The checkpoint outlives the folder: it holds the file.
pub(crate) fn open(bytes: &[u8]) -> Result<Checkpoint, StoreError> {
    let folder = Folder::new();
    Checkpoint::open(&folder.put("model.safetensors", bytes))
}

/// What is wrong with these bytes, and with which tensor.
pub(crate) fn refusal(bytes: &[u8]) -> (String, Option<String>) {
    match open(bytes) {
        Err(StoreError::Format {
            tensor, problem, ..
        }) => (problem, tensor),
        other => panic!("expected a refusal of the contents, got {other:?}"),
    }
}

/// Checks that the bytes are refused with a problem that contains this text.
#[track_caller]
pub(crate) fn assert_refused(bytes: &[u8], because: &str) {
    let (problem, _) = refusal(bytes);
    assert!(problem.contains(because), "{problem}");
}

/// Checks that the bytes are refused because of this tensor, and that the problem names it.
#[track_caller]
pub(crate) fn assert_tensor_refused(bytes: &[u8], tensor: &str, because: &str) {
    let (problem, named) = refusal(bytes);
    assert_eq!(named.as_deref(), Some(tensor), "{problem}");
    assert!(problem.contains(&format!("{tensor:?}")), "{problem}");
    assert!(problem.contains(because), "{problem}");
}

/// Writes tensors of `U8` with these names and contents.
pub(crate) fn write_bytes(path: &Path, tensors: &[(&str, &[u8])]) {
    let shapes: Vec<[usize; 1]> = tensors.iter().map(|(_, data)| [data.len()]).collect();
    let tensors: Vec<_> = tensors
        .iter()
        .zip(&shapes)
        .map(|(&(name, data), shape)| Tensor {
            name,
            dtype: Dtype::U8,
            shape,
            data,
        })
        .collect();
    write(path, &BTreeMap::new(), &tensors).unwrap();
}

/// The bytes of a tensor, read by name.
pub(crate) fn read(checkpoint: &Checkpoint, name: &str) -> Vec<u8> {
    let entry = checkpoint.find(name).unwrap();
    checkpoint.read(entry, 2).unwrap().as_slice().to_vec()
}

/// Bytes without a pattern that a mistake in offsets could repeat.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(len)
    .collect()
}
