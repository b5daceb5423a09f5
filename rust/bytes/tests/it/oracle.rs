//! The reference implementation as an oracle: same files accepted, same entries found.

use std::collections::{BTreeMap, HashMap};

use lazyparam_bytes::Dtype;
use lazyparam_bytes::store::{Checkpoint, StoreError, Tensor, write};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::support::{Folder, noise, open, raw_file};

/// A name, a dtype of the format and a shape whose elements fill whole bytes.
fn tensors() -> impl Strategy<Value = BTreeMap<String, (Dtype, Vec<usize>)>> {
    let storable: Vec<_> = Dtype::ALL
        .into_iter()
        .filter(|d| d.tag().is_some())
        .collect();
    let shape = prop::collection::vec(0_usize..5, 0..4).prop_map(|mut shape| {
        shape.push(4);
        shape
    });
    prop::collection::btree_map(".{0,6}", (select(storable), shape), 0..6)
}

fn oracle_dtype(dtype: Dtype) -> safetensors::Dtype {
    serde_json::from_str(&format!("{:?}", dtype.tag().unwrap())).unwrap()
}

fn stored_len(dtype: Dtype, shape: &[usize]) -> usize {
    dtype.stored_len(shape.iter().product()).unwrap()
}

/// The file that the reference writes for these tensors.
fn oracle_file(tensors: &BTreeMap<String, (Dtype, Vec<usize>)>, metadata: bool) -> Vec<u8> {
    let data = noise(4 * 125 * 8);
    let views = tensors.iter().map(|(name, (dtype, shape))| {
        let len = stored_len(*dtype, shape);
        let view = TensorView::new(oracle_dtype(*dtype), shape.clone(), &data[..len]);
        (name, view.unwrap())
    });
    let metadata = metadata.then(|| HashMap::from([("k".to_owned(), "v".to_owned())]));
    safetensors::serialize(views, metadata).unwrap()
}

/// Name, dtype, shape and place of each tensor, as each of the two readers tells them.
type Facts = BTreeMap<String, (String, Vec<usize>, usize, usize)>;

fn oracle_facts(bytes: &[u8]) -> Option<Facts> {
    SafeTensors::deserialize(bytes).ok()?;
    let (_, metadata) = SafeTensors::read_metadata(bytes).ok()?;
    let facts = metadata.tensors().into_iter().map(|(name, info)| {
        let dtype = info.dtype.to_string();
        let (begin, end) = info.data_offsets;
        (name, (dtype, info.shape.clone(), begin, end))
    });
    Some(facts.collect())
}

fn facts(checkpoint: &Checkpoint) -> Facts {
    let start = 8 + checkpoint.shards()[0].header_len();
    let facts = checkpoint.entries().iter().map(|entry| {
        let begin = (entry.begin - start) as usize;
        let dtype = entry.dtype.tag().unwrap().to_owned();
        let fact = (dtype, entry.shape.clone(), begin, begin + entry.len);
        (entry.name.to_string(), fact)
    });
    facts.collect()
}

/// The causes for which this crate refuses what the reference accepts.
const STRICTER: [&str; 7] = [
    "twice",
    "64 dimensions",
    "memory can address",
    "expected an object with",
    "recursion limit",
    "number out of range",
    "expected the name of a dtype",
];

/// Whatever one accepts the other accepts with the same entries, but for the stricter rules.
fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    match (open(bytes), oracle_facts(bytes)) {
        (Ok(ours), Some(theirs)) => prop_assert_eq!(facts(&ours), theirs),
        (Ok(ours), None) => prop_assert!(false, "only we accept {:?}", facts(&ours)),
        (Err(StoreError::Format { problem, .. }), Some(theirs)) => prop_assert!(
            STRICTER.iter().any(|cause| problem.contains(cause)),
            "only we refuse {theirs:?}: {problem}"
        ),
        (Err(StoreError::Format { .. }), None) => {}
        (Err(other), _) => prop_assert!(false, "not a problem of the contents: {other}"),
    }
    Ok(())
}

/// One change of the text of a header.
#[derive(Clone, Debug)]
enum Mutation {
    Replace(Index, u8),
    Insert(Index, &'static str),
    Delete(Index, usize),
    /// Copies a part of the text over another place.
    Splice(Index, Index, usize),
}

const FRAGMENTS: [&str; 24] = [
    "0",
    "1",
    "-",
    ".0",
    "e1",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\"",
    " ",
    "\\",
    "null",
    "true",
    "[0]",
    "\"x\":1,",
    "\"shape\":[4],",
    "\"a\":{}",
    "\"dtype\":\"U8\",",
    "\0",
    "\u{feff}",
    "18446744073709551616",
];

fn mutation() -> impl Strategy<Value = Mutation> {
    // Mostly characters that mean something in a header.
    let byte = prop_oneof![select(&b"0123456789[]{},:\"FIUB_ "[..]), any::<u8>()];
    prop_oneof![
        (any::<Index>(), byte).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (any::<Index>(), select(&FRAGMENTS[..])).prop_map(|(at, text)| Mutation::Insert(at, text)),
        (any::<Index>(), 1..4_usize).prop_map(|(at, len)| Mutation::Delete(at, len)),
        (any::<Index>(), any::<Index>(), 1..60_usize)
            .prop_map(|(from, to, len)| Mutation::Splice(from, to, len)),
    ]
}

fn mutate(text: &mut Vec<u8>, mutation: &Mutation) {
    if text.is_empty() {
        return;
    }
    let part = |at: &Index, len: usize, text: &[u8]| {
        let begin = at.index(text.len());
        begin..(begin + len).min(text.len())
    };
    match mutation {
        Mutation::Replace(at, byte) => *at.get_mut(text) = *byte,
        Mutation::Insert(at, fragment) => {
            let at = at.index(text.len());
            text.splice(at..at, fragment.bytes());
        }
        Mutation::Delete(at, len) => {
            text.drain(part(at, *len, text));
        }
        Mutation::Splice(from, to, len) => {
            let copy = text[part(from, *len, text)].to_vec();
            let to = part(to, *len, text);
            text.splice(to, copy);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_the_reference_writes_is_read(tensors in tensors(), metadata in any::<bool>()) {
        let bytes = oracle_file(&tensors, metadata);
        prop_assert!(open(&bytes).is_ok());
        compare(&bytes)?;
        let checkpoint = open(&bytes).unwrap();
        prop_assert_eq!(checkpoint.metadata().contains_key("k"), metadata);
    }

    #[test]
    fn what_is_written_the_reference_reads(tensors in tensors()) {
        let data = noise(4 * 125 * 8);
        let listed: Vec<_> = tensors
            .iter()
            .map(|(name, (dtype, shape))| Tensor {
                name,
                dtype: *dtype,
                shape,
                data: &data[..dtype.memory_len(shape.iter().product()).unwrap()],
            })
            .collect();
        let folder = Folder::new();
        write(&folder.at("m"), &BTreeMap::new(), &listed).unwrap();
        let bytes = std::fs::read(folder.at("m")).unwrap();
        compare(&bytes)?;
        let oracle = SafeTensors::deserialize(&bytes).unwrap();
        for tensor in listed.iter().filter(|tensor| !tensor.dtype.is_packed()) {
            prop_assert_eq!(oracle.tensor(tensor.name).unwrap().data(), tensor.data);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn damaged_headers_are_judged_as_the_reference_judges_them(
        tensors in tensors(),
        metadata in any::<bool>(),
        mutations in prop::collection::vec(mutation(), 1..4),
        data_change in -2_isize..3,
    ) {
        let bytes = oracle_file(&tensors, metadata);
        let header_len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header = bytes[8..8 + header_len].to_vec();
        mutations.iter().for_each(|mutation| mutate(&mut header, mutation));
        let mut data = bytes[8 + header_len..].to_vec();
        // Now and then the data has another length as well.
        let changed = data.len().saturating_add_signed(if data_change == 2 { 1 } else { 0 });
        data.resize(changed, 0);
        compare(&raw_file(&header, &data))?;
    }

    #[test]
    fn arbitrary_bytes_are_judged_as_the_reference_judges_them(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        compare(&bytes)?;
    }
}
