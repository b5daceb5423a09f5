//! `Param`: a handle of the core as a Python class. Each method translates and delegates.

use std::sync::{Arc, Mutex, PoisonError};

use lazyparam_bytes::{Dtype, shape};
use lazyparam_core::{Change, Lazy, Mappers, Origin, Param as Core, Part, Plan, Recipe, Shape};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::array::{Array, Read, Step, backend, to_host};
use crate::checkpoint::{Checkpoint, Mode};
use crate::device::{Device, device_of};
use crate::dtype::dtype_of;
use crate::errors::{Failure, Raise, located, shape_text};
use crate::gate::Cx;
use crate::init::{Draw, Init};
use crate::pickle::{self, CopyMemo};
use crate::python;

/// A lazy, shareable model parameter.
///
/// It knows its shape, dtype, device and trainability before it exists, and comes into being when
/// its value is first needed: exactly once, however many threads ask.
///
/// Args:
///     shape: extents, in elements: an int or a sequence of ints.
///     init: a native initialiser (``lazyparam.init``), or a function that takes the
///         :class:`Plan` and returns an array. Without one the value has to be loaded.
///     dtype: element type: a name such as ``"float32"`` or ``"bfloat16"``, or a NumPy dtype.
///     device: where the value is to be: a text such as ``"cpu"``, or a :class:`Device`.
///     requires_grad: the wish to train it. Ints and bools never train.
///     id: identity, an unsigned 64-bit number; a random one if not given.
///
/// Raises:
///     DeclarationError: if shape, dtype or initialiser make no sense.
///     DeviceParseError: if `device` does not name a device.
#[pyclass(frozen, generic, weakref, module = "lazyparam")]
pub(crate) struct Param {
    pub(crate) core: Core<Array>,
    /// The dotted path by which the parameter was last reached from a module; for messages.
    path: Mutex<Option<Arc<str>>>,
}

/// The mappers and the intent of a parameter, on their way from `consume` to
/// `from_mapped_value`.
#[pyclass(frozen, module = "lazyparam")]
pub(crate) struct ParamMapper {
    handle: Py<Param>,
}

impl Param {
    pub(crate) fn new(core: Core<Array>, path: Option<Arc<str>>) -> Self {
        Self {
            core,
            path: Mutex::new(path),
        }
    }

    /// A handle that came out of a verb on this one.
    fn next(&self, core: Core<Array>) -> Self {
        Self::new(core, self.path())
    }

    pub(crate) fn path(&self) -> Option<Arc<str>> {
        self.path
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What this parameter is called in messages.
    fn label(&self) -> Arc<str> {
        self.path().unwrap_or_else(|| Arc::from(self.declaration()))
    }

    fn declaration(&self) -> String {
        let shape: Vec<String> = self.core.shape().iter().map(ToString::to_string).collect();
        format!("{}[{}]", self.core.dtype().name(), shape.join(", "))
    }

    /// The value, brought into being if need be; errors say which parameter they are about.
    pub(crate) fn force(&self, cx: Cx<'_>) -> PyResult<&Array> {
        match self.core.get() {
            Some(value) => Ok(value),
            None => self.try_with(cx.py, |label| self.core.val(label, cx)),
        }
    }

    fn try_with<'a, T>(
        &'a self,
        py: Python<'_>,
        work: impl FnOnce(&Option<Arc<str>>) -> Result<T, Failure>,
    ) -> PyResult<T>
    where
        T: 'a,
    {
        let label = Some(self.label());
        located(py, label.as_deref(), work(&label))
    }

    fn mapped(&self, f: Py<PyAny>, change: Change<Array>, py: Python<'_>) -> PyResult<Self> {
        callable(f.bind(py), "a mapper")?;
        let cx = Cx::new(py);
        let core = self.try_with(py, |label| self.core.map(Step::Map(f), change, label, cx))?;
        Ok(self.next(core))
    }

    fn remapped(
        &self,
        py: Python<'_>,
        f: Option<Py<PyAny>>,
        change: impl FnOnce(Mappers<Array>, Option<Step>) -> Mappers<Array>,
    ) -> PyResult<Self> {
        if let Some(f) = &f {
            callable(f.bind(py), "a mapper")?;
        }
        let cx = Cx::new(py);
        let mappers = change(self.core.mappers().share(cx), f.map(Step::Map));
        Ok(self.next(self.core.with_mappers(mappers, cx)))
    }

    /// The parameter with the value of `source` in its stored form; never runs the initialiser.
    fn loaded(
        &self,
        py: Python<'_>,
        source: Arc<Lazy<Array>>,
        dtype: Option<Dtype>,
        id: Option<u64>,
    ) -> PyResult<Self> {
        let last = dtype.map(Step::Cast).into_iter().collect();
        let cx = Cx::new(py);
        let core = self.try_with(py, |label| {
            self.core
                .transform_for_load(id, source, last, dtype, label, cx)
        })?;
        Ok(self.next(core))
    }

    fn state_text(&self, py: Python<'_>) -> PyResult<String> {
        if self.core.is_initialized() {
            return Ok("ready".to_owned());
        }
        let mut derived = "";
        let mut state = self.core.state().clone();
        let recipe = loop {
            let recipe = state.recipe();
            match recipe.as_deref() {
                Some(Recipe::Derive { source, .. }) => state = source.clone(),
                _ => break recipe,
            }
            derived = ", derived";
        };
        let origin = match recipe.as_deref() {
            // It came into being meanwhile, or it is derived from one that is in being.
            None | Some(Recipe::Derive { .. }) if derived.is_empty() => {
                return Ok("ready".to_owned());
            }
            None | Some(Recipe::Derive { .. }) => return Ok("lazy: derived".to_owned()),
            Some(Recipe::Origin(Origin::Draw(Draw::Missing))) => "lazy: to be loaded".to_owned(),
            Some(Recipe::Origin(Origin::Draw(draw))) => {
                format!("lazy: {}", Init { draw: *draw }.__repr__(py)?)
            }
            Some(Recipe::Origin(Origin::Read(read))) => {
                let entry = read.store.entries().get(read.entry);
                format!("lazy: read {:?}", entry.map_or("?", |entry| &*entry.name))
            }
            Some(Recipe::Origin(Origin::Call(call))) => format!("lazy: {}", name_of(call.bind(py))),
        };
        Ok(format!("{origin}{derived}"))
    }
}

/// What a function is called; never runs code of the user's.
pub(crate) fn name_of(function: &Bound<'_, PyAny>) -> String {
    let name = match function.getattr_opt("__qualname__") {
        Ok(Some(name)) => name.extract::<String>().ok(),
        _ => None,
    };
    name.unwrap_or_else(|| {
        function
            .get_type()
            .name()
            .map_or_else(|_| "?".to_owned(), |name| name.to_string())
    })
}

fn callable(f: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    if f.is_callable() {
        return Ok(());
    }
    Err(Raise::new(
        "DeclarationError",
        format!("{what} is a function from array to array"),
    )
    .found(f.get_type().name()?.to_string())
    .err(f.py()))
}

/// A shape from an int or a sequence of ints.
fn shape_of(spec: &Bound<'_, PyAny>) -> PyResult<Shape> {
    let py = spec.py();
    let wrong = |problem: &str| {
        Raise::new("DeclarationError", problem)
            .expected("an int or a sequence of ints, none of them negative")
            .found(
                spec.repr()
                    .map_or_else(|_| "?".to_owned(), |text| text.to_string()),
            )
            .err(py)
    };
    let axis = |axis: &Bound<'_, PyAny>| -> PyResult<usize> {
        // `__index__` takes NumPy's ints and refuses floats; a bool is hardly meant as an extent.
        let is_bool = axis.is_instance_of::<pyo3::types::PyBool>();
        let extent = if is_bool {
            None
        } else {
            axis.extract::<i128>().ok()
        };
        match extent {
            None => Err(wrong("the extents of a shape are ints")),
            Some(extent) => usize::try_from(extent).map_err(|_| {
                wrong(if extent < 0 {
                    "an extent is negative"
                } else {
                    "an extent is larger than any array"
                })
            }),
        }
    };
    let is_text = spec.is_instance_of::<pyo3::types::PyString>();
    let axes = match spec.try_iter() {
        Ok(axes) if !is_text => axes,
        _ if spec.hasattr("__index__")? => return Ok(Shape::from([axis(spec)?])),
        _ => return Err(wrong("this is not a shape")),
    };
    axes.map(|item| axis(&item?))
        .collect::<PyResult<Vec<usize>>>()
        .map(Shape::from)
}

fn checked(py: Python<'_>, shape: &Shape, dtype: Dtype) -> PyResult<()> {
    let problem = if shape.len() > shape::MAX_RANK {
        format!("a tensor has at most {} dimensions", shape::MAX_RANK)
    } else if shape::checked_len(shape, dtype).is_none() {
        "a tensor of this shape is larger than any memory".to_owned()
    } else {
        return Ok(());
    };
    Err(Raise::new("DeclarationError", problem)
        .found(shape_text(shape))
        .err(py))
}

/// An identity from Python; None is the caller's to fill in.
fn id_of(id: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if id.is_none() {
        return Ok(None);
    }
    id.extract().map(Some).map_err(|_| {
        Raise::new("DeclarationError", "an id is an unsigned 64-bit number")
            .found(
                id.repr()
                    .map_or_else(|_| "?".to_owned(), |text| text.to_string()),
            )
            .err(id.py())
    })
}

fn random_id() -> PyResult<u64> {
    getrandom::u64().map_err(|error| pyo3::exceptions::PyOSError::new_err(error.to_string()))
}

/// What a transformation of a user's does to shape and dtype.
fn change_of(
    shape: Option<&Bound<'_, PyAny>>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<Change<Array>> {
    Ok(Change {
        shape: shape.map(shape_of).transpose()?,
        dtype: dtype.map(dtype_of).transpose()?,
    })
}

/// An array of the user's as a settled state on the device it is on.
fn state_over(value: &Bound<'_, PyAny>, device: &Device) -> PyResult<Arc<Lazy<Array>>> {
    let py = value.py();
    let backend = backend(py, device)?;
    if !backend.call_method1("owns", (value,))?.is_truthy()? {
        let expected: String = backend.getattr("array_type")?.extract()?;
        return Err(
            Raise::new("InitError", "this is not an array of the device's library")
                .expected(expected)
                .found(value.get_type().name()?.to_string())
                .remedy("Param.from_data(data, device) takes lists and numbers.")
                .err(py),
        );
    }
    let (dims, name): (Vec<usize>, String) = backend.call_method1("meta", (value,))?.extract()?;
    let dtype = Dtype::from_name(&name).ok_or_else(|| {
        Raise::new("InitError", "arrays of this dtype cannot be parameters")
            .found(name)
            .err(py)
    })?;
    let device: Device = backend.call_method1("device_of", (value,))?.extract()?;
    let plan = Plan {
        shape: Shape::from(dims),
        dtype,
        device: device.clone(),
        requires_grad: false,
    };
    let array = Array::borrowed(value.clone().unbind(), device);
    let settled = lazyparam_core::Value::settle(array, &plan, Cx::new(py));
    let settled = settled.map_err(|failure| failure.into_err(py))?;
    Ok(Lazy::ready(plan, settled))
}

#[pymethods]
impl Param {
    #[new]
    #[pyo3(signature = (shape, init = None, dtype = None, device = None, requires_grad = true, id = None))]
    fn declare(
        shape: &Bound<'_, PyAny>,
        init: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        requires_grad: bool,
        #[pyo3(from_py_with = id_of)] id: Option<u64>,
    ) -> PyResult<Self> {
        let py = shape.py();
        let dims = shape_of(shape)?;
        let dtype = dtype.map_or(Ok(Dtype::F32), dtype_of)?;
        checked(py, &dims, dtype)?;
        let device = device.map_or_else(|| Ok(Device::cpu()), device_of)?;
        let origin = match init {
            None => Origin::Draw(Draw::Missing),
            Some(init) => match init.cast::<Init>() {
                Ok(native) => {
                    let draw = native.get().draw;
                    draw.check(py, &dims, dtype)?;
                    Origin::Draw(draw)
                }
                Err(_) if init.is_callable() => Origin::Call(init.clone().unbind()),
                Err(_) => {
                    return Err(Raise::new("DeclarationError", "this is not an initialiser")
                        .expected("one of lazyparam.init, or a function of the plan")
                        .found(init.get_type().name()?.to_string())
                        .remedy("Param.from_tensor(x) takes a value that is there already.")
                        .err(py));
                }
            },
        };
        let id = id.map_or_else(random_id, Ok)?;
        Ok(Self::new(
            Core::declare(id, dims, dtype, device, requires_grad, origin),
            None,
        ))
    }

    /// A parameter that is there already, with identity and intent of the caller's choice.
    ///
    /// The array is copied, unless it is read-only memory of lazyparam.
    #[classmethod]
    #[pyo3(signature = (value, id = None, requires_grad = false, device = None))]
    fn initialized(
        _cls: &Bound<'_, PyType>,
        value: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = id_of)] id: Option<u64>,
        requires_grad: bool,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let device = device.map_or_else(|| Ok(Device::cpu()), device_of)?;
        let state = state_over(value, &device)?;
        let id = id.map_or_else(random_id, Ok)?;
        Ok(Self::new(
            Core::over(id, state, device, requires_grad),
            None,
        ))
    }

    /// A trainable parameter with the value of `tensor` (copied). Burn's ``Param::from_tensor``.
    #[classmethod]
    fn from_tensor(cls: &Bound<'_, PyType>, tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::initialized(cls, tensor, None, true, None)
    }

    /// A trainable parameter with the numbers in `data`: nested sequences, a number, or an array.
    ///
    /// Burn's ``Param::from_data``.
    #[classmethod]
    #[pyo3(signature = (data, device = None, dtype = None))]
    fn from_data(
        cls: &Bound<'_, PyType>,
        data: &Bound<'_, PyAny>,
        device: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = data.py();
        let target = device.map_or_else(|| Ok(Device::cpu()), device_of)?;
        let dtype = dtype.map(dtype_of).transpose()?.map(Dtype::name);
        let host = python::HOST_NUMBERS.get(py)?.call1((data, dtype))?;
        let array = backend(py, &target)?.call_method1("from_host", (host, target.clone()))?;
        let target = Bound::new(py, target)?;
        Self::initialized(cls, &array, None, true, Some(target.as_any()))
    }

    // ---- free: never runs an initialiser, never waits ------------------------------------------

    /// Identity, an unsigned 64-bit number. Kept by every verb but a load that brings its own.
    #[getter]
    fn id(&self) -> u64 {
        self.core.id()
    }

    /// Extents, in elements.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.shape().iter())
    }

    /// The shape in files; differs from `shape` where load and save mappers change it.
    #[getter]
    fn stored_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.stored_shape().iter())
    }

    /// Number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.core.shape().len()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        // Checked when the parameter was declared.
        self.core.shape().iter().product()
    }

    /// Name of the element type, such as ``"float32"``.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.core.dtype().name()
    }

    /// What the elements are: ``"float"``, ``"int"``, ``"bool"`` or ``"complex"``.
    #[getter]
    fn kind(&self) -> &'static str {
        self.core.dtype().kind().as_str()
    }

    /// Where the value is, or will be.
    #[getter]
    fn device(&self) -> Device {
        self.core.device().clone()
    }

    /// Bytes that the value takes in memory, or will take.
    #[getter]
    fn nbytes(&self) -> usize {
        self.byte_len()
    }

    /// Whether the value is in being. False while it is being made.
    #[getter]
    fn is_initialized(&self) -> bool {
        self.core.is_initialized()
    }

    /// The wish to train, as given. Burn's ``planned_is_require_grad``.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.core.requires_grad()
    }

    /// The configured training state: the wish, for elements that can train.
    ///
    /// ``valid()`` suspends its effect and keeps it; ``train()`` restores the effect.
    #[getter]
    fn is_active(&self) -> bool {
        self.core.is_active()
    }

    /// The dotted path by which a module last reached this parameter, or None.
    #[getter(path)]
    fn py_path(&self) -> Option<String> {
        self.path().map(|path| path.to_string())
    }

    /// How the value will come into being, or ``"ready"``.
    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        self.state_text(py)
    }

    /// Whether `other` shares this parameter's one coming-into-being (is it, or a clone of it).
    fn is_tied_to(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.core.state(), other.core.state())
    }

    /// A number that tied parameters have in common, and no others that live now.
    #[getter]
    fn _tie(&self) -> usize {
        self.core.state().key()
    }

    /// Whether loads go through a mapper.
    #[getter]
    fn _has_load_mapper(&self) -> bool {
        !self.core.mappers().load().is_empty()
    }

    /// This handle, tied to `now` as it was to `was`: what `was` became by some verb.
    ///
    /// Its own wish and mappers stay, unless the verb changed the wish.
    fn _retied(&self, was: &Self, now: &Self, py: Python<'_>) -> Self {
        let cx = Cx::new(py);
        let unchanged = was.core.requires_grad() == now.core.requires_grad();
        let wish = if unchanged {
            self.core.requires_grad()
        } else {
            now.core.requires_grad()
        };
        let core = now
            .core
            .share(cx)
            .with_mappers(self.core.mappers().share(cx), cx);
        self.next(core.set_requires_grad(wish, cx))
    }

    /// Remember the path by which a module reached this parameter.
    fn _found_at(&self, path: &str) {
        let path = Some(Arc::from(path));
        let old = std::mem::replace(
            &mut *self.path.lock().unwrap_or_else(PoisonError::into_inner),
            path,
        );
        drop(old);
    }

    // ---- may bring the value into being ----------------------------------------------------------

    /// The value. Waits, detached, if another thread is making it.
    ///
    /// Args:
    ///     timeout: seconds to wait for another thread's initialiser; None is for ever.
    ///
    /// Returns:
    ///     An array of the device's library. NumPy arrays are read-only.
    ///
    /// Raises:
    ///     LazyCycleError: if the initialiser needs this very value.
    ///     InitError: if the initialiser gives something else than was declared.
    ///     TimeoutError: if `timeout` seconds have passed; the initialisation goes on.
    ///     BaseException: whatever the initialiser raises, with a note naming the parameter.
    #[pyo3(signature = (timeout = None))]
    fn val(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        if let Some(value) = self.core.get() {
            return Ok(value.object.clone_ref(py));
        }
        Ok(self.force(Cx::within(py, timeout)?)?.object.clone_ref(py))
    }

    /// The stored value, without what is attached to the parameter. See `val`.
    #[pyo3(signature = (timeout = None))]
    fn base(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        self.val(py, timeout)
    }

    /// The value, as an attribute; the one attribute that may cost. See `val`.
    #[getter]
    fn value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.val(py, None)
    }

    #[allow(clippy::wrong_self_convention)] // Burn's name; Python has no consuming methods.
    /// The stored value, for a caller that is done with the parameter. Burn's ``into_value``.
    fn into_value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.base(py, None)
    }

    /// Identity, stored value, and the mappers with the intent; ``from_mapped_value`` undoes it.
    fn consume(slf: &Bound<'_, Self>) -> PyResult<(u64, Py<PyAny>, ParamMapper)> {
        let this = slf.get();
        let value = this.base(slf.py(), None)?;
        Ok((
            this.core.id(),
            value,
            ParamMapper {
                handle: slf.clone().unbind(),
            },
        ))
    }

    /// A ready parameter from what ``consume`` gave, with a value of the caller's.
    #[classmethod]
    fn from_mapped_value(
        _cls: &Bound<'_, PyType>,
        id: u64,
        value: &Bound<'_, PyAny>,
        mapper: &ParamMapper,
    ) -> PyResult<Self> {
        let py = value.py();
        let cx = Cx::new(py);
        let this = mapper.handle.bind(py).get();
        let state = state_over(value, this.core.device())?;
        let core = Core::over(
            id,
            state,
            this.core.device().clone(),
            this.core.requires_grad(),
        );
        Ok(this.next(core.with_mappers(this.core.mappers().share(cx), cx)))
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__(
        &self,
        py: Python<'_>,
        dtype: Option<&Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let host = to_host(self.force(Cx::new(py))?, py)?;
        Ok(python::HOST_EXPORT
            .get(py)?
            .call1((host, dtype, copy))?
            .unbind())
    }

    // ---- verbs: each returns a new parameter -------------------------------------------------------

    /// The parameter whose stored value is ``f`` of this one's. Lazy stays lazy.
    ///
    /// Args:
    ///     f: from array to array. It sees an untracked, read-only value.
    ///     shape: the shape of the result, if it differs.
    ///     dtype: the dtype of the result, if it differs.
    #[pyo3(signature = (f, shape = None, dtype = None))]
    fn map(
        &self,
        f: Py<PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        self.mapped(f, self.changed(py, shape, dtype)?, py)
    }

    /// The parameter whose initial value is ``f`` of this one's effective value; chains.
    ///
    /// Means the same for a lazy and a ready parameter; a lazy one stays lazy, and this one is
    /// untouched either way. Arguments as in `map`.
    #[pyo3(signature = (f, shape = None, dtype = None))]
    fn init_mapper(
        &self,
        f: Py<PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        self.mapped(f, self.changed(py, shape, dtype)?, py)
    }

    /// Apply ``f`` to what is loaded, after the load mappers there are.
    ///
    /// ``load_mapper(f).load_mapper(g)`` loads ``g(f(x))``.
    ///
    /// Args:
    ///     f: from array to array.
    ///     stored_shape: the shape in files, if it differs from the declared one.
    #[pyo3(signature = (f, stored_shape = None))]
    fn load_mapper(
        &self,
        f: Py<PyAny>,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let stored = stored_shape.map(shape_of).transpose()?;
        self.remapped(py, Some(f), |mappers, step| match step {
            Some(step) => mappers.and_load(step, stored),
            None => mappers,
        })
    }

    /// Apply ``f`` to what is saved, before the save mappers there are.
    ///
    /// ``save_mapper(f).save_mapper(g)`` saves ``f(g(x))``, so that a load mapper and a save mapper
    /// added together undo each other. Arguments as in `load_mapper`.
    #[pyo3(signature = (f, stored_shape = None))]
    fn save_mapper(
        &self,
        f: Py<PyAny>,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let stored = stored_shape.map(shape_of).transpose()?;
        self.remapped(py, Some(f), |mappers, step| match step {
            Some(step) => mappers.and_save(step, stored),
            None => mappers,
        })
    }

    /// Make ``f`` the only load mapper; None removes them all.
    #[pyo3(signature = (f, stored_shape = None))]
    fn replace_load_mapper(
        &self,
        f: Option<Py<PyAny>>,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let stored = stored_shape.map(shape_of).transpose()?;
        self.remapped(py, f, |mappers, step| mappers.only_load(step, stored))
    }

    /// Make ``f`` the only save mapper; None removes them all.
    #[pyo3(signature = (f, stored_shape = None))]
    fn replace_save_mapper(
        &self,
        f: Option<Py<PyAny>>,
        stored_shape: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let stored = stored_shape.map(shape_of).transpose()?;
        self.remapped(py, f, |mappers, step| mappers.only_save(step, stored))
    }

    /// The parameter on `device`. Lazy stays lazy: where its recipe runs is decided at first read.
    fn to_device(&self, device: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = device.py();
        let device = device_of(device)?;
        let core = self.try_with(py, |label| self.core.to_device(&device, label, Cx::new(py)))?;
        Ok(self.next(core))
    }

    /// As `to_device`, and always with a state (and a gradient) of its own. Burn's ``fork``.
    fn fork(&self, device: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = device.py();
        let device = device_of(device)?;
        let core = self.try_with(py, |label| self.core.fork(&device, label, Cx::new(py)))?;
        Ok(self.next(core))
    }

    /// The parameter for validation: read untracked, the wish to train kept. Burn's ``valid``.
    fn valid(&self, py: Python<'_>) -> Self {
        self.next(self.core.valid(Cx::new(py)))
    }

    /// The parameter for training: the wish takes effect where the device can honour it.
    fn train(&self, py: Python<'_>) -> Self {
        self.next(self.core.train(Cx::new(py)))
    }

    /// ``set_requires_grad(False)``.
    fn no_grad(&self, py: Python<'_>) -> Self {
        self.set_requires_grad(false, py)
    }

    /// The parameter with another wish to train. Clones keep theirs.
    fn set_requires_grad(&self, requires_grad: bool, py: Python<'_>) -> Self {
        self.next(self.core.set_requires_grad(requires_grad, Cx::new(py)))
    }

    /// The parameter with what is attached to it folded in; here nothing is, so a clone.
    fn materialize(&self, py: Python<'_>) -> Self {
        self.next(self.core.share(Cx::new(py)))
    }

    /// Another handle.
    ///
    /// Args:
    ///     independent: False shares this one's coming-into-being, so both always have the same
    ///         value. True gives a state of its own: a lazy one runs its recipe for itself.
    #[pyo3(signature = (independent = false))]
    fn clone(&self, independent: bool, py: Python<'_>) -> PyResult<Self> {
        let cx = Cx::new(py);
        let core = if independent {
            self.try_with(py, |_| self.core.independent(&mut Default::default(), cx))?
        } else {
            self.core.share(cx)
        };
        Ok(self.next(core))
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Self> {
        self.clone(false, py)
    }

    fn __deepcopy__(&self, memo: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = memo.py();
        let core = CopyMemo::with(memo, |states| {
            self.try_with(py, |_| self.core.independent(states, Cx::new(py)))
        })?;
        Ok(self.next(core))
    }

    /// The parameter with the value `tensor`, given in its stored form: moved to this one's
    /// device and taken through the load mappers. The initialiser never runs.
    ///
    /// Args:
    ///     tensor: an array of the device's library.
    ///     id: the identity that the record carries, if it does.
    ///     dtype: cast to it; without, the dtype has to be this one's already.
    ///
    /// Raises:
    ///     ShapeMismatch: if `tensor` does not have `stored_shape`.
    ///     InitError: if the dtype, or the shape after the load mappers, is not this one's.
    #[pyo3(signature = (tensor, id = None, dtype = None))]
    fn transform_for_load(
        &self,
        tensor: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = id_of)] id: Option<u64>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = tensor.py();
        let source = located(
            py,
            self.path().as_deref(),
            state_over(tensor, self.core.device()).map_err(Failure::from),
        )?;
        self.loaded(py, source, dtype.map(dtype_of).transpose()?, id)
    }

    /// The parameter with the value that `checkpoint` holds under `name`; nothing is read now.
    #[pyo3(signature = (checkpoint, name, mode, dtype = None))]
    fn _load_from(
        &self,
        checkpoint: &Checkpoint,
        name: &str,
        mode: &str,
        dtype: Option<&Bound<'_, PyAny>>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let mode = Mode::parse(py, mode)?;
        let store = &checkpoint.store;
        let found = store
            .find(name)
            .and_then(|at| Some((at, store.entries().get(at)?)));
        let Some((at, entry)) = found else {
            return Err(Raise::new(
                "MissingParams",
                format!("no tensor {name:?} in the checkpoint"),
            )
            .path(store.path().display().to_string())
            .err(py));
        };
        let plan = Plan {
            shape: Shape::from(entry.shape.as_slice()),
            dtype: entry.dtype,
            device: self.core.device().clone(),
            requires_grad: false,
        };
        let read = Read {
            store: store.clone(),
            entry: at,
            mode,
        };
        let source = Lazy::new(plan, Recipe::Origin(Origin::Read(read)));
        self.loaded(py, source, dtype.map(dtype_of).transpose()?, None)
    }

    /// A ready parameter with the value as it is saved: after the save mappers, without them.
    fn transform_for_save(&self, py: Python<'_>) -> PyResult<Self> {
        let cx = Cx::new(py);
        let value = self.try_with(py, |label| self.core.transform_for_save(label, cx))?;
        let state = located(
            py,
            Some(&self.label()),
            state_over(value.object.bind(py), self.core.device()).map_err(Failure::from),
        )?;
        let device = self.core.device().clone();
        Ok(self.next(Core::over(
            self.core.id(),
            state,
            device,
            self.core.requires_grad(),
        )))
    }

    /// A draft of another value: ``with p.writable() as draft`` gives ``draft.array``, a writable
    /// copy; afterwards ``draft.param`` is the parameter with it. This one never changes.
    fn writable<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python::DRAFT.get(slf.py())?.call1((slf,))
    }

    // ---- what Python asks ----------------------------------------------------------------------------

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self
            .path()
            .map_or_else(String::new, |path| format!("{path}: "));
        Ok(format!(
            "Param({path}{}, {}, {})",
            self.declaration(),
            self.core.device(),
            self.state_text(py)?
        ))
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        pickle::reduce_param(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.core.visit_owned(&mut |part| match part {
            Part::Value(value) => visit.call(&value.object),
            Part::Call(call) => visit.call(call),
            Part::Step(Step::Map(function)) => visit.call(function),
            Part::Step(Step::Cast(_)) => Ok(()),
        })
    }

    fn __clear__(&self) {
        self.core.state().discard();
    }
}

impl Param {
    pub(crate) fn byte_len(&self) -> usize {
        self.size() * self.core.dtype().size()
    }

    fn changed(
        &self,
        py: Python<'_>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Change<Array>> {
        let change = change_of(shape, dtype)?;
        let dims = change.shape.as_ref().unwrap_or(self.core.shape());
        checked(py, dims, change.dtype.unwrap_or(*self.core.dtype()))?;
        Ok(change)
    }
}

#[pymethods]
impl ParamMapper {
    fn __repr__(&self, py: Python<'_>) -> String {
        let mappers = self.handle.bind(py).get().core.mappers();
        format!(
            "ParamMapper(load={}, save={})",
            mappers.load().len(),
            mappers.save().len()
        )
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.handle)
    }
}
