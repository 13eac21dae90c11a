//! Where the time of a round trip goes: the same round trips with probes and without, in turn.
//!
//! What looking costs is a difference within one block, between round trips in turn, and nothing that
//! drifts.

use plumb_base::units::whole;
use plumb_clock::Stopwatch;

use super::{ChannelBench, give_up_after};
use crate::channel::{ChannelEnd, ChannelError};
use crate::effort::CpuReading;
use crate::launch_protocol::{ControlPage, PeerReport, PeerRole};
use crate::report::{BlockError, BlockOutcome, BlockReport, reserve_samples, summarize_part};
use crate::spec::BlockSpec;
use crate::trace::RoundTrip;

/// Named samples in nanoseconds.
pub(super) type PartSamples = Vec<(String, Vec<f64>)>;

/// What a probe saw of a block.
#[derive(Default)]
pub(super) struct ProbeFindings {
    pub(super) parts: PartSamples,
    pub(super) counters: Vec<(&'static str, f64)>,
    pub(super) flags: Vec<&'static str>,
}

/// How a probe takes turns with none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeSchedule {
    /// Switched every so many round trips: it costs little to switch.
    Alternate {
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
pub(super) trait RoundTripProbe {
    /// How it takes turns.
    fn schedule(&self) -> ProbeSchedule;

    /// Switches it; outside any timed region.
    fn switch(&mut self, on: bool) -> Result<(), BlockError>;

    /// What it saw of the probed round trips, beside those that nobody looked at, in nanoseconds.
    fn parts(
        &mut self,
        trips: &[RoundTrip],
        plain: &[f64],
        peer: &PeerReport,
    ) -> Result<ProbeFindings, BlockError>;
}

/// A mirror's own clock reads at its edges.
pub(super) struct MirrorEdgeProbe {
    pub(super) page: ControlPage,
}

impl RoundTripProbe for MirrorEdgeProbe {
    fn schedule(&self) -> ProbeSchedule {
        ProbeSchedule::Alternate { trips: 16 }
    }

    fn switch(&mut self, on: bool) -> Result<(), BlockError> {
        self.page.set_probing(on);
        Ok(())
    }

    fn parts(
        &mut self,
        _: &[RoundTrip],
        _: &[f64],
        peer: &PeerReport,
    ) -> Result<ProbeFindings, BlockError> {
        Ok(ProbeFindings { parts: peer.times.clone(), ..ProbeFindings::default() })
    }
}

/// Round trips of a block, with the probe and without.
struct ProbedRoundTrips {
    plain: Vec<u64>,
    probed: Vec<RoundTrip>,
    lost: u32,
    /// Page faults while they were under way: those of opening and reading a recorder are no
    /// disturbance of theirs.
    faults: u64,
}

impl<E: ChannelEnd> ChannelBench<'_, E> {
    /// Round trips in turns with and without probes; one response for each part.
    pub(super) fn breakdown(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        probe: &mut dyn RoundTripProbe,
    ) -> BlockOutcome {
        self.prepare(size)?;
        self.pilot_task(spec, PeerRole::Echo, |bench| bench.round_trip(false))?;
        self.begin(PeerRole::Echo, spec.injected_ns, spec.duration_ns)?;
        let samples_max = spec.samples_max as usize;
        let mut probed = vec![RoundTrip { start: 1, end: 1 }; samples_max];
        probed.clear();
        let plain = reserve_samples(samples_max);
        let mut trips = ProbedRoundTrips { plain, probed, lost: 0, faults: 0 };
        let effort = self.start_effort(spec);
        let watched = self.run_schedule(spec, probe, &mut trips);
        // Probes are switched off whatever happened.
        probe.switch(false)?;
        watched?;
        let mut report = self.region_report(&effort, self.done);
        report.effort.local.page_faults = trips.faults;
        let peer = self.finish(&mut report)?;
        report.batch = 1;
        report_findings(&trips, self.stopwatch, probe, &peer, spec, &mut report)?;
        Ok(report)
    }

    fn run_schedule(
        &mut self,
        spec: &BlockSpec,
        probe: &mut dyn RoundTripProbe,
        trips: &mut ProbedRoundTrips,
    ) -> Result<(), BlockError> {
        let duration = self.stopwatch.ticks(spec.duration_ns as f64);
        let samples_max = spec.samples_max as usize;
        match probe.schedule() {
            ProbeSchedule::Alternate { trips: count } => {
                let start = self.stopwatch.begin();
                loop {
                    for on in [false, true] {
                        probe.switch(on)?;
                        self.run_round_trips(on, count, u64::MAX, trips)?;
                    }
                    let full = trips.plain.len().max(trips.probed.len()) + count > samples_max;
                    if full || self.stopwatch.end().wrapping_sub(start) >= duration {
                        return Ok(());
                    }
                }
            }
            ProbeSchedule::Once { trips_max } => {
                let count = samples_max / 2;
                self.run_round_trips(false, count, duration / 4, trips)?;
                probe.switch(true)?;
                self.run_round_trips(true, trips_max.min(samples_max), duration / 2, trips)?;
                probe.switch(false)?;
                self.run_round_trips(false, count, duration / 4, trips)
            }
        }
    }

    /// So many round trips, or as many as fit a time.
    fn run_round_trips(
        &mut self,
        on: bool,
        count: usize,
        ticks_max: u64,
        trips: &mut ProbedRoundTrips,
    ) -> Result<(), BlockError> {
        let usage = CpuReading::now();
        let start = self.stopwatch.begin();
        for _ in 0..count {
            let begin = self.stopwatch.begin();
            let outcome = self.round_trip(false);
            let end = self.stopwatch.end();
            match outcome {
                Ok(()) if on => trips.probed.push(RoundTrip { start: begin, end }),
                Ok(()) => trips.plain.push(end.wrapping_sub(begin)),
                Err(ChannelError::TimedOut) if E::LOSSY => {
                    self.needs_tick = true;
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

/// What the probe saw of the round trips, and the round trips themselves; each part is a response of its own.
fn report_findings(
    trips: &ProbedRoundTrips,
    watch: Stopwatch,
    probe: &mut dyn RoundTripProbe,
    peer: &PeerReport,
    spec: &BlockSpec,
    report: &mut BlockReport,
) -> Result<(), BlockError> {
    let plain: Vec<f64> = trips.plain.iter().map(|&ticks| watch.ns(ticks)).collect();
    let seen = probe.parts(&trips.probed, &plain, peer)?;
    for (name, value) in seen.counters {
        report.counters.insert(name.to_owned(), whole(value.round()));
    }
    report.flags.extend(seen.flags.into_iter().map(str::to_owned));
    let whole = |trip: &RoundTrip| watch.ns(trip.end.wrapping_sub(trip.start));
    let mut parts = seen.parts;
    parts.push(("rtt".to_owned(), plain));
    parts.push(("rtt-probed".to_owned(), trips.probed.iter().map(whole).collect()));
    for (response, values) in parts {
        report.parts.push(summarize_part(response, &values, 0.001, spec));
    }
    Ok(())
}
