//! From a distribution to bytes: the law of a dtype, and what the dtype cannot hold.

use super::cut::{Cut, REACH, REACH_WIDE};
use super::error::InitError;
use super::kernel::{Format, Recipe};
use super::law::{Bounds, Law, Normal, Uniform};
use super::number::{Number, at_least, at_most, below, largest};
use super::resolve::{Distribution, Ones};
use super::special::power_of_two;
use crate::dtype::{Dtype, Kind};

/// What is written, in terms of bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Repeat(Vec<u8>),
    Ones {
        ones: Ones,
        zero: Vec<u8>,
        one: Vec<u8>,
    },
    Draw(Recipe),
    Orthogonal {
        rows: usize,
        cols: usize,
        gain: f64,
    },
    Sparse {
        rows: usize,
        kept: usize,
        values: Recipe,
    },
}

impl Content {
    pub(crate) fn of(distribution: &Distribution, dtype: Dtype) -> Result<Self, InitError> {
        Ok(match *distribution {
            Distribution::Repeat(number) => Self::Repeat(number.element(dtype)?),
            Distribution::Ones(ones) => Self::Ones {
                ones,
                zero: Number::Int(0).element(dtype)?,
                one: Number::Int(1).element(dtype)?,
            },
            Distribution::Uniform { low, high } => Self::Draw(uniform(low, high, dtype)?),
            Distribution::Normal { mean, std } => Self::Draw(normal(mean, std, dtype)?),
            Distribution::TruncNormal {
                mean,
                std,
                low,
                high,
            } => Self::Draw(truncated(mean, std, [low, high], dtype)?),
            Distribution::Orthogonal { rows, cols, gain } => {
                format_of(dtype)?;
                reach(gain.abs(), dtype)?;
                Self::Orthogonal { rows, cols, gain }
            }
            Distribution::Sparse {
                rows, kept, std, ..
            } => Self::Sparse {
                rows,
                kept,
                values: normal(0.0, std, dtype)?,
            },
        })
    }
}

/// How a dtype stores what is drawn in `f32`; `None` for `f64`.
fn format_of(dtype: Dtype) -> Result<Option<Format>, InitError> {
    match dtype {
        Dtype::F64 => Ok(None),
        Dtype::F32 => Ok(Some(Format::Single)),
        Dtype::F16 => Ok(Some(Format::Half)),
        Dtype::BF16 => Ok(Some(Format::Brain)),
        _ => {
            let error = InitError::new("random numbers are not drawn in this dtype")
                .expecting("float64, float32, float16 or bfloat16")
                .finding(dtype.name());
            Err(if dtype.kind() == Kind::Float {
                error.curing("Draw in one of these and convert")
            } else {
                error.curing("Use zeros, ones, constant, eye or dirac")
            })
        }
    }
}

/// Refuses magnitudes that the dtype does not have.
fn reach(magnitude: f64, dtype: Dtype) -> Result<(), InitError> {
    if magnitude <= largest(dtype) {
        return Ok(());
    }
    Err(InitError::new("the values would overflow")
        .expecting(format!(
            "magnitudes up to {} for {}",
            largest(dtype),
            dtype.name()
        ))
        .finding(format!("up to {magnitude}"))
        .curing("Use a smaller scale or a wider dtype"))
}

fn nothing_between(low: f64, high: f64, dtype: Dtype) -> InitError {
    InitError::new(format!("{} has no value between the bounds", dtype.name()))
        .finding(format!("low {low}, high {high}"))
        .curing("Use a wider dtype or wider bounds")
}

fn uniform(low: f64, high: f64, dtype: Dtype) -> Result<Recipe, InitError> {
    let format = format_of(dtype)?;
    reach(low.abs().max(high.abs()), dtype)?;
    let Some(format) = format else {
        reach(high - low, dtype)?;
        return Ok(Recipe::Wide(Law::Uniform(Uniform {
            low,
            step: (high - low) * power_of_two(-53),
            top: high.next_down(),
        })));
    };
    let width = (high - low) as f32;
    reach(f64::from(width), Dtype::F32)?;
    let (first, beyond) = (f64::from(low as f32), f64::from(high as f32));
    let top = below(dtype, beyond);
    if at_least(dtype, first) > top {
        return Err(nothing_between(low, high, dtype));
    }
    Ok(Recipe::Narrow(
        Law::Uniform(Uniform {
            low: low as f32,
            step: width * power_of_two(-24) as f32,
            top: top as f32,
        }),
        format,
    ))
}

fn narrowed(mean: f64, std: f64, dtype: Dtype) -> Result<Normal<f32>, InitError> {
    let normal = Normal {
        mean: mean as f32,
        std: std as f32,
    };
    if normal.std == 0.0 {
        return Err(InitError::new("the standard deviation vanishes")
            .expecting(format!("one that {} can be drawn with", dtype.name()))
            .finding(format!("{std}"))
            .curing("Use float64"));
    }
    Ok(normal)
}

fn normal(mean: f64, std: f64, dtype: Dtype) -> Result<Recipe, InitError> {
    let format = format_of(dtype)?;
    let reached = if format.is_some() { REACH } else { REACH_WIDE };
    reach(mean.abs() + reached * std, dtype)?;
    Ok(match format {
        None => Recipe::Wide(Law::Normal(Normal { mean, std })),
        Some(format) => Recipe::Narrow(Law::Normal(narrowed(mean, std, dtype)?), format),
    })
}

fn truncated(
    mean: f64,
    std: f64,
    [low, high]: [f64; 2],
    dtype: Dtype,
) -> Result<Recipe, InitError> {
    let format = format_of(dtype)?;
    // How far the values go: to the bounds, or to where the law ends beyond the nearer of mean and bound.
    let lowest = low.max(mean.min(high) - REACH_WIDE * std);
    let highest = high.min(mean.max(low) + REACH_WIDE * std);
    reach(lowest.abs().max(highest.abs()), dtype)?;
    let bounds = Bounds {
        low: at_least(dtype, low),
        high: at_most(dtype, high),
    };
    if bounds.low > bounds.high {
        return Err(nothing_between(low, high, dtype));
    }
    let cut = Cut::new((low - mean) / std, (high - mean) / std)?;
    let Some(format) = format else {
        let normal = Normal { mean, std };
        return Ok(Recipe::Wide(match cut {
            Cut::Outside => Law::Clamped(normal, bounds),
            Cut::Within(cut) => Law::Truncated(cut, normal, bounds),
        }));
    };
    let normal = narrowed(mean, std, dtype)?;
    let bounds = Bounds {
        low: bounds.low as f32,
        high: bounds.high as f32,
    };
    Ok(Recipe::Narrow(
        match cut {
            Cut::Outside => Law::Clamped(normal, bounds),
            Cut::Within(cut) => Law::Truncated(cut.narrowed(), normal, bounds),
        },
        format,
    ))
}
