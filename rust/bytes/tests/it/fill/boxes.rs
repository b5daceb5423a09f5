//! A box filled alone has the bits of that slice of the whole.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Init, Key, Part, Plan, Region, fill};
use proptest::prelude::*;

use super::support::{key, part, standard_normal, whole};

/// Cuts a box out of a C-contiguous array.
fn cut(bytes: &[u8], shape: &[usize], region: &Region, size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let total: usize = region.shape().iter().product();
    for number in 0..total {
        let mut rest = number;
        let mut index = 0;
        let mut step = 1;
        for axis in (0..shape.len()).rev() {
            let at = rest % region.shape()[axis];
            rest /= region.shape()[axis];
            index += (region.start()[axis] + at) * step;
            step *= shape[axis];
        }
        out.extend_from_slice(&bytes[index * size..][..size]);
    }
    out
}

/// Where to cut an axis: nowhere, in the middle, unevenly, into single elements.
fn cuts(dim: usize) -> Vec<Vec<(usize, usize)>> {
    let mut all = vec![vec![(0, dim)]];
    if dim > 1 {
        all.push(vec![(0, dim / 2), (dim / 2, dim - dim / 2)]);
        all.push(vec![(0, 1), (1, dim - 1)]);
        all.push((0..dim).map(|at| (at, 1)).collect());
        // As some frameworks cut what does not divide: the last parts are smaller, or empty.
        let part = dim.div_ceil(4);
        all.push(
            (0..4)
                .map(|number| {
                    let start = (number * part).min(dim);
                    (start, part.min(dim - start))
                })
                .collect(),
        );
    }
    all
}

fn inits() -> Vec<Init> {
    vec![
        standard_normal(),
        Init::uniform(-1.0, 1.0).unwrap(),
        Init::trunc_normal(0.0, 1.0, -2.0, 2.0).unwrap(),
        Init::zeros(),
        Init::ones(),
    ]
}

#[test]
fn every_split_of_a_vector_gives_the_bits_of_the_whole() {
    for len in [1, 31, 62, 63, 64, 65, 124, 200, 1000] {
        for init in inits() {
            let all = whole(&init, &key(1), &[len], Dtype::F32);
            for cut in cuts(len) {
                let parts = cut.into_iter().map(|(start, len_)| {
                    part(
                        &init,
                        &key(1),
                        &[len],
                        Dtype::F32,
                        &Region::new([start], [len_]),
                    )
                });
                assert!(parts.collect::<Vec<_>>().concat() == all, "{init:?} {len}");
            }
        }
    }
}

/// pytorch/pytorch#168058, #127164, #140301, allenai/OLMo-core#307, #319, Lightning-AI/litgpt#269,
/// mlfoundations/open_lm#139, jax-ml/jax#40232, #21232, #17982: shards that differ from the whole.
#[test]
fn every_split_of_a_matrix_gives_the_bits_of_the_whole() {
    let mut inits = inits();
    inits.push(Init::eye());
    inits.push(Init::orthogonal(1.5, None).unwrap());
    inits.push(Init::sparse(0.6, 1.0).unwrap());
    for shape in [[31, 62], [5, 1], [1, 130], [66, 7]] {
        for init in &inits {
            for dtype in [Dtype::F32, Dtype::BF16, Dtype::F64] {
                let all = whole(init, &key(2), &shape, dtype);
                for rows in cuts(shape[0]) {
                    for cols in cuts(shape[1]).into_iter().take(3) {
                        for &(row, height) in &rows {
                            for &(col, width) in &cols {
                                let region = Region::new([row, col], [height, width]);
                                let part = part(init, &key(2), &shape, dtype, &region);
                                let expected = cut(&all, &shape, &region, dtype.size());
                                assert!(part == expected, "{init:?} {dtype:?} {region:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    /// pytorch/pytorch#168058, #127164, #140301, allenai/OLMo-core#307, #319,
    /// Lightning-AI/litgpt#269, mlfoundations/open_lm#139, jax-ml/jax#40232, #21232, #17982: shards
    /// that differ from the whole.
    #[test]
    fn any_box_of_any_shape_has_the_bits_of_the_whole(
        dims in prop::collection::vec((1_usize..12, 0.0..1.0, 0.0..1.0), 1..5),
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::F64]),
    ) {
        let shape: Vec<usize> = dims.iter().map(|(dim, ..)| *dim).collect();
        let start: Vec<usize> = dims.iter().map(|(dim, at, _)| (*dim as f64 * at) as usize).collect();
        let extent: Vec<usize> = dims
            .iter()
            .zip(&start)
            .map(|((dim, _, part), start)| ((dim - start) as f64 * part).ceil() as usize)
            .collect();
        let region = Region::new(start, extent);
        let all = whole(&standard_normal(), &key(3), &shape, dtype);
        let part = part(&standard_normal(), &key(3), &shape, dtype, &region);
        prop_assert_eq!(part, cut(&all, &shape, &region, dtype.size()));
    }

    #[test]
    fn stacked_parameters_are_the_stack_of_their_slices(
        dims in prop::collection::vec(1_usize..9, 1..5),
        axes in prop::collection::vec(any::<bool>(), 4),
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::BF16]),
    ) {
        let batch_axes: Vec<usize> = (0..dims.len()).filter(|axis| axes[*axis]).collect();
        let init = standard_normal();
        let plan = Plan::of_region(&init, &key(4), &dims, dtype, &batch_axes, &Region::whole(&dims)).unwrap();
        let stacked = fill(&plan, 1).unwrap().as_slice().to_vec();
        let batch: Vec<usize> = batch_axes.iter().map(|axis| dims[*axis]).collect();
        let slice_shape: Vec<usize> =
            (0..dims.len()).filter(|axis| !batch_axes.contains(axis)).map(|axis| dims[axis]).collect();
        for number in 0..batch.iter().product() {
            let mut rest = number;
            let mut at: Vec<usize> = batch.iter().rev().map(|dim| { let at = rest % dim; rest /= dim; at }).collect();
            at.reverse();
            let child = at.iter().fold(key(4), |key, at| key.child(*at as i64));
            let slice = whole(&init, &child, &slice_shape, dtype);
            let (mut start, mut extent) = (vec![0; dims.len()], dims.clone());
            for (axis, at) in batch_axes.iter().zip(&at) {
                (start[*axis], extent[*axis]) = (*at, 1);
            }
            prop_assert_eq!(cut(&stacked, &dims, &Region::new(start, extent), dtype.size()), slice);
        }
    }
}

#[test]
fn every_kind_of_matrix_can_be_stacked_and_a_box_of_the_stack_is_a_box_of_each() {
    let shape = [3, 20, 30];
    for init in [
        Init::eye(),
        Init::orthogonal(1.0, None).unwrap(),
        Init::sparse(0.5, 1.0).unwrap(),
        Init::xavier_normal(1.0, Default::default()).unwrap(),
    ] {
        let region = Region::new([1, 3, 5], [2, 10, 20]);
        let plan = Plan::of_region(&init, &key(5), &shape, Dtype::F32, &[0], &region).unwrap();
        let stacked = fill(&plan, 1).unwrap().as_slice().to_vec();
        let inner = Region::new([3, 5], [10, 20]);
        let slices = [1, 2].map(|number| {
            let child = key(5).child(Part::Index(number));
            part(&init, &child, &shape[1..], Dtype::F32, &inner)
        });
        assert_eq!(stacked, slices.concat(), "{init:?}");
    }
}

/// pytorch/torchtitan#3106, pytorch/pytorch#196562: shards that are all the same.
#[test]
fn parameters_with_other_keys_and_neighbouring_shards_have_other_values() {
    let draw = |key: &Key| whole(&standard_normal(), key, &[64], Dtype::F32);
    let keys: Vec<_> = (0..50)
        .map(key)
        .chain((0..50).map(|number| key(0).child(number)))
        .collect();
    let mut all: Vec<_> = keys.iter().map(draw).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 100);
}

#[test]
fn a_box_that_is_not_inside_the_parameter_is_refused() {
    let plan = |start: &[usize], extent: &[usize]| {
        Plan::of_region(
            &standard_normal(),
            &key(0),
            &[4, 4],
            Dtype::F32,
            &[],
            &Region::new(start, extent),
        )
    };
    assert!(plan(&[0, 0], &[4, 4]).is_ok());
    assert!(plan(&[4, 4], &[0, 0]).is_ok());
    for (start, extent) in [
        (&[0, 0][..], &[4, 5][..]),
        (&[3, 0], &[2, 1]),
        (&[usize::MAX, 0], &[2, 1]),
        (&[0], &[4]),
        (&[0, 0], &[4]),
    ] {
        let error = plan(start, extent).unwrap_err();
        assert!(
            error.to_string().contains("not inside the parameter"),
            "{error}"
        );
    }
    let axes = |axes: &[usize]| {
        let all = Region::whole(&[4, 4]);
        Plan::of_region(&standard_normal(), &key(0), &[4, 4], Dtype::F32, axes, &all)
    };
    assert!(axes(&[0, 1]).is_ok());
    assert!(axes(&[2]).is_err());
    assert!(axes(&[1, 0]).is_err());
    assert!(axes(&[0, 0]).is_err());
}
