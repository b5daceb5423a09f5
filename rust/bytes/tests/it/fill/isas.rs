//! Every instruction set gives the same bits, wherever a box begins and however the target lies.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Fill, Init, Isa, Plan, Region, Target};
use proptest::prelude::*;

use super::support::{golden_key, with_isa};

fn draws() -> impl Strategy<Value = Init> {
    prop_oneof![
        Just(Init::uniform(-0.3, 0.7).unwrap()),
        Just(Init::normal(0.5, 1.5).unwrap()),
        Just(Init::trunc_normal(0.0, 1.0, -2.0, 2.0).unwrap()),
        Just(Init::trunc_normal(0.0, 1.0, -3.5, 0.5).unwrap()),
        Just(Init::trunc_normal(0.0, 1.0, 4.0, 9.0).unwrap()),
        Just(Init::trunc_normal(0.0, 0.02, -2.0, 2.0).unwrap()),
    ]
}

fn dtypes() -> impl Strategy<Value = Dtype> {
    prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64])
}

proptest! {
    /// pytorch/pytorch#176584, #143086, #158398, ml-explore/mlx#3568, rust-random/rand#894: values
    /// that differ between machines.
    #[test]
    fn all_instruction_sets_give_the_same_bits_on_any_stretch(
        init in draws(),
        dtype in dtypes(),
        start in prop_oneof![0_usize..300, (1_usize << 36) - 150..(1 << 36) + 150],
        len in 0_usize..700,
        step in prop_oneof![Just(1_isize), Just(2), Just(-1), Just(-3)],
    ) {
        let shape = [1 << 40];
        let region = Region::new([start], [len]);
        let plan = Plan::of_region(&init, &golden_key(), &shape, dtype, &[], &region).unwrap();
        let room = len * step.unsigned_abs() * dtype.size();
        let offset = if step < 0 { len.max(1) * step.unsigned_abs() - 1 } else { 0 };
        let filled = |isa| {
            let mut bytes = vec![0x55; room];
            let fill = Fill::with_isa(&plan, Target::strided(&mut bytes, offset, &[step]), isa);
            fill.unwrap().run();
            bytes
        };
        let portable = filled(Isa::Portable);
        for isa in Isa::available() {
            prop_assert!(filled(isa) == portable, "{:?}", isa);
        }
    }
}

#[test]
fn all_instruction_sets_give_the_same_bits_on_columns_of_a_matrix() {
    let init = Init::normal(0.0, 1.0).unwrap();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64] {
        for width in [1, 3, 17, 40] {
            let region = Region::new([3, 5], [61, width]);
            let plan = Plan::of_region(&init, &golden_key(), &[70, 130], dtype, &[], &region);
            let plan = plan.unwrap();
            let portable = with_isa(&plan, Isa::Portable);
            for isa in Isa::available() {
                assert!(
                    with_isa(&plan, isa) == portable,
                    "{isa:?} {dtype:?} {width}"
                );
            }
        }
    }
}

#[test]
fn an_instruction_set_that_the_machine_lacks_falls_back_to_portable_code() {
    let plan = Plan::new(
        &Init::normal(0.0, 1.0).unwrap(),
        &golden_key(),
        &[100],
        Dtype::F32,
    );
    let plan = plan.unwrap();
    let portable = with_isa(&plan, Isa::Portable);
    for isa in Isa::ALL {
        assert_eq!(with_isa(&plan, isa), portable);
    }
    assert!(Isa::detect().is_available());
    assert!(Isa::available().any(|isa| isa == Isa::Portable));
    assert_eq!(Isa::Avx512.name(), "avx512");
}
