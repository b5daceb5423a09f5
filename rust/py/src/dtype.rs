//! Dtypes by name: what Python says of an element type, and what the store knows of it.

use lazyparam_bytes::Dtype;
use pyo3::prelude::*;

use crate::arguments::shown;
use crate::errors::Raise;
use crate::python;

/// `Dtype` from a name, a NumPy dtype, or a scalar type.
pub(crate) fn dtype_of(spec: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    let name = named(spec)?;
    let name = name
        .as_deref()
        .map(|name| name.strip_prefix("torch.").unwrap_or(name));
    let known = match name.and_then(Dtype::from_name) {
        Some(dtype) => Some(dtype),
        // "f4", "half", float: what NumPy makes of it.
        None => python::HOST_DTYPE_NAME
            .get(spec.py())?
            .call1((spec,))?
            .extract::<Option<String>>()?
            .and_then(|name| Dtype::from_name(&name)),
    };
    match known {
        Some(dtype) => Ok(dtype),
        None => {
            let names: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
            Err(Raise::new(
                "DeclarationError",
                "this is not a dtype that lazyparam knows",
            )
            .expected(format!("one of {}", names.join(", ")))
            .found(shown(spec))
            .err(spec.py()))
        }
    }
}

/// The name a dtype goes by: a text itself, `np.dtype("f4").name`, `np.float32.__name__`,
/// `str(torch.float32)`.
fn named(spec: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Ok(text) = spec.extract::<String>() {
        return Ok(Some(text));
    }
    for attribute in ["name", "__name__"] {
        if let Some(name) = spec.getattr_opt(attribute)?
            && let Ok(name) = name.extract::<String>()
        {
            return Ok(Some(name));
        }
    }
    // What has no text has no name, either.
    Ok(spec.str().ok().and_then(|text| text.extract().ok()))
}

/// The canonical name of a dtype: NumPy's, or that of ml_dtypes.
#[pyfunction]
pub(crate) fn dtype_name(dtype: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    Ok(dtype_of(dtype)?.name())
}

/// What a dtype holds: ``"bool"``, ``"int"``, ``"float"`` or ``"complex"``.
#[pyfunction]
pub(crate) fn dtype_kind(dtype: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    Ok(dtype_of(dtype)?.kind().as_str())
}

/// Bytes of one element in memory.
#[pyfunction]
pub(crate) fn dtype_size(dtype: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(dtype_of(dtype)?.size())
}

/// Whether every value of `narrow` is exactly a value of `wide`.
#[pyfunction]
pub(crate) fn widens(narrow: &Bound<'_, PyAny>, wide: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(dtype_of(narrow)?.widens_to(dtype_of(wide)?))
}
