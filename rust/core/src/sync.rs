//! The synchronisation primitives of the whole crate, chosen here and nowhere else.
//!
//! A model checker replaces this file's contents and drives the rest unchanged.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

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

/// Room for a value that is published once. Reading it is one atomic load.
#[derive(Debug)]
pub struct Latch<T>(OnceLock<T>);

impl<T> Latch<T> {
    pub(crate) const fn open() -> Self {
        Self(OnceLock::new())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Publish `value` unless one is there already, and answer with the one that is.
    pub(crate) fn publish(&self, value: T) -> &T {
        self.0.get_or_init(|| value)
    }
}

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THREAD: u64 = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
}

/// This thread's own number. Unlike the operating system's ids it is never used twice.
pub(crate) fn thread_number() -> u64 {
    THREAD.with(|number| *number)
}
