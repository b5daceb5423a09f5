//! Cells that need each other: an error at once, never a hang, and never an error without a cycle.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Barrier, Mutex};
use std::thread;

use lazyparam_core::{Bell, Cycle, Helping, OnceCell, Patience, this_thread};

use crate::cell::{Counting, Hurry, Polling, Refusal};
use crate::toy::{ANON, label};
use crate::watchdog::{crowd, gate, until, watched};

fn cycle(names: &[&str]) -> Cycle {
    Cycle {
        cells: names.iter().map(|name| (*name).into()).collect(),
    }
}

/// B48
#[test]
fn an_initialiser_that_reads_its_own_cell_is_refused_at_once() {
    let cell = OnceCell::new();
    let weight = label("weight");
    let outer = cell.get_or_try_init(&weight, &mut Hurry, || {
        let inner = cell.get_or_try_init(&weight, &mut Hurry, || panic!("nested"));
        assert_eq!(inner, Err(Refusal::Cycle(cycle(&["weight"]))));
        // It may live with that.
        Ok(3)
    });
    assert_eq!(outer, Ok(&3));
}

#[test]
fn an_initialiser_that_passes_its_own_cycle_on_leaves_the_cell_empty_and_retryable() {
    let cell = OnceCell::new();
    let outer = cell.get_or_try_init(&ANON, &mut Hurry, || {
        cell.get_or_try_init(&ANON, &mut Hurry, || panic!("nested"))
            .copied()
    });
    assert_eq!(outer, Err(Refusal::Cycle(cycle(&["an unnamed cell"]))));
    assert_eq!(cell.get_or_try_init(&ANON, &mut Hurry, || Ok(1)), Ok(&1));
}

#[test]
fn the_message_of_a_cycle_names_the_cells_in_order() {
    let alone = "the initialiser of w reads w itself";
    assert_eq!(cycle(&["w"]).to_string(), alone);
    let three = "initialisers need each other: a -> b -> c -> a";
    assert_eq!(cycle(&["a", "b", "c"]).to_string(), three);
}

/// B48
#[test]
fn a_loop_through_two_cells_on_one_thread_is_refused_by_the_innermost_read() {
    let (a, b) = (OnceCell::<u8>::new(), OnceCell::<u8>::new());
    let (name_a, name_b) = (label("a"), label("b"));
    let outer = a.get_or_try_init(&name_a, &mut Hurry, || {
        let of_b = b.get_or_try_init(&name_b, &mut Hurry, || {
            a.get_or_try_init(&name_a, &mut Hurry, || panic!("nested"))
                .copied()
        });
        of_b.copied()
    });
    // Both are named, although the thread waits for neither.
    assert_eq!(outer, Err(Refusal::Cycle(cycle(&["a", "b"]))));
    assert_eq!((a.get(), b.get()), (None, None));
}

/// Every thread holds its own cell and, once all do, wants the next one; the last to close the
/// ring is refused, and all the others get what they want.
fn ring(names: &[&str]) {
    let count = names.len();
    let cells: Vec<OnceCell<usize>> = (0..count).map(|_| OnceCell::new()).collect();
    let (all_hold, naps) = (Barrier::new(count), AtomicUsize::new(0));
    let results = crowd(count, |mine| {
        let init = || {
            all_hold.wait();
            let next = (mine + 1) % count;
            // Whoever finds it empty again just fills it.
            let filled = || Ok(next);
            cells[next].get_or_try_init(&label(names[next]), &mut Counting(&naps), filled)?;
            Ok(mine)
        };
        cells[mine]
            .get_or_try_init(&label(names[mine]), &mut Counting(&naps), init)
            .copied()
    });
    let refused: Vec<_> = (0..count)
        .filter(|thread| results[*thread] != Ok(*thread))
        .collect();
    let &[closer] = &*refused else {
        panic!("one thread closes the ring: {results:?}")
    };
    let expected: Vec<_> = (1..=count)
        .map(|hop| names[(closer + hop) % count])
        .collect();
    assert_eq!(results[closer], Err(Refusal::Cycle(cycle(&expected))));
    for (index, cell) in cells.iter().enumerate() {
        assert_eq!(
            cell.get_or_try_init(&ANON, &mut Hurry, || Ok(index)),
            Ok(&index)
        );
    }
}

/// B48
#[test]
fn of_two_threads_whose_cells_need_each_other_exactly_one_is_refused() {
    watched(|| (0..50).for_each(|_| ring(&["a", "b"])));
}

#[test]
fn of_three_threads_in_a_ring_exactly_one_is_refused_and_is_told_the_way_round() {
    watched(|| (0..50).for_each(|_| ring(&["a", "b", "c"])));
}

/// B48: also when the cells insist on each other, everybody gets an answer.
#[test]
fn two_cells_that_insist_on_each_other_fail_on_both_threads_and_can_be_filled_afterwards() {
    watched(|| {
        for _ in 0..50 {
            let cells = [OnceCell::<u8>::new(), OnceCell::new()];
            let (both_hold, naps) = (Barrier::new(2), AtomicUsize::new(0));
            let first_time = [AtomicUsize::new(0), AtomicUsize::new(0)];
            let insist = |cell: usize| {
                // A read of `cell` whose initialiser reads the other cell, and so on.
                fn read(
                    cells: &[OnceCell<u8>; 2],
                    cell: usize,
                    naps: &AtomicUsize,
                    held: &dyn Fn(usize),
                ) -> Result<u8, Refusal> {
                    let init = || {
                        held(cell);
                        read(cells, 1 - cell, naps, held)
                    };
                    cells[cell]
                        .get_or_try_init(&ANON, &mut Counting(naps), init)
                        .copied()
                }
                read(&cells, cell, &naps, &|cell| {
                    if first_time[cell].fetch_add(1, SeqCst) == 0 {
                        both_hold.wait();
                    }
                })
            };
            let results = crowd(2, insist);
            assert!(
                results
                    .iter()
                    .all(|each| matches!(each, Err(Refusal::Cycle(_))))
            );
            for cell in &cells {
                assert_eq!(cell.get_or_try_init(&ANON, &mut Hurry, || Ok(2)), Ok(&2));
            }
        }
    });
}

/// Oversleeps: its nap goes on after the bell until `released`; then it gives up.
struct Sleepy<'a> {
    naps: &'a AtomicUsize,
    released: &'a Mutex<Receiver<()>>,
}

impl Patience for Sleepy<'_> {
    type Error = Refusal;

    fn nap(&mut self, bell: &Bell) {
        self.naps.fetch_add(1, SeqCst);
        bell.wait();
        self.released.lock().unwrap().recv().unwrap();
    }

    fn poll(&mut self) -> Result<(), Refusal> {
        Err(Refusal::GivenUp)
    }
}

#[test]
fn a_wait_for_a_turn_that_has_failed_closes_no_cycle_even_if_the_waiter_sleeps_on() {
    watched(|| {
        let (a, b) = (OnceCell::new(), OnceCell::new());
        let (release, released): (Sender<()>, _) = gate();
        let released = Mutex::new(released);
        let (a_is_taken, sleepy_naps, naps) =
            (Barrier::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        let results = crowd(2, |number| {
            if number == 0 {
                // Holds b and waits for a, until long after that wait has lost its object.
                let init = || {
                    a_is_taken.wait();
                    let mut sleepy = Sleepy {
                        naps: &sleepy_naps,
                        released: &released,
                    };
                    let wait = a.get_or_try_init(&ANON, &mut sleepy, || panic!("not its turn"));
                    assert_eq!(wait, Err(Refusal::GivenUp));
                    Ok(1)
                };
                return b.get_or_try_init(&ANON, &mut Hurry, init).copied();
            }
            let failed = a.get_or_try_init(&ANON, &mut Hurry, || {
                a_is_taken.wait();
                until(|| sleepy_naps.load(SeqCst) == 1);
                Err(Refusal::Raised(0))
            });
            assert_eq!(failed, Err(Refusal::Raised(0)));
            // Again a's turn, and now it wants b, whose owner no longer waits for a.
            let again = || {
                let release_once_waiting = || {
                    until(|| naps.load(SeqCst) == 1);
                    release.send(()).unwrap();
                };
                std::thread::scope(|scope| {
                    scope.spawn(release_once_waiting);
                    let of_b = b.get_or_try_init(&ANON, &mut Counting(&naps), || Ok(7));
                    if of_b.is_err() {
                        // Let the scope end, so that the test fails instead of hanging.
                        naps.store(1, SeqCst);
                    }
                    of_b.copied()
                })
            };
            a.get_or_try_init(&ANON, &mut Hurry, again).copied()
        });
        assert_eq!(results, [Ok(1), Ok(1)]);
    });
}

/// B50
#[test]
fn a_wait_that_was_given_up_closes_no_cycle_while_the_turn_it_was_for_goes_on() {
    watched(|| {
        let (a, b) = (OnceCell::new(), OnceCell::new());
        let (a_is_taken, given_up) = (Barrier::new(2), Barrier::new(2));
        let naps = AtomicUsize::new(0);
        let results = crowd(2, |number| {
            if number == 0 {
                // Holds b, wants a, and thinks better of it.
                let init = || {
                    a_is_taken.wait();
                    let mut impatient = Polling(|| Err(Refusal::GivenUp));
                    let wait = a.get_or_try_init(&ANON, &mut impatient, || panic!("not its turn"));
                    assert_eq!(wait, Err(Refusal::GivenUp));
                    given_up.wait();
                    until(|| naps.load(SeqCst) > 0);
                    Ok(1)
                };
                return b.get_or_try_init(&ANON, &mut Hurry, init).copied();
            }
            // Holds a all the while, and wants b, whose owner no longer waits for a.
            let init = || {
                a_is_taken.wait();
                given_up.wait();
                let of_b =
                    b.get_or_try_init(&ANON, &mut Counting(&naps), || panic!("not its turn"));
                // Refused without a nap, it would leave the other thread waiting for one.
                naps.fetch_add(1, SeqCst);
                of_b.copied()
            };
            a.get_or_try_init(&ANON, &mut Hurry, init).copied()
        });
        assert_eq!(results, [Ok(1), Ok(1)]);
    });
}

/// A thread that holds a turn waits for threads that work for it; one of them wants the cell.
#[test]
fn a_helper_that_needs_what_its_caller_holds_is_refused() {
    watched(|| {
        let (held, own) = (OnceCell::<u8>::new(), OnceCell::<u8>::new());
        let (name_held, name_own) = (label("held"), label("own"));
        let caller = this_thread();
        let made = held.get_or_try_init(&name_held, &mut Hurry, || {
            thread::scope(|scope| {
                let helper = scope.spawn(|| {
                    let _helping = Helping::of(caller);
                    let of_own = own.get_or_try_init(&name_own, &mut Hurry, || {
                        let wanted = held.get_or_try_init(&name_held, &mut Hurry, || Ok(0));
                        wanted.copied()
                    });
                    of_own.copied()
                });
                helper.join().unwrap()
            })
        });
        assert_eq!(made, Err(Refusal::Cycle(cycle(&["held", "own"]))));
    });
}

/// The same, closed by a third thread that wants what the caller holds and holds what the helper
/// wants.
#[test]
fn a_loop_through_a_helper_is_seen_from_outside() {
    watched(|| {
        let (a, b) = (OnceCell::<u8>::new(), OnceCell::<u8>::new());
        let (name_a, name_b) = (label("a"), label("b"));
        let naps = AtomicUsize::new(0);
        let both = Barrier::new(2);
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let caller = this_thread();
                let made = a.get_or_try_init(&name_a, &mut Hurry, || {
                    both.wait();
                    thread::scope(|inner| {
                        let helper = inner.spawn(|| {
                            let _helping = Helping::of(caller);
                            let mut counting = Counting(&naps);
                            b.get_or_try_init(&name_b, &mut counting, || Ok(2)).copied()
                        });
                        helper.join().unwrap()
                    })
                });
                made.copied()
            });
            let second = scope.spawn(|| {
                let made = b.get_or_try_init(&name_b, &mut Hurry, || {
                    both.wait();
                    until(|| naps.load(SeqCst) == 1);
                    a.get_or_try_init(&name_a, &mut Hurry, || Ok(1)).copied()
                });
                made.copied()
            });
            let refused = second.join().unwrap();
            assert_eq!(refused, Err(Refusal::Cycle(cycle(&["a", "b"]))));
            // Once that is refused, the helper has its turn, and the caller its value.
            assert_eq!(first.join().unwrap(), Ok(2));
        });
    });
}
