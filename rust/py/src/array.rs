//! `Array`: an array object of any library as the core's `Value`.
//!
//! Everything about arrays is asked of the backend object that serves the device; this file names
//! no library.

use std::sync::Arc;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint as Store, StoreError};
use lazyparam_core::{Bell, Device as _, Patience, Plan, Value};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyWeakrefReference};

use crate::backend::{Backend, Hold};
use crate::checkpoint::Mode;
use crate::device::Device;
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
    hold: Hold,
}

/// One tensor of an open checkpoint.
#[derive(Clone)]
pub(crate) struct Read {
    pub(crate) store: Arc<Store>,
    pub(crate) entry: usize,
    pub(crate) mode: Mode,
}

impl Read {
    fn stored_dtype(&self) -> Option<Dtype> {
        let entry = self.store.entries().get(self.entry)?;
        Some(entry.dtype)
    }

    /// The bytes: mapped if that is wanted and can be, in pages of their own if they are to be
    /// writable.
    fn bring(&self, writable: bool, threads: usize) -> Result<Memory, StoreError> {
        let mapped = match self.mode {
            Mode::Copy => None,
            Mode::View if writable => self.store.pages(self.entry)?.map(Memory::Private),
            Mode::View => self.store.view(self.entry)?.map(Memory::Mapped),
        };
        match mapped {
            Some(memory) => Ok(memory),
            None => self.store.read(self.entry, threads).map(Memory::Owned),
        }
    }
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
            hold: Hold::Shared,
        }
    }

    /// What a function of the user's has given.
    fn given(object: Bound<'_, PyAny>, device: &Device) -> Self {
        let hold = if raw::is_sole(&object) {
            Hold::Sole
        } else {
            Hold::Shared
        };
        Self {
            object: object.unbind(),
            device: device.clone(),
            hold,
        }
    }

    /// What a backend has made, with memory of its own.
    fn made(object: Bound<'_, PyAny>, device: &Device) -> Self {
        Self {
            object: object.unbind(),
            device: device.clone(),
            hold: Hold::Ours,
        }
    }

    /// The same for a function of the user's, which is to reach nobody else's elements: a copy, if
    /// it could write to them.
    fn apart(self, backend: &Backend<'_>) -> PyResult<Self> {
        if self.hold == Hold::Ours || !backend.is_mutable()? {
            return Ok(self);
        }
        let copy = backend.within(&self.device, || backend.copy(&self.object))?;
        Ok(Self::made(copy, &self.device))
    }

    /// The planned value, its elements in memory of ours.
    fn over(
        backend: &Backend<'_>,
        memory: Memory,
        plan: &Plan<Self>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let buffer = if backend.is_mutable()? {
            Buffer::writable(memory)
        } else {
            Buffer::new(memory)
        };
        let host = host_array(buffer, &plan.shape, plan.dtype, py)?;
        let object = backend.from_host(host, &plan.device, true)?;
        Ok(Self::made(object, &plan.device))
    }

    /// The elements of an array of NumPy, which others may have, on `device`.
    pub(crate) fn from_host(host: Bound<'_, PyAny>, device: &Device) -> PyResult<Self> {
        let backend = Backend::ready(host.py(), device)?;
        let object = backend.from_host(host, device, false)?;
        if backend.is_mutable()? {
            Ok(Self::made(object, device))
        } else {
            // It may be the host array itself.
            Ok(Self::borrowed(object.unbind(), device.clone()))
        }
    }

    /// The data as an array of NumPy, which may share its memory.
    pub(crate) fn to_host<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Backend::of(py, &self.device)?.to_host(&self.object, &self.device)
    }
}

/// A NumPy array over memory of ours.
pub(crate) fn host_array<'py>(
    buffer: Buffer,
    dims: &[usize],
    dtype: Dtype,
    py: Python<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let buffer = Bound::new(py, buffer)?;
    let shape = PyTuple::new(py, dims)?;
    python::HOST_ARRAY
        .get(py)?
        .call1((buffer, shape, dtype.name()))
}

/// Refuse an array that is not as planned.
fn check<'py>(
    backend: &Backend<'py>,
    array: &Bound<'py, PyAny>,
    plan: &Plan<Array>,
) -> PyResult<()> {
    let differs = |what: &str, expected: &str, found: &str, remedy: &str| {
        let problem = format!("the value has another {what} than was declared");
        Err(Raise::new("InitError", problem)
            .expected(expected)
            .found(found)
            .remedy(remedy)
            .err(array.py()))
    };
    let (shape, name) = backend.meta(array)?;
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
    let found = backend.device_of(array)?;
    if found != plan.device {
        let (expected, found) = (plan.device.to_string(), found.to_string());
        return differs("device", &expected, &found, "Make it on plan.device.");
    }
    Ok(())
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
        let backend = Backend::ready(cx.py, &plan.device)?;
        let buffer = draw.fill(cx, &plan.shape, plan.dtype)?;
        Ok(Self::over(&backend, Memory::Owned(buffer), plan, cx.py)?)
    }

    fn read(read: &Read, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        let backend = Backend::ready(cx.py, &plan.device)?;
        let writable = backend.is_mutable()?;
        let memory = gate::detached(cx.py, || read.bring(writable, cx.threads))
            .map_err(|error| store_err(cx.py, error))?;
        let stored = read.stored_dtype().unwrap_or(plan.dtype);
        if stored == plan.dtype {
            return Ok(Self::over(&backend, memory, plan, cx.py)?);
        }
        let host = host_array(Buffer::new(memory), &plan.shape, stored, cx.py)?.unbind();
        let cast = Backend::of(cx.py, &Device::cpu())?.cast(&host, plan.dtype.name())?;
        let object = backend.from_host(cast, &plan.device, true)?;
        Ok(Self::made(object, &plan.device))
    }

    fn call(call: &Py<PyAny>, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        let backend = Backend::ready(cx.py, &plan.device)?;
        let told = plan::Plan::new(plan);
        let object = backend.within(&plan.device, || call.bind(cx.py).call1((told,)))?;
        Ok(Self::given(object, &plan.device))
    }

    fn apply(step: &Step, value: Self, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        let py = cx.py;
        let backend = Backend::of(py, &value.device)?;
        let array = match step {
            Step::Map(function) => {
                let value = value.apart(&backend)?;
                let map = || function.bind(py).call1((&value.object,));
                let object = backend.within(&value.device, map)?;
                // The function may give what it got: that is counted too.
                drop(value);
                Self::given(object, &plan.device)
            }
            Step::Cast(dtype) => {
                let cast = || backend.cast(&value.object, dtype.name());
                Self::made(backend.within(&value.device, cast)?, &plan.device)
            }
        };
        Ok(array)
    }

    fn settle(self, plan: &Plan<Self>, cx: Cx<'_>) -> Result<Self, Failure> {
        let py = cx.py;
        let device = plan.device.inner();
        let backend = Backend::of(py, &device)?;
        let array = self.object.bind(py);
        let published = backend.within(&device, || {
            backend.admit(array)?;
            check(&backend, array, plan)?;
            let published = backend.publish(array, &device, self.hold)?;
            if !published.is(array) {
                // An array may lie about itself, or change while somebody else holds it.
                check(&backend, &published, plan)?;
            }
            Ok(published)
        })?;
        Ok(Self::borrowed(published.unbind(), device))
    }

    fn share(&self, cx: Cx<'_>) -> Self {
        Self::borrowed(self.object.clone_ref(cx.py), self.device.clone())
    }

    fn duplicate(&self, cx: Cx<'_>) -> Result<Self, Failure> {
        let backend = Backend::of(cx.py, &self.device)?;
        let object = backend.within(&self.device, || {
            let copy = backend.copy(&self.object)?;
            backend.publish(&copy, &self.device, Hold::Ours)
        })?;
        Ok(Self::borrowed(object.unbind(), self.device.clone()))
    }

    fn to_device(&self, device: &Device, cx: Cx<'_>) -> Result<Self, Failure> {
        let py = cx.py;
        if *device == self.device {
            return Ok(Self::borrowed(self.object.clone_ref(py), device.clone()));
        }
        let target = Backend::ready(py, device)?;
        let object = if device.serves_like(&self.device) {
            target.to_device(&self.object, device)?
        } else {
            target.from_host(self.to_host(py)?, device, false)?
        };
        Ok(Self::made(object, device))
    }

    fn leaf(&self, cx: Cx<'_>) -> Result<Self, Failure> {
        let backend = Backend::of(cx.py, &self.device)?;
        if !backend.records_gradients()? {
            // Gradients are the business of the library's own transformations.
            return Ok(self.share(cx));
        }
        let leaf = backend.leaf(&self.object, &self.device)?;
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
