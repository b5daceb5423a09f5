//! Pickling and deep copies: recipes rather than values where a value is not there yet, and ties
//! kept within one pickle or copy.
//!
//! Pickle keeps ties between *Python objects*, and a shared state is none. So while a state is
//! being pickled a [`State`] object stands for it, the same one for all its handles: the state
//! remembers it weakly, and the pickler keeps it alive until it is done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lazyparam_core::{Lazy, Memo, Origin, Param as Core, Plan, Recipe, Shape};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use crate::array::{Array, Read, Step};
use crate::checkpoint::{Checkpoint, Mode};
use crate::device::Device;
use crate::draw::{Draw, DrawFields};
use crate::dtype::dtype_of;
use crate::errors::Raise;
use crate::function::picklable;
use crate::gate::Cx;
use crate::param::Param;

/// A shared lazy state, as an object that pickle can keep ties between.
#[pyclass(frozen, weakref, module = "lazyparam._core")]
pub(crate) struct State {
    lazy: Arc<Lazy<Array>>,
    /// The path of a parameter that has it; for messages.
    path: Option<Arc<str>>,
    /// Whether what it needs goes into the pickle before it.
    listed: AtomicBool,
}

impl State {
    /// The one object that stands for `lazy` as long as anybody holds it.
    fn standing_for<'py>(
        py: Python<'py>,
        lazy: &Arc<Lazy<Array>>,
        path: Option<Arc<str>>,
    ) -> PyResult<Bound<'py, Self>> {
        let slot = || lazy.tag.0.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = || -> PyResult<Option<Bound<'py, Self>>> {
            let held = slot().as_ref().map(|reference| reference.clone_ref(py));
            match held {
                Some(reference) => reference.bind(py).upgrade_as(),
                None => Ok(None),
            }
        };
        if let Some(state) = standing()? {
            return Ok(state);
        }
        let state = Bound::new(
            py,
            Self {
                lazy: lazy.clone(),
                path,
                listed: AtomicBool::new(false),
            },
        )?;
        let reference = PyWeakrefReference::new(&state)?.unbind();
        // Making it may have run other code that made one: there is to be one only.
        if let Some(state) = standing()? {
            return Ok(state);
        }
        let old = slot().replace(reference);
        drop(old);
        Ok(state)
    }
}

/// The states that have been copied within one deep copy.
#[pyclass(frozen)]
pub(crate) struct CopyMemo {
    states: Mutex<Memo<Array>>,
}

impl CopyMemo {
    const KEY: &'static str = "lazyparam.states";

    /// Run `work` on the states that `memo`, the memo of `copy.deepcopy`, knows of.
    pub(crate) fn with<T>(
        memo: &Bound<'_, PyDict>,
        work: impl FnOnce(&mut Memo<Array>) -> PyResult<T>,
    ) -> PyResult<T> {
        let held = match memo.get_item(Self::KEY)? {
            Some(held) => held.cast_into::<Self>()?,
            None => {
                let held = Bound::new(
                    memo.py(),
                    Self {
                        states: Mutex::default(),
                    },
                )?;
                memo.set_item(Self::KEY, &held)?;
                held
            }
        };
        let slot = || {
            held.get()
                .states
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        // No lock is held while arrays are copied.
        let mut states = std::mem::take(&mut *slot());
        let outcome = work(&mut states);
        slot().extend(states);
        outcome
    }
}

/// What pickle is told of a parameter.
pub(crate) fn reduce_param<'py>(
    slf: &Bound<'py, Param>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
    let py = slf.py();
    let this = slf.get();
    let core = &this.core;
    let mappers = core.mappers();
    let path = this.path();
    let steps = |steps: &[Step]| steps_out(py, steps, path.as_deref());
    let fields = PyDict::new(py);
    fields.set_item("id", core.id())?;
    fields.set_item("device", core.device().clone())?;
    fields.set_item("requires_grad", core.requires_grad())?;
    fields.set_item("load", steps(mappers.load())?)?;
    fields.set_item("save", steps(mappers.save())?)?;
    fields.set_item(
        "stored",
        mappers.stored.as_ref().map(|shape| shape.to_vec()),
    )?;
    fields.set_item("declared", core.declared_shape().to_vec())?;
    fields.set_item("path", path.as_deref())?;
    let state = State::standing_for(py, core.state(), path)?;
    let rebuild = py.import("lazyparam._core")?.getattr("rebuild_param")?;
    Ok((rebuild, (state, fields).into_pyobject(py)?))
}

/// A parameter from what `reduce_param` told.
#[pyfunction]
pub(crate) fn rebuild_param(
    state: &Bound<'_, State>,
    fields: &Bound<'_, PyDict>,
) -> PyResult<Param> {
    let py = state.py();
    let field = |name: &str| {
        fields
            .get_item(name)?
            .ok_or_else(|| PyException::new_err(format!("no field {name:?}")))
    };
    let device: Device = field("device")?.extract()?;
    let lazy = state.get().lazy.clone();
    let core = Core::over(
        field("id")?.extract()?,
        lazy,
        device,
        field("requires_grad")?.extract()?,
    );
    let mut mappers = lazyparam_core::Mappers::default();
    let stored: Option<Vec<usize>> = field("stored")?.extract()?;
    for step in steps_in(&field("load")?)? {
        mappers = mappers.and_load(step, None);
    }
    for step in steps_in(&field("save")?)? {
        mappers = mappers.and_save(step, None);
    }
    mappers.stored = stored.map(Shape::from);
    let declared: Vec<usize> = field("declared")?.extract()?;
    let core = core.with_declared_shape(Shape::from(declared));
    let path: Option<String> = field("path")?.extract()?;
    Ok(Param::new(
        core.with_mappers(mappers, Cx::new(py)),
        path.map(Arc::from),
    ))
}

fn steps_out<'py>(
    py: Python<'py>,
    steps: &[Step],
    path: Option<&str>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for step in steps {
        match step {
            Step::Map(function) => list.append(picklable(function.bind(py), "mapper", path)?)?,
            Step::Cast(dtype) => list.append(dtype.name())?,
        }
    }
    Ok(list)
}

fn steps_in(list: &Bound<'_, PyAny>) -> PyResult<Vec<Step>> {
    list.try_iter()?
        .map(|item| {
            let item = item?;
            if item.is_callable() {
                Ok(Step::Map(item.unbind()))
            } else {
                Ok(Step::Cast(dtype_of(&item)?))
            }
        })
        .collect()
}

#[pymethods]
impl State {
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let path = slf.get().path.as_deref();
        // Down the chain of states that only the next one refers to: they go into one pickle
        // as a list, so depth costs no stack.
        let mut derived: Vec<(Plan<Array>, Bound<'py, PyList>)> = Vec::new();
        let mut lazy = slf.get().lazy.clone();
        let (origin, ready) = loop {
            let recipe = lazy.recipe();
            if let Some(value) = lazy.get() {
                // As an array of NumPy: libraries pickle not every dtype, nor for every machine.
                break (value.to_host(py)?, true);
            }
            lazy = match recipe.as_deref() {
                None => {
                    return Err(Raise::new("PickleError", "the value was collected").err(py));
                }
                Some(Recipe::Origin(origin)) => break (origin_out(py, origin, path)?, false),
                Some(Recipe::Derive { source, steps }) => {
                    derived.push((lazy.plan().clone(), steps_out(py, steps, path)?));
                    source.clone()
                }
            };
            if is_shared(&lazy) {
                let state = State::standing_for(py, &lazy, slf.get().path.clone())?;
                break (state.into_any(), false);
            }
        };
        let plans = PyList::empty(py);
        for (plan, steps) in derived.iter().rev() {
            plans.append((plan_out(py, plan)?, steps))?;
        }
        let rebuild = py.import("lazyparam._core")?.getattr("rebuild_state")?;
        let plan = plan_out(py, lazy.plan())?;
        let args = (Self::needs(slf)?, origin, ready, plan, plans);
        Ok((rebuild, args.into_pyobject(py)?))
    }
}

impl State {
    /// The shared states that this one is derived from, the farthest first.
    ///
    /// They are pickled before it, each finding what it needs in the pickle already; otherwise
    /// pickle would go down from one to the next by recursion.
    fn needs<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let this = slf.get();
        let mut states = Vec::new();
        let mut lazy = this.lazy.clone();
        while !this.listed.load(Ordering::Relaxed)
            && lazy.get().is_none()
            && let Some(Recipe::Derive { source, .. }) = lazy.recipe().as_deref()
        {
            lazy = source.clone();
            if is_shared(&lazy) {
                let state = State::standing_for(py, &lazy, this.path.clone())?;
                state.get().listed.store(true, Ordering::Relaxed);
                states.push(state);
            }
        }
        states.reverse();
        PyList::new(py, states)
    }
}

/// Whether a source has other owners than the state that is derived from it and the caller.
fn is_shared(source: &Arc<Lazy<Array>>) -> bool {
    Arc::strong_count(source) > 2
}

fn origin_out<'py>(
    py: Python<'py>,
    origin: &Origin<Array>,
    path: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    match origin {
        Origin::Draw(draw) => Ok(draw.out(py)?.into_pyobject(py)?.into_any()),
        Origin::Call(call) => picklable(call.bind(py), "initialiser", path),
        Origin::Read(read) => {
            let store = read.store.clone();
            let checkpoint = Bound::new(py, Checkpoint { store })?;
            let read = (checkpoint, read.entry, read.mode.name());
            Ok(read.into_pyobject(py)?.into_any())
        }
    }
}

type PlanFields<'py> = (Bound<'py, PyTuple>, &'static str, Device, bool);

fn plan_out<'py>(py: Python<'py>, plan: &Plan<Array>) -> PyResult<PlanFields<'py>> {
    let shape = PyTuple::new(py, plan.shape.iter())?;
    Ok((
        shape,
        plan.dtype.name(),
        plan.device.clone(),
        plan.requires_grad,
    ))
}

fn plan_in(fields: &Bound<'_, PyAny>) -> PyResult<Plan<Array>> {
    let (shape, dtype, device, requires_grad): (Vec<usize>, Bound<'_, PyAny>, Device, bool) =
        fields.extract()?;
    Ok(Plan {
        shape: Shape::from(shape),
        dtype: dtype_of(&dtype)?,
        device,
        requires_grad,
    })
}

/// A state from what its `__reduce__` told. What it needs is there for the order only.
#[pyfunction]
pub(crate) fn rebuild_state(
    _needs: &Bound<'_, PyList>,
    origin: &Bound<'_, PyAny>,
    ready: bool,
    plan: &Bound<'_, PyAny>,
    derived: &Bound<'_, PyList>,
) -> PyResult<State> {
    let plan = plan_in(plan)?;
    let mut lazy = if let Ok(state) = origin.cast::<State>() {
        state.get().lazy.clone()
    } else if ready {
        ready_state(origin, plan)?
    } else {
        Lazy::new(plan, Recipe::Origin(origin_in(origin)?))
    };
    for step in derived {
        let (plan, steps): (Bound<'_, PyAny>, Bound<'_, PyAny>) = step.extract()?;
        let steps = steps_in(&steps)?;
        lazy = Lazy::new(
            plan_in(&plan)?,
            Recipe::Derive {
                source: lazy,
                steps,
            },
        );
    }
    Ok(State {
        lazy,
        path: None,
        listed: AtomicBool::new(false),
    })
}

/// A state whose value comes as an array of NumPy.
///
/// Where its device cannot be used, it comes to nothing yet: it waits on the host for its move, so
/// that the model can be looked at, and moved elsewhere.
fn ready_state(host: &Bound<'_, PyAny>, plan: Plan<Array>) -> PyResult<Arc<Lazy<Array>>> {
    let py = host.py();
    match settled_state(host, plan.clone()) {
        Err(error)
            if error.matches(py, py.import("lazyparam.errors")?.getattr("DeviceError")?)? =>
        {
            let source = settled_state(host, plan.at(&Device::cpu()))?;
            let steps = Vec::new();
            Ok(Lazy::new(plan, Recipe::Derive { source, steps }))
        }
        outcome => outcome,
    }
}

fn settled_state(host: &Bound<'_, PyAny>, plan: Plan<Array>) -> PyResult<Arc<Lazy<Array>>> {
    let py = host.py();
    let value = Array::from_host(host.clone(), &plan.device)?;
    let settled = lazyparam_core::Value::settle(value, &plan, Cx::new(py));
    let settled = settled.map_err(|failure| failure.into_err(py))?;
    Ok(Lazy::ready(plan, settled))
}

fn origin_in(origin: &Bound<'_, PyAny>) -> PyResult<Origin<Array>> {
    if let Ok(draw) = origin.extract::<DrawFields<'_>>() {
        return Ok(Origin::Draw(Draw::back(draw)?));
    }
    if let Ok((checkpoint, entry, mode)) =
        origin.extract::<(Bound<'_, Checkpoint>, usize, String)>()
    {
        let store = checkpoint.get().store.clone();
        return Ok(Origin::Read(Read {
            store,
            entry,
            mode: Mode::parse(origin.py(), &mode)?,
        }));
    }
    Ok(Origin::Call(origin.clone().unbind()))
}
