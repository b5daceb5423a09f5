//! Tensors without a copy: views into mapped files, and whether mapping is wise.

use std::sync::{Arc, PoisonError};

use super::checkpoint::Checkpoint;
use super::error::StoreError;
use super::map::{Map, View};
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
        let aligned = entry.begin.is_multiple_of(entry.dtype.size() as u64);
        let (Ok(start), Ok(file_len)) = (
            usize::try_from(entry.begin),
            usize::try_from(shard.file_len()),
        ) else {
            return Ok(None); // more than a 32-bit machine can map
        };
        if !aligned || entry.dtype.is_packed() || entry.len == 0 {
            return Ok(None);
        }
        shard.check_unchanged(&entry.name)?;
        let map = shared_map(shard, file_len)?;
        let range = start..start + entry.len;
        let populated = map.populate(&range).map_err(|e| shard.io_error(e))?;
        if !populated {
            shard.check_unchanged(&entry.name)?;
            let source = std::io::Error::other("the device failed to deliver the data");
            return Err(shard.io_error(source));
        }
        Ok(View::new(map, range))
    }

    /// Whether views are a good default here: on Linux, when every file lies on a local file system
    /// and nobody but its owner may write to it.
    pub fn prefers_view(&self) -> bool {
        self.shards().iter().all(is_safe_to_map)
    }
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
