//! The JSON header of a `safetensors` file, read strictly.
//!
//! Stricter than the reference on purpose: a name or field that appears twice, a rank above 64, a
//! field list in place of an object are refused, because two readers could understand them
//! differently. Names are opaque keys: any string will do, and none is ever used as a path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

use super::error::Problem;
use super::json::{FixedText, Numbers, Skip, Text};
use super::quote::quoted;
use crate::dtype::Dtype;
use crate::shape::MAX_RANK;

/// The key that no tensor may have.
pub(crate) const METADATA: &str = "__metadata__";

/// What a header says, tensors in the order of its text.
#[derive(Default)]
pub(crate) struct Header {
    pub(crate) tensors: Vec<RawTensor>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// How many fields the format does not know, and the first of them.
    pub(crate) unknown_fields: usize,
    pub(crate) first_unknown: Option<String>,
}

/// One tensor as the header states it; the offsets count from the start of the data.
pub(crate) struct RawTensor {
    pub(crate) name: Arc<str>,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// Where in the header the parser is, for the message should it stop there.
enum Place {
    Top,
    Tensor(Arc<str>),
    Metadata(String),
}

/// Parses the text of a header. With `strict_fields` an unknown field of a tensor is refused, else
/// counted.
pub(crate) fn parse(bytes: &[u8], strict_fields: bool) -> Result<Header, Problem> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Problem::new(format!("its header is not UTF-8: {error}")))?;
    let mut parser = Parser {
        header: Header::default(),
        place: Place::Top,
        has_metadata: false,
        strict_fields,
    };
    let mut source = serde_json::Deserializer::from_str(text);
    (&mut parser)
        .deserialize(&mut source)
        .and_then(|()| source.end())
        .map_err(|error| parser.problem(&error))?;
    Ok(parser.header)
}

struct Parser {
    header: Header,
    place: Place,
    has_metadata: bool,
    strict_fields: bool,
}

impl Parser {
    fn problem(&self, error: &serde_json::Error) -> Problem {
        match &self.place {
            Place::Top => Problem::new(format!("its header is not valid: {error}")),
            Place::Tensor(name) => Problem::of_tensor(
                name,
                format!(
                    "the header entry of tensor {} is not valid: {error}",
                    quoted(name)
                ),
            ),
            Place::Metadata(key) => Problem::new(format!(
                "the metadata entry {} is not valid: {error}",
                quoted(key)
            )),
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Parser {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Parser {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(name) = entries.next_key_seed(Text {
            expecting: "a tensor name",
            convert: |name: &str| Ok(Arc::<str>::from(name)),
        })? {
            if &*name == METADATA {
                if std::mem::replace(&mut self.has_metadata, true) {
                    return Err(A::Error::custom("\"__metadata__\" appears twice"));
                }
                entries.next_value_seed(MetadataSeed(self))?;
            } else {
                self.place = Place::Tensor(name.clone());
                entries.next_value_seed(TensorSeed { parser: self, name })?;
            }
            self.place = Place::Top;
        }
        Ok(())
    }
}

/// The value of `__metadata__`: an object of strings, or null for none.
struct MetadataSeed<'a>(&'a mut Parser);

impl<'de> DeserializeSeed<'de> for MetadataSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("\"__metadata__\" to be an object of strings")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let parser = self.0;
        while let Some(key) = entries.next_key::<String>()? {
            parser.place = Place::Metadata(key.clone());
            let value = entries.next_value_seed(Text {
                expecting: "a string",
                convert: |text: &str| Ok(text.to_owned()),
            })?;
            if parser.header.metadata.insert(key, value).is_some() {
                return Err(A::Error::custom("the key appears twice"));
            }
            parser.place = Place::Top;
        }
        Ok(())
    }
}

/// The three fields of a tensor.
enum Field {
    Dtype,
    Shape,
    Offsets,
    Unknown(String),
}

struct TensorSeed<'a> {
    parser: &'a mut Parser,
    name: Arc<str>,
}

impl<'de> DeserializeSeed<'de> for TensorSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TensorSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object with \"dtype\", \"shape\" and \"data_offsets\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(field) = fields.next_key_seed(FIELD)? {
            match field {
                Field::Dtype => once(&mut dtype, fields.next_value_seed(DTYPE)?, "dtype")?,
                Field::Shape => once(&mut shape, fields.next_value_seed(SHAPE)?, "shape")?,
                Field::Offsets => {
                    once(
                        &mut offsets,
                        fields.next_value_seed(OFFSETS)?,
                        "data_offsets",
                    )?;
                }
                Field::Unknown(field) => {
                    self.parser.meet_unknown(&self.name, &field)?;
                    fields.next_value_seed(Skip)?;
                }
            }
        }
        let offsets = offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?;
        let [begin, end] = offsets[..] else {
            return Err(A::Error::invalid_length(offsets.len(), &OFFSETS.expecting));
        };
        self.parser.header.tensors.push(RawTensor {
            name: self.name,
            dtype: dtype.ok_or_else(|| A::Error::missing_field("dtype"))?,
            shape: whole_dims(shape.ok_or_else(|| A::Error::missing_field("shape"))?)?,
            begin,
            end,
        });
        Ok(())
    }
}

const FIELD: FixedText<Field> = FixedText {
    expecting: "a field name",
    convert: |name| {
        Ok(match name {
            "dtype" => Field::Dtype,
            "shape" => Field::Shape,
            "data_offsets" => Field::Offsets,
            other => Field::Unknown(other.to_owned()),
        })
    },
};

const DTYPE: FixedText<Dtype> = FixedText {
    expecting: "the name of a dtype",
    convert: |tag| {
        Dtype::from_tag(tag).ok_or_else(|| format!("the dtype {} is unknown", quoted(tag)))
    },
};

const SHAPE: Numbers = Numbers {
    expecting: "a shape of at most 64 dimensions",
    limit: MAX_RANK,
};

const OFFSETS: Numbers = Numbers {
    expecting: "the two offsets of the data, begin and end",
    limit: 2,
};

/// Keeps the value of a field, unless the field was there before.
fn once<T, E: Error>(slot: &mut Option<T>, value: T, field: &'static str) -> Result<(), E> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(field)),
    }
}

/// Dimensions as this machine counts; only a 32-bit one can refuse here.
fn whole_dims<E: Error>(dims: Vec<u64>) -> Result<Vec<usize>, E> {
    dims.into_iter()
        .map(|dim| usize::try_from(dim).map_err(E::custom))
        .collect()
}

impl Parser {
    fn meet_unknown<E: Error>(&mut self, tensor: &str, field: &str) -> Result<(), E> {
        let field = quoted(field);
        if self.strict_fields {
            return Err(E::custom(format!("the field {field} is unknown")));
        }
        self.header.unknown_fields += 1;
        self.header
            .first_unknown
            .get_or_insert_with(|| format!("{field} of tensor {}", quoted(tensor)));
        Ok(())
    }
}
