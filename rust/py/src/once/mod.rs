//! The once-cell for any Python object: `OnceCell`, `Lazy` and the attribute decorator `lazy`.

mod attribute;
mod cell;
mod lazy;

pub(crate) use attribute::{LazyAttribute, rebuild_attribute};
pub(crate) use cell::{OnceCell, rebuild_cell};
pub(crate) use lazy::{Lazy, rebuild_lazy, thread_number};

use lazyparam_core::{Label, Named};
use pyo3::prelude::*;

use crate::function;
use crate::raw::{self, Slot};

/// A cell of the core whose value is where a member descriptor can read it.
type Cell = lazyparam_core::OnceCell<Py<PyAny>, Slot>;

/// Open the classes of this room to fast reads; once, when the module is made.
pub(crate) fn open_to_reads(py: Python<'_>) -> PyResult<()> {
    let doc = c"The value; made by the factory at the first read, then as fast as a slot.";
    let lazy = Bound::new(py, Lazy::empty())?;
    raw::open_to_reads(&lazy, lazy.get().slot(), c"value", doc)?;
    let doc = c"The value, as fast as a slot; an UnsetError if there is none yet.";
    let cell = Bound::new(py, OnceCell::empty())?;
    raw::open_to_reads(&cell, cell.get().slot(), c"value", doc)?;
    raw::open_to_calls::<Lazy>(py)
}

/// What `factory` makes.
fn make(factory: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    Ok(function::made(factory, factory.call0()?)?.unbind())
}

/// The name of a cell: its class's and its factory's.
struct Name<'a, 'py> {
    class: &'static str,
    factory: Option<&'a Bound<'py, PyAny>>,
}

impl Named for Name<'_, '_> {
    fn label(&self) -> Label {
        Some(match self.factory {
            Some(factory) => {
                format!("{}({})", self.class, function::whereabouts_of(factory)).into()
            }
            None => self.class.into(),
        })
    }
}

/// `<kind state value>`, where what contains itself is shown once.
fn shown(object: &Bound<'_, PyAny>, kind: &str, cell: &Cell) -> PyResult<String> {
    let py = object.py();
    let Some(value) = cell.get() else {
        let state = if cell.is_running() {
            "running"
        } else {
            "empty"
        };
        return Ok(format!("<{kind} {state}>"));
    };
    let text = raw::showing(object, || Ok(value.bind(py).repr()?.to_string()))?;
    Ok(format!(
        "<{kind} ready {}>",
        text.as_deref().unwrap_or("...")
    ))
}

/// `copy.deepcopy(value, memo)`
fn deep_copy(value: &Py<PyAny>, memo: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let copy = memo.py().import("copy")?;
    Ok(copy.call_method1("deepcopy", (value, memo))?.unbind())
}

/// Have `memo`, the memo of a deep copy, know that `copy` is that of `original`.
///
/// Before what is inside is copied, so that what contains itself comes out so.
fn remember<'py, T: pyo3::PyClass>(
    memo: &Bound<'py, PyAny>,
    original: &Bound<'py, T>,
    copy: &Bound<'py, T>,
) -> PyResult<()> {
    memo.set_item(original.as_ptr() as usize, copy)
}
