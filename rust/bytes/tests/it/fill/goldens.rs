//! Bits that must never change under the name `rng-1`.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::fill::{Id, Isa, Key, Part, Plan, Region, Stream, philox};
use sha2::{Digest, Sha256};

use super::support::{f32s, golden_key, part, standard_normal, with_isa};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// pytorch/pytorch#91944: the known answers that come with the Random123 library.
#[test]
fn philox_gives_the_known_answers_of_its_authors() {
    let ones = u32::MAX;
    let answers = [
        (
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        ),
        (
            [ones; 4],
            [ones; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        ),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, words) in answers {
        assert_eq!(philox(counter, key), words);
    }
}

#[test]
fn the_identity_of_a_path_is_the_hash_in_the_specification() {
    let id = golden_key().id(Stream::Values);
    assert_eq!(id, Id([0xcee0_59ed, 0xc5b8_be6b, 0x4586_6005, 0x3593_12b8]));
}

#[test]
fn single_elements_of_the_golden_draw_have_their_bits_up_to_an_index_of_2_to_the_40() {
    let golden = [
        (0, 0x3f90_63f9),
        (1, 0xbe90_6bd8),
        (16, 0xbea6_3b4e),
        (64, 0x3fb2_e5f8),
        (1 << 20, 0xbe45_f1a5),
        ((1 << 40) + 5, 0xbb66_fefd),
    ];
    for (index, bits) in golden {
        let region = Region::new([index], [1]);
        let shape = [1 << 41];
        let bytes = part(
            &standard_normal(),
            &golden_key(),
            &shape,
            Dtype::F32,
            &region,
        );
        assert_eq!(f32s(&bytes)[0].to_bits(), bits, "element {index}");
    }
}

/// pytorch/pytorch#176584, #143086, #158398, ml-explore/mlx#3568, rust-random/rand#894: values that
/// differ between machines.
#[test]
fn a_million_elements_have_the_golden_hash_with_every_instruction_set() {
    let golden = [
        (
            Dtype::F32,
            "c7176a96d8bcb0bdbb12054a902c05d18175de59e7c583ef0138f006c7356a12",
        ),
        (
            Dtype::BF16,
            "ac26670cabdb84ebc34d9a19ac59018f8c2274bd5de1c888bf634519b1941838",
        ),
    ];
    for (dtype, hash) in golden {
        let plan = Plan::new(&standard_normal(), &golden_key(), &[1 << 20], dtype).unwrap();
        for isa in Isa::available() {
            let bytes = with_isa(&plan, isa);
            assert_eq!(hex(&Sha256::digest(bytes)), hash, "{dtype:?} {isa:?}");
        }
    }
}

/// google/flax#3497, #1723: paths that collide.
#[test]
fn no_two_paths_are_encoded_alike() {
    let paths: Vec<Vec<Part>> = vec![
        vec![],
        vec!["".into()],
        vec!["".into(), "".into()],
        vec!["ab".into(), "cdef".into()],
        vec!["abc".into(), "def".into()],
        vec!["a.b".into()],
        vec!["a".into(), "b".into()],
        vec!["b".into(), "a".into()],
        vec!["0".into()],
        vec![Part::Index(0)],
        vec![Part::Index(-1)],
        vec!["é".into()],
        vec!["e\u{301}".into()],
    ];
    let mut ids: Vec<[u32; 4]> = Vec::new();
    for path in paths {
        for seed in [0, 1, 1 << 64] {
            for stream in [Stream::Values, Stream::Orthogonal, Stream::Sparse] {
                ids.push(Key::new(seed, path.clone()).id(stream).0);
            }
        }
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

/// jax-ml/jax#21405: children that commute.
#[test]
fn a_name_is_a_path_of_its_own_and_a_child_is_one_component_longer() {
    assert_eq!(Key::named(7, "w"), Key::new(7, ["w".into()]));
    let child = Key::named(7, "w").child(3);
    assert_eq!(child, Key::new(7, ["w".into(), Part::Index(3)]));
    assert_eq!(child.path().len(), 2);
    assert_eq!(child.seed(), 7);
    let nested = |first, second| Key::new(7, []).child(first).child(second);
    assert_ne!(
        nested("a", "b").id(Stream::Values),
        nested("b", "a").id(Stream::Values)
    );
}
