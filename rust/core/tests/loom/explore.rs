//! Runs a model in every order of its threads, and collects how it ends.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lazyparam_core::OnceCell;
use loom::cell::UnsafeCell;
use loom::thread;

/// How far to search.
#[derive(Clone, Copy)]
pub(crate) enum Search {
    /// Everything that can happen.
    Complete,
    /// Everything that can happen while threads are interrupted this often at most, beyond where
    /// they wait or end.
    Interrupted(usize),
}

/// The ways in which a model has ended.
pub(crate) struct Ends<T> {
    seen: Vec<T>,
    cut_short: bool,
}

/// Run `model` in every order within `search`, and print how many there were.
///
/// `LOOM_MAX_PREEMPTIONS` cuts every search short.
pub(crate) fn explore<T: Ord + Debug + Send + 'static>(
    search: Search,
    model: impl Fn() -> T + Send + Sync + 'static,
) -> Ends<T> {
    let mut builder = loom::model::Builder::new();
    let limit = builder.preemption_bound;
    builder.preemption_bound = match (search, limit) {
        (Search::Complete, limit) => limit,
        (Search::Interrupted(bound), None) => Some(bound),
        (Search::Interrupted(bound), Some(limit)) => Some(bound.min(limit)),
    };
    let cut_short = limit.is_some();
    let within = match builder.preemption_bound {
        None => "complete".to_owned(),
        Some(bound) => format!("at most {bound} interruptions"),
    };
    let ends = Arc::new(Mutex::new(BTreeMap::new()));
    let counted = ends.clone();
    let start = Instant::now();
    builder.check(move || {
        // Made by the first who looks, it would order that thread before all others.
        OnceCell::<()>::new().is_running();
        let end = model();
        *unpoisoned(&counted).entry(end).or_insert(0_usize) += 1;
    });
    let ends = std::mem::take(&mut *unpoisoned(&ends));
    let executions: usize = ends.values().sum();
    let name = std::thread::current()
        .name()
        .unwrap_or("a model")
        .to_owned();
    let seconds = start.elapsed().as_secs_f64();
    println!("{name}: {executions} executions, {within}, {seconds:.1} s, ends {ends:?}");
    Ends {
        seen: ends.into_keys().collect(),
        cut_short,
    }
}

impl<T: Ord + Debug> Ends<T> {
    /// These are all the ways in which the model can end, and each of them happens.
    #[track_caller]
    pub(crate) fn are(self, expected: impl Into<Vec<T>>) {
        let mut expected = expected.into();
        expected.sort();
        if self.cut_short {
            expected.retain(|end| self.seen.contains(end));
        }
        assert_eq!(self.seen, expected);
    }
}

/// `work` of each number, on as many threads; the first number's is the caller's.
pub(crate) fn crowd<T: 'static>(
    count: usize,
    work: impl Fn(usize) -> T + Clone + 'static,
) -> Vec<T> {
    let others: Vec<_> = (1..count)
        .map(|number| {
            let work = work.clone();
            thread::spawn(move || work(number))
        })
        .collect();
    let mut results = vec![work(0)];
    drop(work);
    results.extend(others.into_iter().map(|other| other.join().unwrap()));
    results
}

/// `other` on a thread of its own, and `mine` meanwhile.
pub(crate) fn beside<A: 'static, B>(
    other: impl FnOnce() -> A + 'static,
    mine: impl FnOnce() -> B,
) -> (A, B) {
    let other = thread::spawn(other);
    let mine = mine();
    (other.join().unwrap(), mine)
}

/// Memory that is used without synchronisation: a use that is not ordered with the others is a
/// data race, and the checker says so.
pub(crate) struct Bare(UnsafeCell<()>);

// SAFETY: nobody follows the pointers that it hands out; and its uses are what is being checked.
unsafe impl Sync for Bare {}

impl Bare {
    pub(crate) fn written() -> Self {
        let bare = Self(UnsafeCell::new(()));
        bare.write();
        bare
    }

    pub(crate) fn write(&self) {
        self.0.with_mut(|_| ());
    }

    pub(crate) fn read(&self) {
        self.0.with(|_| ());
    }
}

/// A lock of what only tests keep. It is the standard library's, out of the checker's sight, so
/// that no thread of a model is ordered by it.
pub(crate) fn unpoisoned<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
