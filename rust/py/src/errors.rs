//! From the faults of the pure crates to the exceptions of `lazyparam.errors`.

use std::io;

use lazyparam_bytes::store::StoreError;
use lazyparam_core::{Cycle, Fault, Named};
use pyo3::exceptions::{PyAttributeError, PyOSError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::python;

/// An exception of `lazyparam.errors` in the making.
pub(crate) struct Raise {
    class: &'static str,
    problem: String,
    path: Option<String>,
    expected: Option<String>,
    found: Option<String>,
    remedy: Option<String>,
}

impl Raise {
    /// An error of `class`, saying `problem`.
    pub(crate) fn new(class: &'static str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self {
            class,
            problem,
            path: None,
            expected: None,
            found: None,
            remedy: None,
        }
    }

    pub(crate) fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn found(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The exception; or the one that making it raised.
    pub(crate) fn err(self, py: Python<'_>) -> PyErr {
        self.build(py, None).unwrap_or_else(|error| error)
    }

    fn build(self, py: Python<'_>, cells: Option<&[std::sync::Arc<str>]>) -> PyResult<PyErr> {
        let class = py.import("lazyparam.errors")?.getattr(self.class)?;
        let context = PyDict::new(py);
        for (key, value) in [
            ("path", self.path),
            ("expected", self.expected),
            ("found", self.found),
            ("remedy", self.remedy),
        ] {
            if let Some(value) = value {
                context.set_item(key, value)?;
            }
        }
        if let Some(cells) = cells {
            context.set_item("cells", PyTuple::new(py, cells.iter().map(|cell| &**cell))?)?;
        }
        let error = class.call((self.problem,), Some(&context))?;
        Ok(PyErr::from_value(error))
    }
}

/// The error type of the core's operations: a Python exception, or a fault that becomes one.
///
/// The core makes faults where no interpreter is at hand, so they are translated at the border.
pub(crate) enum Failure {
    Raised(PyErr),
    Fault(Fault),
    /// The deadline came before the value that another thread is making.
    TimedOut,
}

impl Failure {
    pub(crate) fn into_err(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Raised(error) => error,
            Self::Fault(fault) => fault_err(py, fault),
            Self::TimedOut => timed_out("this value"),
        }
    }

    /// The exception, which says `what` it is that another thread is still making.
    pub(crate) fn into_err_of(self, py: Python<'_>, what: &dyn Named) -> PyErr {
        match self {
            Self::TimedOut => match what.label() {
                Some(what) => timed_out(&format!("the value of {what}")),
                None => timed_out("this value"),
            },
            failure => failure.into_err(py),
        }
    }
}

fn timed_out(what: &str) -> PyErr {
    PyTimeoutError::new_err(format!("another thread is still making {what}"))
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Cycle> for Failure {
    fn from(cycle: Cycle) -> Self {
        Self::Fault(Fault::Cycle(cycle))
    }
}

fn fault_err(py: Python<'_>, fault: Fault) -> PyErr {
    match fault {
        Fault::Cycle(cycle) => Raise::new("LazyCycleError", cycle.to_string())
            .remedy(
                "An initialiser may read other values, never its own; signal handlers, destructors and \
                 greenlets of one thread count as that thread.",
            )
            .build(py, Some(&cycle.cells))
            .unwrap_or_else(|error| error),
        Fault::Discarded => Raise::new(
            "InitError",
            "this value was part of garbage that has been collected",
        )
        .err(py),
        Fault::StoredShape { expected, found } => Raise::new(
            "ShapeMismatch",
            "the tensor does not have the shape the parameter stores",
        )
        .expected(shape_text(&expected))
        .found(shape_text(&found))
        .remedy(
            "If a mapper changes the shape on load, say so: \
                     load_mapper(f, stored_shape=...).",
        )
        .err(py),
    }
}

/// The exception for a failure, saying which parameter it is about: by its path, or by a label.
pub(crate) fn about(py: Python<'_>, failure: Failure, label: &str, path: Option<&str>) -> PyErr {
    let error = failure.into_err_of(py, &Some(label.into()));
    // The user's exception comes first: if it takes no note, it goes without.
    let _ = python::LOCATE
        .get(py)
        .and_then(|locate| locate.call1((error.value(py), label, path)));
    error
}

/// The exception for a store error: an `OSError` of the right kind, or one of ours.
pub(crate) fn store_err(py: Python<'_>, error: StoreError) -> PyErr {
    match error {
        StoreError::Io { path, source } => match errno(py, &source) {
            // OSError picks its subclass by errno.
            Some((code, text)) => PyOSError::new_err((code, text, path.into_os_string())),
            None => PyErr::from(io::Error::new(
                source.kind(),
                format!("{}: {source}", path.display()),
            )),
        },
        StoreError::OutOfMemory { bytes } => {
            pyo3::exceptions::PyMemoryError::new_err(format!("no room for {bytes} bytes"))
        }
        StoreError::Unsupported(problem) => Raise::new("RecordError", problem).err(py),
        StoreError::Changed {
            path,
            tensor,
            expected,
            found,
        } => Raise::new(
            "FormatError",
            format!("tensor {tensor:?}: the file changed since it was opened"),
        )
        .path(path.display().to_string())
        .expected(format!("{expected} bytes"))
        .found(format!("{found} bytes"))
        .remedy("Load it again once nobody writes to it any more.")
        .err(py),
        // The problem names the tensor, if it is that of one.
        StoreError::Format {
            path,
            problem,
            remedy,
            ..
        } => {
            let raise = Raise::new("FormatError", problem).path(path.display().to_string());
            match remedy {
                Some(remedy) => raise.remedy(format!("{remedy}.")).err(py),
                None => raise.err(py),
            }
        }
        StoreError::Missing { path, files } => {
            Raise::new("FormatError", "files that the index names are not there")
                .path(path.display().to_string())
                .found(format!("missing {}", files.join(", ")))
                .remedy("Download the missing files.")
                .err(py)
        }
    }
}

/// The number that the system has for an error, and a text: the system's, unless ours says more.
fn errno(py: Python<'_>, error: &io::Error) -> Option<(i32, String)> {
    let name = match error.kind() {
        io::ErrorKind::NotFound => "ENOENT",
        io::ErrorKind::PermissionDenied => "EACCES",
        io::ErrorKind::IsADirectory => "EISDIR",
        io::ErrorKind::NotADirectory => "ENOTDIR",
        io::ErrorKind::ReadOnlyFilesystem => "EROFS",
        io::ErrorKind::StorageFull => "ENOSPC",
        io::ErrorKind::InvalidInput => "EINVAL",
        _ => "",
    };
    let number = || -> Option<i32> { py.import("errno").ok()?.getattr(name).ok()?.extract().ok() };
    let code = error.raw_os_error().or_else(number)?;
    let text = error.to_string();
    // The number is at the end of the system's texts; whoever makes temporary files adds a path
    // that nobody has heard of.
    let is_ours = !text.contains("(os error ");
    let known = || -> Option<String> {
        let os = py.import("os").ok()?;
        os.call_method1("strerror", (code,)).ok()?.extract().ok()
    };
    let text = if is_ours {
        text
    } else {
        known().unwrap_or(text)
    };
    Some((code, text))
}

/// `(2, 3)`, `(2,)` or `()`: a shape as Python writes it.
pub(crate) fn shape_text(shape: &[usize]) -> String {
    match shape {
        [only] => format!("({only},)"),
        _ => {
            let inner: Vec<String> = shape.iter().map(ToString::to_string).collect();
            format!("({})", inner.join(", "))
        }
    }
}

/// The error that Python itself raises for an attribute that `object` does not have.
pub(crate) fn no_attribute(object: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let raise = || -> PyResult<PyErr> {
        let py = object.py();
        let kind = object.get_type();
        let text = format!("'{}' object has no attribute '{name}'", kind.name()?);
        let context = PyDict::new(py);
        context.set_item("name", name)?;
        context.set_item("obj", object)?;
        let class = py.get_type::<PyAttributeError>();
        Ok(PyErr::from_value(class.call((text,), Some(&context))?))
    };
    raise().unwrap_or_else(|error| error)
}
