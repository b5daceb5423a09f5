//! Arguments as a user may write them: read, or refused by an error that says what was expected and found.

use lazyparam_bytes::fill::Part;
use lazyparam_core::Shape;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFrozenSet, PyInt, PySet, PySlice, PySliceMethods,
    PyString, PyTuple,
};

use crate::errors::Raise;
use crate::gate;

/// What was found, in an error: its repr, cut where it is long; its type, where it has none.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    const MOST: usize = 100;
    let text = match value.repr() {
        Ok(text) => text.to_string(),
        // An int of thousands of digits has none, either.
        Err(_) => value
            .get_type()
            .name()
            .map_or_else(|_| "?".to_owned(), |name| name.to_string()),
    };
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A text of the user's; `what` it is.
pub(crate) fn text_in(text: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    let wrong = |problem: &str| {
        Raise::new("DeclarationError", format!("{what} is {problem}")).found(shown(text))
    };
    let py = text.py();
    let Ok(name) = text.cast::<PyString>() else {
        return Err(wrong("a text").expected("a str").err(py));
    };
    match name.to_str() {
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err(wrong("not Unicode text")
            .expected("a str that UTF-8 can encode")
            .remedy("Replace the lone surrogates in it.")
            .err(py)),
    }
}

/// A shape from an int or a sequence of ints.
pub(crate) fn shape_of(spec: &Bound<'_, PyAny>) -> PyResult<Shape> {
    let py = spec.py();
    let wrong = |problem: &str| {
        Raise::new("DeclarationError", problem)
            .expected("an int or a sequence of ints, none of them negative")
            .found(shown(spec))
            .err(py)
    };
    let axis = |axis: &Bound<'_, PyAny>| -> PyResult<usize> {
        // `__index__` takes NumPy's ints and refuses floats; a bool is hardly meant as an extent.
        let is_bool = axis.is_instance_of::<PyBool>();
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
    // What can be walked, but is no sequence of extents.
    let is_other = spec.is_instance_of::<PyString>()
        || spec.is_instance_of::<PyBytes>()
        || spec.is_instance_of::<PyByteArray>()
        || spec.is_instance_of::<PySet>()
        || spec.is_instance_of::<PyFrozenSet>()
        || spec.is_instance_of::<PyDict>();
    let axes = match spec.try_iter() {
        Ok(axes) if !is_other => axes,
        _ if spec.hasattr("__index__")? => return Ok(Shape::from([axis(spec)?])),
        _ => return Err(wrong("this is not a shape")),
    };
    axes.map(|item| axis(&item?))
        .collect::<PyResult<Vec<usize>>>()
        .map(Shape::from)
}

/// Axes by number, in ascending order; negative numbers count from the last. None is none.
pub(crate) fn axes_of(axes: Option<&Bound<'_, PyAny>>, rank: usize) -> PyResult<Vec<usize>> {
    let Some(axes) = axes else {
        return Ok(Vec::new());
    };
    let wrong = || {
        Raise::new("DeclarationError", "batch_axes are axes of the shape")
            .expected(format!("a sequence of different numbers below {rank}"))
            .found(shown(axes))
            .err(axes.py())
    };
    let mut found = Vec::new();
    for axis in axes.try_iter().map_err(|_| wrong())? {
        let axis = axis?;
        let number: Option<isize> = match axis.is_instance_of::<PyBool>() {
            true => None,
            false => axis.extract().ok(),
        };
        let counted = number.and_then(|axis| match axis < 0 {
            true => rank.checked_add_signed(axis),
            false => usize::try_from(axis).ok(),
        });
        match counted {
            Some(axis) if axis < rank && !found.contains(&axis) => found.push(axis),
            _ => return Err(wrong()),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A slice for each axis, a slice alone for a single one, or None for all: where it begins, and its shape.
pub(crate) fn box_in(
    place: &Bound<'_, PyAny>,
    shape: &[usize],
) -> PyResult<(Vec<usize>, Vec<usize>)> {
    let py = place.py();
    if place.is_none() {
        return Ok((vec![0; shape.len()], shape.to_vec()));
    }
    let wrong = || {
        let problem = "a box has one slice for each axis, without steps";
        Raise::new("DeclarationError", problem)
            .expected(format!("{} slices, from ints to ints", shape.len()))
            .found(shown(place))
            .err(py)
    };
    let slices = match place.cast::<PySlice>() {
        Ok(slice) => vec![slice.clone()],
        Err(_) => (place.try_iter().map_err(|_| wrong())?)
            .map(|part| part?.cast_into().map_err(|_| wrong()))
            .collect::<PyResult<Vec<_>>>()?,
    };
    if slices.len() != shape.len() {
        return Err(wrong());
    }
    let mut start = Vec::new();
    let mut extent = Vec::new();
    for (slice, &whole) in slices.iter().zip(shape) {
        // As Python has it: negative bounds count from the end, and what lies beyond is cut off.
        let bounds = slice.indices(isize::try_from(whole)?).map_err(|error| {
            // Not what an index of the user's raises.
            let is_pythons =
                error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyValueError>(py);
            if is_pythons { wrong() } else { error }
        })?;
        if bounds.step != 1 {
            return Err(wrong());
        }
        start.push(bounds.start.cast_unsigned());
        extent.push((bounds.stop - bounds.start).max(0).cast_unsigned());
    }
    Ok((start, extent))
}

/// How many threads may work; None is one for each processor.
pub(crate) fn threads_in(threads: &Bound<'_, PyAny>) -> PyResult<usize> {
    if threads.is_none() {
        return Ok(gate::processors());
    }
    let count = match threads.is_instance_of::<PyBool>() {
        true => None,
        false => threads.extract::<usize>().ok(),
    };
    count.filter(|count| *count > 0).ok_or_else(|| {
        Raise::new("DeclarationError", "at least one thread has to work")
            .expected("a number of threads from 1 on, or None: one for each processor")
            .found(format!("threads={}", shown(threads)))
            .err(threads.py())
    })
}

/// A seed as Python has it.
pub(crate) fn seed_in(seed: &Bound<'_, PyAny>) -> PyResult<u128> {
    let number = match seed.is_instance_of::<PyBool>() {
        true => None,
        false => seed.extract().ok(),
    };
    number.ok_or_else(|| {
        Raise::new("DeclarationError", "a seed is a number")
            .expected("an int from 0 to 2**128 - 1")
            .found(shown(seed))
            .err(seed.py())
    })
}

/// A path as Python has it.
pub(crate) fn path_in(path: &Bound<'_, PyTuple>) -> PyResult<Vec<Part>> {
    path.iter()
        .map(|part| {
            if part.is_exact_instance_of::<PyInt>() {
                return part.extract().map(Part::Index).map_err(|_| {
                    Raise::new("DeclarationError", "a place in a path is a small number")
                        .expected("an int from -2**63 to 2**63 - 1")
                        .found(shown(&part))
                        .err(part.py())
                });
            }
            if !part.is_instance_of::<PyString>() {
                return Err(
                    Raise::new("DeclarationError", "a path consists of names and places")
                        .expected("str or int")
                        .found(shown(&part))
                        .err(part.py()),
                );
            }
            text_in(&part, "a name in a path").map(Part::Name)
        })
        .collect()
}
