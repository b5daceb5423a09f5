//! A checkpoint in several files: opens what the index names and checks that both agree.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use super::candidate::Candidate;
use super::checkpoint::{Checkpoint, OpenOptions, Table};
use super::error::{Problem, StoreError};
use super::index::{self, Index};
use super::quote::{list, quoted};

/// Opens the shards of an index. Other files in its folder are none of its business.
pub(crate) fn open(
    opened_by: &Path,
    candidate: &mut Candidate,
    options: OpenOptions,
) -> Result<Checkpoint, StoreError> {
    let path = candidate.path().to_owned();
    let folder = path.parent().unwrap_or(Path::new(""));
    let index = index::parse(candidate.text()?).map_err(|problem| problem.at(&path))?;
    let files = index.files();
    refuse_missing(&path, folder, files.iter().copied())?;

    let mut table = Table::default();
    for file in &files {
        let (shard, header) = Candidate::open(&folder.join(file))?.parse(options)?;
        table.add(shard, header);
    }
    let files: Vec<&str> = files.into_iter().collect();
    let unlisted = agree(&index, &files, &table).map_err(|problem| problem.at(&path))?;

    let display = path.display();
    if !unlisted.is_empty() {
        table.warnings.push(format!(
            "{display}: {} tensors are in the files but not in the index: {}.",
            unlisted.len(),
            list(&unlisted)
        ));
    }
    let found = table.stored_bytes();
    if let Some(stated) = index.total_size.filter(|&stated| stated != found) {
        table.warnings.push(format!(
            "{display}: the index states a total size of {stated} bytes, and the tensors have {found}."
        ));
    }
    Ok(table.finish(opened_by))
}

/// Names every file that is not there, before any is read. A dangling link counts as not there.
fn refuse_missing<'a>(
    path: &Path,
    folder: &Path,
    files: impl Iterator<Item = &'a str>,
) -> Result<(), StoreError> {
    let missing: Vec<String> = files
        .filter(|file| {
            let found = fs::metadata(folder.join(file));
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        })
        .map(str::to_owned)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(StoreError::Missing {
        path: path.to_owned(),
        files: missing,
    })
}

/// Compares the index with the files and returns the tensors that only the files know. Refuses
/// tensors that are in two files, and tensors that are not in the file the index says.
fn agree(index: &Index, files: &[&str], table: &Table) -> Result<Vec<String>, Problem> {
    let mut shard_of: HashMap<&str, usize> = HashMap::with_capacity(table.entries.len());
    let mut doubled = Vec::new();
    for entry in &table.entries {
        if shard_of.insert(&entry.name, entry.shard).is_some() {
            doubled.push(&*entry.name);
        }
    }
    let mut misplaced = Vec::new();
    for (tensor, file) in &index.weight_map {
        let actual = shard_of.get(tensor.as_str()).map(|&shard| files[shard]);
        if actual != Some(file) {
            misplaced.push(tensor.as_str());
        }
    }
    if let Some(&tensor) = doubled.first() {
        return Err(Problem::of_tensor(
            tensor,
            format!(
                "{} tensors are in more than one of its files: {}",
                doubled.len(),
                list(&doubled)
            ),
        ));
    }
    if let Some(&tensor) = misplaced.first() {
        let file = index.weight_map.get(tensor).map_or("", String::as_str);
        return Err(Problem::of_tensor(
            tensor,
            format!(
                "{} tensors are not in the files that the index names for them: {} (the first should \
                 be in {})",
                misplaced.len(),
                list(&misplaced),
                quoted(file)
            ),
        ));
    }
    let listed = |name: &str| index.weight_map.contains_key(name);
    let names = table.entries.iter().map(|entry| &*entry.name);
    Ok(names
        .filter(|name| !listed(name))
        .map(str::to_owned)
        .collect())
}
