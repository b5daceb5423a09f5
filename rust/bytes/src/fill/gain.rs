//! Gains: by how much a nonlinearity shrinks the signal, for the scale of the weights before it.

use super::env::at_default;
use super::error::InitError;

/// A nonlinearity, for its gain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// None at all, also for convolutions: 1.
    Linear,
    /// 1.
    Sigmoid,
    /// 5/3.
    Tanh,
    /// √2. He et al. 2015.
    Relu,
    /// √(2 / (1 + slope²)), with the slope for negative inputs.
    LeakyRelu(f64),
    /// 3/4.
    Selu,
}

impl Nonlinearity {
    /// The gain, with PyTorch's `calculate_gain` in every case.
    pub fn gain(self) -> f64 {
        match self {
            Self::Linear | Self::Sigmoid => 1.0,
            Self::Tanh => 5.0 / 3.0,
            Self::Relu => std::f64::consts::SQRT_2,
            Self::LeakyRelu(slope) => at_default(|| (2.0 / (1.0 + slope * slope)).sqrt()),
            Self::Selu => 0.75,
        }
    }

    /// The nonlinearity with PyTorch's name for it. `slope` is for `"leaky_relu"` alone, 0.01 where it is not given.
    pub fn from_name(name: &str, slope: Option<f64>) -> Result<Self, InitError> {
        if let (Some(slope), false) = (slope, name == "leaky_relu") {
            return Err(
                InitError::new("a is the slope of a leaky_relu, and of nothing else")
                    .expecting("a together with nonlinearity=\"leaky_relu\", or no a")
                    .finding(format!("a={slope:?} and nonlinearity={name:?}"))
                    .curing("Say nonlinearity=\"leaky_relu\", which is PyTorch's default and not the one here"),
            );
        }
        Ok(match name {
            "linear" | "conv1d" | "conv2d" | "conv3d" | "conv_transpose1d" | "conv_transpose2d"
            | "conv_transpose3d" => Self::Linear,
            "sigmoid" => Self::Sigmoid,
            "tanh" => Self::Tanh,
            "relu" => Self::Relu,
            "leaky_relu" => Self::LeakyRelu(slope.unwrap_or(0.01)),
            "selu" => Self::Selu,
            _ => {
                return Err(InitError::new("the gain of this nonlinearity is not known")
                    .expecting("linear, sigmoid, tanh, relu, leaky_relu or selu")
                    .finding(format!("{name:?}"))
                    .curing("Give the gain itself"));
            }
        })
    }
}
