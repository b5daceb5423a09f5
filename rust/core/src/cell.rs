//! A once-cell: filled exactly once however many threads ask, by an initialiser that may fail.
//!
//! What differs from `std::sync::OnceLock`: initialisation can fail and is then tried again by
//! one of those who wait (no poisoning, also after a panic); a thread that would wait for itself,
//! directly or through other cells, gets a [`Cycle`] instead of a deadlock; and *how* to wait is
//! the caller's affair ([`Patience`]), so that a caller may let go of an interpreter, answer
//! signals or give up.

use crate::graph::{self, Bell, Claim, Cycle, Label, Ticket};
use crate::sync::Slot;

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

/// A cell as found by a thread that wants its value.
#[derive(Debug)]
pub(crate) enum Entry<'cell, T> {
    /// The value is there.
    Ready(&'cell T),
    /// Nobody has filled the cell, and it is this thread's turn to.
    Vacant(Turn),
}

/// The exclusive right to fill one cell. Dropped unused, it passes to one of those who wait.
///
/// It goes by the cell's address, so its holder keeps the cell where it is.
#[derive(Debug)]
#[must_use = "dropping a turn gives it to the next thread"]
pub(crate) struct Turn {
    ticket: Ticket,
}

impl Turn {
    /// Publish `value` in the cell this turn was given for, and wake all who wait.
    pub(crate) fn fill<T>(self, cell: &OnceCell<T>, value: T) -> &T {
        debug_assert_eq!(
            self.ticket.cell(),
            cell.id(),
            "a turn fills the cell that granted it"
        );
        cell.slot.publish(value)
    }
}

/// A cell that is empty, then holds one value for ever.
#[derive(Debug)]
pub struct OnceCell<T> {
    slot: Slot<T>,
}

impl<T> Default for OnceCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceCell<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self {
            slot: Slot::empty(),
        }
    }

    /// A cell born full.
    pub fn with(value: T) -> Self {
        Self {
            slot: Slot::full(value),
        }
    }

    /// The value, if it is there. One atomic load; never waits.
    pub fn get(&self) -> Option<&T> {
        self.slot.get()
    }

    /// The value, or the turn to make it; waits while another thread has the turn.
    pub(crate) fn enter<P: Patience>(
        &self,
        label: &Label,
        patience: &mut P,
    ) -> Result<Entry<'_, T>, P::Error> {
        loop {
            if let Some(value) = self.get() {
                return Ok(Entry::Ready(value));
            }
            match graph::claim(self.id(), label) {
                Claim::Granted(ticket) => {
                    let turn = Turn { ticket };
                    // The last owner may have published between the look and the claim.
                    return Ok(match self.get() {
                        Some(value) => Entry::Ready(value),
                        None => Entry::Vacant(turn),
                    });
                }
                Claim::Refused(cycle) => return Err(cycle.into()),
                Claim::Wait(bell) => {
                    let _edge = WaitingEdge;
                    patience.nap(&bell);
                }
            }
            // Look before asking whether to give up: the value may be there.
            if self.get().is_none() {
                patience.poll()?;
            }
        }
    }

    /// The value, made by `init` if it is not there yet.
    ///
    /// Exactly one of the threads that ask together runs its `init`. If that fails, the error is
    /// that thread's alone, the cell is empty again, and one of the others has the next turn.
    pub fn get_or_try_init<P: Patience>(
        &self,
        label: &Label,
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

    fn id(&self) -> graph::CellId {
        std::ptr::from_ref(self).cast::<u8>() as usize
    }
}

/// Takes the waiting edge back when the nap ends, also by a panic.
struct WaitingEdge;

impl Drop for WaitingEdge {
    fn drop(&mut self) {
        graph::stop_waiting();
    }
}
