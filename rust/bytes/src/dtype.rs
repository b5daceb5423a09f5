//! Element types: their names, their sizes in a file and in memory, and their kind.

/// What sort of number an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// True or false.
    Bool,
    /// A whole number, signed or not.
    Int,
    /// A real floating-point number.
    Float,
    /// A complex number of two floating-point parts.
    Complex,
}

impl Kind {
    /// The lower-case English word: `"bool"`, `"int"`, `"float"` or `"complex"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Complex => "complex",
        }
    }
}

/// The type of one tensor element: the 22 that a `safetensors` file can hold, and `C128`, which
/// NumPy has and the format has not.
///
/// `F4` and the two `F6` are *packed* in a file (several elements share bytes) and take one byte per
/// element in memory, as in `ml_dtypes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// 4-bit float, 2 exponent bits and 1 mantissa bit, finite only.
    F4,
    /// 6-bit float, 2 exponent bits and 3 mantissa bits, finite only.
    F6E2M3,
    /// 6-bit float, 3 exponent bits and 2 mantissa bits, finite only.
    F6E3M2,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// 8-bit float, 5 exponent bits and 2 mantissa bits, with infinities.
    F8E5M2,
    /// 8-bit float, 4 exponent bits and 3 mantissa bits, no infinities (`e4m3fn`).
    F8E4M3,
    /// 8-bit power of two from 2⁻¹²⁷ to 2¹²⁷: no sign, no zero.
    F8E8M0,
    /// 8-bit float, 4 exponent bits and 3 mantissa bits, no infinities and no minus zero.
    F8E4M3Fnuz,
    /// 8-bit float, 5 exponent bits and 2 mantissa bits, no infinities and no minus zero.
    F8E5M2Fnuz,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// IEEE half precision.
    F16,
    /// The upper half of an `F32`.
    BF16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE single precision.
    F32,
    /// Complex number of two `F32`.
    C64,
    /// IEEE double precision.
    F64,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// Complex number of two `F64`; it cannot be stored in a file.
    C128,
}

/// One row of the table of dtypes.
struct Facts {
    tag: Option<&'static str>,
    name: &'static str,
    short: Option<&'static str>,
    stored_bits: usize,
    kind: Kind,
}

const fn facts(
    tag: &'static str,
    name: &'static str,
    short: &'static str,
    stored_bits: usize,
    kind: Kind,
) -> Facts {
    Facts {
        tag: some_unless_empty(tag),
        name,
        short: some_unless_empty(short),
        stored_bits,
        kind,
    }
}

const fn some_unless_empty(text: &'static str) -> Option<&'static str> {
    if text.is_empty() { None } else { Some(text) }
}

impl Dtype {
    /// Every dtype, narrowest first, in the order of the format's own list.
    pub const ALL: [Self; 23] = [
        Self::Bool,
        Self::F4,
        Self::F6E2M3,
        Self::F6E3M2,
        Self::U8,
        Self::I8,
        Self::F8E5M2,
        Self::F8E4M3,
        Self::F8E8M0,
        Self::F8E4M3Fnuz,
        Self::F8E5M2Fnuz,
        Self::I16,
        Self::U16,
        Self::F16,
        Self::BF16,
        Self::I32,
        Self::U32,
        Self::F32,
        Self::C64,
        Self::F64,
        Self::I64,
        Self::U64,
        Self::C128,
    ];

    const fn facts(self) -> Facts {
        use Kind::{Bool, Complex, Float, Int};
        match self {
            Self::Bool => facts("BOOL", "bool", "", 8, Bool),
            Self::F4 => facts("F4", "float4_e2m1fn", "", 4, Float),
            Self::F6E2M3 => facts("F6_E2M3", "float6_e2m3fn", "", 6, Float),
            Self::F6E3M2 => facts("F6_E3M2", "float6_e3m2fn", "", 6, Float),
            Self::U8 => facts("U8", "uint8", "u8", 8, Int),
            Self::I8 => facts("I8", "int8", "i8", 8, Int),
            Self::F8E5M2 => facts("F8_E5M2", "float8_e5m2", "", 8, Float),
            Self::F8E4M3 => facts("F8_E4M3", "float8_e4m3fn", "", 8, Float),
            Self::F8E8M0 => facts("F8_E8M0", "float8_e8m0fnu", "", 8, Float),
            Self::F8E4M3Fnuz => facts("F8_E4M3FNUZ", "float8_e4m3fnuz", "", 8, Float),
            Self::F8E5M2Fnuz => facts("F8_E5M2FNUZ", "float8_e5m2fnuz", "", 8, Float),
            Self::I16 => facts("I16", "int16", "i16", 16, Int),
            Self::U16 => facts("U16", "uint16", "u16", 16, Int),
            Self::F16 => facts("F16", "float16", "f16", 16, Float),
            Self::BF16 => facts("BF16", "bfloat16", "bf16", 16, Float),
            Self::I32 => facts("I32", "int32", "i32", 32, Int),
            Self::U32 => facts("U32", "uint32", "u32", 32, Int),
            Self::F32 => facts("F32", "float32", "f32", 32, Float),
            Self::C64 => facts("C64", "complex64", "c64", 64, Complex),
            Self::F64 => facts("F64", "float64", "f64", 64, Float),
            Self::I64 => facts("I64", "int64", "i64", 64, Int),
            Self::U64 => facts("U64", "uint64", "u64", 64, Int),
            Self::C128 => facts("", "complex128", "c128", 128, Complex),
        }
    }

    /// The spelling in a `safetensors` header, such as `"F32"` or `"F8_E4M3"`; `None` for `C128`,
    /// which no file can hold.
    pub const fn tag(self) -> Option<&'static str> {
        self.facts().tag
    }

    /// The dtype with this header spelling.
    pub fn from_tag(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.tag() == Some(tag))
    }

    /// The spelling of NumPy and `ml_dtypes`, such as `"float32"` or `"float8_e4m3fn"`.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The dtype with this NumPy name, or with this short name of the form `"f32"`, `"bf16"`,
    /// `"i64"`, `"u8"`, `"c64"`.
    ///
    /// NumPy's own one-letter codes (where `"f8"` is 8 *bytes*) and C's names (`"double"`) are not
    /// accepted: they read differently to different people.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name || dtype.facts().short == Some(name))
    }

    /// Bits per element in a file: 4, 6, 8, 16, 32, 64 (or 128 for `C128`).
    pub const fn stored_bits(self) -> usize {
        self.facts().stored_bits
    }

    /// Bytes per element in memory; 1 for the packed dtypes.
    pub const fn size(self) -> usize {
        self.stored_bits().div_ceil(8)
    }

    /// Bool, integer, float or complex.
    pub const fn kind(self) -> Kind {
        self.facts().kind
    }

    /// Whether several elements share bytes in a file, so that reading has to unpack them.
    pub const fn is_packed(self) -> bool {
        self.stored_bits() < 8
    }

    /// Bytes that this many elements take in a file; `None` when that overflows or is not a whole
    /// number of bytes.
    pub const fn stored_len(self, elements: usize) -> Option<usize> {
        if !self.is_packed() {
            return elements.checked_mul(self.size());
        }
        match elements.checked_mul(self.stored_bits()) {
            Some(bits) if bits % 8 == 0 => Some(bits / 8),
            _ => None,
        }
    }

    /// Bytes that this many elements take in memory; `None` when that overflows.
    pub const fn memory_len(self, elements: usize) -> Option<usize> {
        elements.checked_mul(self.size())
    }

    /// Whether every value of `self` is exactly a value of `other` of the same kind, so that the
    /// cast loses nothing. Minus zero, infinities and NaN count as values.
    pub fn widens_to(self, other: Self) -> bool {
        crate::widen::is_lossless(self, other)
    }
}
