//! Quantisation, one file per topic.

mod edges;
mod errors;
mod layout;
mod naive;
mod nf4;
mod rules;
mod support;
mod threads;
