//! The document and the status line of a link.

use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use plumb_analysis::document::link::{
    LINK_SCHEMA, LinkDirection, LinkDocument, LinkDriver, LinkGateway,
};
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_link::frame::DiscardReason;
use plumb_link::report::DirectionReport;
use plumb_netdev::emulator::EmulatorReport;
use plumb_netdev::emulator::running_link::LinkState;
use plumb_netdev::gateway::Gateway;
use plumb_report::terminal::format_bit_rate;

/// Facts of a link that do not change while it runs.
#[derive(Debug)]
pub struct LinkDescription {
    /// Name.
    pub name: String,
    /// Command behind it.
    pub command: Vec<String>,
    /// Hosts that it joins.
    pub hosts: Vec<String>,
    /// Start, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
    /// Gateway.
    pub gateway: Option<Arc<Gateway>>,
    /// Warnings from the start.
    pub flags: Vec<String>,
    /// Problems since then.
    pub problems: LinkProblems,
}

/// Problems since the start.
#[derive(Clone, Debug)]
pub struct LinkProblems {
    texts: Arc<Mutex<Vec<String>>>,
    notifier: Sender<String>,
}

impl LinkProblems {
    /// No problems yet; calls `print` with each one, on a thread of its own, so that adding one never blocks. If no thread
    /// can be started, problems are only recorded.
    pub fn reporting_to(mut print: impl FnMut(&str) + Send + 'static) -> Self {
        let (sender, texts) = channel::<String>();
        let report = move || texts.iter().for_each(|text| print(&text));
        std::thread::Builder::new().name("problems".to_owned()).spawn(report).map(drop).ok();
        Self { texts: Arc::default(), notifier: sender }
    }

    /// Adds a problem.
    pub fn add(&self, text: String) {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).push(text.clone());
        self.notifier.send(text).ok();
    }

    /// All problems.
    pub fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The document of a link; `ended` is the exit code of its command and the number of processes that it left running.
pub fn document(
    about: &LinkDescription,
    state: &LinkState,
    ended: Option<(i32, u64)>,
) -> LinkDocument {
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
        schema: LINK_SCHEMA.to_owned(),
        name: about.name.clone(),
        command: about.command.clone(),
        hosts: about.hosts.clone(),
        link: state.requested.to_string(),
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
            .chain(about.problems.texts())
            .collect(),
    }
}

/// Makes the document of a running link when it is requested.
pub fn json(about: &Arc<LinkDescription>) -> Box<dyn Fn(&LinkState) -> serde_json::Value + Send> {
    let about = Arc::clone(about);
    Box::new(move |state| {
        serde_json::to_value(document(&about, state, None)).expect("a document is valid JSON")
    })
}

fn direction(report: &DirectionReport) -> LinkDirection {
    let discarded = DiscardReason::ALL.into_iter().filter_map(|reason| {
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
        utilisation: report.utilization(),
        queue_mean: report.mean_queue(),
        queue_p50: report.queue_lengths.quantile(0.5),
        queue_p99: report.queue_lengths.quantile(0.99),
        queue_max: report.queue_lengths.max(),
        sojourn_us_p50: waited(0.5),
        sojourn_us_p99: waited(0.99),
        sojourn_us_max: report.sojourns.max() as f64 / 1e3,
        sojourns_us: distribution(report.sojourns.iter_recorded()),
    }
}

/// Counts by value in microseconds, with 64 steps per octave to keep documents short.
fn distribution(recorded: impl Iterator<Item = (u64, u64)>) -> Vec<(f64, u64)> {
    const STEP_BITS: u32 = 6;
    let mut counts = BTreeMap::new();
    for (ns, count) in recorded {
        let coarse = (u64::BITS - ns.leading_zeros()).saturating_sub(STEP_BITS + 1);
        let middle = ((ns >> coarse) << coarse) + ((1 << coarse) >> 1);
        *counts.entry(middle).or_insert(0) += count;
    }
    counts.into_iter().map(|(ns, count)| (ns as f64 / 1e3, count)).collect()
}

/// The driver's part of a document.
pub fn driver(report: &EmulatorReport) -> LinkDriver {
    let punctuality = &report.timing;
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
        lateness_us: distribution(punctuality.lateness.iter_recorded()),
        missed: punctuality.missed.count,
        missed_us_worst: us(punctuality.missed.worst),
        absences: punctuality.stalls.count,
        absent_us: us(punctuality.stalls.total),
        absent_us_worst: us(punctuality.stalls.worst),
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

/// Formats the status line from successive states.
#[derive(Clone, Debug, Default)]
pub struct LinkStatusLine {
    before: Option<(u64, [u64; 2])>,
}

impl LinkStatusLine {
    /// The line for a state `elapsed_ns` after the start, in less than `width` columns; drops the least important parts
    /// first.
    pub fn line(&mut self, elapsed_ns: u64, state: &LinkState, width: u16) -> String {
        let directions = &state.network.directions;
        let bytes = ["up", "down"].map(|way| {
            // The bytes that left the last hop are the least of all hops.
            let of_way = directions.iter().filter(|direction| direction.name.ends_with(way));
            of_way.map(|direction| direction.left.bytes).min().unwrap_or(0)
        });
        let rates = match self.before.replace((elapsed_ns, bytes)) {
            Some((then_ns, before)) if elapsed_ns > then_ns => {
                let seconds = (elapsed_ns - then_ns) as f64 / 1e9;
                [0, 1].map(|way| bytes[way].saturating_sub(before[way]) as f64 / seconds)
            }
            _ => [0.0; 2],
        };
        let waiting: u64 = directions.iter().map(|direction| direction.waiting.frames).sum();
        let punctuality = &state.driver.timing;
        let late = punctuality.missed.count + punctuality.entered_late;
        let mut parts = vec![
            (ALWAYS_SHOWN, format!("up {}", format_bit_rate(rates[0]))),
            (ALWAYS_SHOWN, format!("down {}", format_bit_rate(rates[1]))),
            (3, format!("{waiting} waiting")),
            (2, format!("{} lost", state.network.discarded().frames)),
            (1, format!("{late} late")),
        ];
        let stopped = punctuality.stalls.total + punctuality.suspended;
        if stopped > Span::ZERO {
            parts.push((1, format!("stopped for {:.0} ms", stopped.as_secs_f64() * 1e3)));
        }
        fit(parts, width.saturating_sub(1).into())
    }
}

/// Rank of parts that are never dropped.
const ALWAYS_SHOWN: u8 = 0;
/// Prefix of the line, if there is room.
const TITLE: &str = "link: ";

/// As many parts as fit; drops the title, then parts of the greatest rank.
fn fit(mut parts: Vec<(u8, String)>, room: usize) -> String {
    let mut title = TITLE;
    loop {
        let words: Vec<&str> = parts.iter().map(|(_, words)| words.as_str()).collect();
        let line = [title, &words.join(", ")].concat();
        if line.chars().count() <= room {
            return line;
        }
        let rank = parts.iter().map(|(rank, _)| *rank).max().unwrap_or(ALWAYS_SHOWN);
        match parts.iter().rposition(|(own, _)| *own == rank && rank > ALWAYS_SHOWN) {
            _ if !title.is_empty() => title = "",
            Some(index) => drop(parts.remove(index)),
            None => return line,
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::stats::histogram::Histogram;

    use super::*;

    #[test]
    fn distribution_keeps_counts_and_values_within_a_percent() {
        let mut histogram = Histogram::new();
        let values: Vec<u64> = (0..40).flat_map(|bit| [1 << bit, (1 << bit) * 3 / 2]).collect();
        for (index, &ns) in values.iter().enumerate() {
            histogram.record_n(ns, index as u64 + 1);
        }
        let counts = distribution(histogram.iter_recorded());
        assert_eq!(counts.iter().map(|&(_, count)| count).sum::<u64>(), histogram.len());
        assert!(counts.is_sorted_by(|a, b| a.0 < b.0));
        for ns in values {
            let near = |&&(us, _): &&(f64, u64)| (us * 1e3 / ns as f64 - 1.0).abs() <= 0.009;
            assert!(counts.iter().find(near).is_some(), "{ns} {counts:?}");
        }
    }

    #[test]
    fn narrow_status_line_keeps_what_matters_most() {
        let parts = || {
            let words = ["up 10.0 Mb/s", "down 1.3 Mb/s", "12 waiting", "3 lost", "40 late"];
            [0, 0, 3, 2, 1].into_iter().zip(words.map(str::to_owned)).collect::<Vec<_>>()
        };
        let whole = "link: up 10.0 Mb/s, down 1.3 Mb/s, 12 waiting, 3 lost, 40 late";
        assert_eq!(fit(parts(), 79), whole);
        assert_eq!(fit(parts(), whole.len() - 1), whole[TITLE.len()..]);
        assert_eq!(fit(parts(), 50), "up 10.0 Mb/s, down 1.3 Mb/s, 3 lost, 40 late");
        assert_eq!(fit(parts(), 39), "up 10.0 Mb/s, down 1.3 Mb/s, 40 late");
        assert_eq!(fit(parts(), 10), "up 10.0 Mb/s, down 1.3 Mb/s");
    }
}
