//! Identity: what a draw depends on, as a seed and a path, hashed to the key and counter of Philox.

use blake2b_simd::Params;

/// Separates these hashes from every other use of BLAKE2b, and from later versions of the rules.
const PERSONAL: &[u8; 15] = b"lazyparam-rng-1";

/// One component of a parameter's path: an attribute or key, or a place in a list.
///
/// The number 0 and the text `"0"` are different components.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A place in a sequence, or a slice of a stacked parameter.
    Index(i64),
    /// An attribute or key, compared byte by byte: no Unicode normalisation.
    Name(String),
}

impl From<i64> for Part {
    fn from(index: i64) -> Self {
        Self::Index(index)
    }
}

impl From<i32> for Part {
    fn from(index: i32) -> Self {
        Self::Index(i64::from(index))
    }
}

impl From<&str> for Part {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for Part {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

/// The identity of one parameter's draw: a seed and a path.
///
/// Equal keys give equal values; keys that differ anywhere give independent ones. Nothing else enters:
/// not the order of initialisation, not the thread, not what other parameters there are.
///
/// ```
/// use lazyparam_bytes::fill::{Key, Part};
///
/// let key = Key::new(42, ["layers".into(), Part::Index(3), "weight".into()]);
/// assert_ne!(key, Key::new(42, ["layers".into(), Part::Index(4), "weight".into()]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    seed: u128,
    path: Vec<Part>,
}

impl Key {
    /// The key of the parameter at this path of a model with this seed.
    pub fn new(seed: u128, path: impl IntoIterator<Item = Part>) -> Self {
        Self {
            seed,
            path: path.into_iter().collect(),
        }
    }

    /// A key by name (`rng_name`) instead of by path, so that the parameter may move in the model
    /// and keep its values. It is the key of the path whose one component is the name.
    pub fn named(seed: u128, rng_name: &str) -> Self {
        Self::new(seed, [rng_name.into()])
    }

    /// The key of something inside: a slice of a stacked parameter, say.
    #[must_use]
    pub fn child(&self, part: impl Into<Part>) -> Self {
        let mut child = self.clone();
        child.path.push(part.into());
        child
    }

    /// The seed.
    pub fn seed(&self) -> u128 {
        self.seed
    }

    /// The path.
    pub fn path(&self) -> &[Part] {
        &self.path
    }

    /// The 128 bits that select a random stream: BLAKE2b of an encoding that no two keys share.
    ///
    /// The message is the seed (two u64), the stream and the number of components (two u32), then for
    /// each component `"i"` and an i64, or `"s"`, a u64 length and UTF-8; all little-endian.
    pub fn id(&self, stream: Stream) -> Id {
        self.slice_id(stream, &[])
    }

    /// The id of the descendant whose path has these further indices.
    pub(crate) fn slice_id(&self, stream: Stream, further: &[i64]) -> Id {
        let mut hash = Params::new().hash_length(16).personal(PERSONAL).to_state();
        hash.update(&self.seed.to_le_bytes());
        hash.update(&(stream as u32).to_le_bytes());
        // A path of 2³² components would need more memory than any machine has.
        let components = self.path.len().saturating_add(further.len());
        hash.update(&u32::try_from(components).unwrap_or(u32::MAX).to_le_bytes());
        for part in &self.path {
            match part {
                Part::Index(index) => {
                    hash.update(b"i");
                    hash.update(&index.to_le_bytes());
                }
                Part::Name(name) => {
                    hash.update(b"s");
                    hash.update(&(name.len() as u64).to_le_bytes());
                    hash.update(name.as_bytes());
                }
            }
        }
        for index in further {
            hash.update(b"i");
            hash.update(&index.to_le_bytes());
        }
        let digest = hash.finalize();
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(digest.as_bytes().as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Id(words)
    }
}

/// Which of a parameter's independent random streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The values of element-wise draws.
    Values = 0,
    /// The vectors that an orthogonal matrix is made from.
    Orthogonal = 1,
    /// Which entries of a sparse matrix stay.
    Sparse = 2,
}

/// A random stream: two words of key and two high words of counter for Philox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(pub [u32; 4]);
