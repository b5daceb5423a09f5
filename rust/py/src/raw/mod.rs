//! The one room of `unsafe` code: memory as buffers, and objects that Python reads without PyO3.

#![allow(unsafe_code)]

mod buffer;
mod member;
mod method;
mod slot;

pub(crate) use buffer::{Buffer, Memory, bytes};
pub(crate) use member::{Getter, Member, open_to_reads};
pub(crate) use method::{Ready, open_to_calls};
pub(crate) use slot::Slot;

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Whether `object` is the only reference to what it refers to.
pub(crate) fn is_sole(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` is a live reference, and the thread is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) == 1 }
}

/// The `__dict__` of `object`, if it keeps its attributes in one.
///
/// A `__getattr__` of its class, which might tell of somebody else's, is not asked.
pub(crate) fn dict_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let py = object.py();
    // SAFETY: `object` is a live reference, and the thread is attached; the result is a new
    // reference, or null and an exception.
    let own = unsafe {
        let own = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, own)
    };
    match own {
        // What the class says: `threading.local` has a dict for each thread.
        Ok(_) => Ok(object.getattr(intern!(py, "__dict__"))?.cast_into().ok()),
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Run `work` unless this thread is showing `object` already: what contains itself ends there.
pub(crate) fn showing<T>(
    object: &Bound<'_, PyAny>,
    work: impl FnOnce() -> PyResult<T>,
) -> PyResult<Option<T>> {
    // SAFETY: `object` is a live reference, and the thread is attached; what is entered is left
    // below, by the same thread.
    match unsafe { ffi::Py_ReprEnter(object.as_ptr()) } {
        0 => {}
        1 => return Ok(None),
        _ => return Err(PyErr::fetch(object.py())),
    }
    let outcome = work();
    // SAFETY: as above.
    unsafe { ffi::Py_ReprLeave(object.as_ptr()) };
    outcome.map(Some)
}
