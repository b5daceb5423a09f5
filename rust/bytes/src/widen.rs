//! Which casts lose nothing: the exact sets of values behind the dtypes.

use crate::dtype::{Dtype, Kind};

/// The value set of a float type. Every bound is itself an `f64`, so comparing them is exact.
struct FloatSet {
    /// Significant bits, the hidden one included.
    precision: u32,
    /// Smallest positive value, subnormals included.
    smallest: f64,
    /// Largest finite value.
    largest: f64,
    /// Zero and negative numbers.
    signed: bool,
    minus_zero: bool,
    infinities: bool,
    nan: bool,
}

impl FloatSet {
    /// A type with everything IEEE 754 asks for; the others are described by what they lack.
    const fn ieee(precision: u32, smallest: f64, largest: f64) -> Self {
        Self {
            precision,
            smallest,
            largest,
            signed: true,
            minus_zero: true,
            infinities: true,
            nan: true,
        }
    }

    /// A number that fits the precision, is no finer than the smallest step and no larger than the
    /// largest value, is a value: so comparing three bounds and the special values is enough.
    fn contains(&self, inner: &Self) -> bool {
        inner.precision <= self.precision
            && inner.smallest >= self.smallest
            && inner.largest <= self.largest
            && inner.signed <= self.signed
            && inner.minus_zero <= self.minus_zero
            && inner.infinities <= self.infinities
            && inner.nan <= self.nan
    }
}

/// 2 to the power of `exponent`, for exponents in the normal range of an `f64`.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

const fn float_set(dtype: Dtype) -> Option<FloatSet> {
    let set = match dtype {
        Dtype::F64 => FloatSet::ieee(53, f64::from_bits(1), f64::MAX),
        Dtype::F32 => FloatSet::ieee(24, power_of_two(-149), f32::MAX as f64),
        Dtype::BF16 => FloatSet::ieee(8, power_of_two(-133), 255.0 * power_of_two(120)),
        Dtype::F16 => FloatSet::ieee(11, power_of_two(-24), 65504.0),
        Dtype::F8E5M2 => FloatSet::ieee(3, power_of_two(-16), 57344.0),
        Dtype::F8E4M3 => FloatSet {
            infinities: false,
            ..FloatSet::ieee(4, power_of_two(-9), 448.0)
        },
        Dtype::F8E4M3Fnuz => FloatSet {
            infinities: false,
            minus_zero: false,
            ..FloatSet::ieee(4, power_of_two(-10), 240.0)
        },
        Dtype::F8E5M2Fnuz => FloatSet {
            infinities: false,
            minus_zero: false,
            ..FloatSet::ieee(3, power_of_two(-17), 57344.0)
        },
        Dtype::F8E8M0 => FloatSet {
            infinities: false,
            minus_zero: false,
            signed: false,
            ..FloatSet::ieee(1, power_of_two(-127), power_of_two(127))
        },
        Dtype::F6E2M3 => FloatSet {
            infinities: false,
            nan: false,
            ..FloatSet::ieee(4, 0.125, 7.5)
        },
        Dtype::F6E3M2 => FloatSet {
            infinities: false,
            nan: false,
            ..FloatSet::ieee(3, 0.0625, 28.0)
        },
        Dtype::F4 => FloatSet {
            infinities: false,
            nan: false,
            ..FloatSet::ieee(2, 0.5, 6.0)
        },
        _ => return None,
    };
    Some(set)
}

const fn is_signed_int(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64)
}

fn int_fits(from: Dtype, to: Dtype) -> bool {
    match (is_signed_int(from), is_signed_int(to)) {
        (true, false) => false,
        (false, true) => from.size() < to.size(),
        _ => from.size() <= to.size(),
    }
}

/// Whether every value of `from` is exactly a value of `to`, within one kind.
pub(crate) fn is_lossless(from: Dtype, to: Dtype) -> bool {
    if from.kind() != to.kind() {
        return false;
    }
    match from.kind() {
        Kind::Bool => true,
        Kind::Int => int_fits(from, to),
        Kind::Complex => from.size() <= to.size(),
        Kind::Float => match (float_set(from), float_set(to)) {
            (Some(inner), Some(outer)) => outer.contains(&inner),
            _ => false,
        },
    }
}
