//! `Buffer`: bytes of the core as a read-only Python buffer.

use std::ffi::{c_int, c_void};

use lazyparam_bytes::store::View;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Read-only memory of the core: a tensor's elements, in C order.
///
/// Supports the buffer protocol; arrays over it keep it alive.
#[pyclass(frozen, module = "lazyparam._core")]
pub(crate) struct Buffer {
    memory: Memory,
}

/// Who owns the bytes.
pub(crate) enum Memory {
    Owned(lazyparam_bytes::Buffer),
    Mapped(View),
    /// An array's own memory, which nobody can reach any more but through this buffer.
    Lent(PyBuffer<u8>),
}

impl Buffer {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory }
    }

    fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Owned(buffer) => buffer.as_slice(),
            Memory::Mapped(view) => view.as_slice(),
            Memory::Lent(buffer) => slice(buffer),
        }
    }
}

#[pymethods]
impl Buffer {
    /// The memory of an array, which the caller gives away: a flat buffer of bytes that nothing
    /// else refers to.
    #[staticmethod]
    fn lend(memory: PyBuffer<u8>) -> PyResult<Self> {
        contiguous(&memory)?;
        Ok(Self::new(Memory::Lent(memory)))
    }

    fn __len__(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether the bytes are those of a mapped file.
    #[getter]
    fn is_mapped(&self) -> bool {
        matches!(self.memory, Memory::Mapped(_))
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let bytes = slf.get().as_slice();
        let length = ffi::Py_ssize_t::try_from(bytes.len())
            .map_err(|_| PyBufferError::new_err("more bytes than a buffer can have"))?;
        // SAFETY: `view` comes from the buffer protocol, so it is a view to fill. The bytes do not
        // move and do not change while their owner lives, and the view keeps the owner alive.
        // `PyBuffer_FillInfo` refuses flags that ask for a writable view.
        let status = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.as_ptr().cast::<c_void>().cast_mut(),
                length,
                1,
                flags,
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

/// The bytes of a flat, read-only buffer, for as long as it is held.
pub(crate) fn bytes(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.readonly() {
        return Err(PyBufferError::new_err(
            "the bytes to write could change meanwhile",
        ));
    }
    contiguous(buffer)?;
    Ok(slice(buffer))
}

fn contiguous(buffer: &PyBuffer<u8>) -> PyResult<()> {
    if buffer.is_c_contiguous() && buffer.dimensions() == 1 {
        return Ok(());
    }
    Err(PyBufferError::new_err(
        "the bytes are not flat and contiguous",
    ))
}

/// The bytes of a buffer that has been found contiguous, and that nobody writes to.
fn slice(buffer: &PyBuffer<u8>) -> &[u8] {
    if buffer.len_bytes() == 0 {
        return &[];
    }
    // SAFETY: the buffer is held (by reference) for as long as the slice lives; it is contiguous,
    // so it starts at `buf_ptr` and is `len_bytes` long; any bytes are valid `u8`s. Nobody writes
    // to it: it is read-only, or its owner has given it away.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) }
}
