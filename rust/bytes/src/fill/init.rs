//! `Init`: an initialiser as a small immutable value, checked when it is made.

use std::hash::{Hash, Hasher};

use super::error::InitError;
use super::fans::{Fans, Layout};
use super::number::Number;

/// An initialiser: what to put into a parameter, as plain data.
///
/// Two are equal when their names and arguments are. Wrong arguments are refused here; what depends on the
/// parameter (its shape and dtype) by [`Init::check`].
///
/// ```
/// use lazyparam_bytes::fill::{Fans, Init, Mode};
///
/// let init = Init::kaiming_uniform(2_f64.sqrt(), Mode::FanIn, Fans::default())?;
/// assert_eq!(init.name(), "kaiming_uniform");
/// assert!(Init::normal(0.0, -1.0).is_err());
/// # Ok::<(), lazyparam_bytes::fill::InitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Init(pub(crate) Rule);

/// The initialisers and their arguments.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Zeros,
    Ones,
    Constant(Number),
    Eye,
    Dirac {
        layout: Option<Layout>,
        groups: usize,
    },
    Uniform {
        low: f64,
        high: f64,
    },
    Normal {
        mean: f64,
        std: f64,
    },
    TruncNormal {
        mean: f64,
        std: f64,
        low: f64,
        high: f64,
    },
    Scaled {
        family: Family,
        scale: f64,
        mode: Mode,
        spread: Spread,
        fans: Fans,
    },
    Orthogonal {
        gain: f64,
        layout: Option<Layout>,
    },
    Sparse {
        sparsity: f64,
        std: f64,
    },
}

/// Who named a rule for the scale of a draw by its fans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    Kaiming,
    Xavier,
    Lecun,
    VarianceScaling,
}

/// Which fan a scale is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Inputs: keeps the variance of activations.
    #[default]
    FanIn,
    /// Outputs: keeps the variance of gradients.
    FanOut,
    /// Their arithmetic mean.
    FanAverage,
    /// Their geometric mean.
    FanGeometric,
}

impl Mode {
    /// All, in the order of their declaration.
    pub const ALL: [Self; 4] = [
        Self::FanIn,
        Self::FanOut,
        Self::FanAverage,
        Self::FanGeometric,
    ];

    /// `"fan_in"`, `"fan_out"`, `"fan_avg"` or `"fan_geo_avg"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FanIn => "fan_in",
            Self::FanOut => "fan_out",
            Self::FanAverage => "fan_avg",
            Self::FanGeometric => "fan_geo_avg",
        }
    }

    pub(crate) fn of(self, (inputs, outputs): (u64, u64)) -> f64 {
        let (inputs, outputs) = (inputs as f64, outputs as f64);
        match self {
            Self::FanIn => inputs,
            Self::FanOut => outputs,
            Self::FanAverage => (inputs + outputs) / 2.0,
            Self::FanGeometric => (inputs * outputs).sqrt(),
        }
    }
}

/// The shape of a distribution whose scale follows from fans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Uniform, symmetric about 0.
    Uniform,
    /// Normal.
    Normal,
    /// Normal, cut at two standard deviations, and widened so that what is left has the variance asked for.
    Truncated,
}

impl Spread {
    /// All, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Normal, Self::Truncated];

    /// `"uniform"`, `"normal"` or `"truncated_normal"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Truncated => "truncated_normal",
        }
    }
}

/// A finite number, and positive where that is asked for.
fn finite(name: &str, value: f64) -> Result<f64, InitError> {
    if value.is_finite() {
        // Minus zero becomes zero, so that equal arguments give equal bits.
        return Ok(value + 0.0);
    }
    Err(InitError::new(format!("{name} has to be a finite number"))
        .expecting("a finite number")
        .finding(format!("{value}")))
}

fn positive(name: &str, value: f64) -> Result<f64, InitError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    let error = InitError::new(format!("{name} has to be positive"))
        .expecting("a finite number above 0")
        .finding(format!("{value}"));
    Err(if value == 0.0 {
        error.curing("For one value everywhere use constant")
    } else {
        error
    })
}

fn ordered(low: f64, high: f64) -> Result<(), InitError> {
    if low < high {
        return Ok(());
    }
    Err(InitError::new("there is nothing between the bounds")
        .expecting("low < high")
        .finding(format!("low {low}, high {high}")))
}

impl Init {
    /// Zero everywhere.
    pub fn zeros() -> Self {
        Self(Rule::Zeros)
    }

    /// One everywhere.
    pub fn ones() -> Self {
        Self(Rule::Ones)
    }

    /// The same number everywhere.
    pub fn constant(value: Number) -> Self {
        Self(Rule::Constant(value))
    }

    /// The identity matrix, for two dimensions.
    pub fn eye() -> Self {
        Self(Rule::Eye)
    }

    /// A convolution that passes its inputs through: one at the centre of the kernel where input and output
    /// feature agree (within each group), zero elsewhere. PyTorch's `dirac_`.
    pub fn dirac(layout: Option<Layout>, groups: usize) -> Result<Self, InitError> {
        if groups == 0 {
            return Err(InitError::new("a convolution has at least one group")
                .expecting("groups of 1 or more")
                .finding("0"));
        }
        Ok(Self(Rule::Dirac { layout, groups }))
    }

    /// Uniform on [low, high); `high` itself never occurs, in any dtype.
    pub fn uniform(low: f64, high: f64) -> Result<Self, InitError> {
        let (low, high) = (finite("low", low)?, finite("high", high)?);
        ordered(low, high)?;
        Ok(Self(Rule::Uniform { low, high }))
    }

    /// Normal with this mean and standard deviation.
    pub fn normal(mean: f64, std: f64) -> Result<Self, InitError> {
        let (mean, std) = (finite("mean", mean)?, positive("std", std)?);
        Ok(Self(Rule::Normal { mean, std }))
    }

    /// Normal, conditioned on [low, high]. `mean` and `std` are those before it is cut; the bounds are in the
    /// units of the values, not of `std`, and may be infinite.
    pub fn trunc_normal(mean: f64, std: f64, low: f64, high: f64) -> Result<Self, InitError> {
        let (mean, std) = (finite("mean", mean)?, positive("std", std)?);
        ordered(low, high)?;
        super::cut::Cut::new((low - mean) / std, (high - mean) / std)?;
        Ok(Self(Rule::TruncNormal {
            mean,
            std,
            low,
            high,
        }))
    }

    /// Uniform on ±gain · √(3 / fan). K. He, X. Zhang, S. Ren, J. Sun, *Delving deep into rectifiers*, 2015.
    pub fn kaiming_uniform(gain: f64, mode: Mode, fans: Fans) -> Result<Self, InitError> {
        Self::scaled(Family::Kaiming, "gain", gain, mode, Spread::Uniform, fans)
    }

    /// Normal with the standard deviation gain / √fan. He et al. 2015.
    pub fn kaiming_normal(gain: f64, mode: Mode, fans: Fans) -> Result<Self, InitError> {
        Self::scaled(Family::Kaiming, "gain", gain, mode, Spread::Normal, fans)
    }

    /// Uniform on ±gain · √(6 / (fan_in + fan_out)). X. Glorot, Y. Bengio, *Understanding the difficulty of
    /// training deep feedforward neural networks*, 2010.
    pub fn xavier_uniform(gain: f64, fans: Fans) -> Result<Self, InitError> {
        let mode = Mode::FanAverage;
        Self::scaled(Family::Xavier, "gain", gain, mode, Spread::Uniform, fans)
    }

    /// Normal with the standard deviation gain · √(2 / (fan_in + fan_out)). Glorot and Bengio 2010.
    pub fn xavier_normal(gain: f64, fans: Fans) -> Result<Self, InitError> {
        let mode = Mode::FanAverage;
        Self::scaled(Family::Xavier, "gain", gain, mode, Spread::Normal, fans)
    }

    /// Uniform on ±√(3 / fan_in). Y. LeCun, L. Bottou, G. Orr, K.-R. Müller, *Efficient backprop*, 1998.
    pub fn lecun_uniform(fans: Fans) -> Result<Self, InitError> {
        Self::scaled(
            Family::Lecun,
            "scale",
            1.0,
            Mode::FanIn,
            Spread::Uniform,
            fans,
        )
    }

    /// Normal with the variance 1 / fan_in, cut at two standard deviations (of the uncut one), as in JAX and
    /// Keras. LeCun et al. 1998.
    pub fn lecun_normal(fans: Fans) -> Result<Self, InitError> {
        Self::scaled(
            Family::Lecun,
            "scale",
            1.0,
            Mode::FanIn,
            Spread::Truncated,
            fans,
        )
    }

    /// Variance scale / fan, in the shape asked for: JAX's and Keras's `variance_scaling`.
    pub fn variance_scaling(
        scale: f64,
        mode: Mode,
        spread: Spread,
        fans: Fans,
    ) -> Result<Self, InitError> {
        Self::scaled(Family::VarianceScaling, "scale", scale, mode, spread, fans)
    }

    /// A matrix with orthonormal rows or columns, whichever there are fewer of, times `gain`; uniformly
    /// distributed among all of them (Haar). G. W. Stewart, *The efficient generation of random orthogonal
    /// matrices*, 1980.
    ///
    /// A weight with more than two dimensions needs a layout with `O` first or last: the other axes are taken
    /// together.
    pub fn orthogonal(gain: f64, layout: Option<Layout>) -> Result<Self, InitError> {
        let gain = finite("gain", gain)?;
        Ok(Self(Rule::Orthogonal { gain, layout }))
    }

    /// A matrix in each column of which exactly ⌈sparsity · rows⌉ entries are zero, and the others normal
    /// with this standard deviation. J. Martens, *Deep learning via Hessian-free optimization*, 2010.
    pub fn sparse(sparsity: f64, std: f64) -> Result<Self, InitError> {
        if !(0.0..=1.0).contains(&sparsity) {
            return Err(InitError::new("sparsity is a fraction")
                .expecting("a number from 0 to 1")
                .finding(format!("{sparsity}")));
        }
        let std = positive("std", std)?;
        Ok(Self(Rule::Sparse {
            sparsity: sparsity + 0.0,
            std,
        }))
    }

    fn scaled(
        family: Family,
        name: &str,
        scale: f64,
        mode: Mode,
        spread: Spread,
        fans: Fans,
    ) -> Result<Self, InitError> {
        let scale = positive(name, scale)?;
        if fans.given == Some(0) {
            return Err(InitError::new("a fan of 0 leaves the scale undefined")
                .expecting("a positive fan")
                .finding("0"));
        }
        if fans.groups == 0 {
            return Err(InitError::new("a layer has at least one group")
                .expecting("groups of 1 or more")
                .finding("0"));
        }
        Ok(Self(Rule::Scaled {
            family,
            scale,
            mode,
            spread,
            fans,
        }))
    }

    /// Whether the values depend on the key.
    pub fn is_random(&self) -> bool {
        !matches!(
            self.0,
            Rule::Zeros | Rule::Ones | Rule::Constant(_) | Rule::Eye | Rule::Dirac { .. }
        )
    }
}

impl PartialEq for Init {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.args() == other.args()
    }
}

impl Eq for Init {}

impl Hash for Init {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
        self.args().hash(state);
    }
}
