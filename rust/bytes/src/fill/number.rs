//! Single numbers: a constant of any dtype as bytes, and the neighbours of a number in a dtype.

use super::error::InitError;
use crate::dtype::{Dtype, Kind};

/// The value of a constant: a number as it was written down.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A real number.
    Float(f64),
    /// A complex number: real and imaginary part.
    Complex(f64, f64),
}

impl Number {
    /// Kind and bits: what makes two numbers the same constant, so that NaN equals itself.
    fn bits(self) -> (u8, u128) {
        match self {
            Self::Bool(value) => (0, u128::from(value)),
            Self::Int(value) => (1, value.cast_unsigned()),
            Self::Float(value) => (2, u128::from(value.to_bits())),
            Self::Complex(re, im) => {
                let high = u128::from(re.to_bits()) << 64;
                (3, high | u128::from(im.to_bits()))
            }
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Complex(re, im) => format!("{re:?} + {im:?}i"),
        }
    }

    /// Real and imaginary part as floats, to nearest.
    fn parts(self) -> (f64, f64) {
        match self {
            Self::Bool(value) => (f64::from(u8::from(value)), 0.0),
            Self::Int(value) => (value as f64, 0.0),
            Self::Float(value) => (value, 0.0),
            Self::Complex(re, im) => (re, im),
        }
    }

    /// The whole number it is, if it is one.
    fn whole(self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(i128::from(value)),
            Self::Int(value) => Some(value),
            Self::Float(value) | Self::Complex(value, 0.0) => {
                let whole = value as i128;
                (whole as f64 == value).then_some(whole)
            }
            Self::Complex(..) => None,
        }
    }

    /// The bytes of one element of this dtype: floats to nearest even, everything else exactly.
    pub fn element(self, dtype: Dtype) -> Result<Vec<u8>, InitError> {
        let bytes = match dtype.kind() {
            Kind::Bool => self
                .whole()
                .filter(|value| (0..=1).contains(value))
                .map(|value| vec![value as u8]),
            Kind::Int => self.whole().and_then(|value| int_bytes(value, dtype)),
            Kind::Float => match self.parts() {
                (re, 0.0) => float_bytes(re, dtype),
                _ => None,
            },
            Kind::Complex => {
                let (re, im) = self.parts();
                let part = if dtype == Dtype::C64 {
                    Dtype::F32
                } else {
                    Dtype::F64
                };
                float_bytes(re, part)
                    .zip(float_bytes(im, part))
                    .map(|(re, im)| [re, im].concat())
            }
        };
        bytes.ok_or_else(|| {
            let name = dtype.name();
            if self.parts() == (0.0, 0.0) {
                return InitError::new(format!("{name} has no zero"))
                    .curing("Use ones, or a dtype that has one");
            }
            InitError::new(format!("the constant does not fit {name}"))
                .expecting(format!("a number that {name} has"))
                .finding(self.text())
        })
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Number {}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

fn int_bytes(value: i128, dtype: Dtype) -> Option<Vec<u8>> {
    let bits = dtype.stored_bits();
    let signed = matches!(dtype, Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64);
    let fits = if signed {
        let limit = 1_i128 << (bits - 1);
        (-limit..limit).contains(&value)
    } else {
        (0..1_i128 << bits).contains(&value)
    };
    fits.then(|| value.to_le_bytes()[..dtype.size()].to_vec())
}

fn float_bytes(value: f64, dtype: Dtype) -> Option<Vec<u8>> {
    match dtype {
        Dtype::F64 => Some(value.to_le_bytes().to_vec()),
        Dtype::F32 => {
            let narrow = value as f32;
            (narrow.is_finite() || !value.is_finite()).then(|| narrow.to_le_bytes().to_vec())
        }
        Dtype::F8E8M0 => {
            // The biased exponent of a power of two, and nothing else.
            let (exponent, mantissa) =
                ((value.to_bits() >> 52) as i32 - 1023, value.to_bits() << 12);
            let code = u8::try_from(exponent + 127).ok()?;
            (mantissa == 0 && code < u8::MAX).then(|| vec![code])
        }
        _ => {
            let code = Grid::of(dtype)?.encode(value)?;
            Some(code.to_le_bytes()[..dtype.size()].to_vec())
        }
    }
}

/// The values of a narrow float dtype: `mantissa` bits, exponents from `smallest` (that of the smallest normal
/// number), and as many codes as there are finite values from 0 up.
struct Grid {
    mantissa: i32,
    smallest: i32,
    /// The code of the largest finite value.
    largest: u16,
    sign: u16,
    /// The code of infinity, where there is one.
    infinity: Option<u16>,
    nan: Option<u16>,
}

impl Grid {
    fn of(dtype: Dtype) -> Option<Self> {
        let grid = |mantissa, smallest, largest, sign, infinity, nan| {
            Some(Self {
                mantissa,
                smallest,
                largest,
                sign,
                infinity,
                nan,
            })
        };
        match dtype {
            Dtype::BF16 => grid(7, -126, 0x7F7F, 0x8000, Some(0x7F80), Some(0x7FC0)),
            Dtype::F16 => grid(10, -14, 0x7BFF, 0x8000, Some(0x7C00), Some(0x7E00)),
            Dtype::F8E5M2 => grid(2, -14, 0x7B, 0x80, Some(0x7C), Some(0x7E)),
            Dtype::F8E4M3 => grid(3, -6, 0x7E, 0x80, None, Some(0x7F)),
            Dtype::F8E5M2Fnuz => grid(2, -15, 0x7F, 0x80, None, Some(0x80)),
            Dtype::F8E4M3Fnuz => grid(3, -7, 0x7F, 0x80, None, Some(0x80)),
            Dtype::F6E2M3 => grid(3, 0, 0x1F, 0x20, None, None),
            Dtype::F6E3M2 => grid(2, -2, 0x1F, 0x20, None, None),
            Dtype::F4 => grid(1, 0, 0x7, 0x8, None, None),
            _ => None,
        }
    }

    /// The code of the nearest value, ties to even codes; `None` where that is beyond the largest.
    fn encode(&self, value: f64) -> Option<u16> {
        if value.is_nan() {
            return self.nan;
        }
        let code = if value.is_infinite() {
            self.infinity?
        } else {
            self.nearest(value.abs())
                .filter(|&code| code <= self.largest)?
        };
        // Types without infinities but with one NaN in the place of minus zero have no minus zero.
        let negative = value.is_sign_negative() && (code != 0 || self.nan != Some(self.sign));
        Some(if negative { code | self.sign } else { code })
    }

    fn nearest(&self, magnitude: f64) -> Option<u16> {
        let bits = magnitude.to_bits();
        let exponent = ((bits >> 52) as i32 - 1023).max(self.smallest);
        // The distance of two values here; a power of two, so the division is exact or underflows to 0.
        let unit = super::special::power_of_two(exponent - self.mantissa);
        let steps = (magnitude / unit).round_ties_even() as u32;
        let first = ((exponent - self.smallest) as u32) << self.mantissa;
        u16::try_from(first + steps).ok()
    }

    /// The value of a code without a sign.
    fn decode(&self, code: u16) -> f64 {
        let code = i32::from(code);
        let implicit = 1 << self.mantissa;
        let (exponent, steps) = match code >> self.mantissa {
            0 => (self.smallest, code),
            field => (
                self.smallest + field - 1,
                (code & (implicit - 1)) | implicit,
            ),
        };
        f64::from(steps) * super::special::power_of_two(exponent - self.mantissa)
    }
}

/// The largest finite value of a dtype that numbers are drawn in.
pub(crate) fn largest(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => f64::MAX,
        Dtype::F32 => f64::from(f32::MAX),
        _ => Grid::of(dtype).map_or(0.0, |grid| grid.decode(grid.largest)),
    }
}

/// The largest value of the dtype that is not above `bound`: f64, f32, f16 or bf16.
pub(crate) fn at_most(dtype: Dtype, bound: f64) -> f64 {
    match dtype {
        Dtype::F64 => bound,
        Dtype::F32 => {
            let near = bound as f32;
            f64::from(if f64::from(near) > bound {
                near.next_down()
            } else {
                near
            })
        }
        _ => Grid::of(dtype).map_or(bound, |grid| {
            if bound.is_infinite() {
                return bound;
            }
            // Beyond the largest value is infinity, one code up.
            let code = grid
                .nearest(bound.abs())
                .unwrap_or(grid.largest)
                .min(grid.largest + 1);
            let near = grid.decode(code).copysign(bound);
            match (near > bound, bound < 0.0 || code == 0) {
                (false, _) => near,
                (true, false) => grid.decode(code - 1),
                (true, true) => -grid.decode(code + 1),
            }
        }),
    }
}

/// The smallest value of the dtype that is not below `bound`.
pub(crate) fn at_least(dtype: Dtype, bound: f64) -> f64 {
    -at_most(dtype, -bound)
}

/// The largest value of the dtype below `bound`.
pub(crate) fn below(dtype: Dtype, bound: f64) -> f64 {
    // Every finite value of a narrower dtype is well apart from the next f64.
    at_most(dtype, bound.next_down())
}

/// Writes an `f32` that is within the range of f32, f16 or bf16, to nearest even.
pub(crate) fn round_into(value: f32, dtype: Dtype, to: &mut [u8]) {
    if dtype == Dtype::F32 {
        to.copy_from_slice(&value.to_le_bytes());
    } else if let Some(code) = Grid::of(dtype).and_then(|grid| grid.encode(f64::from(value))) {
        to.copy_from_slice(&code.to_le_bytes());
    }
}
