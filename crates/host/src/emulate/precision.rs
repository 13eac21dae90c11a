//! How exactly this machine lets a driver wait, measured before it is relied on.
//!
//! Left out: any waiting for frames.

use std::fmt;

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::Span;
use plumb_sys::timer;
use plumb_sys::tun;

use crate::clock::Timeline;

/// How a driver waits for a frame's moment.
///
/// A frame that comes while it sleeps is not known to have come before it is awake: it enters the link
/// late by what waking costs, about as much as [`MeasuredPrecision`] says of sleeps. Such frames are counted
/// ([`super::Punctuality::found_asleep`]), and where others kept the driver from waking, so is that
/// ([`super::Punctuality::entered_late`]). Only spinning avoids both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Asleep until the kernel's timer: needs no CPU while nothing happens, and is late by what waking costs.
    Timer,
    /// Asleep until shortly before, then spinning; and as long after a frame came.
    Hybrid {
        /// How long before; what was measured to be enough when absent.
        spin: Option<Span>,
    },
    /// Spinning for ever: needs a CPU to itself.
    Busy,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timer => "timer",
            Self::Hybrid { .. } => "hybrid",
            Self::Busy => "busy",
        })
    }
}

/// What waiting was worth when it was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredPrecision {
    /// By how much a sleep was too long, by the middle one.
    pub oversleep_p50: Span,
    /// By the worst but one in a hundred.
    pub oversleep_p99: Span,
    /// By the worst.
    pub oversleep_worst: Span,
    /// The time between two looks at the clock while spinning, by the worst but one in a thousand.
    pub look_p999: Span,
    /// By the worst: how long the machine was elsewhere.
    pub look_worst: Span,
}

/// Sleeps that are tried, and how long the shortest and the longest are.
const SLEEPS: u64 = 60;
const SLEEP_MIN: Span = Span::from_us(50);
const SLEEP_STEP: Span = Span::from_us(25);
/// How long is spun.
const SPIN: Span = Span::from_ms(10);

/// The least and the most that is spun before a deadline when nobody says.
const MARGIN_MIN: Span = Span::from_us(20);
const MARGIN_MAX: Span = Span::from_ms(1);
/// The least and the most by which a frame may be late without being called so when nobody says.
const TOLERANCE_MIN: Span = Span::from_us(100);
const TOLERANCE_MAX: Span = Span::from_ms(1);

impl MeasuredPrecision {
    /// How long before a deadline a sleep must end for the deadline to be met.
    pub fn margin(&self) -> Span {
        (self.oversleep_p99 * 2).clamp(MARGIN_MIN, MARGIN_MAX)
    }

    /// By how much a frame may be late before its deadline counts as missed: four times what the way
    /// of waiting usually costs, and between 100 µs and 1 ms.
    pub fn tolerance(&self, precision: Precision) -> Span {
        let usual = match precision {
            Precision::Timer => self.oversleep_p99,
            Precision::Hybrid { .. } | Precision::Busy => self.look_p999,
        };
        (usual * 4).clamp(TOLERANCE_MIN, TOLERANCE_MAX)
    }
}

/// Tries it, in about a twentieth of a second and a tenth: sleeps of various lengths in ppoll(2), and
/// a spin. This thread's timer slack is a nanosecond from then on.
pub fn measure_precision(timeline: &Timeline) -> MeasuredPrecision {
    // Where a kernel refuses, the sleeps show it.
    let _ = timer::set_slack_ns(1);
    let (mut oversleeps, mut looks) = (Histogram::new(), Histogram::new());
    for n in 0..SLEEPS {
        let wanted = SLEEP_MIN + SLEEP_STEP * n;
        let before = timeline.now();
        // A sleep that a signal ends is too short, and counts as exact.
        let _ = tun::wait_readable(&[], &mut [], Some(wanted.as_ns()));
        let slept = timeline.now().saturating_since(before);
        oversleeps.record(slept.saturating_sub(wanted).as_ns());
    }
    let begun = timeline.now();
    let mut last = begun;
    while last.saturating_since(begun) < SPIN {
        let now = timeline.now();
        looks.record(now.saturating_since(last).as_ns());
        last = now;
    }
    MeasuredPrecision {
        oversleep_p50: Span::from_ns(oversleeps.quantile(0.5)),
        oversleep_p99: Span::from_ns(oversleeps.quantile(0.99)),
        oversleep_worst: Span::from_ns(oversleeps.max()),
        look_p999: Span::from_ns(looks.quantile(0.999)),
        look_worst: Span::from_ns(looks.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Stopwatch;

    #[test]
    fn what_was_measured_is_ordered_and_gives_a_margin_and_a_tolerance_within_their_limits() {
        let measured = measure_precision(&Timeline::begin(Stopwatch::new(None)));
        assert!(measured.oversleep_p50 <= measured.oversleep_p99, "{measured:?}");
        assert!(measured.oversleep_p99 <= measured.oversleep_worst, "{measured:?}");
        assert!(measured.look_p999 <= measured.look_worst, "{measured:?}");
        assert!(measured.oversleep_worst > Span::ZERO, "no sleep is exact: {measured:?}");
        assert!((MARGIN_MIN..=MARGIN_MAX).contains(&measured.margin()));
        for precision in [Precision::Timer, Precision::Busy, Precision::Hybrid { spin: None }] {
            let tolerance = measured.tolerance(precision);
            assert!((TOLERANCE_MIN..=TOLERANCE_MAX).contains(&tolerance), "{precision}");
        }
    }
}
