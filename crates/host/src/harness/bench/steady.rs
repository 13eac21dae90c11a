//! How much comes in a second over a stream that nobody interrupts.
//!
//! Unlike a transfer with its acknowledgement, which pays for a round trip and for the start of each, a stream
//! shows what a window and a congestion control give once they have settled. The worker receives: it
//! times what arrived. Left out: channels that lose.

use super::{Bench, Trouble, summarise_rates};
use crate::harness::control::Role;
use crate::harness::spec::{BlockReport, BlockSpec};
use crate::local::End;

impl<E: End> Bench<'_, E> {
    /// Bytes a second in each interval.
    pub(super) fn steady(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        interval_ns: u64,
    ) -> Result<BlockReport, Trouble> {
        if E::LOSSY || !E::QUEUES {
            return Err(Trouble::Impossible(format!(
                "{} is no stream that arrives whole",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        let mut samples: Vec<(u64, u64)> = Vec::with_capacity(samples_max.min(1 << 16));
        let interval = self.watch.ticks(interval_ns as f64);
        let duration = self.watch.ticks(spec.duration_ns as f64);
        self.begin(Role::Source, 0)?;
        // The first message opens the first interval.
        self.end.receive(&mut self.rx, self.size)?;
        let effort = self.effort();
        let (mut since, mut bytes, mut messages) = (self.watch.begin(), 0, 0);
        loop {
            self.end.receive(&mut self.rx, self.size)?;
            (bytes, messages) = (bytes + size, messages + 1);
            let now = self.watch.end();
            if now.wrapping_sub(since) < interval {
                continue;
            }
            samples.push((now.wrapping_sub(since), bytes));
            (since, bytes) = (now, 0);
            if samples.len() == samples_max || now.wrapping_sub(effort.at) >= duration {
                break;
            }
        }
        let mut report = self.report(&effort, messages);
        self.peer.set_stop(true)?;
        loop {
            self.end.receive(&mut self.rx, self.size)?;
            if self.rx[0] == 1 {
                break;
            }
        }
        let peer = self.peer_done()?;
        self.conclude(&mut report, &peer);
        summarise_rates(samples, messages, self.watch, spec, &mut report);
        Ok(report)
    }
}
