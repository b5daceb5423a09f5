//! The JSON index of a sharded checkpoint: which tensor lies in which file of the same folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use super::error::Problem;
use super::json::{Skip, Text};
use super::quote::quoted;

/// What an index says.
#[derive(Default)]
pub(crate) struct Index {
    /// File name by tensor name.
    pub(crate) weight_map: BTreeMap<String, String>,
    /// Bytes of all tensors, where the index states a whole number.
    pub(crate) total_size: Option<u64>,
}

impl Index {
    /// The files, each once, in order.
    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.weight_map.values().map(String::as_str).collect()
    }
}

/// Parses an index. Every file name in it is a plain one: no path in an index leaves its folder.
pub(crate) fn parse(text: &[u8]) -> Result<Index, Problem> {
    let mut index = Index::default();
    let mut has_map = false;
    let mut source = serde_json::Deserializer::from_slice(text);
    IndexSeed {
        index: &mut index,
        has_map: &mut has_map,
    }
    .deserialize(&mut source)
    .and_then(|()| source.end())
    .map_err(|error| Problem::new(format!("the index is not valid: {error}")))?;
    if !has_map {
        return Err(Problem::new(
            "it is a JSON text without a \"weight_map\", so not the index of a checkpoint",
        ));
    }
    for (tensor, file) in &index.weight_map {
        check_plain(file).map_err(|why| {
            Problem::of_tensor(
                tensor,
                format!(
                    "the index places tensor {} in {}, which {why}",
                    quoted(tensor),
                    quoted(file)
                ),
            )
        })?;
    }
    Ok(index)
}

/// Whether this is the name of a file in the index's own folder. A symbolic link of that name may
/// point anywhere: download caches are built of such links, and whoever can make one in the folder
/// could as well have put the data there.
fn check_plain(file: &str) -> Result<(), &'static str> {
    if file.is_empty() || file == "." || file == ".." {
        return Err("is no file name");
    }
    if file.contains(['/', '\\', '\0']) || (cfg!(windows) && file.contains(':')) {
        return Err("is not a plain file name, and no other is allowed");
    }
    Ok(())
}

struct IndexSeed<'a> {
    index: &'a mut Index,
    has_map: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for IndexSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IndexSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object with a \"weight_map\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = fields.next_key::<String>()? {
            match key.as_str() {
                "weight_map" => {
                    if std::mem::replace(self.has_map, true) {
                        return Err(A::Error::duplicate_field("weight_map"));
                    }
                    fields.next_value_seed(WeightMapSeed(&mut self.index.weight_map))?;
                }
                "metadata" => {
                    let metadata: Value = fields.next_value()?;
                    self.index.total_size = metadata.get("total_size").and_then(Value::as_u64);
                }
                _ => fields.next_value_seed(Skip)?,
            }
        }
        Ok(())
    }
}

struct WeightMapSeed<'a>(&'a mut BTreeMap<String, String>);

impl<'de> DeserializeSeed<'de> for WeightMapSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMapSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("\"weight_map\" to be an object of file names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(tensor) = entries.next_key::<String>()? {
            let file = entries.next_value_seed(Text {
                expecting: "the name of a file",
                convert: |text: &str| Ok(text.to_owned()),
            })?;
            if self.0.contains_key(&tensor) {
                let problem = format!("tensor {} appears twice in it", quoted(&tensor));
                return Err(A::Error::custom(problem));
            }
            self.0.insert(tensor, file);
        }
        Ok(())
    }
}
