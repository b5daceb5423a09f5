//! Threads that bring parameters into being side by side: what is done so far, and who has time to help.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What the threads of one call share.
#[derive(Debug)]
pub(crate) struct Team {
    /// How many more threads may work.
    spare: AtomicUsize,
    /// Bytes of the parameters that are there.
    finished: AtomicUsize,
    /// Bytes that are there of the others.
    begun: AtomicUsize,
}

impl Team {
    pub(crate) fn new(spare: usize) -> Self {
        Self {
            spare: AtomicUsize::new(spare),
            finished: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
        }
    }

    /// Bytes that have come into being. Never more than will have in the end.
    pub(crate) fn done(&self) -> usize {
        // In this order: what moves from one to the other meanwhile is counted once or not at all.
        let finished = self.finished.load(Ordering::Acquire);
        finished + self.begun.load(Ordering::Acquire)
    }

    /// So many threads have time to help.
    pub(crate) fn free(&self, threads: usize) {
        self.spare.fetch_add(threads, Ordering::Relaxed);
    }

    /// Whether there was one more thread that may work; whoever gets it gives it back by [`Team::free`].
    pub(crate) fn take(&self) -> bool {
        // Looked at often, and most of the time in vain: a load leaves the line where it is.
        self.spare.load(Ordering::Relaxed) > 0
            && self
                .spare
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spare| {
                    spare.checked_sub(1)
                })
                .is_ok()
    }
}

/// The place of one thread, while it makes one parameter.
#[derive(Debug)]
pub(crate) struct Desk<'a> {
    pub(crate) team: &'a Team,
    /// Bytes of the parameter.
    size: usize,
    /// Bytes of it that the others know of.
    told: AtomicUsize,
}

impl<'a> Desk<'a> {
    pub(crate) fn new(team: &'a Team, size: usize) -> Self {
        Self {
            team,
            size,
            told: AtomicUsize::new(0),
        }
    }

    /// So many bytes are there. What the parameter is derived from may be larger than it is itself.
    pub(crate) fn tell(&self, bytes: usize) {
        let bytes = bytes.min(self.size);
        let more = bytes.saturating_sub(self.told.load(Ordering::Relaxed));
        self.told.fetch_add(more, Ordering::Relaxed);
        self.team.begun.fetch_add(more, Ordering::Release);
    }

    /// All of it is there.
    pub(crate) fn finish(self) {
        self.team
            .begun
            .fetch_sub(self.told.into_inner(), Ordering::Release);
        self.team.finished.fetch_add(self.size, Ordering::Release);
    }
}
