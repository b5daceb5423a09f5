//! Codes, scales and what they stand for, against the naive reference; bounds of the error.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::quant::{Code, Crew, Scheme, absmax};
use proptest::prelude::*;

use super::naive::{self, Case};
use super::support::{
    FLOATS, SCALES, case, dequantised, fractions, noise, numbers, plan, quantised,
};

/// A block for a shape: none, or divisors of some of its last dimensions.
fn block(shape: Vec<usize>) -> impl Strategy<Value = Option<Vec<usize>>> {
    let divisors = |len: usize| {
        let all: Vec<usize> = (1..=len.max(1))
            .filter(|tile| len.is_multiple_of(*tile))
            .collect();
        proptest::sample::select(all)
    };
    let tiles: Vec<_> = shape.into_iter().map(divisors).collect();
    let rank = tiles.len();
    (tiles, 0..=rank).prop_map(|(tiles, from)| (from < tiles.len()).then(|| tiles[from..].to_vec()))
}

fn element(dtype: Dtype) -> impl Strategy<Value = Vec<u8>> {
    let any = any::<[u8; 8]>().prop_map(move |bytes| bytes[..dtype.size()].to_vec());
    any.prop_map(move |mut bytes| {
        if !(naive::number(dtype, &bytes) as f32).is_finite() {
            // Less by a power of two that makes it finite in `f32`.
            let last = bytes.len() - 1;
            bytes[last] &= 0xBF;
        }
        bytes
    })
    .prop_filter("finite", move |bytes| {
        (naive::number(dtype, bytes) as f32).is_finite()
    })
}

fn symmetric() -> impl Strategy<Value = Case> {
    let code = prop_oneof![Just(Code::Q8S), Just(Code::Q4S)];
    let shape = prop_oneof![
        proptest::collection::vec(0_usize..9, 0..4),
        (1_usize..5, 1_usize..150).prop_map(|(rows, row)| vec![rows, row]),
    ];
    let dtypes = (
        proptest::sample::select(&FLOATS[..]),
        proptest::sample::select(&SCALES[..]),
    );
    (code, shape, dtypes).prop_flat_map(|(code, shape, (dtype, scale))| {
        let count = shape.iter().product::<usize>();
        let elements = proptest::collection::vec(element(dtype), count);
        (block(shape.clone()), elements).prop_map(move |(block, elements)| Case {
            code,
            block,
            scale,
            shape: shape.clone(),
            dtype,
            bytes: elements.concat(),
        })
    })
}

fn normal_float() -> impl Strategy<Value = Case> {
    let dtype = proptest::sample::select(&FLOATS[..]);
    let block = proptest::sample::select(&Scheme::NF4_BLOCKS[..3]);
    (dtype, block, 0_usize..300).prop_flat_map(|(dtype, block, count)| {
        proptest::collection::vec(element(dtype), count).prop_map(move |elements| Case {
            code: Code::Nf4,
            block: Some(vec![block]),
            scale: Dtype::F32,
            shape: vec![count],
            dtype,
            bytes: elements.concat(),
        })
    })
}

fn agrees_with_the_reference(case: &Case) -> Result<(), TestCaseError> {
    let expected = naive::quantise(case);
    let made = match quantised(case, 2) {
        // A half holds no scale this large; `errors` has more about it.
        Err(error) if case.scale == Dtype::F16 => {
            prop_assert!(error.to_string().contains("does not fit"), "{}", error);
            return Ok(());
        }
        made => made.unwrap(),
    };
    // Not `prop_assert_eq`: nobody reads a million numbers.
    prop_assert!(made.0 == expected.values);
    prop_assert!(made.1 == expected.scales);
    let singles = dequantised(case, &made, Dtype::F32, 2);
    let bits: Vec<u8> = expected
        .numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    prop_assert!(singles == bits);
    let doubles = dequantised(case, &made, Dtype::F64, 1);
    let wide: Vec<f64> = expected
        .numbers
        .iter()
        .map(|&number| f64::from(number))
        .collect();
    prop_assert!(numbers(Dtype::F64, &doubles) == wide);
    Ok(())
}

proptest! {
    #[test]
    fn integers_of_any_shape_block_and_dtype_are_those_of_the_reference(case in symmetric()) {
        agrees_with_the_reference(&case)?;
    }

    #[test]
    fn normal_floats_of_any_length_and_dtype_are_those_of_the_reference(case in normal_float()) {
        agrees_with_the_reference(&case)?;
    }
}

#[test]
fn tensors_of_several_pieces_are_those_of_the_reference() {
    // Blocks within a piece and across pieces, rows of odd length, columns; all of them longer than one piece.
    let cases: [(&[usize], Option<&[usize]>); 12] = [
        (&[70_001], None),
        (&[3, 30_001], None),
        (&[30_001, 3], None),
        (&[3, 70_001], Some(&[1])),
        (&[5, 3, 7_001], Some(&[3, 7_001])),
        (&[999, 99], Some(&[3, 9])),
        (&[1000, 96], Some(&[32])),
        (&[96, 1000], Some(&[96, 1])),
        (&[40, 90, 30], Some(&[20, 9, 5])),
        (&[2, 300_000], Some(&[300_000])),
        (&[600, 700], Some(&[300, 7])),
        (&[501, 701], Some(&[501, 1])),
    ];
    for (shape, block) in cases {
        for code in [Code::Q8S, Code::Q4S] {
            let count: usize = shape.iter().product();
            let case = Case {
                bytes: noise(count, Dtype::BF16),
                dtype: Dtype::BF16,
                ..case(code, block, shape, &[])
            };
            agrees_with_the_reference(&case).unwrap();
        }
    }
    for (count, block) in [(100_001, 64), (65_536, 4096), (99_999, 2048), (32_768, 32)] {
        let case = case(Code::Nf4, Some(&[block]), &[count], &fractions(count));
        agrees_with_the_reference(&case).unwrap();
    }
}

#[test]
fn no_element_is_off_by_more_than_half_a_step() {
    let elements = fractions(64 * 512);
    for (code, limit) in [(Code::Q8S, 127.0), (Code::Q4S, 7.0)] {
        for scale in SCALES {
            for block in [None, Some(vec![32]), Some(vec![8, 16])] {
                let case = Case {
                    scale,
                    block,
                    ..case(code, None, &[64, 512], &elements)
                };
                let made = quantised(&case, 1).unwrap();
                let meant = numbers(Dtype::F32, &dequantised(&case, &made, Dtype::F32, 1));
                // Scales are rounded up by one part in 128 at most, and magnitudes are 1 at most.
                let step = 1.0 / limit * (1.0 + 1.0 / 128.0);
                for (meant, element) in meant.iter().zip(&elements) {
                    let error = (meant - f64::from(*element)).abs();
                    assert!(error <= step / 2.0 * (1.0 + 1e-6), "{code:?} {error}");
                }
            }
        }
    }
    let case = case(Code::Nf4, Some(&[64]), &[64 * 512], &elements);
    let made = quantised(&case, 1).unwrap();
    let meant = numbers(Dtype::F32, &dequantised(&case, &made, Dtype::F32, 1));
    // Half the widest gap of the table.
    assert!(
        meant
            .iter()
            .zip(&elements)
            .all(|(a, b)| (a - f64::from(*b)).abs() <= 0.152)
    );
}

#[test]
fn quantising_what_codes_stand_for_gives_the_same_codes() {
    let elements = fractions(64 * 96);
    for code in [Code::Q8S, Code::Q4S] {
        for scale in SCALES {
            let first = Case {
                scale,
                ..case(code, Some(&[32]), &[64, 96], &elements)
            };
            let once = quantised(&first, 1).unwrap();
            let bytes = dequantised(&first, &once, Dtype::F32, 1);
            let again = quantised(&Case { bytes, ..first }, 1).unwrap();
            if scale == Dtype::F32 {
                assert!(once == again);
            }
            // A scale that was rounded up may be met by no element; then the second one is smaller.
            assert_eq!(once.0.len(), again.0.len());
        }
    }
}

#[test]
fn dequantised_halves_are_the_singles_rounded_once() {
    let elements = fractions(1000);
    for code in [Code::Q8S, Code::Q4S, Code::Nf4] {
        let block: &[usize] = if code == Code::Nf4 { &[64] } else { &[8] };
        let case = case(code, Some(block), &[1000], &elements);
        let made = quantised(&case, 1).unwrap();
        let singles = numbers(Dtype::F32, &dequantised(&case, &made, Dtype::F32, 1));
        for (dtype, digits) in [(Dtype::F16, 11), (Dtype::BF16, 8)] {
            let narrow = numbers(dtype, &dequantised(&case, &made, dtype, 1));
            for (single, narrow) in singles.iter().zip(narrow) {
                let exponent = single.abs().max(2_f64.powi(-14)).log2().floor();
                let unit = 2_f64.powi(exponent as i32 + 1 - digits);
                assert!((single - narrow).abs() <= unit / 2.0, "{single} {narrow}");
            }
        }
    }
}

#[test]
fn a_range_of_the_callers_takes_the_place_of_the_largest_magnitude() {
    let case = case(
        Code::Q8S,
        Some(&[4]),
        &[2, 4],
        &[1.0, -2.0, 0.5, 0.0, 8.0, 6.0, -5.0, 3.0],
    );
    let plan = plan(&case).unwrap();
    let measured = absmax(&plan, &case.bytes, Crew::new(1)).unwrap();
    assert_eq!(measured, [2.0, 8.0]);
    let (mut values, mut scales) = (vec![0; 8], vec![0; 8]);
    let given = [1.27, 12.7];
    let crew = Crew::new(1);
    lazyparam_bytes::quant::quantize(
        &plan,
        &case.bytes,
        Some(&given),
        &mut values,
        &mut scales,
        crew,
    )
    .unwrap();
    let values: Vec<i8> = values.into_iter().map(|value| value as i8).collect();
    assert_eq!(values, [100, -127, 50, 0, 80, 60, -50, 30]);
}
