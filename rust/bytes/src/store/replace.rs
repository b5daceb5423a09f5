//! Replacing a file in one step: written beside its target under a temporary name, then renamed.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use super::error::StoreError;

/// Links followed before a chain is taken for a circle, as in the Linux kernel.
const MAX_LINKS: usize = 40;

/// Has `fill` write a new file and puts it in the place of `path`. On any error the temporary file is
/// removed and what was there stays.
pub(crate) fn replace(
    path: &Path,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), StoreError> {
    replace_target(path, fill).map_err(|error| StoreError::io(path, error))
}

fn replace_target(path: &Path, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let target = follow_links(path)?;
    let existing = existing_file(&target)?;
    // In the folder of the target: a rename does not cross file systems.
    let folder = match target.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lazyparam-").suffix(".tmp");
    // Nobody may read it who could not read what was there. A new file gets the mode that any
    // newly made file gets; the system takes the umask off.
    #[cfg(unix)]
    builder.permissions(match &existing {
        Some(existing) => existing.permissions(),
        None => std::os::unix::fs::PermissionsExt::from_mode(0o666),
    });
    let temporary = builder.tempfile_in(folder)?;
    if let Some(existing) = existing {
        keep_owner_and_mode(temporary.as_file(), &existing)?;
    }
    fill(temporary.as_file())?;
    temporary.persist(&target).map_err(|failed| failed.error)?;
    Ok(())
}

/// The file that a chain of symbolic links ends at, which need not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            // An absolute link replaces the whole path.
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            // Not a link, or nothing at all: what follows will tell which.
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("its symbolic links run in a circle"))
}

/// What is there now, which must be a regular file if anything.
fn existing_file(target: &Path) -> io::Result<Option<Metadata>> {
    let metadata = match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    if metadata.is_dir() {
        let kind = io::ErrorKind::IsADirectory;
        return Err(io::Error::new(kind, "it is a directory"));
    }
    if !metadata.is_file() {
        let kind = io::ErrorKind::InvalidInput;
        return Err(io::Error::new(kind, "it is a device, a pipe or a socket"));
    }
    Ok(Some(metadata))
}

#[cfg(unix)]
fn keep_owner_and_mode(file: &File, existing: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let fresh = file.metadata()?;
    if (fresh.uid(), fresh.gid()) != (existing.uid(), existing.gid()) {
        // Only a privileged process may give files away; for others the file becomes theirs.
        let _ = fchown(file, Some(existing.uid()), Some(existing.gid()));
    }
    // After the owner, since a change of owner clears bits of the mode.
    file.set_permissions(existing.permissions())
}

#[cfg(not(unix))]
fn keep_owner_and_mode(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}
