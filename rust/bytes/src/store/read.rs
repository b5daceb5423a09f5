//! Copies of tensors: positional reads into fresh memory, large ones by several threads.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::checkpoint::{Checkpoint, Entry};
use super::error::StoreError;
use super::file::read_exact_at;
use super::pack;
use super::quote::quoted;
use super::shard::Shard;
use crate::buffer::Buffer;
use crate::dtype::Dtype;
use crate::shape;

/// Bytes in memory that one job fills: large enough for sequential reading, small enough to share
/// the work out evenly. A multiple of four, so packed elements break at whole bytes.
const JOB: usize = 4 << 20;
/// From this length on, starting threads pays.
const PARALLEL_FROM: usize = 16 << 20;

impl Checkpoint {
    /// Reads a tensor into a fresh buffer, in the form it has in memory: packed elements come out one
    /// byte each. Up to `threads` threads share the work of a large one.
    ///
    /// # Errors
    /// [`StoreError::Changed`] when the file is no longer as long as it was,
    /// [`StoreError::OutOfMemory`], or [`StoreError::Io`].
    pub fn read(&self, entry: usize, threads: usize) -> Result<Buffer, StoreError> {
        let mut buffer = Buffer::zeroed(memory_len(self.locate(entry)?.0)?)?;
        self.read_into(entry, buffer.as_mut_slice(), threads)?;
        Ok(buffer)
    }

    /// Reads a tensor into memory of the caller's, which must have exactly its length in memory. After
    /// an error, what the memory holds is undefined.
    ///
    /// # Errors
    /// As for [`Checkpoint::read`], and [`StoreError::Unsupported`] when the length is another.
    pub fn read_into(
        &self,
        entry: usize,
        out: &mut [u8],
        threads: usize,
    ) -> Result<(), StoreError> {
        let (entry, shard) = self.locate(entry)?;
        let needed = memory_len(entry)?;
        if out.len() != needed {
            return Err(StoreError::Unsupported(format!(
                "Tensor {} has {needed} bytes in memory and does not fit into {} bytes.",
                quoted(&entry.name),
                out.len()
            )));
        }
        let threads = if needed < PARALLEL_FROM { 1 } else { threads };
        let read = read_jobs(out, threads, |position, chunk| {
            read_chunk(entry, shard, position, chunk)
        });
        match read {
            // The file ended before the tensor did. Should it be long again by now, the error stands.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                shard.check_unchanged(&entry.name)?;
                Err(shard.io_error(error))
            }
            Err(error) => Err(shard.io_error(error)),
            Ok(()) => shard.check_unchanged(&entry.name),
        }
    }
}

fn memory_len(entry: &Entry) -> Result<usize, StoreError> {
    len_in_memory(&entry.shape, entry.dtype)
}

pub(crate) fn len_in_memory(shape: &[usize], dtype: Dtype) -> Result<usize, StoreError> {
    // Opening has refused shapes that overflow, so this is never `None`.
    shape::checked_len(shape, dtype).ok_or(StoreError::OutOfMemory { bytes: usize::MAX })
}

/// Cuts the memory into jobs and has up to `threads` threads, this one among them, do them all.
fn read_jobs<F>(out: &mut [u8], threads: usize, read: F) -> io::Result<()>
where
    F: Fn(usize, &mut [u8]) -> io::Result<()> + Sync,
{
    let helpers = threads.min(out.len().div_ceil(JOB)).saturating_sub(1);
    let jobs = Mutex::new(out.chunks_mut(JOB).enumerate());
    let failed = AtomicBool::new(false);
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, chunk)) = job else { break };
            if let Err(error) = read(number * JOB, chunk) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        // A thread that cannot be had is no error: the others do its share.
        let helpers: Vec<_> = (0..helpers)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut result = work();
        for helper in helpers {
            let done = helper
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a reading thread panicked")));
            result = result.and(done);
        }
        result
    })
}

/// Fills the part of a tensor that begins at this position in memory.
fn read_chunk(entry: &Entry, shard: &Shard, position: usize, chunk: &mut [u8]) -> io::Result<()> {
    let dtype = entry.dtype;
    if !dtype.is_packed() {
        return read_exact_at(shard.file(), chunk, entry.begin + position as u64);
    }
    // One byte per element in memory, so positions and lengths are numbers of elements.
    let stored = |elements: usize| {
        elements / 8 * dtype.stored_bits() + elements % 8 * dtype.stored_bits() / 8
    };
    let mut packed = vec![0; stored(chunk.len())];
    read_exact_at(
        shard.file(),
        &mut packed,
        entry.begin + stored(position) as u64,
    )?;
    pack::unpack(dtype, &packed, chunk);
    Ok(())
}
