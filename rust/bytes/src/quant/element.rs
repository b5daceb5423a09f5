//! Elements: floats of four widths as bytes, read as `f32` and written from it.

use crate::dtype::Dtype;

/// A float dtype whose elements are `N` bytes.
pub(crate) trait Element<const N: usize> {
    /// The number, rounded to nearest if it is wider than an `f32`.
    fn widen(bytes: [u8; N]) -> f32;

    /// The nearest number, ties to even; infinity if it is too large.
    fn narrow(value: f32) -> [u8; N];
}

/// `f32`
pub(crate) struct Single;
/// Half precision.
pub(crate) struct Half;
/// The upper half of an `f32`.
pub(crate) struct Brain;
/// `f64`
pub(crate) struct Double;

impl Element<4> for Single {
    #[inline(always)]
    fn widen(bytes: [u8; 4]) -> f32 {
        f32::from_le_bytes(bytes)
    }

    #[inline(always)]
    fn narrow(value: f32) -> [u8; 4] {
        value.to_le_bytes()
    }
}

impl Element<8> for Double {
    #[inline(always)]
    fn widen(bytes: [u8; 8]) -> f32 {
        f64::from_le_bytes(bytes) as f32
    }

    #[inline(always)]
    fn narrow(value: f32) -> [u8; 8] {
        f64::from(value).to_le_bytes()
    }
}

impl Element<2> for Brain {
    #[inline(always)]
    fn widen(bytes: [u8; 2]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> [u8; 2] {
        let bits = value.to_bits();
        let rounded = (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16;
        let code = if value.is_nan() { 0x7FC0 } else { rounded };
        code.to_le_bytes()
    }
}

/// The bits of 2⁻¹⁴, the smallest normal half.
const SMALLEST_NORMAL: u32 = 0x3880_0000;
/// The bits of 65520, halfway between the largest half and the next power of two.
const TOO_LARGE: u32 = 0x477F_F000;

impl Element<2> for Half {
    #[inline(always)]
    fn widen(bytes: [u8; 2]) -> f32 {
        let code = u32::from(u16::from_le_bytes(bytes));
        let magnitude = (code & 0x7FFF) << 13;
        // The exponent is biased by 15 and has to be by 127; that of infinity and NaN goes to the top.
        let rebias = if magnitude >= 0x1F << 23 { 224 } else { 112 };
        let normal = magnitude + (rebias << 23);
        // 2⁻¹⁴ plus a subnormal has its digits where a normal number has them.
        let subnormal =
            f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL);
        let chosen = if magnitude < 1 << 23 {
            subnormal.to_bits()
        } else {
            normal
        };
        f32::from_bits(chosen | (code & 0x8000) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> [u8; 2] {
        let bits = value.to_bits();
        let sign = bits & 0x8000_0000;
        let magnitude = bits ^ sign;
        let tie = magnitude >> 13 & 1;
        let normal = (magnitude.wrapping_add(0xFFF + tie) >> 13).wrapping_sub(112 << 10);
        // Added to ½, whose last digit is the smallest half, it is rounded as it has to be.
        let subnormal = (f32::from_bits(magnitude) + 0.5)
            .to_bits()
            .wrapping_sub(0x3F00_0000);
        let finite = if magnitude < SMALLEST_NORMAL {
            subnormal
        } else {
            normal
        };
        let beyond = if magnitude > 0x7F80_0000 {
            0x7E00
        } else {
            0x7C00
        };
        let code = if magnitude < TOO_LARGE {
            finite
        } else {
            beyond
        };
        ((code | sign >> 16) as u16).to_le_bytes()
    }
}

/// The smallest number of a dtype that is not below a positive one, as its bytes (the first ones) and as an `f32`;
/// `None` if that is infinity.
pub(crate) fn at_least(value: f32, dtype: Dtype) -> Option<([u8; 4], f32)> {
    let two = |code: u32| {
        let [low, high, ..] = code.to_le_bytes();
        [low, high]
    };
    let (bytes, stored) = match dtype {
        Dtype::BF16 => {
            let bytes = two(value.to_bits().checked_add(0xFFFF)? >> 16);
            ([bytes[0], bytes[1], 0, 0], Brain::widen(bytes))
        }
        Dtype::F16 => {
            let code = if value.to_bits() < SMALLEST_NORMAL {
                (value * 16_777_216.0).ceil() as u32
            } else {
                (value.to_bits().checked_add(0x1FFF)? >> 13).checked_sub(112 << 10)?
            };
            let bytes = two(code.min(0x7C00));
            ([bytes[0], bytes[1], 0, 0], Half::widen(bytes))
        }
        _ => (value.to_le_bytes(), value),
    };
    stored.is_finite().then_some((bytes, stored))
}

/// A scale as it is stored: the first bytes are one number of this dtype.
#[inline(always)]
pub(crate) fn stored(bytes: &[u8], dtype: Dtype) -> f32 {
    match (dtype, bytes) {
        (Dtype::BF16, &[low, high, ..]) => Brain::widen([low, high]),
        (Dtype::F16, &[low, high, ..]) => Half::widen([low, high]),
        (_, &[a, b, c, d, ..]) => f32::from_le_bytes([a, b, c, d]),
        _ => f32::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a half without a sign, from its definition.
    fn half(code: u16) -> f64 {
        let (exponent, digits) = (i32::from(code >> 10), f64::from(code & 0x3FF));
        match exponent {
            0 => digits * 2_f64.powi(-24),
            31 if digits == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + digits) * 2_f64.powi(exponent - 25),
        }
    }

    #[test]
    fn every_half_is_read_as_what_it_is_and_written_as_it_was() {
        for code in 0..=0x7FFF_u16 {
            let value = Half::widen(code.to_le_bytes());
            assert!(f64::from(value) == half(code) || value.is_nan() && half(code).is_nan());
            let negative = Half::widen((code | 0x8000).to_le_bytes());
            assert_eq!(negative.to_bits(), value.to_bits() | 0x8000_0000);
            if !value.is_nan() {
                assert_eq!(Half::narrow(value), code.to_le_bytes());
                assert_eq!(Half::narrow(negative), (code | 0x8000).to_le_bytes());
            }
        }
        assert!(Half::widen(Half::narrow(f32::NAN)).is_nan());
    }

    #[test]
    fn halves_are_rounded_to_nearest_with_ties_to_even() {
        for code in 0..0x7BFF_u16 {
            let middle = (half(code) + half(code + 1)) / 2.0;
            let even = code + (code & 1);
            let middle = middle as f32;
            assert_eq!(Half::narrow(middle), even.to_le_bytes(), "{code:x}");
            assert_eq!(Half::narrow(middle.next_down()), code.to_le_bytes());
            assert_eq!(Half::narrow(middle.next_up()), (code + 1).to_le_bytes());
        }
        assert_eq!(Half::narrow(65_519.996), 0x7BFF_u16.to_le_bytes());
        assert_eq!(Half::narrow(65_520.0), 0x7C00_u16.to_le_bytes());
        assert_eq!(Half::narrow(f32::NEG_INFINITY), 0xFC00_u16.to_le_bytes());
    }

    #[test]
    fn brain_floats_are_rounded_to_nearest_with_ties_to_even() {
        for (bits, code) in [
            (0x3F80_7FFF, 0x3F80),
            (0x3F80_8000, 0x3F80),
            (0x3F80_8001, 0x3F81),
            (0x3F81_8000, 0x3F82),
            (0x7F7F_FFFF, 0x7F80),
            (0xBF81_8000, 0xBF82),
            (0x0000_8001, 0x0001),
        ] {
            let code: u16 = code;
            assert_eq!(Brain::narrow(f32::from_bits(bits)), code.to_le_bytes());
        }
        assert!(Brain::widen(Brain::narrow(f32::from_bits(0x7F80_0001))).is_nan());
    }

    #[test]
    fn scales_are_rounded_up_to_the_next_number_of_their_dtype() {
        for code in 1..0x7C00_u16 {
            let value = half(code) as f32;
            let exact = at_least(value, Dtype::F16).unwrap();
            assert_eq!((&exact.0[..2], exact.1), (&code.to_le_bytes()[..], value));
            let up = at_least(value.next_up(), Dtype::F16);
            if code == 0x7BFF {
                assert_eq!(up, None);
            } else {
                assert_eq!(up.unwrap().1, half(code + 1) as f32);
            }
        }
        assert_eq!(
            at_least(f32::MIN_POSITIVE, Dtype::F16).unwrap().1,
            half(1) as f32
        );
        assert_eq!(at_least(f32::MAX, Dtype::F16), None);
        let (bytes, value) = at_least(f32::from_bits(0x3F80_0001), Dtype::BF16).unwrap();
        assert_eq!((bytes, value.to_bits()), ([0x81, 0x3F, 0, 0], 0x3F81_0000));
        assert_eq!(at_least(1.0, Dtype::BF16).unwrap().1, 1.0);
        assert_eq!(at_least(0.1, Dtype::F32).unwrap().1, 0.1);
    }
}
