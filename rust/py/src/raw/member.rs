//! Member descriptors: what Python reads without a call, of our classes and of its own.

use std::ffi::{CStr, c_int, c_void};

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pyclass::PyClass;
use pyo3::types::PyType;

use super::Slot;
use crate::python;

/// The method that answers for attributes that are not there; see [`open_to_reads`].
const FALLBACK: &str = "_missing";

/// Give the class of `probe` an attribute `name` that reads `slot`, one of its fields.
///
/// From Python 3.12 on it is a member descriptor: once the slot is full the interpreter reads it in
/// line, like an attribute in `__slots__`. While it is empty there is no such attribute, and the
/// class's method `_missing(name)` is asked, which becomes its `__getattr__`. That is set on the
/// type after it has been made, because a `__getattr__` of PyO3's would replace the one way of
/// looking attributes up that the interpreter knows how to skip. Python 3.11 knows how to skip only
/// types without `__getattr__`, so there a getter reads the slot and calls the method itself.
pub(crate) fn open_to_reads<T: PyClass>(
    probe: &Bound<'_, T>,
    slot: &Slot,
    name: &'static CStr,
    doc: &'static CStr,
) -> PyResult<()> {
    let py = probe.py();
    let class = probe.as_any().get_type();
    let attribute = name.to_string_lossy();
    if class.hasattr(&*attribute)? {
        // Classes belong to the process, and this module may be made a second time.
        return Ok(());
    }
    let offset = slot.address() - probe.as_ptr() as usize;
    let target = class.as_type_ptr();
    let descriptor = if py.version_info() >= (3, 12) {
        class.setattr("__getattr__", class.getattr(FALLBACK)?)?;
        // It has to outlive the class, which lives as long as the process.
        let member = Box::leak(Box::new(ffi::PyMemberDef {
            name: name.as_ptr(),
            type_code: ffi::Py_T_OBJECT_EX,
            offset: ffi::Py_ssize_t::try_from(offset)?,
            flags: ffi::Py_READONLY,
            doc: doc.as_ptr(),
        }));
        // SAFETY: the type is alive, the definition lives for ever, and every instance has a
        // pointer to an object, or null, at the offset: the layout of a class is always the same.
        unsafe { ffi::PyDescr_NewMember(target, member) }
    } else {
        let getter = Box::leak(Box::new(ffi::PyGetSetDef {
            name: name.as_ptr(),
            get: Some(read_or_ask),
            set: None,
            doc: doc.as_ptr(),
            closure: Box::into_raw(Box::new(Place { offset, name })).cast::<c_void>(),
        }));
        // SAFETY: the type is alive, the definition and its closure live for ever.
        unsafe { ffi::PyDescr_NewGetSet(target, getter) }
    };
    // SAFETY: both functions give a new reference, or null and an exception.
    let descriptor = unsafe { Bound::from_owned_ptr_or_err(py, descriptor)? };
    class.setattr(&*attribute, descriptor)?;
    if class.hasattr("__getattr__")? {
        class.delattr(FALLBACK)?;
    }
    Ok(())
}

/// What the getter of Python 3.11 goes by.
struct Place {
    offset: usize,
    name: &'static CStr,
}

/// The object in the slot of `object`; an empty one is for the class's fallback.
unsafe extern "C" fn read_or_ask(
    object: *mut ffi::PyObject,
    closure: *mut c_void,
) -> *mut ffi::PyObject {
    // SAFETY: the descriptor calls this with an instance of the class, which has a slot at the
    // offset, and with the closure that it was made with, which lives for ever. Slots are read
    // atomically, and what is in one is alive as long as the instance is.
    unsafe {
        let place = &*closure.cast::<Place>();
        let slot = &*object.byte_add(place.offset).cast::<Slot>();
        match lazyparam_core::Slot::get(slot) {
            Some(value) => ffi::Py_NewRef(value.as_ptr()),
            None => ffi::PyObject_CallMethod(
                object,
                c"_missing".as_ptr(),
                c"s".as_ptr(),
                place.name.as_ptr(),
            ),
        }
    }
}

/// What reads an attribute of the instances of a type: its descriptor, called without a look-up.
pub(crate) struct Getter {
    descriptor: Py<PyAny>,
    get: ffi::descrgetfunc,
}

impl Getter {
    /// `descriptor`, if it is one of Python's own, which check what they are called with.
    pub(crate) fn of(descriptor: &Bound<'_, PyAny>) -> Option<Self> {
        let py = descriptor.py();
        let kind = descriptor.get_type();
        let is_pythons = [&python::MEMBER, &python::GETSET]
            .iter()
            .any(|own| own.get(py).is_ok_and(|own| kind.is(own)));
        if !is_pythons {
            return None;
        }
        // SAFETY: the type is alive, and this slot of it is of this type, or null.
        let get = unsafe {
            let get = ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_descr_get);
            std::mem::transmute::<*mut c_void, Option<ffi::descrgetfunc>>(get)?
        };
        Some(Self {
            descriptor: descriptor.clone().unbind(),
            get,
        })
    }

    /// The attribute of `instance`; an error if there is none, or it is of another type.
    pub(crate) fn read<'py>(&self, instance: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: all references are alive. The descriptor itself checks the type of the instance,
        // and gives a new reference, or null and an exception.
        unsafe {
            let kind = ffi::Py_TYPE(instance.as_ptr());
            let found = (self.get)(self.descriptor.as_ptr(), instance.as_ptr(), kind.cast());
            Bound::from_owned_ptr_or_err(instance.py(), found)
        }
    }
}

/// A slot that a class of the user's declares in `__slots__`, by its descriptor.
pub(crate) struct Member {
    /// The class that declares it.
    owner: Py<PyType>,
    getter: Getter,
    set: ffi::descrsetfunc,
}

impl Member {
    /// `descriptor`, if it is that of a slot.
    pub(crate) fn of(descriptor: &Bound<'_, PyAny>) -> Option<Self> {
        let kind = descriptor.get_type();
        if !kind.is(python::MEMBER.get(descriptor.py()).ok()?) {
            return None;
        }
        // SAFETY: the type is alive, and this slot of it is of this type, or null.
        let set = unsafe {
            let set = ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_descr_set);
            std::mem::transmute::<*mut c_void, Option<ffi::descrsetfunc>>(set)?
        };
        let owner = descriptor.getattr("__objclass__").ok()?;
        Some(Self {
            owner: owner.cast_into::<PyType>().ok()?.unbind(),
            getter: Getter::of(descriptor)?,
            set,
        })
    }

    /// What is in the slot of `instance`; an error if its class does not have it.
    pub(crate) fn read<'py>(
        &self,
        instance: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.getter.read(instance) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_instance_of::<PyAttributeError>(instance.py()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Put `value` into the slot of `instance`.
    pub(crate) fn write(
        &self,
        instance: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        // SAFETY: all references are alive. The descriptor itself checks that the instance has
        // the slot, and takes a reference of its own to the value.
        let status: c_int = unsafe {
            (self.set)(
                self.getter.descriptor.as_ptr(),
                instance.as_ptr(),
                value.as_ptr(),
            )
        };
        if status == 0 {
            return Ok(());
        }
        Err(PyErr::fetch(instance.py()))
    }

    /// Whether `instance` has the slot.
    pub(crate) fn is_in(&self, instance: &Bound<'_, PyAny>) -> bool {
        // SAFETY: both are types that are alive; the question runs no code of the user's.
        unsafe {
            let kind = ffi::Py_TYPE(instance.as_ptr());
            kind == self.owner.as_ptr().cast()
                || ffi::PyType_IsSubtype(kind, self.owner.as_ptr().cast()) != 0
        }
    }

    /// The slot's own descriptor.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.owner)?;
        visit.call(&self.getter.descriptor)
    }
}
