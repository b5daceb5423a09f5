//! The rules again, one element after the other, with nothing in common with the crate but the names.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::quant::Code;

/// What is quantised, and how.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) code: Code,
    pub(crate) block: Option<Vec<usize>>,
    pub(crate) scale: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) bytes: Vec<u8>,
}

/// Codes, scales, and what they stand for.
pub(crate) struct Quantised {
    pub(crate) values: Vec<u8>,
    pub(crate) scales: Vec<u8>,
    pub(crate) numbers: Vec<f32>,
}

/// The number that the bytes of one element are.
pub(crate) fn number(dtype: Dtype, bytes: &[u8]) -> f64 {
    match dtype {
        Dtype::F16 => half(u16::from_le_bytes(bytes.try_into().unwrap())),
        Dtype::BF16 => f64::from(brain(u16::from_le_bytes(bytes.try_into().unwrap()))),
        Dtype::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        _ => f64::from_le_bytes(bytes.try_into().unwrap()),
    }
}

fn half(code: u16) -> f64 {
    let sign = if code >> 15 == 1 { -1.0 } else { 1.0 };
    let digits = f64::from(code & 0x3FF);
    sign * match code >> 10 & 31 {
        0 => digits * 2_f64.powi(-24),
        31 => f64::NAN,
        exponent => (1024.0 + digits) * 2_f64.powi(i32::from(exponent) - 25),
    }
}

fn brain(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// The first code of a dtype whose value is not less; positive ones are in order.
fn rounded_up(value: f32, dtype: Dtype) -> (Vec<u8>, f32) {
    let search = |of: &dyn Fn(u16) -> f32| {
        let codes: Vec<u16> = (0..0x7F80).collect();
        let code = codes[codes.partition_point(|&code| of(code) < value)];
        (code.to_le_bytes().to_vec(), of(code))
    };
    match dtype {
        Dtype::F16 => search(&|code| half(code) as f32),
        Dtype::BF16 => search(&brain),
        _ => (value.to_le_bytes().to_vec(), value),
    }
}

pub(crate) fn quantise(case: &Case) -> Quantised {
    let numbers: Vec<f32> = case
        .bytes
        .chunks(case.dtype.size())
        .map(|bytes| number(case.dtype, bytes) as f32)
        .collect();
    match case.code {
        Code::Nf4 => nf4(&numbers, case.block.as_ref().unwrap()[0]),
        _ => symmetric(case, &numbers),
    }
}

fn symmetric(case: &Case, numbers: &[f32]) -> Quantised {
    let (shape, rank) = (&case.shape, case.shape.len());
    let tile: Vec<usize> = match &case.block {
        None => shape.clone(),
        Some(block) => [&vec![1; rank - block.len()], &block[..]].concat(),
    };
    let per_tensor = case.block.is_none();
    let grid: Vec<usize> = shape
        .iter()
        .zip(&tile)
        .map(|(len, tile)| len / tile.max(&1))
        .collect();
    let block_of = |mut element: usize| {
        let (mut block, mut stride) = (0, 1);
        for axis in (0..rank).rev() {
            block += element % shape[axis] / tile[axis] * stride;
            stride *= grid[axis];
            element /= shape[axis];
        }
        block
    };
    let blocks = if per_tensor { 1 } else { grid.iter().product() };
    let mut most = vec![0.0_f32; blocks];
    for (at, number) in numbers.iter().enumerate() {
        let block = block_of(at);
        most[block] = most[block].max(number.abs());
    }
    let limit = if case.code == Code::Q8S { 127.0 } else { 7.0 };
    let scales: Vec<(Vec<u8>, f32)> = most
        .into_iter()
        .map(|most| rounded_up((most / limit).max(f32::MIN_POSITIVE), case.scale))
        .collect();
    let codes: Vec<i8> = numbers
        .iter()
        .enumerate()
        .map(|(at, number)| {
            (number / scales[block_of(at)].1)
                .round()
                .clamp(-limit, limit) as i8
        })
        .collect();
    let row = shape.last().copied().unwrap_or(1);
    let values = if case.code == Code::Q8S {
        codes.iter().map(|code| *code as u8).collect()
    } else {
        codes
            .chunks(row.max(1))
            .flat_map(|row| row.chunks(2))
            .map(|pair| {
                let high = pair.get(1).copied().unwrap_or(0);
                (pair[0] as u8 & 15) | (high as u8) << 4
            })
            .collect()
    };
    Quantised {
        values,
        numbers: codes
            .iter()
            .enumerate()
            .map(|(at, code)| f32::from(*code) * scales[block_of(at)].1)
            .collect(),
        scales: scales.into_iter().flat_map(|(bytes, _)| bytes).collect(),
    }
}

/// bitsandbytes' table, by the bits of its numbers.
pub(crate) const TABLE: [u32; 16] = [
    0xBF80_0000,
    0xBF32_39B1,
    0xBF06_6B30,
    0xBECA_32A0,
    0xBE91_A24D,
    0xBE3D_353F,
    0xBDBA_7871,
    0x0000_0000,
    0x3DA2_FAFF,
    0x3E24_CAE3,
    0x3E7C_04DD,
    0x3EAD_033A,
    0x3EE1_A4B8,
    0x3F10_07AB,
    0x3F39_13B3,
    0x3F80_0000,
];

fn nf4(numbers: &[f32], size: usize) -> Quantised {
    let table = TABLE.map(f32::from_bits);
    let (mut codes, mut scales, mut meant) = (Vec::new(), Vec::new(), Vec::new());
    for block in numbers.chunks(size) {
        let short = block.len() < size;
        let mut most = block
            .iter()
            .fold(0.0_f32, |most, number| most.max(number.abs()));
        if short {
            most = most.max(1e-38);
        }
        for number in block {
            let scaled = if short {
                number / most
            } else {
                number * (1.0 / most.max(1e-38))
            };
            let code = (0..15)
                .find(|&code| scaled <= (table[code] + table[code + 1]) / 2.0)
                .unwrap_or(15);
            codes.push(code as u8);
            meant.push(table[code] * most);
        }
        scales.extend(most.to_le_bytes());
    }
    let pair = |pair: &[u8]| pair[0] << 4 | pair.get(1).copied().unwrap_or(7);
    Quantised {
        values: codes.chunks(2).map(pair).collect(),
        scales,
        numbers: meant,
    }
}
