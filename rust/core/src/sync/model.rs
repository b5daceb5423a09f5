//! A model checker's primitives: every use of one is a point where it tries all other threads.

use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use loom::alloc::Track;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use loom::thread_local;

/// A `static` behind a mutex, made anew for each execution when it is first used.
macro_rules! global {
    (static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! {
            static ref $name: $crate::sync::Mutex<$type> = $crate::sync::Mutex::new($value);
        }
    };
}
pub(crate) use global;

/// Counts its owners in the orders in which the standard library does.
///
/// The checker has an `Arc`, but does not try what happens when an owner goes after another one
/// has counted them, and counts in an order of its own that hides mistakes.
#[derive(Debug)]
pub struct Arc<T> {
    // In this order: an owner is counted off before it lets go.
    owner: Owner,
    value: std::sync::Arc<T>,
}

#[derive(Debug)]
struct Owner {
    count: std::sync::Arc<AtomicUsize>,
    /// The checker finds out who is never counted off.
    _leak: Track<()>,
}

impl Owner {
    fn of(count: std::sync::Arc<AtomicUsize>) -> Self {
        let _leak = Track::new(());
        Self { count, _leak }
    }
}

impl<T> Arc<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            owner: Owner::of(std::sync::Arc::new(AtomicUsize::new(1))),
            value: std::sync::Arc::new(value),
        }
    }

    pub(crate) fn strong_count(shared: &Self) -> usize {
        shared.owner.count.load(Ordering::Relaxed)
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        self.owner.count.fetch_add(1, Ordering::Relaxed);
        Self {
            owner: Owner::of(self.owner.count.clone()),
            value: self.value.clone(),
        }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
        }
    }
}

/// The contents of `shared` if this is the last reference; of all who drop theirs at the same
/// time, one gets them.
pub(crate) fn into_inner<T>(shared: Arc<T>) -> Option<T> {
    let Arc { owner, value } = shared;
    drop(owner);
    // No other thread of a model runs before its next use of a primitive.
    std::sync::Arc::into_inner(value)
}

/// Wait on `condvar` for as long as `asleep` holds. Time does not pass in a model.
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    _: Duration,
    mut asleep: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while asleep(&mut guard) {
        guard = super::wait(condvar, guard);
    }
    guard
}

/// Room for a value that is published once.
///
/// The checker cannot look into the standard library's `OnceLock`, which keeps the value here.
/// What it checks is the flag: it is set and read in the orders that `OnceLock` promises, so
/// whatever reaches the value without them is a data race in the model.
#[derive(Debug)]
pub struct Latch<T> {
    value: OnceLock<T>,
    published: AtomicBool,
    publishing: Mutex<()>,
}

impl<T> Latch<T> {
    pub(crate) fn open() -> Self {
        Self {
            value: OnceLock::new(),
            published: AtomicBool::new(false),
            publishing: Mutex::new(()),
        }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.published.load(Ordering::Acquire) {
            self.value.get()
        } else {
            None
        }
    }

    /// Publish `value` unless one is there already, and answer with the one that is.
    pub(crate) fn publish(&self, value: T) -> &T {
        let _one_by_one = super::lock(&self.publishing);
        let published = self.value.get_or_init(|| value);
        self.published.store(true, Ordering::Release);
        published
    }
}
