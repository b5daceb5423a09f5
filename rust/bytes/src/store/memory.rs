//! A `safetensors` file that is bytes in memory: the same checks, and every tensor copied out of it.

use std::collections::BTreeMap;
use std::path::Path;

use super::candidate::Candidate;
use super::checkpoint::OpenOptions;
use super::error::StoreError;
use super::header::RawTensor;
use super::pack;
use super::read::len_in_memory;
use super::shard::PREFIX;
use crate::buffer::Buffer;
use crate::dtype::Dtype;

/// What stands for the path in messages.
const LABEL: &str = "these bytes";

/// What bytes in memory hold.
#[derive(Debug)]
pub struct Contents {
    /// Name, dtype, dimensions and elements of each tensor, in the order of their data; the elements
    /// in the form they have in memory.
    pub tensors: Vec<(String, Dtype, Vec<usize>, Buffer)>,
    /// The textual metadata.
    pub metadata: BTreeMap<String, String>,
}

/// The tensors of a `safetensors` file that is in memory, copied: nothing refers to `bytes` later.
///
/// # Errors
/// [`StoreError::Format`] for anything wrong with the contents, [`StoreError::OutOfMemory`].
pub fn decode(bytes: &[u8]) -> Result<Contents, StoreError> {
    let mut candidate = Candidate::over(Path::new(LABEL), bytes, bytes.len() as u64)?;
    let (header, header_len) = candidate.header(OpenOptions::default())?;
    let data = bytes.get((PREFIX + header_len) as usize..).unwrap_or(&[]);
    let tensors = header.tensors.into_iter().map(|tensor| {
        let elements = copied(&tensor, data)?;
        Ok((
            tensor.name.to_string(),
            tensor.dtype,
            tensor.shape,
            elements,
        ))
    });
    Ok(Contents {
        tensors: tensors.collect::<Result<_, StoreError>>()?,
        metadata: header.metadata,
    })
}

fn copied(tensor: &RawTensor, data: &[u8]) -> Result<Buffer, StoreError> {
    // The header was checked against the length of the data, so the range is there.
    let stored = data
        .get(tensor.begin as usize..tensor.end as usize)
        .unwrap_or(&[]);
    let mut buffer = Buffer::zeroed(len_in_memory(&tensor.shape, tensor.dtype)?)?;
    if tensor.dtype.is_packed() {
        pack::unpack(tensor.dtype, stored, buffer.as_mut_slice());
    } else {
        buffer.as_mut_slice().copy_from_slice(stored);
    }
    Ok(buffer)
}
