//! `initialize`: many parameters brought into being at once, by threads of our own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use lazyparam_core::{Helping, this_thread};
use pyo3::prelude::*;

use crate::arguments::threads_in;
use crate::exit;
use crate::gate::{self, Cx};
use crate::param::Param;
use crate::team::{Desk, Team};

/// How often the caller looks at signals and reports progress.
const TICK: Duration = Duration::from_millis(50);

/// Room for Python code that the initialisers of users may run.
const STACK: usize = 16 << 20;

/// The work of one call, shared by its threads.
struct Crew<'a> {
    params: &'a [Py<Param>],
    /// The thread that waits for the others.
    caller: u64,
    next: AtomicUsize,
    team: Team,
    stopped: Arc<AtomicBool>,
    /// How many threads still work, and the first error.
    outcome: Mutex<(usize, Option<PyErr>)>,
    changed: Condvar,
}

/// Bring `params` into being with `threads` threads, detached.
///
/// Stops at the first error or signal: what is being made is finished, the rest stays lazy.
/// `report` is called now and then with the bytes that have come into being so far.
#[pyfunction]
#[pyo3(signature = (params, threads, report))]
pub(crate) fn initialize(
    py: Python<'_>,
    params: Vec<Py<Param>>,
    threads: &Bound<'_, PyAny>,
    report: Option<Py<PyAny>>,
) -> PyResult<()> {
    let processors = gate::processors();
    let threads = threads_in(threads)?;
    let workers = threads.min(params.len());
    // Threads that are not needed side by side help with large tensors.
    let helpers = (threads / workers.max(1)).clamp(1, processors);
    let spare = threads.min(processors).saturating_sub(workers * helpers);
    let crew = Crew {
        params: &params,
        caller: this_thread(),
        next: AtomicUsize::new(0),
        team: Team::new(spare),
        stopped: Arc::new(AtomicBool::new(false)),
        outcome: Mutex::new((workers, None)),
        changed: Condvar::new(),
    };
    gate::detached(py, || {
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let builder = std::thread::Builder::new().stack_size(STACK);
                if let Err(error) = builder.spawn_scoped(scope, || crew.work(helpers)) {
                    crew.stop(Some(error.into()));
                    crew.leave();
                }
            }
            crew.oversee(report.as_ref());
        });
    });
    let (_, error) = crew
        .outcome
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Says that a thread has done its part, also when a panic ends it.
struct Leaving<'a>(&'a Crew<'a>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(None);
        }
        self.0.leave();
    }
}

impl Crew<'_> {
    /// One thread's part; when nothing is left for it, others may have a helper in its place.
    ///
    /// Attached once: reading and filling let go of the interpreter, and each attachment of a thread
    /// of our own costs as much as a small tensor.
    fn work(&self, helpers: usize) {
        let _leaving = Leaving(self);
        exit::work_for(self.caller);
        gate::heed(self.stopped.clone());
        let done = gate::attached(|py| {
            let _helping = Helping::of(self.caller);
            self.make(py, helpers)
                .unwrap_or_else(|error| self.stop(Some(error)));
        });
        self.team.free(helpers);
        if done.is_none() {
            self.stop(None);
        }
    }

    /// The next parameter, until there is none or somebody says stop.
    fn make(&self, py: Python<'_>, helpers: usize) -> PyResult<()> {
        while !self.stopped.load(Ordering::Relaxed) {
            let Some(param) = self.params.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let param = param.get();
            let desk = Desk::new(&self.team, param.byte_len());
            param.force(Cx {
                threads: helpers,
                desk: Some(&desk),
                ..Cx::new(py)
            })?;
            desk.finish();
        }
        Ok(())
    }

    fn stop(&self, error: Option<PyErr>) {
        self.stopped.store(true, Ordering::Relaxed);
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let late = match (&outcome.1, error) {
            (None, error) => {
                outcome.1 = error;
                None
            }
            (Some(_), late) => late,
        };
        drop(outcome);
        drop(late);
    }

    fn leave(&self) {
        self.outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0 -= 1;
        self.changed.notify_all();
    }

    /// The caller's part: wait for the others, answer signals, report.
    fn oversee(&self, report: Option<&Py<PyAny>>) {
        loop {
            let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            let (outcome, _) = self
                .changed
                .wait_timeout_while(outcome, TICK, |outcome| outcome.0 > 0)
                .unwrap_or_else(PoisonError::into_inner);
            let working = outcome.0 > 0;
            drop(outcome);
            let bytes = self.team.done();
            let told = gate::attached(|py| {
                py.check_signals()
                    .and_then(|()| match report {
                        Some(report) => report.call1(py, (bytes,)).map(drop),
                        None => Ok(()),
                    })
                    .unwrap_or_else(|error| self.stop(Some(error)));
            });
            if told.is_none() {
                self.stop(None);
            }
            if !working {
                return;
            }
        }
    }
}
