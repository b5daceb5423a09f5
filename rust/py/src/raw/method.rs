//! A method that gives what is there before PyO3 unpacks its arguments.

use std::ffi::CString;
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::PyClass;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyDict, PyTuple};

/// A class with a method that gives a value, which may be there already.
pub(crate) trait Ready: PyClass<Frozen = True> + Sync {
    /// What the method is called.
    const METHOD: &'static str;
    /// What the one that PyO3 has made is called afterwards.
    const WHOLE: &'static str;

    /// The value, if it is there. Runs no code of Python's.
    fn ready(&self) -> Option<&Py<PyAny>>;
}

/// Have the method of a class, called without arguments, give the value at once if it is there.
///
/// Unpacking optional arguments takes PyO3 as long as all the rest. In any other case this calls
/// the method that PyO3 has made.
pub(crate) fn open_to_calls<T: Ready>(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<T>();
    if class.hasattr(T::WHOLE)? {
        // Classes belong to the process, and this module may be made a second time.
        return Ok(());
    }
    let whole = class.getattr(T::METHOD)?;
    let signature: String = whole.getattr("__text_signature__")?.extract()?;
    let doc: String = whole.getattr("__doc__")?.extract()?;
    let doc = CString::new(format!("{}{signature}\n--\n\n{doc}", T::METHOD))?;
    // It has to outlive the class, which lives as long as the process.
    let method = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: CString::new(T::METHOD)?.into_raw(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: answer::<T>,
        },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: doc.into_raw(),
    }));
    // SAFETY: the type is alive, the definition lives for ever and its flags are those of its
    // function; the result is a new reference, or null and an exception.
    let descriptor = unsafe {
        let descriptor = ffi::PyDescr_NewMethod(class.as_type_ptr(), method);
        Bound::from_owned_ptr_or_err(py, descriptor)?
    };
    class.setattr(T::WHOLE, whole)?;
    class.setattr(T::METHOD, descriptor)
}

/// The method itself.
unsafe extern "C" fn answer<T: Ready>(
    object: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the descriptor calls this attached, with an instance of the class. What is ready is
    // alive as long as the instance is. There are `count` arguments, and as many more as there are
    // names, if those are not null; all are alive.
    unsafe {
        let py = Python::assume_attached();
        let this = Bound::ref_from_ptr(py, &object);
        if count == 0
            && names.is_null()
            && let Some(value) = this.cast_unchecked::<T>().get().ready()
        {
            return ffi::Py_NewRef(value.as_ptr());
        }
        let names = Bound::from_borrowed_ptr_or_opt(py, names)
            .map(|names| names.cast_into_unchecked::<PyTuple>());
        let argument = |at: usize| Bound::from_borrowed_ptr(py, *args.add(at));
        let ask = || {
            let count = usize::try_from(count)?;
            if count == 0 && names.is_none() {
                return this.call_method0(T::WHOLE);
            }
            let keywords = PyDict::new(py);
            for (at, name) in names.iter().flatten().enumerate() {
                keywords.set_item(name, argument(count + at))?;
            }
            let args = PyTuple::new(py, (0..count).map(argument))?;
            this.call_method(T::WHOLE, args, Some(&keywords))
        };
        ask().map_or_else(
            |error| {
                error.restore(py);
                ptr::null_mut()
            },
            Bound::into_ptr,
        )
    }
}
