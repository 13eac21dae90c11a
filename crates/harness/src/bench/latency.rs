//! Round trips in a closed loop: one after another, or behind messages that nobody answers.

use plumb_base::units::format_bytes;
use plumb_clock::Stopwatch;

use super::{ChannelBench, give_up_after};
use crate::channel::{ChannelEnd, ChannelError};
use crate::payload;
use crate::peer_protocol::PeerRole;
use crate::report::{BlockError, BlockReport, NOTHING_DELIVERED};
use crate::sampler::{self, batch_for, discard_backwards, note_backwards, reserve_samples};
use crate::spec::{BlockSpec, MessageShape};

impl<E: ChannelEnd> ChannelBench<'_, E> {
    /// Half the round trip of a message.
    pub(super) fn latency(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        split: bool,
    ) -> Result<BlockReport, BlockError> {
        if split
            && (size < 2
                || self.mechanism.message_shape() != MessageShape::Stream
                || !E::SENDS_GIVEN_BYTES)
        {
            return Err(BlockError::Unavailable(format!(
                "a request in two writes needs a byte stream, which {} is not",
                self.mechanism.name()
            )));
        }
        self.echoes(spec, size, 2.0, |bench| bench.round_trip(split))
    }

    /// Round trips of a message; a sample is the given part of one.
    pub(super) fn echoes(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        divisor: f64,
        round_trip: impl Fn(&mut Self) -> Result<(), ChannelError>,
    ) -> Result<BlockReport, BlockError> {
        self.prepare(size)?;
        self.begin(PeerRole::Echo, spec.injected_ns)?;
        let trip_ns = self.pilot(spec, &round_trip)?;
        self.finish_echo()?;

        self.begin(PeerRole::Echo, spec.injected_ns)?;
        let (mut report, ticks) = self.closed_loop(spec, trip_ns, size, round_trip)?;
        let peer = self.finish_echo()?;
        self.add_counts(&mut report, &peer);
        let per_sample = divisor * f64::from(report.batch);
        summarize_times(&ticks, self.stopwatch, per_sample, spec, &mut report);
        Ok(report)
    }

    /// The round trip of a message that is sent right behind others, which nobody answers.
    pub(super) fn round_trip_behind_load(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        ahead: u64,
        count: u32,
    ) -> Result<BlockReport, BlockError> {
        if !E::LOSSY || ahead == size {
            return Err(BlockError::Unavailable(format!(
                "messages that nobody answers need datagrams of another size, and {} of {ahead} \
                 bytes are not",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        let len = usize::try_from(ahead).map_err(|e| BlockError::Unavailable(e.to_string()))?;
        let crowd = payload::pattern(self.seed, len);
        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        let mut ticks = reserve_samples(samples_max);
        self.begin(PeerRole::Echo, spec.injected_ns)?;
        let effort = self.start_effort();
        let duration = self.stopwatch.ticks(spec.duration_ns as f64);
        let mut lost = 0;
        loop {
            for _ in 0..count {
                self.end.send(&crowd)?;
            }
            let t0 = self.stopwatch.begin();
            let outcome = self.round_trip(false);
            let t1 = self.stopwatch.end();
            match outcome {
                Ok(()) => ticks.push(t1.wrapping_sub(t0)),
                Err(ChannelError::TimedOut) => {
                    self.lost += 1;
                    lost += 1;
                    if ticks.is_empty() {
                        give_up_after(lost, size)?;
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
            if ticks.len() == samples_max || t1.wrapping_sub(effort.at) >= duration {
                break;
            }
        }
        let mut report = self.region_report(&effort, self.done);
        discard_backward_samples(&mut ticks, self.lost, size, &mut report);
        let peer = self.finish_echo()?;
        self.add_counts(&mut report, &peer);
        report.batch = 1;
        summarize_times(&ticks, self.stopwatch, 1.0, spec, &mut report);
        Ok(report)
    }

    /// The closed loop: one operation after another, each timed, or each batch of them when one
    /// would be too short for the clock.
    pub(super) fn closed_loop(
        &mut self,
        spec: &BlockSpec,
        one_ns: f64,
        size: u64,
        operation: impl Fn(&mut Self) -> Result<(), ChannelError>,
    ) -> Result<(BlockReport, Vec<u64>), BlockError> {
        let batch = batch_for(self.quality.sample_min_ns(), one_ns);
        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        let mut ticks = reserve_samples(samples_max);
        let effort = self.start_effort();
        let duration = self.stopwatch.ticks(spec.duration_ns as f64);
        let mut lost = 0;
        loop {
            let t0 = self.stopwatch.begin();
            let mut outcome = Ok(());
            for _ in 0..batch {
                outcome = operation(self);
                if outcome.is_err() {
                    break;
                }
            }
            let t1 = self.stopwatch.end();
            match outcome {
                Ok(()) => ticks.push(t1.wrapping_sub(t0)),
                // A lost datagram is counted; its time is the timer's, not the channel's.
                Err(ChannelError::TimedOut) if E::LOSSY => {
                    self.lost += 1;
                    lost += 1;
                    if ticks.is_empty() {
                        give_up_after(lost, size)?;
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
            if ticks.len() == samples_max || t1.wrapping_sub(effort.at) >= duration {
                break;
            }
        }
        let mut report = self.region_report(&effort, self.done);
        discard_backward_samples(&mut ticks, self.lost, size, &mut report);
        report.batch = batch;
        if batch > 1 {
            report.flags.push("batched".to_owned());
        }
        Ok((report, ticks))
    }
}

/// Summarizes samples of so many operations each as times in nanoseconds.
fn summarize_times(
    ticks: &[u64],
    watch: Stopwatch,
    per_sample: f64,
    spec: &BlockSpec,
    report: &mut BlockReport,
) {
    let values: Vec<f64> = ticks.iter().map(|&t| watch.ns(t) / per_sample).collect();
    sampler::summarize(&values, 0.001, spec, report);
}

/// Leaves out samples during which the clock went back, and says so, or that there is none at all.
fn discard_backward_samples(ticks: &mut Vec<u64>, lost: u64, size: u64, report: &mut BlockReport) {
    if ticks.is_empty() {
        let none = format!("none of {lost} messages of {} came back", format_bytes(size));
        report.flags.push(format!("{NOTHING_DELIVERED}: {none}"));
    }
    note_backwards(report, discard_backwards(ticks, |&t| t));
}
