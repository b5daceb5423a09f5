//! Targets of any layout and at any address get the same values, and nothing else is touched.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Fill, Init, Plan, Region, Target, fill};
use proptest::prelude::*;

use super::support::{key, standard_normal, whole};

fn refusal(shape: &[usize], offset: usize, strides: &[isize], room: usize) -> String {
    let plan = Plan::new(&standard_normal(), &key(0), shape, Dtype::F32).unwrap();
    let mut bytes = vec![0; room * 4];
    match Fill::new(&plan, Target::strided(&mut bytes, offset, strides)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("expected a refusal"),
    }
}

proptest! {
    /// pytorch/pytorch#80041, #75281, #166856, #71090: values that depend on strides.
    #[test]
    fn any_strides_get_the_values_of_the_contiguous_array(
        dims in prop::collection::vec((1_usize..40, 0_usize..3, any::<bool>()), 1..4),
        order in any::<u64>(),
        init in prop::sample::select(vec!["normal", "ones", "orthogonal", "sparse", "eye"]),
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::BF16, Dtype::F64]),
    ) {
        let shape: Vec<usize> = dims.iter().map(|(dim, ..)| *dim).collect();
        let init = match (init, shape.len()) {
            ("eye", 2) => Init::eye(),
            ("orthogonal", 2) => Init::orthogonal(1.0, None).unwrap(),
            ("sparse", 2) => Init::sparse(0.3, 1.0).unwrap(),
            ("ones", _) => Init::ones(),
            _ => standard_normal(),
        };
        // Axes in some order, each with some padding, some of them backwards.
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        axes.sort_by_key(|axis| order.rotate_left(11 * *axis as u32) % 97);
        let mut strides = vec![0_isize; shape.len()];
        let (mut step, mut offset) = (1, 0);
        for axis in axes {
            let (dim, padding, backwards) = dims[axis];
            strides[axis] = if backwards { -(step as isize) } else { step as isize };
            if backwards {
                offset += step * (dim - 1);
            }
            step *= dim + padding;
        }
        let size = dtype.size();
        let plan = Plan::new(&init, &key(6), &shape, dtype).unwrap();
        let mut bytes = vec![0x55; step * size];
        let fill = Fill::new(&plan, Target::strided(&mut bytes, offset, &strides)).unwrap();
        fill.run_on(2);
        prop_assert!(fill.is_done());
        drop(fill);
        let expected = whole(&init, &key(6), &shape, dtype);
        let mut untouched = vec![true; step];
        for (number, value) in expected.chunks_exact(size).enumerate() {
            let mut rest = number;
            let mut at = offset as isize;
            for axis in (0..shape.len()).rev() {
                at += (rest % shape[axis]) as isize * strides[axis];
                rest /= shape[axis];
            }
            untouched[at as usize] = false;
            prop_assert_eq!(&bytes[at as usize * size..][..size], value);
        }
        for at in (0..step).filter(|at| untouched[*at]) {
            prop_assert!(bytes[at * size..][..size].iter().all(|byte| *byte == 0x55));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wide enough that such targets are filled in tiles.
    #[test]
    fn boxes_of_stacked_matrices_in_fortran_order_are_those_in_c_order_transposed(
        stack in 1_usize..4,
        rows in 1_usize..80,
        cols in 64_usize..600,
        start in (0_usize..70, 0_usize..130),
        batched in any::<bool>(),
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::BF16, Dtype::F64]),
    ) {
        let shape = [5, 150, 730];
        let region = Region::new([1, start.0, start.1], [stack, rows, cols]);
        let axes: &[usize] = if batched { &[0] } else { &[] };
        let plan = Plan::of_region(&standard_normal(), &key(9), &shape, dtype, axes, &region).unwrap();
        let expected = fill(&plan, 1).unwrap();
        let mut bytes = vec![0; plan.bytes()];
        let strides = [1, stack as isize, (stack * rows) as isize];
        let by_rows = [(rows * cols) as isize, 1, rows as isize];
        let size = dtype.size();
        for strides in [strides, by_rows] {
            let fill = Fill::new(&plan, Target::strided(&mut bytes, 0, &strides)).unwrap();
            fill.run();
            prop_assert!(fill.is_done());
            drop(fill);
            for (number, value) in expected.as_slice().chunks_exact(size).enumerate() {
                let at = [number / cols / rows, number / cols % rows, number % cols];
                let offset: isize = at.iter().zip(strides).map(|(at, step)| *at as isize * step).sum();
                prop_assert_eq!(&bytes[offset as usize * size..][..size], value);
            }
        }
    }
}

/// pytorch/pytorch#80041, #75281, #166856, #71090: values that depend on the order in memory.
#[test]
fn an_array_in_fortran_order_has_the_same_values_transposed() {
    let shape = [300, 500];
    let plan = Plan::new(&standard_normal(), &key(7), &shape, Dtype::F32).unwrap();
    let mut bytes = vec![0; plan.bytes()];
    let target = Target::strided(&mut bytes, 0, &[1, 300]);
    Fill::new(&plan, target).unwrap().run_on(3);
    let expected = whole(&standard_normal(), &key(7), &shape, Dtype::F32);
    for row in 0..300 {
        for col in 0..500 {
            let fortran = &bytes[(col * 300 + row) * 4..][..4];
            assert_eq!(fortran, &expected[(row * 500 + col) * 4..][..4]);
        }
    }
}

/// pytorch/pytorch#80041, #75281, #166856, #71090: values that depend on the offset.
#[test]
fn a_target_may_begin_at_any_address() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::F64] {
        let plan = Plan::new(&standard_normal(), &key(8), &[1000], dtype).unwrap();
        let expected = whole(&standard_normal(), &key(8), &[1000], dtype);
        let mut bytes = vec![0; plan.bytes() + 16];
        for shift in 0..16 {
            let target = &mut bytes[shift..][..expected.len()];
            Fill::new(&plan, Target::contiguous(target)).unwrap().run();
            assert!(bytes[shift..][..expected.len()] == expected);
        }
    }
}

#[test]
fn targets_that_are_too_small_or_overlap_are_refused() {
    let outside = "does not hold all elements";
    assert!(refusal(&[4], 0, &[1], 3).contains(outside));
    assert!(refusal(&[4], 1, &[1], 4).contains(outside));
    assert!(refusal(&[4], 2, &[-1], 4).contains(outside));
    assert!(refusal(&[2, 2], 0, &[isize::MAX, 1], 4).contains(outside));
    assert!(refusal(&[2, 2], usize::MAX, &[2, 1], 4).contains(outside));
    let overlap = "overlap";
    assert!(refusal(&[4], 0, &[0], 4).contains(overlap));
    assert!(refusal(&[2, 3], 0, &[2, 1], 9).contains(overlap));
    assert!(refusal(&[3, 3], 4, &[1, -1], 9).contains(overlap));
    assert!(refusal(&[2, 2], 0, &[1], 4).contains("a stride for each dimension"));
    let plan = Plan::new(&standard_normal(), &key(0), &[4], Dtype::F32).unwrap();
    let error = Fill::new(&plan, Target::contiguous(&mut [0; 15])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the target has another length than the values: expected 16 bytes, found 15."
    );
}

#[test]
fn empty_parameters_and_scalars_are_filled_too() {
    for shape in [&[0][..], &[3, 0], &[0, 3], &[2, 0, 2]] {
        assert!(whole(&standard_normal(), &key(0), shape, Dtype::F32).is_empty());
    }
    assert_eq!(whole(&standard_normal(), &key(0), &[], Dtype::F64).len(), 8);
    let plan = Plan::new(&standard_normal(), &key(0), &[3, 0], Dtype::F32).unwrap();
    let strides = [isize::MAX, isize::MIN];
    let fill = Fill::new(&plan, Target::strided(&mut [], 7, &strides)).unwrap();
    fill.run();
    assert!(fill.is_done());
    for init in [
        Init::orthogonal(1.0, None).unwrap(),
        Init::sparse(0.5, 1.0).unwrap(),
        Init::eye(),
    ] {
        assert!(whole(&init, &key(0), &[0, 3], Dtype::F32).is_empty());
        assert!(whole(&init, &key(0), &[3, 0], Dtype::F32).is_empty());
    }
}
