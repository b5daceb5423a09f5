//! `Plan`: everything about one fill that is known before there is memory for it.

use super::content::Content;
use super::env::at_default;
use super::error::{InitError, tuple};
use super::init::Init;
use super::key::Key;
use super::region::{Region, without};
use crate::dtype::Dtype;
use crate::shape::{MAX_RANK, checked_len, elements};

/// A fill that has been checked: which values go into which box of which parameter.
///
/// It is a pure description. The values of a box depend on the initialiser, the key, the global shape and the
/// dtype, never on the box: filling it alone gives the same bits as that slice of the whole.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) content: Content,
    pub(crate) key: Key,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) batch_axes: Vec<usize>,
    pub(crate) region: Region,
    bytes: usize,
}

impl Plan {
    /// All of a parameter of this shape.
    pub fn new(init: &Init, key: &Key, shape: &[usize], dtype: Dtype) -> Result<Self, InitError> {
        Self::of_region(init, key, shape, dtype, &[], &Region::whole(shape))
    }

    /// A box of a parameter of this global shape.
    ///
    /// `batch_axes`, in ascending order, are those along which independent parameters are stacked: the slice
    /// at coordinates b along them is the parameter whose key is `key.child(b)` (a child for each axis).
    pub fn of_region(
        init: &Init,
        key: &Key,
        shape: &[usize],
        dtype: Dtype,
        batch_axes: &[usize],
        region: &Region,
    ) -> Result<Self, InitError> {
        region.check(shape)?;
        let slice = without(shape, batch_axes)?;
        let indexable = |dim: &usize| i64::try_from(*dim).is_ok();
        if shape.len() > MAX_RANK || elements(&slice).is_none() || !shape.iter().all(indexable) {
            return Err(InitError::new("this shape is too large")
                .expecting(format!("up to 2^63 elements and {MAX_RANK} dimensions"))
                .finding(tuple(shape)));
        }
        let Some(bytes) = checked_len(region.shape(), dtype) else {
            return Err(
                InitError::new("a tensor of this shape does not fit into memory").finding(format!(
                    "{} of {}",
                    tuple(region.shape()),
                    dtype.name()
                )),
            );
        };
        let content = at_default(|| Content::of(&init.resolve(&slice)?, dtype))?;
        Ok(Self {
            content,
            key: key.clone(),
            dtype,
            shape: shape.to_vec(),
            batch_axes: batch_axes.to_vec(),
            region: region.clone(),
            bytes,
        })
    }

    /// Bytes of the box.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The shape of the box.
    pub fn shape(&self) -> &[usize] {
        self.region.shape()
    }

    /// The dtype of the values.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Whether all bytes are zero, so that memory that is zero already needs no fill.
    pub fn is_zeros(&self) -> bool {
        match &self.content {
            Content::Repeat(element) => element.iter().all(|&byte| byte == 0),
            _ => false,
        }
    }

    /// Strides, in elements, of a C-contiguous array of the shape of the box.
    pub(crate) fn c_strides(&self) -> Vec<isize> {
        let mut step = 1;
        let mut strides: Vec<isize> = self
            .shape()
            .iter()
            .rev()
            .map(|&dim| {
                let stride = step;
                step *= dim.max(1) as isize;
                stride
            })
            .collect();
        strides.reverse();
        strides
    }
}
