//! Constants, identity matrices and Dirac kernels.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Init, Layout, Number, Plan, fill};

use super::support::{f32s, key, whole};

fn ones_at(init: &Init, shape: &[usize]) -> Vec<Vec<usize>> {
    let numbers = f32s(&whole(init, &key(0), shape, Dtype::F32));
    numbers
        .iter()
        .enumerate()
        .filter(|(_, x)| **x != 0.0)
        .map(|(index, &x)| {
            assert_eq!(x, 1.0);
            let mut rest = index;
            let mut at: Vec<usize> = shape
                .iter()
                .rev()
                .map(|dim| {
                    let at = rest % dim;
                    rest /= dim;
                    at
                })
                .collect();
            at.reverse();
            at
        })
        .collect()
}

#[test]
fn an_identity_matrix_has_ones_on_its_diagonal() {
    for shape in [[1, 1], [4, 4], [3, 7], [7, 3], [300, 301]] {
        let expected: Vec<Vec<usize>> =
            (0..shape[0].min(shape[1])).map(|at| vec![at, at]).collect();
        assert_eq!(ones_at(&Init::eye(), &shape), expected);
    }
    assert!(Init::eye().check(&[3], Dtype::F32, &[]).is_err());
    assert!(Init::eye().check(&[3, 3, 3], Dtype::F32, &[]).is_err());
}

#[test]
fn a_dirac_kernel_passes_its_inputs_through() {
    let dirac =
        |layout: &str, groups| Init::dirac(Some(Layout::new(layout).unwrap()), groups).unwrap();
    assert_eq!(
        ones_at(&dirac("OIHW", 1), &[3, 2, 3, 5]),
        [vec![0, 0, 1, 2], vec![1, 1, 1, 2]]
    );
    assert_eq!(
        ones_at(&dirac("HWIO", 1), &[3, 4, 2, 3]),
        [vec![1, 2, 0, 0], vec![1, 2, 1, 1]]
    );
    // Each group passes its first inputs through.
    assert_eq!(
        ones_at(&dirac("OIW", 2), &[4, 2, 3]),
        [vec![0, 0, 1], vec![1, 1, 1], vec![2, 0, 1], vec![3, 1, 1]]
    );
    assert_eq!(
        ones_at(&dirac("WIO", 2), &[1, 2, 4]),
        [vec![0, 0, 0], vec![0, 0, 2], vec![0, 1, 1], vec![0, 1, 3]]
    );
    assert!(
        Init::dirac(None, 1)
            .unwrap()
            .check(&[3, 2, 3], Dtype::F32, &[])
            .is_err()
    );
    assert!(dirac("OIW", 3).check(&[4, 2, 3], Dtype::F32, &[]).is_err());
    assert!(Init::dirac(None, 0).is_err());
}

#[test]
fn constants_are_exact_in_every_dtype_that_has_them() {
    let bytes = |number: Number, dtype: Dtype| number.element(dtype).unwrap();
    assert_eq!(bytes(Number::Float(0.1), Dtype::F64), 0.1_f64.to_le_bytes());
    assert_eq!(bytes(Number::Float(0.1), Dtype::F32), 0.1_f32.to_le_bytes());
    assert_eq!(bytes(Number::Float(0.1), Dtype::BF16), [0xCD, 0x3D]);
    assert_eq!(bytes(Number::Float(0.1), Dtype::F16), [0x66, 0x2E]);
    assert_eq!(bytes(Number::Int(-2), Dtype::I16), [0xFE, 0xFF]);
    assert_eq!(bytes(Number::Int((1 << 64) - 1), Dtype::U64), [0xFF; 8]);
    assert_eq!(bytes(Number::Float(3.0), Dtype::U8), [3]);
    assert_eq!(bytes(Number::Bool(true), Dtype::F32), 1_f32.to_le_bytes());
    assert_eq!(bytes(Number::Int(1), Dtype::Bool), [1]);
    assert_eq!(
        bytes(Number::Complex(1.0, -2.0), Dtype::C64),
        [1_f32.to_le_bytes(), (-2_f32).to_le_bytes()].concat()
    );
    assert_eq!(
        bytes(Number::Float(f64::NEG_INFINITY), Dtype::F16),
        [0x00, 0xFC]
    );
    // 1, the largest value, minus zero and the smallest value, as the format's authors have them.
    for (dtype, one, largest, codes) in [
        (Dtype::F8E4M3, 0x38, 448.0, [0x7E, 0x80, 0x01]),
        (Dtype::F8E5M2, 0x3C, 57344.0, [0x7B, 0x80, 0x01]),
        (Dtype::F8E4M3Fnuz, 0x40, 240.0, [0x7F, 0x00, 0x01]),
        (Dtype::F8E5M2Fnuz, 0x40, 57344.0, [0x7F, 0x00, 0x01]),
        (Dtype::F6E2M3, 0x08, 7.5, [0x1F, 0x20, 0x01]),
        (Dtype::F6E3M2, 0x0C, 28.0, [0x1F, 0x20, 0x01]),
        (Dtype::F4, 0x02, 6.0, [0x07, 0x08, 0x01]),
    ] {
        let smallest = match dtype {
            Dtype::F8E4M3 => 2_f64.powi(-9),
            Dtype::F8E5M2 => 2_f64.powi(-16),
            Dtype::F8E4M3Fnuz => 2_f64.powi(-10),
            Dtype::F8E5M2Fnuz => 2_f64.powi(-17),
            Dtype::F6E2M3 => 0.125,
            Dtype::F6E3M2 => 0.0625,
            _ => 0.5,
        };
        assert_eq!(bytes(Number::Int(1), dtype), [one], "{dtype:?}");
        for (value, code) in [largest, -0.0, smallest].into_iter().zip(codes) {
            assert_eq!(
                bytes(Number::Float(value), dtype),
                [code],
                "{dtype:?} {value}"
            );
        }
        assert!(Number::Float(largest * 1.5).element(dtype).is_err());
    }
    assert_eq!(bytes(Number::Int(1), Dtype::F8E8M0), [127]);
    assert!(Number::Int(0).element(Dtype::F8E8M0).is_err());
}

#[test]
fn constants_that_a_dtype_does_not_have_are_refused() {
    for (number, dtype) in [
        (Number::Int(256), Dtype::U8),
        (Number::Int(-1), Dtype::U64),
        (Number::Int(128), Dtype::I8),
        (Number::Float(1.5), Dtype::I32),
        (Number::Float(f64::NAN), Dtype::I64),
        (Number::Float(1e300), Dtype::I64),
        (Number::Int(2), Dtype::Bool),
        (Number::Float(65520.0), Dtype::F16),
        (Number::Float(1e39), Dtype::F32),
        (Number::Complex(0.0, 1.0), Dtype::F64),
    ] {
        let error = Init::constant(number).check(&[2], dtype, &[]).unwrap_err();
        assert!(error.to_string().contains("does not fit"), "{error}");
    }
}

#[test]
fn every_dtype_can_be_filled_with_a_constant() {
    for dtype in Dtype::ALL {
        let plan = Plan::new(&Init::ones(), &key(0), &[1000, 3], dtype).unwrap();
        let buffer = fill(&plan, 2).unwrap();
        let one = Number::Int(1).element(dtype).unwrap();
        assert!(
            buffer
                .as_slice()
                .chunks_exact(dtype.size())
                .all(|element| element == one)
        );
    }
}
