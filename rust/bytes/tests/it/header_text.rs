//! The text of a header: what JSON is taken, which names and metadata.

use crate::support::{
    GOOD, assert_refused, assert_tensor_refused, file, one_tensor, open, raw_file, refusal,
};

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
