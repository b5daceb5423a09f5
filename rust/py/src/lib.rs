//! `lazyparam._core`: translation between Python and the pure crates. No decisions are made here.
//!
//! Rooms: `gate` detaches and attaches, nobody else does; `raw` holds the only `unsafe` code.

#![deny(unsafe_code)]

mod arguments;
mod array;
mod backend;
mod checkpoint;
mod device;
mod draw;
mod dtype;
mod errors;
mod exit;
mod fork;
mod function;
mod gate;
mod init;
mod initialize;
mod once;
mod param;
mod pickle;
mod plan;
mod python;
mod quant;
mod raw;
mod team;

use pyo3::prelude::*;

/// The core of lazyparam, in Rust.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::once::open_to_reads(module.py())?;
        crate::param::open_to_reads(module.py())?;
        crate::exit::register(module.py())?;
        crate::fork::register(module.py())
    }

    #[pymodule_export]
    use crate::checkpoint::{Checkpoint, write_file};
    #[pymodule_export]
    use crate::device::Device;
    #[pymodule_export]
    use crate::draw::{PyKey, fill_box, instruction_set};
    #[pymodule_export]
    use crate::dtype::{dtype_kind, dtype_name, dtype_size, widens};
    #[pymodule_export]
    use crate::init::{Init, gain_of, rebuild_init};
    #[pymodule_export]
    use crate::initialize::initialize;
    #[pymodule_export]
    use crate::once::{
        Lazy, LazyAttribute, OnceCell, rebuild_attribute, rebuild_cell, rebuild_lazy, thread_number,
    };
    #[pymodule_export]
    use crate::param::Param;
    #[pymodule_export]
    use crate::param::ParamMapper;
    #[pymodule_export]
    use crate::pickle::{State, rebuild_param, rebuild_state};
    #[pymodule_export]
    use crate::plan::Plan;
    #[pymodule_export]
    use crate::quant::{dequantize, nf4_table, quant_absmax, quant_layout, quantize};
    #[pymodule_export]
    use crate::raw::Buffer;
}
