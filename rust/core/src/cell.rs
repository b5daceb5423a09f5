//! A once-cell: filled exactly once however many threads ask, by an initialiser that may fail.
//!
//! What differs from `std::sync::OnceLock`: initialisation can fail and is then tried again by
//! one of those who wait (no poisoning, also after a panic); a thread that would wait for itself,
//! directly or through other cells, gets a [`Cycle`] instead of a deadlock; and *how* to wait is
//! the caller's affair ([`Patience`]), so that a caller may let go of an interpreter, answer
//! signals or give up.

use std::marker::PhantomData;

use crate::graph::{self, Bell, Claim, Cycle, Label, Named, Place, Ticket};
use crate::sync::Latch;

/// How a thread spends its time while another one initialises the cell it wants.
pub trait Patience {
    /// What a read can fail with.
    type Error: From<Cycle>;

    /// Sleep until `bell` rings, or for a while. Must not read any cell.
    fn nap(&mut self, bell: &Bell);

    /// Called after each nap with nothing on record, so it may run anybody's code (signal
    /// handlers, say). An error ends the wait; the initialisation goes on.
    fn poll(&mut self) -> Result<(), Self::Error>;
}

/// Sleep as long as it takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block;

impl Patience for Block {
    type Error = Cycle;

    fn nap(&mut self, bell: &Bell) {
        bell.wait();
    }

    fn poll(&mut self) -> Result<(), Cycle> {
        Ok(())
    }
}

/// Room for one value, written once: where a cell keeps what it holds.
///
/// Exactly one of all who publish at the same time succeeds, what it wrote before it published is
/// seen by whoever gets the value, and the value stays where it is as long as the room does.
pub trait Slot<T> {
    /// The value, if it has been published. Never waits.
    fn get(&self) -> Option<&T>;

    /// Publish `value` unless one is there already, and answer with the one that is.
    fn publish(&self, value: T) -> &T;
}

impl<T> Slot<T> for Latch<T> {
    fn get(&self) -> Option<&T> {
        self.get()
    }

    fn publish(&self, value: T) -> &T {
        self.publish(value)
    }
}

/// A cell as found by a thread that wants its value.
#[derive(Debug)]
pub(crate) enum Entry<T> {
    /// The value is there.
    Ready(T),
    /// Nobody has filled the cell, and it is this thread's turn to.
    Vacant(Turn),
}

/// The exclusive right to fill one cell. Dropped unused, it passes to one of those who wait.
///
/// It goes by the cell's place, so its holder keeps the cell where it is.
#[derive(Debug)]
#[must_use = "dropping a turn gives it to the next thread"]
pub(crate) struct Turn {
    ticket: Ticket,
}

impl Turn {
    /// Publish `value` in the cell this turn was given for, and wake all who wait.
    pub(crate) fn fill<T, S: Slot<T>>(self, cell: &OnceCell<T, S>, value: T) -> &T {
        debug_assert_eq!(
            self.ticket.cell(),
            cell.place(),
            "a turn fills the cell that granted it"
        );
        cell.slot.publish(value)
    }
}

/// What `look` finds in a place, or the turn to make it; waits while another thread has the turn.
fn enter<T, P: Patience>(
    place: Place,
    label: &dyn Named,
    patience: &mut P,
    mut look: impl FnMut() -> Result<Option<T>, P::Error>,
) -> Result<Entry<T>, P::Error> {
    let mut name: Option<Label> = None;
    let mut found = look()?;
    loop {
        if let Some(value) = found {
            return Ok(Entry::Ready(value));
        }
        match graph::claim(place, name.as_ref()) {
            Claim::Granted(ticket) => {
                let turn = Turn { ticket };
                // The last owner may have published between the look and the claim.
                return Ok(match look()? {
                    Some(value) => Entry::Ready(value),
                    None => Entry::Vacant(turn),
                });
            }
            Claim::Nameless => {
                name = Some(label.label());
                continue;
            }
            Claim::Refused(cycle) => return Err(cycle.into()),
            Claim::Wait(bell) => {
                let _edge = WaitingEdge;
                patience.nap(&bell);
            }
        }
        // Look before asking whether to give up: the value may be there.
        found = look()?;
        if found.is_none() {
            patience.poll()?;
        }
    }
}

/// The protocol of [`OnceCell::get_or_try_init`] for a value that is kept where no cell can be:
/// `look` finds it, and `init` makes it and puts it there before it returns.
pub fn get_or_try_init_at<T, P: Patience>(
    place: Place,
    label: &dyn Named,
    patience: &mut P,
    look: impl FnMut() -> Result<Option<T>, P::Error>,
    init: impl FnOnce() -> Result<T, P::Error>,
) -> Result<T, P::Error> {
    match enter(place, label, patience, look)? {
        Entry::Ready(value) => Ok(value),
        Entry::Vacant(_turn) => init(),
    }
}

/// A cell that is empty, then holds one value for ever.
#[derive(Debug)]
pub struct OnceCell<T, S = Latch<T>> {
    slot: S,
    holds: PhantomData<fn() -> T>,
}

impl<T> Default for OnceCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceCell<T> {
    /// An empty cell.
    pub fn new() -> Self {
        Self::over(Latch::open())
    }

    /// A cell born full.
    pub fn with(value: T) -> Self {
        let slot = Latch::open();
        slot.publish(value);
        Self::over(slot)
    }
}

impl<T, S> OnceCell<T, S> {
    /// A cell that keeps its value in `slot`.
    pub const fn over(slot: S) -> Self {
        Self {
            slot,
            holds: PhantomData,
        }
    }

    /// Where the value is kept.
    pub fn slot(&self) -> &S {
        &self.slot
    }

    /// Whether a thread is making the value now; no longer true when you hear it.
    pub fn is_running(&self) -> bool {
        graph::is_running(self.place())
    }

    fn place(&self) -> Place {
        Place::of(std::ptr::from_ref(self))
    }
}

impl<T, S: Slot<T>> OnceCell<T, S> {
    /// The value, if it is there. One atomic load; never waits.
    pub fn get(&self) -> Option<&T> {
        self.slot.get()
    }

    /// The value, or the turn to make it; waits while another thread has the turn.
    pub(crate) fn enter<P: Patience>(
        &self,
        label: &dyn Named,
        patience: &mut P,
    ) -> Result<Entry<&T>, P::Error> {
        enter(self.place(), label, patience, || Ok(self.get()))
    }

    /// The value, made by `init` if it is not there yet.
    ///
    /// Exactly one of the threads that ask together runs its `init`. If that fails, the error is
    /// that thread's alone, the cell is empty again, and one of the others has the next turn.
    pub fn get_or_try_init<P: Patience>(
        &self,
        label: &dyn Named,
        patience: &mut P,
        init: impl FnOnce() -> Result<T, P::Error>,
    ) -> Result<&T, P::Error> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        match self.enter(label, patience)? {
            Entry::Ready(value) => Ok(value),
            Entry::Vacant(turn) => {
                let value = init()?;
                Ok(turn.fill(self, value))
            }
        }
    }
}

/// Takes the waiting edge back when the nap ends, also by a panic.
struct WaitingEdge;

impl Drop for WaitingEdge {
    fn drop(&mut self) {
        graph::stop_waiting();
    }
}
