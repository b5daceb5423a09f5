//! Tests of the public interface, one file per topic.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers outside of test functions fail the test the same way"
)]

mod buffer;
mod checkpoint;
mod dtype;
mod fill;
mod header_text;
mod hostile;
mod index;
mod layout;
mod not_safetensors;
mod odd_files;
mod oracle;
mod pack;
mod quant;
mod read;
mod replace;
mod shape;
mod support;
mod view;
mod write;
