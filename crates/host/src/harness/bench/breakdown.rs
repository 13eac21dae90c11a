//! Where the time of a round trip goes: the same round trips with probes and without, in turn.
//!
//! What looking costs is a difference within one block, between round trips in turn, and nothing that
//! drifts. Left out: what looks: a mirror's own clock reads ([`Edges`], here because they are so
//! few) and the kernel's tracepoints (`super::tracepoints`).

use super::{Bench, Trouble, give_up_after, reserve};
use crate::clock::Stopwatch;
use crate::harness::control::{PeerReport, Role};
use crate::harness::effort::CpuReading;
use crate::harness::page::Page;
use crate::harness::sampler;
use crate::harness::spec::{BlockReport, BlockSpec, PartReport};
use crate::local::{End, Fault};

/// Named samples in nanoseconds.
pub(super) type Parts = Vec<(String, Vec<f64>)>;

/// What a probe saw of a block.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) parts: Parts,
    pub(super) counters: Vec<(&'static str, f64)>,
    pub(super) flags: Vec<&'static str>,
}

/// One probed round trip: ticks at its begin and at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trip {
    /// Before the request was sent.
    pub(crate) begin: u64,
    /// After the reply was received.
    pub(crate) end: u64,
}

/// How a probe takes turns with none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rhythm {
    /// Switched every so many round trips: it costs little to switch.
    Often {
        /// Round trips between two switches.
        trips: usize,
    },
    /// Switched on once, in the middle of the block.
    Once {
        /// Most round trips that it can watch.
        trips_max: usize,
    },
}

/// Something that looks into round trips while it is switched on.
pub(super) trait Probe {
    /// How it takes turns.
    fn rhythm(&self) -> Rhythm;

    /// Switches it; outside any timed region.
    fn switch(&mut self, on: bool) -> Result<(), Trouble>;

    /// What it saw of the probed round trips, beside those that nobody looked at, in nanoseconds.
    fn parts(&mut self, trips: &[Trip], plain: &[f64], peer: &PeerReport) -> Result<Seen, Trouble>;
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
    fn rhythm(&self) -> Rhythm {
        Rhythm::Often { trips: 16 }
    }

    fn switch(&mut self, on: bool) -> Result<(), Trouble> {
        self.page.set_probing(on);
        Ok(())
    }

    fn parts(&mut self, _: &[Trip], _: &[f64], peer: &PeerReport) -> Result<Seen, Trouble> {
        Ok(Seen { parts: peer.times.clone(), ..Seen::default() })
    }
}

/// Round trips of a block, with the probe and without.
struct Trips {
    plain: Vec<u64>,
    probed: Vec<Trip>,
    lost: u32,
    /// Page faults while they were under way: those of opening and reading a recorder are no
    /// disturbance of theirs.
    faults: u64,
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
        self.begin(Role::Echo, spec.injected_ns)?;
        self.pilot(spec, |bench| bench.round_trip(false))?;
        self.finish_echo()?;

        self.begin(Role::Echo, spec.injected_ns)?;
        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        let mut probed = vec![Trip { begin: 1, end: 1 }; samples_max];
        probed.clear();
        let plain = reserve(samples_max);
        let mut trips = Trips { plain, probed, lost: 0, faults: 0 };
        let effort = self.effort();
        let watched = self.take_turns(spec, probe, &mut trips);
        // Whatever happened, nothing goes on looking.
        probe.switch(false)?;
        watched?;
        let mut report = self.report(&effort, self.done);
        report.effort.local.page_faults = trips.faults;
        let peer = self.finish_echo()?;
        self.conclude(&mut report, &peer);
        report.batch = 1;
        explain(&trips, self.watch, probe, &peer, spec, &mut report)?;
        Ok(report)
    }

    fn take_turns(
        &mut self,
        spec: &BlockSpec,
        probe: &mut dyn Probe,
        trips: &mut Trips,
    ) -> Result<(), Trouble> {
        let duration = self.watch.ticks(spec.duration_ns as f64);
        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        match probe.rhythm() {
            Rhythm::Often { trips: count } => {
                let start = self.watch.begin();
                loop {
                    for on in [false, true] {
                        probe.switch(on)?;
                        self.watch_trips(on, count, u64::MAX, trips)?;
                    }
                    let full = trips.plain.len().max(trips.probed.len()) + count > samples_max;
                    if full || self.watch.end().wrapping_sub(start) >= duration {
                        return Ok(());
                    }
                }
            }
            Rhythm::Once { trips_max } => {
                let count = samples_max / 2;
                self.watch_trips(false, count, duration / 4, trips)?;
                probe.switch(true)?;
                self.watch_trips(true, trips_max.min(samples_max), duration / 2, trips)?;
                probe.switch(false)?;
                self.watch_trips(false, count, duration / 4, trips)
            }
        }
    }

    /// So many round trips, or as many as fit a time.
    fn watch_trips(
        &mut self,
        on: bool,
        count: usize,
        ticks_max: u64,
        trips: &mut Trips,
    ) -> Result<(), Trouble> {
        let usage = CpuReading::now();
        let start = self.watch.begin();
        for _ in 0..count {
            let begin = self.watch.begin();
            let outcome = self.round_trip(false);
            let end = self.watch.end();
            match outcome {
                Ok(()) if on => trips.probed.push(Trip { begin, end }),
                Ok(()) => trips.plain.push(end.wrapping_sub(begin)),
                Err(Fault::TimedOut) if E::LOSSY => {
                    self.lost += 1;
                    trips.lost += 1;
                    if trips.plain.is_empty() && trips.probed.is_empty() {
                        give_up_after(trips.lost, self.size as u64)?;
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
            if end.wrapping_sub(start) >= ticks_max {
                break;
            }
        }
        trips.faults += CpuReading::now().since(usage).page_faults;
        Ok(())
    }
}

/// What the probe saw of the round trips, and the round trips themselves.
fn explain(
    trips: &Trips,
    watch: Stopwatch,
    probe: &mut dyn Probe,
    peer: &PeerReport,
    spec: &BlockSpec,
    report: &mut BlockReport,
) -> Result<(), Trouble> {
    let plain: Vec<f64> = trips.plain.iter().map(|&ticks| watch.ns(ticks)).collect();
    let seen = probe.parts(&trips.probed, &plain, peer)?;
    for (name, value) in seen.counters {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float cast saturates; counters are not negative"
        )]
        report.counters.insert(name.to_owned(), value.round() as u64);
    }
    report.flags.extend(seen.flags.into_iter().map(str::to_owned));
    let whole = |trip: &Trip| watch.ns(trip.end.wrapping_sub(trip.begin));
    let mut parts = seen.parts;
    parts.push(("rtt".to_owned(), plain));
    parts.push(("rtt-probed".to_owned(), trips.probed.iter().map(whole).collect()));
    add_parts(parts, spec, report);
    Ok(())
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
