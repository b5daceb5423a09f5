//! The once-cell: filled once, by whoever's turn it is, and seen whole by everybody.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lazyparam_core::{Bell, Block, Cycle, Label, OnceCell, Patience};

use crate::explore::Search::{Complete, Interrupted};
use crate::explore::{Bare, beside, crowd, explore};

/// Nobody gave it a name.
pub(crate) const ANON: Label = None;

/// Why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    Cycle,
    Raised,
    GivenUp,
}

impl From<Cycle> for Refusal {
    fn from(_: Cycle) -> Self {
        Self::Cycle
    }
}

/// Waits as long as it takes.
pub(crate) struct Patient;

impl Patience for Patient {
    type Error = Refusal;

    fn nap(&mut self, bell: &Bell) {
        bell.wait();
    }

    fn poll(&mut self) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Gives up as soon as it would have to wait.
pub(crate) struct Impatient;

impl Patience for Impatient {
    type Error = Refusal;

    fn nap(&mut self, _: &Bell) {}

    fn poll(&mut self) -> Result<(), Refusal> {
        Err(Refusal::GivenUp)
    }
}

/// What a cell holds: who made it, and memory written by its maker alone.
pub(crate) struct Made {
    by: usize,
    bare: Bare,
}

impl Made {
    pub(crate) fn by(by: usize) -> Self {
        let bare = Bare::written();
        Self { by, bare }
    }

    /// Who made it. A data race unless the reader is ordered after the maker.
    pub(crate) fn read(&self) -> usize {
        self.bare.read();
        self.by
    }
}

/// How often something ran, out of the checker's sight.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    /// Count once more, and answer with how often it was before.
    pub(crate) fn next(&self) -> usize {
        self.0.fetch_add(1, SeqCst)
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// The threads of a crowd ask for one cell; answers with whose initialiser ran.
fn ask_together(threads: usize) -> usize {
    let (cell, runs) = (Arc::new(OnceCell::new()), Count::default());
    let counted = runs.clone();
    let seen = crowd(threads, move |number| {
        let init = || {
            counted.next();
            Ok(Made::by(number))
        };
        let made = cell.get_or_try_init(&ANON, &mut Block, init);
        made.unwrap().read()
    });
    assert_eq!(runs.get(), 1);
    assert!(seen.iter().all(|by| *by == seen[0]));
    seen[0]
}

#[test]
fn either_of_two_threads_fills_the_cell_once_and_both_see_what_it_wrote() {
    explore(Complete, || ask_together(2)).are([0, 1]);
}

#[test]
fn any_of_three_threads_fills_the_cell_once_and_all_see_what_it_wrote() {
    explore(Interrupted(5), || ask_together(3)).are([0, 1, 2]);
}

#[test]
fn a_reader_that_does_not_wait_finds_nothing_or_what_was_written() {
    let ends = explore(Complete, || {
        let cell = Arc::new(OnceCell::new());
        let read = cell.clone();
        let (seen, _) = beside(
            move || read.get().map(Made::read),
            || {
                let made = cell.get_or_try_init(&ANON, &mut Block, || Ok(Made::by(0)));
                made.unwrap().read()
            },
        );
        seen
    });
    ends.are([None, Some(0)]);
}

/// The threads of a crowd ask for one cell, and the first run of an initialiser fails with its
/// thread; answers with who failed and who filled the cell.
fn fail_once(
    threads: usize,
    fail: impl Fn() -> Refusal + Clone + Send + Sync + 'static,
) -> (usize, usize) {
    let (cell, runs) = (Arc::new(OnceCell::new()), Count::default());
    let counted = runs.clone();
    let results = crowd(threads, move |number| {
        let init = || match counted.next() {
            0 => Err(fail()),
            _ => Ok(Made::by(number)),
        };
        let ask = || cell.get_or_try_init(&ANON, &mut Patient, init);
        match catch_unwind(AssertUnwindSafe(ask)) {
            Ok(made) => made.map(Made::read),
            Err(_) => Err(Refusal::Raised),
        }
    });
    let failed = |result: &Result<_, _>| *result == Err(Refusal::Raised);
    let loser = results.iter().position(failed).unwrap();
    let mut others = results.iter().filter(|result| !failed(result));
    let maker = others.next().unwrap().unwrap();
    // One of those who waited was given the next turn, and only one.
    assert!(others.all(|result| *result == Ok(maker)));
    assert_eq!(runs.get(), 2);
    (loser, maker)
}

#[test]
fn a_failure_is_its_threads_alone_and_the_other_of_two_has_the_next_turn() {
    explore(Complete, || fail_once(2, || Refusal::Raised)).are([(0, 1), (1, 0)]);
}

#[test]
fn a_panic_is_its_threads_alone_and_the_other_of_two_has_the_next_turn() {
    let panic = || resume_unwind(Box::new("a panic that no hook reports"));
    explore(Complete, move || fail_once(2, panic)).are([(0, 1), (1, 0)]);
}

#[test]
fn after_a_failure_exactly_one_of_two_who_wait_has_the_next_turn() {
    let ends = explore(Interrupted(4), || fail_once(3, || Refusal::Raised));
    ends.are([(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
}

#[test]
fn two_initialisers_that_both_fail_leave_an_empty_cell_that_can_be_filled() {
    let ends = explore(Complete, || {
        let cell = Arc::new(OnceCell::<Made>::new());
        let asked = cell.clone();
        let results = crowd(2, move |_| {
            let made = asked.get_or_try_init(&ANON, &mut Patient, || Err(Refusal::Raised));
            made.map(Made::read)
        });
        assert!(cell.get().is_none() && !cell.is_running());
        let made = cell.get_or_try_init(&ANON, &mut Patient, || Ok(Made::by(2)));
        assert_eq!(made.map(Made::read), Ok(2));
        results
    });
    ends.are([vec![Err(Refusal::Raised); 2]]);
}

#[test]
fn an_initialiser_that_reads_its_own_cell_is_refused_while_another_thread_waits() {
    let ends = explore(Complete, || {
        let cell = Arc::new(OnceCell::new());
        let asked = cell.clone();
        let results = crowd(2, move |number| {
            let made = asked.get_or_try_init(&ANON, &mut Patient, || {
                let own = asked.get_or_try_init(&ANON, &mut Patient, || Ok(Made::by(9)));
                assert_eq!(own.map(Made::read), Err(Refusal::Cycle));
                Ok(Made::by(number))
            });
            made.map(Made::read).unwrap()
        });
        assert_eq!(results[0], results[1]);
        results[0]
    });
    ends.are([0, 1]);
}

#[test]
fn who_gives_up_waiting_leaves_the_turn_alone_and_finds_the_value_later() {
    let ends = explore(Complete, || {
        let cell = Arc::new(OnceCell::new());
        let asked = cell.clone();
        let (first, _) = beside(
            move || {
                let hurried = asked.get_or_try_init(&ANON, &mut Impatient, || Ok(Made::by(1)));
                let hurried = hurried.map(Made::read);
                let made = asked.get_or_try_init(&ANON, &mut Patient, || Ok(Made::by(1)));
                (hurried, made.map(Made::read).unwrap())
            },
            || {
                let made = cell.get_or_try_init(&ANON, &mut Patient, || Ok(Made::by(0)));
                made.map(Made::read).unwrap()
            },
        );
        first
    });
    // Nobody fails, so who has given up never has the turn.
    ends.are([(Ok(0), 0), (Ok(1), 1), (Err(Refusal::GivenUp), 0)]);
}

#[test]
fn a_cell_that_is_said_to_be_at_rest_is_empty_or_whole() {
    let ends = explore(Complete, || {
        let cell = Arc::new(OnceCell::new());
        let asked = cell.clone();
        let (seen, _) = beside(
            move || (asked.is_running(), asked.get().map(Made::read)),
            || {
                let made = cell.get_or_try_init(&ANON, &mut Block, || {
                    assert!(cell.is_running());
                    Ok(Made::by(0))
                });
                made.unwrap().read()
            },
        );
        assert!(!cell.is_running());
        seen
    });
    ends.are([
        (false, None),
        (false, Some(0)),
        (true, None),
        (true, Some(0)),
    ]);
}
