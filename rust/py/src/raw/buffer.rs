//! `Buffer`: bytes of the core as a read-only Python buffer.

use std::ffi::{c_int, c_void};

use lazyparam_bytes::store::{Pages, View};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Memory of the core: a tensor's elements, in C order. Read-only, unless it was made to be given
/// away to one owner.
///
/// Supports the buffer protocol; arrays over it keep it alive.
#[pyclass(frozen, module = "lazyparam._core")]
pub(crate) struct Buffer {
    memory: Memory,
    is_readonly: bool,
}

/// Who owns the bytes.
pub(crate) enum Memory {
    Owned(lazyparam_bytes::Buffer),
    Mapped(View),
    Private(Pages),
    /// An array's own memory, which nobody can reach any more but through this buffer.
    Lent(PyBuffer<u8>),
}

impl Memory {
    /// Whether nobody else can see what is written here.
    fn is_exclusive(&self) -> bool {
        matches!(self, Self::Owned(_) | Self::Private(_))
    }

    fn as_ptr(&self) -> *const u8 {
        match self {
            Self::Owned(buffer) => buffer.as_ptr(),
            Self::Mapped(view) => view.as_ptr(),
            Self::Private(pages) => pages.as_ptr(),
            Self::Lent(buffer) => slice(buffer).as_ptr(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Owned(buffer) => buffer.len(),
            Self::Mapped(view) => view.len(),
            Self::Private(pages) => pages.len(),
            Self::Lent(buffer) => buffer.len_bytes(),
        }
    }
}

impl Buffer {
    /// Memory that nobody writes to any more.
    pub(crate) fn new(memory: Memory) -> Self {
        Self {
            memory,
            is_readonly: true,
        }
    }

    /// Memory for an owner who cannot be kept from writing; read-only if others share it.
    pub(crate) fn writable(memory: Memory) -> Self {
        let is_readonly = !memory.is_exclusive();
        Self {
            memory,
            is_readonly,
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
        self.memory.len()
    }

    /// Whether the bytes are those of a mapped file.
    #[getter]
    fn is_mapped(&self) -> bool {
        matches!(self.memory, Memory::Mapped(_) | Memory::Private(_))
    }

    /// Whether nobody can write to the bytes.
    #[getter]
    fn is_readonly(&self) -> bool {
        self.is_readonly
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let this = slf.get();
        let length = ffi::Py_ssize_t::try_from(this.memory.len())
            .map_err(|_| PyBufferError::new_err("more bytes than a buffer can have"))?;
        // SAFETY: `view` comes from the buffer protocol, so it is a view to fill. The bytes do not
        // move while their owner lives, and the view keeps the owner alive. `PyBuffer_FillInfo`
        // refuses a writable view of what is read-only; of anything else this buffer is the only
        // owner, and makes no references to the bytes.
        let status = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                this.memory.as_ptr().cast::<c_void>().cast_mut(),
                length,
                c_int::from(this.is_readonly),
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
