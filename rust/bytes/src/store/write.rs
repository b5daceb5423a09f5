//! Writing a `safetensors` file: checks, header, and the data straight from the caller's memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::candidate::HEADER_CAP;
use super::error::StoreError;
use super::header::METADATA;
use super::pack;
use super::quote::quoted;
use super::replace;
use crate::dtype::Dtype;
use crate::shape::{self, MAX_RANK};

/// The data begins at a multiple of this: a cache line, and what XLA needs to alias memory.
const DATA_ALIGN: usize = 64;
/// Small tensors are gathered to writes of this size; larger ones go out as they are.
const WRITE_BUFFER: usize = 1 << 20;
/// Elements packed at a time; a multiple of four, so that each piece fills whole bytes.
const PACK_BLOCK: usize = 1 << 16;

/// A tensor to be written.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its name: any string but `__metadata__`.
    pub name: &'a str,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its dimensions.
    pub shape: &'a [usize],
    /// Its elements in C order and as in memory: little-endian, packed dtypes one byte each.
    pub data: &'a [u8],
}

/// Writes a file, or replaces one in a single step: other readers see the old contents or the new,
/// and after an error the old file is untouched.
///
/// An existing file keeps its permissions (and its owner, where that is allowed); a symbolic link
/// stays and its target is replaced. The data begins at a multiple of 64 bytes, tensors of wide
/// elements first, so that each lies at a multiple of its item size. Nothing is flushed to the device:
/// who must survive a power cut syncs the file.
///
/// # Errors
/// [`StoreError::Unsupported`] for a tensor that no file can hold, [`StoreError::Io`] for the rest.
pub fn write(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    tensors: &[Tensor<'_>],
) -> Result<(), StoreError> {
    let plan = plan(tensors)?;
    let header = header(metadata, &plan)?;
    replace::replace(path, |file| {
        let mut out = BufWriter::with_capacity(WRITE_BUFFER, file);
        write_all(&mut out, &header, &plan)?;
        out.flush()
    })
}

/// The bytes of the file that [`write()`] would write.
///
/// # Errors
/// [`StoreError::Unsupported`] for a tensor that no file can hold, [`StoreError::OutOfMemory`].
pub fn encode(
    metadata: &BTreeMap<String, String>,
    tensors: &[Tensor<'_>],
) -> Result<Vec<u8>, StoreError> {
    let plan = plan(tensors)?;
    let mut out = header(metadata, &plan)?;
    let bytes = plan.iter().map(|planned| planned.stored_len).sum();
    out.try_reserve_exact(bytes)
        .map_err(|_| StoreError::OutOfMemory { bytes })?;
    write_all(&mut out, &[], &plan)
        .map_err(|error| StoreError::Unsupported(format!("{error}.")))?;
    Ok(out)
}

fn write_all(out: &mut impl Write, header: &[u8], plan: &[Planned<'_>]) -> io::Result<()> {
    out.write_all(header)?;
    plan.iter()
        .try_for_each(|planned| write_data(out, planned.tensor))
}

/// A tensor that was found writable, and its length in the file.
struct Planned<'a> {
    tensor: &'a Tensor<'a>,
    tag: &'static str,
    stored_len: usize,
}

/// Checks all tensors and puts them in the order of the file.
fn plan<'a>(tensors: &'a [Tensor<'a>]) -> Result<Vec<Planned<'a>>, StoreError> {
    let mut plan = tensors.iter().map(check).collect::<Result<Vec<_>, _>>()?;
    plan.sort_by_key(|planned| planned.tensor.name);
    for pair in plan.windows(2) {
        let name = pair[0].tensor.name;
        if name == pair[1].tensor.name {
            return Err(refusal(name, "appears twice"));
        }
    }
    // Stable, so names stay in order within one width.
    plan.sort_by_key(|planned| Reverse(planned.tensor.dtype.stored_bits()));
    Ok(plan)
}

fn check<'a>(tensor: &'a Tensor<'a>) -> Result<Planned<'a>, StoreError> {
    let refuse = |why: String| Err(refusal(tensor.name, &why));
    if tensor.name == METADATA {
        return refuse("has the name that the format reserves for metadata".into());
    }
    let Some(tag) = tensor.dtype.tag() else {
        return refuse(format!(
            "has dtype {}, which the format does not know",
            tensor.dtype.name()
        ));
    };
    if tensor.shape.len() > MAX_RANK {
        return refuse(format!(
            "has {} dimensions, and {MAX_RANK} are allowed",
            tensor.shape.len()
        ));
    }
    let needed = shape::checked_len(tensor.shape, tensor.dtype);
    let (Some(needed), Some(elements)) = (needed, shape::elements(tensor.shape)) else {
        return refuse(format!(
            "has shape {:?}, which has more bytes than memory can address",
            tensor.shape
        ));
    };
    if needed != tensor.data.len() {
        return refuse(format!(
            "of shape {:?} and dtype {} needs {needed} bytes, and {} were given",
            tensor.shape,
            tensor.dtype.name(),
            tensor.data.len()
        ));
    }
    let Some(stored_len) = tensor.dtype.stored_len(elements) else {
        return refuse(format!(
            "has {elements} elements of {} bits, which do not fill whole bytes",
            tensor.dtype.stored_bits()
        ));
    };
    Ok(Planned {
        tensor,
        tag,
        stored_len,
    })
}

fn refusal(name: &str, why: &str) -> StoreError {
    StoreError::Unsupported(format!("Cannot write tensor {}: it {why}.", quoted(name)))
}

/// The length of the header and its JSON, padded with spaces so that the data is aligned.
fn header(
    metadata: &BTreeMap<String, String>,
    plan: &[Planned<'_>],
) -> Result<Vec<u8>, StoreError> {
    let failed = |error: io::Error| {
        StoreError::Unsupported(format!("The header could not be put together: {error}."))
    };
    let mut out = vec![0; size_of::<u64>()];
    write_json(&mut out, metadata, plan).map_err(failed)?;
    out.resize(out.len().next_multiple_of(DATA_ALIGN), b' ');
    let len = (out.len() - size_of::<u64>()) as u64;
    if len > HEADER_CAP {
        return Err(StoreError::Unsupported(format!(
            "The names and metadata take a header of {len} bytes, and {HEADER_CAP} are allowed."
        )));
    }
    out[..size_of::<u64>()].copy_from_slice(&len.to_le_bytes());
    Ok(out)
}

fn write_json(
    out: &mut Vec<u8>,
    metadata: &BTreeMap<String, String>,
    plan: &[Planned<'_>],
) -> io::Result<()> {
    let mut separator = "{";
    if !metadata.is_empty() {
        write!(out, "{separator}\"{METADATA}\":")?;
        serde_json::to_writer(&mut *out, metadata)?;
        separator = ",";
    }
    let mut begin = 0;
    for planned in plan {
        let Tensor { name, shape, .. } = planned.tensor;
        let end = begin + planned.stored_len;
        out.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut *out, name)?;
        write!(out, ":{{\"dtype\":\"{}\",\"shape\":", planned.tag)?;
        serde_json::to_writer(&mut *out, shape)?;
        write!(out, ",\"data_offsets\":[{begin},{end}]}}")?;
        begin = end;
        separator = ",";
    }
    if separator == "{" {
        out.push(b'{');
    }
    out.push(b'}');
    Ok(())
}

fn write_data(out: &mut impl Write, tensor: &Tensor<'_>) -> io::Result<()> {
    if !tensor.dtype.is_packed() {
        return out.write_all(tensor.data);
    }
    let bits = tensor.dtype.stored_bits();
    let mut packed = vec![0; PACK_BLOCK / 8 * bits];
    for elements in tensor.data.chunks(PACK_BLOCK) {
        let packed = &mut packed[..elements.len() * bits / 8];
        pack::pack(tensor.dtype, elements, packed);
        out.write_all(packed)?;
    }
    Ok(())
}
