//! Where tensors lie: no holes, no overlaps, nothing beyond the last one.

use lazyparam_bytes::store::{Checkpoint, OpenOptions};

use crate::support::{
    Folder, GOOD, assert_refused, assert_tensor_refused, file, one_tensor, open, refusal,
};

#[test]
fn a_hole_before_or_between_tensors_is_refused() {
    let first = file(
        r#"{"t":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}"#,
        &[0; 4],
    );
    assert_tensor_refused(&first, "t", "instead of 0");
    let between = file(
        r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
            "t":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}"#,
        &[0; 4],
    );
    assert_tensor_refused(&between, "t", "leaves a hole");
}

#[test]
fn overlapping_tensors_are_refused() {
    for second in ["[0,4]", "[2,6]", "[0,5]"] {
        let len = if second == "[0,5]" { 5 } else { 4 };
        let header = format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},
                "t":{{"dtype":"U8","shape":[{len}],"data_offsets":{second}}}}}"#
        );
        assert_tensor_refused(&file(&header, &[0; 6]), "t", "overlaps");
    }
}

#[test]
fn many_tensors_on_one_range_are_refused() {
    let entries: Vec<_> = (0..10).map(|i| format!("\"t{i}\":{{{GOOD}}}")).collect();
    let bytes = file(&format!("{{{}}}", entries.join(",")), &[0; 4]);
    assert_refused(&bytes, "overlaps");
}

#[test]
fn data_that_ends_before_it_begins_is_refused() {
    let bytes = one_tensor(r#""dtype":"U8","shape":[4],"data_offsets":[4,0]"#);
    assert_tensor_refused(&bytes, "t", "before it begins");
}

#[test]
fn a_size_other_than_the_shape_says_is_refused() {
    let bytes = one_tensor(r#""dtype":"U8","shape":[5],"data_offsets":[0,4]"#);
    assert_tensor_refused(&bytes, "t", "needs 5 bytes");
}

#[test]
fn offsets_beyond_any_file_are_refused() {
    let bytes = one_tensor(r#""dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]"#);
    assert_tensor_refused(&bytes, "t", "needs 4 bytes");
}

#[test]
fn an_odd_number_of_f4_is_refused() {
    let bytes = one_tensor(r#""dtype":"F4","shape":[3],"data_offsets":[0,2]"#);
    assert_tensor_refused(&bytes, "t", "whole bytes");
}

#[test]
fn empty_tensors_may_share_an_offset_with_another() {
    let bytes = file(
        r#"{"full":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
            "none":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},
            "last":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}"#,
        &[0; 4],
    );
    assert_eq!(open(&bytes).unwrap().entries().len(), 3);
}

#[test]
fn a_trailing_byte_is_refused_unless_allowed() {
    let mut bytes = one_tensor(GOOD);
    bytes.push(0);
    assert_refused(&bytes, "1 bytes follow");
    let folder = Folder::new();
    let options = OpenOptions {
        allow_trailing: true,
        ..OpenOptions::default()
    };
    assert!(Checkpoint::open_with(&folder.put("m", &bytes), options).is_ok());
}

#[test]
fn an_appended_archive_is_refused() {
    let bytes = [&one_tensor(GOOD)[..], b"PK\x03\x04 and so on"].concat();
    assert_refused(&bytes, "follow the last tensor");
}

#[test]
fn a_file_cut_short_is_refused_with_both_lengths() {
    let bytes = one_tensor(GOOD);
    let (problem, _) = refusal(&bytes[..bytes.len() - 2]);
    assert!(
        problem.contains("4 bytes of data, and 2 are there"),
        "{problem}"
    );
}
