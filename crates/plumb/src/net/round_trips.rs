//! Probes, and requests with their responses: what the document says about them.

use plumb_base::stats::histogram::Histogram;
use plumb_base::stats::quantile;
use plumb_net::measure::clock_offset::{self, ClockOffsetEstimate, TimestampExchange};
use plumb_net::measure::probe::RttProbeSchedule;
use plumb_net::measure::report::{ProbesReport, TestPartReport, TestReport};
use plumb_net::measure::request_response::RequestPacing;
use plumb_net::measure::test_spec::{PartSpec, TestSpec};
use plumb_result::net::{
    NetDistribution, NetPhase, NetProbeInterval, NetProbes, NetRequestResponse, PhaseName,
    RequestOrder,
};

use crate::net::counted_time::{each, seconds};

/// The least part of the rate of an open loop that passes for all of it.
const CARRIED_LEAST: f64 = 0.95;
/// Lateness above this part of the whole time is told.
const LATE_SHARE_MAX: f64 = 0.2;

/// The probes of a report, as the asking side saw them.
pub(super) fn probes_report(report: &TestReport) -> Option<&ProbesReport> {
    report.parts.iter().find_map(|part| match part {
        TestPartReport::Probes(probes) => Some(&**probes),
        _ => None,
    })
}

/// The stamps of probes.
pub(super) fn exchanges(probes: &ProbesReport) -> impl Iterator<Item = TimestampExchange> {
    probes.exchanges.iter().map(|exchange| TimestampExchange {
        sent_ns: exchange.sent_ns,
        far_received_ns: exchange.received_there_ns,
        far_sent_ns: exchange.sent_there_ns,
        received_ns: exchange.received_ns,
    })
}

/// What the document says about a phase's probes.
pub(super) fn probes(
    spec: &TestSpec,
    here: &TestReport,
    there: Option<&TestReport>,
    estimate: Option<&ClockOffsetEstimate>,
) -> Option<NetProbes> {
    let asked = probes_report(here)?;
    let there = there.into_iter().flat_map(|report| &report.parts).find_map(|part| match part {
        TestPartReport::Answers(answers) => Some(*answers),
        _ => None,
    });
    let per_second = spec.parts.iter().find_map(|part| match part {
        PartSpec::Probes(probes) => Some(probes.per_second),
        _ => None,
    })?;
    let stamps: Vec<_> = exchanges(asked).collect();
    let ways = estimate.and_then(|estimate| clock_offset::one_way(estimate, &stamps));
    let (one_way_up, one_way_down) = ways.unzip();
    Some(NetProbes {
        per_second,
        due: asked.due,
        sent: asked.sent,
        answered: asked.answered,
        lost: asked.sent.saturating_sub(asked.answered),
        lost_up: there.map(|there| asked.sent.saturating_sub(there.received)),
        lost_down: there.map(|there| there.received.saturating_sub(asked.answered)),
        duplicated: asked.duplicated,
        reordered: asked.reordered,
        overflowed_here: asked.overflowed,
        overflowed_there: there.map(|there| there.overflowed),
        refused: asked.refused.clone(),
        path: NetDistribution::of(&asked.path),
        application: NetDistribution::of(&asked.application),
        lateness: NetDistribution::of(&asked.lateness),
        round_trips_per_minute: mean_of_shortest_95(&asked.application)
            .map(|mean_ns| 60e9 / mean_ns),
        one_way_up,
        one_way_down,
        intervals: probe_intervals(spec, asked),
        there,
    })
}

/// The times in which no probe was answered, in seconds since the test began: of what counts.
pub(super) fn silences(spec: &TestSpec, here: &TestReport) -> Vec<[f64; 2]> {
    let Some((asked, schedule)) = probes_report(here).zip(schedule(spec)) else {
        return Vec::new();
    };
    let mut answered: Vec<u64> = asked.exchanges.iter().map(|exchange| exchange.sequence).collect();
    answered.sort_unstable();
    let end = schedule.first + asked.due;
    let mut next = schedule.first;
    let mut silences = Vec::new();
    for sequence in answered.into_iter().chain([end]) {
        if sequence > next {
            silences.push([next, sequence].map(|at| seconds(at * schedule.period_ns)));
        }
        next = next.max(sequence + 1);
    }
    silences
}

/// When the probes of a test were due.
fn schedule(spec: &TestSpec) -> Option<RttProbeSchedule> {
    spec.parts.iter().find_map(|part| match part {
        PartSpec::Probes(probes) => Some(RttProbeSchedule::of(spec, probes)),
        _ => None,
    })
}

/// The probes of each interval in the time that counts.
fn probe_intervals(spec: &TestSpec, asked: &ProbesReport) -> Vec<NetProbeInterval> {
    let Some(schedule) = schedule(spec) else { return Vec::new() };
    let interval_ns = spec.interval_ns.max(schedule.period_ns);
    let (from_ns, end) = (schedule.first * schedule.period_ns, schedule.first + asked.due);
    let place = |sequence: u64| {
        let at_ns = (sequence * schedule.period_ns).saturating_sub(from_ns);
        usize::try_from(at_ns / interval_ns).unwrap_or(usize::MAX)
    };
    let count = if asked.due == 0 { 0 } else { place(end - 1) + 1 };
    let mut trips: Vec<(u64, Vec<f64>)> = vec![(0, Vec::new()); count];
    for sequence in schedule.first..end {
        trips[place(sequence)].0 += 1;
    }
    for exchange in &asked.exchanges {
        if let Some((_, trips)) = trips.get_mut(place(exchange.sequence)) {
            trips.push(exchange.path_ns() as f64);
        }
    }
    let interval = |(index, (due, trips)): (u64, (u64, Vec<f64>))| {
        let sorted = quantile::sorted(&trips);
        NetProbeInterval {
            from_seconds: seconds(from_ns + index * interval_ns),
            to_seconds: seconds(from_ns + (index + 1) * interval_ns),
            due,
            answered: trips.len() as u64,
            p50_ns: (!sorted.is_empty()).then(|| quantile::of_sorted(&sorted, 0.5)),
            max_ns: sorted.last().copied(),
        }
    };
    (0..).zip(trips).map(interval).collect()
}

/// The mean of the shortest 95 in 100.
fn mean_of_shortest_95(encoded: &[u8]) -> Option<f64> {
    let histogram = Histogram::decode(encoded).ok()?;
    let wanted = (histogram.len() * 95).div_ceil(100);
    let (mut taken, mut sum) = (0_u64, 0.0);
    for (value, count) in histogram.iter_recorded() {
        let count = count.min(wanted - taken);
        sum += value as f64 * count as f64;
        taken += count;
    }
    (taken > 0 && sum > 0.0).then(|| sum / taken as f64)
}

/// What the document says about a phase's requests and responses.
pub(super) fn exchange(
    spec: &TestSpec,
    here: &TestReport,
    there: Option<&TestReport>,
) -> Option<NetRequestResponse> {
    let part = spec.parts.iter().find_map(|part| match part {
        PartSpec::Exchange(part) => Some(part),
        _ => None,
    })?;
    let asked = here.parts.iter().find_map(|part| match part {
        TestPartReport::Exchange(asked) => Some(asked),
        _ => None,
    })?;
    let answered = there.into_iter().flat_map(|report| &report.parts).find_map(|part| match part {
        TestPartReport::Responses(responses) => Some(responses),
        _ => None,
    });
    let cost = |cpu_ns: u64, requests: u64| each(cpu_ns, requests).filter(|&cost| cost > 0.0);
    let counted = seconds(asked.counted_ns);
    let (pacing, per_second) = match part.pacing {
        RequestPacing::Closed => (RequestOrder::Closed, None),
        RequestPacing::Open { per_second } => (RequestOrder::Open, Some(per_second)),
        RequestPacing::Connect => (RequestOrder::Connect, None),
    };
    Some(NetRequestResponse {
        transport: part.transport,
        pacing,
        per_second,
        request_bytes: part.request_bytes,
        response_bytes: part.response_bytes,
        due: asked.due,
        answered: asked.answered,
        lost: asked.lost,
        seconds: counted,
        requests_per_second: if counted > 0.0 { asked.answered as f64 / counted } else { 0.0 },
        latency: NetDistribution::of(&asked.latency),
        lateness: NetDistribution::of(&asked.lateness),
        connect: NetDistribution::of(&asked.connect),
        asking_cpu_ns_per_request: cost(asked.cpu_ns, asked.cpu_requests),
        answering_cpu_ns_per_request: answered.and_then(|it| cost(it.cpu_ns, it.answered)),
    })
}

/// What a reader must know before believing the times of a phase.
pub(super) fn flags(phase: &NetPhase) -> Vec<String> {
    let name = phase.name;
    let mut flags = Vec::new();
    if let Some(probes) = &phase.probes {
        if probes.sent > 0 && probes.answered == 0 {
            flags.push(format!(
                "{name}: every probe was lost; a firewall may pass TCP and drop UDP, or the path \
                 back differs: try --probes 0"
            ));
        }
        if probes.refused.values().sum::<u64>() > 0 {
            flags.push(format!("{name}: this host's kernel refused some probes"));
        }
    }
    let Some(exchange) = &phase.exchange else { return flags };
    if let Some(late_ns) = late(exchange.lateness.as_ref(), exchange.latency.as_ref()) {
        flags.push(format!(
            "{name}: requests were sent late (p99 {:.2} ms), and their times include that",
            late_ns / 1e6
        ));
    }
    // One more, because a rate seldom fills the time to its end.
    let carried = (exchange.answered + exchange.lost + 1) as f64;
    if let Some(per_second) = exchange.per_second
        && carried < CARRIED_LEAST * f64::from(per_second) * exchange.seconds
    {
        flags.push(format!(
            "{name}: {:.0} requests a second were answered, not {per_second}: the path or a host carries no more, and \
             times are those of waiting for it",
            exchange.requests_per_second
        ));
    }
    flags
}

/// In which loads probes were sent late, and how late.
pub(super) fn late_flag(phases: &[NetPhase]) -> Option<String> {
    let late_of = |phase: &NetPhase| {
        let probes = phase.probes.as_ref()?;
        late(probes.lateness.as_ref(), probes.application.as_ref())
    };
    let mut loads: Vec<PhaseName> = phases.iter().map(|phase| phase.name).collect();
    loads.sort_unstable();
    loads.dedup();
    let late = loads.iter().filter_map(|name| {
        let rounds = phases.iter().filter(|phase| phase.name == *name);
        let most_ns = rounds.filter_map(late_of).reduce(f64::max)?;
        Some(format!("{name} {:.2} ms", most_ns / 1e6))
    });
    let late: Vec<String> = late.collect();
    (!late.is_empty()).then(|| {
        format!(
            "probes were sent late (up to: {}): an application's times include this host's own delay",
            late.join(", ")
        )
    })
}

/// How late one in a hundred left, or one in ten of few, where that is much of what all of it took.
fn late(lateness: Option<&NetDistribution>, whole: Option<&NetDistribution>) -> Option<f64> {
    let (lateness, whole) = (lateness?, whole?);
    let (late_ns, whole_ns) =
        lateness.p99_ns.zip(whole.p99_ns).or_else(|| lateness.p90_ns.zip(whole.p90_ns))?;
    (late_ns > LATE_SHARE_MAX * whole_ns).then_some(late_ns)
}

#[cfg(test)]
mod tests {
    use plumb_net::measure::test_spec::ProbesSpec;
    use plumb_result::net::ProbeReflectorReport;

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
        let answers = ProbeReflectorReport { received: 9, ..ProbeReflectorReport::default() };
        let there = of(TestPartReport::Answers(answers));
        let said = probes(&spec, &here, Some(&there), None).unwrap();
        assert_eq!((said.there, said.lost_up, said.lost_down), (Some(answers), Some(1), Some(1)));
        assert_eq!(probes(&spec, &here, None, None).unwrap().there, None);
    }

    #[test]
    fn only_a_rate_that_was_not_carried_is_flagged() {
        let flagged = |per_second, answered, lost, seconds| {
            let exchange = NetRequestResponse {
                pacing: RequestOrder::Open,
                per_second,
                answered,
                lost,
                seconds,
                requests_per_second: answered as f64 / seconds,
                ..NetRequestResponse::default()
            };
            let name = PhaseName::ExchangeUdp;
            flags(&NetPhase { name, exchange: Some(exchange), ..NetPhase::default() })
        };
        assert!(flagged(Some(1_000), 3_990, 10, 4.0).is_empty());
        let slow = flagged(Some(1_000), 3_990, 10, 8.0);
        assert!(slow.len() == 1 && slow[0].contains("499 requests a second"), "{slow:?}");
        // One a second, of which one and a half seconds have one.
        assert!(flagged(Some(1), 1, 0, 1.5).is_empty());
        assert!(flagged(None, 3_990, 10, 8.0).is_empty());
    }
}
