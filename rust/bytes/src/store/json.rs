//! Strict pieces for reading JSON: text, whole numbers, and values that are skipped but bounded.
//!
//! `serde_json` drives them as it parses, so nothing is built that is not kept, and two equal keys are
//! both seen.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A string, turned into a value by a function that may refuse it with a message.
pub(crate) struct Text<F> {
    pub(crate) expecting: &'static str,
    pub(crate) convert: F,
}

impl<'de, T, F: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Text<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<T, D::Error> {
        source.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.expecting)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.convert)(text).map_err(E::custom)
    }
}

/// A [`Text`] whose function captures nothing, so that it can be a constant.
pub(crate) type FixedText<T> = Text<fn(&str) -> Result<T, String>>;

/// A list of at most `limit` whole numbers.
pub(crate) struct Numbers {
    pub(crate) expecting: &'static str,
    pub(crate) limit: usize,
}

impl<'de> DeserializeSeed<'de> for Numbers {
    type Value = Vec<u64>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Vec<u64>, D::Error> {
        source.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Numbers {
    type Value = Vec<u64>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.expecting)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<u64>, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = items.next_element_seed(Whole)? {
            if numbers.len() == self.limit {
                return Err(A::Error::custom(format!(
                    "more than {} numbers, expected {}",
                    self.limit, self.expecting
                )));
            }
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// One whole number: `-1`, `1.0`, `true` and 2⁶⁴ are none.
struct Whole;

impl<'de> DeserializeSeed<'de> for Whole {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<u64, D::Error> {
        source.deserialize_u64(self)
    }
}

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a whole number from 0 to 2^64 - 1")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }
}

/// Any value, thrown away. Unlike serde's `IgnoredAny`, which `serde_json` skips without counting,
/// this one walks down and so meets the parser's limit on nesting.
pub(crate) struct Skip;

impl<'de> DeserializeSeed<'de> for Skip {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skip {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Skip)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while fields.next_key_seed(Skip)?.is_some() {
            fields.next_value_seed(Skip)?;
        }
        Ok(())
    }
}
