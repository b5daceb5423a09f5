//! Sparse matrices: exact counts, any rows, normal values.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Fill, Init, Isa, Plan, Target};

use super::laws::kolmogorov;
use super::support::{f32s, key, standard_normal, values, whole, with_isa};

fn sparse(sparsity: f64) -> Init {
    Init::sparse(sparsity, 1.0).unwrap()
}

#[test]
fn every_column_has_exactly_the_zeros_asked_for() {
    for (rows, cols, sparsity, zeros) in [
        (10, 7, 0.35, 4),
        (100, 130, 0.9, 90),
        (64, 64, 0.0, 0),
        (64, 3, 1.0, 64),
        (1, 5, 0.5, 1),
        (1000, 2, 0.001, 1),
    ] {
        let x = f32s(&whole(
            &sparse(sparsity),
            &key(1),
            &[rows, cols],
            Dtype::F32,
        ));
        for col in 0..cols {
            let found = (0..rows).filter(|row| x[row * cols + col] == 0.0).count();
            assert_eq!(found, zeros, "{rows} {cols} {sparsity}");
        }
    }
}

/// pytorch/pytorch#196941, LuxDL/Lux.jl#1185: zeros that ignore the generator.
#[test]
fn what_stays_has_the_values_of_the_normal_draw_and_any_row_may_stay() {
    let [rows, cols] = [40, 5000];
    let x = f32s(&whole(&sparse(0.75), &key(2), &[rows, cols], Dtype::F32));
    let normal = f32s(&whole(
        &standard_normal(),
        &key(2),
        &[rows, cols],
        Dtype::F32,
    ));
    let mut kept = vec![0_usize; rows];
    let mut sample = Vec::new();
    for (index, (&x, &normal)) in x.iter().zip(&normal).enumerate() {
        if x != 0.0 {
            assert_eq!(x, normal);
            kept[index / cols] += 1;
            sample.push(f64::from(x));
        }
    }
    // 5000 columns keep 10 of 40 rows: 1250 times each, with a deviation of 31.
    assert!(
        kept.iter().all(|&count| (1100..1400).contains(&count)),
        "{kept:?}"
    );
    let phi = |z: f64| 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
    assert!(kolmogorov(sample, phi) < 2.2);
}

#[test]
fn all_instruction_sets_and_thread_counts_give_the_same_bits() {
    for dtype in [Dtype::F32, Dtype::BF16, Dtype::F64] {
        let plan = Plan::new(&sparse(0.8), &key(3), &[77, 300], dtype).unwrap();
        let portable = with_isa(&plan, Isa::Portable);
        for isa in Isa::available() {
            assert!(with_isa(&plan, isa) == portable, "{isa:?}");
        }
        let mut bytes = vec![1; plan.bytes()];
        Fill::new(&plan, Target::contiguous(&mut bytes))
            .unwrap()
            .run_on(4);
        assert!(bytes == portable);
        let zeros = values(&bytes, dtype).iter().filter(|x| **x == 0.0).count();
        assert_eq!(zeros, 300 * 62);
    }
}

#[test]
fn a_sparse_matrix_has_two_dimensions() {
    assert!(sparse(0.5).check(&[3], Dtype::F32, &[]).is_err());
    assert!(sparse(0.5).check(&[3, 3, 3], Dtype::F32, &[]).is_err());
    assert!(sparse(0.5).check(&[3, 3, 3], Dtype::F32, &[1]).is_ok());
}
