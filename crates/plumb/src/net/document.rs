//! The document of a measurement between two hosts: its phases, what broke, and what a reader must know.
//!
//! All delays are of clocks that nobody sets; what is estimated is their difference. The idle phase gives the best
//! bound, so all phases share one estimate.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use plumb_base::time::Span;
use plumb_net::evidence::HostFacts;
use plumb_net::measure::clock_offset::{ClockOffsetEstimate, ClockRelation};
use plumb_net::measure::report::{HostSample, TestEnding, TestReport};
use plumb_remote::address::with_zone;
use plumb_result::net::{
    ClockSummary, MtuResult, NetDocument, NetEnding, NetHost, NetOutage, NetPhase, SCHEMA, Side,
};

use super::agent_connection::AgentConnection;
use super::test_run::{MeasuredPhase, NetMeasurement};
use super::{datagrams, outage, phase, round_trips, tcp_flow};
use crate::VERSION;
use crate::net::counted_time::seconds;

/// A jump of the real-time clock by less may be a slewed clock and a slow reading.
const SET_MIN_NS: i64 = 5_000_000;

/// The document of what was measured with the agent of a host, whose data went to an address.
pub fn document(
    asked: &str,
    address: SocketAddr,
    reached: &AgentConnection,
    measured: &NetMeasurement,
) -> NetDocument {
    let estimate = estimate(&measured.phases);
    let estimate = estimate.as_ref();
    let phases: Vec<_> =
        measured.phases.iter().map(|phase| phase::summarize(phase, estimate)).collect();
    let searched = measured.search.as_ref().map(|search| &search.outcome);
    let mut outcomes = measured.phases.iter().map(|phase| &phase.outcome).chain(searched);
    let there = outcomes.clone().find_map(|outcome| outcome.there.as_ref().ok());
    let there = there.map(|report| report.host.clone()).unwrap_or_default();
    let here = outcomes.next().map(|outcome| outcome.here.host.clone()).unwrap_or_default();
    let welcome = reached.client.welcome();
    let problems = problems(measured, &phases, welcome.report_retention_ns > 0);
    let is = |ending| phases.iter().any(|phase| phase.ended == ending);
    let ended = if measured.is_stopped() || is(NetEnding::Stopped) {
        NetEnding::Stopped
    } else if !problems.is_empty() || is(NetEnding::Partial) {
        NetEnding::Partial
    } else {
        NetEnding::Complete
    };
    let outages = outages(&measured.phases, &phases);
    let is_one_clock = ClockRelation::of(&here.clock, &there.clock) == ClockRelation::Same;
    let one_clock = is_one_clock.then(|| ClockSummary { same: true, ..ClockSummary::default() });
    let mut document = NetDocument {
        schema: SCHEMA.to_owned(),
        asked: asked.to_owned(),
        address: with_zone(address),
        ended,
        problems,
        same_machine: is_same_machine(&here, &there),
        here: NetHost { program: VERSION.to_owned(), ..here.host },
        there: NetHost { program: welcome.program.clone(), ..there.host },
        clocks: estimate.map(clocks).or(one_clock),
        mtu: mtu(measured),
        phases,
        outages,
        ..NetDocument::default()
    };
    document.flags = flags(&document);
    document.flags.extend(clock_flags(&measured.phases, estimate));
    document.flags.extend(measured.phases.iter().filter_map(|phase| {
        let lost = phase.control_lost.as_ref()?;
        Some(format!(
            "{}: the control connection was lost {lost}; the agent's report was fetched over another one",
            phase.name
        ))
    }));
    document
}

/// The times in which nothing came through.
fn outages(measured: &[MeasuredPhase], phases: &[NetPhase]) -> Vec<NetOutage> {
    let of_phase = |(measured, phase): (&MeasuredPhase, &NetPhase)| {
        if phase.ended != NetEnding::Complete || measured.control_lost.is_some() {
            return Vec::new();
        }
        let silences = round_trips::silences(&measured.spec, &measured.outcome.here);
        let planned = seconds(measured.spec.planned_ns());
        let overrun = outage::overrun(phase, &silences, planned, measured.took.as_secs_f64());
        let found = outage::outages(phase, &silences);
        match overrun {
            // The longer one begins where the last of the others does.
            Some(overrun) => {
                let earlier = found.into_iter().filter(|it| it.to_seconds < overrun.from_seconds);
                earlier.chain([overrun]).collect()
            }
            None => found,
        }
    };
    measured.iter().zip(phases).flat_map(of_phase).collect()
}

/// Errors of the measurement; an agent may keep its reports for a while.
fn problems(measured: &NetMeasurement, phases: &[NetPhase], are_kept: bool) -> Vec<String> {
    let fate = if are_kept {
        "its report could not be fetched"
    } else {
        "it ended with that connection, and its report with it"
    };
    let lost = measured.phases.iter().filter_map(|phase| phase.outcome.there.as_ref().err());
    let mut problems: Vec<String> =
        lost.map(|error| format!("the agent was lost {error}; {fate}")).collect();
    for phase in &measured.phases {
        for (side, report) in sides(phase) {
            if let TestEnding::Broken(why) = &report.ended {
                problems.push(format!("{}, {side}: {why}", phase.name));
            }
        }
    }
    problems.extend(phases.iter().filter_map(tcp_flow::path_cut));
    let error = measured.error.as_ref().filter(|_| !measured.is_stopped());
    problems.extend(error.map(ToString::to_string));
    problems
}

/// The reports of a phase that are there.
fn sides(phase: &MeasuredPhase) -> impl Iterator<Item = (Side, &TestReport)> {
    let there = phase.outcome.there.as_ref().ok().map(|report| (Side::There, report));
    [(Side::Here, &phase.outcome.here)].into_iter().chain(there)
}

/// Whether two sides are one machine since one boot.
fn is_same_machine(here: &HostFacts, there: &HostFacts) -> bool {
    !here.clock.boot_id.is_empty() && here.clock.boot_id == there.clock.boot_id
}

/// What the document says about the path's MTU.
fn mtu(measured: &NetMeasurement) -> Option<MtuResult> {
    let account = measured.mtu.as_ref()?;
    let took = measured.search.as_ref().map_or(Span::ZERO, |search| search.duration);
    let mut result = account.found.clone().unwrap_or_default();
    result.seconds = took.as_secs_f64();
    result.problem = account.error.clone().filter(|_| result.path_bytes.is_none());
    Some(result)
}

/// What is known about the far clock by the probes of all phases.
fn estimate(phases: &[MeasuredPhase]) -> Option<ClockOffsetEstimate> {
    let clocks = phases.iter().find_map(|phase| {
        let there = phase.outcome.there.as_ref().ok()?;
        Some(ClockRelation::of(&phase.outcome.here.host.clock, &there.host.clock))
    })?;
    let mut exchanges: Vec<_> = phases
        .iter()
        .filter_map(|phase| round_trips::probes_report(&phase.outcome.here))
        .flat_map(round_trips::exchanges)
        .collect();
    exchanges.sort_by_key(|exchange| exchange.sent_ns);
    ClockOffsetEstimate::new(&exchanges, clocks)
}

fn clocks(estimate: &ClockOffsetEstimate) -> ClockSummary {
    let first = estimate.segments.first();
    ClockSummary {
        same: estimate.clocks == ClockRelation::Same,
        offset_ns: first.map_or(0.0, |segment| segment.offset_ns),
        bound_ns: estimate.bound_ns(),
        drift_ppm: first.map_or(0.0, |segment| segment.drift_ppm),
        steps: estimate.steps.len() as u64,
        exchanges: estimate.segments.iter().map(|segment| segment.exchanges as u64).sum(),
    }
}

/// What a reader must know before believing the numbers.
fn flags(document: &NetDocument) -> Vec<String> {
    let mut flags: Vec<String> = round_trips::late_flag(&document.phases).into_iter().collect();
    for phase in &document.phases {
        flags.extend(round_trips::flags(phase));
        flags.extend(datagrams::flags(phase.name, &phase.datagrams));
        flags.extend(phase.flows.iter().filter_map(|each| tcp_flow::flag(phase, each)));
        flags.extend(phase.flows.iter().flat_map(|each| tcp_flow::window_flags(phase, each)));
        if phase.overlapping_tests > 0 {
            flags.push(format!(
                "{}: {} other test(s) ran on the agent's host for {:.1} s of it",
                phase.name, phase.overlapping_tests, phase.overlapping_seconds
            ));
        }
    }
    if let Some(mtu) = &document.mtu
        && let (Some(path), Some(kernel)) = (mtu.path_bytes, mtu.kernel_bytes)
        && path < kernel
        && !mtu.limited_here
    {
        flags.push(format!(
            "packets longer than {path} bytes vanish on the way up and nobody says so, while this host's kernel \
             believes in {kernel}: long transfers may stall; set the interface's MTU to {path}, or \
             net.ipv4.tcp_mtu_probing=1"
        ));
    }
    if document.same_machine {
        flags.push(
            "both sides are one machine: they share its processors, and times of the whole host are of both"
                .to_owned(),
        );
    }
    // Flags that several rounds share appear once.
    let mut told = BTreeSet::new();
    flags.retain(|flag| told.insert(flag.clone()));
    flags
}

/// What a reader must know about clocks that were set or jumped.
fn clock_flags(phases: &[MeasuredPhase], estimate: Option<&ClockOffsetEstimate>) -> Vec<String> {
    let mut flags = Vec::new();
    for phase in phases {
        for (side, report) in sides(phase) {
            let whose = match side {
                Side::Here => "this host",
                Side::There => "the other host",
            };
            for (at_ns, by_ns) in clock_adjustments(&report.moments) {
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
fn clock_adjustments(moments: &[HostSample]) -> Vec<(u64, i64)> {
    let jump = |pair: &[HostSample]| {
        let by_ns = pair[1].real_ahead_ns.saturating_sub(pair[0].real_ahead_ns);
        let apart_ns = i64::try_from(pair[1].at_ns.saturating_sub(pair[0].at_ns)).ok()?;
        // Slewing is at most 500 parts in a million (adjtimex(2)), and crystals are within 100.
        let usual_ns = SET_MIN_NS.saturating_add(apart_ns / 1_500);
        (by_ns.saturating_abs() > usual_ns).then_some((pair[1].at_ns, by_ns))
    };
    moments.windows(2).filter_map(jump).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_told_from_one_that_is_slewed() {
        let adjustments = |ahead_us: fn(i64) -> i64| {
            let moments: Vec<_> = (0..20_u32)
                .map(|n| HostSample {
                    at_ns: u64::from(n) * 200_000_000,
                    real_ahead_ns: 1_700_000_000_000_000_000 + ahead_us(n.into()) * 1_000,
                    ..HostSample::default()
                })
                .collect();
            clock_adjustments(&moments)
        };
        assert!(adjustments(|n| n * 110).is_empty());
        let set = adjustments(|n| if n < 7 { 0 } else { 2_000_000 });
        assert_eq!(set, [(1_400_000_000, 2_000_000_000)]);
        let set = adjustments(|n| if n < 7 { 0 } else { -20_000 });
        assert_eq!(set, [(1_400_000_000, -20_000_000)]);
    }
}
