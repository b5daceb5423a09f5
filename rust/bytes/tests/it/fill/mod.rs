//! Native initialisers, one file per topic.

mod boxes;
mod fans;
mod goldens;
mod inits;
mod isas;
mod laws;
mod ones;
mod oracle;
mod orthogonal;
mod pattern;
mod sparse;
mod support;
mod targets;
mod threads;
mod trunc;
