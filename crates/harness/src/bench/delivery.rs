//! What becomes of messages: whether each is answered, and, checked one by one by the peer, how many are lost,
//! duplicated, reordered or corrupted.

use super::ChannelBench;
use crate::channel::{ChannelEnd, ChannelError};
use crate::peer_protocol::PeerRole;
use crate::report::{BlockError, BlockReport, NOTHING_DELIVERED};
use crate::spec::BlockSpec;
use crate::{payload, sampler};

/// Messages tried in a block: enough to see whether any gets through at all.
const MESSAGES_MAX: usize = 200;

/// The error of a socket that learns that its packet was too long for the path (ip(7)).
const EMSGSIZE: i32 = 90;

/// Messages checked one by one in a block.
const CHECKED_MIN: u64 = 500;
const CHECKED_MAX: u64 = 20_000;

impl<E: ChannelEnd> ChannelBench<'_, E> {
    /// The share of messages that come back: 1 or 0 each.
    pub(super) fn answered_share(
        &mut self,
        spec: &BlockSpec,
        size: u64,
    ) -> Result<BlockReport, BlockError> {
        self.prepare(size)?;
        self.begin(PeerRole::Echo, spec.injected_ns)?;
        let effort = self.start_effort();
        let duration = self.stopwatch.ticks(spec.duration_ns as f64);
        let mut values = Vec::with_capacity(MESSAGES_MAX);
        let mut told: u64 = 0;
        loop {
            match self.round_trip(false) {
                Ok(()) => values.push(1.0),
                Err(ChannelError::TimedOut) if E::LOSSY => {
                    self.lost += 1;
                    values.push(0.0);
                }
                // A router sent the word back that it was too long (RFC 1191 §4).
                Err(ChannelError::Io(error)) if error.raw_os_error() == Some(EMSGSIZE) => {
                    (self.lost, told) = (self.lost + 1, told + 1);
                    values.push(0.0);
                }
                Err(fault) => return Err(fault.into()),
            }
            let elapsed = self.stopwatch.end().wrapping_sub(effort.at);
            if values.len() == MESSAGES_MAX || elapsed >= duration {
                break;
            }
        }
        let mut report = self.region_report(&effort, values.len() as u64);
        let peer = self.finish_echo()?;
        self.add_counts(&mut report, &peer);
        report.batch = 1;
        if told > 0 {
            report.counters.insert("told_too_long".to_owned(), told);
        }
        sampler::summarize(&values, 1e-6, spec, &mut report);
        Ok(report)
    }

    /// What becomes of messages sent as fast as the channel takes them.
    pub(super) fn reliability(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        pause_ns: u64,
        fault: &str,
    ) -> Result<BlockReport, BlockError> {
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
        self.begin(PeerRole::Sink, 0)?;
        self.peer.set_count(1)?;
        let one_ns = self.pilot(spec, |bench| bench.transfer(1).map(drop))?;
        self.finish_sink()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates"
        )]
        let affordable = (spec.duration_ns as f64 / one_ns.max(pause_ns as f64)) as u64;
        let count = affordable.clamp(CHECKED_MIN, CHECKED_MAX).min(distinct);
        // The pilot numbered its messages; the check expects the pattern, or numbers from 1.
        self.tx = payload::pattern(self.seed, self.size);
        self.end.prepare(&self.tx, &mut self.rx)?;
        self.peer.set_count(count)?;
        self.begin(PeerRole::Check, pause_ns)?;
        self.number = 0;
        let effort = self.start_effort();
        for _ in 0..count {
            if numbered {
                self.number += 1;
                payload::stamp(&mut self.tx, self.stamp_len, self.number);
            }
            self.end.send(&self.tx[..self.size])?;
        }
        if E::LOSSY {
            self.finish_lossy()?;
        }
        let peer = self.peer_done()?;
        let mut report = self.region_report(&effort, count);
        self.add_counts(&mut report, &peer);
        let checked = peer.delivery;
        let fresh = checked.arrived - checked.duplicated;
        let lost = count.saturating_sub(fresh);
        for (name, n) in [
            ("sent", count),
            ("arrived", checked.arrived),
            ("lost", lost),
            ("duplicated", checked.duplicated),
            ("reordered", checked.reordered),
            ("corrupted", checked.corrupted),
        ] {
            report.counters.insert(name.to_owned(), n);
        }
        let chosen = match fault {
            "lost" => lost,
            "duplicated" => checked.duplicated,
            "reordered" => checked.reordered,
            "corrupted" => checked.corrupted,
            "delivered" => fresh.saturating_sub(checked.corrupted),
            other => {
                return Err(BlockError::Unavailable(format!(
                    "'{other}' is not a fault plumb counts"
                )));
            }
        };
        report.batch = 1;
        report.n = 1;
        report.samples = vec![chosen as f64 / count as f64];
        report.histogram_scale = 1e-6;
        Ok(report)
    }
}

/// The report of a block in which nothing got through: no samples, and why.
pub(super) fn nothing_delivered(lost: u64, reason: &str) -> BlockReport {
    let mut report = BlockReport { batch: 1, histogram_scale: 1.0, ..BlockReport::default() };
    report.counters.insert("lost".to_owned(), lost);
    report.flags.push(format!("{NOTHING_DELIVERED}: {reason}"));
    report
}
