//! Draws: a native initialiser with the key that decides which values it gives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lazyparam_bytes::fill::{Fill, Isa, Key, Part, Plan, Region, Target};
use lazyparam_bytes::{Buffer, Dtype, fill};
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::arguments::{axes_of, box_in, path_in, seed_in, shape_of, shown, threads_in};
use crate::array::host_array;
use crate::errors::Raise;
use crate::gate::{self, Cx};
use crate::init::{Init, init_err, native};
use crate::raw::{Buffer as RawBuffer, Memory};
use crate::team::Desk;

/// How long a fill goes on before signals are looked at.
const SLICE: Duration = Duration::from_millis(50);

/// With fewer bytes left, a thread costs more than it saves.
const WORTH_A_THREAD: usize = 1 << 20;

/// Where a native value comes from.
#[derive(Clone, Debug)]
pub(crate) enum Draw {
    /// Nowhere: it has to be loaded.
    Missing,
    /// An initialiser and a key.
    Keyed(Arc<Keyed>),
}

/// What decides a value, whoever computes it.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    pub(crate) init: fill::Init,
    key: Key,
    /// Takes the place of the path in the key.
    name: Option<String>,
    /// Axes along which independent parameters are stacked.
    batch_axes: Vec<usize>,
}

impl Draw {
    /// A draw of its own: the key is decided now, at the declaration.
    pub(crate) fn declared(
        init: &Init,
        name: Option<String>,
        batch_axes: Vec<usize>,
    ) -> PyResult<Self> {
        let mut seed = [0; 16];
        if init.init.is_random() {
            getrandom::fill(&mut seed).map_err(|error| PyOSError::new_err(error.to_string()))?;
        }
        Ok(Self::Keyed(Arc::new(Keyed {
            init: init.init.clone(),
            key: Key::new(u128::from_ne_bytes(seed), []),
            name,
            batch_axes,
        })))
    }

    /// The same initialiser, its values decided by `seed`, and by `path` unless it has a name.
    pub(crate) fn seeded(&self, seed: u128, path: &[Part]) -> Self {
        match self {
            Self::Missing => Self::Missing,
            Self::Keyed(keyed) => Self::Keyed(Arc::new(Keyed {
                key: match &keyed.name {
                    Some(name) => Key::named(seed, name),
                    None => Key::new(seed, path.iter().cloned()),
                },
                ..Keyed::clone(keyed)
            })),
        }
    }

    /// Refuse a declaration that could only fail when the value is needed.
    pub(crate) fn check(&self, py: Python<'_>, dims: &[usize], dtype: Dtype) -> PyResult<()> {
        match self {
            Self::Missing => Ok(()),
            Self::Keyed(keyed) => keyed.plan(py, dims, dtype, &Region::whole(dims)).map(drop),
        }
    }

    /// The bytes of the planned value, written detached.
    pub(crate) fn fill(&self, cx: Cx<'_>, dims: &[usize], dtype: Dtype) -> PyResult<Buffer> {
        let py = cx.py;
        let Self::Keyed(keyed) = self else {
            return Err(Raise::new("InitError", "this parameter has no initialiser")
                .remedy("Load a checkpoint before reading it, or declare it with init=...")
                .err(py));
        };
        keyed.fill(cx, dims, dtype, &Region::whole(dims))
    }
}

impl Keyed {
    /// One box of a parameter of this shape.
    fn fill(&self, cx: Cx<'_>, dims: &[usize], dtype: Dtype, region: &Region) -> PyResult<Buffer> {
        let plan = self.plan(cx.py, dims, dtype, region)?;
        let (threads, desk) = (cx.threads, cx.desk);
        gate::detached(cx.py, || filled(&plan, threads, desk))
    }

    fn plan(
        &self,
        py: Python<'_>,
        dims: &[usize],
        dtype: Dtype,
        region: &Region,
    ) -> PyResult<Plan> {
        Plan::of_region(&self.init, &self.key, dims, dtype, &self.batch_axes, region)
            .map_err(|error| init_err(py, &error))
    }
}

/// The values of `plan`. Called detached; answers signals now and then.
///
/// Threads that `initialize` needs no longer for other parameters join in.
fn filled(plan: &Plan, threads: usize, desk: Option<&Desk<'_>>) -> PyResult<Buffer> {
    let mut buffer = Buffer::zeroed(plan.bytes())
        .map_err(|refused| PyMemoryError::new_err(refused.to_string()))?;
    if plan.is_zeros() {
        return Ok(buffer);
    }
    let fill = Fill::new(plan, Target::contiguous(buffer.as_mut_slice()))
        .map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    let outcome = std::thread::scope(|scope| {
        for _ in 1..threads.min(fill.chunks()) {
            let builder = std::thread::Builder::new();
            if builder.spawn_scoped(scope, || fill.run()).is_err() {
                break; // as many as the system allows
            }
        }
        let mut until = Instant::now() + SLICE;
        while fill.step() {
            if let Some(desk) = desk {
                let done = fill.done();
                desk.tell(done);
                if fill.bytes() - done >= WORTH_A_THREAD && desk.team.take() {
                    let help = || {
                        fill.run();
                        desk.team.free(1);
                    };
                    // Where the system refuses, this thread does it alone.
                    let _ = std::thread::Builder::new().spawn_scoped(scope, help);
                }
            }
            if Instant::now() >= until {
                if let Some(Err(error)) = gate::attached(|py| py.check_signals()) {
                    fill.cancel();
                    return Err(error);
                }
                until = Instant::now() + SLICE;
            }
        }
        Ok(())
    });
    outcome.map(|()| buffer)
}

/// The identity of a draw: a seed, and the path of a parameter.
///
/// Equal keys give equal values, keys that differ anywhere give independent ones.
///
/// Args:
///     seed: an int from 0 to 2**128 - 1.
///     path: names (str) and places in lists (int) that lead to the parameter.
#[pyclass(frozen, eq, hash, name = "Key", module = "lazyparam.init")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyKey {
    key: Key,
}

#[pymethods]
impl PyKey {
    #[new]
    #[pyo3(signature = (seed, *path))]
    fn new(seed: &Bound<'_, PyAny>, path: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let key = Key::new(seed_in(seed)?, path_in(path)?);
        Ok(Self { key })
    }

    /// The seed.
    #[getter]
    fn seed(&self) -> u128 {
        self.key.seed()
    }

    /// The path.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        path_out(py, self.key.path())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut words = vec![self.seed().to_string()];
        for part in self.path(py)? {
            words.push(part.repr()?.to_string());
        }
        Ok(format!("Key({})", words.join(", ")))
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let mut args = vec![slf.get().seed().into_pyobject(py)?.into_any()];
        args.extend(slf.get().path(py)?.iter());
        Ok((slf.get_type().into_any(), PyTuple::new(py, args)?))
    }
}

/// A box of a parameter alone: the same bits as that slice of the whole. See ``lazyparam.init.fill``.
#[pyfunction]
pub(crate) fn fill_box<'py>(
    init: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    place: &Bound<'py, PyAny>,
    batch_axes: &Bound<'py, PyAny>,
    threads: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = init.py();
    let shape = shape_of(shape)?;
    let keyed = Keyed {
        init: native(init)?.init.clone(),
        key: key_in(key)?,
        name: None,
        batch_axes: axes_of(Some(batch_axes), shape.len())?,
    };
    let dtype = crate::dtype::dtype_of(dtype)?;
    let (start, extent) = box_in(place, &shape)?;
    let mut cx = Cx::new(py);
    cx.threads = threads_in(threads)?;
    let buffer = keyed.fill(cx, &shape, dtype, &Region::new(start, extent.clone()))?;
    host_array(RawBuffer::new(Memory::Owned(buffer)), &extent, dtype, py)
}

/// The instruction set that values are drawn with on this machine.
#[pyfunction]
pub(crate) fn instruction_set() -> &'static str {
    Isa::detect().name()
}

fn key_in(key: &Bound<'_, PyAny>) -> PyResult<Key> {
    match key.cast::<PyKey>() {
        Ok(key) => Ok(key.get().key.clone()),
        Err(_) => Err(Raise::new("DeclarationError", "this is not a key")
            .expected("lazyparam.init.Key(seed, *path)")
            .found(shown(key))
            .err(key.py())),
    }
}

fn path_out<'py>(py: Python<'py>, path: &[Part]) -> PyResult<Bound<'py, PyTuple>> {
    let parts = path.iter().map(|part| match part {
        Part::Index(index) => Ok(index.into_pyobject(py)?.into_any()),
        Part::Name(name) => Ok(PyString::new(py, name).into_any()),
    });
    PyTuple::new(py, parts.collect::<PyResult<Vec<_>>>()?)
}

/// What pickle is told of a draw, and makes it from again.
pub(crate) type DrawFields<'py> = (
    Option<Bound<'py, Init>>,
    u128,
    Bound<'py, PyTuple>,
    Option<String>,
    Vec<usize>,
);

impl Draw {
    pub(crate) fn out<'py>(&self, py: Python<'py>) -> PyResult<DrawFields<'py>> {
        match self {
            Self::Missing => Ok((None, 0, PyTuple::empty(py), None, Vec::new())),
            Self::Keyed(keyed) => Ok((
                Some(Bound::new(
                    py,
                    Init {
                        init: keyed.init.clone(),
                    },
                )?),
                keyed.key.seed(),
                path_out(py, keyed.key.path())?,
                keyed.name.clone(),
                keyed.batch_axes.clone(),
            )),
        }
    }

    pub(crate) fn back((init, seed, path, name, batch_axes): DrawFields<'_>) -> PyResult<Self> {
        let Some(init) = init else {
            return Ok(Self::Missing);
        };
        Ok(Self::Keyed(Arc::new(Keyed {
            init: init.get().init.clone(),
            key: Key::new(seed, path_in(&path)?),
            name,
            batch_axes,
        })))
    }
}
