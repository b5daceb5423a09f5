//! Threads, cancellation, progress, and the floating-point environment.

use std::sync::atomic::{AtomicBool, Ordering};

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Fans, Fill, Init, Nonlinearity, Plan, Target, fill};

use super::support::{key, standard_normal};

/// LaurentMazare/tch-rs#263, pytorch/pytorch#3794, #4777, #53983: threads that change values.
#[test]
fn one_to_sixteen_threads_give_the_same_bits() {
    for init in [
        standard_normal(),
        Init::trunc_normal(0.0, 1.0, -2.0, 2.0).unwrap(),
        Init::constant(lazyparam_bytes::fill::Number::Float(0.1)),
    ] {
        let plan = Plan::new(&init, &key(1), &[777, 701], Dtype::F32).unwrap();
        let alone = fill(&plan, 1).unwrap();
        for threads in 2..=16 {
            let together = fill(&plan, threads).unwrap();
            assert!(together.as_slice() == alone.as_slice(), "{threads}");
        }
    }
}

#[test]
fn many_fills_share_the_threads_that_step_through_them() {
    let plans: Vec<Plan> = (0..20)
        .map(|number| {
            let shape = [1 + 40_000 * (number % 4), 3];
            Plan::new(
                &standard_normal(),
                &key(number as u128),
                &shape,
                Dtype::BF16,
            )
            .unwrap()
        })
        .collect();
    let mut buffers: Vec<Vec<u8>> = plans.iter().map(|plan| vec![0; plan.bytes()]).collect();
    let fills: Vec<Fill<'_>> = plans
        .iter()
        .zip(&mut buffers)
        .map(|(plan, bytes)| Fill::new(plan, Target::contiguous(bytes)).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| fills.iter().for_each(Fill::run));
        }
    });
    assert!(fills.iter().all(Fill::is_done));
    drop(fills);
    for (plan, bytes) in plans.iter().zip(&buffers) {
        assert!(fill(plan, 1).unwrap().as_slice() == bytes);
    }
}

#[test]
fn progress_counts_bytes_and_ends_at_all_of_them() {
    let plan = Plan::new(&standard_normal(), &key(2), &[300_000], Dtype::F64).unwrap();
    let mut bytes = vec![0; plan.bytes()];
    let fill = Fill::new(&plan, Target::contiguous(&mut bytes)).unwrap();
    let mut before = 0;
    assert_eq!(fill.done(), 0);
    while fill.step() {
        assert!(fill.done() > before);
        before = fill.done();
    }
    assert_eq!(fill.done(), plan.bytes());
    assert!(fill.is_done());
    assert!(!fill.step());
}

#[test]
fn a_cancelled_fill_stops_after_the_chunks_in_progress() {
    let plan = Plan::new(&standard_normal(), &key(3), &[1 << 22], Dtype::F32).unwrap();
    let mut bytes = vec![0; plan.bytes()];
    let fill = Fill::new(&plan, Target::contiguous(&mut bytes)).unwrap();
    let started = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            fill.step();
            started.store(true, Ordering::Release);
            fill.run();
        });
        while !started.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        fill.cancel();
    });
    assert!(fill.is_cancelled());
    assert!(!fill.step());
    assert!(fill.done() > 0);
    if !fill.is_done() {
        assert!(fill.done() < fill.bytes());
    }
}

/// The control register, and values that other libraries leave in it: flush subnormals, round another way.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod control {
    use std::arch::asm;

    pub(super) const ALTERED: [u32; 6] = [0x9FC0, 0x1F80, 0x3F80, 0x5F80, 0x7F80, 0xFFC0];
    /// Flags of what happened are not part of how to compute.
    pub(super) const HOW: u32 = !0x3F;

    pub(super) fn get() -> u32 {
        let mut control = 0_u32;
        // SAFETY: stores four bytes to the address of a variable.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut control) };
        control
    }

    pub(super) fn set(control: u32) {
        // SAFETY: sets no reserved bit; the default is put back before the test goes on.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const control) };
    }
}

#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod control {
    use std::arch::asm;

    pub(super) const ALTERED: [u64; 5] = [1 << 24, 1 << 22, 2 << 22, 3 << 22, 5 << 22];
    pub(super) const HOW: u64 = u64::MAX;

    pub(super) fn get() -> u64 {
        let control;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, fpcr", out(reg) control) };
        control
    }

    pub(super) fn set(control: u64) {
        // SAFETY: sets no reserved bit; the default is put back before the test goes on.
        unsafe { asm!("msr fpcr, {}", in(reg) control) };
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn the_floating_point_environment_of_the_caller_changes_no_bits_and_is_put_back() {
    // Subnormal results, constants of a truncated law, a scale from fans, the sums of an orthogonal matrix.
    let inits = [
        (Init::normal(0.0, 1e-39).unwrap(), Dtype::F32),
        (Init::normal(1.0, 1e-7).unwrap(), Dtype::F16),
        (Init::uniform(-1e-40, 1e-40).unwrap(), Dtype::BF16),
        (Init::trunc_normal(0.1, 0.3, -0.2, 0.7).unwrap(), Dtype::F64),
        (Init::lecun_normal(Fans::default()).unwrap(), Dtype::F64),
        (Init::orthogonal(0.3, None).unwrap(), Dtype::F32),
    ];
    for (init, dtype) in inits {
        let draw = || {
            let gain = Nonlinearity::LeakyRelu(0.3).gain();
            let plan = Plan::new(&init, &key(4), &[60, 70], dtype).unwrap();
            (gain, fill(&plan, 1).unwrap().as_slice().to_vec())
        };
        let default = draw();
        let before = control::get();
        for altered in control::ALTERED {
            control::set(altered);
            let drawn = draw();
            let after = control::get();
            control::set(before);
            assert_eq!(after & control::HOW, altered & control::HOW);
            assert!(drawn == default, "{init:?} {altered:x}");
        }
    }
}
