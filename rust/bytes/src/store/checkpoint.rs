//! An open checkpoint: the table of its tensors and the files they lie in.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::candidate::Candidate;
use super::error::{Problem, StoreError};
use super::header::Header;
use super::quote::list;
use super::shard::Shard;
use super::sharded;
use crate::dtype::Dtype;

/// What to let pass when opening a checkpoint. The default is what the format asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Accept bytes after the last tensor.
    pub allow_trailing: bool,
    /// Refuse fields of a tensor that the format does not know, instead of warning.
    pub strict_fields: bool,
}

/// One tensor of a checkpoint: what it is and where its bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name: any string, never a path.
    pub name: Arc<str>,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its dimensions, at most [`crate::shape::MAX_RANK`] of them.
    pub shape: Vec<usize>,
    /// Position of its file in [`Checkpoint::shards`].
    pub shard: usize,
    /// Offset of its first byte in that file.
    pub begin: u64,
    /// Number of bytes in the file.
    pub len: usize,
}

/// A checkpoint whose headers were read and checked; the data is read when asked for.
///
/// Its files stay open: what happens to their paths afterwards does not matter.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    shards: Vec<Shard>,
    entries: Vec<Entry>,
    by_name: HashMap<Arc<str>, usize>,
    metadata: BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl Checkpoint {
    /// Opens a `safetensors` file, an index of shards (`*.index.json`), or a folder that holds exactly
    /// one index or, without an index, exactly one `safetensors` file. The contents decide what a file
    /// is, its name does not matter.
    ///
    /// An index may name files of its own folder only. Symbolic links are followed wherever they lead:
    /// download caches consist of them.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the operating system refuses, [`StoreError::Missing`] where an index
    /// names files that are not there, [`StoreError::Format`] for anything wrong with the contents.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, OpenOptions::default())
    }

    /// Opens a checkpoint with other rules than the default ones.
    ///
    /// # Errors
    /// As for [`Checkpoint::open`].
    pub fn open_with(path: &Path, options: OpenOptions) -> Result<Self, StoreError> {
        let metadata = fs::metadata(path);
        let mut candidate = if metadata.is_ok_and(|metadata| metadata.is_dir()) {
            Candidate::open(&the_one_inside(path)?)?
        } else {
            Candidate::open(path)?
        };
        if candidate.is_json() {
            return sharded::open(path, &mut candidate, options);
        }
        let (shard, header) = candidate.parse(options)?;
        let mut table = Table::default();
        table.add(shard, header);
        Ok(table.finish(path))
    }

    /// The path it was opened by, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its tensors, file by file in the order of their data.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Position in [`Checkpoint::entries`] of the tensor of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Its textual metadata; where shards disagree about a key, the first has its way.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The files it consists of.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Bytes of all tensors in the files.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(&self.entries)
    }

    /// Oddities that were accepted, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A number that tells whether a checkpoint opened again is the same one: it depends on the names,
    /// dtypes, shapes and places of all tensors, not on the data, and on no version of this library.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::new();
        for entry in &self.entries {
            hash.number(entry.name.len() as u64);
            hash.bytes(entry.name.as_bytes());
            hash.bytes(entry.dtype.name().as_bytes());
            hash.number(entry.shape.len() as u64);
            entry.shape.iter().for_each(|&dim| hash.number(dim as u64));
            hash.number(entry.shard as u64);
            hash.number(entry.begin);
            hash.number(entry.len as u64);
        }
        hash.0
    }

    /// The tensor at this position, and its file.
    pub(crate) fn locate(&self, entry: usize) -> Result<(&Entry, &Shard), StoreError> {
        self.entries
            .get(entry)
            .and_then(|entry| Some((entry, self.shards.get(entry.shard)?)))
            .ok_or_else(|| {
                StoreError::Unsupported(format!(
                    "The checkpoint has {} tensors, so there is none at position {entry}.",
                    self.entries.len()
                ))
            })
    }
}

/// A checkpoint being put together, one file after another.
#[derive(Default)]
pub(crate) struct Table {
    shards: Vec<Shard>,
    pub(crate) entries: Vec<Entry>,
    metadata: BTreeMap<String, String>,
    pub(crate) warnings: Vec<String>,
}

impl Table {
    /// Adds a file and its tensors.
    pub(crate) fn add(&mut self, shard: Shard, header: Header) {
        if let Some(first) = header.first_unknown {
            self.warnings.push(format!(
                "{}: the header has {} unknown fields, the first of them {first}.",
                shard.path().display(),
                header.unknown_fields
            ));
        }
        for (key, value) in header.metadata {
            self.metadata.entry(key).or_insert(value);
        }
        let data_start = shard.data_start();
        let position = self.shards.len();
        self.entries
            .extend(header.tensors.into_iter().map(|tensor| Entry {
                name: tensor.name,
                dtype: tensor.dtype,
                shape: tensor.shape,
                shard: position,
                begin: data_start + tensor.begin,
                // The layout check compared it with a `usize`, so nothing is cut off.
                len: (tensor.end - tensor.begin) as usize,
            }));
        self.shards.push(shard);
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        stored_bytes(&self.entries)
    }

    /// The checkpoint, to be reopened by this path. The names must differ by now.
    pub(crate) fn finish(self, path: &Path) -> Checkpoint {
        let names = self.entries.iter().enumerate();
        Checkpoint {
            path: path.to_owned(),
            by_name: names
                .map(|(position, entry)| (entry.name.clone(), position))
                .collect(),
            shards: self.shards,
            entries: self.entries,
            metadata: self.metadata,
            warnings: self.warnings,
        }
    }
}

fn stored_bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.len as u64).sum()
}

/// The index in a folder or, without one, its only `safetensors` file.
fn the_one_inside(folder: &Path) -> Result<PathBuf, StoreError> {
    let mut indexes = Vec::new();
    let mut files = Vec::new();
    for item in fs::read_dir(folder).map_err(|error| StoreError::io(folder, error))? {
        let name = item.map_err(|error| StoreError::io(folder, error))?;
        let name = name.file_name();
        let text = name.to_string_lossy();
        if text.ends_with(".safetensors.index.json") {
            indexes.push(text.into_owned());
        } else if text.ends_with(".safetensors") {
            files.push(text.into_owned());
        }
    }
    let (mut found, what) = if indexes.is_empty() {
        (files, "safetensors files and no index of them")
    } else {
        (indexes, "indexes of safetensors files")
    };
    match &found[..] {
        [one] => Ok(folder.join(one)),
        [] => Err(
            Problem::new("the folder holds no safetensors file and no index of such files")
                .at(folder),
        ),
        _ => {
            found.sort();
            let problem = format!("the folder holds {} {what}: {}", found.len(), list(&found));
            Err(Problem::new(problem)
                .remedy("Give the path of the one to open")
                .at(folder))
        }
    }
}

/// The 64-bit FNV-1a hash: tiny, and the same everywhere and for ever.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }
}
