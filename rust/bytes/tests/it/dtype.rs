//! Names, sizes and lossless casts of dtypes.

use std::collections::HashSet;

use lazyparam_bytes::{Dtype, Kind};

#[test]
fn every_dtype_is_listed_once() {
    let distinct: HashSet<_> = Dtype::ALL.into_iter().collect();
    assert_eq!(distinct.len(), 23);
}

#[test]
fn a_tag_leads_back_to_its_dtype() {
    for dtype in Dtype::ALL {
        if let Some(tag) = dtype.tag() {
            assert_eq!(Dtype::from_tag(tag), Some(dtype));
        }
    }
    assert_eq!(Dtype::from_tag("float32"), None);
    assert_eq!(Dtype::from_tag(""), None);
}

#[test]
fn only_complex128_cannot_be_stored() {
    let without: Vec<_> = Dtype::ALL
        .into_iter()
        .filter(|d| d.tag().is_none())
        .collect();
    assert_eq!(without, [Dtype::C128]);
}

#[test]
fn a_name_leads_back_to_its_dtype() {
    for dtype in Dtype::ALL {
        assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
    }
}

#[test]
fn short_names_are_accepted() {
    let pairs = [
        ("f32", Dtype::F32),
        ("f16", Dtype::F16),
        ("bf16", Dtype::BF16),
        ("f64", Dtype::F64),
        ("i64", Dtype::I64),
        ("u8", Dtype::U8),
        ("c64", Dtype::C64),
        ("c128", Dtype::C128),
    ];
    for (name, dtype) in pairs {
        assert_eq!(Dtype::from_name(name), Some(dtype), "{name}");
    }
}

#[test]
fn ambiguous_names_are_not_accepted() {
    for name in [
        "f8", "f4", "i1", "float", "double", "half", "int", "", "F32", "b",
    ] {
        assert_eq!(Dtype::from_name(name), None, "{name}");
    }
}

#[test]
fn names_are_spelled_as_numpy_and_ml_dtypes_spell_them() {
    assert_eq!(Dtype::Bool.name(), "bool");
    assert_eq!(Dtype::BF16.name(), "bfloat16");
    assert_eq!(Dtype::F8E4M3.name(), "float8_e4m3fn");
    assert_eq!(Dtype::F8E8M0.name(), "float8_e8m0fnu");
    assert_eq!(Dtype::F8E5M2Fnuz.name(), "float8_e5m2fnuz");
    assert_eq!(Dtype::F4.name(), "float4_e2m1fn");
}

#[test]
fn sizes_agree_with_the_reference() {
    for dtype in Dtype::ALL {
        let Some(tag) = dtype.tag() else { continue };
        let reference: safetensors::Dtype = serde_json::from_str(&format!("{tag:?}")).unwrap();
        assert_eq!(dtype.stored_bits(), reference.bitsize(), "{tag}");
    }
}

#[test]
fn packed_dtypes_take_a_byte_per_element_in_memory() {
    for dtype in [Dtype::F4, Dtype::F6E2M3, Dtype::F6E3M2] {
        assert!(dtype.is_packed());
        assert_eq!(dtype.size(), 1);
        assert_eq!(dtype.memory_len(8), Some(8));
    }
    assert_eq!(Dtype::F4.stored_len(8), Some(4));
    assert_eq!(Dtype::F6E2M3.stored_len(8), Some(6));
    assert!(!Dtype::U8.is_packed());
}

#[test]
fn elements_that_do_not_fill_whole_bytes_have_no_stored_length() {
    assert_eq!(Dtype::F4.stored_len(3), None);
    assert_eq!(Dtype::F6E3M2.stored_len(2), None);
    assert_eq!(Dtype::F6E3M2.stored_len(4), Some(3));
}

#[test]
fn lengths_that_overflow_are_none() {
    assert_eq!(Dtype::F32.stored_len(usize::MAX / 2), None);
    assert_eq!(Dtype::F32.memory_len(usize::MAX / 2), None);
    assert_eq!(Dtype::F4.stored_len(usize::MAX / 2), None);
}

#[test]
fn kinds_have_words() {
    let words = [
        (Dtype::Bool, Kind::Bool, "bool"),
        (Dtype::U16, Kind::Int, "int"),
        (Dtype::F4, Kind::Float, "float"),
        (Dtype::C128, Kind::Complex, "complex"),
    ];
    for (dtype, kind, word) in words {
        assert_eq!(dtype.kind(), kind);
        assert_eq!(kind.as_str(), word);
    }
}

fn widens(from: &str, to: &str) -> bool {
    let dtype = |name| Dtype::from_name(name).unwrap();
    dtype(from).widens_to(dtype(to))
}

#[test]
fn every_dtype_widens_to_itself() {
    for dtype in Dtype::ALL {
        assert!(dtype.widens_to(dtype), "{dtype:?}");
    }
}

#[test]
fn no_dtype_widens_to_another_kind() {
    for from in Dtype::ALL {
        for to in Dtype::ALL {
            assert!(!from.widens_to(to) || from.kind() == to.kind());
        }
    }
}

#[test]
fn integers_widen_where_the_sign_allows() {
    assert!(widens("int8", "int64"));
    assert!(widens("uint8", "int16"));
    assert!(widens("uint32", "uint64"));
    assert!(!widens("uint8", "int8"));
    assert!(!widens("int8", "uint64"));
    assert!(!widens("int64", "int32"));
    assert!(!widens("uint64", "int64"));
}

#[test]
fn sixteen_bit_floats_widen_to_wider_ones_but_not_to_each_other() {
    for narrow in ["float16", "bfloat16"] {
        assert!(widens(narrow, "float32"));
        assert!(widens(narrow, "float64"));
    }
    assert!(!widens("float16", "bfloat16"));
    assert!(!widens("bfloat16", "float16"));
    assert!(!widens("float64", "float32"));
}

#[test]
fn eight_bit_floats_widen_to_every_float_that_holds_their_range() {
    for narrow in [
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    ] {
        for wide in ["float16", "bfloat16", "float32", "float64"] {
            assert!(widens(narrow, wide), "{narrow} to {wide}");
        }
    }
    assert!(!widens("float8_e4m3fn", "float8_e5m2"));
    assert!(!widens("float8_e5m2", "float8_e4m3fn"));
    assert!(!widens("float8_e4m3fn", "float8_e4m3fnuz"));
    assert!(!widens("float8_e4m3fnuz", "float8_e4m3fn"));
}

#[test]
fn powers_of_two_fit_bfloat16_but_not_float16() {
    assert!(widens("float8_e8m0fnu", "bfloat16"));
    assert!(widens("float8_e8m0fnu", "float32"));
    assert!(!widens("float8_e8m0fnu", "float16"));
    assert!(!widens("float4_e2m1fn", "float8_e8m0fnu"));
}

#[test]
fn packed_floats_widen_unless_minus_zero_would_be_lost() {
    assert!(widens("float4_e2m1fn", "float6_e2m3fn"));
    assert!(widens("float4_e2m1fn", "float6_e3m2fn"));
    assert!(widens("float4_e2m1fn", "float8_e4m3fn"));
    assert!(widens("float6_e2m3fn", "float8_e4m3fn"));
    assert!(widens("float6_e3m2fn", "float8_e5m2"));
    assert!(!widens("float6_e2m3fn", "float8_e5m2"));
    assert!(!widens("float4_e2m1fn", "float8_e4m3fnuz"));
}

#[test]
fn complex_widens_to_double_precision() {
    assert!(widens("complex64", "complex128"));
    assert!(!widens("complex128", "complex64"));
}

/// All values of a small float, decoded from its bits, independently of the table of value sets.
fn values(exponent_bits: u32, mantissa_bits: u32, bias: i32) -> Vec<f64> {
    let mantissas = 1 << mantissa_bits;
    (0..1_u32 << (exponent_bits + mantissa_bits))
        .map(|bits| {
            let (exponent, mantissa) = (bits / mantissas, f64::from(bits % mantissas));
            let fraction = mantissa / f64::from(mantissas);
            if exponent == 0 {
                fraction * 2_f64.powi(1 - bias)
            } else {
                (1.0 + fraction) * 2_f64.powi(exponent as i32 - bias)
            }
        })
        .collect()
}

#[test]
fn the_answers_agree_with_the_values_themselves() {
    // The top of each range is what the type's specials leave of it.
    let upto = |mut all: Vec<f64>, top: f64| {
        all.retain(|&value| value <= top);
        all
    };
    let finite = [
        ("float4_e2m1fn", upto(values(2, 1, 1), 6.0)),
        ("float6_e2m3fn", upto(values(2, 3, 1), 7.5)),
        ("float6_e3m2fn", upto(values(3, 2, 3), 28.0)),
        ("float8_e4m3fn", upto(values(4, 3, 7), 448.0)),
        ("float8_e5m2", upto(values(5, 2, 15), 57344.0)),
        ("float8_e4m3fnuz", upto(values(4, 3, 8), 240.0)),
        ("float8_e5m2fnuz", upto(values(5, 2, 16), 57344.0)),
        ("float16", upto(values(5, 10, 15), 65504.0)),
        ("bfloat16", upto(values(8, 7, 127), 3.39e38)),
    ];
    // Infinities, NaN and minus zero, as bits.
    let specials = |name: &str| match name {
        "float8_e5m2" | "float16" | "bfloat16" => 0b111,
        "float8_e4m3fn" => 0b011,
        "float8_e4m3fnuz" | "float8_e5m2fnuz" => 0b010,
        _ => 0b001,
    };
    for (from, inner) in &finite {
        for (to, outer) in &finite {
            let fits = inner.iter().all(|value| outer.contains(value))
                && specials(from) & !specials(to) == 0;
            assert_eq!(widens(from, to), fits, "{from} to {to}");
        }
    }
}
