//! The one clock that times: the time-stamp counter where it can be trusted, else
//! CLOCK_MONOTONIC_RAW.
//!
//! Calibrated in every run; resolution and read cost are measured again in every launch, on its
//! own CPU. Left out: the experiment that compares clocks, which is `harness::clocks`.

use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_sys::clock::{self, Clock};

mod timeline;

pub use timeline::Timeline;

/// Reads the clock that times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stopwatch {
    ticks_per_ns: Option<f64>,
}

impl Stopwatch {
    /// A stopwatch on the counter, when its rate is given, or on CLOCK_MONOTONIC_RAW.
    pub const fn new(ticks_per_ns: Option<f64>) -> Self {
        Self { ticks_per_ns }
    }

    /// Reads the clock where a timed region begins.
    #[inline]
    pub fn begin(self) -> u64 {
        match self.ticks_per_ns {
            Some(_) => clock::ticks_begin(),
            None => clock::read_ns(Clock::MonotonicRaw),
        }
    }

    /// Reads the clock where a timed region ends.
    #[inline]
    pub fn end(self) -> u64 {
        match self.ticks_per_ns {
            Some(_) => clock::ticks_end(),
            None => clock::read_ns(Clock::MonotonicRaw),
        }
    }

    /// Nanoseconds in a number of ticks.
    #[inline]
    pub fn ns(self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_ns.unwrap_or(1.0)
    }

    /// Ticks in a number of nanoseconds, rounded.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates; spans here are seconds at most"
    )]
    pub fn ticks(self, ns: f64) -> u64 {
        (ns * self.ticks_per_ns.unwrap_or(1.0)).round() as u64
    }

    /// Spins for a number of ticks.
    #[inline]
    pub fn spin(self, ticks: u64) {
        let start = self.begin();
        while self.begin().wrapping_sub(start) < ticks {
            std::hint::spin_loop();
        }
    }

    /// The argument with which [`Self::spin`] lasts as many ticks as asked, its own reading of
    /// the clock included: measured here and now, because that is a good part of a short spin.
    pub fn spin_argument(self, wanted: u64) -> u64 {
        let mut argument = wanted;
        for _ in 0..SPIN_ROUNDS {
            let mut lasted: Vec<f64> = (0..SPIN_TRIALS)
                .map(|_| {
                    let start = self.end();
                    self.spin(argument);
                    let with = self.end().wrapping_sub(start);
                    let start = self.end();
                    let without = self.end().wrapping_sub(start);
                    with as f64 - without as f64
                })
                .collect();
            lasted.sort_by(f64::total_cmp);
            // The mean, because a spin overshoots by anything up to a turn of its loop; without
            // its largest tenth, which is interrupts.
            lasted.truncate(lasted.len() - lasted.len() / 10);
            let mean = lasted.iter().sum::<f64>() / lasted.len() as f64;
            let excess = mean - wanted as f64;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float cast saturates, and a spin cannot be shorter than nothing"
            )]
            {
                argument = (argument as f64 - excess).max(0.0) as u64;
            }
        }
        argument
    }

    /// Measures this clock on the CPU it is called on.
    pub fn measure(self) -> ClockQuality {
        let mut costs: Vec<f64> = Vec::with_capacity(READS);
        let mut resolution = f64::INFINITY;
        for _ in 0..READS {
            let start = self.begin();
            let stop = self.end();
            let elapsed = self.ns(stop.wrapping_sub(start));
            costs.push(elapsed);
            let step = self.ns(self.end().wrapping_sub(stop));
            if step > 0.0 {
                resolution = resolution.min(step);
            }
        }
        let tick = 1.0 / self.ticks_per_ns.unwrap_or(1.0);
        costs.sort_by(f64::total_cmp);
        ClockQuality {
            resolution_ns: if resolution.is_finite() { tick.max(1e-3) } else { tick },
            read_cost_ns: quantile::of_sorted(&costs, 0.5),
            read_cost_min_ns: costs[0],
        }
    }
}

const READS: usize = 1000;
const SPIN_ROUNDS: u32 = 3;
const SPIN_TRIALS: u32 = 100;

/// What a clock can resolve on one CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockQuality {
    /// One step of the counter, in nanoseconds.
    pub resolution_ns: f64,
    /// Median time between two reads with nothing between them.
    pub read_cost_ns: f64,
    /// The least of them.
    pub read_cost_min_ns: f64,
}

impl ClockQuality {
    /// The shortest time worth one sample: 1,000 × the resolution and 100 × the read cost.
    pub fn sample_min_ns(self) -> f64 {
        (1000.0 * self.resolution_ns).max(100.0 * self.read_cost_ns)
    }
}

/// The outcome of calibrating the counter against CLOCK_MONOTONIC_RAW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Ticks a nanosecond; none when the counter is not to be trusted.
    pub ticks_per_ns: Option<f64>,
    /// Half width of what the calibration leaves open, in parts per million.
    pub uncertainty_ppm: f64,
}

/// Compares the counter with CLOCK_MONOTONIC_RAW for a while, on the CPU it is called on.
///
/// The counter is used only when the processor says that it is constant and never stops, and the
/// kernel has not marked it unstable. Each comparison reads the counter on both sides of the
/// kernel's clock; the tightest pair at each end counts.
pub fn calibrate(during: Span) -> Calibration {
    let sources = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    // The kernel drops "tsc" from the list when it finds it unstable.
    let listed = !cfg!(target_arch = "x86_64")
        || std::fs::read_to_string(sources).is_ok_and(|list| list.contains("tsc"));
    if !clock::ticks_usable() || !listed {
        return Calibration { ticks_per_ns: None, uncertainty_ppm: 0.0 };
    }
    let first = tightest_pair();
    let end = first.ns + during.as_ns();
    let mut last = tightest_pair();
    while last.ns < end {
        last = tightest_pair();
    }
    let elapsed_ns = (last.ns - first.ns) as f64;
    let ticks = last.ticks.wrapping_sub(first.ticks) as f64;
    let slack = (first.slack + last.slack) as f64 / 2.0;
    Calibration { ticks_per_ns: Some(ticks / elapsed_ns), uncertainty_ppm: slack / ticks * 1e6 }
}

/// The counter and the kernel's clock read together.
#[derive(Clone, Copy)]
struct Pair {
    ticks: u64,
    ns: u64,
    /// Ticks between the counter reads around the kernel's clock.
    slack: u64,
}

fn tightest_pair() -> Pair {
    let read = || {
        let before = clock::ticks_begin();
        let ns = clock::read_ns(Clock::MonotonicRaw);
        let after = clock::ticks_end();
        let slack = after.wrapping_sub(before);
        Pair { ticks: before.wrapping_add(slack / 2), ns, slack }
    };
    let first = read();
    (0..50)
        .map(|_| read())
        .fold(first, |best, pair| if pair.slack < best.slack { pair } else { best })
}

/// Nanoseconds of CLOCK_MONOTONIC_RAW: for schedules and deadlines, not for samples.
pub fn monotonic_ns() -> u64 {
    clock::read_ns(Clock::MonotonicRaw)
}

/// Sixty-four random bits of the operating system's, for the seed of a run that was given none.
pub fn entropy() -> std::io::Result<u64> {
    use std::io::Read as _;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Milliseconds since 1970, UTC: for dating runs.
pub fn unix_ms() -> i64 {
    i64::try_from(clock::read_ns(Clock::Realtime) / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibrated_stopwatch_agrees_with_the_kernels_clock() {
        let calibration = calibrate(Span::from_ms(20));
        let watch = Stopwatch::new(calibration.ticks_per_ns);
        let raw = Stopwatch::new(None);
        // Nested reads: the inner interval can never be longer than the outer one.
        let outer_start = raw.begin();
        let inner_start = watch.begin();
        raw.spin(10_000_000);
        let inner = watch.ns(watch.end() - inner_start);
        let outer = (raw.end() - outer_start) as f64;
        assert!(inner <= outer * 1.001, "{inner} {outer}");
        assert!(inner >= 10_000_000.0 * 0.999, "{inner}");
    }

    #[test]
    fn a_sample_lasts_a_hundred_reads_of_the_clock() {
        let quality =
            ClockQuality { resolution_ns: 0.4, read_cost_ns: 20.0, read_cost_min_ns: 18.0 };
        assert!((quality.sample_min_ns() - 2000.0).abs() < 1e-9);
        let coarse =
            ClockQuality { resolution_ns: 100.0, read_cost_ns: 20.0, read_cost_min_ns: 18.0 };
        assert!((coarse.sample_min_ns() - 100_000.0).abs() < 1e-9);
    }
}
