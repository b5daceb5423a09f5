//! `Crew`: the threads that share a piece of work, and whoever may call it off.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many threads work, and what the calling one asks between two pieces.
#[derive(Clone, Copy)]
pub struct Crew<'a> {
    threads: usize,
    is_wanted: &'a dyn Fn() -> bool,
}

/// How a piece of work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it is done.
    Done,
    /// A part of it could not be done.
    Refused,
    /// Nobody wants it any more.
    Stopped,
}

impl Crew<'static> {
    /// So many threads, the calling one included; small work takes fewer.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            is_wanted: &|| true,
        }
    }
}

impl<'a> Crew<'a> {
    /// The same; the calling thread asks now and then whether the work is still wanted.
    pub fn asking(threads: usize, is_wanted: &'a dyn Fn() -> bool) -> Self {
        Self { threads, is_wanted }
    }

    /// Does all jobs; `work` says of each whether it could be done. After the first one that could not, no other is
    /// begun.
    pub(crate) fn share<J: Send>(
        self,
        threads: usize,
        jobs: impl Iterator<Item = J> + Send,
        work: impl Fn(J) -> bool + Sync,
    ) -> Outcome {
        let jobs = Mutex::new(jobs);
        let refused = AtomicBool::new(false);
        let ended = AtomicBool::new(false);
        let step = || {
            if ended.load(Ordering::Relaxed) {
                return false;
            }
            // Poisoned by a panic elsewhere, the jobs that are left are as good as before.
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(job) = job else { return false };
            if !work(job) {
                refused.store(true, Ordering::Relaxed);
                ended.store(true, Ordering::Relaxed);
            }
            true
        };
        let mut stopped = false;
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(threads) {
                // Where the system refuses a thread, the others do its part.
                let _ = std::thread::Builder::new().spawn_scoped(scope, || while step() {});
            }
            while step() {
                if !(self.is_wanted)() {
                    stopped = true;
                    ended.store(true, Ordering::Relaxed);
                }
            }
        });
        match (refused.into_inner(), stopped) {
            (true, _) => Outcome::Refused,
            (false, true) => Outcome::Stopped,
            (false, false) => Outcome::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_job_is_done_once_by_any_number_of_threads() {
        for threads in [1, 2, 7] {
            let sum = AtomicUsize::new(0);
            let outcome = Crew::new(threads).share(100, 0..1000, |job| {
                sum.fetch_add(job, Ordering::Relaxed);
                true
            });
            assert_eq!((outcome, sum.into_inner()), (Outcome::Done, 499_500));
        }
    }

    #[test]
    fn after_a_refusal_and_once_it_is_not_wanted_nothing_is_begun() {
        let begun = AtomicUsize::new(0);
        let count = |job| {
            begun.fetch_add(1, Ordering::Relaxed);
            job < 5
        };
        assert_eq!(Crew::new(1).share(1, 0..100, count), Outcome::Refused);
        assert_eq!(begun.swap(0, Ordering::Relaxed), 6);
        let stopped = Crew::asking(1, &|| false).share(1, 0..5, count);
        assert_eq!((stopped, begun.into_inner()), (Outcome::Stopped, 1));
    }
}
