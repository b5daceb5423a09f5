//! Opening regular files without ever waiting, and reading them by position.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

use super::error::{Problem, StoreError};

/// Opens a regular file for reading and says how long it is.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64), StoreError> {
    let file = open_for_reading(path)
        .map_err(|error| StoreError::io(path, explain_dangling_link(path, error)))?;
    let metadata = file.metadata().map_err(|e| StoreError::io(path, e))?;
    refuse_irregular(path, &metadata)?;
    Ok((file, metadata.len()))
}

/// Opens without waiting: a named pipe without a writer would hold a plain `open` for ever.
fn open_for_reading(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.open(path)
}

/// A link into a download cache whose target is gone is a common sight; name the target.
fn explain_dangling_link(path: &Path, error: io::Error) -> io::Error {
    match fs::read_link(path) {
        Ok(target) if error.kind() == io::ErrorKind::NotFound => io::Error::new(
            error.kind(),
            format!(
                "it is a symbolic link to {}, which does not exist",
                target.display()
            ),
        ),
        _ => error,
    }
}

fn refuse_irregular(path: &Path, metadata: &Metadata) -> Result<(), StoreError> {
    if metadata.is_file() {
        return Ok(());
    }
    if metadata.is_dir() {
        let source = io::Error::new(io::ErrorKind::IsADirectory, "it is a directory");
        return Err(StoreError::io(path, source));
    }
    Err(Problem::new(format!(
        "it is {}, and only a regular file can hold a checkpoint",
        irregular_kind(metadata)
    ))
    .at(path))
}

#[cfg(unix)]
fn irregular_kind(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn irregular_kind(_: &Metadata) -> &'static str {
    "something else"
}

/// What is read by position: a file, or its bytes in memory.
pub(crate) trait ReadAt {
    /// Fills the buffer from this offset on, or fails with `UnexpectedEof` where the bytes end before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        read_exact_at(self, buf, offset)
    }
}

impl ReadAt for &[u8] {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(buf.len()));
        let found = start.zip(end).and_then(|(start, end)| self.get(start..end));
        buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Fills the buffer from this offset on, or fails with `UnexpectedEof` where the file ends before.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, offset)
}

/// Fills the buffer from this offset on, or fails with `UnexpectedEof` where the file ends before.
#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buf = &mut buf[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
