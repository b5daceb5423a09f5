//! Codings: from a number and the scale of its block to a code, and back; codes to bytes.

use super::element::Element;

/// Elements that are worked on as one array, so that the compiler makes vectors of them.
const LANES: usize = 32;

/// The values of NF4's codes: quantiles of a normal distribution, as T. Dettmers and others have published them
/// (*QLoRA: efficient finetuning of quantized LLMs*, 2023, appendix E) and bitsandbytes has them.
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Halfway between two neighbouring values; a number there gets the lower code.
const BETWEEN: [f32; 15] = {
    let mut between = [0.0; 15];
    let mut code = 0;
    while code < 15 {
        between[code] = (NF4[code] + NF4[code + 1]) / 2.0;
        code += 1;
    }
    between
};

/// What bitsandbytes divides by if the largest magnitude is less. A subnormal number.
const NF4_FLOOR: f32 = 1e-38;

/// How numbers become codes of a byte each.
pub(crate) trait Coding: Copy + Send + Sync {
    /// The scale of a block with this largest magnitude, before it is rounded to what it is stored in.
    fn scale(self, absmax: f32, is_short: bool) -> f32;

    /// The codes of elements of one block with this scale, as it is stored.
    fn encode<const N: usize, E: Element<N>>(
        self,
        elements: &[[u8; N]],
        scale: f32,
        is_short: bool,
        codes: &mut [u8],
    );

    /// The code that fills half a byte that is left over: that of zero.
    const SPARE: u8;

    /// Two codes of four bits as a byte. The first one is in the low half of the word, here and in `split`: words,
    /// because the compiler makes no vectors of arrays of pairs.
    fn join(self, pair: u16) -> u8;

    /// The codes of four bits in a byte.
    fn split(self, byte: u8) -> u16;

    /// The elements that codes of one block stand for.
    fn decode<const N: usize, E: Element<N>>(
        self,
        codes: &[u8],
        scale: f32,
        elements: &mut [[u8; N]],
    );
}

/// Multiples of the scale, up to a limit on both sides.
#[derive(Clone, Copy)]
pub(crate) struct Symmetric {
    pub(crate) limit: f32,
}

impl Coding for Symmetric {
    const SPARE: u8 = 0;

    #[inline(always)]
    fn scale(self, absmax: f32, _: bool) -> f32 {
        // Not subnormal: such a scale has few digits, and some processors take it for zero.
        (absmax / self.limit).max(f32::MIN_POSITIVE)
    }

    #[inline(always)]
    fn encode<const N: usize, E: Element<N>>(
        self,
        elements: &[[u8; N]],
        scale: f32,
        _: bool,
        codes: &mut [u8],
    ) {
        each(elements, codes, |&element, code| {
            *code = half_away(E::widen(element) / scale, self.limit) as u8;
        });
    }

    #[inline(always)]
    fn join(self, pair: u16) -> u8 {
        (pair & 0x0F | pair >> 4 & 0xF0) as u8
    }

    #[inline(always)]
    fn split(self, byte: u8) -> u16 {
        let byte = u16::from(byte);
        // To and fro copies the sign of four bits into the eight.
        let signed = |code: u16| (code ^ 8).wrapping_sub(8) & 0xFF;
        signed(byte & 15) | signed(byte >> 4) << 8
    }

    #[inline(always)]
    fn decode<const N: usize, E: Element<N>>(
        self,
        codes: &[u8],
        scale: f32,
        elements: &mut [[u8; N]],
    ) {
        each(codes, elements, |&code, element| {
            *element = E::narrow(f32::from(code.cast_signed()) * scale);
        });
    }
}

/// To the nearest integer, ties away from zero, but no farther from zero than `limit`, which is 2²² at most.
///
/// `f32::round` has no instruction, and no vectors are made of casts to integers, because they saturate. Added to 2²³,
/// whose last digit is 1, a number is rounded with ties to even; those that went down are put right.
#[inline(always)]
fn half_away(value: f32, limit: f32) -> i32 {
    const UNIT: f32 = 8_388_608.0;
    let magnitude = if value.abs() < limit {
        value.abs()
    } else {
        limit
    };
    let rounded = magnitude + UNIT;
    let went_down = magnitude - (rounded - UNIT) == 0.5;
    let whole = (rounded.to_bits() & 0x7F_FFFF).cast_signed() + i32::from(went_down);
    let sign = value.to_bits().cast_signed() >> 31;
    (whole ^ sign) - sign
}

/// Places in a table of values between -1 and 1, times the scale.
#[derive(Clone, Copy)]
pub(crate) struct NormalFloat;

impl Coding for NormalFloat {
    const SPARE: u8 = 7;

    #[inline(always)]
    fn scale(self, absmax: f32, is_short: bool) -> f32 {
        if is_short {
            absmax.max(NF4_FLOOR)
        } else {
            absmax
        }
    }

    #[inline(always)]
    fn encode<const N: usize, E: Element<N>>(
        self,
        elements: &[[u8; N]],
        scale: f32,
        is_short: bool,
        codes: &mut [u8],
    ) {
        let scale = scale.max(NF4_FLOOR);
        // bitsandbytes divides in the last block if it is short, and multiplies in all others.
        if is_short {
            each(elements, codes, |&element, code| {
                *code = place(E::widen(element) / scale)
            });
        } else {
            let inverse = 1.0 / scale;
            each(elements, codes, |&element, code| {
                *code = place(E::widen(element) * inverse)
            });
        }
    }

    #[inline(always)]
    fn join(self, pair: u16) -> u8 {
        (pair << 4 | pair >> 8) as u8
    }

    #[inline(always)]
    fn split(self, byte: u8) -> u16 {
        let byte = u16::from(byte);
        byte >> 4 | (byte & 15) << 8
    }

    #[inline(always)]
    fn decode<const N: usize, E: Element<N>>(
        self,
        codes: &[u8],
        scale: f32,
        elements: &mut [[u8; N]],
    ) {
        let table = NF4.map(|value| E::narrow(value * scale));
        each(codes, elements, |&code, element| {
            *element = table[usize::from(code & 15)]
        });
    }
}

/// The code whose value is nearest.
#[inline(always)]
fn place(value: f32) -> u8 {
    let mut code = 0_u32;
    for bound in BETWEEN {
        code += u32::from(value > bound);
    }
    code as u8
}

/// Calls `f` with each pair of two slices of one length, in arrays as far as they reach.
#[inline(always)]
fn each<A, B>(from: &[A], to: &mut [B], f: impl Fn(&A, &mut B)) {
    for (from, to) in from.iter().zip(to) {
        f(from, to);
    }
}

/// The bits of the largest magnitude; those of infinity or more if not all are finite.
#[inline(always)]
pub(crate) fn magnitude<const N: usize, E: Element<N>>(elements: &[[u8; N]]) -> u32 {
    // Signed, because the oldest vectors have no comparison of unsigned ones.
    let bits = |&element: &[u8; N]| (E::widen(element).to_bits() & 0x7FFF_FFFF).cast_signed();
    let (chunks, rest) = elements.as_chunks::<LANES>();
    let mut most = [0_i32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            most[lane] = most[lane].max(bits(&chunk[lane]));
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            most[lane] = most[lane].max(most[lane + half]);
        }
        half /= 2;
    }
    let most = rest.iter().map(bits).fold(most[0], i32::max);
    most.cast_unsigned()
}

/// Two codes in each byte. Every lane begins with a new one.
#[inline(always)]
pub(crate) fn pack<C: Coding>(coding: C, codes: &[u8], lane: usize, bytes: &mut [u8]) {
    for (codes, bytes) in codes.chunks(lane).zip(bytes.chunks_mut(lane.div_ceil(2))) {
        let (pairs, odd) = codes.as_chunks::<2>();
        let (whole, half) = bytes.split_at_mut(pairs.len());
        each(pairs, whole, |&pair, byte| {
            *byte = coding.join(u16::from_le_bytes(pair))
        });
        if let ([odd], [half]) = (odd, half) {
            *half = coding.join(u16::from_le_bytes([*odd, C::SPARE]));
        }
    }
}

/// The reverse of [`pack`].
#[inline(always)]
pub(crate) fn unpack<C: Coding>(coding: C, bytes: &[u8], lane: usize, codes: &mut [u8]) {
    for (codes, bytes) in codes.chunks_mut(lane).zip(bytes.chunks(lane.div_ceil(2))) {
        let (pairs, odd) = codes.as_chunks_mut::<2>();
        let (whole, half) = bytes.split_at(pairs.len());
        each(whole, pairs, |&byte, pair| {
            *pair = coding.split(byte).to_le_bytes()
        });
        if let ([odd], &[half]) = (odd, half) {
            [*odd, _] = coding.split(half).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_the_standard_library_around_every_tie() {
        for half in -260..=260_i16 {
            let tie = f32::from(half) / 2.0;
            for value in [tie.next_down(), tie, tie.next_up()] {
                assert_eq!(half_away(value, 500.0), value.round() as i32, "{value}");
            }
        }
        for far in [7.0, 7.5, 8.0, 1e9, 1e30, f32::INFINITY] {
            assert_eq!((half_away(far, 7.0), half_away(-far, 7.0)), (7, -7));
        }
    }

    #[test]
    fn each_value_of_the_table_has_its_place_and_ties_go_down() {
        for (code, value) in NF4.into_iter().enumerate() {
            assert_eq!(usize::from(place(value)), code);
        }
        for (code, tie) in BETWEEN.into_iter().enumerate() {
            assert_eq!(usize::from(place(tie)), code);
            assert_eq!(usize::from(place(tie.next_up())), code + 1);
        }
        assert_eq!((place(f32::MIN), place(f32::MAX)), (0, 15));
    }
}
