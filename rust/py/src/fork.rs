//! What happens after `os.fork`: the child forgets the turns of threads that it does not have.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::exit;

/// Have Python call the core in every forked child, where there are forks.
///
/// Nothing is done before a fork: Python may run other threads between such a hook and the fork
/// itself, so a lock taken there would be waited for by threads that hold the interpreter.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let Some(register) = py.import("os")?.getattr_opt("register_at_fork")? else {
        return Ok(());
    };
    let hooks = PyDict::new(py);
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, py)?)?;
    register.call((), Some(&hooks))?;
    Ok(())
}

#[pyfunction]
fn after_fork_in_child() {
    lazyparam_core::after_fork_in_child();
    exit::after_fork_in_child();
}
