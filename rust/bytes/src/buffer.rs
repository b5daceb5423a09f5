//! Memory for one tensor: owned, zeroed, aligned to 64 bytes, on big pages when it is large.
//!
//! Touching fresh memory page by page costs more than filling it. On Linux a buffer of a mebibyte or
//! more is therefore an anonymous map that starts on a 2 MiB boundary and asks for huge pages; smaller
//! ones, and all of them elsewhere, come from the allocator.
#![allow(unsafe_code)] // owns raw memory: it allocates, maps, frees and makes slices of it

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of every buffer: a cache line, and what XLA needs to alias host memory.
const ALIGN: usize = 64;

/// The memory for a tensor was refused by the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("There is no memory for another {bytes} bytes.")]
pub struct OutOfMemory {
    /// How many bytes were asked for.
    pub bytes: usize,
}

/// Owned bytes whose address is a multiple of 64.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    origin: Origin,
}

/// Where the memory came from, hence how it goes back.
#[derive(Debug)]
enum Origin {
    /// Zero bytes long: nothing to free.
    Nowhere,
    /// The allocator, with this layout.
    Heap(Layout),
    /// An anonymous map of this many bytes from `start`.
    #[cfg(target_os = "linux")]
    Map(usize),
}

// SAFETY: a buffer owns its bytes alone, as a `Box<[u8]>` does; its address is no thread's property.
unsafe impl Send for Buffer {}
// SAFETY: shared references give only `&[u8]`; writing needs `&mut self`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `len` zero bytes. Large ones do not touch their pages yet.
    pub fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        let refused = OutOfMemory { bytes: len };
        if len == 0 {
            return Ok(Self {
                start: dangling(),
                len,
                origin: Origin::Nowhere,
            });
        }
        // A slice may not be longer than this, whatever the system would grant.
        if isize::try_from(len).is_err() {
            return Err(refused);
        }
        #[cfg(target_os = "linux")]
        if len >= pages::MAP_FROM {
            return pages::map(len).ok_or(refused);
        }
        let layout = Layout::from_size_align(len, ALIGN).map_err(|_| refused)?;
        // SAFETY: the layout is not of size zero: that case returned above.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(refused)?;
        Ok(Self {
            start,
            len,
            origin: Origin::Heap(layout),
        })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, a multiple of 64 even when there are no bytes.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes (zeroed at birth) that live as long as
        // `self`, or is dangling but aligned with `len` 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.origin {
            Origin::Nowhere => {}
            // SAFETY: allocated in `zeroed` by the same allocator with this very layout.
            Origin::Heap(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            #[cfg(target_os = "linux")]
            Origin::Map(mapped) => pages::unmap(self.start.as_ptr(), mapped),
        }
    }
}

/// An aligned address for a buffer without bytes.
const fn dangling() -> NonNull<u8> {
    #[repr(align(64))]
    struct Aligned;
    const { assert!(align_of::<Aligned>() == ALIGN) };
    NonNull::<Aligned>::dangling().cast()
}

/// Anonymous maps on huge pages.
#[cfg(target_os = "linux")]
mod pages {
    use super::{Buffer, Origin};
    use std::ptr::{self, NonNull};

    /// From this length on, a map is worth its system calls.
    pub(super) const MAP_FROM: usize = 1 << 20;
    /// Size and alignment of a huge page on x86-64, and on ARM with 4 KiB base pages.
    const HUGE_PAGE: usize = 2 << 20;
    /// The end of a buffer gets a huge page of its own where that wastes no more than this: small pages take several
    /// times as long to make, for the same bytes.
    const SPARE: usize = 1 << 20;

    /// Maps `len` bytes from a huge-page boundary on; `None` when the system refuses.
    pub(super) fn map(len: usize) -> Option<Buffer> {
        let whole = len.checked_next_multiple_of(HUGE_PAGE)?;
        let mapped = if whole - len <= SPARE {
            whole
        } else {
            len.checked_next_multiple_of(page_size())?
        };
        // The kernel promises only page alignment: map a huge page too much and give the ends back.
        let reserved = mapped.checked_add(HUGE_PAGE)?;
        // SAFETY: a fresh anonymous map at an address of the kernel's choice touches nobody's memory.
        let raw = unsafe {
            libc::mmap(
                ptr::null_mut(),
                reserved,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if raw == libc::MAP_FAILED {
            return None;
        }
        let raw = raw.cast::<u8>();
        let before = raw.addr().next_multiple_of(HUGE_PAGE) - raw.addr();
        let after = HUGE_PAGE - before;
        // `wrapping_add` because the map is not a Rust allocation yet; both stay inside it.
        let start = raw.wrapping_add(before);
        unmap(raw, before);
        unmap(start.wrapping_add(mapped), after);
        // Only a hint: without huge pages the buffer works as well, a little slower.
        // SAFETY: the range is the rest of the map made above.
        unsafe { libc::madvise(start.cast(), mapped, libc::MADV_HUGEPAGE) };
        Some(Buffer {
            start: NonNull::new(start)?,
            len,
            origin: Origin::Map(mapped),
        })
    }

    /// Gives back a page-aligned range of a map that nothing refers to any more.
    pub(super) fn unmap(start: *mut u8, len: usize) {
        if len > 0 {
            // SAFETY: callers pass a range of a map of their own, once, and never use it again.
            unsafe { libc::munmap(start.cast(), len) };
        }
    }

    fn page_size() -> usize {
        // SAFETY: reads a constant of the system; the call has no preconditions.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).unwrap_or(4096)
    }
}
