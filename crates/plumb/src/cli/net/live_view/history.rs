//! The history of a measurement for the live view: rates over time, round trips by phase.
//!
//! Memory is bounded: pairs of intervals are merged when there are too many.

use plumb_base::time::Span;
use plumb_net::measure::progress::TestProgress;
use plumb_net::measure::progress::{RttHistogram, SenderLimitedTime};
use plumb_net::measure::report::{TestPartReport, TestReport};
use plumb_result::net::SenderLimits;

/// Most intervals kept.
const POINTS_MAX: usize = 1_024;
/// Most phases kept.
const PHASES_MAX: usize = 8;

/// The time between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveInterval {
    /// Start, in seconds since the start of the measurement.
    pub from: f64,
    /// End, likewise.
    pub to: f64,
    /// Bytes from here to there.
    pub up_bytes: f64,
    /// Bytes from there to here.
    pub down_bytes: f64,
    /// Limits of the senders on this side.
    pub here: Option<SenderLimits>,
    /// Limits of the senders on the other side, once reported.
    pub there: Option<SenderLimits>,
}

impl LiveInterval {
    fn seconds(&self) -> f64 {
        self.to - self.from
    }

    /// Bytes per second from here to there.
    pub fn up(&self) -> f64 {
        self.up_bytes / self.seconds()
    }

    /// Bytes per second from there to here.
    pub fn down(&self) -> f64 {
        self.down_bytes / self.seconds()
    }

    /// Merges two adjacent intervals.
    fn joined(&self, next: &Self) -> Self {
        let (mine, theirs) = (self.seconds(), next.seconds());
        let mean = |a: f64, b: f64| (a * mine + b * theirs) / (mine + theirs);
        let both = |a: Option<SenderLimits>, b: Option<SenderLimits>| match (a, b) {
            (Some(a), Some(b)) => Some(SenderLimits {
                network: mean(a.network, b.network),
                receive_window: mean(a.receive_window, b.receive_window),
                send_buffer: mean(a.send_buffer, b.send_buffer),
                application: mean(a.application, b.application),
            }),
            (one, other) => one.or(other),
        };
        Self {
            from: self.from,
            to: next.to,
            up_bytes: self.up_bytes + next.up_bytes,
            down_bytes: self.down_bytes + next.down_bytes,
            here: both(self.here, next.here),
            there: both(self.there, next.there),
        }
    }
}

/// Round trips of one phase.
#[derive(Clone, Copy, Debug)]
pub struct PhaseRoundTrips {
    /// Name of the phase.
    pub name: &'static str,
    /// Histogram.
    pub trips: RttHistogram,
}

/// The history so far.
#[derive(Clone, Debug, Default)]
pub struct LiveHistory {
    points: Vec<LiveInterval>,
    phases: Vec<PhaseRoundTrips>,
    /// Latest reading of the current phase.
    last: Option<TestProgress>,
    /// Start of that phase, in seconds.
    began: f64,
    /// Planned seconds until the end of the measurement.
    left: f64,
}

fn seconds(ns: u64) -> f64 {
    Span::from_ns(ns).as_secs_f64()
}

impl LiveHistory {
    /// Adds a reading of a phase; `left` is the planned time after that phase.
    pub fn add_progress(&mut self, name: &'static str, progress: &TestProgress, left: Span) {
        let follows = self.last.filter(|last| {
            last.at_ns < progress.at_ns
                && self.phases.last().is_some_and(|phase| phase.name == name)
        });
        if let Some(last) = follows {
            let elapsed_ns = progress.at_ns - last.at_ns;
            self.push(LiveInterval {
                from: self.began + seconds(last.at_ns),
                to: self.began + seconds(progress.at_ns),
                up_bytes: progress.up_bytes.saturating_sub(last.up_bytes) as f64,
                down_bytes: progress.down_bytes.saturating_sub(last.down_bytes) as f64,
                here: progress.waits.since(&last.waits, elapsed_ns),
                there: None,
            });
        } else {
            self.began = self.now();
            if self.phases.len() >= PHASES_MAX {
                self.phases.remove(0);
            }
            self.phases.push(PhaseRoundTrips { name, trips: RttHistogram::default() });
        }
        if let Some(phase) = self.phases.last_mut() {
            phase.trips = progress.round_trips;
        }
        self.left =
            seconds(progress.planned_ns.saturating_sub(progress.at_ns)) + left.as_secs_f64();
        self.last = Some(*progress);
    }

    fn push(&mut self, point: LiveInterval) {
        if self.points.len() >= POINTS_MAX {
            self.points = self
                .points
                .chunks(2)
                .map(|two| two.iter().skip(1).fold(two[0], |one, other| one.joined(other)))
                .collect();
        }
        self.points.push(point);
    }

    /// Adds the limits of the other side's senders in the phase that just ended.
    pub fn add_remote_waits(&mut self, theirs: &[IntervalWaits]) {
        let began = self.began;
        for point in self.points.iter_mut().filter(|point| point.from >= began) {
            let middle = point.from.midpoint(point.to) - began;
            let waits = theirs.iter().find(|waits| waits.from <= middle && middle < waits.to);
            point.there = waits.map(|waits| waits.shares);
        }
    }

    /// Seconds measured so far.
    fn now(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.to)
    }

    /// The current phase: name, elapsed seconds, planned seconds, and seconds until the end of the measurement.
    pub fn phase(&self) -> Option<(&'static str, f64, f64, f64)> {
        let (last, phase) = (self.last?, self.phases.last()?);
        Some((phase.name, seconds(last.at_ns), seconds(last.planned_ns), self.left))
    }

    /// The latest interval.
    pub fn latest(&self) -> Option<&LiveInterval> {
        self.points.last()
    }

    /// The mean of a rate over the intervals in which there was any; none where there was none.
    pub fn mean(&self, rate: impl Fn(&LiveInterval) -> f64) -> Option<f64> {
        let known = self.points.iter().filter(|point| rate(point) > 0.0);
        let (sum, seconds) = known.fold((0.0, 0.0), |(sum, seconds), point| {
            (sum + rate(point) * point.seconds(), seconds + point.seconds())
        });
        (seconds > 0.0).then(|| sum / seconds)
    }

    /// Round trips by phase, the current one last.
    pub fn phases(&self) -> &[PhaseRoundTrips] {
        &self.phases
    }

    /// Means of a value over equal parts of the planned time; none where it is unknown.
    pub fn columns(
        &self,
        count: usize,
        value: impl Fn(&LiveInterval) -> Option<f64>,
    ) -> Vec<Option<f64>> {
        let width = (self.now() + self.left) / count as f64;
        let mut sums = vec![(0.0, 0.0); count];
        for (point, value) in self.points.iter().filter_map(|point| Some((point, value(point)?))) {
            for (column, (sum, weight)) in sums.iter_mut().enumerate() {
                let (from, to) = (column as f64 * width, (column + 1) as f64 * width);
                let shared = to.min(point.to) - from.max(point.from);
                if shared > 0.0 {
                    *sum += value * shared;
                    *weight += shared;
                }
            }
        }
        sums.into_iter().map(|(sum, weight)| (weight > 0.0).then(|| sum / weight)).collect()
    }
}

/// Limits of one side's senders between two readings, in seconds since the start of the phase.
#[derive(Clone, Copy, Debug)]
pub struct IntervalWaits {
    from: f64,
    to: f64,
    shares: SenderLimits,
}

/// Limits of the senders of a report over time.
pub fn sender_waits(report: &TestReport) -> Vec<IntervalWaits> {
    let streams = report.parts.iter().filter_map(|part| match part {
        TestPartReport::Streams(part) => Some(&part.streams),
        _ => None,
    });
    let senders: Vec<_> = streams.flatten().filter(|stream| stream.sends).collect();
    let waits = |at: usize| {
        let mut waits = SenderLimitedTime::default();
        senders.iter().filter_map(|stream| stream.samples.get(at)).for_each(|s| waits.add(s));
        waits
    };
    let moments = report.moments.iter().enumerate().skip(1);
    moments
        .filter_map(|(at, moment)| {
            let from_ns = report.moments[at - 1].at_ns;
            let elapsed_ns = moment.at_ns.saturating_sub(from_ns);
            let shares = waits(at).since(&waits(at - 1), elapsed_ns)?;
            Some(IntervalWaits { from: seconds(from_ns), to: seconds(moment.at_ns), shares })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use plumb_net::measure::report::{HostSample, StreamReport, StreamSample, StreamsReport};

    use super::*;

    fn reading(at_ms: u64, down_bytes: u64) -> TestProgress {
        let planned_ns = 1_000_000_000;
        TestProgress { at_ns: at_ms * 1_000_000, planned_ns, down_bytes, ..TestProgress::default() }
    }

    #[test]
    fn rates_are_between_readings_of_successive_phases() {
        let mut history = LiveHistory::default();
        history.add_progress("down", &reading(0, 0), Span::from_secs(1));
        history.add_progress("down", &reading(500, 500), Span::from_secs(1));
        history.add_progress("down", &reading(1_000, 2_500), Span::from_secs(1));
        assert_eq!(history.latest().map(LiveInterval::down), Some(4_000.0));
        history.add_progress("up", &reading(0, 0), Span::ZERO);
        history.add_progress("up", &reading(500, 100), Span::ZERO);
        assert_eq!(history.phase(), Some(("up", 0.5, 1.0, 0.5)));
        let latest = history.latest().unwrap();
        assert_eq!((latest.from, latest.to), (1.0, 1.5));
        // Two seconds in four columns: one a reading, and the last is still to come.
        let columns = history.columns(4, |point| Some(point.down()));
        assert_eq!(columns, [Some(1_000.0), Some(4_000.0), Some(200.0), None]);
    }

    #[test]
    fn memory_is_bounded_and_no_byte_is_lost() {
        let mut history = LiveHistory::default();
        for reading in 0..10_000 {
            let progress =
                TestProgress { planned_ns: 100_000_000_000_000, ..self::reading(reading, reading) };
            history.add_progress("down", &progress, Span::ZERO);
        }
        assert!(history.points.len() <= POINTS_MAX);
        let all: f64 = history.points.iter().map(|point| point.down_bytes).sum();
        assert!((all - 9_999.0).abs() < 1e-6);
        for (one, next) in history.points.iter().zip(&history.points[1..]) {
            assert!((one.to - next.from).abs() < 1e-9);
        }
    }

    #[test]
    fn remote_waits_are_matched_by_time() {
        let sample = |busy_us| {
            let mut sample = StreamSample::default();
            sample.tcp.busy_us = busy_us;
            sample
        };
        let stream = StreamReport {
            sends: true,
            samples: vec![sample(0), sample(500_000), sample(500_000)],
            ..StreamReport::default()
        };
        let moments =
            [0, 500, 1_000].map(|ms| HostSample { at_ns: ms * 1_000_000, ..HostSample::default() });
        let report = TestReport {
            moments: moments.to_vec(),
            parts: vec![TestPartReport::Streams(StreamsReport { streams: vec![stream] })],
            ..TestReport::default()
        };
        let mut history = LiveHistory::default();
        for at in [0, 480, 1_010] {
            history.add_progress("down", &reading(at, 0), Span::ZERO);
        }
        history.add_remote_waits(&sender_waits(&report));
        let there: Vec<f64> =
            history.points.iter().map(|point| point.there.unwrap().network).collect();
        assert_eq!(there, [1.0, 0.0]);
    }
}
