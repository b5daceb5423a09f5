//! The constants of a truncated normal distribution: which tail each half of it is drawn from.

use super::error::InitError;
use super::law::Truncated;
use super::math32::CENTRAL_FROM;
use super::special::{power_of_two, upper_tail};

/// No draw of the normal law in `f32` is further from the mean, in standard deviations: √(62 ln 2), and a
/// little more.
pub(crate) const REACH: f64 = 6.5556;
/// The same in `f64`: √(126 ln 2).
pub(crate) const REACH_WIDE: f64 = 9.3457;

/// A standard normal distribution, cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cut {
    /// Beyond everything that is drawn, on both sides.
    Outside,
    /// Within reach on one side at least.
    Within(Truncated<f64>),
}

impl Cut {
    /// Cut at `low` and `high`, in standard deviations from the mean; `low` is less than `high`.
    pub(crate) fn new(low: f64, high: f64) -> Result<Self, InitError> {
        /// Tails below this underflow somewhere on the way.
        const SMALLEST_TAIL: f64 = 1e-290;
        if low <= -REACH && high >= REACH {
            return Ok(Self::Outside);
        }
        let (lower, upper) = (upper_tail(-low), upper_tail(high));
        let (above_low, below_high) = (upper_tail(low), upper_tail(-high));
        // The mass between the bounds, from the smaller numbers; and the whole tail, where there is one only.
        let (mass, tail) = if low >= 0.0 {
            (above_low - upper, above_low)
        } else if high <= 0.0 {
            (below_high - lower, below_high)
        } else {
            (1.0 - lower - upper, 0.5)
        };
        if tail < SMALLEST_TAIL {
            return Err(InitError::new("the interval is too far from the mean")
                .expecting("a bound within 36 standard deviations of the mean")
                .finding(format!("bounds at {low} and {high} standard deviations")));
        }
        let split = if low >= 0.0 {
            0.0
        } else if high <= 0.0 {
            2.0
        } else {
            ((0.5 - lower) / mass).clamp(0.0, 1.0)
        };
        let scale = if tail < f64::from(CENTRAL_FROM) {
            // Brings the tail to [¼, ½).
            1023 - 2 - (tail.to_bits() >> 52) as i32
        } else {
            0
        };
        let by = power_of_two(scale);
        Ok(Self::Within(Truncated {
            lower: lower * by,
            upper: upper * by,
            mass: mass.max(0.0) * by,
            split,
            shift: -scale,
        }))
    }
}

impl Truncated<f64> {
    /// Rounded to `f32`.
    pub(crate) fn narrowed(self) -> Truncated<f32> {
        Truncated {
            lower: self.lower as f32,
            upper: self.upper as f32,
            mass: self.mass as f32,
            split: self.split as f32,
            shift: self.shift,
        }
    }
}
