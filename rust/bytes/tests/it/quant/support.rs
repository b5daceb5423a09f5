//! Short ways to quantise and back, and numbers to do it with.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::quant::{Code, Crew, Plan, QuantError, Scheme, dequantize, quantize};

use super::naive::{Case, number};

pub(crate) const FLOATS: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64];
pub(crate) const SCALES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];

pub(crate) fn plan(case: &Case) -> Result<Plan, QuantError> {
    let scheme = Scheme::new(case.code, case.block.clone(), case.scale)?;
    Plan::new(&scheme, &case.shape, case.dtype)
}

/// Values and scales, made by so many threads.
pub(crate) fn quantised(case: &Case, threads: usize) -> Result<(Vec<u8>, Vec<u8>), QuantError> {
    let plan = plan(case)?;
    // What was there before is written over.
    let (mut values, mut scales) = (vec![0xAA; plan.values_len()], vec![0xAA; plan.scales_len()]);
    quantize(
        &plan,
        &case.bytes,
        None,
        &mut values,
        &mut scales,
        Crew::new(threads),
    )?;
    Ok((values, scales))
}

/// The elements that values and scales stand for, as bytes of this dtype.
pub(crate) fn dequantised(
    case: &Case,
    (values, scales): &(Vec<u8>, Vec<u8>),
    dtype: Dtype,
    threads: usize,
) -> Vec<u8> {
    let plan = plan(&Case {
        dtype,
        ..case.clone()
    })
    .unwrap();
    let mut elements = vec![0xAA; plan.elements_len()];
    dequantize(&plan, values, scales, &mut elements, Crew::new(threads)).unwrap();
    elements
}

/// Elements of `f32` with a scheme whose scales are of `f32`.
pub(crate) fn case(code: Code, block: Option<&[usize]>, shape: &[usize], numbers: &[f32]) -> Case {
    Case {
        code,
        block: block.map(<[usize]>::to_vec),
        scale: Dtype::F32,
        shape: shape.to_vec(),
        dtype: Dtype::F32,
        bytes: numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect(),
    }
}

/// The numbers that elements are.
pub(crate) fn numbers(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks(dtype.size())
        .map(|bytes| number(dtype, bytes))
        .collect()
}

/// Finite elements of every magnitude, without a pattern.
pub(crate) fn noise(count: usize, dtype: Dtype) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::new();
    while bytes.len() < count * dtype.size() {
        let element = &next().to_le_bytes()[8 - dtype.size()..];
        if (number(dtype, element) as f32).is_finite() {
            bytes.extend(element);
        }
    }
    bytes
}

/// Numbers between -1 and 1, without a pattern.
pub(crate) fn fractions(count: usize) -> Vec<f32> {
    noise(count, Dtype::BF16)
        .chunks(2)
        .map(|bytes| f32::from(i16::from_le_bytes([bytes[0], bytes[1]])) / 32768.0)
        .collect()
}
