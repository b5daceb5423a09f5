//! `Scheme`: how numbers are quantised, as a value.

use super::error::QuantError;
use crate::dtype::Dtype;

/// How one element is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// Eight bits, symmetric: -127 to 127.
    Q8S,
    /// Four bits, symmetric: -7 to 7, two in a byte.
    Q4S,
    /// Four bits, by a table of the quantiles of a normal distribution, two in a byte.
    Nf4,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Q8S, Self::Q4S, Self::Nf4];

    /// `"q8s"`, `"q4s"` or `"nf4"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q8S => "q8s",
            Self::Q4S => "q4s",
            Self::Nf4 => "nf4",
        }
    }

    /// Elements in a byte.
    pub(crate) const fn per_byte(self) -> usize {
        match self {
            Self::Q8S => 1,
            Self::Q4S | Self::Nf4 => 2,
        }
    }

    /// The integer that the largest magnitude of a block becomes, for codes that are multiples of a scale.
    pub(crate) const fn limit(self) -> f32 {
        match self {
            Self::Q8S => 127.0,
            Self::Q4S => 7.0,
            Self::Nf4 => 1.0,
        }
    }
}

/// Which elements share a scale, how they are written, and what the scale is stored in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scheme {
    pub(crate) code: Code,
    /// Extents of a block along the last dimensions; `None` is the whole tensor.
    pub(crate) block: Option<Vec<usize>>,
    pub(crate) scale: Dtype,
}

impl Scheme {
    /// The sizes of blocks that NF4 has.
    pub const NF4_BLOCKS: [usize; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];

    /// A scheme of this kind. `block` has an extent for each of the last dimensions (those it does not reach have
    /// extent 1); `None` is one block for the whole tensor. `scale` is what scales are stored in. NF4 has blocks of
    /// so many elements in C order, whatever the shape, and scales of `f32`.
    pub fn new(code: Code, block: Option<Vec<usize>>, scale: Dtype) -> Result<Self, QuantError> {
        if !matches!(scale, Dtype::F32 | Dtype::F16 | Dtype::BF16)
            || (code == Code::Nf4 && scale != Dtype::F32)
        {
            return Err(QuantError::ScaleDtype(scale));
        }
        match (code, &block) {
            (Code::Nf4, Some(block)) if matches!(**block, [size] if Self::NF4_BLOCKS.contains(&size)) =>
                {}
            (Code::Nf4, block) => {
                return Err(QuantError::BlockSize(block.clone().unwrap_or_default()));
            }
            (Code::Q8S | Code::Q4S, Some(block)) if block.is_empty() || block.contains(&0) => {
                return Err(QuantError::EmptyBlock(block.clone()));
            }
            (Code::Q8S | Code::Q4S, _) => {}
        }
        Ok(Self { code, block, scale })
    }

    /// The scheme whose code has this name; see [`Scheme::new`].
    pub fn from_parts(
        name: &str,
        block: Option<Vec<usize>>,
        scale: Dtype,
    ) -> Result<Self, QuantError> {
        let code = Code::ALL
            .into_iter()
            .find(|code| code.name() == name)
            .ok_or_else(|| QuantError::Name(name.to_owned()))?;
        Self::new(code, block, scale)
    }
}
