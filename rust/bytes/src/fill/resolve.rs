//! From an initialiser and a shape to a distribution with numbers.

use super::content::Content;
use super::error::{InitError, tuple};
use super::fans::{Axis, Layout};
use super::init::{Family, Init, Rule, Spread};
use super::number::Number;
use crate::dtype::Dtype;

/// Standard deviation of a standard normal distribution that is cut at ±2.
const STD_WITHIN_2: f64 = 0.879_625_661_034_239_8;

/// What an initialiser amounts to for one shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// One number everywhere.
    Repeat(Number),
    /// Ones at some places, zeros elsewhere.
    Ones(Ones),
    /// Uniform on [low, high).
    Uniform {
        /// The smallest value.
        low: f64,
        /// Above all values.
        high: f64,
    },
    /// Normal.
    Normal {
        /// Its mean.
        mean: f64,
        /// Its standard deviation.
        std: f64,
    },
    /// Normal, conditioned on [low, high].
    TruncNormal {
        /// Mean before the cut.
        mean: f64,
        /// Standard deviation before the cut.
        std: f64,
        /// The smallest value.
        low: f64,
        /// The largest value.
        high: f64,
    },
    /// A matrix with orthonormal rows or columns, times a gain.
    Orthogonal {
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
        /// What it is multiplied by.
        gain: f64,
    },
    /// A matrix with this many normal entries in each column, and zeros elsewhere.
    Sparse {
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
        /// Entries of a column that are not zero.
        kept: usize,
        /// Their standard deviation.
        std: f64,
    },
}

/// Where the ones are: `count` of them in each of `groups`, at linear indices (in C order)
/// `start + group · group_step + number · step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ones {
    /// Index of the first.
    pub start: u64,
    /// Number of groups.
    pub groups: u64,
    /// From one group to the next.
    pub group_step: u64,
    /// Ones in a group.
    pub count: u64,
    /// From one to the next within a group; positive.
    pub step: u64,
}

impl Init {
    /// The distribution for a parameter of this *global* shape, without its batch axes: a shard's shape
    /// would give wrong fans.
    ///
    /// Where there are no elements, there is nothing to scale, and fans of 0 do no harm.
    pub fn resolve(&self, shape: &[usize]) -> Result<Distribution, InitError> {
        Ok(match &self.0 {
            Rule::Zeros => Distribution::Repeat(Number::Int(0)),
            Rule::Ones => Distribution::Repeat(Number::Int(1)),
            Rule::Constant(value) => Distribution::Repeat(*value),
            Rule::Eye => {
                let (rows, cols) = matrix("an identity matrix", shape)?;
                Distribution::Ones(Ones {
                    start: 0,
                    groups: 1,
                    group_step: 0,
                    count: rows.min(cols) as u64,
                    step: cols as u64 + 1,
                })
            }
            Rule::Dirac { layout, groups } => {
                Distribution::Ones(dirac(shape, layout.as_ref(), *groups)?)
            }
            Rule::Uniform { low, high } => Distribution::Uniform {
                low: *low,
                high: *high,
            },
            Rule::Normal { mean, std } => Distribution::Normal {
                mean: *mean,
                std: *std,
            },
            Rule::TruncNormal {
                mean,
                std,
                low,
                high,
            } => Distribution::TruncNormal {
                mean: *mean,
                std: *std,
                low: *low,
                high: *high,
            },
            Rule::Scaled {
                family,
                scale,
                mode,
                spread,
                fans,
            } => {
                let (inputs, outputs) = fans.count(shape)?;
                let fan = if *family == Family::Xavier {
                    (inputs as f64 + outputs as f64) / 2.0
                } else {
                    mode.of((inputs, outputs))
                };
                // Without elements any number will do, and this one is valid.
                let fan = if shape.contains(&0) { 1.0 } else { fan };
                scaled(*family, *scale, *spread, fan)
            }
            Rule::Orthogonal { gain, layout } => {
                let (rows, cols) = flattened(shape, layout.as_ref())?;
                Distribution::Orthogonal {
                    rows,
                    cols,
                    gain: *gain,
                }
            }
            Rule::Sparse { sparsity, std } => {
                let (rows, cols) = matrix("a sparse matrix", shape)?;
                if u32::try_from(rows).is_err() {
                    return Err(InitError::new("a sparse matrix has fewer than 2³² rows")
                        .finding(format!("{rows}")));
                }
                let zeros = (sparsity * rows as f64).ceil() as usize;
                Distribution::Sparse {
                    rows,
                    cols,
                    kept: rows.saturating_sub(zeros),
                    std: *std,
                }
            }
        })
    }

    /// Everything about an initialiser, a global shape and a dtype that can be wrong, at declaration.
    ///
    /// `batch_axes` are the axes along which independent parameters are stacked.
    pub fn check(
        &self,
        shape: &[usize],
        dtype: Dtype,
        batch_axes: &[usize],
    ) -> Result<(), InitError> {
        let slice = super::region::without(shape, batch_axes)?;
        super::env::at_default(|| Content::of(&self.resolve(&slice)?, dtype).map(drop))
    }
}

fn matrix(what: &str, shape: &[usize]) -> Result<(usize, usize), InitError> {
    match *shape {
        [rows, cols] => Ok((rows, cols)),
        _ => Err(InitError::new(format!("{what} has two dimensions"))
            .expecting("a shape (rows, columns)")
            .finding(tuple(shape))),
    }
}

fn scaled(family: Family, scale: f64, spread: Spread, fan: f64) -> Distribution {
    match spread {
        Spread::Uniform => {
            let high = match family {
                Family::Kaiming | Family::Xavier => scale * (3.0 / fan).sqrt(),
                Family::Lecun | Family::VarianceScaling => (3.0 * scale / fan).sqrt(),
            };
            Distribution::Uniform { low: -high, high }
        }
        Spread::Normal => Distribution::Normal {
            mean: 0.0,
            std: match family {
                Family::Kaiming => scale / fan.sqrt(),
                Family::Xavier => scale * (1.0 / fan).sqrt(),
                Family::Lecun | Family::VarianceScaling => (scale / fan).sqrt(),
            },
        },
        Spread::Truncated => {
            let std = (scale / fan).sqrt() / STD_WITHIN_2;
            Distribution::TruncNormal {
                mean: 0.0,
                std,
                low: -2.0 * std,
                high: 2.0 * std,
            }
        }
    }
}

/// The layout of a weight with at least two dimensions, `"OI"` where there are just two.
fn layout_for(shape: &[usize], layout: Option<&Layout>) -> Result<Vec<Axis>, InitError> {
    let axes: Vec<Axis> = match layout {
        Some(layout) => layout.of_rank(shape.len()).ok_or_else(|| {
            InitError::new("the layout does not fit the shape")
                .expecting(format!("{} dimensions", layout.axes().len()))
                .finding(tuple(shape))
        })?,
        None if shape.len() == 2 => vec![Axis::Out, Axis::In],
        None => {
            return Err(
                InitError::new("what the axes of this shape are is not known")
                    .expecting("a layout, unless there are two dimensions")
                    .finding(format!("{} dimensions, {}", shape.len(), tuple(shape)))
                    .curing("Say what the axes are: layout=\"OIHW\", \"HWIO\" ..."),
            );
        }
    };
    if axes.contains(&Axis::Stack) {
        return Err(InitError::new("this initialiser has no stacked axis")
            .expecting("a layout without E")
            .curing("Name the axis in batch_axes"));
    }
    Ok(axes)
}

fn dirac(shape: &[usize], layout: Option<&Layout>, groups: usize) -> Result<Ones, InitError> {
    let axes = layout_for(shape, layout)?;
    let (mut outputs, mut inputs) = (0, 0);
    let (mut out_step, mut in_step, mut start) = (0_u64, 0_u64, 0_u64);
    let mut step = 1_u64;
    for (axis, &dim) in axes.iter().zip(shape).rev() {
        match axis {
            Axis::Out => (outputs, out_step) = (dim, step),
            Axis::In => (inputs, in_step) = (dim, step),
            Axis::Space | Axis::Stack => start += (dim as u64 / 2) * step,
        }
        step = step.saturating_mul(dim as u64);
    }
    if outputs % groups != 0 {
        return Err(
            InitError::new("the output features do not divide into the groups")
                .expecting(format!("a multiple of {groups}"))
                .finding(format!("{outputs} in {}", tuple(shape))),
        );
    }
    let per_group = (outputs / groups) as u64;
    let empty = shape.contains(&0);
    Ok(Ones {
        start,
        groups: groups as u64,
        group_step: per_group * out_step,
        count: if empty {
            0
        } else {
            per_group.min(inputs as u64)
        },
        step: out_step + in_step,
    })
}

/// Rows and columns of a weight as a matrix, with its output features on one side.
fn flattened(shape: &[usize], layout: Option<&Layout>) -> Result<(usize, usize), InitError> {
    let axes = layout_for(shape, layout)?;
    let others = |dims: &[usize]| {
        dims.iter()
            .fold(1, |product: usize, &dim| product.saturating_mul(dim))
    };
    match (shape, axes.as_slice()) {
        (&[rows, cols], _) => Ok((rows, cols)),
        ([first, rest @ ..], [Axis::Out, ..]) => Ok((*first, others(rest))),
        ([rest @ .., last], [.., Axis::Out]) => Ok((others(rest), *last)),
        _ => Err(
            InitError::new("this weight is not a matrix from inputs to outputs")
                .expecting("a layout with O first or last")
                .finding(format!(
                    "{:?}",
                    layout.map(Layout::as_str).unwrap_or_default()
                )),
        ),
    }
}
