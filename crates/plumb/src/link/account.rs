//! What a link did, as a document.
//!
//! Left out: how it looks in a terminal (`plumb_report::terminal::link`).

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_analysis::document::link::{self, LinkDirection, LinkDocument, LinkDriver, LinkGateway};
use plumb_base::stats::histogram::Histogram;
use plumb_base::time::Span;
use plumb_host::clock::monotonic_ns;
use plumb_host::emulate::DriverReport;
use plumb_host::gateway::Gateway;
use plumb_link::context::Reason;
use plumb_link::report::DirectionReport;

use super::course::State;
use super::trouble::Troubles;

/// What does not change while a link runs.
#[derive(Debug)]
pub struct About {
    /// Its name.
    pub name: String,
    /// The command behind it.
    pub command: Vec<String>,
    /// The hosts that it joins.
    pub hosts: Vec<String>,
    /// When it began, by the clock that only rises.
    pub began_ns: u64,
    /// Its gateway.
    pub gateway: Option<Arc<Gateway>>,
    /// What a reader must know from the start.
    pub flags: Vec<String>,
    /// What has gone wrong since.
    pub troubles: Troubles,
}

/// The document of a link in a state; `ended` is its command's exit code and how many processes that
/// one left.
pub fn document(about: &About, state: &State, ended: Option<(i32, u64)>) -> LinkDocument {
    let gateway = about.gateway.as_ref().map(|gateway| {
        let counts = gateway.counts();
        LinkGateway {
            connections: counts.connections,
            refused: counts.refused,
            datagram_flows: counts.datagram_flows,
            bytes_up: counts.bytes_up,
            bytes_down: counts.bytes_down,
            not_carried: counts.not_carried,
            no_room: counts.no_room,
            evicted: counts.evicted.by_name(),
        }
    });
    LinkDocument {
        schema: link::SCHEMA.to_owned(),
        name: about.name.clone(),
        command: about.command.clone(),
        hosts: about.hosts.clone(),
        link: state.asked.to_string(),
        changes: state.changes,
        seconds: monotonic_ns().saturating_sub(about.began_ns) as f64 / 1e9,
        exit: ended.map(|(code, _)| code),
        left: ended.map_or(0, |(_, left)| left),
        faithful: state.driver.is_faithful()
            && state.network.violations.is_empty()
            && state.network.no_memory() == 0
            && state.refusals.is_empty()
            && gateway.as_ref().is_none_or(|gateway| gateway.no_room == 0),
        directions: state.network.directions.iter().map(direction).collect(),
        router_errors: state.network.routers.errors_sent,
        router_errors_withheld: state.network.routers.errors_withheld,
        fragmented: state.network.routers.fragmented,
        fragments: state.network.routers.fragments,
        no_memory: state.network.no_memory(),
        driver: driver(&state.driver),
        gateway,
        violations: state.network.violations.iter().map(ToString::to_string).collect(),
        flags: about
            .flags
            .iter()
            .chain(&state.refusals)
            .cloned()
            .chain(about.troubles.texts())
            .collect(),
    }
}

fn direction(report: &DirectionReport) -> LinkDirection {
    let discarded = Reason::ALL.into_iter().filter_map(|reason| {
        let (frames, _) = report.discards.of(reason);
        (frames > 0).then(|| (reason.name().to_owned(), frames))
    });
    let waited = |share: f64| report.sojourns.quantile(share) as f64 / 1e3;
    LinkDirection {
        name: report.name.clone(),
        asked: report.text.clone(),
        frames_in: report.entered.frames,
        bytes_in: report.entered.bytes,
        frames_out: report.left.frames,
        bytes_out: report.left.bytes,
        discarded: discarded.collect(),
        marked: report.marked,
        duplicated: report.changes.duplicated,
        reordered: report.changes.reordered,
        corrupted: report.changes.corrupted,
        truncated: report.changes.truncated,
        held: report.changes.held,
        waiting: report.waiting.frames,
        in_flight: report.in_flight.frames,
        bits_per_second: report.left.bytes as f64 * 8.0 / us(report.elapsed).max(1.0) * 1e6,
        utilisation: report.utilisation(),
        queue_mean: report.mean_queue(),
        queue_p50: report.queue_lengths.quantile(0.5),
        queue_p99: report.queue_lengths.quantile(0.99),
        queue_max: report.queue_lengths.max(),
        sojourn_us_p50: waited(0.5),
        sojourn_us_p99: waited(0.99),
        sojourn_us_max: report.sojourns.max() as f64 / 1e3,
        sojourns_us: distribution(&report.sojourns),
    }
}

/// How often each number of nanoseconds, in microseconds: 64 steps an octave, so that a document stays short.
fn distribution(histogram: &Histogram) -> Vec<(f64, u64)> {
    const STEP_BITS: u32 = 6;
    let mut counts = BTreeMap::new();
    for (ns, count) in histogram.iter_recorded() {
        let coarse = (u64::BITS - ns.leading_zeros()).saturating_sub(STEP_BITS + 1);
        let middle = ((ns >> coarse) << coarse) + ((1 << coarse) >> 1);
        *counts.entry(middle).or_insert(0) += count;
    }
    counts.into_iter().map(|(ns, count)| (ns as f64 / 1e3, count)).collect()
}

/// The account of a driver.
pub fn driver(report: &DriverReport) -> LinkDriver {
    let punctuality = &report.punctuality;
    let late = |share: f64| punctuality.lateness.quantile(share) as f64 / 1e3;
    LinkDriver {
        precision: report.precision.to_string(),
        margin_us: us(report.margin),
        wake_us_p50: us(report.measured.oversleep_p50),
        wake_us_p99: us(report.measured.oversleep_p99),
        nice: report.nice,
        tolerance_us: us(punctuality.tolerance),
        frames: punctuality.frames,
        late_us_p50: late(0.5),
        late_us_p99: late(0.99),
        late_us_p999: late(0.999),
        late_us_max: punctuality.lateness.max() as f64 / 1e3,
        lateness_us: distribution(&punctuality.lateness),
        missed: punctuality.missed.count,
        missed_us_worst: us(punctuality.missed.worst),
        absences: punctuality.absences.count,
        absent_us: us(punctuality.absences.total),
        absent_us_worst: us(punctuality.absences.worst),
        entered_late: punctuality.entered_late,
        entered_late_us_worst: us(punctuality.entered_late_worst),
        found_asleep: punctuality.found_asleep,
        waited_for_cpu_us: punctuality.waited_for_cpu.map(us),
        suspended_us: us(punctuality.suspended),
        lost_before: report.losses.iter().map(|losses| losses.received).sum(),
        lost_after: report.losses.iter().map(|losses| losses.sent).sum(),
    }
}

fn us(span: Span) -> f64 {
    span.as_ps() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_every_count_and_its_place_within_eight_tenths_of_a_percent() {
        let mut histogram = Histogram::new();
        let values: Vec<u64> = (0..40).flat_map(|bit| [1 << bit, (1 << bit) * 3 / 2]).collect();
        for (index, &ns) in values.iter().enumerate() {
            histogram.record_n(ns, index as u64 + 1);
        }
        let counts = distribution(&histogram);
        assert_eq!(counts.iter().map(|&(_, count)| count).sum::<u64>(), histogram.len());
        assert!(counts.is_sorted_by(|a, b| a.0 < b.0));
        for ns in values {
            let near = |&&(us, _): &&(f64, u64)| (us * 1e3 / ns as f64 - 1.0).abs() <= 0.009;
            assert!(counts.iter().find(near).is_some(), "{ns} {counts:?}");
        }
    }
}
