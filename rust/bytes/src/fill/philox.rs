//! Philox4x32-10: random words as a function of a counter and a key.
//!
//! J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, *Parallel random numbers: as easy as 1, 2, 3*,
//! SC 2011. A block of four words depends on nothing but its 128-bit counter and its 64-bit key, so any
//! element of any tensor can be drawn alone.

use super::key::Id;
use super::simd::Simd;

/// What the first and third word of the counter are multiplied by in each round.
pub(crate) const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What is added to the key after each round: the golden ratio and √3 − 1.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Rounds in the full function.
const ROUNDS: u32 = 10;

/// Elements in a group: sixteen blocks of four words. A group is drawn as a whole.
pub(crate) const GROUP: usize = 64;
/// Blocks in a group. Word `w` of block `b` belongs to element `16 w + b`.
pub(crate) const BLOCKS: usize = 16;

/// The key after this many rounds.
#[inline(always)]
pub(crate) fn bumped(key: [u32; 2], rounds: u32) -> [u32; 2] {
    [
        key[0].wrapping_add(WEYL[0].wrapping_mul(rounds)),
        key[1].wrapping_add(WEYL[1].wrapping_mul(rounds)),
    ]
}

/// One block, the plain way.
pub fn block(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    for round in 0..ROUNDS {
        let [k0, k1] = bumped(key, round);
        let (high0, low0) = mul_wide(c0, MULTIPLIERS[0]);
        let (high1, low1) = mul_wide(c2, MULTIPLIERS[1]);
        [c0, c1, c2, c3] = [high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0];
    }
    [c0, c1, c2, c3]
}

#[inline(always)]
fn mul_wide(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

/// The second stream of an [`Id`], for the low halves of 64-bit words.
#[inline(always)]
pub(crate) fn low_half(id: Id) -> Id {
    let Id([k0, k1, c2, c3]) = id;
    Id([k0, k1, c2, c3 ^ 0x8000_0000])
}

/// Consecutive blocks from `first` on, one in each lane. They share the high word of their number:
/// `first` is a multiple of the lanes.
///
/// Three of the four counter words are the same in all lanes, so that half of each of the first two
/// rounds is arithmetic on single numbers.
#[inline(always)]
pub(crate) fn consecutive<S: Simd>(s: S, id: Id, first: u64) -> [S::U; 4] {
    let Id([k0, k1, c2, c3]) = id;
    let key = [k0, k1];
    let c0 = s.u(first as u32) + s.lane_numbers();
    let c1 = (first >> 32) as u32;
    // Round one: only the first word differs between lanes.
    let (high0, low0) = s.mul_wide(c0, MULTIPLIERS[0]);
    let (high1, low1) = mul_wide(c2, MULTIPLIERS[1]);
    let (c0, c1) = (high1 ^ c1 ^ key[0], low1);
    let (c2, c3) = (high0 ^ s.u(c3 ^ key[1]), low0);
    // Round two: now the first two words are the same in all lanes.
    let key = bumped(key, 1);
    let (high0, low0) = mul_wide(c0, MULTIPLIERS[0]);
    let (high1, low1) = s.mul_wide(c2, MULTIPLIERS[1]);
    let state = [
        high1 ^ s.u(c1 ^ key[0]),
        low1,
        c3 ^ s.u(high0 ^ key[1]),
        s.u(low0),
    ];
    s.philox(state, bumped(key, 1), ROUNDS - 2)
}

/// The blocks with these numbers, given as low and high words, one in each lane.
#[inline(always)]
pub(crate) fn scattered<S: Simd>(s: S, id: Id, low: S::U, high: S::U) -> [S::U; 4] {
    let Id([k0, k1, c2, c3]) = id;
    s.philox([low, high, s.u(c2), s.u(c3)], [k0, k1], ROUNDS)
}
