//! Where the time of a round trip goes: the same round trips with probes and without, in turn.
//!
//! Probes are switched every few round trips, so that what they cost is a difference within one block
//! and nothing that drifts. Left out: the probes themselves: a mirror's own clock reads
//! (`Edges`), and the kernel's tracepoints (`super::tracepoints`).

use super::{Bench, Trouble, give_up_after, reserve};
use crate::harness::control::{PeerReport, Role};
use crate::harness::page::Page;
use crate::harness::sampler;
use crate::harness::spec::{BlockReport, BlockSpec, PartReport};
use crate::local::{End, Fault};

/// Round trips between two switches.
const TURN: usize = 16;

/// Named samples in nanoseconds.
pub(super) type Parts = Vec<(String, Vec<f64>)>;

/// One probed round trip: ticks at its begin and at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trip {
    /// Before the request was sent.
    pub(crate) begin: u64,
    /// After the reply was received.
    pub(crate) end: u64,
}

/// Something that looks into round trips while it is switched on.
pub(super) trait Probe {
    /// Switches it; outside any timed region.
    fn switch(&mut self, on: bool) -> Result<(), Trouble>;

    /// What it saw of the probed round trips.
    fn parts(&mut self, trips: &[Trip], peer: &PeerReport) -> Result<Parts, Trouble>;
}

/// A mirror's own clock reads at its edges.
pub(super) struct Edges {
    page: Page,
}

impl Edges {
    pub(super) fn new(page: Page) -> Self {
        Self { page }
    }
}

impl Probe for Edges {
    fn switch(&mut self, on: bool) -> Result<(), Trouble> {
        self.page.set_probing(on);
        Ok(())
    }

    fn parts(&mut self, _trips: &[Trip], peer: &PeerReport) -> Result<Parts, Trouble> {
        Ok(peer.times.clone())
    }
}

impl<E: End> Bench<'_, E> {
    /// Round trips in turns with and without probes; one response for each part.
    pub(super) fn breakdown(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        probe: &mut dyn Probe,
    ) -> Result<BlockReport, Trouble> {
        self.prepare(size)?;
        self.begin(Role::Echo)?;
        self.pilot(|bench| bench.round_trip(false))?;
        self.finish_echo()?;

        self.begin(Role::Echo)?;
        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        let mut plain = reserve(samples_max);
        let mut probed: Vec<Trip> = vec![Trip { begin: 1, end: 1 }; samples_max];
        probed.clear();
        let effort = self.effort();
        let duration = self.watch.ticks(spec.duration_ns as f64);
        let mut on = false;
        let mut lost_in_a_row = 0;
        loop {
            probe.switch(on)?;
            for _ in 0..TURN {
                let begin = self.watch.begin();
                let outcome = self.round_trip(false);
                let end = self.watch.end();
                match outcome {
                    Ok(()) if on => probed.push(Trip { begin, end }),
                    Ok(()) => plain.push(end.wrapping_sub(begin)),
                    Err(Fault::TimedOut) if E::LOSSY => {
                        self.lost += 1;
                        lost_in_a_row += 1;
                        give_up_after(lost_in_a_row, size)?;
                        continue;
                    }
                    Err(fault) => return Err(fault.into()),
                }
                lost_in_a_row = 0;
            }
            on = !on;
            let elapsed = self.watch.end().wrapping_sub(effort.at);
            let full = plain.len().max(probed.len()) + TURN > samples_max;
            if !on && (full || elapsed >= duration) {
                break;
            }
        }
        probe.switch(false)?;
        let mut report = self.report(&effort, self.done);
        let peer = self.finish_echo()?;
        self.conclude(&mut report, &peer);
        report.batch = 1;
        let mut parts = probe.parts(&probed, &peer)?;
        let plain = plain.iter().map(|&ticks| self.watch.ns(ticks)).collect();
        let whole = |trip: &Trip| self.watch.ns(trip.end.wrapping_sub(trip.begin));
        parts.push(("rtt".to_owned(), plain));
        parts.push(("rtt-probed".to_owned(), probed.iter().map(whole).collect()));
        add_parts(parts, spec, &mut report);
        Ok(report)
    }
}

/// Each part as a response of its own.
fn add_parts(parts: Parts, spec: &BlockSpec, report: &mut BlockReport) {
    for (response, values) in parts {
        let mut one = BlockReport::default();
        sampler::summarise(&values, 0.001, spec, &mut one);
        report.parts.push(PartReport {
            response,
            n: one.n,
            samples: one.samples,
            histogram: one.histogram,
            histogram_scale: one.histogram_scale,
        });
    }
}
