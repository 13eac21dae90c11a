//! The one clock that times: the time-stamp counter where it can be trusted, else
//! CLOCK_MONOTONIC_RAW.
//!
//! Calibrated in every run; resolution and read cost are measured again in every launch, on its
//! own CPU.

use std::collections::BTreeMap;
use std::hint::black_box;

use plumb_base::time::Span;
use plumb_base::units::whole;
use plumb_sys::clock::{self, ClockId};

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
            None => clock::read_ns(ClockId::MonotonicRaw),
        }
    }

    /// Reads the clock where a timed region ends.
    #[inline]
    pub fn end(self) -> u64 {
        match self.ticks_per_ns {
            Some(_) => clock::ticks_end(),
            None => clock::read_ns(ClockId::MonotonicRaw),
        }
    }

    /// Nanoseconds in a number of ticks.
    #[inline]
    pub fn ns(self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_ns.unwrap_or(1.0)
    }

    /// Ticks in a number of nanoseconds, rounded.
    pub fn ticks(self, ns: f64) -> u64 {
        whole((ns * self.ticks_per_ns.unwrap_or(1.0)).round())
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
    pub fn calibrated_spin_ticks(self, wanted: u64) -> u64 {
        if wanted > self.ticks(SPIN_CALIBRATED_MAX.as_ns() as f64) {
            return wanted;
        }
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
            // A spin cannot be shorter than nothing.
            argument = whole((argument as f64 - excess).max(0.0));
        }
        argument
    }

    /// This clock and CLOCK_MONOTONIC_RAW at one moment: the tightest of some pairs of reads.
    pub fn anchor(self) -> ClockAnchor {
        let read = |_| {
            let before = self.begin();
            let ns = clock::read_ns(ClockId::MonotonicRaw);
            let slack = self.end().wrapping_sub(before);
            ClockAnchor { ticks: before.wrapping_add(slack / 2), ns, slack }
        };
        (1..ANCHOR_READS)
            .map(read)
            .fold(read(0), |best, anchor| if anchor.slack < best.slack { anchor } else { best })
    }

    /// Measures this clock on the CPU it is called on.
    pub fn measure(self) -> ClockQuality {
        let interval = |turns: u32| {
            let start = self.begin();
            for turn in 0..turns {
                black_box(turn);
            }
            self.end().wrapping_sub(start)
        };
        ClockQuality::of(interval, self.ns(1))
    }
}

/// Longer spins are not calibrated: reading the clock adds less than a thousandth to them, and on a busy
/// machine more than a tenth of them would be preempted, which the mean below would take for that cost.
const SPIN_CALIBRATED_MAX: Span = Span::from_us(100);

/// A stopwatch's clock and CLOCK_MONOTONIC_RAW at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockAnchor {
    /// What the stopwatch shows.
    pub ticks: u64,
    /// What CLOCK_MONOTONIC_RAW shows.
    pub ns: u64,
    /// Ticks between the stopwatch's reads around the other clock's.
    pub slack: u64,
}

/// Pairs of reads for an anchor.
const ANCHOR_READS: u32 = 64;
const SPIN_ROUNDS: u32 = 3;
const SPIN_TRIALS: u32 = 100;

/// Pairs of reads with nothing between them, and as many with a little.
const READS: usize = 1000;
/// Pairs of reads after which a clock counts as standing still: tens of milliseconds of them.
const READS_MAX: u32 = 1 << 20;
/// Turns of an empty loop between two reads, at most, so that intervals differ by less than a read.
const TURNS_MAX: u32 = 64;
/// Intervals that are something after which a clock has been seen to move.
const MOVES: usize = 3;

/// What a clock can resolve on one CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockQuality {
    /// The smallest step of its readings, in nanoseconds; infinite for a clock that stood still.
    pub resolution_ns: f64,
    /// Median time between two reads with nothing between them.
    pub read_cost_ns: f64,
}

impl ClockQuality {
    /// The quality of a clock; `interval` gives the units of `unit_ns` between two of its reads that
    /// so many turns of an empty loop keep apart.
    fn of(mut interval: impl FnMut(u32) -> u64, unit_ns: f64) -> Self {
        let mut costs: Vec<u64> = (0..READS).map(|_| interval(0)).collect();
        costs.sort_unstable();
        let mut intervals = Vec::with_capacity(READS);
        let mut moves = 0;
        for pair in 0..READS_MAX {
            let units = interval(pair % TURNS_MAX);
            // A clock that steps every few milliseconds stands still for most of them.
            if intervals.len() < READS || units > 0 {
                intervals.push(units);
            }
            moves += usize::from(units > 0);
            if intervals.len() >= READS && moves >= MOVES {
                break;
            }
        }
        let resolution_ns =
            smallest_step(intervals).map_or(f64::INFINITY, |units| units as f64 * unit_ns);
        Self { resolution_ns, read_cost_ns: costs[READS / 2] as f64 * unit_ns }
    }

    /// The shortest time worth one sample: 100 × the read cost, and 1,000 × the resolution where a step is longer
    /// than a read. Shorter steps vanish in what the reads themselves vary by, and cost a sample of that length a
    /// thousandth or so, where a batch would cost all of its quantiles.
    pub fn sample_min_ns(self) -> f64 {
        let reads = 100.0 * self.read_cost_ns;
        let is_coarse = self.resolution_ns > self.read_cost_ns;
        if is_coarse { reads.max(1000.0 * self.resolution_ns) } else { reads }
    }

    /// It by name and number, for the record.
    pub fn facts(self) -> BTreeMap<String, String> {
        let facts = [("resolution_ns", self.resolution_ns), ("read_cost_ns", self.read_cost_ns)];
        facts.map(|(name, ns)| (name.to_owned(), format!("{ns:.2}"))).into()
    }
}

/// The smallest step of a clock, as the intervals between its reads show it; none where it never
/// moved.
///
/// The shortest interval is no step: where a step is shorter than a read, it is the read. But
/// intervals are whole numbers of steps, none among them where the clock is slower than its
/// reader, so the least by which two of them differ is a step. Kernels round their clocks to a
/// nanosecond: of steps of 279.4 ns some are 279 and some 280, which is no step of one. Three
/// neighbours in a row are steps of one.
fn smallest_step(mut intervals: Vec<u64>) -> Option<u64> {
    // Where the clock went back, the difference wraps.
    intervals.retain(|&units| units < 1 << 63);
    intervals.sort_unstable();
    intervals.dedup();
    if intervals.windows(3).any(|three| three[2] - three[0] == 2) {
        return Some(1);
    }
    let rounded = intervals.chunk_by(|a, b| b - a == 1).map(|chunk| chunk[0]);
    let steps: Vec<u64> = rounded.collect();
    match *steps {
        [] | [0] => None,
        // Two neighbours and nothing else differ by one, and one alone by nothing.
        [only] => Some(if intervals.len() > 1 { 1 } else { only }),
        _ => steps.windows(2).map(|pair| pair[1] - pair[0]).min(),
    }
}

/// The outcome of calibrating the counter against CLOCK_MONOTONIC_RAW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockCalibration {
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
pub fn calibrate(during: Span) -> ClockCalibration {
    let sources = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    // The kernel drops "tsc" from the list when it finds it unstable.
    let listed = !cfg!(target_arch = "x86_64")
        || std::fs::read_to_string(sources).is_ok_and(|list| list.contains("tsc"));
    if !clock::ticks_usable() || !listed {
        return ClockCalibration { ticks_per_ns: None, uncertainty_ppm: 0.0 };
    }
    let counter = Stopwatch::new(Some(1.0));
    let first = counter.anchor();
    let end = first.ns + during.as_ns();
    let mut last = counter.anchor();
    while last.ns < end {
        last = counter.anchor();
    }
    let elapsed_ns = (last.ns - first.ns) as f64;
    let ticks = last.ticks.wrapping_sub(first.ticks) as f64;
    let slack = (first.slack + last.slack) as f64 / 2.0;
    ClockCalibration {
        ticks_per_ns: Some(ticks / elapsed_ns),
        uncertainty_ppm: slack / ticks * 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However busy the machine: preemption is not taken for the cost of reading the clock.
    #[test]
    fn long_spins_are_not_shortened() {
        let watch = Stopwatch::new(None);
        let wanted = Span::from_ms(4).as_ns();
        assert_eq!(watch.calibrated_spin_ticks(wanted), wanted);
    }

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

    /// The quality of a clock that steps every `step_ns`, rounded to nanoseconds as kernels do, and
    /// takes `cost_ns` to read, give or take a third of a nanosecond for each turn.
    fn simulated(step_ns: f64, cost_ns: f64) -> ClockQuality {
        let mut now_ns = 12_345.6;
        ClockQuality::of(
            |turns| {
                let read = |now_ns: f64| ((now_ns / step_ns).floor() * step_ns).floor();
                let start = read(now_ns);
                now_ns += cost_ns + 0.34 * f64::from(turns);
                let stop = read(now_ns);
                now_ns += cost_ns + 0.1;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a clock that goes forwards"
                )]
                {
                    (stop - start) as u64
                }
            },
            1.0,
        )
    }

    #[test]
    fn coarse_steps_are_found_whatever_a_read_costs() {
        // Hyper-V's page, HPET, the ACPI timer, a 24 MHz counter, ticks of 250 Hz.
        for (step_ns, cost_ns) in [
            (100.0, 25.0),
            (69.841, 20.0),
            (69.841, 650.0),
            (279.365, 1_100.0),
            (41.667, 12.0),
            (4e6, 7.3),
        ] {
            let quality = simulated(step_ns, cost_ns);
            let found = quality.resolution_ns;
            assert!((found - step_ns).abs() <= 1.0, "{step_ns} read in {cost_ns}: {quality:?}");
            // A read is as long as a whole number of steps says.
            let least_ns =
                if step_ns > cost_ns { 980.0 * step_ns } else { 100.0 * (cost_ns - step_ns) };
            assert!(quality.sample_min_ns() >= least_ns, "{quality:?}");
        }
    }

    #[test]
    fn a_read_that_is_longer_than_a_step_is_not_taken_for_one() {
        for cost_ns in [20.3, 41.7, 350.0] {
            let quality = simulated(1.0, cost_ns);
            assert!((quality.resolution_ns - 1.0).abs() < 1e-9, "{quality:?}");
            assert!((quality.read_cost_ns - cost_ns).abs() <= 1.0, "{quality:?}");
            assert!(quality.sample_min_ns() <= 100.0 * (cost_ns + 1.0), "{quality:?}");
        }
    }

    #[test]
    fn a_clock_that_stands_still_resolves_nothing() {
        let still = ClockQuality::of(|_| 0, 1.0);
        assert!(still.resolution_ns.is_infinite() && still.sample_min_ns().is_infinite());
    }

    #[test]
    fn intervals_show_the_step_by_their_differences() {
        let step = |intervals: &[u64]| smallest_step(intervals.to_vec());
        // A counter that steps by 26, and one that is seen at even numbers alone.
        assert_eq!(step(&[52, 78, 52, 52, 130]), Some(26));
        assert_eq!(step(&[46, 48, 54, 9_000]), Some(2));
        assert_eq!(step(&[20, 21, 22, 90]), Some(1));
        assert_eq!(step(&[20, 21]), Some(1));
        assert_eq!(step(&[40, 40]), Some(40));
        assert_eq!(step(&[0, 279, 280, 559]), Some(279));
        assert_eq!(step(&[u64::MAX - 5, 0]), None);
    }

    #[test]
    fn the_clock_that_times_moves_and_by_whole_units() {
        let counter = calibrate(Span::from_ms(5)).ticks_per_ns;
        for watch in [Stopwatch::new(counter), Stopwatch::new(None)] {
            let quality = watch.measure();
            println!("{watch:?} {quality:?}");
            let units = quality.resolution_ns / watch.ns(1);
            assert!(units >= 0.999 && (units - units.round()).abs() < 1e-6, "{quality:?}");
        }
    }
}
