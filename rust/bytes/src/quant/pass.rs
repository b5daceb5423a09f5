//! Passes over a tensor: the largest magnitudes of blocks, codes and scales from elements, elements from codes.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::coding::{self, Coding, NormalFloat, Symmetric};
use super::crew::{Crew, Outcome};
use super::element::{self, Brain, Double, Element, Half, Single};
use super::error::QuantError;
use super::plan::Plan;
use super::scheme::Code;
use crate::dtype::Dtype;
use crate::fill::{Isa, Simd, Task, at_default};

/// Quantises `elements` into `values` and `scales`; all are in C order, at any address.
///
/// With `absmax`, that is what counts as the largest magnitude of each block, and what is beyond is clipped.
/// An error leaves what was written so far.
pub fn quantize(
    plan: &Plan,
    elements: &[u8],
    absmax: Option<&[f32]>,
    values: &mut [u8],
    scales: &mut [u8],
    crew: Crew<'_>,
) -> Result<(), QuantError> {
    Plan::check("elements", plan.elements_len(), elements.len())?;
    Plan::check("values", plan.values_len(), values.len())?;
    Plan::check("scales", plan.scales_len(), scales.len())?;
    let outcome = match (absmax, plan.whole_blocks()) {
        (None, Some((blocks, runs))) => at_once(plan, elements, blocks, runs, values, scales, crew),
        _ => {
            let measured = self::absmax(plan, elements, crew)?;
            let absmax = absmax.unwrap_or(&measured);
            Plan::check("largest magnitudes", plan.blocks * 4, absmax.len() * 4)?;
            let factors = factors(plan, 0, absmax, scales)?;
            in_pieces(plan, elements, &factors, values, crew)
        }
    };
    settle(plan, elements, outcome)
}

/// The largest magnitude of each block, in the order of the scales.
pub fn absmax(plan: &Plan, elements: &[u8], crew: Crew<'_>) -> Result<Vec<f32>, QuantError> {
    Plan::check("elements", plan.elements_len(), elements.len())?;
    let most: Vec<AtomicU32> = (0..plan.blocks).map(|_| AtomicU32::new(0)).collect();
    let outcome = crew.share(plan.pieces(), plan.whole_bytes(), |run| {
        let mut is_finite = true;
        compute(
            plan,
            Measure {
                plan,
                elements: part(plan, elements, &run),
                run,
                found: |block: usize, bits: u32| {
                    is_finite &= bits < f32::INFINITY.to_bits();
                    // Mostly there is nothing to write, and then other threads keep what they have of it.
                    if bits > most[block].load(Ordering::Relaxed) {
                        most[block].fetch_max(bits, Ordering::Relaxed);
                    }
                },
            },
        );
        is_finite
    });
    settle(plan, elements, outcome)?;
    Ok(most
        .into_iter()
        .map(|bits| f32::from_bits(bits.into_inner()))
        .collect())
}

/// The elements that `values` and `scales` stand for, in the dtype of the plan: computed in `f32`, rounded once.
pub fn dequantize(
    plan: &Plan,
    values: &[u8],
    scales: &[u8],
    elements: &mut [u8],
    crew: Crew<'_>,
) -> Result<(), QuantError> {
    Plan::check("values", plan.values_len(), values.len())?;
    Plan::check("scales", plan.scales_len(), scales.len())?;
    Plan::check("elements", plan.elements_len(), elements.len())?;
    let (mut values, mut elements) = (values, elements);
    let size = plan.dtype.size();
    let jobs = plan.whole_bytes().map(move |run| {
        let (bytes, rest) = values.split_at(plan.packed_len(&run));
        values = rest;
        (bytes, take(&mut elements, run.len() * size), run)
    });
    let outcome = crew.share(plan.pieces(), jobs, |(bytes, elements, run)| {
        compute(
            plan,
            Decode {
                plan,
                bytes,
                scales,
                run,
                elements,
            },
        );
        true
    });
    settle(plan, &[], outcome)
}

/// Runs of whole blocks, each measured and encoded while it is in the cache.
fn at_once(
    plan: &Plan,
    elements: &[u8],
    blocks: usize,
    runs: impl Iterator<Item = Range<usize>> + Send,
    values: &mut [u8],
    scales: &mut [u8],
    crew: Crew<'_>,
) -> Outcome {
    let (mut values, mut scales) = (values, scales);
    let mut first_block = 0;
    let jobs = runs.map(|run| {
        let blocks = blocks.min(plan.blocks - first_block);
        let job = (
            first_block,
            take(&mut values, plan.packed_len(&run)),
            take(&mut scales, blocks * plan.scheme.scale.size()),
            run,
        );
        first_block += blocks;
        job
    });
    crew.share(plan.pieces(), jobs, |(first_block, values, scales, run)| {
        let elements = part(plan, elements, &run);
        let mut most = vec![0; scales.len() / plan.scheme.scale.size()];
        let mut seen = 0;
        compute(
            plan,
            Measure {
                plan,
                elements,
                run: run.clone(),
                found: |block: usize, bits: u32| {
                    let most: &mut u32 = &mut most[block - first_block];
                    *most = bits.max(*most);
                    seen = bits.max(seen);
                },
            },
        );
        if seen >= f32::INFINITY.to_bits() {
            return false;
        }
        let most: Vec<f32> = most.into_iter().map(f32::from_bits).collect();
        let Ok(factors) = factors(plan, first_block, &most, scales) else {
            return false;
        };
        compute(
            plan,
            Encode {
                plan,
                elements,
                run,
                first_block,
                factors: &factors,
                values,
            },
        );
        true
    })
}

/// Runs of any length, their blocks measured before.
fn in_pieces(
    plan: &Plan,
    elements: &[u8],
    factors: &[f32],
    values: &mut [u8],
    crew: Crew<'_>,
) -> Outcome {
    let mut values = values;
    let jobs = plan
        .whole_bytes()
        .map(|run| (take(&mut values, plan.packed_len(&run)), run));
    crew.share(plan.pieces(), jobs, |(values, run)| {
        compute(
            plan,
            Encode {
                plan,
                elements: part(plan, elements, &run),
                run,
                first_block: 0,
                factors,
                values,
            },
        );
        true
    })
}

/// The scales of blocks from the first one on, written as they are stored, and as numbers.
fn factors(
    plan: &Plan,
    first_block: usize,
    absmax: &[f32],
    scales: &mut [u8],
) -> Result<Vec<f32>, QuantError> {
    let dtype = plan.scheme.scale;
    let factor = |((block, &absmax), bytes): ((usize, &f32), &mut [u8])| {
        if !(absmax.is_finite() && absmax >= 0.0) {
            return Err(QuantError::Absmax {
                block,
                value: absmax,
            });
        }
        let scale = unrounded(plan, block, absmax);
        let (stored, factor) =
            element::at_least(scale, dtype).ok_or(QuantError::ScaleTooLarge {
                block,
                scale,
                dtype,
            })?;
        bytes.copy_from_slice(&stored[..bytes.len()]);
        Ok(factor)
    };
    let blocks = (first_block..)
        .zip(absmax)
        .zip(scales.chunks_mut(dtype.size()));
    at_default(|| blocks.map(factor).collect())
}

/// The scale of a block as its coding has it.
fn unrounded(plan: &Plan, block: usize, absmax: f32) -> f32 {
    let limit = plan.scheme.code.limit();
    match plan.scheme.code {
        Code::Nf4 => {
            let is_short = (block + 1) * plan.tiles.width() > plan.len;
            NormalFloat.scale(absmax, is_short)
        }
        Code::Q8S | Code::Q4S => Symmetric { limit }.scale(absmax, false),
    }
}

/// What an outcome means. Which element or scale is the first to be refused is looked for only now, in order, so that
/// it does not depend on threads.
fn settle(plan: &Plan, elements: &[u8], outcome: Outcome) -> Result<(), QuantError> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Stopped => Err(QuantError::Stopped),
        Outcome::Refused => Err(first_refused(plan, elements)),
    }
}

fn first_refused(plan: &Plan, elements: &[u8]) -> QuantError {
    for (at, bytes) in elements.chunks(plan.dtype.size()).enumerate() {
        let value = match *bytes {
            [a, b] if plan.dtype == Dtype::F16 => f64::from(Half::widen([a, b])),
            [a, b] => f64::from(Brain::widen([a, b])),
            [a, b, c, d] => f64::from(Single::widen([a, b, c, d])),
            _ => f64::from_le_bytes(bytes.try_into().unwrap_or_default()),
        };
        if !(value as f32).is_finite() {
            return QuantError::NotFinite {
                index: plan.index(at),
                value,
            };
        }
    }
    let measured = absmax(plan, elements, Crew::new(1)).unwrap_or_default();
    match factors(plan, 0, &measured, &mut vec![0; plan.scales_len()]) {
        Err(error) => error,
        // Somebody has written to the elements meanwhile.
        Ok(_) => QuantError::Stopped,
    }
}

/// The bytes of the elements of a run.
fn part<'a>(plan: &Plan, elements: &'a [u8], run: &Range<usize>) -> &'a [u8] {
    let size = plan.dtype.size();
    &elements[run.start * size..run.end * size]
}

/// Cuts the first `len` bytes off.
fn take<'a>(bytes: &mut &'a mut [u8], len: usize) -> &'a mut [u8] {
    bytes.split_off_mut(..len).unwrap_or_default()
}

/// Work on a run of elements, whatever their dtype and coding.
trait Pass {
    fn run<const N: usize, E: Element<N>, C: Coding>(self, coding: C);
}

/// Runs a pass compiled for the dtype and coding of the plan and for the fastest instruction set of the machine: the
/// compiler makes vectors of loops over arrays, and all of them give the same bits.
fn compute<P: Pass>(plan: &Plan, pass: P) {
    let limit = plan.scheme.code.limit();
    match plan.scheme.code {
        Code::Nf4 => by_dtype(plan.dtype, NormalFloat, pass),
        Code::Q8S | Code::Q4S => by_dtype(plan.dtype, Symmetric { limit }, pass),
    }
}

fn by_dtype<C: Coding, P: Pass>(dtype: Dtype, coding: C, pass: P) {
    match dtype {
        Dtype::F16 => vectorized::<2, Half, C, P>(coding, pass),
        Dtype::BF16 => vectorized::<2, Brain, C, P>(coding, pass),
        Dtype::F64 => vectorized::<8, Double, C, P>(coding, pass),
        _ => vectorized::<4, Single, C, P>(coding, pass),
    }
}

fn vectorized<const N: usize, E: Element<N>, C: Coding, P: Pass>(coding: C, pass: P) {
    struct Compiled<const N: usize, E, C, P>(C, P, PhantomData<E>);

    impl<const N: usize, E: Element<N>, C: Coding, P: Pass> Task for Compiled<N, E, C, P> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, _: S) {
            self.1.run::<N, E, C>(self.0);
        }
    }

    at_default(|| Isa::detect().run(Compiled::<N, E, C, P>(coding, pass, PhantomData)));
}

/// Tells the largest magnitude of each row of each block.
struct Measure<'a, F> {
    plan: &'a Plan,
    elements: &'a [u8],
    run: Range<usize>,
    found: F,
}

impl<F: FnMut(usize, u32)> Pass for Measure<'_, F> {
    #[inline(always)]
    fn run<const N: usize, E: Element<N>, C: Coding>(mut self, _: C) {
        let start = self.run.start;
        let elements = self.elements.as_chunks::<N>().0;
        for (block, part) in self.plan.tiles.walk(self.run) {
            let elements = &elements[part.start - start..part.end - start];
            (self.found)(block, coding::magnitude::<N, E>(elements));
        }
    }
}

/// Writes the codes of a run whose scales are there.
struct Encode<'a> {
    plan: &'a Plan,
    elements: &'a [u8],
    run: Range<usize>,
    first_block: usize,
    factors: &'a [f32],
    values: &'a mut [u8],
}

impl Pass for Encode<'_> {
    #[inline(always)]
    fn run<const N: usize, E: Element<N>, C: Coding>(self, coding: C) {
        let Self { plan, run, .. } = self;
        if plan.is_signed() {
            return encode::<N, E, C>(
                coding,
                plan,
                self.elements,
                run,
                self.first_block,
                self.factors,
                self.values,
            );
        }
        let mut codes = vec![0; run.len()];
        encode::<N, E, C>(
            coding,
            plan,
            self.elements,
            run,
            self.first_block,
            self.factors,
            &mut codes,
        );
        coding::pack(coding, &codes, plan.lane(), self.values);
    }
}

#[inline(always)]
fn encode<const N: usize, E: Element<N>, C: Coding>(
    coding: C,
    plan: &Plan,
    elements: &[u8],
    run: Range<usize>,
    first_block: usize,
    factors: &[f32],
    codes: &mut [u8],
) {
    let (start, width) = (run.start, plan.tiles.width());
    let elements = elements.as_chunks::<N>().0;
    for (block, part) in plan.tiles.walk(run) {
        let is_short = part.len() < width;
        let part = part.start - start..part.end - start;
        let factor = factors[block - first_block];
        coding.encode::<N, E>(&elements[part.clone()], factor, is_short, &mut codes[part]);
    }
}

/// Writes the elements that the codes of a run stand for.
struct Decode<'a> {
    plan: &'a Plan,
    bytes: &'a [u8],
    scales: &'a [u8],
    run: Range<usize>,
    elements: &'a mut [u8],
}

impl Pass for Decode<'_> {
    #[inline(always)]
    fn run<const N: usize, E: Element<N>, C: Coding>(self, coding: C) {
        let Self { plan, run, .. } = self;
        let mut unpacked = Vec::new();
        let codes = if plan.is_signed() {
            self.bytes
        } else {
            unpacked.resize(run.len(), 0);
            coding::unpack(coding, self.bytes, plan.lane(), &mut unpacked);
            &unpacked
        };
        let start = run.start;
        let elements = self.elements.as_chunks_mut::<N>().0;
        let (dtype, size) = (plan.scheme.scale, plan.scheme.scale.size());
        for (block, part) in plan.tiles.walk(run) {
            let part = part.start - start..part.end - start;
            let scale = element::stored(&self.scales[block * size..], dtype);
            coding.decode::<N, E>(&codes[part.clone()], scale, &mut elements[part]);
        }
    }
}
