//! `Backend`: the object that speaks for an array library, asked by name.
//!
//! What each method means is said where they are declared, in `lazyparam.backends`.

use pyo3::call::PyCallArgs;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::device::{Device, device_of};
use crate::errors::Raise;
use crate::python;

/// The backend that serves a device, or whose array something is.
pub(crate) struct Backend<'py>(Bound<'py, PyAny>);

/// Who may still have the memory of an array, besides its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Anybody.
    Shared,
    /// Nobody refers to the object; what it shares memory with is not known.
    Sole,
    /// Nobody: the backend made it, with memory of its own.
    Ours,
}

impl<'py> Backend<'py> {
    /// The one that serves `device`.
    pub(crate) fn of(py: Python<'py>, device: &Device) -> PyResult<Self> {
        device.served_by(py).map(Self)
    }

    /// The same, once it has said that `device` can be used.
    pub(crate) fn ready(py: Python<'py>, device: &Device) -> PyResult<Self> {
        let backend = Self::of(py, device)?;
        backend.ask(intern!(py, "probe"), (device.clone(),))?;
        Ok(backend)
    }

    /// The one whose array `array` is.
    pub(crate) fn holding(array: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = array.py();
        python::BACKEND_HOLDING.get(py)?.call1((array,)).map(Self)
    }

    fn ask(
        &self,
        method: &Bound<'py, pyo3::types::PyString>,
        arguments: impl PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.call_method1(method, arguments)
    }

    fn says(&self, attribute: &Bound<'py, pyo3::types::PyString>) -> PyResult<bool> {
        self.0.getattr(attribute)?.is_truthy()
    }

    /// Run `work` in the context in which values are made on `device`.
    pub(crate) fn within<T>(
        &self,
        device: &Device,
        work: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        let py = self.0.py();
        let scope = self.ask(intern!(py, "scope"), (device.clone(),))?;
        if scope.is_none() {
            return work();
        }
        scope.call_method0(intern!(py, "__enter__"))?;
        let outcome = work();
        let exit = intern!(py, "__exit__");
        match &outcome {
            Ok(_) => scope.call_method1(exit, (py.None(), py.None(), py.None()))?,
            Err(error) => scope.call_method1(
                exit,
                (error.get_type(py), error.value(py), error.traceback(py)),
            )?,
        };
        outcome
    }

    /// Whether who gets an array can write to it.
    pub(crate) fn is_mutable(&self) -> PyResult<bool> {
        self.says(intern!(self.0.py(), "is_mutable"))
    }

    /// Whether its arrays record gradients.
    pub(crate) fn records_gradients(&self) -> PyResult<bool> {
        self.says(intern!(self.0.py(), "records_gradients"))
    }

    /// What functions of the library take for a dtype.
    pub(crate) fn native_dtype(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.ask(intern!(self.0.py(), "native_dtype"), (name,))
    }

    /// What functions of the library take for a device.
    pub(crate) fn native_device(&self, device: &Device) -> PyResult<Bound<'py, PyAny>> {
        self.ask(intern!(self.0.py(), "native_device"), (device.clone(),))
    }

    /// Refuse what is not an array of this library, with elements.
    pub(crate) fn admit(&self, array: &Bound<'py, PyAny>) -> PyResult<()> {
        let py = self.0.py();
        if self.ask(intern!(py, "owns"), (array,))?.is_truthy()? {
            return self.ask(intern!(py, "check"), (array,)).map(drop);
        }
        let expected: String = self.0.getattr(intern!(py, "array_type"))?.extract()?;
        Err(
            Raise::new("InitError", "this is not an array of the device's library")
                .expected(expected)
                .found(brief(array))
                .err(py),
        )
    }

    /// Shape and name of the dtype of an array.
    pub(crate) fn meta(&self, array: &Bound<'py, PyAny>) -> PyResult<(Vec<usize>, String)> {
        self.ask(intern!(self.0.py(), "meta"), (array,))?.extract()
    }

    /// Where an array lives.
    pub(crate) fn device_of(&self, array: &Bound<'py, PyAny>) -> PyResult<Device> {
        device_of(&self.ask(intern!(self.0.py(), "device_of"), (array,))?)
    }

    /// An equal array that any thread may read and nobody else can write.
    pub(crate) fn publish(
        &self,
        array: &Bound<'py, PyAny>,
        device: &Device,
        hold: Hold,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (sole, ours) = (hold != Hold::Shared, hold == Hold::Ours);
        self.ask(
            intern!(self.0.py(), "publish"),
            (array, device.clone(), sole, ours),
        )
    }

    /// The elements of a NumPy array on `device`.
    #[allow(clippy::wrong_self_convention)] // the name it has in Python
    pub(crate) fn from_host(
        &self,
        host: Bound<'py, PyAny>,
        device: &Device,
        sole: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let method = intern!(self.0.py(), "from_host");
        self.within(device, || self.ask(method, (host, device.clone(), sole)))
    }

    /// An array of `device` as one of NumPy, which may share its memory.
    pub(crate) fn to_host(
        &self,
        array: &Py<PyAny>,
        device: &Device,
    ) -> PyResult<Bound<'py, PyAny>> {
        let method = intern!(self.0.py(), "to_host");
        self.within(device, || self.ask(method, (array,)))
    }

    /// An array of another device of this library on `device`.
    pub(crate) fn to_device(
        &self,
        array: &Py<PyAny>,
        device: &Device,
    ) -> PyResult<Bound<'py, PyAny>> {
        let method = intern!(self.0.py(), "to_device");
        self.within(device, || self.ask(method, (array, device.clone())))
    }

    /// An array with another dtype.
    pub(crate) fn cast(&self, array: &Py<PyAny>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
        self.ask(intern!(self.0.py(), "cast"), (array, dtype))
    }

    /// The elements of an array in memory of their own.
    pub(crate) fn copy(&self, array: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.ask(intern!(self.0.py(), "copy"), (array,))
    }

    /// A leaf over the memory of an array of `device` that records gradients.
    pub(crate) fn leaf(&self, array: &Py<PyAny>, device: &Device) -> PyResult<Bound<'py, PyAny>> {
        let method = intern!(self.0.py(), "leaf");
        self.within(device, || self.ask(method, (array,)))
    }

    /// The gradient that a leaf has by now, or None.
    pub(crate) fn grad(&self, leaf: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.ask(intern!(self.0.py(), "grad"), (leaf,))
    }
}

/// The type of an object and a few characters of it, for a message.
fn brief(object: &Bound<'_, PyAny>) -> String {
    if object.is_none() {
        return "None".to_owned();
    }
    let kind = object
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string());
    if object.is_instance_of::<PyList>() {
        return format!("{kind} of {}", object.len().unwrap_or(0));
    }
    let Ok(text) = object.repr() else { return kind };
    let text = text.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{kind} {}...", &text[..end]),
        None => format!("{kind} {text}"),
    }
}
