//! Short ways to make plans, to fill them, and to read what came out.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Fill, Init, Isa, Key, Part, Plan, Region, Target, fill};

/// The key of the goldens.
pub(crate) fn golden_key() -> Key {
    Key::new(
        42,
        [
            "layers".into(),
            Part::Index(3),
            "attn".into(),
            "q_proj".into(),
            "weight".into(),
        ],
    )
}

/// A key of a model with one parameter.
pub(crate) fn key(seed: u128) -> Key {
    Key::new(seed, ["weight".into()])
}

pub(crate) fn standard_normal() -> Init {
    Init::normal(0.0, 1.0).unwrap()
}

/// All of a parameter, as bytes.
pub(crate) fn whole(init: &Init, key: &Key, shape: &[usize], dtype: Dtype) -> Vec<u8> {
    let plan = Plan::new(init, key, shape, dtype).unwrap();
    fill(&plan, 1).unwrap().as_slice().to_vec()
}

/// A box of a parameter, as bytes in C order.
pub(crate) fn part(
    init: &Init,
    key: &Key,
    shape: &[usize],
    dtype: Dtype,
    region: &Region,
) -> Vec<u8> {
    let plan = Plan::of_region(init, key, shape, dtype, &[], region).unwrap();
    fill(&plan, 1).unwrap().as_slice().to_vec()
}

/// All of a plan, with this instruction set.
pub(crate) fn with_isa(plan: &Plan, isa: Isa) -> Vec<u8> {
    let mut bytes = vec![0xAA; plan.bytes()];
    let fill = Fill::with_isa(plan, Target::contiguous(&mut bytes), isa).unwrap();
    fill.run();
    assert!(fill.is_done());
    drop(fill);
    bytes
}

pub(crate) fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

pub(crate) fn f64s(bytes: &[u8]) -> Vec<f64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f64::from_le_bytes(*bytes))
        .collect()
}

pub(crate) fn u16s(bytes: &[u8]) -> Vec<u16> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| u16::from_le_bytes(*bytes))
        .collect()
}

/// Values of any float dtype that is drawn in, as f64.
pub(crate) fn values(bytes: &[u8], dtype: Dtype) -> Vec<f64> {
    match dtype {
        Dtype::F64 => f64s(bytes),
        Dtype::F32 => f32s(bytes).into_iter().map(f64::from).collect(),
        Dtype::BF16 => u16s(bytes).into_iter().map(bf16).collect(),
        Dtype::F16 => u16s(bytes).into_iter().map(f16).collect(),
        _ => panic!("not a dtype that is drawn in"),
    }
}

pub(crate) fn bf16(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

pub(crate) fn f16(bits: u16) -> f64 {
    let magnitude = f64::from(bits & 0x3FF);
    let exponent = i32::from(bits >> 10 & 0x1F);
    let value = match exponent {
        0 => magnitude * 2_f64.powi(-24),
        31 => f64::INFINITY,
        _ => (1024.0 + magnitude) * 2_f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { value } else { -value }
}
