//! Functions of the user's: what they are called, and which ones are of no use here.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyFunction;

use crate::errors::Raise;
use crate::python;
use crate::raw::Getter;

/// What a function is called; runs no code of the user's, so only Python's own kinds are asked.
pub(crate) fn name_of(function: &Bound<'_, PyAny>) -> String {
    let kind = function.get_type();
    let is_ours = ["function", "method", "builtin_function_or_method", "type"]
        .iter()
        .any(|name| kind.name().is_ok_and(|kind| kind == *name))
        && kind.module().is_ok_and(|module| module == "builtins");
    let name = if is_ours {
        function
            .getattr("__qualname__")
            .and_then(|name| name.extract())
    } else {
        kind.name().map(|name| name.to_string())
    };
    name.unwrap_or_else(|_| "?".to_owned())
}

/// What a function is called in messages that may be about several: a lambda by its line, too.
pub(crate) fn whereabouts_of(function: &Bound<'_, PyAny>) -> String {
    let name = name_of(function);
    if !name.ends_with("<lambda>") {
        return name;
    }
    let place = || -> PyResult<String> {
        let code = function.getattr("__code__")?;
        let file: String = code.getattr("co_filename")?.extract()?;
        let file = file
            .rsplit(['/', '\\'])
            .next()
            .unwrap_or_default()
            .to_owned();
        Ok(format!(
            "{name}, {file}:{}",
            code.getattr("co_firstlineno")?
        ))
    };
    place().unwrap_or_else(|_| name.clone())
}

/// `function`, if pickle can find it again by name or knows how to pickle it.
pub(crate) fn picklable<'py>(
    function: &Bound<'py, PyAny>,
    what: &str,
    path: Option<&str>,
) -> PyResult<Bound<'py, PyAny>> {
    let name = name_of(function);
    if !name.contains("<lambda>") && !name.contains("<locals>") {
        return Ok(function.clone());
    }
    let raise = Raise::new(
        "PickleError",
        format!("the {what} {name} cannot be pickled"),
    )
    .remedy(
        "Use a function at the top level of a module, or an object with __call__ (for \
             parameters there is lazyparam.init); or read the value first.",
    );
    let raise = match path {
        Some(path) => raise.path(path),
        None => raise,
    };
    Err(raise.err(function.py()))
}

/// Refuse what cannot be called without arguments to make a value: coroutine functions above all.
pub(crate) fn usable(function: &Bound<'_, PyAny>) -> PyResult<()> {
    // Asked of plain functions only, and of their flags rather than of `inspect`: this is done
    // for each cell that is made. What slips through is caught by what it returns.
    if let Ok(function) = function.cast_exact::<PyFunction>() {
        const CO_COROUTINE: i64 = 0x80;
        if flags(function)? & CO_COROUTINE == 0 {
            return Ok(());
        }
        return Err(asynchronous(function.py(), &name_of(function)));
    }
    if function.is_callable() {
        return Ok(());
    }
    Err(
        Raise::new("LazyTypeError", "what makes the value is a function")
            .found(function.get_type().name()?.to_string())
            .remedy(
                "A value that is there already needs none: Lazy.of(value), OnceCell.set(value).",
            )
            .err(function.py()),
    )
}

/// The flags of the code of `function`.
fn flags(function: &Bound<'_, PyAny>) -> PyResult<i64> {
    /// What reads `__code__` of functions, and `co_flags` of codes.
    static GETTERS: PyOnceLock<(Getter, Getter)> = PyOnceLock::new();
    let py = function.py();
    if let Some((code, flags)) = GETTERS.get(py) {
        return flags.read(&code.read(function)?)?.extract();
    }
    let code = function.getattr(intern!(py, "__code__"))?;
    let getters = (
        Getter::of(&function.get_type().getattr(intern!(py, "__code__"))?),
        Getter::of(&code.get_type().getattr(intern!(py, "co_flags"))?),
    );
    if let (Some(code), Some(flags)) = getters {
        let _ = GETTERS.set(py, (code, flags));
    }
    code.getattr(intern!(py, "co_flags"))?.extract()
}

/// What `function` returned, unless it is a coroutine that nobody would ever await.
pub(crate) fn made<'py>(
    function: &Bound<'py, PyAny>,
    value: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    if !value.get_type().is(python::COROUTINE.get(py)?) {
        return Ok(value);
    }
    value.call_method0(intern!(py, "close"))?;
    Err(asynchronous(py, &name_of(function)))
}

fn asynchronous(py: Python<'_>, name: &str) -> PyErr {
    Raise::new("LazyTypeError", format!("{name} is a coroutine function"))
        .expected("a function that returns the value")
        .remedy(
            "Give a plain function, and await the cell: `await Lazy(load).aget()` runs `load` \
             in a thread; a function that has to await something can use `asyncio.run` there.",
        )
        .err(py)
}
