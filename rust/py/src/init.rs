//! `Init`: a native initialiser, as an immutable value.

use lazyparam_bytes::fill::{self, Arg, InitError, Number};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyDict, PyFloat, PyFunction, PyInt, PyString, PyTuple};

use crate::arguments::{shown, text_in};
use crate::errors::Raise;
use crate::function::name_of;

/// A native initialiser: a small immutable value that compares, hashes, prints and pickles.
///
/// Made by the functions of ``lazyparam.init``; `name` and `args` say which and how.
#[pyclass(frozen, eq, hash, module = "lazyparam.init")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Init {
    pub(crate) init: fill::Init,
}

#[pymethods]
impl Init {
    #[new]
    #[pyo3(signature = (name, **args))]
    fn new(name: &Bound<'_, PyAny>, args: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let py = name.py();
        let name = &text_in(name, "the name of an initialiser")?;
        let mut parts: Vec<(String, Arg)> = Vec::new();
        for (name, value) in args.into_iter().flatten() {
            parts.push((text_in(&name, "the name of an argument")?, arg_in(&value)?));
        }
        let parts: Vec<(&str, Arg)> = parts
            .iter()
            .map(|(name, arg)| (name.as_str(), arg.clone()))
            .collect();
        let init = fill::Init::from_parts(name, &parts).map_err(|error| init_err(py, &error))?;
        Ok(Self { init })
    }

    /// The function of ``lazyparam.init`` that makes it.
    #[getter]
    fn name(&self) -> &'static str {
        self.init.name()
    }

    /// Its arguments, by name; None where one is not given.
    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let args = PyDict::new(py);
        for (name, arg) in self.init.args() {
            args.set_item(name, arg_out(py, &arg)?)?;
        }
        Ok(args)
    }

    pub(crate) fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut args = Vec::new();
        let given = self.init.args();
        for (name, arg) in &given {
            let text = || Ok::<_, PyErr>(arg_out(py, arg)?.repr()?.to_string());
            match arg {
                Arg::Nothing => {}
                _ if given.len() == 1 => args.push(text()?),
                _ => args.push(format!("{name}={}", text()?)),
            }
        }
        Ok(format!("{}({})", self.name(), args.join(", ")))
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let rebuild = py.import("lazyparam._core")?.getattr("rebuild_init")?;
        Ok((rebuild, (self.name(), self.args(py)?).into_pyobject(py)?))
    }
}

/// A native initialiser as Python has it.
pub(crate) fn native<'a>(init: &'a Bound<'_, PyAny>) -> PyResult<&'a Init> {
    match init.cast::<Init>() {
        Ok(init) => Ok(init.get()),
        Err(_) => {
            refuse_uncalled(init)?;
            Err(
                Raise::new("DeclarationError", "this is not a native initialiser")
                    .expected("one of lazyparam.init")
                    .found(shown(init))
                    .err(init.py()),
            )
        }
    }
}

/// Refuse `lazyparam.init.zeros` where `lazyparam.init.zeros()` is meant.
pub(crate) fn refuse_uncalled(init: &Bound<'_, PyAny>) -> PyResult<()> {
    let is_ours = init.is_instance_of::<PyFunction>()
        && init
            .getattr("__module__")
            .is_ok_and(|module| module.eq("lazyparam.init").unwrap_or(false));
    if !is_ours {
        return Ok(());
    }
    let name = name_of(init);
    Err(Raise::new(
        "DeclarationError",
        "this makes an initialiser and is none itself",
    )
    .found(format!("lazyparam.init.{name}"))
    .remedy(format!("Call it: init={name}(...)."))
    .err(init.py()))
}

/// The gain of a nonlinearity, by PyTorch's name for it.
#[pyfunction]
pub(crate) fn gain_of(nonlinearity: &Bound<'_, PyAny>, slope: &Bound<'_, PyAny>) -> PyResult<f64> {
    fill::Nonlinearity::from_parts(&arg_in(nonlinearity)?, &arg_in(slope)?)
        .map(fill::Nonlinearity::gain)
        .map_err(|error| init_err(nonlinearity.py(), &error))
}

/// An initialiser from what its `__reduce__` told.
#[pyfunction]
pub(crate) fn rebuild_init(name: &Bound<'_, PyAny>, args: &Bound<'_, PyDict>) -> PyResult<Init> {
    Init::new(name, Some(args))
}

/// The exception for what is wrong with an initialiser.
pub(crate) fn init_err(py: Python<'_>, error: &InitError) -> PyErr {
    let mut raise = Raise::new("DeclarationError", error.problem());
    if let Some(expected) = error.expected() {
        raise = raise.expected(expected);
    }
    if let Some(found) = error.found() {
        raise = raise.found(found);
    }
    if let Some(remedy) = error.remedy() {
        raise = raise.remedy(format!("{remedy}."));
    }
    raise.err(py)
}

fn arg_in(value: &Bound<'_, PyAny>) -> PyResult<Arg> {
    if value.is_none() {
        return Ok(Arg::Nothing);
    }
    if value.is_instance_of::<PyString>() {
        return text_in(value, "an argument").map(Arg::Text);
    }
    number_in(value).map(Arg::Number)
}

fn arg_out<'py>(py: Python<'py>, arg: &Arg) -> PyResult<Bound<'py, PyAny>> {
    match arg {
        Arg::Nothing => Ok(py.None().into_bound(py)),
        Arg::Text(text) => Ok(PyString::new(py, text).into_any()),
        Arg::Number(number) => number_out(py, *number),
    }
}

/// One number as Python, or NumPy, has it.
fn number_in(value: &Bound<'_, PyAny>) -> PyResult<Number> {
    let py = value.py();
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Number::Bool(flag.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract().map(Number::Int).map_err(|_| {
            Raise::new("DeclarationError", "this number is too large for any dtype")
                .expected("an int from -2**127 to 2**127 - 1")
                .found(shown(value))
                .err(py)
        });
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().map(Number::Float);
    }
    if let Ok(number) = value.cast::<PyComplex>() {
        use pyo3::types::PyComplexMethods;
        return Ok(Number::Complex(number.real(), number.imag()));
    }
    // A NumPy scalar knows its Python number.
    if let Some(item) = value.getattr_opt("item")?
        && let Ok(number) = item.call0()
        && !number.get_type().is(value.get_type())
    {
        return number_in(&number);
    }
    Err(
        Raise::new("DeclarationError", "an argument is a number or a word")
            .expected("a bool, int, float, complex or str")
            .found(value.get_type().name()?.to_string())
            .err(py),
    )
}

fn number_out(py: Python<'_>, number: Number) -> PyResult<Bound<'_, PyAny>> {
    Ok(match number {
        Number::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Number::Int(value) => value.into_pyobject(py)?.into_any(),
        Number::Float(value) => PyFloat::new(py, value).into_any(),
        Number::Complex(re, im) => PyComplex::from_doubles(py, re, im).into_any(),
    })
}
