//! What turns a hang into a failure, and threads into a crowd that starts together.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

/// The body did not come to an end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hung;

/// Run `body` on a thread of its own and give it `limit` to end. Panics pass through.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Hung> {
    let (done, ended) = channel();
    let worker = thread::spawn(move || {
        let result = body();
        // Nobody listens any more if the time was up.
        let _ = done.send(());
        result
    });
    match ended.recv_timeout(limit) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            Ok(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        }
        Err(RecvTimeoutError::Timeout) => Err(Hung),
    }
}

/// Run `body`, and fail the test if it takes longer than half a minute.
pub(crate) fn watched<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    within(Duration::from_secs(30), body).expect("the body ends within half a minute")
}

/// Let `count` threads do `work` at the same moment; their results in the order of their numbers.
pub(crate) fn crowd<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(count);
    thread::scope(|scope| {
        let one = |number| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(number)
            })
        };
        let threads: Vec<_> = (0..count).map(one).collect();
        threads
            .into_iter()
            .map(|each| each.join().unwrap_or_else(|e| resume_unwind(e)))
            .collect()
    })
}

/// Give way to other threads until `holds`. Use it under [`watched`].
pub(crate) fn until(holds: impl Fn() -> bool) {
    while !holds() {
        thread::yield_now();
    }
}

/// Longer than a scheduler's time slice: initialisers that take this long overlap if they can.
pub(crate) fn take_a_while() {
    thread::sleep(Duration::from_millis(6));
}

/// A gate that one thread opens and another waits at.
pub(crate) fn gate() -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
    channel()
}

#[test]
fn a_body_that_never_ends_is_caught() {
    let forever = || -> () {
        loop {
            thread::park();
        }
    };
    assert_eq!(within(Duration::from_millis(50), forever), Err(Hung));
}

#[test]
fn a_body_that_ends_hands_over_its_result() {
    assert_eq!(within(Duration::from_secs(30), || 7), Ok(7));
}

#[test]
#[should_panic(expected = "straight through")]
fn a_panic_passes_the_watchdog_unchanged() {
    watched(|| panic!("straight through"));
}
