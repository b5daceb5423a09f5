//! Cells that need each other: never a wait without end, never an error without a cycle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lazyparam_core::{Bell, Helping, OnceCell, Patience, this_thread};
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;

use crate::cell::{ANON, Impatient, Made, Patient, Refusal};
use crate::explore::Search::{Complete, Interrupted};
use crate::explore::{beside, crowd, explore};

type Cells<const N: usize> = Arc<[OnceCell<Made>; N]>;

fn cells<const N: usize>() -> Cells<N> {
    Arc::new(std::array::from_fn(|_| OnceCell::new()))
}

/// Fill `cell` with `by` after `need`, which may fail it.
fn read(
    cell: &OnceCell<Made>,
    by: usize,
    need: impl FnOnce() -> Result<usize, Refusal>,
) -> Result<usize, Refusal> {
    let init = || need().map(|_| Made::by(by));
    let made = cell.get_or_try_init(&ANON, &mut Patient, init);
    made.map(Made::read)
}

fn needs_nothing() -> Result<usize, Refusal> {
    Ok(0)
}

/// Whatever has happened, nobody has a turn any more, and each cell can be read.
fn all_can_be_read<const N: usize>(cells: &Cells<N>) {
    for cell in &**cells {
        assert!(!cell.is_running());
        assert!(read(cell, 9, needs_nothing).is_ok());
    }
}

/// Each thread makes a cell of its own out of the next thread's.
fn ring<const N: usize>() -> Vec<Result<usize, Refusal>> {
    let cells = cells::<N>();
    let shared = cells.clone();
    let results = crowd(N, move |number| {
        let next = (number + 1) % N;
        read(&shared[number], number, || {
            read(&shared[next], next, needs_nothing)
        })
    });
    all_can_be_read(&cells);
    results
}

#[test]
fn of_two_threads_whose_cells_need_each_other_one_is_refused_if_they_meet() {
    let ends = explore(Complete, ring::<2>);
    let refused = Err(Refusal::Cycle);
    ends.are([
        // They did not meet: one cell was made on the way to the other.
        vec![Ok(0), Ok(1)],
        vec![refused, Ok(1)],
        vec![Ok(0), refused],
    ]);
}

#[test]
fn of_three_threads_in_a_ring_one_is_refused_if_they_meet() {
    let ends = explore(Interrupted(4), ring::<3>);
    let refused = Err(Refusal::Cycle);
    ends.are([
        vec![Ok(0), Ok(1), Ok(2)],
        vec![refused, Ok(1), Ok(2)],
        vec![Ok(0), refused, Ok(2)],
        vec![Ok(0), Ok(1), refused],
    ]);
}

#[test]
fn two_cells_that_insist_on_each_other_refuse_both_threads_and_can_be_filled_afterwards() {
    let ends = explore(Complete, || {
        let cells = cells::<2>();
        let shared = cells.clone();
        let results = crowd(2, move |number| {
            let [own, other] = [&shared[number], &shared[1 - number]];
            read(own, 9, || read(other, 9, || read(own, 9, needs_nothing)))
        });
        assert!(cells.iter().all(|cell| cell.get().is_none()));
        all_can_be_read(&cells);
        results
    });
    ends.are([vec![Err(Refusal::Cycle); 2]]);
}

#[test]
fn a_cell_made_out_of_another_that_others_read_is_never_refused() {
    let ends = explore(Interrupted(4), || {
        let shared = cells::<2>();
        crowd(3, move |number| {
            let [a, b] = &*shared;
            match number {
                0 => read(a, 0, || read(b, 1, needs_nothing)),
                1 => read(b, 1, needs_nothing),
                _ => read(a, 0, || read(b, 1, needs_nothing)),
            }
        })
    });
    ends.are([vec![Ok(0), Ok(1), Ok(0)]]);
}

/// Naps until the bell rings, once, and gives up. Says for which of the turns it napped.
struct OneNap<'a> {
    turn: &'a AtomicUsize,
    napped: &'a AtomicUsize,
}

impl Patience for OneNap<'_> {
    type Error = Refusal;

    fn nap(&mut self, bell: &Bell) {
        self.napped.store(self.turn.load(SeqCst), SeqCst);
        bell.wait();
    }

    fn poll(&mut self) -> Result<(), Refusal> {
        Err(Refusal::GivenUp)
    }
}

#[test]
fn a_wait_for_a_turn_that_has_failed_closes_no_cycle_while_the_waiter_wakes_up() {
    let ends = explore(Complete, || {
        let shared = cells::<2>();
        let (turn, napped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (cells, turns, waits) = (shared.clone(), turn.clone(), napped.clone());
        let (result, _) = beside(
            move || {
                // Two turns of `a`: the first fails, the second needs `b`.
                let [a, b] = &*cells;
                let failing = || {
                    turns.store(1, SeqCst);
                    Err(Refusal::Raised)
                };
                if read(a, 1, failing).is_ok() {
                    return "a was made by the other thread";
                }
                let second = read(a, 1, || {
                    turns.store(2, SeqCst);
                    read(b, 1, needs_nothing)
                });
                match (second, waits.load(SeqCst)) {
                    (Ok(_), 1) => "made, after a wait for the first turn",
                    (Ok(_), _) => "made",
                    (Err(Refusal::Cycle), 2) => "refused for a wait for the second turn",
                    (refused, wait) => panic!("{refused:?} after a wait for turn {wait}"),
                }
            },
            || {
                // Makes `b`, and waits for `a` meanwhile, at most once.
                let [a, b] = &*shared;
                let once = &mut OneNap {
                    turn: &turn,
                    napped: &napped,
                };
                let made = read(b, 0, || {
                    let _ = a.get_or_try_init(&ANON, once, || Ok(Made::by(0)));
                    needs_nothing()
                });
                made.unwrap()
            },
        );
        all_can_be_read(&shared);
        result
    });
    ends.are([
        "a was made by the other thread",
        "made",
        "made, after a wait for the first turn",
        "refused for a wait for the second turn",
    ]);
}

#[test]
fn a_wait_that_was_given_up_closes_no_cycle() {
    let ends = explore(Complete, || {
        let shared = cells::<2>();
        // The checker's, or it would see no reason to try both orders of setting and reading it.
        let given_up = Arc::new(AtomicBool::new(false));
        let (cells, over) = (shared.clone(), given_up.clone());
        let (result, _) = beside(
            move || {
                let [a, b] = &*cells;
                read(a, 1, || {
                    let was_over = over.load(Relaxed);
                    let of_b = read(b, 1, needs_nothing);
                    assert!(of_b.is_ok() || !was_over);
                    of_b
                })
            },
            || {
                let [a, b] = &*shared;
                let made = read(b, 0, || {
                    let hurried = a.get_or_try_init(&ANON, &mut Impatient, || Ok(Made::by(0)));
                    given_up.store(true, Relaxed);
                    let _ = hurried.map(Made::read);
                    needs_nothing()
                });
                made.ok()
            },
        );
        all_can_be_read(&shared);
        result
    });
    ends.are([Ok(0), Ok(1), Err(Refusal::Cycle)]);
}

#[test]
fn a_helper_that_needs_what_its_caller_holds_is_refused() {
    let ends = explore(Complete, || {
        let shared = cells::<2>();
        let [held, _] = &*shared;
        let caller = this_thread();
        let made = read(held, 0, || {
            let cells = shared.clone();
            let helper = thread::spawn(move || {
                let _helping = Helping::of(caller);
                let [held, own] = &*cells;
                read(own, 1, || read(held, 1, needs_nothing))
            });
            helper.join().unwrap()
        });
        all_can_be_read(&shared);
        made
    });
    ends.are([Err(Refusal::Cycle)]);
}

#[test]
fn a_loop_through_a_helper_is_seen_from_whichever_side_closes_it() {
    let ends = explore(Interrupted(5), || {
        let shared = cells::<2>();
        let (cells, helped) = (shared.clone(), shared.clone());
        let ends = beside(
            move || {
                let [a, b] = &*cells;
                read(b, 1, || read(a, 1, needs_nothing))
            },
            || {
                let [a, _] = &*shared;
                let caller = this_thread();
                read(a, 0, || {
                    let helper = thread::spawn(move || {
                        let _helping = Helping::of(caller);
                        let [_, b] = &*helped;
                        read(b, 2, needs_nothing)
                    });
                    helper.join().unwrap()
                })
            },
        );
        all_can_be_read(&shared);
        ends
    });
    let refused = Err(Refusal::Cycle);
    ends.are([
        // They did not meet: one cell was made on the way to the other.
        (Ok(1), Ok(1)),
        (Ok(2), Ok(0)),
        // The helper closed the loop, or the thread that its caller knows nothing of.
        (Ok(1), refused),
        (refused, Ok(0)),
    ]);
}
