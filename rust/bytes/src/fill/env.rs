//! The floating-point environment: round to nearest, keep subnormals, trap nothing.
//!
//! Other code may leave the control register in another state: `-ffast-math` libraries flush subnormals in
//! every thread that loads them. Fills set it, and put it back.
#![allow(unsafe_code)] // reads and writes a control register

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::asm;

/// Runs `f` in the default environment. It is put back afterwards, also when `f` panics.
pub(crate) fn at_default<R>(f: impl FnOnce() -> R) -> R {
    /// Not inlined, so that no operation of `f` moves out of the environment.
    #[inline(never)]
    fn call<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
    let _restored = Environment::default_from_here();
    call(f)
}

/// Restores a control register when it goes.
struct Environment {
    saved: Control,
}

impl Environment {
    fn default_from_here() -> Self {
        let saved = read();
        write(DEFAULT);
        Self { saved }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        write(self.saved);
    }
}

#[cfg(target_arch = "x86_64")]
type Control = u32;
/// All exceptions masked, round to nearest even, subnormals as they are.
#[cfg(target_arch = "x86_64")]
const DEFAULT: Control = 0x1F80;

/// `MXCSR`.
#[cfg(target_arch = "x86_64")]
fn read() -> Control {
    let mut control = 0_u32;
    // SAFETY: SSE is part of x86-64; the instruction stores four bytes to the given address.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack, preserves_flags)) };
    control
}

#[cfg(target_arch = "x86_64")]
fn write(control: Control) {
    // SAFETY: SSE is part of x86-64. The value is the default or was read from the register, so it sets no
    // reserved bit. Rust code expects the default, which `at_default` restores this thread to.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
type Control = u64;
/// Round to nearest even, subnormals as they are, no traps.
#[cfg(target_arch = "aarch64")]
const DEFAULT: Control = 0;

/// `FPCR`.
#[cfg(target_arch = "aarch64")]
fn read() -> Control {
    let control: u64;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("mrs {}, fpcr", out(reg) control, options(nomem, nostack, preserves_flags)) };
    control
}

#[cfg(target_arch = "aarch64")]
fn write(control: Control) {
    // SAFETY: the value is the default or was read from the register.
    unsafe { asm!("msr fpcr, {}", in(reg) control, options(nostack, preserves_flags)) };
}

/// Elsewhere the environment is taken as it is.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod elsewhere {
    pub(super) type Control = ();
    pub(super) const DEFAULT: Control = ();
    pub(super) fn read() -> Control {}
    pub(super) fn write((): Control) {}
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use elsewhere::{Control, DEFAULT, read, write};
