//! Mapped files: the map itself, the views into it, and what the system knows of a file.
//!
//! A mapped page whose file was cut short kills the process when touched. So before bytes are handed
//! out, the kernel is asked to bring their pages in: it answers with an error instead of a signal.
#![allow(unsafe_code)] // maps a file, whose bytes other processes can change, and calls `fstatfs`

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use memmap2::{Advice, Mmap, MmapMut, MmapOptions};

/// A whole file, mapped for reading only, private to this process.
#[derive(Debug)]
pub(crate) struct Map(Mmap);

impl Map {
    /// Maps the first `len` bytes of a file.
    pub(crate) fn new(file: &File, len: usize) -> io::Result<Self> {
        // SAFETY: the bytes are only ever read as `u8`, for which any value will do. That nobody
        // changes or cuts the file in the meantime cannot be ensured by this process: the caller
        // checks its length and pages in what it hands out, prefers copies for files that others may
        // write, and documents the rest.
        let map = unsafe { MmapOptions::new().len(len).map_copy_read_only(file)? };
        Ok(Self(map))
    }

    /// Brings in the pages of a range. `false` when the file cannot deliver them: it ends before, or
    /// its device fails. Kernels that do not know the request leave it to the caller's check of the
    /// length.
    pub(crate) fn populate(&self, range: &Range<usize>) -> io::Result<bool> {
        populated(|advice| self.0.advise_range(advice, range.start, range.len()))
    }
}

/// What came of asking for pages.
#[cfg(target_os = "linux")]
fn populated(ask: impl FnOnce(Advice) -> io::Result<()>) -> io::Result<bool> {
    let Err(error) = ask(Advice::PopulateRead) else {
        return Ok(true);
    };
    match error.raw_os_error() {
        Some(libc::EFAULT) => Ok(false),
        // Before Linux 5.14, and in some sandboxes.
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM) => Ok(true),
        _ => Err(error),
    }
}

/// Elsewhere there is no such request, and the check of the length is all there is.
#[cfg(not(target_os = "linux"))]
fn populated(_: impl FnOnce(Advice) -> io::Result<()>) -> io::Result<bool> {
    Ok(true)
}

/// The bytes of one tensor in pages of its own, which may be written: a page is copied when it is
/// first written to, so nothing reaches the file or another reader of it.
#[derive(Debug)]
pub struct Pages(MmapMut);

impl Pages {
    /// Maps a range of a file that is not empty.
    pub(crate) fn new(file: &File, range: &Range<usize>) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(range.start as u64).len(range.len());
        // SAFETY: as for `Map::new`; and what is written here goes to pages of this process.
        let map = unsafe { options.map_copy(file)? };
        Ok(Self(map))
    }

    /// As [`Map::populate`], for all of it.
    pub(crate) fn populate(&self) -> io::Result<bool> {
        populated(|advice| self.0.advise(advice))
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Address of the first byte, a multiple of the item size. Whoever owns the pages may write.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    /// Number of bytes, never zero.
    #[expect(clippy::len_without_is_empty, reason = "a range to map is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The bytes of one tensor inside a mapped file. It keeps the map alive, and nothing else.
#[derive(Clone, Debug)]
pub struct View {
    map: Arc<Map>,
    range: Range<usize>,
}

impl View {
    /// `None` when the map has no such range.
    pub(crate) fn new(map: Arc<Map>, range: Range<usize>) -> Option<Self> {
        map.0.get(range.clone())?;
        Some(Self { map, range })
    }

    /// The bytes, as they lie in the file. If the file is cut short or overwritten in place after the
    /// view was made, touching them can end the process or show the new bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.map.0[self.range.clone()]
    }

    /// Address of the first byte, a multiple of the item size.
    pub fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr()
    }

    /// Number of bytes, never zero.
    #[expect(clippy::len_without_is_empty, reason = "a view is never empty")]
    pub fn len(&self) -> usize {
        self.range.len()
    }
}

/// The magic number of the file system that a file lies on.
#[cfg(target_os = "linux")]
pub(crate) fn file_system(file: &File) -> io::Result<u32> {
    use std::os::fd::AsRawFd;
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open while `file` is borrowed, and `answer` has room for the struct.
    let failed = unsafe { libc::fstatfs(file.as_raw_fd(), answer.as_mut_ptr()) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the struct in.
    let answer = unsafe { answer.assume_init() };
    // Its type differs between C libraries and may sign-extend; the magics are 32 bits wide.
    Ok(answer.f_type as u32)
}
