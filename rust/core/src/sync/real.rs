//! The standard library's primitives: what everybody runs.

pub use std::sync::Arc;
use std::sync::OnceLock;
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread_local;
use std::time::Duration;

/// A `static` behind a mutex.
macro_rules! global {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: $crate::sync::Mutex<$type> = $crate::sync::Mutex::new($value);
    };
}
pub(crate) use global;

/// The contents of `shared` if this is the last reference; of all who drop theirs at the same
/// time, one gets them.
pub(crate) fn into_inner<T>(shared: Arc<T>) -> Option<T> {
    Arc::into_inner(shared)
}

/// Wait on `condvar` for as long as `asleep` holds, or until `limit` has passed.
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
    asleep: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let (guard, _) = condvar
        .wait_timeout_while(guard, limit, asleep)
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    guard
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
