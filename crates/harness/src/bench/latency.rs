//! Round trips in a closed loop: one after another, or behind messages that nobody answers.

use plumb_base::units::format_bytes;
use plumb_clock::Stopwatch;

use super::{ChannelBench, give_up_after};
use crate::channel::{ChannelEnd, ChannelError};
use crate::launch_protocol;
use crate::launch_protocol::PeerRole;
use crate::report::{
    BlockError, BlockOutcome, BlockReport, NOTHING_DELIVERED, batch_for, discard_backwards,
    reserve_samples, summarize,
};
use crate::spec::{BlockSpec, MessageShape};

impl<E: ChannelEnd> ChannelBench<'_, E> {
    /// Half the round trip of a message.
    pub(super) fn latency(&mut self, spec: &BlockSpec, size: u64, split: bool) -> BlockOutcome {
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
    ) -> BlockOutcome {
        self.prepare(size)?;
        let trip_ns = self.pilot_task(spec, PeerRole::Echo, &round_trip)?;
        self.begin(PeerRole::Echo, spec.injected_ns, spec.duration_ns)?;
        let batch = batch_for(self.quality.sample_min_ns(), trip_ns);
        let (mut report, ticks) = self.closed_loop(spec, batch, |_| Ok(()), round_trip)?;
        self.finish(&mut report)?;
        let per_sample = divisor * f64::from(batch);
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
    ) -> BlockOutcome {
        if !E::LOSSY || ahead == size {
            return Err(BlockError::Unavailable(format!(
                "messages that nobody answers need datagrams of another size, and {} of {ahead} \
                 bytes are not",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        let len = usize::try_from(ahead)?;
        let load = launch_protocol::payload_pattern(self.seed, len);
        self.begin(PeerRole::Echo, spec.injected_ns, spec.duration_ns)?;
        let send_load = |bench: &mut Self| (0..count).try_for_each(|_| bench.end.send(&load));
        let (mut report, ticks) =
            self.closed_loop(spec, 1, send_load, |bench| bench.round_trip(false))?;
        self.finish(&mut report)?;
        summarize_times(&ticks, self.stopwatch, 1.0, spec, &mut report);
        Ok(report)
    }

    /// The closed loop: one operation after another, each timed, or each batch of them when one
    /// would be too short for the clock; something untimed before each.
    pub(super) fn closed_loop(
        &mut self,
        spec: &BlockSpec,
        batch: u32,
        before: impl Fn(&mut Self) -> Result<(), ChannelError>,
        operation: impl Fn(&mut Self) -> Result<(), ChannelError>,
    ) -> Result<(BlockReport, Vec<u64>), BlockError> {
        let mut ticks = reserve_samples(spec.samples_max as usize);
        let effort = self.start_effort(spec);
        let mut lost = 0;
        loop {
            before(self)?;
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
                    self.needs_tick = true;
                    self.lost += 1;
                    lost += 1;
                    if ticks.is_empty() {
                        give_up_after(lost, self.size as u64)?;
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
            if effort.is_over(ticks.len(), t1) {
                break;
            }
        }
        let mut report = self.region_report(&effort, self.done);
        if ticks.is_empty() {
            let (lost, size) = (self.lost, format_bytes(self.size as u64));
            let none = format!("none of {lost} messages of {size} came back");
            report.flags.push(format!("{NOTHING_DELIVERED}: {none}"));
        }
        discard_backwards(&mut ticks, |&t| t, &mut report);
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
    summarize(&values, 0.001, spec, report);
}
