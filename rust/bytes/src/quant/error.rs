//! What can be wrong with a scheme, or with what is to be quantised by it, as whole sentences.

use crate::dtype::Dtype;
use crate::fill::tuple;

/// A scheme that cannot be used for this tensor, or numbers that cannot be quantised.
///
/// The message says what is wrong, what was expected and found, and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.parts().sentence())]
pub enum QuantError {
    /// Elements of this dtype are not quantised.
    Elements(Dtype),
    /// Scales are not stored in this dtype.
    ScaleDtype(Dtype),
    /// No scheme has this name.
    Name(String),
    /// NF4 does not have blocks like these.
    BlockSize(Vec<usize>),
    /// A block without elements, or without dimensions.
    EmptyBlock(Vec<usize>),
    /// A block that has more dimensions than the tensor, or does not divide it.
    Block {
        /// Extents of a block, as given.
        block: Vec<usize>,
        /// Extents of the tensor.
        shape: Vec<usize>,
    },
    /// A shape with more elements than memory can have.
    Shape(Vec<usize>),
    /// An element that is NaN or infinite, or becomes so as an `f32`: the first one.
    NotFinite {
        /// Where it is.
        index: Vec<usize>,
        /// What it is.
        value: f64,
    },
    /// A largest magnitude that is none: negative, NaN or infinite.
    Absmax {
        /// Of which block.
        block: usize,
        /// What was given.
        value: f32,
    },
    /// A scale that its dtype cannot hold.
    ScaleTooLarge {
        /// Of which block, the first one.
        block: usize,
        /// The scale.
        scale: f32,
        /// What it would be stored in.
        dtype: Dtype,
    },
    /// An array of another length than the plan says.
    Length {
        /// Which one.
        what: &'static str,
        /// Its length by the plan, in bytes.
        expected: usize,
        /// Its length.
        found: usize,
    },
    /// Whoever wanted it has said that it is not needed any more.
    Stopped,
}

/// What an error consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// What is wrong: a clause without a full stop.
    pub problem: String,
    /// What was expected, where there is something to compare.
    pub expected: Option<String>,
    /// What was found instead.
    pub found: Option<String>,
    /// What to do about it: a sentence without the full stop.
    pub remedy: Option<&'static str>,
}

impl QuantError {
    /// The parts that the message is put together from.
    pub fn parts(&self) -> Parts {
        match self {
            Self::Elements(dtype) => Parts::new("only floats are quantised")
                .expecting("float32, float16, bfloat16 or float64")
                .finding(dtype.name()),
            Self::ScaleDtype(dtype) => Parts::new("scales are not stored in this dtype")
                .expecting("float32, float16 or bfloat16")
                .finding(dtype.name()),
            Self::Name(name) => Parts::new("there is no such scheme")
                .expecting("q8s, q4s or nf4")
                .finding(name),
            Self::BlockSize(block) => Parts::new("NF4 does not have blocks of this size")
                .expecting("32, 64, 128, 256, 512, 1024, 2048 or 4096 elements")
                .finding(tuple(block)),
            Self::EmptyBlock(block) => Parts::new("a block has no elements")
                .expecting("an extent of 1 or more for each of the last dimensions")
                .finding(tuple(block))
                .curing("Give no block at all to have one scale for the whole tensor"),
            Self::Block { block, shape } => Parts::new("the blocks do not divide the tensor")
                .expecting("an extent for each of the last dimensions, or fewer, that divides it")
                .finding(format!("blocks {} of {}", tuple(block), tuple(shape)))
                .curing(
                    "Use one scale for the whole tensor, or nf4, whose last block may be short",
                ),
            Self::Shape(shape) => {
                Parts::new("the tensor has too many elements").finding(tuple(shape))
            }
            Self::NotFinite { index, value } => Parts::new("not every element is finite")
                .expecting("numbers that float32 has")
                .finding(format!("{value:?} at {}", tuple(index)))
                .curing("Find out where it comes from: one such number would spoil its block"),
            Self::Absmax { block, value } => Parts::new("a largest magnitude is none")
                .expecting("a finite number, 0 or more")
                .finding(format!("{value:?} for block {block}")),
            Self::ScaleTooLarge {
                block,
                scale,
                dtype,
            } => Parts::new("a scale does not fit its dtype")
                .expecting(format!("scales that {} has", dtype.name()))
                .finding(format!("{scale:?} of block {block}"))
                .curing("Store scales as float32 or bfloat16"),
            Self::Length {
                what,
                expected,
                found,
            } => Parts::new(format!(
                "the {what} have another length than the shape says"
            ))
            .expecting(format!("{expected} bytes"))
            .finding(format!("{found}")),
            Self::Stopped => Parts::new("it was stopped"),
        }
    }
}

impl Parts {
    fn new(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            ..Self::default()
        }
    }

    fn expecting(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    fn finding(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    fn curing(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    fn sentence(&self) -> String {
        let mut text = self.problem.clone();
        let mut lead = ": ";
        for (word, part) in [("expected", &self.expected), ("found", &self.found)] {
            if let Some(part) = part {
                text += &format!("{lead}{word} {part}");
                lead = ", ";
            }
        }
        text.push('.');
        if let Some(remedy) = self.remedy {
            text += &format!(" {remedy}.");
        }
        text
    }
}
