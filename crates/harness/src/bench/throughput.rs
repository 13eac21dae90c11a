//! Rates: long transfers, acknowledged messages, and a stream that is never interrupted.

use plumb_base::units::whole;
use plumb_clock::Stopwatch;

use super::{ChannelBench, TransferArrival, give_up_after};
use crate::channel::{ChannelEnd, ChannelError};
use crate::launch_protocol::{ControlPageWrite, PeerRole};
use crate::report::{
    BlockError, BlockOutcome, BlockReport, NOTHING_DELIVERED, batch_for, discard_backwards,
    summarize,
};
use crate::spec::BlockSpec;

/// A transfer is long enough that its one acknowledgement weighs less than a thousandth, in
/// round trips.
const TRANSFER_ROUND_TRIPS: f64 = 1_000.0;
/// Transfers in a block, when the duration allows.
const TRANSFERS: f64 = 8.0;

impl<E: ChannelEnd> ChannelBench<'_, E> {
    /// Bytes a second over long transfers, a transfer a sample.
    pub(super) fn throughput(&mut self, spec: &BlockSpec, size: u64) -> BlockOutcome {
        if !E::QUEUES {
            return Err(BlockError::Unavailable(format!(
                "{} holds one message at a time: there is no stream of them to time",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        self.begin(PeerRole::Sink, 0, 0)?;
        self.peer.write(ControlPageWrite::Count(1))?;
        let one_ns = self.pilot(spec, |bench| bench.transfer(1).map(drop))?;
        // Without a shared clock a transfer is timed from first to last arrival; at least 8 messages keep the first
        // wake-up small.
        let least = if self.is_timed_by_peer() { 8 } else { 1 };
        let count = self.messages_for(spec, one_ns)?.max(least);
        self.finish(&mut BlockReport::default())?;

        let mut samples: Vec<(u64, u64)> = Vec::with_capacity(spec.samples_max as usize);
        self.begin(PeerRole::Sink, 0, spec.duration_ns)?;
        self.peer.write(ControlPageWrite::Count(count))?;
        let effort = self.start_effort(spec);
        let mut empty = 0;
        let mut messages = 0;
        loop {
            let t0 = self.stopwatch.begin();
            let outcome = self.transfer(count);
            messages += count;
            let arrived = match outcome {
                Ok(arrived) => arrived,
                Err(ChannelError::TimedOut) if E::LOSSY => None,
                Err(fault) => return Err(fault.into()),
            };
            samples.push(self.timed_sample(t0, arrived));
            empty += u32::from(arrived.is_none());
            if empty as usize == samples.len() {
                give_up_after(empty, size)?;
            }
            if effort.is_over(samples.len(), self.stopwatch.end()) {
                break;
            }
        }
        let mut report = self.region_report(&effort, messages);
        discard_backwards(&mut samples, |&(t, _)| t, &mut report);
        self.finish(&mut report)?;
        report.counters.insert("messages_per_transfer".to_owned(), count);
        note_empty(&mut report, &mut samples);
        if E::LOSSY {
            report.flags.push("receiver-timed".to_owned());
        }
        let bytes = samples.iter().map(|&(ticks, n)| (ticks, n * size)).collect();
        summarize_rates(bytes, messages, self.stopwatch, spec, &mut report);
        Ok(report)
    }

    /// Bytes a second when every message is acknowledged before the next.
    pub(super) fn throughput_acked(&mut self, spec: &BlockSpec, size: u64) -> BlockOutcome {
        self.prepare(size)?;
        let role = if E::LOSSY { PeerRole::Ack } else { PeerRole::Sink };
        let exchange = |bench: &mut Self| {
            if E::LOSSY { bench.acked_message() } else { bench.transfer(1).map(drop) }
        };
        let one_ns = self.pilot_task(spec, role, exchange)?;
        self.begin(role, 0, spec.duration_ns)?;
        let batch = batch_for(self.quality.sample_min_ns(), one_ns);
        let (mut report, ticks) = self.closed_loop(spec, batch, |_| Ok(()), exchange)?;
        self.finish(&mut report)?;
        let bytes = (size * u64::from(report.batch)) as f64;
        let watch = self.stopwatch;
        let values: Vec<f64> =
            ticks.iter().map(|&t| bytes / (watch.ns(t).max(1.0) * 1e-9)).collect();
        summarize(&values, 1.0, spec, &mut report);
        Ok(report)
    }

    /// Messages a transfer: long enough that its one acknowledgement weighs little, short enough
    /// that a block holds several.
    fn messages_for(&mut self, spec: &BlockSpec, acked_ns: f64) -> Result<u64, BlockError> {
        let wanted_ns = spec.duration_ns as f64 / TRANSFERS;
        // No more at first than the whole block would take, where a message takes long.
        let mut count = whole((spec.duration_ns as f64 / acked_ns).clamp(1.0, 16.0));
        loop {
            self.peer.write(ControlPageWrite::Count(count))?;
            let start = self.stopwatch.begin();
            match self.transfer(count) {
                Err(ChannelError::TimedOut) if E::LOSSY => {}
                outcome => {
                    outcome?;
                }
            }
            let elapsed = self.stopwatch.ns(self.stopwatch.end().wrapping_sub(start));
            let per_message = elapsed / count as f64;
            if elapsed * 4.0 >= wanted_ns || count >= 1 << 24 {
                let by_time = whole(wanted_ns / per_message);
                let by_ack = whole(TRANSFER_ROUND_TRIPS * acked_ns / per_message);
                return Ok(by_time.min(by_ack.max(by_time / 4)).max(1));
            }
            count *= 4;
        }
    }

    /// The ticks of a transfer and its messages; of one that the peer has timed, from its first message's arrival, the
    /// messages after that.
    fn timed_sample(&self, began: u64, arrived: Option<TransferArrival>) -> (u64, u64) {
        match arrived {
            Some(arrived) if self.is_timed_by_peer() => {
                (self.stopwatch.ticks(arrived.at as f64), arrived.messages.get() - 1)
            }
            arrived => rate_sample(began, arrived),
        }
    }

    /// Bytes a second in each interval.
    pub(super) fn steady(&mut self, spec: &BlockSpec, size: u64, interval_ns: u64) -> BlockOutcome {
        if E::LOSSY || !E::QUEUES {
            return Err(BlockError::Unavailable(format!(
                "{} does not deliver a whole stream",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        let mut samples = Vec::with_capacity((spec.samples_max as usize).min(1 << 16));
        let interval = self.stopwatch.ticks(interval_ns as f64);
        self.begin(PeerRole::Source, 0, spec.duration_ns)?;
        // The first message opens the first interval.
        self.end.receive(&mut self.rx, self.size)?;
        let effort = self.start_effort(spec);
        let (mut since, mut bytes, mut messages) = (self.stopwatch.begin(), 0, 0);
        loop {
            self.end.receive(&mut self.rx, self.size)?;
            (bytes, messages) = (bytes + size, messages + 1);
            let now = self.stopwatch.end();
            if now.wrapping_sub(since) < interval {
                continue;
            }
            samples.push((now.wrapping_sub(since), bytes));
            (since, bytes) = (now, 0);
            if effort.is_over(samples.len(), now) {
                break;
            }
        }
        let mut report = self.region_report(&effort, messages);
        self.peer.write(ControlPageWrite::Stop(true))?;
        loop {
            self.end.receive(&mut self.rx, self.size)?;
            if self.rx[0] == 1 {
                break;
            }
        }
        let peer = self.peer_done()?;
        self.add_counts(&mut report, &peer);
        summarize_rates(samples, messages, self.stopwatch, spec, &mut report);
        Ok(report)
    }
}

/// Summarizes samples of ticks and bytes, of so many messages in all, as bytes a second.
fn summarize_rates(
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
    summarize(&values, 1.0, spec, report);
}

/// The ticks of a transfer and the messages that it delivered.
///
/// One that delivered nothing has no end: it is a sample all the same, of a rate of zero. Without
/// it the rate would be that of the transfers that got through.
fn rate_sample(began: u64, arrived: Option<TransferArrival>) -> (u64, u64) {
    arrived.map_or((0, 0), |arrived| (arrived.at.wrapping_sub(began), arrived.messages.get()))
}

/// Says how many transfers delivered nothing; where none delivered anything, there is no rate to tell.
fn note_empty(report: &mut BlockReport, samples: &mut Vec<(u64, u64)>) {
    let empty = samples.iter().filter(|(_, delivered)| *delivered == 0).count();
    if empty > 0 && empty == samples.len() {
        samples.clear();
        report.flags.push(format!(
            "{NOTHING_DELIVERED}: none of {empty} transfers delivered anything to time"
        ));
    } else if empty > 0 {
        report.counters.insert("empty_transfers".to_owned(), empty as u64);
        report.flags.push("empty-transfers".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::spec::BlockTask;

    #[test]
    fn a_transfer_that_delivers_nothing_is_a_sample_of_zero() {
        let some = |at, n| Some(TransferArrival { at, messages: NonZeroU64::new(n).unwrap() });
        let mut samples: Vec<(u64, u64)> =
            [some(3_000, 4), None, some(9_000, 2)].map(|a| rate_sample(1_000, a)).to_vec();
        let mut report = BlockReport::default();
        discard_backwards(&mut samples, |&(ticks, _)| ticks, &mut report);
        assert!(report.flags.is_empty());
        note_empty(&mut report, &mut samples);
        assert_eq!(report.counters["empty_transfers"], 1);
        assert_eq!(report.flags, ["empty-transfers"]);
        let spec = BlockSpec {
            task: BlockTask::Throughput { size: 1 },
            duration_ns: 1,
            samples_max: 10,
            samples_kept: 10,
            injected_ns: 0,
        };
        summarize_rates(samples, 12, Stopwatch::new(None), &spec, &mut report);
        assert_eq!(report.n, 3);
        let rounded: Vec<f64> = report.samples.iter().map(|rate| rate.round()).collect();
        assert_eq!(rounded, [2e6, 0.0, 250_000.0]);
    }

    #[test]
    fn transfers_that_all_deliver_nothing_are_no_samples() {
        let mut samples = [None; 4].map(|arrived| rate_sample(1_000, arrived)).to_vec();
        let mut report = BlockReport::default();
        note_empty(&mut report, &mut samples);
        assert!(samples.is_empty());
        assert_eq!(
            report.flags,
            ["nothing-delivered: none of 4 transfers delivered anything to time"]
        );
    }
}
