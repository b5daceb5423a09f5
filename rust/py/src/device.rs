//! `Device`: where a value lives, as a plain value that needs no library to exist.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, OnceLock};

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::errors::Raise;
use crate::python;

/// Where a value lives: ``backend:kind[:index]``.
///
/// A plain value: parsed from text without importing a library or touching a driver, hashable,
/// picklable. Equality and hash are about the place and ignore the autodiff context.
///
/// Args:
///     spec: ``[backend ":"] kind [":" index]``, such as ``"cpu"``, ``"cuda:1"``, ``"torch:cpu"``
///         or ``"jax:cpu:3"``; a Device; or a device object of torch, JAX or CuPy. Bare ``"cpu"`` is
///         ``"numpy:cpu"`` and bare ``"cuda"`` is ``"cupy:cuda:0"``, always: never the current
///         device of a thread.
///     autodiff: in a context that records gradients, as by `autodiff`.
///
/// Raises:
///     DeviceParseError: if it names no device.
///     AutodiffUnsupported: if gradients are wanted where they cannot be recorded.
#[pyclass(frozen, eq, hash, module = "lazyparam", from_py_object)]
#[derive(Clone, Debug)]
pub(crate) struct Device {
    place: Arc<Place>,
    autodiff: bool,
}

#[derive(Debug)]
struct Place {
    backend: String,
    kind: String,
    index: Option<u16>,
    /// The object that serves the place, once it has been asked for.
    server: OnceLock<Py<PyAny>>,
}

impl Place {
    fn parts(&self) -> (&str, &str, Option<u16>) {
        (&self.backend, &self.kind, self.index)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.place.parts() == other.place.parts()
    }
}

impl Hash for Device {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place.parts().hash(state);
    }
}

impl lazyparam_core::Device for Device {
    fn is_autodiff(&self) -> bool {
        self.autodiff
    }

    fn autodiff(&self) -> Self {
        Self {
            autodiff: can_record_gradients(&self.place.backend),
            ..self.clone()
        }
    }

    fn inner(&self) -> Self {
        Self {
            autodiff: false,
            ..self.clone()
        }
    }
}

/// NumPy and CuPy have no gradients at all. Any other library may have them, by its arrays or by its
/// transformations.
fn can_record_gradients(backend: &str) -> bool {
    !matches!(backend, "numpy" | "cupy")
}

const GRAMMAR: &str =
    "[backend \":\"] kind [\":\" index], such as \"cpu\", \"cuda:1\", \"torch:cpu\"";

impl Device {
    /// NumPy's one device. Shared, since most parameters are declared there.
    pub(crate) fn cpu() -> Self {
        static CPU: LazyLock<Arc<Place>> =
            LazyLock::new(|| Arc::new(Place::new("numpy", "cpu", None)));
        Self {
            place: CPU.clone(),
            autodiff: false,
        }
    }

    /// The backend that serves the place. Asked of Python once for each declared device: that takes
    /// a lock on builds without a GIL, which a forked child might find taken for ever.
    pub(crate) fn served_by<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(served) = self.place.server.get() {
            return Ok(served.bind(py).clone());
        }
        let served = python::BACKEND_OF.get(py)?.call1((self.clone(),))?;
        let _ = self.place.server.set(served.clone().unbind());
        Ok(served)
    }

    /// Whether one library serves both.
    pub(crate) fn serves_like(&self, other: &Self) -> bool {
        self.place.backend == other.place.backend
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words: Vec<&str> = text.split(':').collect();
        let is_index = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
        let index = match words.last() {
            Some(word) if words.len() > 1 && is_index(word) => {
                let index = parse_index(words.pop()?)?;
                Some(index)
            }
            _ => None,
        };
        let is_word = |word: &str| {
            let mut letters = word.chars();
            letters
                .next()
                .is_some_and(|first| first.is_ascii_lowercase())
                && letters.all(|letter| {
                    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
                })
        };
        if !words.iter().all(|word| is_word(word)) {
            return None;
        }
        let (backend, kind) = match words.as_slice() {
            ["cpu" | "numpy"] => ("numpy", "cpu"),
            ["cuda" | "cupy"] => ("cupy", "cuda"),
            ["torch"] => ("torch", "cpu"),
            ["jax"] => ("jax", "cpu"),
            [_] => return None,
            // JAX calls it either way.
            ["jax", "gpu"] => ("jax", "cuda"),
            [backend, kind] => (*backend, *kind),
            _ => return None,
        };
        // One CPU is one place to NumPy and torch; JAX numbers its CPU devices. Of Apple's GPUs
        // there is one.
        let numbered = !matches!(kind, "cpu" | "mps") || backend == "jax";
        let index = match (numbered, index) {
            (true, index) => Some(index.unwrap_or(0)),
            (false, None | Some(0)) => None,
            (false, Some(_)) => return None,
        };
        if (backend, kind, index) == ("numpy", "cpu", None) {
            return Some(Self::cpu());
        }
        let place = Place::new(backend, kind, index);
        Some(Self {
            place: Arc::new(place),
            autodiff: false,
        })
    }
}

impl Place {
    fn new(backend: &str, kind: &str, index: Option<u16>) -> Self {
        Self {
            backend: backend.to_owned(),
            kind: kind.to_owned(),
            index,
            server: OnceLock::new(),
        }
    }
}

fn parse_index(word: &str) -> Option<u16> {
    let canonical = word == "0" || !word.starts_with('0');
    let digits = word.len() <= 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    if canonical && digits {
        word.parse().ok()
    } else {
        None
    }
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            backend,
            kind,
            index,
            ..
        } = &*self.place;
        match index {
            Some(index) => write!(out, "{backend}:{kind}:{index}"),
            None => write!(out, "{backend}:{kind}"),
        }
    }
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (spec, *, autodiff = false))]
    fn new(spec: &Bound<'_, PyAny>, autodiff: bool) -> PyResult<Self> {
        let device = device_of(spec)?;
        if autodiff {
            device.py_autodiff(spec.py())
        } else {
            Ok(device)
        }
    }

    /// The same place in a context that records gradients; ``train()`` moves parameters there.
    ///
    /// Arrays of torch record them by themselves. To JAX it is a mark: its gradients come from
    /// transformations such as ``jax.grad``.
    ///
    /// Raises:
    ///     AutodiffUnsupported: if the library has no gradients (NumPy, CuPy).
    #[pyo3(name = "autodiff")]
    fn py_autodiff(&self, py: Python<'_>) -> PyResult<Self> {
        let device = lazyparam_core::Device::autodiff(self);
        if device.autodiff {
            return Ok(device);
        }
        let problem = format!("{} has no gradients", self.place.backend);
        Err(Raise::new("AutodiffUnsupported", problem)
            .found(self.to_string())
            .remedy("Use a device of torch or JAX.")
            .err(py))
    }

    /// The same place in a context that records no gradients; ``valid()`` moves parameters there.
    #[pyo3(name = "inner")]
    fn py_inner(&self) -> Self {
        lazyparam_core::Device::inner(self)
    }

    /// Whether the context records gradients. Equality and hash ignore it.
    #[getter(is_autodiff)]
    fn py_is_autodiff(&self) -> bool {
        self.autodiff
    }

    /// This place in the context of `other`, as far as its library has one.
    fn with_autodiff_context_from(&self, other: &Self) -> Self {
        lazyparam_core::Device::with_context_from(self, other)
    }

    /// The library that serves it: ``"numpy"``, ``"torch"``, ...
    #[getter]
    fn backend(&self) -> &str {
        &self.place.backend
    }

    /// The kind of hardware: ``"cpu"``, ``"cuda"``, ...
    #[getter]
    fn kind(&self) -> &str {
        &self.place.kind
    }

    /// Which one of several, or None where there is only one.
    #[getter]
    fn index(&self) -> Option<u16> {
        self.place.index
    }

    fn __str__(&self) -> String {
        self.to_string()
    }

    fn __repr__(&self) -> String {
        let context = if self.autodiff { ".autodiff()" } else { "" };
        format!("Device('{self}'){context}")
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let class = py.get_type::<Self>().into_any();
        let make = if self.autodiff {
            class.getattr("_recording")?
        } else {
            class
        };
        Ok((make, (self.to_string(),)))
    }

    /// What pickle makes a device with that records gradients.
    #[classmethod]
    fn _recording(_cls: &Bound<'_, PyType>, spec: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(spec, true)
    }
}

/// `Device` from whatever a user may write for one.
pub(crate) fn device_of(spec: &Bound<'_, PyAny>) -> PyResult<Device> {
    if let Ok(device) = spec.cast::<Device>() {
        return Ok(device.get().clone());
    }
    let py = spec.py();
    let text = match spec.extract::<String>() {
        Ok(text) => text,
        Err(_) => python::DEVICE_NAMED_BY.get(py)?.call1((spec,))?.extract()?,
    };
    Device::parse(&text).ok_or_else(|| {
        Raise::new("DeviceParseError", "this text does not name a device")
            .expected(GRAMMAR)
            .found(format!("{text:?}"))
            .err(py)
    })
}
