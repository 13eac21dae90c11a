//! Datagrams over a path that may not take them: whether each is answered, and how long a small one
//! takes behind large ones.
//!
//! One message at a time, so that none is lost for want of room. Left out: why one was lost.

use super::{Bench, Trouble, keep_forward, summarise_times};
use crate::harness::control::Role;
use crate::harness::payload;
use crate::harness::sampler;
use crate::harness::spec::{BlockReport, BlockSpec};
use crate::local::{End, Fault};

/// Messages tried in a block: enough to see whether any gets through at all.
const TRIED_MAX: usize = 200;

/// The error of a socket that learns that its packet was too long for the path (ip(7)).
const EMSGSIZE: i32 = 90;

impl<E: End> Bench<'_, E> {
    /// The share of messages that come back: 1 or 0 each.
    pub(super) fn answered(&mut self, spec: &BlockSpec, size: u64) -> Result<BlockReport, Trouble> {
        self.prepare(size)?;
        self.begin(Role::Echo, spec.injected_ns)?;
        let effort = self.effort();
        let duration = self.watch.ticks(spec.duration_ns as f64);
        let mut values = Vec::with_capacity(TRIED_MAX);
        let mut told: u64 = 0;
        loop {
            match self.round_trip(false) {
                Ok(()) => values.push(1.0),
                Err(Fault::TimedOut) if E::LOSSY => {
                    self.lost += 1;
                    values.push(0.0);
                }
                // A router sent the word back that it was too long (RFC 1191 §4).
                Err(Fault::Io(error)) if error.raw_os_error() == Some(EMSGSIZE) => {
                    (self.lost, told) = (self.lost + 1, told + 1);
                    values.push(0.0);
                }
                Err(fault) => return Err(fault.into()),
            }
            let elapsed = self.watch.end().wrapping_sub(effort.at);
            if values.len() == TRIED_MAX || elapsed >= duration {
                break;
            }
        }
        let mut report = self.report(&effort, values.len() as u64);
        let peer = self.finish_echo()?;
        self.conclude(&mut report, &peer);
        report.batch = 1;
        if told > 0 {
            report.counters.insert("told_too_long".to_owned(), told);
        }
        sampler::summarise(&values, 1e-6, spec, &mut report);
        Ok(report)
    }

    /// The round trip of a message that is sent right behind others, which nobody answers.
    pub(super) fn behind(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        ahead: u64,
        count: u32,
    ) -> Result<BlockReport, Trouble> {
        if !E::LOSSY || ahead == size {
            return Err(Trouble::Impossible(format!(
                "messages that nobody answers need datagrams of another size, and {} of {ahead} \
                 bytes are not",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        let len = usize::try_from(ahead).map_err(|e| Trouble::Impossible(e.to_string()))?;
        let crowd = payload::pattern(self.seed, len);
        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        let mut ticks = super::reserve(samples_max);
        self.begin(Role::Echo, spec.injected_ns)?;
        let effort = self.effort();
        let duration = self.watch.ticks(spec.duration_ns as f64);
        let mut lost = 0;
        loop {
            for _ in 0..count {
                self.end.send(&crowd)?;
            }
            let t0 = self.watch.begin();
            let outcome = self.round_trip(false);
            let t1 = self.watch.end();
            match outcome {
                Ok(()) => ticks.push(t1.wrapping_sub(t0)),
                Err(Fault::TimedOut) => {
                    self.lost += 1;
                    lost += 1;
                    if ticks.is_empty() {
                        super::give_up_after(lost, size)?;
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
            if ticks.len() == samples_max || t1.wrapping_sub(effort.at) >= duration {
                break;
            }
        }
        let mut report = self.report(&effort, self.done);
        keep_forward(&mut ticks, self.lost, size, &mut report);
        let peer = self.finish_echo()?;
        self.conclude(&mut report, &peer);
        report.batch = 1;
        summarise_times(&ticks, self.watch, 1.0, spec, &mut report);
        Ok(report)
    }
}
