//! Who initialises what, and who waits for whom: the one lock of the slow path.
//!
//! Two relations, guarded by one mutex so that checking for a cycle and starting to wait are one
//! step: *running* (cell → the thread whose turn it is) and *waiting* (thread → the cell it wants).
//! A thread has at most one waiting edge, and an edge is added only if it closes no cycle, so
//! walks end. The mutex is held for map look-ups only, never while anybody's code runs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::sync::{self, Arc, Condvar, Mutex};

/// What a cell is called in messages, when anybody gave it a name.
pub type Label = Option<Arc<str>>;

/// The address of a cell. Who waits for a cell or has its turn keeps it where it is.
pub(crate) type CellId = usize;

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
    #[cfg(not(loom))]
    pub fn wait_for(&self, limit: Duration) -> bool {
        let rung = sync::lock(&self.rung);
        let (rung, _) = self
            .changed
            .wait_timeout_while(rung, limit, |rung| !*rung)
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        *rung
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
    pub cells: Vec<Arc<str>>,
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
    bell: Arc<Bell>,
}

struct Graph {
    running: BTreeMap<CellId, Running>,
    waiting: BTreeMap<Thread, CellId>,
    turns: u64,
}

static GRAPH: Mutex<Graph> = Mutex::new(Graph {
    running: BTreeMap::new(),
    waiting: BTreeMap::new(),
    turns: 0,
});

/// What came of asking for a cell's turn.
pub(crate) enum Claim {
    /// It is yours: initialise, and let go of it.
    Granted(Ticket),
    /// Another thread has it. Your wait is on record: call [`stop_waiting`] when it is over.
    Wait(Arc<Bell>),
    /// Waiting would never end.
    Refused(Cycle),
}

/// The right to initialise one cell. Dropping it gives the right back and wakes all who wait.
#[derive(Debug)]
pub(crate) struct Ticket {
    cell: CellId,
}

impl Ticket {
    pub(crate) fn cell(&self) -> CellId {
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
            graph.running.remove(&cell)
        };
        if let Some(running) = ended {
            running.bell.ring();
        }
    }
}

/// Ask for the turn of `cell` on behalf of this thread.
pub(crate) fn claim(cell: CellId, label: &Label) -> Claim {
    let me = sync::thread_number();
    let mut graph = sync::lock(&GRAPH);
    let Some(running) = graph.running.get(&cell) else {
        graph.turns += 1;
        let running = Running {
            owner: me,
            number: graph.turns,
            label: label.clone(),
            bell: Arc::new(Bell::new()),
        };
        graph.running.insert(cell, running);
        return Claim::Granted(Ticket { cell });
    };
    let bell = running.bell.clone();
    if let Some(cycle) = graph.cycle_closed_by(me, cell) {
        return Claim::Refused(cycle);
    }
    graph.waiting.insert(me, cell);
    Claim::Wait(bell)
}

/// Take back this thread's waiting edge, if it still stands.
pub(crate) fn stop_waiting() {
    sync::lock(&GRAPH).waiting.remove(&sync::thread_number());
}

impl Graph {
    /// The cells on the way from `wanted` back to a turn of `me`, if there is a way.
    fn cycle_closed_by(&self, me: Thread, wanted: CellId) -> Option<Cycle> {
        let mut turns = Vec::new();
        let mut cell = wanted;
        loop {
            let turn = self.running.get(&cell)?;
            turns.push(turn);
            if turn.owner == me {
                break;
            }
            cell = *self.waiting.get(&turn.owner)?;
        }
        let mut cells = Vec::new();
        for turn in turns {
            self.name_needs_of(turn, &mut cells);
        }
        cells.dedup();
        Some(Cycle { cells })
    }

    /// The name of a turn, and of those that its owner has taken for its sake.
    fn name_needs_of(&self, turn: &Running, cells: &mut Vec<Arc<str>>) {
        let mut needs: Vec<&Running> = self
            .running
            .values()
            .filter(|other| other.owner == turn.owner && other.number >= turn.number)
            .collect();
        needs.sort_by_key(|need| need.number);
        let unnamed = || Arc::from("an unnamed cell");
        cells.extend(
            needs
                .into_iter()
                .map(|need| need.label.clone().unwrap_or_else(unnamed)),
        );
    }
}
