//! Headers that lie: each is refused with the cause named, or accepted for a stated reason.

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, OpenOptions};

use crate::support::{
    Folder, assert_refused, assert_tensor_refused, file, one_tensor, open, raw_file, refusal,
};

const GOOD: &str = r#""dtype":"U8","shape":[4],"data_offsets":[0,4]"#;

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

// Where the data lies.

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

// The text of the header.

#[test]
fn spaces_before_and_after_the_header_are_accepted() {
    for header in ["  {}", "{}   ", "\n{}\n", " {\"__metadata__\":{}} "] {
        assert!(open(&file(header, &[])).is_ok(), "{header:?}");
    }
}

#[test]
fn text_that_is_no_single_json_object_is_refused() {
    let headers = [
        "",
        " ",
        "[]",
        "{}{}",
        "{},",
        "nul",
        "{\"t\":}",
        "{\"t\":NaN}",
        "{,}",
        "\u{feff}{}",
        "{}\0",
        "{}\0\0\0\0\0\0",
        "{'t':1}",
        "{} // note",
        "\"text\"",
        "1",
    ];
    for header in headers {
        refusal(&file(header, &[]));
    }
    let trailing_comma = file(&format!("{{\"t\":{{{GOOD}}},}}"), &[0; 4]);
    assert_refused(&trailing_comma, "trailing comma");
}

#[test]
fn a_header_that_is_not_utf8_is_refused() {
    assert_refused(&raw_file(b"{\"\xff\":1}", &[]), "not UTF-8");
}

#[test]
fn a_lone_surrogate_in_a_name_is_refused() {
    refusal(&file(&format!("{{\"\\ud800\":{{{GOOD}}}}}"), &[0; 4]));
}

#[test]
fn odd_names_are_opaque_keys() {
    for name in [
        "",
        "a\\u0000b",
        "../../etc/x",
        "/",
        "\\\\",
        "ключ",
        "__metadata",
    ] {
        let bytes = file(&format!("{{\"{name}\":{{{GOOD}}}}}"), &[0; 4]);
        assert_eq!(open(&bytes).unwrap().entries().len(), 1, "{name}");
    }
}

#[test]
fn deep_nesting_is_refused_wherever_it_is() {
    for depth in [5_000, 200_000] {
        let nested = "[".repeat(depth) + &"]".repeat(depth);
        refusal(&file(&nested, &[]));
        refusal(&file(&format!("{{\"t\":{nested}}}"), &[]));
        let field = one_tensor(&format!("{GOOD},\"note\":{nested}"));
        assert_tensor_refused(&field, "t", "recursion limit");
        let objects = "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
        let field = one_tensor(&format!("{GOOD},\"note\":{objects}"));
        assert_tensor_refused(&field, "t", "recursion limit");
    }
}

#[test]
fn a_name_of_a_megabyte_does_not_fill_the_message() {
    let name = "x".repeat(1 << 20);
    let bytes = file(&format!("{{\"{name}\":1}}"), &[]);
    let (problem, tensor) = refusal(&bytes);
    assert!(problem.len() < 500, "{} bytes", problem.len());
    assert_eq!(tensor.unwrap().len(), 1 << 20);
}

// Metadata.

#[test]
fn metadata_null_or_empty_is_none() {
    for value in ["null", "{}"] {
        let checkpoint = open(&file(&format!("{{\"__metadata__\":{value}}}"), &[])).unwrap();
        assert!(checkpoint.metadata().is_empty());
    }
}

#[test]
fn a_metadata_value_that_is_no_string_is_refused_and_its_key_named() {
    for value in ["1", "null", "{}", "[\"a\"]", "true"] {
        let bytes = file(&format!("{{\"__metadata__\":{{\"format\":{value}}}}}"), &[]);
        assert_refused(&bytes, "\"format\"");
        assert_refused(&bytes, "expected a string");
    }
}

#[test]
fn metadata_that_is_no_object_is_refused() {
    for value in ["1", "[]", "\"text\"", "true"] {
        let bytes = file(&format!("{{\"__metadata__\":{value}}}"), &[]);
        assert_refused(&bytes, "object of strings");
    }
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
