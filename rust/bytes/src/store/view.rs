//! Tensors without a copy: views into mapped files, and whether mapping is wise.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::checkpoint::Checkpoint;
use super::checkpoint::Entry;
use super::error::StoreError;
use super::map::{Map, Pages, View};
use super::shard::Shard;

impl Checkpoint {
    /// The bytes of a tensor without a copy, read-only and shared with the page cache.
    ///
    /// `None` when there can be no view: the tensor is packed, has no bytes, or does not lie at a
    /// multiple of its item size. The caller then reads a copy.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when the file is no longer as long as it was, [`StoreError::Io`] when it
    /// cannot be mapped or read.
    pub fn view(&self, entry: usize) -> Result<Option<View>, StoreError> {
        let (entry, shard) = self.locate(entry)?;
        let (Some(range), Ok(file_len)) = (mappable(entry), usize::try_from(shard.file_len()))
        else {
            return Ok(None);
        };
        shard.check_unchanged(&entry.name)?;
        let map = shared_map(shard, file_len)?;
        let populated = map.populate(&range).map_err(|e| shard.io_error(e))?;
        delivered(populated, entry, shard)?;
        Ok(View::new(map, range))
    }

    /// The bytes of a tensor in pages of its own that may be written, without a copy until they are:
    /// for owners that cannot be kept from writing. `None` and errors as for [`Self::view`].
    ///
    /// # Errors
    /// As for [`Self::view`].
    pub fn pages(&self, entry: usize) -> Result<Option<Pages>, StoreError> {
        let (entry, shard) = self.locate(entry)?;
        let Some(range) = mappable(entry) else {
            return Ok(None);
        };
        shard.check_unchanged(&entry.name)?;
        let pages = Pages::new(shard.file(), &range).map_err(|e| shard.io_error(e))?;
        let populated = pages.populate().map_err(|e| shard.io_error(e))?;
        delivered(populated, entry, shard)?;
        Ok(Some(pages))
    }

    /// Whether views are a good default here: on Linux, when every file lies on a local file system
    /// and nobody but its owner may write to it.
    pub fn prefers_view(&self) -> bool {
        self.shards().iter().all(is_safe_to_map)
    }
}

/// Where a tensor lies in its file, if it can be mapped: aligned, not packed, not empty, and no more
/// than the machine can map.
fn mappable(entry: &Entry) -> Option<Range<usize>> {
    let aligned = entry.begin.is_multiple_of(entry.dtype.size() as u64);
    let start = usize::try_from(entry.begin).ok()?;
    let maps = aligned && !entry.dtype.is_packed() && entry.len > 0;
    maps.then(|| start..start + entry.len)
}

/// An error unless the pages of a tensor came.
fn delivered(populated: bool, entry: &Entry, shard: &Shard) -> Result<(), StoreError> {
    if populated {
        return Ok(());
    }
    shard.check_unchanged(&entry.name)?;
    let source = std::io::Error::other("the device failed to deliver the data");
    Err(shard.io_error(source))
}

/// The map of a file, made once and shared by its views.
fn shared_map(shard: &Shard, file_len: usize) -> Result<Arc<Map>, StoreError> {
    let mut slot = shard.map.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(map) = &*slot {
        return Ok(map.clone());
    }
    let map = Map::new(shard.file(), file_len).map_err(|e| shard.io_error(e))?;
    Ok(slot.insert(Arc::new(map)).clone())
}

#[cfg(target_os = "linux")]
fn is_safe_to_map(shard: &Shard) -> bool {
    use std::os::unix::fs::MetadataExt;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let only_owner_writes = shard
        .file()
        .metadata()
        .is_ok_and(|metadata| metadata.mode() & WRITABLE_BY_OTHERS == 0);
    only_owner_writes
        && super::map::file_system(shard.file()).is_ok_and(|magic| !REMOTE.contains(&magic))
}

#[cfg(not(target_os = "linux"))]
fn is_safe_to_map(_: &Shard) -> bool {
    false
}

/// File systems where each page of a map is a message to somebody, by the magic number of `statfs`.
#[cfg(target_os = "linux")]
const REMOTE: &[u32] = &[
    0x0000_6969, // NFS
    0x0000_517B, // SMB
    0xFF53_4D42, // CIFS
    0xFE53_4D42, // SMB 2
    0x6573_5546, // FUSE, virtiofs
    0x0102_1997, // 9p
    0x0BD0_0BD0, // Lustre
    0x00C3_6400, // Ceph
    0x5346_414F, // AFS
    0x6B41_4653, // kAFS
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x7375_7245, // Coda
    0x786F_4256, // VirtualBox shared folder
];
