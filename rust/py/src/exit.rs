//! Leaving the interpreter: threads that are inside a recipe are waited for, the others stay out.
//!
//! Until Python 3.13 an interpreter that goes away ends every daemon thread that wants it back by
//! `pthread_exit`. That cannot pass through frames of Rust: the process would be aborted. So before
//! the interpreter goes, threads in recipes get some time to finish, and any that would begin or
//! resume one sleeps for ever instead; the process ends without them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lazyparam_core::this_thread;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;

use crate::gate;

/// How long recipes get to finish.
const GRACE: Duration = Duration::from_secs(2);

/// How many threads are inside a recipe, or on their way to one.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The thread that ends the interpreter, once it is about to; it is never held up.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Whether the interpreter may be gone.
static GONE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The thread that this one works for.
    static CALLER: Cell<u64> = const { Cell::new(0) };
}

/// From now on, this thread works for `caller` (see `this_thread`).
pub(crate) fn work_for(caller: u64) {
    CALLER.set(caller);
}

/// Whether another thread than this one, or the one it works for, ends the interpreter.
fn is_left_behind() -> bool {
    let last = LAST.load(Ordering::SeqCst);
    last != 0 && last != this_thread() && last != CALLER.get()
}

/// A thread's stay in recipes, for as long as this lives.
pub(crate) struct Inside(());

impl Inside {
    /// Go in; if the interpreter is about to go and this thread is not in yet, never return.
    pub(crate) fn enter(py: Python<'_>) -> Self {
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            INSIDE.fetch_add(1, Ordering::SeqCst);
            if is_left_behind() {
                INSIDE.fetch_sub(1, Ordering::SeqCst);
                gate::detached(py, sleep_for_ever);
            }
        }
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if DEPTH.replace(DEPTH.get() - 1) == 1 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Called detached, before a thread wants the interpreter back.
pub(crate) fn stay_away_if_gone() {
    if GONE.load(Ordering::SeqCst) && is_left_behind() {
        sleep_for_ever();
    }
}

/// The last thread waits for nobody any more.
pub(crate) fn refuse_to_wait() -> PyResult<()> {
    if GONE.load(Ordering::SeqCst) {
        return Err(PyTimeoutError::new_err(
            "the interpreter is going, and the thread that was making this value with it",
        ));
    }
    Ok(())
}

fn sleep_for_ever() {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Have Python call [`leave`] before it goes.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let leave = wrap_pyfunction!(leave, py)?;
    py.import("atexit")?.call_method1("register", (leave,))?;
    Ok(())
}

#[pyfunction]
fn leave(py: Python<'_>) {
    LAST.store(this_thread(), Ordering::SeqCst);
    let deadline = Instant::now() + GRACE;
    // A fork in a recipe may end here, in a child whose one thread is inside.
    let own = usize::from(DEPTH.get() > 0);
    while INSIDE.load(Ordering::SeqCst) > own && Instant::now() < deadline {
        gate::detached(py, || std::thread::sleep(Duration::from_millis(2)));
    }
    GONE.store(true, Ordering::SeqCst);
}

/// In a forked child: only this thread has come along.
pub(crate) fn after_fork_in_child() {
    INSIDE.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
    if is_left_behind() {
        // The thread that was ending the interpreter has not come along, so it goes on.
        LAST.store(0, Ordering::SeqCst);
        GONE.store(false, Ordering::SeqCst);
    }
}
