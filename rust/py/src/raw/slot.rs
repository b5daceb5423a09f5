//! `Slot`: room for one Python object inside a class of ours, at the address that a member
//! descriptor reads.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

/// An owned reference that is published once. Empty is null, as member descriptors have it.
///
/// A descriptor that reads the address takes a reference of its own while the object that the
/// slot is in is alive, so publication is the only synchronisation there is.
#[derive(Default)]
pub(crate) struct Slot(AtomicPtr<ffi::PyObject>);

// A reference to the pointer is handed out as one to a `Py`.
const _: () = assert!(size_of::<Py<PyAny>>() == size_of::<*mut ffi::PyObject>());
const _: () = assert!(align_of::<Py<PyAny>>() == align_of::<*mut ffi::PyObject>());

impl Slot {
    /// Where the pointer is.
    pub(super) fn address(&self) -> usize {
        ptr::from_ref(&self.0) as usize
    }

    /// Show the collector the one reference that is owned here; takes no lock.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(lazyparam_core::Slot::get(self))
    }

    /// Give up what is here: the object that the slot is in is garbage.
    pub(crate) fn clear(&self) {
        let object = self.0.swap(ptr::null_mut(), Ordering::AcqRel);
        if !object.is_null() {
            // SAFETY: the reference was owned by the slot, which has just let go of it. Nobody
            // but the collector can reach the slot any more, so no borrow of it is about.
            drop(unsafe { take(object) });
        }
    }
}

impl lazyparam_core::Slot<Py<PyAny>> for Slot {
    fn get(&self) -> Option<&Py<PyAny>> {
        let object = self.0.load(Ordering::Acquire);
        if object.is_null() {
            return None;
        }
        // SAFETY: `Py` is transparent over a non-null pointer (its size is asserted above). The
        // pointer has been published and is a live, owned reference that is not written again
        // before the slot goes or is found to be garbage, when nobody borrows from it.
        Some(unsafe { &*self.0.as_ptr().cast_const().cast::<Py<PyAny>>() })
    }

    fn publish(&self, value: Py<PyAny>) -> &Py<PyAny> {
        let object = value.into_ptr();
        // Without it every other thread's read would have to lock the object that holds the slot.
        // SAFETY: `object` is a live reference, and whoever publishes is attached.
        #[cfg(all(Py_GIL_DISABLED, Py_3_14, not(Py_LIMITED_API)))]
        unsafe {
            ffi::PyUnstable_EnableTryIncRef(object);
        }
        let published =
            self.0
                .compare_exchange(ptr::null_mut(), object, Ordering::AcqRel, Ordering::Acquire);
        if published.is_err() {
            // SAFETY: the reference is the one taken out of `value`.
            drop(unsafe { take(object) });
        }
        // SAFETY: as in `get`: one way or the other, an object is there now.
        unsafe { &*self.0.as_ptr().cast_const().cast::<Py<PyAny>>() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The reference that `object` is.
///
/// # Safety
///
/// `object` is an owned reference that nobody else gives back.
unsafe fn take(object: *mut ffi::PyObject) -> Py<PyAny> {
    // SAFETY: `Py` is transparent over this pointer (its size is asserted above), and stands for
    // a reference that it owns. Unlike `Py::from_owned_ptr` this asks for no proof of being
    // attached, which the drop of a class's contents has not at hand.
    unsafe { std::mem::transmute::<*mut ffi::PyObject, Py<PyAny>>(object) }
}
