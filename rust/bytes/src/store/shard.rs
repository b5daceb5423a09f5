//! One open file of a checkpoint: its handle, the length it had, and its map once there is one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::error::StoreError;
use super::map::Map;

/// Bytes before the header: its length.
pub(crate) const PREFIX: u64 = 8;

/// One file of a checkpoint. It stays open, so renaming or deleting its path does no harm.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    file: File,
    file_len: u64,
    header_len: u64,
    /// Made when the first view is asked for.
    pub(crate) map: Mutex<Option<Arc<Map>>>,
}

impl Shard {
    pub(crate) fn new(path: PathBuf, file: File, file_len: u64, header_len: u64) -> Self {
        Self {
            path,
            file,
            file_len,
            header_len,
            map: Mutex::new(None),
        }
    }

    /// Where the file was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file when it was opened.
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Length of the JSON header, padding included.
    pub fn header_len(&self) -> u64 {
        self.header_len
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Offset in the file where the data begins.
    pub(crate) fn data_start(&self) -> u64 {
        PREFIX + self.header_len
    }

    pub(crate) fn io_error(&self, source: io::Error) -> StoreError {
        StoreError::io(&self.path, source)
    }

    /// Refuses with the two lengths when the file has another length than at its opening.
    pub(crate) fn check_unchanged(&self, tensor: &str) -> Result<(), StoreError> {
        let found = self.file.metadata().map_err(|e| self.io_error(e))?.len();
        if found == self.file_len {
            return Ok(());
        }
        Err(StoreError::Changed {
            path: self.path.clone(),
            tensor: tensor.to_owned(),
            expected: self.file_len,
            found,
        })
    }
}
