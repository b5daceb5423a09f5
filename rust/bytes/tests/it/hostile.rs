//! Header entries that lie: each is refused with the cause named, or accepted for a stated reason.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, OpenOptions};

use crate::support::{
    Folder, GOOD, assert_refused, assert_tensor_refused, file, one_tensor, open, refusal,
};

#[test]
fn the_helper_makes_a_good_file_from_good_parts() {
    let checkpoint = open(&one_tensor(GOOD)).unwrap();
    assert_eq!(checkpoint.entries().len(), 1);
    assert!(checkpoint.warnings().is_empty());
}

// Names that appear twice.

#[test]
fn a_name_twice_at_the_same_place_is_refused_and_both_are_named() {
    let bytes = file(
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
            "a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}"#,
        &[0; 4],
    );
    assert_tensor_refused(&bytes, "a", "twice");
    let (problem, _) = refusal(&bytes);
    assert!(
        problem.contains("F32") && problem.contains("I32"),
        "{problem}"
    );
}

#[test]
fn a_name_twice_at_two_places_is_refused_as_a_duplicate() {
    let bytes = file(
        r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
            "a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}"#,
        &[0; 4],
    );
    assert_tensor_refused(&bytes, "a", "twice");
}

#[test]
fn a_name_twice_in_two_spellings_is_refused() {
    let bytes = file(
        r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
            "\u0061":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#,
        &[0; 4],
    );
    assert_tensor_refused(&bytes, "a", "twice");
}

#[test]
fn a_field_twice_in_a_tensor_is_refused() {
    for field in [
        r#""dtype":"I8""#,
        r#""shape":[4]"#,
        r#""data_offsets":[0,4]"#,
    ] {
        assert_tensor_refused(
            &one_tensor(&format!("{GOOD},{field}")),
            "t",
            "duplicate field",
        );
    }
}

#[test]
fn metadata_twice_is_refused() {
    assert_refused(
        &file(r#"{"__metadata__":{},"__metadata__":{}}"#, &[]),
        "twice",
    );
}

#[test]
fn a_metadata_key_twice_is_refused_and_named() {
    let bytes = file(r#"{"__metadata__":{"k":"1","k":"2"}}"#, &[]);
    assert_refused(&bytes, "twice");
    assert_refused(&bytes, "\"k\"");
}

// Fields.

#[test]
fn an_unknown_field_is_accepted_with_a_warning() {
    let checkpoint = open(&one_tensor(&format!("{GOOD},\"note\":[1,{{\"a\":null}}]"))).unwrap();
    let [warning] = checkpoint.warnings() else {
        panic!("expected one warning: {:?}", checkpoint.warnings())
    };
    assert!(
        warning.contains("\"note\"") && warning.contains("\"t\""),
        "{warning}"
    );
}

#[test]
fn an_unknown_field_is_refused_when_fields_are_strict() {
    let folder = Folder::new();
    let path = folder.put("m", one_tensor(&format!("{GOOD},\"note\":1")));
    let options = OpenOptions {
        strict_fields: true,
        ..OpenOptions::default()
    };
    let error = Checkpoint::open_with(&path, options).unwrap_err();
    assert_eq!(error.tensor(), Some("t"));
    assert!(error.to_string().contains("\"note\""), "{error}");
}

#[test]
fn a_missing_field_is_refused_and_named() {
    for (entry, field) in [
        (r#""shape":[4],"data_offsets":[0,4]"#, "dtype"),
        (r#""dtype":"U8","data_offsets":[0,4]"#, "shape"),
        (r#""dtype":"U8","shape":[4]"#, "data_offsets"),
    ] {
        assert_tensor_refused(&one_tensor(entry), "t", field);
    }
}

#[test]
fn an_unknown_dtype_is_refused_and_named() {
    for tag in ["F33", "f32", "float32", "C128", ""] {
        let entry = format!(r#""dtype":"{tag}","shape":[1],"data_offsets":[0,4]"#);
        assert_tensor_refused(&one_tensor(&entry), "t", &format!("{tag:?}"));
    }
}

#[test]
fn a_tensor_that_is_no_object_is_refused() {
    for value in ["null", "1", "\"x\"", r#"["U8",[4],[0,4]]"#] {
        assert_tensor_refused(
            &file(&format!("{{\"t\":{value}}}"), &[0; 4]),
            "t",
            "expected",
        );
    }
}

// Numbers.

#[test]
fn a_dimension_that_is_no_whole_number_is_refused() {
    for dim in [
        "-1",
        "-0",
        "4.0",
        "4e0",
        "true",
        "null",
        "\"4\"",
        "[4]",
        "18446744073709551616",
    ] {
        let entry = format!(r#""dtype":"U8","shape":[{dim}],"data_offsets":[0,4]"#);
        assert_tensor_refused(&one_tensor(&entry), "t", "expected a whole number");
    }
}

#[test]
fn an_offset_that_is_no_whole_number_is_refused() {
    for offset in ["-1", "4.0", "true", "18446744073709551616"] {
        let entry = format!(r#""dtype":"U8","shape":[4],"data_offsets":[0,{offset}]"#);
        assert_tensor_refused(&one_tensor(&entry), "t", "expected a whole number");
    }
}

#[test]
fn offsets_other_than_two_are_refused() {
    for offsets in ["[]", "[0]", "[0,4,4]", "null", "{}"] {
        let entry = format!(r#""dtype":"U8","shape":[4],"data_offsets":{offsets}"#);
        assert_tensor_refused(&one_tensor(&entry), "t", "two offsets");
    }
}

#[test]
fn a_shape_whose_product_overflows_is_refused() {
    for shape in [
        "[4294967296,4294967296]",
        "[9223372036854775808]",
        "[18446744073709551615,2]",
    ] {
        let entry = format!(r#""dtype":"U8","shape":{shape},"data_offsets":[0,4]"#);
        assert_tensor_refused(&one_tensor(&entry), "t", "memory can address");
    }
}

#[test]
fn an_empty_shape_whose_other_dimensions_overflow_is_refused() {
    for shape in ["[4611686018427387904,0]", "[0,1099511627776,1099511627776]"] {
        let entry = format!(r#""dtype":"F32","shape":{shape},"data_offsets":[0,0]"#);
        let bytes = file(&format!("{{\"t\":{{{entry}}}}}"), &[]);
        assert_tensor_refused(&bytes, "t", "memory can address");
    }
}

#[test]
fn sixty_four_dimensions_are_accepted_and_sixty_five_are_not() {
    let entry = |rank: usize| {
        let shape = vec!["1"; rank - 1].join(",");
        one_tensor(&format!(
            r#""dtype":"U8","shape":[4,{shape}],"data_offsets":[0,4]"#
        ))
    };
    assert_eq!(open(&entry(64)).unwrap().entries()[0].shape.len(), 64);
    assert_tensor_refused(&entry(65), "t", "64 dimensions");
    assert_tensor_refused(&entry(10_000), "t", "64 dimensions");
}

// Values are not looked at.

#[test]
fn bool_bytes_other_than_zero_and_one_are_left_to_the_reader() {
    let bytes = file(
        r#"{"t":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}"#,
        &[0, 2, 255],
    );
    assert_eq!(
        crate::support::read(&open(&bytes).unwrap(), "t"),
        [0, 2, 255]
    );
}

#[test]
fn every_dtype_of_the_format_opens() {
    for dtype in Dtype::ALL {
        let Some(tag) = dtype.tag() else { continue };
        let len = dtype.stored_bits();
        let header = format!(r#"{{"t":{{"dtype":"{tag}","shape":[8],"data_offsets":[0,{len}]}}}}"#);
        let checkpoint = open(&file(&header, &vec![0; len])).unwrap();
        assert_eq!(checkpoint.entries()[0].dtype, dtype);
    }
}
