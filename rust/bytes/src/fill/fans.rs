//! Fans: how many inputs feed one output of a layer, and how many outputs one input feeds.

use super::error::{InitError, tuple};

/// What one axis of a weight counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Output features, `O`.
    Out,
    /// Input features, `I`.
    In,
    /// Places of a kernel: any other letter, such as `D`, `H`, `W`.
    Space,
    /// Independent weights stacked together, such as experts: `E`.
    Stack,
}

/// What the axes of a weight are, one letter each: `"OI"` for a linear layer as PyTorch stores it, `"IO"` as
/// JAX does, `"OIHW"` or `"HWIO"` for convolutions, `"EIO"` for stacked experts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    text: String,
}

impl Layout {
    /// A layout from its letters. One `O` and one `I`; every other letter but `E` is an axis of space.
    pub fn new(text: &str) -> Result<Self, InitError> {
        let refused = |problem: &str| {
            Err(InitError::new(problem)
                .expecting(
                    "one O, one I, and other capital letters at most once each, as in \"OIHW\"",
                )
                .finding(format!("{text:?}")))
        };
        let mut seen = 0_u32;
        for letter in text.chars() {
            if !letter.is_ascii_uppercase() {
                return refused("a layout is made of capital letters");
            }
            let bit = 1 << (letter as u32 - 'A' as u32);
            if seen & bit != 0 {
                return refused("each letter of a layout stands for one axis");
            }
            seen |= bit;
        }
        if !text.contains('O') || !text.contains('I') {
            return refused("a layout says which axis is the output and which the input");
        }
        Ok(Self {
            text: text.to_owned(),
        })
    }

    /// The letters.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the axes of a weight with so many dimensions are. Where stacked axes are batch axes, they are no part of
    /// the weight: then it is the layout without them.
    pub(crate) fn of_rank(&self, rank: usize) -> Option<Vec<Axis>> {
        let all: Vec<Axis> = self.axes().collect();
        if all.len() == rank {
            return Some(all);
        }
        let single = self
            .axes()
            .filter(|axis| *axis != Axis::Stack)
            .collect::<Vec<_>>();
        (single.len() == rank).then_some(single)
    }

    /// What each axis is.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = Axis> {
        // All letters are ASCII.
        self.text.bytes().map(|letter| match letter {
            b'O' => Axis::Out,
            b'I' => Axis::In,
            b'E' => Axis::Stack,
            _ => Axis::Space,
        })
    }
}

/// Whose count of fans to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compat {
    /// What the layout says.
    #[default]
    None,
    /// PyTorch's `_calculate_fan_in_and_fan_out`: `shape[1]` and `shape[0]` times the rest, whatever they are.
    /// That ignores groups, and swaps the fans of transposed convolutions.
    Torch,
}

/// How to count the fans of a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fans {
    /// What the axes are. With two axes, `None` means `"OI"`; with more it is an error.
    pub layout: Option<Layout>,
    /// Groups of a convolution: of the two feature axes, one holds all groups and the other a single one.
    pub groups: usize,
    /// Whose count to follow.
    pub compat: Compat,
    /// The fan to use instead of any count: for a bias, the `fan_in` of its weight.
    pub given: Option<u64>,
}

impl Default for Fans {
    fn default() -> Self {
        Self {
            layout: None,
            groups: 1,
            compat: Compat::None,
            given: None,
        }
    }
}

impl Fans {
    /// Counted by this layout.
    pub fn by(layout: Layout) -> Self {
        Self {
            layout: Some(layout),
            ..Self::default()
        }
    }

    /// This number for both fans.
    pub fn given(fan: u64) -> Self {
        Self {
            given: Some(fan),
            ..Self::default()
        }
    }

    /// Fan-in and fan-out of a weight of this global shape.
    ///
    /// Each is a number of features times the places of the kernel. In a grouped layer one feature axis holds
    /// all groups and is divided: `I` where the layout begins with `IO`, as transposed convolutions are stored
    /// (`I, O/groups`), and `O` everywhere else (`O, I/groups` and, in JAX's order, `I/groups, O`).
    pub fn count(&self, shape: &[usize]) -> Result<(u64, u64), InitError> {
        if let Some(fan) = self.given {
            return if fan == 0 {
                Err(InitError::new("a fan of 0 leaves the scale undefined")
                    .expecting("a positive fan")
                    .finding("0"))
            } else {
                Ok((fan, fan))
            };
        }
        if self.compat == Compat::Torch {
            return torch(shape);
        }
        let layout = match &self.layout {
            Some(layout) => layout,
            None => &self.assumed(shape)?,
        };
        let Some(axes) = layout.of_rank(shape.len()) else {
            return Err(InitError::new("the layout does not fit the shape")
                .expecting(format!(
                    "{} dimensions, as in {:?}",
                    layout.axes().len(),
                    layout.text
                ))
                .finding(tuple(shape)));
        };
        let (mut inputs, mut outputs, mut space) = (1, 1, 1_u64);
        for (axis, &dim) in axes.into_iter().zip(shape) {
            match axis {
                Axis::In => inputs = dim as u64,
                Axis::Out => outputs = dim as u64,
                Axis::Space => space = space.saturating_mul(dim as u64),
                Axis::Stack => {}
            }
        }
        let all_groups = if self.in_holds_all_groups(layout) {
            &mut inputs
        } else {
            &mut outputs
        };
        let groups = self.groups as u64;
        if groups == 0 || *all_groups % groups != 0 {
            return Err(InitError::new("the features do not divide into the groups")
                .expecting(format!("a multiple of {groups}"))
                .finding(format!("{all_groups} in {}", tuple(shape))));
        }
        *all_groups /= groups;
        Ok((inputs.saturating_mul(space), outputs.saturating_mul(space)))
    }

    /// Transposed convolutions are stored with `I` first, and then space after both.
    fn in_holds_all_groups(&self, layout: &Layout) -> bool {
        let mut axes = layout.axes().filter(|axis| *axis != Axis::Stack);
        axes.next() == Some(Axis::In) && axes.next() == Some(Axis::Out)
    }

    fn assumed(&self, shape: &[usize]) -> Result<Layout, InitError> {
        if shape.len() == 2 {
            return Layout::new("OI");
        }
        let error = InitError::new("the fans of this shape are not known").finding(format!(
            "{} dimensions, {}",
            shape.len(),
            tuple(shape)
        ));
        Err(if shape.len() < 2 {
            error
                .expecting("a weight with an output and an input axis")
                .curing("Give the fan itself: for a bias, the fan_in of its weight")
        } else {
            error
                .expecting("a layout, for more than two dimensions")
                .curing("Say what the axes are: layout=\"OIHW\", \"HWIO\", \"EIO\" ..., or compat=\"torch\"")
        })
    }
}

/// PyTorch's count.
fn torch(shape: &[usize]) -> Result<(u64, u64), InitError> {
    let &[first, second, ref rest @ ..] = shape else {
        return Err(InitError::new("the fans of this shape are not known")
            .expecting("two or more dimensions")
            .finding(tuple(shape))
            .curing("Give the fan itself: for a bias, the fan_in of its weight"));
    };
    let field = rest
        .iter()
        .fold(1_u64, |product, &dim| product.saturating_mul(dim as u64));
    let fan = |dim: usize| (dim as u64).saturating_mul(field);
    Ok((fan(second), fan(first)))
}
