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

use pyo3::ffi;
use pyo3::prelude::*;

/// Whether `object` is the only reference to what it refers to.
pub(crate) fn is_sole(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: `object` is a live reference, and the thread is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) == 1 }
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
