//! How the two hosts' clocks relate over a whole measurement, and whether either was set meanwhile.
//!
//! All delays are of clocks that nobody sets; what is estimated is their difference. The idle phase gives the best
//! bound, so all phases share one estimate. Left out: the estimate itself (`plumb_net::measure::delay`).

use plumb_analysis::document::net::{NetClocks, NetOneWayDelay};
use plumb_net::evidence::HostFacts;
use plumb_net::measure::clock_offset::{self, ClockOffsetEstimate, ClockRelation, OneWayDelay};
use plumb_net::measure::report::{HostSample, ProbesReport, TestReport};

use super::phase_summary::{probes_report, seconds};
use super::test_run::MeasuredPhase;

/// A jump of the real-time clock by less may be a slewed clock and a slow reading.
const SET_MIN_NS: i64 = 5_000_000;

/// What is known of the far clock by the probes of all phases.
pub fn estimate(phases: &[MeasuredPhase]) -> Option<ClockOffsetEstimate> {
    let facts = |phase: &MeasuredPhase| {
        let there = phase.outcome.there.as_ref().ok()?;
        Some(ClockRelation::of(&phase.outcome.here.host.clock(), &there.host.clock()))
    };
    let clocks = phases.iter().find_map(facts)?;
    let mut exchanges: Vec<_> = phases
        .iter()
        .filter_map(|phase| probes_report(&phase.outcome.here))
        .flat_map(exchanges)
        .collect();
    exchanges.sort_by_key(|exchange| exchange.sent_ns);
    ClockOffsetEstimate::new(&exchanges, clocks)
}

/// What the document says of it.
pub fn document(estimate: &ClockOffsetEstimate) -> NetClocks {
    let first = estimate.segments.first();
    NetClocks {
        same: estimate.clocks == ClockRelation::Same,
        offset_ns: first.map_or(0.0, |segment| segment.offset_ns),
        bound_ns: estimate.bound_ns(),
        drift_ppm: first.map_or(0.0, |segment| segment.drift_ppm),
        steps: estimate.steps.len() as u64,
        exchanges: estimate.segments.iter().map(|segment| segment.exchanges as u64).sum(),
    }
}

/// One-way delays of the probes of a phase, up and down.
pub fn one_way(
    estimate: &ClockOffsetEstimate,
    probes: &ProbesReport,
) -> Option<(NetOneWayDelay, NetOneWayDelay)> {
    let exchanges: Vec<_> = exchanges(probes).collect();
    let (up, down) = clock_offset::one_way(estimate, &exchanges)?;
    Some((one_way_summary(&up), one_way_summary(&down)))
}

/// What the document says of delays.
pub fn one_way_summary(delays: &OneWayDelay) -> NetOneWayDelay {
    NetOneWayDelay {
        least_ns: delays.least_ns,
        bound_ns: delays.bound_ns,
        above_p50_ns: delays.above_p50_ns,
        above_p99_ns: delays.above_p99_ns,
    }
}

/// Whether both sides read one clock.
pub fn are_same(here: &HostFacts, there: &HostFacts) -> bool {
    ClockRelation::of(&here.clock(), &there.clock()) == ClockRelation::Same
}

/// What a reader must know of clocks that were set or jumped.
pub fn flags(phases: &[MeasuredPhase], estimate: Option<&ClockOffsetEstimate>) -> Vec<String> {
    let mut flags = Vec::new();
    for phase in phases {
        let sides = [
            ("this host", Some(&phase.outcome.here)),
            ("the other host", phase.outcome.there.as_ref().ok()),
        ];
        for (whose, report) in sides {
            for (at_ns, by_ns) in report.map(clock_adjustments).unwrap_or_default() {
                flags.push(format!(
                    "{}: the clock of {whose} was set by {:+.3} s after {:.1} s; what is measured here rests on \
                     clocks that are not set, and stands",
                    phase.name,
                    by_ns as f64 / 1e9,
                    seconds(at_ns)
                ));
            }
        }
    }
    let steps = estimate.map(|estimate| estimate.steps.as_slice()).unwrap_or_default();
    flags.extend(steps.iter().map(|step| {
        let sure = if step.proved { "" } else { " probably" };
        format!(
            "the clocks of the two hosts{sure} moved against each other by {:+.3} ms, as when one of them is \
             suspended; one-way delays are told for each time between such steps by its own offset",
            step.size_ns / 1e6
        )
    }));
    flags
}

/// When the real-time clock of a side was set, and by how much.
fn clock_adjustments(report: &TestReport) -> Vec<(u64, i64)> {
    let jump = |pair: &[HostSample]| {
        let by_ns = pair[1].real_ahead_ns.saturating_sub(pair[0].real_ahead_ns);
        let apart_ns = i64::try_from(pair[1].at_ns.saturating_sub(pair[0].at_ns)).ok()?;
        // Slewing is at most 500 parts in a million (adjtimex(2)), and crystals are within 100.
        let usual_ns = SET_MIN_NS.saturating_add(apart_ns / 1_500);
        (by_ns.saturating_abs() > usual_ns).then_some((pair[1].at_ns, by_ns))
    };
    report.moments.windows(2).filter_map(jump).collect()
}

fn exchanges(probes: &ProbesReport) -> impl Iterator<Item = clock_offset::TimestampExchange> {
    probes.exchanges.iter().map(|exchange| clock_offset::TimestampExchange {
        sent_ns: exchange.sent_ns,
        far_received_ns: exchange.received_there_ns,
        far_sent_ns: exchange.sent_there_ns,
        received_ns: exchange.received_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_told_from_one_that_is_slewed() {
        let moment = |at_ms: u64, real_ahead_us: i64| HostSample {
            at_ns: at_ms * 1_000_000,
            real_ahead_ns: 1_700_000_000_000_000_000 + real_ahead_us * 1_000,
            ..HostSample::default()
        };
        let report = |moments: Vec<HostSample>| TestReport { moments, ..TestReport::default() };
        let slewed = (0..20_u32).map(|n| moment(u64::from(n) * 200, i64::from(n) * 110)).collect();
        assert!(clock_adjustments(&report(slewed)).is_empty());
        for by_us in [2_000_000, -20_000] {
            let moved = (0..20_u32)
                .map(|n| moment(u64::from(n) * 200, if n < 7 { 0 } else { by_us }))
                .collect();
            assert_eq!(clock_adjustments(&report(moved)), [(1_400_000_000, by_us * 1_000)]);
        }
        assert!(clock_adjustments(&report(Vec::new())).is_empty());
    }
}
