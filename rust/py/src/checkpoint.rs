//! `Checkpoint`: an open checkpoint, and the writing of one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{self, Checkpoint as Store};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::errors::{Raise, store_err};
use crate::{gate, raw};

/// How a tensor gets from its file into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Read into memory of its own.
    Copy,
    /// Mapped, where the file allows it.
    View,
}

impl Mode {
    pub(crate) fn parse(py: Python<'_>, text: &str) -> PyResult<Self> {
        match text {
            "copy" => Ok(Self::Copy),
            "view" => Ok(Self::View),
            _ => Err(
                Raise::new("RecordError", "there is no such mode of reading")
                    .expected("\"copy\" or \"view\"")
                    .found(format!("{text:?}"))
                    .err(py),
            ),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::View => "view",
        }
    }
}

/// An open checkpoint: one ``.safetensors`` file, or several under an ``index.json``.
///
/// Opening reads and checks the headers only. The files stay open, so removing or replacing them
/// does no harm.
///
/// Args:
///     path: a ``.safetensors`` file, a ``*.index.json``, or a folder with one of them.
///
/// Raises:
///     FormatError: if it is not a well-formed checkpoint.
///     OSError: if it cannot be opened.
#[pyclass(frozen, module = "lazyparam._core")]
pub(crate) struct Checkpoint {
    pub(crate) store: Arc<Store>,
}

#[pymethods]
impl Checkpoint {
    #[new]
    #[pyo3(signature = (path, fingerprint = None))]
    fn new(py: Python<'_>, path: PathBuf, fingerprint: Option<u64>) -> PyResult<Self> {
        let store =
            gate::detached(py, || Store::open(&path)).map_err(|error| store_err(py, error))?;
        match fingerprint {
            Some(expected) if expected != store.fingerprint() => Err(Raise::new(
                "FormatError",
                "the checkpoint is not the one that was pickled",
            )
            .path(path.display().to_string())
            .err(py)),
            _ => Ok(Self {
                store: Arc::new(store),
            }),
        }
    }

    /// The path it was opened by.
    #[getter]
    fn path(&self) -> PathBuf {
        self.store.path().to_path_buf()
    }

    /// Every tensor: name -> (dtype, shape, bytes in the file), in the order of the files.
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let entries = PyDict::new(py);
        for entry in self.store.entries() {
            let shape = PyTuple::new(py, &entry.shape)?;
            entries.set_item(&*entry.name, (entry.dtype.name(), shape, entry.len))?;
        }
        Ok(entries)
    }

    /// The free texts of the header.
    #[getter]
    fn metadata(&self) -> BTreeMap<String, String> {
        self.store.metadata().clone()
    }

    /// Oddities that are not errors.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.store.warnings().to_vec()
    }

    /// Whether mapping is safe and fast here: a local file that nobody else may write.
    #[getter]
    fn prefers_view(&self) -> bool {
        self.store.prefers_view()
    }

    fn __len__(&self) -> usize {
        self.store.entries().len()
    }

    fn __repr__(&self) -> String {
        format!(
            "Checkpoint('{}', {} tensors)",
            self.store.path().display(),
            self.__len__()
        )
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, (PathBuf, u64)) {
        // Found again from another working directory, too.
        let path = std::path::absolute(self.store.path()).unwrap_or_else(|_| self.path());
        (
            py.get_type::<Self>().into_any(),
            (path, self.store.fingerprint()),
        )
    }
}

/// Write tensors to one ``.safetensors`` file, detached, by way of a temporary file.
///
/// Each tensor is (name, dtype, shape, flat bytes in C order).
#[pyfunction]
pub(crate) fn write_file(
    py: Python<'_>,
    path: PathBuf,
    tensors: Vec<Written>,
    metadata: BTreeMap<String, String>,
) -> PyResult<()> {
    let parts = parts_of(py, &tensors)?;
    gate::detached(py, || store::write(&path, &metadata, &parts))
        .map_err(|error| store_err(py, error))
}

/// The bytes of the file that `write_file` would write.
#[pyfunction]
pub(crate) fn encode<'py>(
    py: Python<'py>,
    tensors: Vec<Written>,
    metadata: BTreeMap<String, String>,
) -> PyResult<Bound<'py, PyBytes>> {
    let parts = parts_of(py, &tensors)?;
    let bytes = gate::detached(py, || store::encode(&metadata, &parts))
        .map_err(|error| store_err(py, error))?;
    Ok(PyBytes::new(py, &bytes))
}

/// What the bytes of a ``.safetensors`` file hold, copied: name -> (dtype, shape, elements), and the
/// free texts of the header.
///
/// Raises:
///     FormatError: if they are not a well-formed checkpoint.
#[pyfunction]
pub(crate) fn decode<'py>(
    py: Python<'py>,
    data: PyBuffer<u8>,
) -> PyResult<(Bound<'py, PyDict>, BTreeMap<String, String>)> {
    let bytes = raw::bytes(&data)?;
    let contents =
        gate::detached(py, || store::decode(bytes)).map_err(|error| store_err(py, error))?;
    let tensors = PyDict::new(py);
    for (name, dtype, shape, elements) in contents.tensors {
        let elements = raw::Buffer::new(raw::Memory::Owned(elements));
        tensors.set_item(name, (dtype.name(), PyTuple::new(py, shape)?, elements))?;
    }
    Ok((tensors, contents.metadata))
}

/// A tensor to be written: name, dtype, shape, and flat bytes in C order.
type Written = (String, String, Vec<usize>, PyBuffer<u8>);

fn parts_of<'a>(py: Python<'_>, tensors: &'a [Written]) -> PyResult<Vec<store::Tensor<'a>>> {
    let part = |(name, dtype, shape, data): &'a Written| {
        let dtype = Dtype::from_name(dtype).ok_or_else(|| {
            Raise::new(
                "RecordError",
                format!("tensor {name:?} has a dtype that cannot be stored"),
            )
            .found(dtype.clone())
            .err(py)
        })?;
        let data = raw::bytes(data)?;
        Ok(store::Tensor {
            name,
            dtype,
            shape,
            data,
        })
    };
    tensors.iter().map(part).collect()
}
