//! What a block's samples and counts become in its report.
//!
//! All of it runs once a block and knows no channel: one copy serves them all. Left out: taking samples.

use plumb_base::time::Span;
use plumb_base::units::format_bytes;
use plumb_sys::timer;

use super::exchange::Arrived;
use crate::clock::Stopwatch;
use crate::harness::control::PeerReport;
use crate::harness::effort::{CpuReading, KernelTimes};
use crate::harness::sampler;
use crate::harness::spec::{BlockReport, BlockSpec, NOTHING_DELIVERED};

/// Adds what both ends counted, and what the peer cost.
pub(super) fn add_counts(own: &[(&str, u64)], peer: &PeerReport, report: &mut BlockReport) {
    report.effort.peer = peer.cpu;
    let own = own.iter().map(|(name, n)| ((*name).to_owned(), *n));
    for (name, n) in own.chain(peer.tally.iter().cloned()) {
        *report.counters.entry(name).or_default() += n;
    }
    report.counters.retain(|_, n| *n > 0);
    if report.counters.contains_key("corrupted") {
        report.flags.push("corrupted".to_owned());
    }
}

/// Summarises samples of so many operations each as times in nanoseconds.
pub(super) fn summarise_times(
    ticks: &[u64],
    watch: Stopwatch,
    per_sample: f64,
    spec: &BlockSpec,
    report: &mut BlockReport,
) {
    let values: Vec<f64> = ticks.iter().map(|&t| watch.ns(t) / per_sample).collect();
    sampler::summarise(&values, 0.001, spec, report);
}

/// Summarises samples of ticks and bytes, of so many messages in all, as bytes a second.
pub(super) fn summarise_rates(
    samples: Vec<(u64, u64)>,
    messages: u64,
    watch: Stopwatch,
    spec: &BlockSpec,
    report: &mut BlockReport,
) {
    report.counters.insert("messages".to_owned(), messages);
    report.batch = 1;
    let rate = |(t, n): (u64, u64)| n as f64 / (watch.ns(t).max(1.0) * 1e-9);
    let values: Vec<f64> = samples.into_iter().map(rate).collect();
    sampler::summarise(&values, 1.0, spec, report);
}

/// The ticks of a transfer and the messages that it delivered.
///
/// One that delivered nothing has no end: it is a sample all the same, of a rate of zero. Without
/// it the rate would be that of the transfers that got through.
pub(super) fn transfer_sample(began: u64, arrived: Option<Arrived>) -> (u64, u64) {
    arrived.map_or((0, 0), |arrived| (arrived.at.wrapping_sub(began), arrived.messages.get()))
}

/// Says how many transfers delivered nothing.
pub(super) fn note_empty(report: &mut BlockReport, samples: &[(u64, u64)]) {
    let empty = samples.iter().filter(|(_, delivered)| *delivered == 0).count() as u64;
    if empty > 0 {
        report.counters.insert("empty_transfers".to_owned(), empty);
        report.flags.push("empty-transfers".to_owned());
    }
}

/// Leaves out samples during which the clock went back, and says so, or that there is none at all.
pub(super) fn keep_forward(ticks: &mut Vec<u64>, lost: u64, size: u64, report: &mut BlockReport) {
    if ticks.is_empty() {
        let none = format!("none of {lost} messages of {} came back", format_bytes(size));
        report.flags.push(format!("{NOTHING_DELIVERED}: {none}"));
    }
    note_backwards(report, discard_backwards(ticks, |&t| t));
}

/// The report of a block in which nothing got through: no samples, and why.
pub(super) fn silent(lost: u64, reason: &str) -> BlockReport {
    let mut report = BlockReport { batch: 1, histogram_scale: 1.0, ..BlockReport::default() };
    report.counters.insert("lost".to_owned(), lost);
    report.flags.push(format!("{NOTHING_DELIVERED}: {reason}"));
    report
}

/// Readings at the start of a timed region.
pub(super) struct EffortStart {
    ticks: u32,
    cpu: CpuReading,
    /// When it began, in ticks.
    pub(super) at: u64,
}

impl EffortStart {
    pub(super) fn now(kernel: &mut KernelTimes, watch: Stopwatch) -> Self {
        kernel.begin();
        Self { ticks: timer::ticks(), cpu: CpuReading::now(), at: watch.begin() }
    }

    /// The report of a region that began here and ends now.
    pub(super) fn report(
        &self,
        kernel: &mut KernelTimes,
        watch: Stopwatch,
        operations: u64,
    ) -> BlockReport {
        let wall = watch.end().wrapping_sub(self.at);
        let local = CpuReading::now().since(self.cpu);
        let mut report = BlockReport::default();
        report.effort.local = local;
        (report.effort.softirq_ns, report.effort.steal_ns) = kernel.since_begin();
        report.effort.wall_ns = Span::from_secs_f64(watch.ns(wall) * 1e-9).as_ns();
        report.effort.operations = operations;
        report
            .counters
            .insert("interruptions".to_owned(), u64::from(timer::ticks().wrapping_sub(self.ticks)));
        report
    }
}

/// Removes samples whose clock went back between its two reads; how many there were.
///
/// A counter that is not the same on every CPU does so when a process migrates; the difference
/// wraps to more than half the range, which no sample lasts.
pub(crate) fn discard_backwards<T>(samples: &mut Vec<T>, ticks: impl Fn(&T) -> u64) -> u64 {
    let before = samples.len();
    samples.retain(|sample| ticks(sample) < 1 << 63);
    (before - samples.len()) as u64
}

/// Says that the clock went back.
pub(super) fn note_backwards(report: &mut BlockReport, count: u64) {
    if count > 0 {
        report.counters.insert("clock_backwards".to_owned(), count);
        report.flags.push("clock-backwards".to_owned());
    }
}

/// Operations a sample, so that it lasts as long as the clock needs.
pub(crate) fn batch_for(sample_min_ns: f64, operation_ns: f64) -> u32 {
    if operation_ns >= sample_min_ns {
        return 1;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    let batch = (sample_min_ns / operation_ns).ceil() as u32;
    batch.clamp(1, 1 << 20)
}

/// Memory for samples, touched.
pub(crate) fn reserve(samples: usize) -> Vec<u64> {
    let mut memory = vec![1; samples];
    memory.clear();
    memory
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::harness::spec::Task;

    #[test]
    fn samples_during_which_the_clock_went_back_are_discarded_and_counted() {
        let mut samples = vec![100, 5_u64.wrapping_sub(9), 200];
        assert_eq!(discard_backwards(&mut samples, |&t| t), 1);
        assert_eq!(samples, [100, 200]);
    }

    #[test]
    fn a_transfer_that_delivers_nothing_is_a_sample_of_zero_and_no_matter_of_the_clock() {
        let some = |at, n| Some(Arrived { at, messages: NonZeroU64::new(n).unwrap() });
        let mut samples: Vec<(u64, u64)> =
            [some(3_000, 4), None, some(9_000, 2)].map(|a| transfer_sample(1_000, a)).to_vec();
        assert_eq!(discard_backwards(&mut samples, |&(ticks, _)| ticks), 0);
        let mut report = BlockReport::default();
        note_empty(&mut report, &samples);
        assert_eq!(report.counters["empty_transfers"], 1);
        assert_eq!(report.flags, ["empty-transfers"]);
        let spec = BlockSpec {
            task: Task::Throughput { size: 1 },
            duration_ns: 1,
            samples_max: 10,
            samples_kept: 10,
            injected_ns: 0,
        };
        summarise_rates(samples, 12, Stopwatch::new(None), &spec, &mut report);
        assert_eq!(report.n, 3);
        let rounded: Vec<f64> = report.samples.iter().map(|rate| rate.round()).collect();
        assert_eq!(rounded, [2e6, 0.0, 250_000.0]);
    }

    #[test]
    fn an_operation_too_short_for_the_clock_is_batched_until_it_is_not() {
        assert_eq!(batch_for(2_000.0, 2_000.0), 1);
        assert_eq!(batch_for(2_000.0, 300.0), 7);
        assert_eq!(batch_for(2_000.0, 1e-9), 1 << 20);
        assert_eq!(batch_for(f64::INFINITY, 300.0), 1 << 20);
    }
}
