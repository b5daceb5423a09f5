//! One number as Python has it: the value of a constant initialiser.

use std::hash::{Hash, Hasher};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt};

use crate::errors::Raise;

/// A bool, an int (of at most 128 bits), a float or a complex number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar {
    Bool(bool),
    Int(i128),
    Float(f64),
    Complex(f64, f64),
}

impl Scalar {
    /// What makes two scalars the same constant: kind and bits, so NaN equals itself.
    fn key(self) -> (u8, u128) {
        match self {
            Self::Bool(value) => (0, u128::from(value)),
            Self::Int(value) => (1, value.cast_unsigned()),
            Self::Float(value) => (2, u128::from(value.to_bits())),
            Self::Complex(re, im) => (
                3,
                (u128::from(re.to_bits()) << 64) | u128::from(im.to_bits()),
            ),
        }
    }

    pub(crate) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = value.py();
        if let Ok(flag) = value.cast::<PyBool>() {
            return Ok(Self::Bool(flag.is_true()));
        }
        if value.is_instance_of::<PyInt>() {
            return value.extract().map(Self::Int).map_err(|_| {
                Raise::new("DeclarationError", "this number is too large for any dtype").err(py)
            });
        }
        if value.is_instance_of::<PyFloat>() {
            return value.extract().map(Self::Float);
        }
        if let Ok(number) = value.cast::<PyComplex>() {
            use pyo3::types::PyComplexMethods;
            return Ok(Self::Complex(number.real(), number.imag()));
        }
        // A NumPy scalar knows its Python number.
        if let Some(item) = value.getattr_opt("item")?
            && let Ok(number) = item.call0()
            && !number.get_type().is(value.get_type())
        {
            return Self::from_python(&number);
        }
        Err(Raise::new("DeclarationError", "a constant is a number")
            .expected("a bool, int, float or complex")
            .found(value.get_type().name()?.to_string())
            .err(py))
    }

    pub(crate) fn to_python<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Self::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
            Self::Int(value) => value.into_pyobject(py)?.into_any(),
            Self::Float(value) => PyFloat::new(py, value).into_any(),
            Self::Complex(re, im) => PyComplex::from_doubles(py, re, im).into_any(),
        })
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
