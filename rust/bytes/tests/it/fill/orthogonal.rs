//! Orthogonal matrices: how orthogonal, how random, and the same bits however they are computed.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Init, Isa, Layout, Plan, fill};

use super::support::{key, values, whole, with_isa};

fn orthogonal() -> Init {
    Init::orthogonal(1.0, None).unwrap()
}

/// The largest entry of QQᵀ − 1 or QᵀQ − 1, whichever is smaller.
fn error_of(q: &[f64], rows: usize, cols: usize) -> f64 {
    let (long, short) = (rows.max(cols), rows.min(cols));
    // The vectors that have to be orthonormal, one after the other.
    let vector = |v: usize, at: usize| {
        if rows <= cols {
            q[v * cols + at]
        } else {
            q[at * cols + v]
        }
    };
    let vectors: Vec<Vec<f64>> = (0..short)
        .map(|v| (0..long).map(|at| vector(v, at)).collect())
        .collect();
    let mut worst = 0_f64;
    for a in 0..short {
        for b in 0..=a {
            let product: f64 = vectors[a].iter().zip(&vectors[b]).map(|(x, y)| x * y).sum();
            worst = worst.max((product - f64::from(u8::from(a == b))).abs());
        }
    }
    worst
}

/// tensorflow/tensorflow#22226, keras-team/keras#11120: errors of 1e-2 from 1000 rows on.
#[test]
fn rows_or_columns_are_orthonormal() {
    for [rows, cols] in [
        [1, 1],
        [2, 2],
        [64, 64],
        [65, 63],
        [300, 40],
        [40, 300],
        [257, 257],
        [600, 550],
    ] {
        let narrow = whole(&orthogonal(), &key(1), &[rows, cols], Dtype::F32);
        let error = error_of(&values(&narrow, Dtype::F32), rows, cols);
        assert!(error < 2e-6, "{rows} {cols}: {error}");
        let wide = whole(&orthogonal(), &key(1), &[rows, cols], Dtype::F64);
        let error = error_of(&values(&wide, Dtype::F64), rows, cols);
        assert!(error < 5e-15, "{rows} {cols}: {error}");
    }
}

#[test]
fn dtypes_hold_the_same_matrix_rounded() {
    let draw = |dtype| values(&whole(&orthogonal(), &key(2), &[70, 90], dtype), dtype);
    let exact = draw(Dtype::F64);
    for (dtype, tolerance) in [(Dtype::F32, 2e-6), (Dtype::F16, 5e-4), (Dtype::BF16, 4e-3)] {
        let worst = exact
            .iter()
            .zip(draw(dtype))
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(worst < tolerance, "{dtype:?}: {worst}");
    }
}

#[test]
fn the_gain_is_a_factor() {
    let plain = values(
        &whole(&orthogonal(), &key(3), &[20, 30], Dtype::F64),
        Dtype::F64,
    );
    let init = Init::orthogonal(-2.0, None).unwrap();
    let scaled = values(&whole(&init, &key(3), &[20, 30], Dtype::F64), Dtype::F64);
    assert!(plain.iter().zip(scaled).all(|(a, b)| a * -2.0 == b));
}

/// pytorch/pytorch#155552: other values with AVX2 than with AVX-512.
#[test]
fn every_instruction_set_and_thread_count_gives_the_same_bits() {
    for (shape, dtype) in [
        ([600, 530], Dtype::F32),
        ([100, 700], Dtype::BF16),
        ([130, 140], Dtype::F64),
    ] {
        let plan = Plan::new(&orthogonal(), &key(4), &shape, dtype).unwrap();
        let portable = with_isa(&plan, Isa::Portable);
        for isa in Isa::available() {
            assert!(with_isa(&plan, isa) == portable, "{isa:?} {dtype:?}");
        }
        for threads in [2, 5] {
            assert!(fill(&plan, threads).unwrap().as_slice() == portable);
        }
    }
}

/// tensorflow/tensorflow#9429: signs of a plain QR decomposition.
///
/// Under the uniform distribution, traces have mean 0 and variance 1, and half of the determinants are −1. The Q
/// of a plain QR decomposition has a trace of −3 on average at this size.
#[test]
fn matrices_are_uniformly_distributed() {
    const MATRICES: usize = 2000;
    const N: usize = 6;
    let (mut sum, mut squares, mut negative) = (0.0, 0.0, 0);
    let mut corner = Vec::new();
    for number in 0..MATRICES {
        let q = values(
            &whole(
                &orthogonal(),
                &key(5).child(number as i64),
                &[N, N],
                Dtype::F64,
            ),
            Dtype::F64,
        );
        let trace: f64 = (0..N).map(|at| q[at * N + at]).sum();
        sum += trace;
        squares += trace * trace;
        negative += usize::from(determinant(q.clone(), N) < 0.0);
        corner.push(q[0]);
    }
    let root = (MATRICES as f64).sqrt();
    assert!((sum / root).abs() < 4.5, "{sum}");
    assert!(
        (squares / MATRICES as f64 - 1.0).abs() * root < 6.5,
        "{squares}"
    );
    assert!(
        (negative as f64 - MATRICES as f64 / 2.0).abs() < 2.25 * root,
        "{negative}"
    );
    // One entry has the density ∝ (1 − x²)^((n − 3)/2), for n = 6 with mean of squares 1/6.
    let mean_square = corner.iter().map(|x| x * x).sum::<f64>() / MATRICES as f64;
    assert!((mean_square - 1.0 / 6.0).abs() < 0.02, "{mean_square}");
    let mean = corner.iter().sum::<f64>() / MATRICES as f64;
    assert!(mean.abs() < 0.045, "{mean}");
}

fn determinant(mut a: Vec<f64>, n: usize) -> f64 {
    let mut product = 1.0;
    for at in 0..n {
        let pivot = (at..n)
            .max_by(|x, y| a[x * n + at].abs().total_cmp(&a[y * n + at].abs()))
            .unwrap();
        if pivot != at {
            product = -product;
            for col in 0..n {
                a.swap(at * n + col, pivot * n + col);
            }
        }
        product *= a[at * n + at];
        for row in at + 1..n {
            let factor = a[row * n + at] / a[at * n + at];
            for col in at..n {
                a[row * n + col] -= factor * a[at * n + col];
            }
        }
    }
    product
}

#[test]
fn weights_with_more_dimensions_are_matrices_from_inputs_to_outputs() {
    let with = |layout: &str| Init::orthogonal(1.0, Some(Layout::new(layout).unwrap())).unwrap();
    let torch = whole(&with("OIHW"), &key(6), &[8, 4, 3, 3], Dtype::F64);
    assert!(error_of(&values(&torch, Dtype::F64), 8, 36) < 1e-14);
    let jax = whole(&with("HWIO"), &key(6), &[3, 3, 4, 8], Dtype::F64);
    assert!(error_of(&values(&jax, Dtype::F64), 36, 8) < 1e-14);
    assert!(with("IOHW").check(&[4, 8, 3, 3], Dtype::F32, &[]).is_err());
    assert!(orthogonal().check(&[4, 8, 3], Dtype::F32, &[]).is_err());
    assert!(orthogonal().check(&[4], Dtype::F32, &[]).is_err());
}
