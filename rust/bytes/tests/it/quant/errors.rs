//! What is refused, and in which words.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::quant::{Code, Crew, Plan, QuantError, Scheme, dequantize, quantize};

use super::naive::Case;
use super::support::{case, plan, quantised};

fn scheme(code: Code, block: Option<&[usize]>, scale: Dtype) -> Result<Scheme, QuantError> {
    Scheme::new(code, block.map(<[usize]>::to_vec), scale)
}

fn planned(block: Option<&[usize]>, shape: &[usize]) -> Result<Plan, QuantError> {
    Plan::new(&scheme(Code::Q8S, block, Dtype::F32)?, shape, Dtype::F32)
}

#[test]
fn the_first_number_that_is_not_finite_is_told_with_its_place_whatever_the_threads() {
    for code in [Code::Q8S, Code::Q4S, Code::Nf4] {
        for block in [None, Some(&[64][..])] {
            if code == Code::Nf4 && block.is_none() {
                continue;
            }
            let mut numbers = vec![1.0; 640 * 640];
            numbers[640 * 600 + 7] = f32::NAN;
            numbers[640 * 100 + 3] = f32::NEG_INFINITY;
            numbers[640 * 639 + 639] = f32::INFINITY;
            for threads in [1, 3] {
                let error = quantised(&case(code, block, &[640, 640], &numbers), threads);
                assert_eq!(
                    error.unwrap_err().to_string(),
                    concat!(
                        "not every element is finite: expected numbers that float32 has, ",
                        "found -inf at (100, 3). Find out where it comes from: one such number would ",
                        "spoil its block."
                    )
                );
            }
        }
    }
}

#[test]
fn each_width_of_nan_and_infinity_is_found() {
    let cases = [
        (Dtype::F16, vec![0, 0, 1, 0x7C], "NaN"),
        (Dtype::F16, vec![0, 0, 0, 0xFC], "-inf"),
        (Dtype::BF16, vec![0, 0, 0x80, 0x7F], "inf"),
        (
            Dtype::F64,
            [0.0_f64.to_le_bytes(), f64::NAN.to_le_bytes()].concat(),
            "NaN",
        ),
        (
            Dtype::F64,
            [0.0_f64.to_le_bytes(), 1e300_f64.to_le_bytes()].concat(),
            "1e300",
        ),
    ];
    for (dtype, bytes, found) in cases {
        let case = Case {
            dtype,
            bytes,
            ..case(Code::Q8S, None, &[2], &[])
        };
        let text = quantised(&case, 1).unwrap_err().to_string();
        assert!(text.contains(&format!("found {found} at (1,)")), "{text}");
    }
}

#[test]
fn blocks_that_do_not_divide_the_shape_are_refused() {
    for (block, shape) in [
        (&[32][..], &[65][..]),
        (&[2, 3], &[3, 3]),
        (&[2, 2], &[4]),
        (&[1], &[]),
        (&[3], &[0, 4]),
    ] {
        let error = planned(Some(block), shape).unwrap_err();
        assert!(matches!(error, QuantError::Block { .. }), "{error}");
    }
    let text = planned(Some(&[32]), &[2, 65]).unwrap_err().to_string();
    assert_eq!(
        text,
        concat!(
            "the blocks do not divide the tensor: expected an extent for each of the last dimensions, or fewer, that ",
            "divides it, found blocks (32,) of (2, 65). Use one scale for the whole tensor, or nf4, whose last block ",
            "may be short."
        )
    );
    for block in [&[0][..], &[], &[2, 0]] {
        assert_eq!(
            planned(Some(block), &[4]).unwrap_err(),
            QuantError::EmptyBlock(block.to_vec())
        );
    }
}

#[test]
fn schemes_that_make_no_sense_are_refused() {
    for dtype in [Dtype::F64, Dtype::I8, Dtype::F8E4M3] {
        let error = scheme(Code::Q8S, None, dtype).unwrap_err();
        assert_eq!(error, QuantError::ScaleDtype(dtype));
    }
    assert_eq!(
        scheme(Code::Nf4, Some(&[64]), Dtype::F16),
        Err(QuantError::ScaleDtype(Dtype::F16))
    );
    for block in [
        None,
        Some(&[65][..]),
        Some(&[16]),
        Some(&[8192]),
        Some(&[64, 1]),
    ] {
        let error = scheme(Code::Nf4, block, Dtype::F32).unwrap_err();
        assert!(matches!(error, QuantError::BlockSize(_)), "{error}");
    }
    let error = Scheme::from_parts("q5s", None, Dtype::F32).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no such scheme: expected q8s, q4s or nf4, found q5s."
    );
}

#[test]
fn only_floats_and_possible_shapes_are_planned() {
    let q8s = scheme(Code::Q8S, None, Dtype::F32).unwrap();
    for dtype in [Dtype::I32, Dtype::Bool, Dtype::C64, Dtype::F8E4M3] {
        let error = Plan::new(&q8s, &[4], dtype).unwrap_err();
        assert_eq!(error, QuantError::Elements(dtype));
    }
    let error = Plan::new(&q8s, &[usize::MAX, 2], Dtype::F32).unwrap_err();
    assert!(matches!(error, QuantError::Shape(_)), "{error}");
}

#[test]
fn a_scale_that_is_too_large_for_its_dtype_is_told_with_its_block() {
    let numbers = [1.0, 2.0, 1e7, 3.0, 1e8, 4.0];
    for block in [Some(&[2][..]), None] {
        let case = Case {
            scale: Dtype::F16,
            ..case(Code::Q8S, block, &[3, 2], &numbers)
        };
        let error = quantised(&case, 1).unwrap_err();
        let (number, scale) = if block.is_some() { (1, 1e7) } else { (0, 1e8) };
        assert_eq!(
            error,
            QuantError::ScaleTooLarge {
                block: number,
                scale: scale / 127.0,
                dtype: Dtype::F16,
            }
        );
    }
}

#[test]
fn a_range_that_is_none_is_refused() {
    let case = case(Code::Q8S, Some(&[2]), &[2, 2], &[1.0; 4]);
    let plan = plan(&case).unwrap();
    for value in [-1.0, f32::NAN, f32::INFINITY] {
        let (mut values, mut scales) = (vec![0; 4], vec![0; 8]);
        let given = [1.0, value];
        let crew = Crew::new(1);
        let error = quantize(
            &plan,
            &case.bytes,
            Some(&given),
            &mut values,
            &mut scales,
            crew,
        )
        .unwrap_err();
        assert!(
            matches!(error, QuantError::Absmax { block: 1, .. }),
            "{error}"
        );
    }
    let (mut values, mut scales) = (vec![0; 4], vec![0; 8]);
    let error = quantize(
        &plan,
        &case.bytes,
        Some(&[1.0]),
        &mut values,
        &mut scales,
        Crew::new(1),
    );
    assert!(matches!(error, Err(QuantError::Length { .. })));
}

#[test]
fn arrays_of_another_length_are_refused() {
    let case = case(Code::Q4S, Some(&[2]), &[2, 2], &[1.0; 4]);
    let plan = plan(&case).unwrap();
    let crew = Crew::new(1);
    for (elements, values, scales) in [(15, 2, 8), (16, 1, 8), (16, 2, 9)] {
        let (mut values, mut scales) = (vec![0; values], vec![0; scales]);
        let mut elements = vec![0; elements];
        for error in [
            quantize(&plan, &elements, None, &mut values, &mut scales, crew),
            dequantize(&plan, &values, &scales, &mut elements, crew),
        ] {
            let text = error.unwrap_err().to_string();
            assert!(
                text.contains("another length than the shape says"),
                "{text}"
            );
        }
    }
}
