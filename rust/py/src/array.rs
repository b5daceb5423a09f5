//! `Array`: an array object of any library as the core's `Value`.
//!
//! Everything about arrays is asked of the backend object that serves the device; this file names
//! no library.

use std::sync::Arc;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::Checkpoint as Store;
use lazyparam_core::{Bell, Device as _, Patience, Plan, Value};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyWeakrefReference};

use crate::checkpoint::Mode;
use crate::device::{Device, device_of};
use crate::draw::Draw;
use crate::errors::{Failure, Raise, shape_text, store_err};
use crate::gate::{self, Cx};
use crate::plan;
use crate::python;
use crate::raw::{self, Buffer, Memory};

/// An array and the device it is on.
pub(crate) struct Array {
    pub(crate) object: Py<PyAny>,
    pub(crate) device: Device,
    /// Nobody else refers to the object.
    sole: bool,
}

/// One tensor of an open checkpoint.
#[derive(Clone)]
pub(crate) struct Read {
    pub(crate) store: Arc<Store>,
    pub(crate) entry: usize,
    pub(crate) mode: Mode,
}

/// One transformation of a value.
pub(crate) enum Step {
    /// A function of the user's: array in, array out.
    Map(Py<PyAny>),
    /// To another dtype.
    Cast(Dtype),
}

/// The Python object that stands for a shared state while that is being pickled; see `pickle`.
#[derive(Default)]
pub(crate) struct Tag(pub(crate) std::sync::Mutex<Option<Py<PyWeakrefReference>>>);

impl Array {
    /// An array that its maker, or anybody, may still hold on to.
    pub(crate) fn borrowed(object: Py<PyAny>, device: Device) -> Self {
        Self {
            object,
            device,
            sole: false,
        }
    }

    fn made(object: Bound<'_, PyAny>, device: &Device) -> Self {
        let sole = raw::is_sole(&object);
        Self {
            object: object.unbind(),
            device: device.clone(),
            sole,
        }
    }

    fn over(
        memory: Memory,
        dims: &[usize],
        dtype: Dtype,
        device: &Device,
        cx: Cx<'_>,
    ) -> PyResult<Self> {
        let py = cx.py;
        let buffer = Bound::new(py, Buffer::new(memory))?;
        let shape = PyTuple::new(py, dims)?;
        let host = python::HOST_ARRAY
            .get(py)?
            .call1((buffer, shape, dtype.name()))?;
        let object = device
            .served_by(py)?
            .call_method1("from_host", (host, device.clone()))?;
        Ok(Self::made(object, device))
    }
}

/// The backend that serves `device`, ready to use it.
fn ready_backend<'py>(py: Python<'py>, device: &Device) -> PyResult<Bound<'py, PyAny>> {
    let backend = device.served_by(py)?;
    backend.call_method1("probe", (device.clone(),))?;
    Ok(backend)
}

/// Run the user's `function` on `argument` in the context that the backend wants for `device`.
fn in_scope<'py>(
    backend: &Bound<'py, PyAny>,
    device: &Device,
    function: &Py<PyAny>,
    argument: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = backend.py();
    let scope = backend.call_method1("scope", (device.clone(),))?;
    if scope.is_none() {
        return function.bind(py).call1(argument);
    }
    scope.call_method0("__enter__")?;
    let outcome = function.bind(py).call1(argument);
    let none = py.None();
    match &outcome {
        Ok(_) => scope.call_method1("__exit__", (&none, &none, &none))?,
        Err(error) => scope.call_method1(
            "__exit__",
            (error.get_type(py), error.value(py), error.traceback(py)),
        )?,
    };
    outcome
}

/// Refuse what is not an array of the backend's library.
pub(crate) fn owned_by(backend: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>) -> PyResult<()> {
    if backend.call_method1("owns", (array,))?.is_truthy()? {
        return Ok(());
    }
    let expected: String = backend.getattr("array_type")?.extract()?;
    Err(
        Raise::new("InitError", "this is not an array of the device's library")
            .expected(expected)
            .found(brief(array))
            .err(array.py()),
    )
}

/// Shape and name of the dtype of an array.
pub(crate) fn meta_of(
    backend: &Bound<'_, PyAny>,
    array: &Bound<'_, PyAny>,
) -> PyResult<(Vec<usize>, String)> {
    backend.call_method1("meta", (array,))?.extract()
}

/// Refuse an array that is not as planned.
fn check(backend: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>, plan: &Plan<Array>) -> PyResult<()> {
    let differs = |what: &str, expected: &str, found: &str, remedy: &str| {
        let problem = format!("the value has another {what} than was declared");
        Err(Raise::new("InitError", problem)
            .expected(expected)
            .found(found)
            .remedy(remedy)
            .err(array.py()))
    };
    let (shape, name) = meta_of(backend, array)?;
    if *shape != *plan.shape {
        let remedy = "An initialiser makes plan.shape; a mapper that changes the shape says so: \
                      init_mapper(f, shape=...), load_mapper(f, stored_shape=...).";
        return differs(
            "shape",
            &shape_text(&plan.shape),
            &shape_text(&shape),
            remedy,
        );
    }
    if Dtype::from_name(&name) != Some(plan.dtype) {
        let remedy = "An initialiser makes plan.dtype; a mapper that changes the dtype says so: \
                      init_mapper(f, dtype=...).";
        return differs("dtype", plan.dtype.name(), &name, remedy);
    }
    let found = device_of(&backend.call_method1("device_of", (array,))?)?;
    if found != plan.device {
        let (expected, found) = (plan.device.to_string(), found.to_string());
        return differs("device", &expected, &found, "Make it on plan.device.");
    }
    Ok(())
}

/// The data of `value` as a host array of the backend that serves `device`.
pub(crate) fn to_host<'py>(value: &Array, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    value
        .device
        .served_by(py)?
        .call_method1("to_host", (&value.object,))
}

impl Value for Array {
    type Cx<'a> = Cx<'a>;
    type Dtype = Dtype;
    type Device = Device;
    type Draw = Draw;
    type Read = Read;
    type Call = Py<PyAny>;
    type Step = Step;
    type Tag = Tag;
    type Error = Failure;

    fn draw(draw: &Draw, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        ready_backend(cx.py, &plan.device)?;
        let buffer = draw.fill(cx, &plan.shape, plan.dtype)?;
        Ok(Self::over(
            Memory::Owned(buffer),
            &plan.shape,
            plan.dtype,
            &plan.device,
            cx,
        )?)
    }

    fn read(read: &Read, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        ready_backend(cx.py, &plan.device)?;
        let memory = gate::detached(cx.py, || {
            let view = match read.mode {
                Mode::View => read.store.view(read.entry)?,
                Mode::Copy => None,
            };
            match view {
                Some(view) => Ok(Memory::Mapped(view)),
                None => read.store.read(read.entry, cx.threads).map(Memory::Owned),
            }
        })
        .map_err(|error| store_err(cx.py, error))?;
        Ok(Self::over(
            memory,
            &plan.shape,
            plan.dtype,
            &plan.device,
            cx,
        )?)
    }

    fn call(call: &Py<PyAny>, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        let backend = ready_backend(cx.py, &plan.device)?;
        let told = plan::Plan::new(plan);
        let object = in_scope(&backend, &plan.device, call, (told,))?;
        Ok(Self::made(object, &plan.device))
    }

    fn apply(step: &Step, value: Self, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        let py = cx.py;
        let backend = value.device.served_by(py)?;
        let object = match step {
            Step::Map(function) => {
                in_scope(&backend, &value.device, function, (value.object.bind(py),))?
            }
            Step::Cast(dtype) => backend.call_method1("cast", (&value.object, dtype.name()))?,
        };
        drop(value);
        Ok(Self::made(object, &plan.device))
    }

    fn settle(self, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        let py = cx.py;
        let device = plan.device.inner();
        let backend = device.served_by(py)?;
        let array = self.object.bind(py);
        owned_by(&backend, array)?;
        check(&backend, array, plan)?;
        let published = backend.call_method1("publish", (array, device.clone(), self.sole))?;
        if !published.is(array) {
            // An array may lie about itself, or change while somebody else holds it.
            check(&backend, &published, plan)?;
        }
        Ok(Self::borrowed(published.unbind(), device))
    }

    fn share(&self, cx: Cx<'_>) -> Self {
        Self::borrowed(self.object.clone_ref(cx.py), self.device.clone())
    }

    fn duplicate(&self, cx: Cx<'_>) -> Result<Self, Failure> {
        let backend = self.device.served_by(cx.py)?;
        let copy = backend.call_method1("copy", (&self.object,))?;
        let object = backend.call_method1("publish", (copy, self.device.clone(), true))?;
        Ok(Self::borrowed(object.unbind(), self.device.clone()))
    }

    fn to_device(&self, device: &Device, cx: Cx<'_>) -> Result<Self, Failure> {
        let py = cx.py;
        if *device == self.device {
            return Ok(Self::borrowed(self.object.clone_ref(py), device.clone()));
        }
        let target = ready_backend(py, device)?;
        let object = if device.serves_like(&self.device) {
            target.call_method1("to_device", (&self.object, device.clone()))?
        } else {
            target.call_method1("from_host", (to_host(self, py)?, device.clone()))?
        };
        Ok(Self::made(object, device))
    }

    fn leaf(&self, cx: Cx<'_>) -> Result<Self, Failure> {
        let leaf = self
            .device
            .served_by(cx.py)?
            .call_method1("leaf", (&self.object,))?;
        Ok(Self::borrowed(leaf.unbind(), self.device.clone()))
    }

    fn can_train(dtype: &Dtype) -> bool {
        use lazyparam_bytes::Kind;
        matches!(dtype.kind(), Kind::Float | Kind::Complex)
    }

    fn share_call(call: &Py<PyAny>, cx: Cx<'_>) -> Py<PyAny> {
        call.clone_ref(cx.py)
    }

    fn share_step(step: &Step, cx: Cx<'_>) -> Step {
        match step {
            Step::Map(function) => Step::Map(function.clone_ref(cx.py)),
            Step::Cast(dtype) => Step::Cast(*dtype),
        }
    }

    fn nap(mut cx: Cx<'_>, bell: &Bell) {
        Patience::nap(&mut cx, bell);
    }

    fn poll(mut cx: Cx<'_>) -> Result<(), Failure> {
        Patience::poll(&mut cx)
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
