//! The gate to the interpreter: the only place that detaches from it and attaches to it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use lazyparam_core::{Bell, Patience};
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::exit;
use crate::team::Desk;

/// How long a wait goes on before signals and clocks are looked at.
const SLICE: Duration = Duration::from_millis(50);

/// What the core passes through to every operation on values.
#[derive(Clone, Copy)]
pub(crate) struct Cx<'py> {
    /// The proof of being attached.
    pub(crate) py: Python<'py>,
    /// When to stop waiting for another thread's initialiser.
    pub(crate) deadline: Option<Instant>,
    /// How many threads may read or fill one large tensor.
    pub(crate) threads: usize,
    /// Where this thread works beside others for `initialize`, if it does.
    pub(crate) desk: Option<&'py Desk<'py>>,
}

impl<'py> Cx<'py> {
    /// Wait as long as it takes, work with all processors.
    pub(crate) fn new(py: Python<'py>) -> Self {
        Self {
            py,
            deadline: None,
            threads: processors(),
            desk: None,
        }
    }

    /// The same, waiting no longer than `timeout` seconds.
    pub(crate) fn within(py: Python<'py>, timeout: Option<f64>) -> PyResult<Self> {
        let deadline = match timeout {
            None => None,
            Some(seconds) if seconds.is_nan() || seconds < 0.0 => {
                return Err(PyValueError::new_err(format!(
                    "a timeout is a number of seconds from 0 on; found {seconds}"
                )));
            }
            // Longer than the clock can tell (infinity, say) is for ever.
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .and_then(|span| Instant::now().checked_add(span)),
        };
        Ok(Self {
            deadline,
            ..Self::new(py)
        })
    }
}

/// How many processors this process may use. Asked once: the answer costs several system calls.
pub(crate) fn processors() -> usize {
    static PROCESSORS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    *PROCESSORS
}

/// Run `work` detached: other Python threads run meanwhile.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let done = work();
        exit::stay_away_if_gone();
        done
    })
}

/// Run `work` attached, from a thread of our own; None if the interpreter is shutting down.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    Python::try_attach(work)
}

thread_local! {
    /// In a thread of our own: whether whoever wanted its work has gone.
    static STOPPED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// From now on, waits of this thread end once `stopped` is set.
pub(crate) fn heed(stopped: Arc<AtomicBool>) {
    STOPPED.set(Some(stopped));
}

impl Patience for Cx<'_> {
    type Error = Failure;

    /// Sleep detached until `bell` rings, a slice has passed or the deadline is there.
    fn nap(&mut self, bell: &Bell) {
        let limit = match self.deadline {
            None => SLICE,
            Some(deadline) => SLICE.min(deadline.saturating_duration_since(Instant::now())),
        };
        detached(self.py, || bell.wait_for(limit));
    }

    /// Answer signals; an error if a handler raised one, nobody wants the value any more, or the
    /// deadline has passed.
    fn poll(&mut self) -> Result<(), Failure> {
        self.py.check_signals()?;
        exit::refuse_to_wait()?;
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        if STOPPED.with_borrow(|flag| flag.as_ref().is_some_and(is_set)) {
            return Err(PyKeyboardInterrupt::new_err("initialize() was stopped").into());
        }
        match self.deadline {
            Some(deadline) if deadline <= Instant::now() => Err(Failure::TimedOut),
            _ => Ok(()),
        }
    }
}
