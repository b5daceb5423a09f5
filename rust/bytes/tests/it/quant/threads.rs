//! Threads, and work that nobody wants any more.

use std::cell::Cell;

use lazyparam_bytes::Dtype;
use lazyparam_bytes::quant::{Code, Crew, QuantError, absmax, dequantize, quantize};

use super::naive::Case;
use super::support::{case, dequantised, noise, plan, quantised};

#[test]
fn one_to_nine_threads_give_the_same_bits() {
    for (code, block) in [
        (Code::Q8S, None),
        (Code::Q8S, Some(&[32][..])),
        (Code::Q4S, Some(&[7, 3])),
        (Code::Q4S, None),
        (Code::Nf4, Some(&[64])),
    ] {
        let case = Case {
            bytes: noise(707 * 303, Dtype::F32),
            ..case(code, block, &[707, 303], &[])
        };
        let shape = if block == Some(&[32]) {
            vec![707 * 303 / 32, 32]
        } else {
            case.shape.clone()
        };
        let count: usize = shape.iter().product();
        let case = Case {
            bytes: case.bytes[..count * 4].to_vec(),
            shape,
            ..case
        };
        let alone = quantised(&case, 1).unwrap();
        let meant = dequantised(&case, &alone, Dtype::BF16, 1);
        for threads in 2..=9 {
            assert!(quantised(&case, threads).unwrap() == alone, "{threads}");
            assert!(
                dequantised(&case, &alone, Dtype::BF16, threads) == meant,
                "{threads}"
            );
        }
    }
}

#[test]
fn work_that_is_not_wanted_any_more_stops_soon() {
    let case = Case {
        bytes: noise(1 << 20, Dtype::F16),
        dtype: Dtype::F16,
        ..case(Code::Q8S, None, &[1 << 20], &[])
    };
    let plan = plan(&case).unwrap();
    let asked = Cell::new(0);
    let three_times = || {
        asked.set(asked.get() + 1);
        asked.get() < 3
    };
    let (mut values, mut scales) = (vec![0; plan.values_len()], vec![0; plan.scales_len()]);
    let crew = Crew::asking(2, &three_times);
    let ended = quantize(&plan, &case.bytes, None, &mut values, &mut scales, crew);
    assert_eq!(ended, Err(QuantError::Stopped));
    assert_eq!(asked.get(), 3);
    let never = || false;
    let crew = Crew::asking(1, &never);
    assert_eq!(absmax(&plan, &case.bytes, crew), Err(QuantError::Stopped));
    let mut elements = case.bytes.clone();
    let ended = dequantize(&plan, &values, &scales, &mut elements, crew);
    assert_eq!(ended, Err(QuantError::Stopped));
}

/// Libraries that are compiled for speed make processors flush subnormals in every thread that loads them.
#[cfg(target_arch = "x86_64")]
#[test]
#[allow(unsafe_code)]
fn the_floating_point_environment_of_the_caller_changes_no_bits() {
    use std::arch::asm;
    let set = |control: u32| {
        // SAFETY: sets no reserved bit; the default is put back before the test goes on.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const control) };
    };
    for code in [Code::Q8S, Code::Nf4] {
        let block = (code == Code::Nf4).then_some(&[32][..]);
        let case = Case {
            bytes: noise(999, Dtype::F16),
            dtype: Dtype::F16,
            scale: if code == Code::Nf4 {
                Dtype::F32
            } else {
                Dtype::F16
            },
            ..case(code, block, &[999], &[])
        };
        let expected = quantised(&case, 1).unwrap();
        let meant = dequantised(&case, &expected, Dtype::F16, 1);
        for altered in [0x9FC0, 0x3F80, 0x5F80, 0x7F80, 0xFFC0] {
            set(altered);
            let made = quantised(&case, 1);
            let again = dequantised(&case, &expected, Dtype::F16, 1);
            set(0x1F80);
            assert!(made.unwrap() == expected && again == meant, "{altered:x}");
        }
    }
}
