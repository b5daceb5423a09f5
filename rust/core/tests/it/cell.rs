//! The once-cell: filled once, by whoever's turn it is, however turns end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc::Receiver};
use std::thread;
use std::time::Duration;

use lazyparam_core::{Bell, Block, Cycle, OnceCell, Patience};

use crate::toy::ANON;
use crate::watchdog::{crowd, gate, take_a_while, until, watched};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Cycle(Cycle),
    Raised(usize),
    GivenUp,
}

impl From<Cycle> for Refusal {
    fn from(cycle: Cycle) -> Self {
        Self::Cycle(cycle)
    }
}

/// Waits until the bell rings, and counts the naps before they begin.
pub(crate) struct Counting<'a>(pub(crate) &'a AtomicUsize);

impl Patience for Counting<'_> {
    type Error = Refusal;

    fn nap(&mut self, bell: &Bell) {
        self.0.fetch_add(1, SeqCst);
        bell.wait();
    }

    fn poll(&mut self) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Naps in short slices and does something of its own between them.
pub(crate) struct Polling<F: FnMut() -> Result<(), Refusal>>(pub(crate) F);

impl<F: FnMut() -> Result<(), Refusal>> Patience for Polling<F> {
    type Error = Refusal;

    fn nap(&mut self, bell: &Bell) {
        bell.wait_for(Duration::from_millis(1));
    }

    fn poll(&mut self) -> Result<(), Refusal> {
        (self.0)()
    }
}

/// Never waits: being made to is a failure of the test.
pub(crate) struct Hurry;

impl Patience for Hurry {
    type Error = Refusal;

    fn nap(&mut self, _: &Bell) {
        panic!("nothing here is to be waited for");
    }

    fn poll(&mut self) -> Result<(), Refusal> {
        panic!("nothing here is to be waited for");
    }
}

#[test]
fn an_empty_cell_says_so_without_waiting() {
    let cell = OnceCell::<u8>::default();
    assert_eq!(cell.get(), None);
    assert_eq!(OnceCell::with(3).get(), Some(&3));
}

/// B01, B02: whoever asks, one initialiser runs, and all see its value.
#[test]
fn any_number_of_threads_fill_a_cell_exactly_once() {
    watched(|| {
        for threads in [2, 3, 4, 8, 16] {
            let (cell, runs) = (OnceCell::new(), AtomicUsize::new(0));
            let seen = crowd(threads, |number| {
                let made = cell.get_or_try_init(&ANON, &mut Block, || {
                    take_a_while();
                    runs.fetch_add(1, SeqCst);
                    Ok(Box::new(number))
                });
                std::ptr::from_ref::<Box<usize>>(made.unwrap()) as usize
            });
            assert_eq!(runs.load(SeqCst), 1);
            assert!(seen.iter().all(|address| *address == seen[0]));
        }
    });
}

/// B47: the error is the raiser's alone; the turn passes to exactly one of those who wait.
#[test]
fn a_failing_initialiser_passes_the_turn_to_exactly_one_waiter() {
    watched(|| {
        const THREADS: usize = 8;
        const FAILURES: usize = 3;
        let (cell, naps) = (OnceCell::new(), AtomicUsize::new(0));
        let (runs, inside) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results = crowd(THREADS, |_| {
            cell.get_or_try_init(&ANON, &mut Counting(&naps), || {
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "one at a time");
                let run = runs.fetch_add(1, SeqCst);
                // All who are left wait for this run: those of the first, and so on.
                let waited = (0..=run).map(|earlier| THREADS - 1 - earlier).sum();
                until(|| naps.load(SeqCst) == waited);
                inside.fetch_sub(1, SeqCst);
                if run < FAILURES {
                    Err(Refusal::Raised(run))
                } else {
                    Ok(run)
                }
            })
            .cloned()
        });
        assert_eq!(runs.load(SeqCst), FAILURES + 1);
        for failure in 0..FAILURES {
            let raised = Err(Refusal::Raised(failure));
            assert_eq!(
                results.iter().filter(|result| **result == raised).count(),
                1
            );
        }
        let arrived = results
            .iter()
            .filter(|result| **result == Ok(FAILURES))
            .count();
        assert_eq!(arrived, THREADS - FAILURES);
    });
}

/// B47
#[test]
fn a_panic_leaves_the_cell_empty_and_the_next_reader_tries_again() {
    watched(|| {
        let cell = OnceCell::new();
        let panicking = || {
            let init = || -> Result<u8, Cycle> { panic!("in the initialiser") };
            catch_unwind(AssertUnwindSafe(|| {
                cell.get_or_try_init(&ANON, &mut Block, init).copied()
            }))
        };
        for _ in 0..2 {
            let panic = panicking().unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"in the initialiser"));
            assert_eq!(cell.get(), None);
        }
        assert_eq!(cell.get_or_try_init(&ANON, &mut Block, || Ok(4)), Ok(&4));
    });
}

#[test]
fn a_panic_passes_the_turn_to_those_who_wait() {
    watched(|| {
        let (cell, naps, runs) = (OnceCell::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        let results = crowd(4, |_| {
            let read = || {
                let made = cell.get_or_try_init(&ANON, &mut Counting(&naps), || {
                    if runs.fetch_add(1, SeqCst) == 0 {
                        until(|| naps.load(SeqCst) == 3);
                        panic!("the first one");
                    }
                    Ok(9)
                });
                made.copied()
            };
            catch_unwind(AssertUnwindSafe(read)).ok()
        });
        assert_eq!(results.iter().filter(|result| result.is_none()).count(), 1);
        assert_eq!(
            results
                .iter()
                .filter(|result| **result == Some(Ok(9)))
                .count(),
            3
        );
        assert_eq!(runs.load(SeqCst), 2);
    });
}

#[test]
fn a_turn_that_ends_in_an_error_leaves_the_cell_to_the_next() {
    let cell = OnceCell::new();
    let failed = cell.get_or_try_init(&ANON, &mut Hurry, || Err(Refusal::Raised(1)));
    assert_eq!(failed, Err(Refusal::Raised(1)));
    assert_eq!(cell.get_or_try_init(&ANON, &mut Hurry, || Ok(5)), Ok(&5));
    assert_eq!(cell.get(), Some(&5));
}

#[test]
fn initialisers_of_different_cells_run_at_the_same_time() {
    watched(|| {
        let cells: [_; 4] = std::array::from_fn(|_| OnceCell::new());
        let started = AtomicUsize::new(0);
        crowd(4, |number| {
            let all_started = || {
                started.fetch_add(1, SeqCst);
                until(|| started.load(SeqCst) == 4);
                Ok(number)
            };
            assert!(
                cells[number]
                    .get_or_try_init(&ANON, &mut Hurry, all_started)
                    .is_ok()
            );
        });
    });
}

/// Starts filling `cell` with 6 on a thread of its own, and does so once told to.
fn slow_fill(cell: &Arc<OnceCell<u8>>, told: Receiver<()>) -> thread::JoinHandle<u8> {
    let (started, has_started) = gate();
    let cell = cell.clone();
    let filler = thread::spawn(move || {
        let made = cell.get_or_try_init(&ANON, &mut Block, || {
            started.send(()).unwrap();
            told.recv().unwrap();
            Ok(6)
        });
        *made.unwrap()
    });
    has_started.recv().unwrap();
    filler
}

/// B50
#[test]
fn a_waiter_may_give_up_while_the_initialisation_goes_on() {
    watched(|| {
        let cell = Arc::new(OnceCell::new());
        let (tell, told) = gate();
        let filler = slow_fill(&cell, told);
        let mut polls = 0;
        let mut three_times = Polling(|| {
            polls += 1;
            if polls == 3 {
                Err(Refusal::GivenUp)
            } else {
                Ok(())
            }
        });
        let init = || panic!("another thread has the turn");
        let refused = cell.get_or_try_init(&ANON, &mut three_times, init);
        assert_eq!(refused, Err(Refusal::GivenUp));
        assert_eq!((polls, cell.get()), (3, None));
        tell.send(()).unwrap();
        let init = || panic!("another thread has the turn");
        assert_eq!(cell.get_or_try_init(&ANON, &mut Block, init), Ok(&6));
        assert_eq!(filler.join().unwrap(), 6);
    });
}

#[test]
fn a_wait_within_a_poll_ends_and_the_outer_wait_goes_on() {
    watched(|| {
        let (outer, inner) = (Arc::new(OnceCell::new()), Arc::new(OnceCell::new()));
        let (tell_outer, told_outer) = gate();
        let (tell_inner, told_inner) = gate();
        let (outer_filler, inner_filler) =
            (slow_fill(&outer, told_outer), slow_fill(&inner, told_inner));
        let seen = Mutex::new(Vec::new());
        let mut polling = Polling(|| {
            // The first time round, this waits too: somebody's signal handler reads a cell.
            let mut nested = Polling(|| {
                let _ = tell_inner.send(());
                Ok(())
            });
            let value = inner.get_or_try_init(&ANON, &mut nested, || panic!("not its turn"))?;
            seen.lock().unwrap().push(*value);
            let _ = tell_outer.send(());
            Ok(())
        });
        let value = outer.get_or_try_init(&ANON, &mut polling, || panic!("not its turn"));
        assert_eq!(value, Ok(&6));
        assert!(seen.lock().unwrap().iter().all(|value| *value == 6));
        assert!(!seen.lock().unwrap().is_empty());
        assert_eq!(
            (outer_filler.join().unwrap(), inner_filler.join().unwrap()),
            (6, 6)
        );
    });
}

#[test]
fn a_ready_read_asks_nobody_to_wait_or_to_give_up() {
    let cell = OnceCell::with(8);
    let read = cell.get_or_try_init(&ANON, &mut Hurry, || panic!("it is full"));
    assert_eq!(read, Ok(&8));
}

/// A waiter that would give up finds the value first.
#[test]
fn a_value_that_has_come_counts_for_more_than_a_deadline_that_has_passed() {
    watched(|| {
        let cell = OnceCell::new();
        let (running, started) = gate();
        thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let made = cell.get_or_try_init(&ANON, &mut Hurry, || {
                    running.send(()).unwrap();
                    take_a_while();
                    Ok(1)
                });
                *made.unwrap()
            });
            started.recv().unwrap();
            let read = cell.get_or_try_init(&ANON, &mut Late, || panic!("not its turn"));
            assert_eq!(read, Ok(&1));
            assert_eq!(owner.join().unwrap(), 1);
        });
    });
}

/// Sleeps through to the bell, and gives up at the first question.
struct Late;

impl Patience for Late {
    type Error = Refusal;

    fn nap(&mut self, bell: &Bell) {
        bell.wait();
    }

    fn poll(&mut self) -> Result<(), Refusal> {
        Err(Refusal::GivenUp)
    }
}
