//! Values kept elsewhere than in a cell of the core: in a slot of the caller's, or in a table.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

use lazyparam_core::{Block, Cycle, OnceCell, Place, Slot, get_or_try_init_at};

use crate::cell::{Counting, Refusal};
use crate::toy::ANON;
use crate::watchdog::{crowd, take_a_while, watched};

/// What objects keep the values of their attributes in.
#[derive(Default)]
struct Table {
    values: Mutex<HashMap<(usize, usize), usize>>,
    naps: AtomicUsize,
}

static OBJECTS: [u64; 4] = [0; 4];
static ATTRIBUTES: [u64; 2] = [0; 2];

impl Table {
    fn read(
        &self,
        object: usize,
        attribute: usize,
        init: impl FnOnce() -> Result<usize, Refusal>,
    ) -> Result<usize, Refusal> {
        let key = (object, attribute);
        get_or_try_init_at(
            Place::within(&raw const OBJECTS[object], &raw const ATTRIBUTES[attribute]),
            &ANON,
            &mut Counting(&self.naps),
            || Ok(self.values.lock().unwrap().get(&key).copied()),
            || {
                let made = init()?;
                self.values.lock().unwrap().insert(key, made);
                Ok(made)
            },
        )
    }
}

#[test]
fn each_attribute_of_each_object_is_made_once_whoever_asks() {
    watched(|| {
        let (table, runs) = (Table::default(), AtomicUsize::new(0));
        let results = crowd(16, |number| {
            let (object, attribute) = (number % 4, number / 4 % 2);
            let made = table.read(object, attribute, || {
                take_a_while();
                Ok(runs.fetch_add(1, SeqCst))
            });
            ((object, attribute), made.unwrap())
        });
        assert_eq!(runs.load(SeqCst), 8);
        let values = table.values.lock().unwrap();
        assert!(results.iter().all(|(key, made)| values[key] == *made));
    });
}

#[test]
fn a_place_whose_initialiser_fails_is_empty_again() {
    let table = Table::default();
    let failed = table.read(0, 0, || Err(Refusal::Raised(1)));
    assert_eq!(failed, Err(Refusal::Raised(1)));
    assert_eq!(table.read(0, 0, || Ok(2)), Ok(2));
    assert_eq!(table.read(0, 0, || Ok(3)), Ok(2));
}

#[test]
fn attributes_of_one_object_may_need_each_other_but_not_themselves() {
    let table = Table::default();
    let needs_itself = table.read(0, 0, || table.read(0, 1, || table.read(0, 0, || Ok(1))));
    assert!(matches!(needs_itself, Err(Refusal::Cycle(Cycle { cells })) if cells.len() == 2));
    let needs_another = table.read(0, 0, || table.read(0, 1, || table.read(1, 0, || Ok(1))));
    assert_eq!(needs_another, Ok(1));
}

/// A slot that counts how often it is written.
#[derive(Default)]
struct Counted {
    value: OnceLock<usize>,
    writes: AtomicUsize,
}

impl Slot<usize> for Counted {
    fn get(&self) -> Option<&usize> {
        self.value.get()
    }

    fn publish(&self, value: usize) -> &usize {
        self.writes.fetch_add(1, SeqCst);
        self.value.get_or_init(|| value)
    }
}

#[test]
fn a_cell_over_a_slot_of_the_callers_publishes_there_once() {
    watched(|| {
        let cell = OnceCell::over(Counted::default());
        let results = crowd(8, |number| {
            let made = cell.get_or_try_init(&ANON, &mut Block, || {
                take_a_while();
                Ok(number)
            });
            *made.unwrap()
        });
        assert_eq!(cell.slot().writes.load(SeqCst), 1);
        assert_eq!(cell.get(), Some(&results[0]));
        assert!(results.iter().all(|made| *made == results[0]));
    });
}

#[test]
fn a_cell_says_whether_somebody_is_making_its_value() {
    let cell = OnceCell::new();
    assert!(!cell.is_running());
    let made = cell.get_or_try_init(&ANON, &mut Block, || Ok(cell.is_running()));
    assert_eq!(made, Ok(&true));
    assert!(!cell.is_running());
}
