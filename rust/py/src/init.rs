//! `Init`: a native initialiser, as an immutable value.

use lazyparam_bytes::{Buffer, Dtype, fill, shape};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::{Raise, shape_text, store_err};
use crate::gate::{self, Cx};
use crate::python;
use crate::scalar::Scalar;

/// What a native initialiser does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Draw {
    /// Nothing: a value has to be loaded.
    Missing,
    Zeros,
    Ones,
    Constant(Scalar),
    Eye,
}

/// A native initialiser: a small immutable value that compares, hashes, prints and pickles.
///
/// Made by the functions of ``lazyparam.init``; `name` and `args` say which and how.
#[pyclass(frozen, eq, hash, module = "lazyparam.init")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Init {
    pub(crate) draw: Draw,
}

#[pymethods]
impl Init {
    #[new]
    #[pyo3(signature = (name, *args))]
    fn new(name: &str, args: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let draw = match (name, args.len()) {
            ("missing", 0) => Draw::Missing,
            ("zeros", 0) => Draw::Zeros,
            ("ones", 0) => Draw::Ones,
            ("eye", 0) => Draw::Eye,
            ("constant", 1) => Draw::Constant(Scalar::from_python(&args.get_item(0)?)?),
            _ => {
                return Err(
                    Raise::new("DeclarationError", "there is no such initialiser")
                        .found(format!("{name} with {} arguments", args.len()))
                        .err(args.py()),
                );
            }
        };
        Ok(Self { draw })
    }

    /// The function of ``lazyparam.init`` that makes it.
    #[getter]
    fn name(&self) -> &'static str {
        match self.draw {
            Draw::Missing => "missing",
            Draw::Zeros => "zeros",
            Draw::Ones => "ones",
            Draw::Constant(_) => "constant",
            Draw::Eye => "eye",
        }
    }

    /// Its arguments.
    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self.draw {
            Draw::Constant(value) => PyTuple::new(py, [value.to_python(py)?]),
            _ => Ok(PyTuple::empty(py)),
        }
    }

    pub(crate) fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let args: PyResult<Vec<String>> = self
            .args(py)?
            .iter()
            .map(|arg| Ok(arg.repr()?.to_string()))
            .collect();
        Ok(format!("{}({})", self.name(), args?.join(", ")))
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let args: Vec<Bound<'py, PyAny>> =
            std::iter::once(self.name().into_pyobject(py)?.into_any())
                .chain(self.args(py)?.iter())
                .collect();
        Ok((py.get_type::<Self>().into_any(), PyTuple::new(py, args)?))
    }
}

impl Draw {
    /// Refuse a declaration that could only fail when the value is needed.
    pub(crate) fn check(self, py: Python<'_>, shape: &[usize], dtype: Dtype) -> PyResult<()> {
        match self {
            Self::Eye if shape.len() != 2 => Err(Raise::new(
                "DeclarationError",
                "an identity matrix has two dimensions",
            )
            .expected("a shape (rows, columns)")
            .found(shape_text(shape))
            .err(py)),
            Self::Zeros | Self::Eye if dtype == Dtype::F8E8M0 => {
                Err(Raise::new("DeclarationError", "this dtype has no zero")
                    .found(dtype.name())
                    .err(py))
            }
            Self::Constant(value) => match element(py, value, dtype) {
                // Where ml_dtypes is not installed, the value cannot be made, but be declared.
                Err(error) if !error.is_instance_of::<PyImportError>(py) => Err(error),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The bytes of the planned value. The elements are written detached.
    pub(crate) fn fill(self, cx: Cx<'_>, dims: &[usize], dtype: Dtype) -> PyResult<Buffer> {
        let py = cx.py;
        let one = match self {
            Self::Missing => {
                return Err(Raise::new("InitError", "this parameter has no initialiser")
                    .remedy("Load a checkpoint before reading it, or declare it with init=...")
                    .err(py));
            }
            Self::Zeros => None,
            Self::Ones | Self::Eye => Some(element(py, Scalar::Int(1), dtype)?),
            Self::Constant(value) => Some(element(py, value, dtype)?),
        };
        let len = shape::checked_len(dims, dtype).ok_or_else(|| {
            Raise::new(
                "DeclarationError",
                "a tensor of this shape does not fit into memory",
            )
            .found(shape_text(dims))
            .err(py)
        })?;
        gate::detached(py, || {
            let mut buffer = Buffer::zeroed(len)?;
            match (self, one.as_deref(), dims) {
                (Self::Eye, Some(one), &[rows, columns]) => {
                    fill::eye(buffer.as_mut_slice(), rows, columns, one);
                }
                (_, Some(one), _) => fill::repeat(buffer.as_mut_slice(), one),
                (_, None, _) => {}
            }
            Ok(buffer)
        })
        .map_err(|error| store_err(py, error))
    }
}

fn element(py: Python<'_>, value: Scalar, dtype: Dtype) -> PyResult<Vec<u8>> {
    let bytes = python::HOST_ELEMENT
        .get(py)?
        .call1((value.to_python(py)?, dtype.name()));
    bytes.and_then(|bytes| bytes.extract()).map_err(|error| {
        if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(py) {
            Raise::new("DeclarationError", error.value(py).to_string()).err(py)
        } else {
            error
        }
    })
}
