//! An initialiser by its parts: a name and named arguments, to print it, to pickle it and to make it again.

use std::f64::consts::SQRT_2;

use super::error::InitError;
use super::fans::{Compat, Fans, Layout};
use super::gain::Nonlinearity;
use super::init::{Family, Init, Mode, Rule, Spread};
use super::number::Number;

/// An argument of an initialiser.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// Not given.
    Nothing,
    /// A number.
    Number(Number),
    /// A word, such as a mode or a layout.
    Text(String),
}

impl Arg {
    fn float(value: f64) -> Self {
        Self::Number(Number::Float(value))
    }

    fn count(value: u64) -> Self {
        Self::Number(Number::Int(i128::from(value)))
    }

    fn layout(layout: Option<&Layout>) -> Self {
        layout.map_or(Self::Nothing, |layout| {
            Self::Text(layout.as_str().to_owned())
        })
    }
}

impl Init {
    /// The function of `lazyparam.init` that makes it.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Rule::Zeros => "zeros",
            Rule::Ones => "ones",
            Rule::Constant(_) => "constant",
            Rule::Eye => "eye",
            Rule::Dirac { .. } => "dirac",
            Rule::Uniform { .. } => "uniform",
            Rule::Normal { .. } => "normal",
            Rule::TruncNormal { .. } => "trunc_normal",
            Rule::Orthogonal { .. } => "orthogonal",
            Rule::Sparse { .. } => "sparse",
            Rule::Scaled { family, spread, .. } => match (family, spread) {
                (Family::Kaiming, Spread::Uniform) => "kaiming_uniform",
                (Family::Kaiming, _) => "kaiming_normal",
                (Family::Xavier, Spread::Uniform) => "xavier_uniform",
                (Family::Xavier, _) => "xavier_normal",
                (Family::Lecun, Spread::Uniform) => "lecun_uniform",
                (Family::Lecun, _) => "lecun_normal",
                (Family::VarianceScaling, _) => "variance_scaling",
            },
        }
    }

    /// Its arguments, by name.
    pub fn args(&self) -> Vec<(&'static str, Arg)> {
        match &self.0 {
            Rule::Zeros | Rule::Ones | Rule::Eye => vec![],
            Rule::Constant(value) => vec![("value", Arg::Number(*value))],
            Rule::Dirac { layout, groups } => vec![
                ("layout", Arg::layout(layout.as_ref())),
                ("groups", Arg::count(*groups as u64)),
            ],
            Rule::Uniform { low, high } => {
                vec![("low", Arg::float(*low)), ("high", Arg::float(*high))]
            }
            Rule::Normal { mean, std } => {
                vec![("mean", Arg::float(*mean)), ("std", Arg::float(*std))]
            }
            Rule::TruncNormal {
                mean,
                std,
                low,
                high,
            } => vec![
                ("mean", Arg::float(*mean)),
                ("std", Arg::float(*std)),
                ("low", Arg::float(*low)),
                ("high", Arg::float(*high)),
            ],
            Rule::Orthogonal { gain, layout } => vec![
                ("gain", Arg::float(*gain)),
                ("layout", Arg::layout(layout.as_ref())),
            ],
            Rule::Sparse { sparsity, std } => {
                vec![
                    ("sparsity", Arg::float(*sparsity)),
                    ("std", Arg::float(*std)),
                ]
            }
            Rule::Scaled {
                family,
                scale,
                mode,
                spread,
                fans,
            } => {
                let mode = ("mode", Arg::Text(mode.as_str().to_owned()));
                let mut args = match family {
                    Family::Kaiming => vec![("gain", Arg::float(*scale)), mode],
                    Family::Xavier => vec![("gain", Arg::float(*scale))],
                    Family::Lecun => vec![],
                    Family::VarianceScaling => vec![
                        ("scale", Arg::float(*scale)),
                        mode,
                        ("distribution", Arg::Text(spread.as_str().to_owned())),
                    ],
                };
                args.extend(fan_args(fans));
                args
            }
        }
    }

    /// The initialiser with this name and these arguments; those that are missing have their defaults.
    pub fn from_parts(name: &str, args: &[(&str, Arg)]) -> Result<Self, InitError> {
        let args = Args { name, args };
        let known: &[&str] = match name {
            "zeros" | "ones" | "eye" => &[],
            "constant" => &["value"],
            "dirac" => &["layout", "groups"],
            "uniform" => &["low", "high"],
            "normal" => &["mean", "std"],
            "trunc_normal" => &["mean", "std", "low", "high"],
            "orthogonal" => &["gain", "layout"],
            "sparse" => &["sparsity", "std"],
            "kaiming_uniform" | "kaiming_normal" => {
                &["gain", "mode", "layout", "groups", "compat", "fan"]
            }
            "xavier_uniform" | "xavier_normal" => &["gain", "layout", "groups", "compat", "fan"],
            "lecun_uniform" | "lecun_normal" => &["layout", "groups", "compat", "fan"],
            "variance_scaling" => &[
                "scale",
                "mode",
                "distribution",
                "layout",
                "groups",
                "compat",
                "fan",
            ],
            _ => {
                return Err(InitError::new("there is no such initialiser")
                    .finding(format!("{name:?}"))
                    .curing("Make one with a function of lazyparam.init"));
            }
        };
        args.only(known)?;
        match name {
            "zeros" => Ok(Self::zeros()),
            "ones" => Ok(Self::ones()),
            "eye" => Ok(Self::eye()),
            "constant" => match args.get("value") {
                Arg::Number(value) => Ok(Self::constant(*value)),
                other => Err(args.wrong("value", "a number", other)),
            },
            "dirac" => Self::dirac(args.layout()?, args.count("groups", 1)?),
            "uniform" => Self::uniform(args.float("low", 0.0)?, args.float("high", 1.0)?),
            "normal" => Self::normal(args.float("mean", 0.0)?, args.float("std", 1.0)?),
            "trunc_normal" => Self::trunc_normal(
                args.float("mean", 0.0)?,
                args.float("std", 1.0)?,
                args.float("low", -2.0)?,
                args.float("high", 2.0)?,
            ),
            "orthogonal" => Self::orthogonal(args.float("gain", 1.0)?, args.layout()?),
            "sparse" => Self::sparse(args.float("sparsity", 0.0)?, args.float("std", 0.01)?),
            "kaiming_uniform" => {
                Self::kaiming_uniform(args.float("gain", SQRT_2)?, args.mode()?, args.fans()?)
            }
            "kaiming_normal" => {
                Self::kaiming_normal(args.float("gain", SQRT_2)?, args.mode()?, args.fans()?)
            }
            "xavier_uniform" => Self::xavier_uniform(args.float("gain", 1.0)?, args.fans()?),
            "xavier_normal" => Self::xavier_normal(args.float("gain", 1.0)?, args.fans()?),
            "lecun_uniform" => Self::lecun_uniform(args.fans()?),
            "lecun_normal" => Self::lecun_normal(args.fans()?),
            _ => Self::variance_scaling(
                args.float("scale", 1.0)?,
                args.mode()?,
                args.spread()?,
                args.fans()?,
            ),
        }
    }
}

impl Nonlinearity {
    /// The nonlinearity that arguments tell: a name, and a slope or nothing.
    pub fn from_parts(nonlinearity: &Arg, a: &Arg) -> Result<Self, InitError> {
        let args = Args {
            name: "the gain",
            args: &[("nonlinearity", nonlinearity.clone()), ("a", a.clone())],
        };
        let slope = match a {
            Arg::Nothing => None,
            _ => Some(args.float("a", 0.0)?),
        };
        match nonlinearity {
            Arg::Text(name) => Self::from_name(name, slope),
            other => Err(args.wrong("nonlinearity", "a word", other)),
        }
    }
}

/// How fans are counted.
fn fan_args(fans: &Fans) -> Vec<(&'static str, Arg)> {
    let compat = match fans.compat {
        Compat::None => Arg::Nothing,
        Compat::Torch => Arg::Text("torch".to_owned()),
    };
    vec![
        ("layout", Arg::layout(fans.layout.as_ref())),
        ("groups", Arg::count(fans.groups as u64)),
        ("compat", compat),
        ("fan", fans.given.map_or(Arg::Nothing, Arg::count)),
    ]
}

/// Named arguments, and whose they are.
struct Args<'a> {
    name: &'a str,
    args: &'a [(&'a str, Arg)],
}

impl Args<'_> {
    /// An argument, if it is given. That it is given as nothing is another thing, and allowed for few.
    fn given(&self, wanted: &str) -> Option<&Arg> {
        let found = self.args.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, arg)| arg)
    }

    fn get(&self, wanted: &str) -> &Arg {
        self.given(wanted).unwrap_or(&Arg::Nothing)
    }

    fn only(&self, known: &[&str]) -> Result<(), InitError> {
        match self.args.iter().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((stranger, _)) => Err(InitError::new(format!(
                "{} has no such argument",
                self.name
            ))
            .expecting(if known.is_empty() {
                "no arguments".to_owned()
            } else {
                known.join(", ")
            })
            .finding(*stranger)),
        }
    }

    fn wrong(&self, name: &str, expected: &str, found: &Arg) -> InitError {
        InitError::new(format!("{name} of {} is something else", self.name))
            .expecting(expected)
            .finding(match found {
                Arg::Nothing => "nothing".to_owned(),
                Arg::Number(number) => number.text(),
                Arg::Text(text) => format!("{text:?}"),
            })
    }

    fn float(&self, name: &str, default: f64) -> Result<f64, InitError> {
        match self.given(name) {
            None => Ok(default),
            Some(Arg::Number(Number::Float(value))) => Ok(*value),
            Some(Arg::Number(Number::Int(value))) => Ok(*value as f64),
            Some(other) => Err(self.wrong(name, "a real number", other)),
        }
    }

    fn whole(&self, name: &str) -> Result<Option<u64>, InitError> {
        match self.get(name) {
            Arg::Nothing => Ok(None),
            Arg::Number(Number::Int(value)) if u64::try_from(*value).is_ok() => {
                Ok(Some(*value as u64))
            }
            other => Err(self.wrong(name, "a whole number", other)),
        }
    }

    fn count(&self, name: &str, default: usize) -> Result<usize, InitError> {
        match (self.given(name), self.whole(name)?) {
            (None, _) => Ok(default),
            (Some(_), Some(value)) => Ok(usize::try_from(value).unwrap_or(usize::MAX)),
            (Some(nothing), None) => Err(self.wrong(name, "a whole number", nothing)),
        }
    }

    fn word<T: Copy>(
        &self,
        name: &str,
        default: T,
        words: impl IntoIterator<Item = (&'static str, T)>,
    ) -> Result<T, InitError> {
        let text = match self.given(name) {
            None => return Ok(default),
            Some(Arg::Text(text)) => text,
            Some(other) => return Err(self.wrong(name, "a word", other)),
        };
        let words: Vec<_> = words.into_iter().collect();
        match words.iter().find(|(word, _)| word == text) {
            Some((_, value)) => Ok(*value),
            None => {
                let all: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
                Err(self.wrong(name, &all.join(" or "), self.get(name)))
            }
        }
    }

    fn mode(&self) -> Result<Mode, InitError> {
        self.word(
            "mode",
            Mode::FanIn,
            Mode::ALL.map(|mode| (mode.as_str(), mode)),
        )
    }

    fn spread(&self) -> Result<Spread, InitError> {
        let words = Spread::ALL.map(|spread| (spread.as_str(), spread));
        self.word("distribution", Spread::Truncated, words)
    }

    fn layout(&self) -> Result<Option<Layout>, InitError> {
        match self.get("layout") {
            Arg::Nothing => Ok(None),
            Arg::Text(text) => Layout::new(text).map(Some),
            other => Err(self.wrong("layout", "letters, as in \"OIHW\"", other)),
        }
    }

    fn fans(&self) -> Result<Fans, InitError> {
        Ok(Fans {
            layout: self.layout()?,
            groups: self.count("groups", 1)?,
            compat: match self.get("compat") {
                Arg::Nothing => Compat::None,
                _ => self.word("compat", Compat::None, [("torch", Compat::Torch)])?,
            },
            given: self.whole("fan")?,
        })
    }
}
