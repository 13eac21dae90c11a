//! What happens to messages: whether each is answered, and, checked one by one by the peer, how many are lost,
//! duplicated, reordered or corrupted.

use plumb_base::units::whole;

use super::ChannelBench;
use crate::channel::{ChannelEnd, ChannelError};
use crate::launch_protocol;
use crate::launch_protocol::{ControlPageWrite, DeliveryCounts, PeerRole};
use crate::report::{BlockError, BlockOutcome, BlockReport, NOTHING_DELIVERED};
use crate::spec::BlockSpec;

/// Messages tried in a block: enough to see whether any gets through at all.
const MESSAGES_MAX: u64 = 200;

/// The error of a socket that learns that its packet was too long for the path (ip(7)).
const EMSGSIZE: i32 = 90;

/// Messages checked one by one in a block.
const CHECKED_MIN: u64 = 500;
const CHECKED_MAX: u64 = 20_000;

impl<E: ChannelEnd> ChannelBench<'_, E> {
    /// The share of messages that come back: one sample a block.
    pub(super) fn answered_share(&mut self, spec: &BlockSpec, size: u64) -> BlockOutcome {
        self.prepare(size)?;
        // Nothing is timed, and what is lost is to be noticed soon.
        self.needs_tick |= E::LOSSY;
        self.begin(PeerRole::Echo, spec.injected_ns, 0)?;
        let effort = self.start_effort(spec);
        let (mut tried, mut told): (u64, u64) = (0, 0);
        loop {
            match self.round_trip(false) {
                Ok(()) => {}
                Err(ChannelError::TimedOut) if E::LOSSY => self.lost += 1,
                // A router sent the word back that it was too long (RFC 1191 §4).
                Err(ChannelError::Io(error)) if error.raw_os_error() == Some(EMSGSIZE) => {
                    (self.lost, told) = (self.lost + 1, told + 1);
                }
                Err(fault) => return Err(fault.into()),
            }
            tried += 1;
            if tried == MESSAGES_MAX || effort.is_over(0, self.stopwatch.end()) {
                break;
            }
        }
        let answered = tried - self.lost;
        let mut report = self.region_report(&effort, tried);
        self.finish(&mut report)?;
        if told > 0 {
            report.counters.insert("told_too_long".to_owned(), told);
        }
        put_share(&mut report, answered, tried);
        Ok(report)
    }

    /// What happens to messages sent as fast as the channel takes them.
    pub(super) fn reliability(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        pause_ns: u64,
        fault: &str,
    ) -> BlockOutcome {
        if !E::QUEUES {
            return Err(BlockError::Unavailable(format!(
                "{} holds one message at a time: those not yet taken are merged by design",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        let numbered = E::SENDS_GIVEN_BYTES && !E::LENDS_PAGES;
        let distinct = match self.stamp_len {
            len @ 1..8 if numbered => (1 << (8 * len)) - 1,
            _ => u64::MAX,
        };
        let one_ns = self.pilot_task(spec, PeerRole::Sink, |bench| bench.transfer(1).map(drop))?;
        let affordable = whole(spec.duration_ns as f64 / one_ns.max(pause_ns as f64));
        let count = affordable.clamp(CHECKED_MIN, CHECKED_MAX).min(distinct);
        // The pilot numbered its messages; the check expects the pattern, or numbers from 1.
        self.tx = launch_protocol::payload_pattern(self.seed, self.size);
        self.end.prepare(&self.tx, &mut self.rx)?;
        self.peer.write(ControlPageWrite::Count(count))?;
        self.begin(PeerRole::Check, pause_ns, 0)?;
        self.number = 0;
        let effort = self.start_effort(spec);
        for _ in 0..count {
            if numbered {
                self.number += 1;
                launch_protocol::stamp_payload(&mut self.tx, self.stamp_len, self.number);
            }
            self.end.send(&self.tx[..self.size])?;
        }
        if E::LOSSY {
            self.finish_lossy()?;
        }
        let peer = self.peer_done()?;
        let mut report = self.region_report(&effort, count);
        self.add_counts(&mut report, &peer);
        add_deliveries(&mut report, count, peer.delivery, fault)?;
        Ok(report)
    }
}

/// Counts what happened to so many messages; the sample is the share of those with this fault.
fn add_deliveries(
    report: &mut BlockReport,
    count: u64,
    checked: DeliveryCounts,
    fault: &str,
) -> Result<(), BlockError> {
    let fresh = checked.arrived - checked.duplicated;
    let counts = [
        ("sent", count),
        ("arrived", checked.arrived),
        ("lost", count.saturating_sub(fresh)),
        ("duplicated", checked.duplicated),
        ("reordered", checked.reordered),
        ("corrupted", checked.corrupted),
    ];
    report.counters.extend(counts.map(|(name, n)| (name.to_owned(), n)));
    let delivered = ("delivered", fresh.saturating_sub(checked.corrupted));
    // The first two are no faults.
    let mut faults = counts[2..].iter().chain([&delivered]);
    let Some((_, chosen)) = faults.find(|(name, _)| *name == fault) else {
        return Err(BlockError::Unavailable(format!("'{fault}' is not a fault plumb counts")));
    };
    put_share(report, *chosen, count);
    Ok(())
}

/// Makes a share of so many messages the block's one sample.
fn put_share(report: &mut BlockReport, chosen: u64, count: u64) {
    report.batch = 1;
    report.n = 1;
    report.samples = vec![chosen as f64 / count as f64];
    report.histogram_scale = 1e-6;
}

/// The report of a block in which nothing got through: no samples, and why.
pub(super) fn nothing_delivered(lost: u64, reason: &str) -> BlockReport {
    let mut report = BlockReport { batch: 1, histogram_scale: 1.0, ..BlockReport::default() };
    report.counters.insert("lost".to_owned(), lost);
    report.flags.push(format!("{NOTHING_DELIVERED}: {reason}"));
    report
}
