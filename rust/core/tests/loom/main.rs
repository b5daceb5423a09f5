//! The core under a model checker, which runs each of these small programs in every order that
//! its threads can take and lets each load see every store that the memory model allows it.
//!
//! A model fails on a data race, on threads that wait for ever, on shared states that leak, and
//! on an end that its test does not list. `make proof-loom` runs them; docs/dev/proof.md says what
//! they prove.

#![cfg(loom)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is how tests, and what they call, fail"
)]

mod explore;
mod toy;

mod cell;
mod cycle;
mod elsewhere;
mod lazy;
mod place;
