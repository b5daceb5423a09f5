//! `Fill`: a plan and the memory it goes into, handed out in chunks to any number of threads.
#![allow(unsafe_code)] // hands disjoint parts of one slice to several threads

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::env::at_default;
use super::error::InitError;
use super::plan::Plan;
use super::region::Walk;
use super::simd::Isa;
use super::work::Work;
use crate::buffer::{Buffer, OutOfMemory};

/// Below this many elements, starting a thread costs more than it saves.
const INLINE: usize = 1 << 14;

/// Memory to be filled: bytes, and where in them each element of the box lies.
#[derive(Debug)]
pub struct Target<'a, 's> {
    bytes: &'a mut [u8],
    layout: Option<(usize, &'s [isize])>,
}

impl<'a, 's> Target<'a, 's> {
    /// A C-contiguous array, at any address.
    pub fn contiguous(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            layout: None,
        }
    }

    /// An array with any strides: the element at (i, j …) is the one number
    /// `offset + i · strides[0] + j · strides[1] …` of the bytes. Elements must not overlap.
    pub fn strided(bytes: &'a mut [u8], offset: usize, strides: &'s [isize]) -> Self {
        Self {
            bytes,
            layout: Some((offset, strides)),
        }
    }
}

/// A fill under way. Threads share it by reference and call [`Fill::step`] or [`Fill::run`]; others watch
/// [`Fill::done`] and may [`Fill::cancel`]. It starts no threads of its own unless asked to
/// ([`Fill::run_on`]), so a fork finds none.
#[derive(Debug)]
pub struct Fill<'a> {
    plan: &'a Plan,
    walk: Walk,
    work: Work,
    isa: Isa,
    memory: Memory<'a>,
    /// The next ticket; each is given out once.
    next: AtomicUsize,
    done: AtomicUsize,
    cancelled: AtomicBool,
}

impl<'a> Fill<'a> {
    /// Brings a plan and its target together, with the fastest instruction set of the machine.
    pub fn new(plan: &'a Plan, target: Target<'a, '_>) -> Result<Self, InitError> {
        Self::with_isa(plan, target, Isa::detect())
    }

    /// With this instruction set; where the machine lacks it, the portable code runs. The bits are the same.
    pub fn with_isa(plan: &'a Plan, target: Target<'a, '_>, isa: Isa) -> Result<Self, InitError> {
        let Target { bytes, layout } = target;
        let size = plan.dtype.size();
        let c_strides;
        let (offset, strides) = match layout {
            Some(layout) => layout,
            None if bytes.len() == plan.bytes() => {
                c_strides = plan.c_strides();
                (0, c_strides.as_slice())
            }
            None => {
                return Err(
                    InitError::new("the target has another length than the values")
                        .expecting(format!("{} bytes", plan.bytes()))
                        .finding(format!("{}", bytes.len())),
                );
            }
        };
        let offset = check_strides(plan.shape(), offset, strides, bytes.len() / size)?;
        Ok(Self::checked(plan, bytes, offset, strides, isa))
    }

    /// The strides have been checked.
    fn checked(
        plan: &'a Plan,
        bytes: &'a mut [u8],
        offset: isize,
        strides: &[isize],
        isa: Isa,
    ) -> Self {
        let walk = Walk::new(&plan.shape, &plan.batch_axes, &plan.region, offset, strides);
        Self {
            plan,
            work: Work::new(plan, &walk),
            walk,
            isa,
            memory: Memory::new(bytes),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
        }
    }

    /// Fills one chunk: a fraction of a millisecond for most. False when none is left or it was cancelled.
    pub fn step(&self) -> bool {
        if self.cancelled.load(Ordering::Relaxed) {
            return false;
        }
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        if ticket >= self.work.chunks() {
            // Stays where it is, however often somebody asks.
            self.next.fetch_min(self.work.chunks(), Ordering::Relaxed);
            return false;
        }
        // SAFETY: each ticket is given out once, different chunks have different elements of the box, and
        // different elements have different bytes (`check_strides`).
        let mut window = unsafe { self.memory.window() };
        let filled = at_default(|| {
            self.work
                .run(self.plan, &self.walk, self.isa, ticket, &mut window)
        });
        self.done
            .fetch_add(filled * self.plan.dtype.size(), Ordering::Release);
        true
    }

    /// How many chunks there are: more threads than that find nothing to do.
    pub fn chunks(&self) -> usize {
        self.work.chunks()
    }

    /// Fills chunks until none is left. Any number of threads may do so at once.
    pub fn run(&self) {
        while self.step() {}
    }

    /// Fills everything with this many threads, the calling one included; small fills use fewer.
    pub fn run_on(&self, threads: usize) {
        let helpers = if self.walk.len() < INLINE {
            0
        } else {
            threads.min(self.work.chunks()).saturating_sub(1)
        };
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|| self.run());
            }
            self.run();
        });
    }

    /// Bytes filled so far.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Acquire)
    }

    /// Bytes to fill.
    pub fn bytes(&self) -> usize {
        self.plan.bytes()
    }

    /// Whether everything has been filled.
    pub fn is_done(&self) -> bool {
        self.done() == self.bytes()
    }

    /// Makes every thread stop after its current chunk. The target is then partly filled.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// The values of a plan, in C order, computed by this many threads.
pub fn fill(plan: &Plan, threads: usize) -> Result<Buffer, OutOfMemory> {
    let mut buffer = Buffer::zeroed(plan.bytes())?;
    // Fresh memory is zero already.
    if !plan.is_zeros() {
        let strides = plan.c_strides();
        Fill::checked(plan, buffer.as_mut_slice(), 0, &strides, Isa::detect()).run_on(threads);
    }
    Ok(buffer)
}

/// Refuses strides that leave the target or put two elements into one place; gives the offset of the first
/// element.
///
/// Sorted by size, each stride has to step over everything that the smaller ones reach. That refuses a few
/// interleaved layouts that do not overlap; no array library makes them.
fn check_strides(
    shape: &[usize],
    offset: usize,
    strides: &[isize],
    room: usize,
) -> Result<isize, InitError> {
    let wrong = |problem: &str| {
        InitError::new(problem).finding(format!(
            "shape {shape:?}, strides {strides:?}, offset {offset}, {room} elements of room"
        ))
    };
    let outside = || wrong("the target does not hold all elements");
    if strides.len() != shape.len() {
        return Err(wrong("there is a stride for each dimension"));
    }
    let first = isize::try_from(offset).map_err(|_| outside())?;
    if shape.contains(&0) {
        return Ok(first);
    }
    let mut axes: Vec<(usize, usize)> = Vec::new();
    let (mut lowest, mut highest) = (first, first);
    for (&len, &stride) in shape.iter().zip(strides).filter(|(len, _)| **len > 1) {
        let reach = isize::try_from(len - 1)
            .ok()
            .and_then(|steps| steps.checked_mul(stride))
            .ok_or_else(outside)?;
        let end = if reach < 0 { &mut lowest } else { &mut highest };
        *end = end.checked_add(reach).ok_or_else(outside)?;
        axes.push((stride.unsigned_abs(), len));
    }
    if lowest < 0 || usize::try_from(highest).map_or(true, |highest| highest >= room) {
        return Err(outside());
    }
    axes.sort_unstable();
    let mut reached = 0;
    for (stride, len) in axes {
        if stride <= reached {
            return Err(wrong("elements of the target overlap"));
        }
        // No overflow: all of it lies within the target.
        reached += stride * (len - 1);
    }
    Ok(first)
}

/// A mutable slice that several threads write parts of.
#[derive(Debug)]
struct Memory<'a> {
    start: *mut u8,
    len: usize,
    borrowed: PhantomData<&'a mut [u8]>,
}

// SAFETY: the slice is borrowed for as long as this exists, and is reached through windows only, whose maker
// answers for their being disjoint.
unsafe impl Sync for Memory<'_> {}
// SAFETY: a mutable slice of bytes may be sent.
unsafe impl Send for Memory<'_> {}

impl<'a> Memory<'a> {
    fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            start: bytes.as_mut_ptr(),
            len: bytes.len(),
            borrowed: PhantomData,
        }
    }

    /// # Safety
    ///
    /// Through windows that exist at the same time, different bytes are reached.
    unsafe fn window(&self) -> Window<'_> {
        Window {
            start: self.start,
            len: self.len,
            borrowed: PhantomData,
        }
    }
}

/// One thread's view of the target.
pub(crate) struct Window<'m> {
    start: *mut u8,
    len: usize,
    borrowed: PhantomData<&'m mut [u8]>,
}

impl Window<'_> {
    /// The bytes of `len` elements of this size from element `offset` on.
    #[inline(always)]
    pub(crate) fn elements(&mut self, offset: isize, len: usize, size: usize) -> &mut [u8] {
        let (from, len) = (offset as usize * size, len * size);
        assert!(from <= self.len && len <= self.len - from);
        // SAFETY: the range lies within the slice that `Memory` borrows, and by the contract of
        // `Memory::window` nobody else reaches these bytes meanwhile; `&mut self` keeps this thread from
        // reaching them twice.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }
}
