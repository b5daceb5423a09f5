//! Values that are kept where no cell can be: the protocol of the cell alone.

use std::sync::Arc;

use lazyparam_core::{Place, get_or_try_init_at};
use loom::sync::Mutex;

use crate::cell::{ANON, Count, Made, Patient, Refusal};
use crate::explore::Search::{Complete, Interrupted};
use crate::explore::{crowd, explore};

/// The threads of a crowd ask for a value in a table, and the first `failures` runs fail; answers
/// with how many threads failed.
fn ask_together(threads: usize, failures: usize) -> usize {
    let (table, runs) = (Arc::new(Mutex::new(None::<Arc<Made>>)), Count::default());
    let counted = runs.clone();
    let results = crowd(threads, move |number| {
        let found = get_or_try_init_at(
            Place::of(&*table),
            &ANON,
            &mut Patient,
            || Ok(table.lock().unwrap().clone()),
            || {
                if counted.next() < failures {
                    return Err(Refusal::Raised);
                }
                let made = Arc::new(Made::by(number));
                *table.lock().unwrap() = Some(made.clone());
                Ok(made)
            },
        );
        found.map(|made| made.read())
    });
    let mut made = results.iter().flatten();
    let first = made.next();
    assert!(made.all(|by| Some(by) == first));
    let failed = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(runs.get(), failed + usize::from(first.is_some()));
    failed
}

#[test]
fn a_value_without_a_cell_is_made_once_for_two_threads() {
    explore(Complete, || ask_together(2, 0)).are([0]);
}

#[test]
fn a_value_without_a_cell_is_made_once_for_three_threads() {
    explore(Interrupted(4), || ask_together(3, 0)).are([0]);
}

#[test]
fn a_value_without_a_cell_is_tried_again_by_the_thread_that_did_not_fail() {
    explore(Complete, || ask_together(2, 1)).are([1]);
}
