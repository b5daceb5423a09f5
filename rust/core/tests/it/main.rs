//! The state machine of lazyparam, tried out on a toy tensor. Each test's name is a sentence; its
//! doc comment names the row of the list of behaviours that it covers, where there is one.

// Threads of the operating system have no part in a model.
#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is how tests, and what they call, fail"
)]

mod toy;
mod watchdog;

mod cell;
mod copy;
mod cycle;
mod depth;
mod elsewhere;
mod free;
mod gc;
mod intent;
mod lazy;
mod load;
mod mapper;
mod model;
mod param;
mod place;
mod redraw;
mod stress;
