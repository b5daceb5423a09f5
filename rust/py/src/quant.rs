//! Quantisation of host arrays; see `lazyparam.quant`.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use lazyparam_bytes::quant::{self, Crew, Plan, QuantError, Scheme};
use lazyparam_bytes::{Buffer, Dtype, OutOfMemory};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::dtype::dtype_of;
use crate::errors::Raise;
use crate::{gate, python, raw};

/// How long the work goes on before signals are looked at.
const SLICE: Duration = Duration::from_millis(50);

/// A scheme as Python has it: its name, the extents of a block, and what scales are stored in.
type Parts<'py> = (String, Option<Vec<usize>>, Bound<'py, PyAny>);

/// The shapes of values and scales for an array of this shape and dtype, and the dtype of the scales.
#[pyfunction]
pub(crate) fn quant_layout<'py>(
    py: Python<'py>,
    scheme: Parts<'py>,
    shape: Vec<usize>,
    dtype: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)> {
    let (plan, _) = planned(py, scheme, &shape, dtype)?;
    Ok((
        PyTuple::new(py, plan.values_shape())?,
        PyTuple::new(py, plan.scales_shape())?,
    ))
}

/// The largest magnitude of each block of an array, as a flat array of float32.
#[pyfunction]
pub(crate) fn quant_absmax<'py>(
    py: Python<'py>,
    scheme: Parts<'py>,
    shape: Vec<usize>,
    dtype: &Bound<'py, PyAny>,
    elements: PyBuffer<u8>,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let (plan, _) = planned(py, scheme, &shape, dtype)?;
    let elements = raw::bytes(&elements)?;
    let found = worked(py, threads, |crew| quant::absmax(&plan, elements, crew))?;
    let mut buffer = zeroed(found.len() * 4)?;
    for (bytes, number) in buffer.as_mut_slice().chunks_exact_mut(4).zip(found) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    array(py, buffer, plan.scales_shape(), "float32")
}

/// Values and scales of an array; `absmax`, flat bytes of float32, takes the place of what is found.
#[pyfunction]
pub(crate) fn quantize<'py>(
    py: Python<'py>,
    scheme: Parts<'py>,
    shape: Vec<usize>,
    dtype: &Bound<'py, PyAny>,
    elements: PyBuffer<u8>,
    absmax: Option<PyBuffer<u8>>,
    threads: Option<usize>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let (plan, scale) = planned(py, scheme, &shape, dtype)?;
    let elements = raw::bytes(&elements)?;
    let absmax: Option<Vec<f32>> = match &absmax {
        None => None,
        Some(buffer) => {
            let numbers = raw::bytes(buffer)?.as_chunks::<4>().0.iter();
            Some(numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect())
        }
    };
    let (mut values, mut scales) = (zeroed(plan.values_len())?, zeroed(plan.scales_len())?);
    worked(py, threads, |crew| {
        quant::quantize(
            &plan,
            elements,
            absmax.as_deref(),
            values.as_mut_slice(),
            scales.as_mut_slice(),
            crew,
        )
    })?;
    let integer = if plan.is_signed() { "int8" } else { "uint8" };
    Ok((
        array(py, values, plan.values_shape(), integer)?,
        array(py, scales, plan.scales_shape(), scale.name())?,
    ))
}

/// The array that values and scales, flat bytes, stand for.
#[pyfunction]
pub(crate) fn dequantize<'py>(
    py: Python<'py>,
    scheme: Parts<'py>,
    shape: Vec<usize>,
    dtype: &Bound<'py, PyAny>,
    values: PyBuffer<u8>,
    scales: PyBuffer<u8>,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let (plan, _) = planned(py, scheme, &shape, dtype)?;
    let (values, scales) = (raw::bytes(&values)?, raw::bytes(&scales)?);
    let mut elements = zeroed(plan.elements_len())?;
    worked(py, threads, |crew| {
        quant::dequantize(&plan, values, scales, elements.as_mut_slice(), crew)
    })?;
    array(py, elements, &shape, dtype_of(dtype)?.name())
}

/// The values of the codes of NF4.
#[pyfunction]
pub(crate) fn nf4_table() -> [f32; 16] {
    quant::NF4
}

/// The plan, and what scales are stored in.
fn planned(
    py: Python<'_>,
    (name, block, scale): Parts<'_>,
    shape: &[usize],
    dtype: &Bound<'_, PyAny>,
) -> PyResult<(Plan, Dtype)> {
    let (scale, dtype) = (dtype_of(&scale)?, dtype_of(dtype)?);
    Scheme::from_parts(&name, block, scale)
        .and_then(|scheme| Plan::new(&scheme, shape, dtype))
        .map(|plan| (plan, scale))
        .map_err(|error| quant_err(py, &error))
}

/// What `work` gives. It runs detached, and ends early if a signal handler raises.
fn worked<T: Send>(
    py: Python<'_>,
    threads: Option<usize>,
    work: impl FnOnce(Crew<'_>) -> Result<T, QuantError> + Send,
) -> PyResult<T> {
    let threads = threads.unwrap_or_else(gate::processors).max(1);
    let (outcome, raised) = gate::detached(py, || {
        let raised = RefCell::new(None);
        let until = Cell::new(Instant::now() + SLICE);
        let is_wanted = || {
            if Instant::now() >= until.get() {
                if let Some(Err(error)) = gate::attached(|py| py.check_signals()) {
                    raised.replace(Some(error));
                    return false;
                }
                until.set(Instant::now() + SLICE);
            }
            true
        };
        let outcome = work(Crew::asking(threads, &is_wanted));
        (outcome, raised.into_inner())
    });
    match (outcome, raised) {
        (_, Some(error)) => Err(error),
        (outcome, None) => outcome.map_err(|error| quant_err(py, &error)),
    }
}

fn zeroed(len: usize) -> PyResult<Buffer> {
    Buffer::zeroed(len).map_err(|refused: OutOfMemory| PyMemoryError::new_err(refused.to_string()))
}

/// A read-only NumPy array over memory of ours.
fn array<'py>(
    py: Python<'py>,
    buffer: Buffer,
    shape: &[usize],
    dtype: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let buffer = Bound::new(py, raw::Buffer::new(raw::Memory::Owned(buffer)))?;
    let shape = PyTuple::new(py, shape)?;
    python::HOST_ARRAY.get(py)?.call1((buffer, shape, dtype))
}

/// The exception for what is wrong with a scheme or an array.
fn quant_err(py: Python<'_>, error: &QuantError) -> PyErr {
    let parts = error.parts();
    let mut raise = Raise::new("QuantizeError", parts.problem);
    if let Some(expected) = parts.expected {
        raise = raise.expected(expected);
    }
    if let Some(found) = parts.found {
        raise = raise.found(found);
    }
    if let Some(remedy) = parts.remedy {
        raise = raise.remedy(format!("{remedy}."));
    }
    raise.err(py)
}
