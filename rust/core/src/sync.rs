//! The synchronisation primitives of the whole crate, chosen here and nowhere else.
//!
//! `--cfg loom` puts a model checker's in the place of the standard library's, and the checker
//! drives the rest of the crate unchanged (`tests/loom`).

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod real;

#[cfg(loom)]
use model as chosen;
#[cfg(not(loom))]
use real as chosen;

pub use chosen::{Arc, Latch};
pub(crate) use chosen::{Condvar, Mutex, MutexGuard, global, into_inner, wait_for};

// For text and shapes, which never change: there is nothing in them for a model checker to find
// out, and the one at hand can share neither `str` nor slices.
pub(crate) use std::sync::Arc as Frozen;

/// Lock `mutex`, whether or not a thread panicked while it held it.
///
/// Every critical section of this crate is a few assignments that leave the data whole at each
/// point, so a poisoned lock carries no news.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Wait on `condvar`, with the same reading of poison as [`lock`].
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar
        .wait(guard)
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

// Numbers only have to differ, also between two runs of one model, so this is the real thing.
static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

chosen::thread_local! {
    static THREAD: u64 = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
}

/// This thread's own number. Unlike the operating system's ids it is never used twice.
pub(crate) fn thread_number() -> u64 {
    THREAD.with(|number| *number)
}
