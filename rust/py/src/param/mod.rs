//! `Param`: a handle of the core as a Python class. Each method translates and delegates.
//!
//! One file a topic: declaring, what is free to ask, reading, verbs, mappers, files.

mod declare;
mod files;
mod free;
mod mappers;
mod places;
mod read;
mod verbs;

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, PoisonError};

use lazyparam_core::{Label, Named, Param as Core, Part};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::{Array, Step};
use crate::errors::{Failure, Raise, about};
use crate::exit::Inside;
use crate::gate::Cx;
use crate::pickle::{self, CopyMemo};
use crate::raw::{self, Ready, Slot};

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
///     rng_name: takes the place of the path in the key of a native draw, so that the parameter may
///         be renamed and keep its values; see ``Module.seed``.
///     batch_axes: axes along which independent parameters are stacked: each slice is drawn as a
///         parameter of its own, and fans are counted without them.
///
/// Raises:
///     DeclarationError: if shape, dtype or initialiser make no sense.
///     DeviceParseError: if `device` does not name a device.
#[pyclass(frozen, generic, weakref, module = "lazyparam")]
pub(crate) struct Param {
    pub(crate) core: Core<Array>,
    /// The dotted path by which the parameter was last reached from a module; for messages.
    path: Mutex<Option<Arc<str>>>,
    /// What `value` has answered, where a member descriptor can read it.
    answer: Slot,
}

/// Open the class to fast reads; once, when the module is made.
pub(crate) fn open_to_reads(py: Python<'_>) -> PyResult<()> {
    let probe = Bound::new(py, declare::probe())?;
    let doc = c"The value, as an attribute; the one attribute that may cost. See ``val``.";
    raw::open_to_reads(&probe, &probe.get().answer, c"value", doc)?;
    raw::open_to_calls::<Param>(py)
}

impl Ready for Param {
    const METHOD: &'static str = "val";
    const WHOLE: &'static str = "_val";

    fn ready(&self) -> Option<&Py<PyAny>> {
        self.core.get().map(|value| &value.object)
    }
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
            answer: Slot::default(),
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
        work: impl FnOnce(&dyn Named) -> Result<T, Failure>,
    ) -> PyResult<T>
    where
        T: 'a,
    {
        let _inside = Inside::enter(py);
        let name = Name {
            param: self,
            label: OnceCell::new(),
        };
        self.located(py, work(&name))
    }

    /// `result`, its error saying that it is about this parameter.
    fn located<T>(&self, py: Python<'_>, result: Result<T, Failure>) -> PyResult<T> {
        result.map_err(|failure| about(py, failure, &self.label(), self.path().as_deref()))
    }
}

/// The label of a parameter, made when it is asked for.
struct Name<'a> {
    param: &'a Param,
    label: OnceCell<Label>,
}

impl Named for Name<'_> {
    fn label(&self) -> Label {
        let make = || Some(self.param.label());
        self.label.get_or_init(make).clone()
    }
}

/// A function of the user's as one transformation of a value.
fn mapper_step(f: Py<PyAny>, py: Python<'_>) -> PyResult<Step> {
    let function = f.bind(py);
    if function.is_callable() {
        return Ok(Step::Map(f));
    }
    let problem = "a mapper is a function from array to array";
    Err(Raise::new("DeclarationError", problem)
        .found(function.get_type().name()?.to_string())
        .err(py))
}

#[pymethods]
impl Param {
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

    fn __copy__(&self, py: Python<'_>) -> Self {
        self.next(self.core.share(Cx::new(py)))
    }

    fn __deepcopy__(&self, memo: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = memo.py();
        let core = CopyMemo::with(memo, |states| {
            self.try_with(py, |_| self.core.independent(states, Cx::new(py)))
        })?;
        Ok(self.next(core))
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        pickle::reduce_param(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.answer.visit(&visit)?;
        self.core.visit_owned(&mut |part| match part {
            Part::Value(value) => visit.call(&value.object),
            Part::Call(call) => visit.call(call),
            Part::Step(Step::Map(function)) => visit.call(function),
            Part::Step(Step::Cast(_)) => Ok(()),
        })
    }

    fn __clear__(&self) {
        self.answer.clear();
        self.core.discard();
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
