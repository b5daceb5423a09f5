//! Codings: from a number and the scale of its block to a code, and back; codes to bytes.

use super::element::Element;
use super::scheme::Code;

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
        let limit = self.limit as i32;
        each(elements, codes, |&element, code| {
            let rounded = half_away(E::widen(element) / scale);
            *code = rounded.clamp(-limit, limit) as u8;
        });
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

/// To the nearest integer, ties away from zero, as `f32::round`, which has no instruction.
///
/// The number below ½ is added: ½ itself would take what is just below a tie over it.
#[inline(always)]
fn half_away(value: f32) -> i32 {
    (value + 0.499_999_97_f32.copysign(value)) as i32
}

/// Places in a table of values between -1 and 1, times the scale.
#[derive(Clone, Copy)]
pub(crate) struct NormalFloat;

impl Coding for NormalFloat {
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
    fn decode<const N: usize, E: Element<N>>(
        self,
        codes: &[u8],
        scale: f32,
        elements: &mut [[u8; N]],
    ) {
        each(codes, elements, |&code, element| {
            *element = E::narrow(NF4[usize::from(code & 15)] * scale);
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
    let (from, from_rest) = from.as_chunks::<LANES>();
    let (to, to_rest) = to.as_chunks_mut::<LANES>();
    for (from, to) in from.iter().zip(to) {
        for lane in 0..LANES {
            f(&from[lane], &mut to[lane]);
        }
    }
    for (from, to) in from_rest.iter().zip(to_rest) {
        f(from, to);
    }
}

/// The bits of the largest magnitude; those of infinity or more if not all are finite.
#[inline(always)]
pub(crate) fn magnitude<const N: usize, E: Element<N>>(elements: &[[u8; N]]) -> u32 {
    // Signed, because the oldest vectors have no comparison of unsigned ones.
    let bits = |&element: &[u8; N]| (E::widen(element).to_bits() & 0x7FFF_FFFF).cast_signed();
    let (chunks, rest) = elements.as_chunks::<LANES>();
    let mut most = [0; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            most[lane] = most[lane].max(bits(&chunk[lane]));
        }
    }
    let most = most.into_iter().chain(rest.iter().map(bits)).max();
    most.unwrap_or(0).cast_unsigned()
}

/// Two codes in each byte, if the code has four bits. Every lane begins with a new byte.
#[inline(always)]
pub(crate) fn pack(code: Code, codes: &[u8], lane: usize, bytes: &mut [u8]) {
    let put = |pair: [u8; 2]| match code {
        Code::Nf4 => pair[0] << 4 | pair[1],
        _ => pair[0] & 15 | pair[1] << 4,
    };
    // What half a byte is left over holds: zero, which is in the middle of NF4's table.
    let spare = if code == Code::Nf4 { 7 } else { 0 };
    for (codes, bytes) in codes.chunks(lane).zip(bytes.chunks_mut(lane.div_ceil(2))) {
        let (pairs, odd) = codes.as_chunks::<2>();
        let (whole, half) = bytes.split_at_mut(pairs.len());
        each(pairs, whole, |&pair, byte| *byte = put(pair));
        if let ([odd], [half]) = (odd, half) {
            *half = put([*odd, spare]);
        }
    }
}

/// The reverse of [`pack`].
#[inline(always)]
pub(crate) fn unpack(code: Code, bytes: &[u8], lane: usize, codes: &mut [u8]) {
    let get = |byte: u8| match code {
        Code::Nf4 => [byte >> 4, byte & 15],
        // Copies of the sign come in from the left.
        _ => [byte << 4, byte].map(|high| (high.cast_signed() >> 4).cast_unsigned()),
    };
    for (codes, bytes) in codes.chunks_mut(lane).zip(bytes.chunks(lane.div_ceil(2))) {
        let (pairs, odd) = codes.as_chunks_mut::<2>();
        let (whole, half) = bytes.split_at(pairs.len());
        each(whole, pairs, |&byte, pair| *pair = get(byte));
        if let ([odd], &[half]) = (odd, half) {
            *odd = get(half)[0];
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
                assert_eq!(half_away(value), value.round() as i32, "{value}");
            }
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
