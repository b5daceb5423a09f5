//! What can go wrong with a checkpoint, as whole sentences that name the file and the tensor.

use std::io;
use std::path::{Path, PathBuf};

use super::quote::list;
use crate::buffer::OutOfMemory;

/// Why a checkpoint could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused: no such file, no permission, a directory, a full disk.
    #[error("Cannot access {}: {source}.", .path.display())]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// The refusal, with its kind.
        source: io::Error,
    },

    /// The contents are not what the format asks for.
    #[error("Cannot read {}: {problem}.{}", .path.display(), remedy_sentence(.remedy.as_deref()))]
    Format {
        /// The file concerned.
        path: PathBuf,
        /// The tensor concerned, when it is one tensor's fault.
        tensor: Option<String>,
        /// What is wrong: a clause in lower case, without the full stop.
        problem: String,
        /// What to do about it: a sentence without the full stop.
        remedy: Option<String>,
    },

    /// The file is not the one that was opened: it has another length now.
    #[error(
        "Cannot read tensor {} from {}: the file had {expected} bytes when it was opened and has \
         {found} now.",
        super::quote::quoted(.tensor),
        .path.display()
    )]
    Changed {
        /// The file concerned.
        path: PathBuf,
        /// The tensor that was being read.
        tensor: String,
        /// Length of the file when it was opened.
        expected: u64,
        /// Length of the file now.
        found: u64,
    },

    /// The index names shard files that are not there.
    #[error(
        "Cannot open {}: {} of the files it names {} missing: {}.",
        .path.display(),
        .files.len(),
        if .files.len() == 1 { "is" } else { "are" },
        list(.files)
    )]
    Missing {
        /// The index file.
        path: PathBuf,
        /// Names of the missing files, as the index spells them.
        files: Vec<String>,
    },

    /// The request itself cannot be met: a tensor that no file can hold, a buffer of the wrong length.
    #[error("{0}")]
    Unsupported(String),

    /// There is no memory for a tensor.
    #[error("There is no memory for another {bytes} bytes.")]
    OutOfMemory {
        /// How many bytes were asked for.
        bytes: usize,
    },
}

impl StoreError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// The file concerned, where there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::Format { path, .. }
            | Self::Changed { path, .. }
            | Self::Missing { path, .. } => Some(path),
            Self::Unsupported(_) | Self::OutOfMemory { .. } => None,
        }
    }

    /// The tensor concerned, where it is one tensor's fault.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::Format { tensor, .. } => tensor.as_deref(),
            Self::Changed { tensor, .. } => Some(tensor),
            _ => None,
        }
    }

    /// What was expected, in words.
    pub fn expected(&self) -> Option<String> {
        match self {
            Self::Changed { expected, .. } => Some(format!("a file of {expected} bytes")),
            Self::Missing { files, .. } => Some(list(files)),
            _ => None,
        }
    }

    /// What was found instead, in words.
    pub fn found(&self) -> Option<String> {
        match self {
            Self::Changed { found, .. } => Some(format!("a file of {found} bytes")),
            _ => None,
        }
    }

    /// What to do about it, where there is something to do.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Format { remedy, .. } => remedy.as_deref(),
            _ => None,
        }
    }
}

impl From<OutOfMemory> for StoreError {
    fn from(refused: OutOfMemory) -> Self {
        Self::OutOfMemory {
            bytes: refused.bytes,
        }
    }
}

fn remedy_sentence(remedy: Option<&str>) -> String {
    remedy.map_or_else(String::new, |remedy| format!(" {remedy}."))
}

/// Something wrong with contents, before it is known in which file they lie.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) tensor: Option<String>,
    pub(crate) text: String,
    pub(crate) remedy: Option<String>,
}

impl Problem {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            tensor: None,
            text: text.into(),
            remedy: None,
        }
    }

    /// A problem of one tensor; the text names it too.
    pub(crate) fn of_tensor(name: &str, text: impl Into<String>) -> Self {
        Self {
            tensor: Some(name.to_owned()),
            ..Self::new(text)
        }
    }

    pub(crate) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    pub(crate) fn at(self, path: &Path) -> StoreError {
        StoreError::Format {
            path: path.to_owned(),
            tensor: self.tensor,
            problem: self.text,
            remedy: self.remedy,
        }
    }
}
