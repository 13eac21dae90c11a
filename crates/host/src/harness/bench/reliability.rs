//! What becomes of messages, each checked by the peer: lost, repeated, out of order, changed.

use super::{Bench, Trouble};
use crate::harness::control::Role;
use crate::harness::payload;
use crate::harness::spec::{BlockReport, BlockSpec};
use crate::local::End;

/// Messages checked one by one in a block.
const CHECKED_MIN: u64 = 500;
const CHECKED_MAX: u64 = 20_000;

impl<E: End> Bench<'_, E> {
    /// What becomes of messages sent as fast as the channel takes them.
    pub(super) fn reliability(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        pause_ns: u64,
        fault: &str,
    ) -> Result<BlockReport, Trouble> {
        if !E::QUEUES {
            return Err(Trouble::Impossible(format!(
                "{} holds one message at a time: those not yet taken are merged by design",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        let numbered = E::STAMPED && !E::LENDS;
        let distinct = match self.stamp_len {
            len @ 1..8 if numbered => (1 << (8 * len)) - 1,
            _ => u64::MAX,
        };
        self.begin(Role::Sink, 0)?;
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
        self.begin(Role::Check, pause_ns)?;
        self.number = 0;
        let effort = self.effort();
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
        let mut report = self.report(&effort, count);
        self.conclude(&mut report, &peer);
        let checked = peer.checked;
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
                return Err(Trouble::Impossible(format!("'{other}' is not a fault plumb counts")));
            }
        };
        report.batch = 1;
        report.n = 1;
        report.samples = vec![chosen as f64 / count as f64];
        report.histogram_scale = 1e-6;
        Ok(report)
    }
}
