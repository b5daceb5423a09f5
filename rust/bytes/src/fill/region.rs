//! Boxes of a parameter, and walking through one: from element to element of a target with strides.

use super::error::{InitError, tuple};

/// A box of a parameter: the part of it that a shard holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    start: Vec<usize>,
    shape: Vec<usize>,
}

impl Region {
    /// The box that begins at these coordinates and has this shape.
    pub fn new(start: impl Into<Vec<usize>>, shape: impl Into<Vec<usize>>) -> Self {
        Self {
            start: start.into(),
            shape: shape.into(),
        }
    }

    /// All of a parameter.
    pub fn whole(shape: &[usize]) -> Self {
        Self::new(vec![0; shape.len()], shape)
    }

    /// Where it begins.
    pub fn start(&self) -> &[usize] {
        &self.start
    }

    /// Its extent.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Refuses a box that is not inside this shape.
    pub(crate) fn check(&self, shape: &[usize]) -> Result<(), InitError> {
        let fits = |((start, len), dim): ((&usize, &usize), &usize)| {
            start.checked_add(*len).is_some_and(|end| end <= *dim)
        };
        let dimensions = [self.start.len(), self.shape.len()];
        if dimensions == [shape.len(); 2] && self.start.iter().zip(&self.shape).zip(shape).all(fits)
        {
            return Ok(());
        }
        Err(InitError::new("the box is not inside the parameter")
            .expecting(format!("a part of {}", tuple(shape)))
            .finding(format!("start {:?}, shape {:?}", self.start, self.shape)))
    }
}

/// The shape without its batch axes.
pub(crate) fn without(shape: &[usize], batch_axes: &[usize]) -> Result<Vec<usize>, InitError> {
    let sorted = batch_axes.windows(2).all(|pair| pair[0] < pair[1]);
    if !sorted || batch_axes.last().is_some_and(|&axis| axis >= shape.len()) {
        return Err(InitError::new("these are no batch axes")
            .expecting(format!("ascending axes of {}", tuple(shape)))
            .finding(format!("{batch_axes:?}")));
    }
    let kept = |axis: &usize| !batch_axes.contains(axis);
    Ok((0..shape.len())
        .filter(kept)
        .map(|axis| shape[axis])
        .collect())
}

/// One axis of a walk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dim {
    pub(crate) len: usize,
    /// From one element to the next, in C order of the slice.
    pub(crate) index_step: u64,
    /// From one element to the next, in elements of the target.
    pub(crate) offset_step: isize,
}

/// A batch axis: independent slices, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Batch {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) offset_step: isize,
}

/// Elements in a row: equally spaced in the slice and in the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) index: u64,
    pub(crate) index_step: u64,
    pub(crate) offset: isize,
    pub(crate) offset_step: isize,
    pub(crate) len: usize,
}

/// A box of a parameter, and where each of its elements lies in a target.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    batches: Vec<Batch>,
    /// Never empty; neighbours that amount to one longer axis are one.
    dims: Vec<Dim>,
    /// Index of the first element in its slice.
    first: u64,
    offset: isize,
    slices: usize,
    slice_len: usize,
    strides: Vec<isize>,
}

impl Walk {
    /// All arguments have been checked: the box fits the shape, and there is a stride for each axis.
    pub(crate) fn new(
        shape: &[usize],
        batch_axes: &[usize],
        region: &Region,
        offset: isize,
        strides: &[isize],
    ) -> Self {
        let mut batches = Vec::new();
        let mut dims: Vec<Dim> = Vec::new();
        let mut first = 0;
        let mut index_step = 1_u64;
        let empty = shape.contains(&0);
        for axis in (0..shape.len()).rev() {
            let (start, len) = (region.start[axis], region.shape[axis]);
            let offset_step = strides[axis];
            if batch_axes.contains(&axis) {
                batches.push(Batch {
                    start,
                    len,
                    offset_step,
                });
                continue;
            }
            first += start as u64 * index_step;
            let dim = Dim {
                len,
                index_step,
                offset_step,
            };
            match dims.last_mut() {
                _ if len == 1 => {}
                Some(inner) if inner.is_continued_by(dim) => inner.len *= len,
                _ => dims.push(dim),
            }
            if !empty {
                index_step *= shape[axis] as u64;
            }
        }
        if dims.is_empty() {
            dims.push(Dim {
                len: 1,
                index_step: 1,
                offset_step: 1,
            });
        }
        batches.reverse();
        dims.reverse();
        Self {
            slices: batches.iter().map(|batch| batch.len).product(),
            slice_len: dims.iter().map(|dim| dim.len).product(),
            batches,
            dims,
            first,
            offset,
            strides: strides.to_vec(),
        }
    }

    /// Elements of the target from one to the next along each axis.
    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Elements of the box in one slice.
    pub(crate) fn slice_len(&self) -> usize {
        self.slice_len
    }

    /// Elements of the box.
    pub(crate) fn len(&self) -> usize {
        self.slices * self.slice_len
    }

    /// The axes that are walked in each slice.
    pub(crate) fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Index of the first element of the box in its slice.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Number of slices.
    pub(crate) fn slices(&self) -> usize {
        self.slices
    }

    /// The coordinates of a slice of the box along the batch axes of the whole, and the offset of its first
    /// element.
    pub(crate) fn slice(&self, number: usize) -> (Vec<i64>, isize) {
        let mut rest = number;
        let mut offset = self.offset;
        let mut coordinates: Vec<i64> = self
            .batches
            .iter()
            .rev()
            .map(|batch| {
                let at = rest % batch.len;
                rest /= batch.len;
                offset += at as isize * batch.offset_step;
                (batch.start + at) as i64
            })
            .collect();
        coordinates.reverse();
        (coordinates, offset)
    }

    /// Calls `f` with the runs that make up the elements `from..to` of a slice of the box, in C order.
    pub(crate) fn runs(&self, offset: isize, from: usize, to: usize, mut f: impl FnMut(Run)) {
        let Some((inner, outer)) = self.dims.split_last() else {
            return;
        };
        let mut at = from;
        while at < to {
            let (mut rest, skipped) = (at / inner.len, at % inner.len);
            let mut run = Run {
                index: self.first + skipped as u64 * inner.index_step,
                index_step: inner.index_step,
                offset: offset + skipped as isize * inner.offset_step,
                offset_step: inner.offset_step,
                len: (inner.len - skipped).min(to - at),
            };
            for dim in outer.iter().rev() {
                let place = rest % dim.len;
                rest /= dim.len;
                run.index += place as u64 * dim.index_step;
                run.offset += place as isize * dim.offset_step;
            }
            f(run);
            at += run.len;
        }
    }
}

impl Dim {
    /// Whether `outer` goes on where this one ends, in the slice and in the target.
    fn is_continued_by(&self, outer: Dim) -> bool {
        // Where the box is empty, strides are whatever the caller gave.
        let end = self.offset_step.checked_mul(self.len as isize);
        outer.index_step == self.index_step * self.len as u64 && end == Some(outer.offset_step)
    }
}
