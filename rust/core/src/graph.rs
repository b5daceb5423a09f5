//! Who initialises what, and who waits for whom: the one lock of the slow path.
//!
//! Three relations, guarded by one mutex so that checking for a cycle and starting to wait are one
//! step: *running* (cell → the thread whose turn it is), *waiting* (thread → the cell it wants) and
//! *helping* (thread → the thread that waits until it is done). A wait is begun only if it closes
//! no cycle. The mutex is held for map look-ups only, never while anybody's code runs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::sync::{self, Arc, Condvar, Frozen, Mutex};

/// What a cell is called in messages, when anybody gave it a name.
pub type Label = Option<Frozen<str>>;

/// Whatever can tell what a cell is called. It is asked only where the name may be needed: names
/// cost more than turns do. Asked again, it gives the same one.
pub trait Named {
    /// The name.
    fn label(&self) -> Label;
}

impl Named for Label {
    fn label(&self) -> Label {
        self.clone()
    }
}

/// Which cell: the address of what it is in, and of what tells it from others in there.
///
/// Whoever waits for a cell or has its turn keeps both where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    owner: usize,
    part: usize,
}

impl Place {
    /// The place that is all of `owner`.
    pub fn of<T>(owner: *const T) -> Self {
        Self {
            owner: owner as usize,
            part: 0,
        }
    }

    /// The place that `owner` has for `part`: an object's for one of its attributes, say.
    pub fn within<T, U>(owner: *const T, part: *const U) -> Self {
        Self {
            owner: owner as usize,
            part: part as usize,
        }
    }
}

type Thread = u64;

/// A bell that rings once: when the turn it belongs to has ended, well or badly.
#[derive(Debug)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Sleep until the bell has rung.
    pub fn wait(&self) {
        let mut rung = sync::lock(&self.rung);
        while !*rung {
            rung = sync::wait(&self.changed, rung);
        }
    }

    /// Sleep until the bell has rung or `limit` has passed; answers whether it has rung.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let rung = sync::lock(&self.rung);
        *sync::wait_for(&self.changed, rung, limit, |rung| !*rung)
    }

    fn ring(&self) {
        *sync::lock(&self.rung) = true;
        self.changed.notify_all();
    }
}

/// Waiting here would never end: the cells, each needing the next, the last needing the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The names of the cells in the order in which they need each other.
    pub cells: Vec<Frozen<str>>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |out: &mut fmt::Formatter<'_>| {
            self.cells
                .iter()
                .try_for_each(|cell| write!(out, "{cell} -> "))
        };
        match self.cells.as_slice() {
            [only] => write!(out, "the initialiser of {only} reads {only} itself"),
            cells => {
                out.write_str("initialisers need each other: ")?;
                names(out)?;
                match cells.first() {
                    Some(first) => write!(out, "{first}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for Cycle {}

struct Running {
    owner: Thread,
    /// Turns are numbered in the order in which they are given: later ones of the same thread
    /// were taken because earlier ones needed them.
    number: u64,
    label: Label,
    /// Made by the first who waits.
    bell: Option<Arc<Bell>>,
}

struct Graph {
    running: BTreeMap<Place, Running>,
    waiting: BTreeMap<Thread, Place>,
    helping: BTreeMap<Thread, Thread>,
    /// How many turns each thread has; those without are left out.
    held: BTreeMap<Thread, usize>,
    turns: u64,
}

sync::global! {
    static GRAPH: Graph = Graph {
        running: BTreeMap::new(),
        waiting: BTreeMap::new(),
        helping: BTreeMap::new(),
        held: BTreeMap::new(),
        turns: 0,
    };
}

/// A number that is this thread's alone. Unlike an operating system's, it is never used twice.
pub fn this_thread() -> u64 {
    sync::thread_number()
}

/// On record that another thread waits until this one is done, for as long as this lives.
///
/// So a wait that would never end is seen also where it leads through threads that work for a
/// thread that holds a turn.
#[derive(Debug)]
pub struct Helping(());

impl Helping {
    /// This thread works for `caller` (see [`this_thread`]), which waits for it.
    pub fn of(caller: u64) -> Self {
        let me = sync::thread_number();
        sync::lock(&GRAPH).helping.insert(me, caller);
        Self(())
    }
}

impl Drop for Helping {
    fn drop(&mut self) {
        sync::lock(&GRAPH).helping.remove(&sync::thread_number());
    }
}

/// To be called in a child process by the one thread it has, the one that forked.
///
/// Turns of threads that have not come along will never end, so they are forgotten, and their
/// cells are empty; a turn of this thread (it forked in an initialiser) goes on. Nobody waits for it
/// here, and its bell may have been locked by a thread that did: it gets a new one if need be.
/// Whoever forks sees to it that no other thread is changing the graph: under Python, threads do so
/// only while they are attached, and one that forks is attached alone.
pub fn after_fork_in_child() {
    let me = sync::thread_number();
    let mut graph = sync::lock(&GRAPH);
    graph.running.retain(|_, turn| turn.owner == me);
    for turn in graph.running.values_mut() {
        turn.bell = None;
    }
    graph.held.retain(|thread, _| *thread == me);
    graph.waiting.clear();
    graph.helping.clear();
}

/// What came of asking for a cell's turn.
pub(crate) enum Claim {
    /// It is yours: initialise, and let go of it.
    Granted(Ticket),
    /// It may come to a wait, or to others waiting for this thread: ask again, with a name.
    Nameless,
    /// Another thread has it. Your wait is on record: call [`stop_waiting`] when it is over.
    Wait(Arc<Bell>),
    /// Waiting would never end.
    Refused(Cycle),
}

/// The right to initialise one cell. Dropping it gives the right back and wakes all who wait.
#[derive(Debug)]
pub(crate) struct Ticket {
    cell: Place,
}

impl Ticket {
    pub(crate) fn cell(&self) -> Place {
        self.cell
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let ended = {
            let mut graph = sync::lock(&GRAPH);
            // Stale edges would show cycles that are not there to whoever takes the next turn.
            let cell = self.cell;
            graph.waiting.retain(|_, wanted| *wanted != cell);
            graph.end(cell)
        };
        if let Some(bell) = ended.and_then(|turn| turn.bell) {
            bell.ring();
        }
    }
}

/// Ask for the turn of `cell`, called `name`, on behalf of this thread.
///
/// In a cycle, each cell is wanted by a thread that waits, or was taken by a thread that had a turn
/// already or that helps one; so those are the claims that need a name.
pub(crate) fn claim(cell: Place, name: Option<&Label>) -> Claim {
    let me = sync::thread_number();
    let mut graph = sync::lock(&GRAPH);
    let graph = &mut *graph;
    let Some(running) = graph.running.get_mut(&cell) else {
        if name.is_none() && graph.is_involved(me) {
            return Claim::Nameless;
        }
        graph.turns += 1;
        let running = Running {
            owner: me,
            number: graph.turns,
            label: name.cloned().flatten(),
            bell: None,
        };
        graph.running.insert(cell, running);
        *graph.held.entry(me).or_default() += 1;
        return Claim::Granted(Ticket { cell });
    };
    let Some(name) = name else {
        return Claim::Nameless;
    };
    if running.label.is_none() {
        running.label.clone_from(name);
    }
    let bell = running
        .bell
        .get_or_insert_with(|| Arc::new(Bell::new()))
        .clone();
    if let Some(cycle) = graph.cycle_closed_by(me, cell) {
        return Claim::Refused(cycle);
    }
    graph.waiting.insert(me, cell);
    Claim::Wait(bell)
}

/// Whether some thread has the turn of `cell` now.
pub(crate) fn is_running(cell: Place) -> bool {
    sync::lock(&GRAPH).running.contains_key(&cell)
}

/// Take back this thread's waiting edge, if it still stands.
pub(crate) fn stop_waiting() {
    sync::lock(&GRAPH).waiting.remove(&sync::thread_number());
}

impl Graph {
    /// Whether others may come to wait for `thread` by way of what it has or does already.
    fn is_involved(&self, thread: Thread) -> bool {
        self.held.contains_key(&thread) || self.helping.contains_key(&thread)
    }

    /// The turn of `cell` is over.
    fn end(&mut self, cell: Place) -> Option<Running> {
        let turn = self.running.remove(&cell)?;
        if let Entry::Occupied(mut held) = self.held.entry(turn.owner) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        Some(turn)
    }

    /// The cells on the way from `wanted` back to `me`, if there is a way.
    fn cycle_closed_by(&self, me: Thread, wanted: Place) -> Option<Cycle> {
        let turn = self.running.get(&wanted)?;
        let mut turns = vec![turn];
        if !self.needs(turn.owner, me, &mut turns, &mut BTreeSet::new()) {
            return None;
        }
        let mut cells = Vec::new();
        for turn in turns {
            self.name_needs_of(turn, &mut cells);
        }
        // Sources are made on behalf of what is derived from them, under one name.
        cells.dedup_by(|one, other| Frozen::ptr_eq(one, other));
        Some(Cycle { cells })
    }

    /// Whether `thread` cannot go on before `me` does; if so, `turns` gains those on the way.
    ///
    /// It is as deep as there are threads that wait for each other.
    fn needs<'a>(
        &'a self,
        thread: Thread,
        me: Thread,
        turns: &mut Vec<&'a Running>,
        seen: &mut BTreeSet<Thread>,
    ) -> bool {
        if thread == me {
            return true;
        }
        if !seen.insert(thread) {
            return false;
        }
        let begun = turns.len();
        let wanted = self
            .waiting
            .get(&thread)
            .and_then(|cell| self.running.get(cell));
        if let Some(turn) = wanted {
            turns.push(turn);
            if self.needs(turn.owner, me, turns, seen) {
                return true;
            }
            turns.truncate(begun);
        }
        // It may be waiting for threads that work for it, and needs each of them.
        let helpers = self.helping.iter().filter(|(_, caller)| **caller == thread);
        for (&helper, _) in helpers {
            turns.extend(self.first_turn_of(helper));
            if self.needs(helper, me, turns, seen) {
                return true;
            }
            turns.truncate(begun);
        }
        false
    }

    fn first_turn_of(&self, thread: Thread) -> Option<&Running> {
        let turns = self.running.values();
        turns
            .filter(|turn| turn.owner == thread)
            .min_by_key(|turn| turn.number)
    }

    /// The name of a turn, and of those that its owner has taken for its sake.
    fn name_needs_of(&self, turn: &Running, cells: &mut Vec<Frozen<str>>) {
        let mut needs: Vec<&Running> = self
            .running
            .values()
            .filter(|other| other.owner == turn.owner && other.number >= turn.number)
            .collect();
        needs.sort_by_key(|need| need.number);
        let unnamed = || Frozen::from("an unnamed cell");
        cells.extend(
            needs
                .into_iter()
                .map(|need| need.label.clone().unwrap_or_else(unnamed)),
        );
    }
}
