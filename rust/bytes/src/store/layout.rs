//! Whether the tensors of one file fill its data exactly: no name twice, no hole, no overlap, and
//! every size as the shape says.

use std::collections::HashMap;

use super::error::Problem;
use super::header::RawTensor;
use super::quote::quoted;
use crate::shape;

/// Sorts the tensors by where they lie, checks them, and returns the length of the data.
pub(crate) fn check(tensors: &mut [RawTensor]) -> Result<u64, Problem> {
    refuse_duplicates(tensors)?;
    // Empty tensors may share an offset with their successor; the end puts them first.
    tensors.sort_by_key(|tensor| (tensor.begin, tensor.end));
    let mut filled = 0;
    let mut before: Option<&RawTensor> = None;
    for tensor in tensors.iter() {
        check_place(tensor, filled, before)?;
        check_size(tensor)?;
        filled = tensor.end;
        before = Some(tensor);
    }
    Ok(filled)
}

/// Comes first: a name that is there twice also leaves a hole or an overlap, and saying so would
/// mislead.
fn refuse_duplicates(tensors: &[RawTensor]) -> Result<(), Problem> {
    let mut seen = HashMap::with_capacity(tensors.len());
    for tensor in tensors {
        if let Some(first) = seen.insert(&*tensor.name, tensor) {
            return Err(Problem::of_tensor(
                &tensor.name,
                format!(
                    "its header holds tensor {} twice, as {} and as {}",
                    quoted(&tensor.name),
                    describe(first),
                    describe(tensor)
                ),
            ));
        }
    }
    Ok(())
}

fn describe(tensor: &RawTensor) -> String {
    format!(
        "{} of shape {:?} at bytes {} to {}",
        tensor.dtype.tag().unwrap_or(tensor.dtype.name()),
        tensor.shape,
        tensor.begin,
        tensor.end
    )
}

fn check_place(tensor: &RawTensor, filled: u64, before: Option<&RawTensor>) -> Result<(), Problem> {
    let name = quoted(&tensor.name);
    let refuse = |text: String| Err(Problem::of_tensor(&tensor.name, text));
    if tensor.end < tensor.begin {
        return refuse(format!(
            "the data of tensor {name} ends at byte {}, before it begins at byte {}",
            tensor.end, tensor.begin
        ));
    }
    match before {
        _ if tensor.begin == filled => Ok(()),
        None => refuse(format!(
            "the data of tensor {name}, the first one, begins at byte {} instead of 0",
            tensor.begin
        )),
        Some(before) => refuse(format!(
            "the data of tensor {name} begins at byte {}, which {} the data of tensor {} that ends at \
             byte {filled}",
            tensor.begin,
            if tensor.begin < filled {
                "overlaps"
            } else {
                "leaves a hole after"
            },
            quoted(&before.name)
        )),
    }
}

fn check_size(tensor: &RawTensor) -> Result<(), Problem> {
    let name = quoted(&tensor.name);
    let refuse = |text: String| Err(Problem::of_tensor(&tensor.name, text));
    let too_large = || {
        refuse(format!(
            "tensor {name} of shape {:?} and dtype {} has more bytes than memory can address",
            tensor.shape,
            tensor.dtype.name()
        ))
    };
    if shape::checked_len(&tensor.shape, tensor.dtype).is_none() {
        return too_large();
    }
    let Some(elements) = shape::elements(&tensor.shape) else {
        return too_large();
    };
    let Some(needed) = tensor.dtype.stored_len(elements) else {
        return refuse(format!(
            "tensor {name} has {elements} elements of {} bits, which do not fill whole bytes",
            tensor.dtype.stored_bits()
        ));
    };
    let given = tensor.end - tensor.begin;
    if u64::try_from(needed) != Ok(given) {
        return refuse(format!(
            "tensor {name} of shape {:?} and dtype {} needs {needed} bytes, but its offsets enclose \
             {given}",
            tensor.shape,
            tensor.dtype.name()
        ));
    }
    Ok(())
}
