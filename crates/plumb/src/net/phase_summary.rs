//! From the two sides' reports of a phase to what the document says of it.
//!
//! Left out: each kind of load (`super::flow`, `super::datagrams`, `super::exchange`), and the page.

use plumb_analysis::document::net::{
    NetCpu, NetDistribution, NetDocument, NetHost, NetPathMtu, NetPhase, NetProbeReflector,
    NetProbes,
};
use plumb_base::stats::histogram::Histogram;
use plumb_base::stats::quantile::samples_needed;
use plumb_net::evidence::HostFacts;
use plumb_net::measure::clock_offset::ClockOffsetEstimate;
use plumb_net::measure::report::{
    MtuPartReport, ProbeReflectorReport, ProbesReport, TestEnding, TestPartReport, TestReport,
};
use plumb_net::measure::test_spec::{PartSpec, TestSpec};

use super::test_run::MeasuredPhase;
use super::{clocks, datagrams, evidence, exchange, tcp_flow};

/// For how long nothing came through where a path is held to be cut.
const CUT_SECONDS: f64 = 1.0;

/// What the document says of a phase, by what is known of the clocks.
pub fn phase(phase: &MeasuredPhase, estimate: Option<&ClockOffsetEstimate>) -> NetPhase {
    let here = &phase.outcome.here;
    let there = phase.outcome.there.as_ref().ok();
    let overlap = there.map(|report| report.overlap).unwrap_or_default();
    NetPhase {
        name: phase.name.to_owned(),
        round: phase.round,
        seconds: seconds(phase.spec.duration_ns),
        warm_up_seconds: seconds(phase.spec.warm_up_ns),
        ended: ended(here, there).to_owned(),
        flows: tcp_flow::summarize(&phase.spec, here, there),
        datagrams: datagrams::summarize(&phase.spec, here, there, estimate),
        probes: probes(&phase.spec, here, there, estimate),
        exchange: exchange::summarize(&phase.spec, here, there),
        cpu_here: cpu(here, &phase.spec),
        cpu_there: there.and_then(|report| cpu(report, &phase.spec)),
        counters_here: here.counters.clone(),
        counters_there: there.map(|report| report.counters.clone()).unwrap_or_default(),
        overlapping_tests: overlap.tests,
        overlapping_seconds: seconds(overlap.during_ns),
        evidence: both_sides(here, there, evidence::connection_samples),
        datagram_evidence: both_sides(here, there, evidence::datagram_samples),
        host_evidence: both_sides(here, there, evidence::host_samples),
    }
}

/// What both sides noted, this one's first.
fn both_sides<T>(
    here: &TestReport,
    there: Option<&TestReport>,
    of: impl Fn(&TestReport, &str) -> Vec<T>,
) -> Vec<T> {
    let mut all = of(here, "here");
    all.extend(there.into_iter().flat_map(|report| of(report, "there")));
    all
}

/// What the document says of a host.
pub fn host(facts: &HostFacts, program: &str) -> NetHost {
    let settings = [
        ("tcp.congestion", &facts.congestion),
        ("tcp.rmem", &facts.receive_buffer),
        ("tcp.wmem", &facts.send_buffer),
        ("qdisc", &facts.queue),
    ];
    NetHost {
        name: facts.name.clone(),
        program: program.to_owned(),
        kernel: facts.kernel.clone(),
        processor: facts.processor.clone(),
        cpus: facts.cpus,
        settings: settings
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.clone()))
            .collect(),
    }
}

/// What the document says of the path's MTU.
pub fn mtu(account: &MtuPartReport) -> NetPathMtu {
    let searched = account.searched;
    let arrived_bytes = Some(searched.arrived_bytes).filter(|&bytes| bytes > 0);
    let Some(found) = &account.found else {
        return NetPathMtu {
            arrived_bytes,
            silent: searched.silent,
            probes: searched.probes,
            problem: account.error.clone(),
            ..NetPathMtu::default()
        };
    };
    NetPathMtu {
        path_bytes: Some(found.path_bytes),
        arrived_bytes,
        payload_bytes: Some(found.payload_bytes),
        kernel_bytes: found.kernel_bytes,
        limited_here: found.limited_here,
        told_by_router: found.told_by_router,
        silent: found.silent,
        probes: found.probes,
        problem: None,
    }
}

/// What broke on either side in a phase.
pub fn phase_errors(phase: &MeasuredPhase) -> Vec<String> {
    let sides = [("here", Some(&phase.outcome.here)), ("there", phase.outcome.there.as_ref().ok())];
    let broken = sides.into_iter().filter_map(|(side, report)| match &report?.ended {
        TestEnding::Broken(why) => Some(format!("{}, {side}: {why}", phase.name)),
        TestEnding::Complete | TestEnding::Stopped => None,
    });
    broken.collect()
}

/// A path over which nothing came any more before a phase was over.
pub fn path_cut(phase: &NetPhase) -> Option<String> {
    phase.flows.iter().filter(|flow| !flow.drained).find_map(|flow| {
        let counted = flow.intervals.iter().filter(|interval| interval.counts);
        let end = counted.clone().next_back()?.to_seconds;
        let moved = counted.filter(|interval| interval.bytes_per_second > 0.0);
        let last = moved.map(|interval| interval.to_seconds).fold(0.0, f64::max);
        (end - last >= CUT_SECONDS).then(|| {
            format!(
                "{}: nothing came through {} from {last:.1} s to its end at {end:.1} s; the path was cut, or loses \
                 everything: check it and measure again",
                phase.name, flow.direction
            )
        })
    })
}

/// What a reader must know before believing the numbers.
pub fn flags(document: &NetDocument) -> Vec<String> {
    let mut flags = Vec::new();
    for phase in &document.phases {
        let name = &phase.name;
        if let Some(probes) = &phase.probes {
            if probes.sent > 0 && probes.answered == 0 {
                flags.push(format!(
                    "{name}: every probe was lost; a firewall may let TCP through and UDP not, or the way \
                     back is another: try --probes 0"
                ));
            }
            if probes.refused.values().sum::<u64>() > 0 {
                flags.push(format!("{name}: this host's kernel refused some probes"));
            }
            let late = probes.lateness.as_ref().and_then(|late| late.p99_ns).unwrap_or(0.0);
            let whole = probes.application.as_ref().and_then(|whole| whole.p99_ns);
            let whole = whole.unwrap_or(f64::INFINITY);
            if late > 0.2 * whole {
                flags.push(format!(
                    "{name}: probes left late (one in a hundred by {:.2} ms or more), so what an application \
                     sees is this host's own delay too",
                    late / 1e6
                ));
            }
        }
        flags.extend(phase.exchange.iter().flat_map(|exchange| exchange::flags(name, exchange)));
        flags.extend(datagrams::flags(name, &phase.datagrams));
        flags.extend(phase.flows.iter().filter_map(|each| tcp_flow::flag(phase, each)));
        flags.extend(phase.flows.iter().flat_map(|each| tcp_flow::window_flags(phase, each)));
        if phase.overlapping_tests > 0 {
            flags.push(format!(
                "{name}: {} other test(s) ran on the agent's host for {:.1} s of it",
                phase.overlapping_tests, phase.overlapping_seconds
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
    flags
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn ended(here: &TestReport, there: Option<&TestReport>) -> &'static str {
    match (&here.ended, there.map(|report| &report.ended)) {
        (TestEnding::Stopped, _) => "stopped",
        (TestEnding::Complete, Some(TestEnding::Complete)) => "complete",
        _ => "partial",
    }
}

/// The readings between which everything counts: the first after the warm-up, and the first after the end.
pub(super) fn window(report: &TestReport, spec: &TestSpec) -> Option<(usize, usize)> {
    let at = |ns: u64| report.moments.iter().position(|moment| moment.at_ns >= ns);
    let from = at(spec.warm_up_ns)?;
    let to = at(spec.planned_ns()).unwrap_or(report.moments.len() - 1);
    (from < to).then_some((from, to))
}

fn cpu(report: &TestReport, spec: &TestSpec) -> Option<NetCpu> {
    let (from, to) = window(report, spec)?;
    let (from, to) = (&report.moments[from], &report.moments[to]);
    let used = to.host.since(&from.host);
    Some(NetCpu {
        wall_seconds: seconds(to.at_ns.saturating_sub(from.at_ns)),
        process_seconds: seconds(used.process_ns),
        user_seconds: seconds(used.user_ns),
        system_seconds: seconds(used.system_ns),
        host_busy_seconds: seconds(used.host_busy_ns),
        host_softirq_seconds: seconds(used.host_softirq_ns),
        host_irq_seconds: seconds(used.host_irq_ns),
        host_steal_seconds: seconds(used.host_steal_ns),
    })
}

/// The probes of a report, as the asking side saw them.
pub(super) fn probes_report(report: &TestReport) -> Option<&ProbesReport> {
    report.parts.iter().find_map(|part| match part {
        TestPartReport::Probes(probes) => Some(&**probes),
        _ => None,
    })
}

fn responder_report(report: &TestReport) -> Option<&ProbeReflectorReport> {
    report.parts.iter().find_map(|part| match part {
        TestPartReport::Answers(answers) => Some(answers),
        _ => None,
    })
}

fn probes(
    spec: &TestSpec,
    here: &TestReport,
    there: Option<&TestReport>,
    estimate: Option<&ClockOffsetEstimate>,
) -> Option<NetProbes> {
    let asked = probes_report(here)?;
    let answers = there.and_then(responder_report);
    let per_second = spec.parts.iter().find_map(|part| match part {
        PartSpec::Probes(probes) => Some(probes.per_second),
        _ => None,
    })?;
    let application = Histogram::decode(&asked.application).ok().unwrap_or_default();
    let (one_way_up, one_way_down) =
        estimate.and_then(|estimate| clocks::one_way(estimate, asked)).unzip();
    Some(NetProbes {
        per_second,
        due: asked.due,
        sent: asked.sent,
        answered: asked.answered,
        lost: asked.sent.saturating_sub(asked.answered),
        lost_up: answers.map(|answers| asked.sent.saturating_sub(answers.received)),
        lost_down: answers.map(|answers| answers.received.saturating_sub(asked.answered)),
        duplicated: asked.duplicated,
        reordered: asked.reordered,
        overflowed_here: asked.overflowed,
        overflowed_there: answers.map(|answers| answers.overflowed),
        refused: asked.refused.clone(),
        path: distribution(&asked.path),
        application: distribution(&asked.application),
        lateness: distribution(&asked.lateness),
        round_trips_per_minute: mean_of_shortest_95(&application).map(|mean_ns| 60e9 / mean_ns),
        one_way_up,
        one_way_down,
        there: answers.map(|answers| NetProbeReflector {
            received: answers.received,
            duplicated: answers.duplicated,
            reordered: answers.reordered,
            answered: answers.answered,
            strange: answers.strange,
        }),
    })
}

/// Whether two sides are one machine since one boot.
pub fn is_same_machine(here: &HostFacts, there: &HostFacts) -> bool {
    !here.boot.is_empty() && here.boot == there.boot
}

/// The mean of the shortest 95 in 100.
fn mean_of_shortest_95(histogram: &Histogram) -> Option<f64> {
    let wanted = (histogram.len() * 95).div_ceil(100);
    let (mut taken, mut sum) = (0_u64, 0.0);
    for (value, count) in histogram.iter_recorded() {
        let count = count.min(wanted - taken);
        sum += value as f64 * count as f64;
        taken += count;
    }
    (taken > 0 && sum > 0.0).then(|| sum / taken as f64)
}

pub(super) fn distribution(encoded: &[u8]) -> Option<NetDistribution> {
    let histogram = Histogram::decode(encoded).ok().filter(|histogram| !histogram.is_empty())?;
    let at = |p: f64| histogram.quantile(p) as f64;
    // Rule 13: what so few cannot tell is not told.
    let told = |p: f64| (histogram.len() >= samples_needed(p, 0.95)).then(|| at(p));
    let sum: f64 = histogram.iter_recorded().map(|(value, n)| value as f64 * n as f64).sum();
    Some(NetDistribution {
        n: histogram.len(),
        min_ns: histogram.min() as f64,
        mean_ns: sum / histogram.len() as f64,
        p50_ns: at(0.5),
        p90_ns: told(0.9),
        p99_ns: told(0.99),
        p999_ns: told(0.999),
        max_ns: histogram.max() as f64,
    })
}

#[cfg(test)]
mod tests {
    use plumb_net::measure::test_spec::ProbesSpec;

    use super::*;

    #[test]
    fn what_the_answering_side_saw_of_the_probes_is_in_the_document() {
        let spec = TestSpec {
            warm_up_ns: 0,
            duration_ns: 1_000_000_000,
            interval_ns: 1_000_000_000,
            drain_ns: 0,
            parts: vec![PartSpec::Probes(ProbesSpec { per_second: 10, datagram_bytes: 64 })],
        };
        let of = |part| TestReport { parts: vec![part], ..TestReport::default() };
        let asked = ProbesReport { sent: 10, answered: 8, ..ProbesReport::default() };
        let here = of(TestPartReport::Probes(Box::new(asked)));
        let there = of(TestPartReport::Answers(ProbeReflectorReport {
            received: 9,
            duplicated: 2,
            reordered: 3,
            answered: 11,
            strange: 4,
            overflowed: 0,
        }));
        let said = probes(&spec, &here, Some(&there), None).unwrap();
        let wanted = NetProbeReflector {
            received: 9,
            duplicated: 2,
            reordered: 3,
            answered: 11,
            strange: 4,
        };
        assert_eq!(said.there, Some(wanted));
        assert_eq!((said.lost_up, said.lost_down), (Some(1), Some(1)));
        assert_eq!(probes(&spec, &here, None, None).unwrap().there, None);
    }
}
