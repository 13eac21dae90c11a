//! The summary of a measurement between two hosts, by the figures of the run as it is stored.

use plumb_analysis::document::{CellResult, RunDocument};
use plumb_experiments::list::run_document;
use plumb_report::terminal::format_bit_rate;
use plumb_result::net::{
    Direction, LatencySummary, LoadSummary, NetDistribution, NetDocument, NetInterval, NetOutage,
    NetPhase, NetSummary, PhaseName, SenderLimits,
};

use super::stored_run::{NetRunHeader, StoredDocument as _};

/// A rate is not steady where one in ten intervals carries less than this share of the median.
const STEADY_SHARE: f64 = 0.5;
/// Intervals are taken together until they last so many round trips.
const STEADY_ROUND_TRIPS: f64 = 4.0;
/// Intervals that it takes to say so.
const STEADY_INTERVALS: usize = 10;
/// The share of the time from which on something is what limits a sender.
const LIMIT_SHARE: f64 = 0.5;

/// The summary of a document; none where nothing was counted.
pub fn summarize(document: &NetDocument) -> Option<NetSummary> {
    let run = run_document(&document.run(NetRunHeader::default())?);
    let rounds = document.phases.iter().map(|phase| phase.round + 1).max().unwrap_or(0);
    let loads: Vec<LoadSummary> =
        loads(document).into_iter().map(|load| summary(document, &run, load)).collect();
    let mut warnings = outage_warnings(&document.outages);
    warnings.extend(loads.iter().filter_map(|load| unsteady(document, load)));
    warnings.extend(document.flags.iter().cloned());
    let p99_refused = p99_refused(&run, &loads);
    Some(NetSummary { rounds, loads, p99_refused, warnings })
}

/// Why a p99 is not told, where one is not.
fn p99_refused(run: &RunDocument, loads: &[LoadSummary]) -> Option<String> {
    let mut told = loads.iter().flat_map(|load| [&load.idle, &load.loaded]).flatten();
    told.find(|latency| latency.p99_ns.is_none())?;
    let cells = run.results.iter().filter(|cell| {
        matches!(cell.response.as_str(), "round_trip" | "latency") && cell.summary.p99.is_none()
    });
    let why = cells.flat_map(|cell| &cell.flags).find_map(|it| it.strip_prefix("p99 refused: "))?;
    // Between hosts a launch is a round.
    Some(why.replace("launches", "rounds"))
}

/// A load and its direction.
type DirectedLoad = (PhaseName, Option<Direction>);

/// The loads in the order they were measured; of a path that had none, the idle phase.
fn loads(document: &NetDocument) -> Vec<DirectedLoad> {
    let mut loads: Vec<DirectedLoad> = Vec::new();
    for phase in &document.phases {
        let flows = phase.flows.iter().map(|flow| Some(flow.direction));
        let streams = phase.datagrams.iter().map(|stream| Some(stream.direction));
        let exchange = phase.exchange.iter().map(|_| None);
        for direction in flows.chain(streams).chain(exchange) {
            if !loads.contains(&(phase.name, direction)) {
                loads.push((phase.name, direction));
            }
        }
    }
    if loads.is_empty() && !document.phases.is_empty() {
        loads.push((PhaseName::Idle, None));
    }
    loads
}

fn summary(
    document: &NetDocument,
    run: &RunDocument,
    (phase, direction): DirectedLoad,
) -> LoadSummary {
    let way = direction.map_or("", Direction::name);
    let of = |experiment: &str, response: &str| {
        let way = [("load", phase.name()), ("direction", way)];
        find(run, experiment, response, &way)
    };
    let rate = of("net.tcp", "received").or_else(|| of("net.udp", "received"));
    let exchange =
        || document.phases.iter().filter(|it| it.name == phase).find_map(|it| it.exchange.as_ref());
    let transport = exchange().map(|exchange| exchange.transport.name());
    let requests =
        |response: &str| find(run, "net.exchange", response, &[("transport", transport?)]);
    let latency = |load: PhaseName| {
        let cell = find(run, "net.latency", "round_trip", &[("load", load.name())])?;
        let phases = document.phases.iter().filter(|phase| phase.name == load);
        let paths = phases.filter_map(|phase| phase.probes.as_ref()?.path.as_ref());
        latency(cell, &paths.collect::<Vec<_>>())
    };
    let answers = exchange().and_then(|exchange| exchange.latency.as_ref());
    let cost = |response: &str| of("net.cpu", response).and_then(figure);
    let per_second = requests("rate");
    LoadSummary {
        phase,
        direction,
        bytes_per_second: rate.and_then(figure),
        bytes_per_second_ci95: rate.and_then(|cell| cell.summary.ci95),
        requests_per_second: per_second.and_then(figure),
        requests_per_second_ci95: per_second.and_then(|cell| cell.summary.ci95),
        idle: latency(PhaseName::Idle),
        loaded: match requests("latency") {
            Some(cell) => self::latency(cell, answers.as_slice()),
            None if phase == PhaseName::Idle => None,
            None => latency(phase),
        },
        loss: loss(document, (phase, direction)),
        sender_cpu_ns_per_byte: cost("cpu.sender"),
        receiver_cpu_ns_per_byte: cost("cpu.receiver"),
        limited_by: limit(document, (phase, direction)).map(str::to_owned),
    }
}

/// The figure of a cell of which each round has one: the median over rounds, or of too few for that their mean.
fn figure(cell: &CellResult) -> Option<f64> {
    cell.summary.median.or(cell.summary.mean)
}

/// The cell of an experiment with these levels.
fn find<'a>(
    run: &'a RunDocument,
    experiment: &str,
    response: &str,
    levels: &[(&str, &str)],
) -> Option<&'a CellResult> {
    let has = |cell: &CellResult, (factor, level): &(&str, &str)| cell.text(factor) == Some(level);
    run.results.iter().find(|cell| {
        cell.experiment == experiment
            && cell.response == response
            && levels.iter().all(|level| has(cell, level))
    })
}

/// The round trips of a cell; where there is one round, that round's own percentiles.
fn latency(cell: &CellResult, of_rounds: &[&NetDistribution]) -> Option<LatencySummary> {
    let one = match of_rounds {
        [one] => Some(*one),
        _ => None,
    };
    Some(LatencySummary {
        p50_ns: cell.summary.median?,
        p50_ci95_ns: cell.summary.ci95,
        p90_ns: cell.summary.p90.or(one.and_then(|round| round.p90_ns)),
        p99_ns: cell.summary.p99.or(one.and_then(|round| round.p99_ns)),
    })
}

/// The phases of a load.
fn phases(document: &NetDocument, name: PhaseName) -> impl Iterator<Item = &NetPhase> {
    document.phases.iter().filter(move |phase| phase.name == name)
}

/// The share that was lost of all that was sent.
fn loss(document: &NetDocument, (name, direction): DirectedLoad) -> Option<f64> {
    let (mut sent, mut lost) = (0, 0);
    for phase in phases(document, name) {
        let is_it = |way: Direction| Some(way) == direction;
        let stream = phase.datagrams.iter().find(|stream| is_it(stream.direction));
        let counts = match (stream, &phase.exchange, &phase.probes) {
            (Some(stream), ..) => stream.sent.zip(stream.lost),
            (None, Some(exchange), _) => Some((exchange.due, exchange.lost)),
            (None, None, probes) => probes.as_ref().map(|probes| (probes.sent, probes.lost)),
        };
        let counts = counts.unwrap_or_default();
        (sent, lost) = (sent + counts.0, lost + counts.1);
    }
    (sent > 0).then(|| lost as f64 / sent as f64)
}

/// What held back the senders for most of the time.
fn limit(document: &NetDocument, (name, direction): DirectedLoad) -> Option<&'static str> {
    let flows = phases(document, name).flat_map(|phase| &phase.flows);
    let waits =
        flows.filter(|flow| Some(flow.direction) == direction).filter_map(|flow| flow.waits);
    let waits: Vec<SenderLimits> = waits.collect();
    let mean = |part: fn(&SenderLimits) -> f64| {
        waits.iter().map(part).sum::<f64>() / waits.len().max(1) as f64
    };
    let parts = [
        (mean(|waits| waits.network), "network"),
        (mean(|waits| waits.receive_window), "receive window"),
        (mean(|waits| waits.send_buffer), "send buffer"),
        (mean(|waits| waits.application), "sending program"),
    ];
    parts.into_iter().find(|(share, _)| *share >= LIMIT_SHARE).map(|(_, name)| name)
}

/// One line for the outages of each load.
fn outage_warnings(outages: &[NetOutage]) -> Vec<String> {
    let of_phase = |found: &[NetOutage]| {
        let longest = found.iter().map(NetOutage::seconds).fold(0.0, f64::max);
        let first = &found[0];
        let often = match found.len() {
            1 => String::new(),
            times => format!(", {times} times, longest first"),
        };
        format!(
            "OUTAGE: nothing came through for {longest:.1} s during '{}', round {}{often}: its figures are of a path \
             that was cut",
            first.phase,
            first.round + 1
        )
    };
    let mut ordered = outages.to_vec();
    ordered.sort_by(|a, b| a.phase.cmp(&b.phase).then(b.seconds().total_cmp(&a.seconds())));
    ordered.chunk_by(|a, b| a.phase == b.phase).map(of_phase).collect()
}

/// Says that the rate of a direction is not steady.
fn unsteady(document: &NetDocument, load: &LoadSummary) -> Option<String> {
    let direction = load.direction?;
    let mut rates = Vec::new();
    for phase in phases(document, load.phase) {
        let flows = phase.flows.iter().map(|flow| (flow.direction, &flow.intervals));
        let streams = phase.datagrams.iter().map(|stream| (stream.direction, &stream.intervals));
        // A sender that waits for its round trips is steady all the same.
        let trip = phase.probes.as_ref().and_then(|probes| Some(probes.path.as_ref()?.p50_ns));
        let least_seconds = STEADY_ROUND_TRIPS * trip.unwrap_or(0.0) / 1e9;
        for (_, intervals) in flows.chain(streams).filter(|(way, _)| *way == direction) {
            rates.extend(rates_of(intervals, least_seconds));
        }
    }
    rates.sort_by(f64::total_cmp);
    let at = |part: usize| rates[(rates.len() - 1) * part / 10];
    (rates.len() >= STEADY_INTERVALS && at(1) < STEADY_SHARE * at(5)).then(|| {
        format!(
            "{}: the rate is not steady: {} in one of ten intervals or less, {} in one of ten or more",
            load.phase,
            format_bit_rate(at(1)),
            format_bit_rate(at(9))
        )
    })
}

/// The rates of counted intervals, of so many together as last at least so long.
fn rates_of(intervals: &[NetInterval], least_seconds: f64) -> Vec<f64> {
    let (mut rates, mut seconds, mut bytes) = (Vec::new(), 0.0, 0.0);
    for interval in intervals.iter().filter(|interval| interval.counts) {
        let length = interval.to_seconds - interval.from_seconds;
        seconds += length;
        bytes += interval.bytes_per_second * length;
        if seconds >= least_seconds && seconds > 0.0 {
            rates.push(bytes / seconds);
            (seconds, bytes) = (0.0, 0.0);
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use plumb_result::net::{NetBulkFlow, NetProbes};

    use super::*;

    fn document(rates: &[f64], round_trip_ns: f64) -> NetDocument {
        let interval = |(index, &bytes_per_second): (u32, &f64)| NetInterval {
            from_seconds: f64::from(index) / 10.0,
            to_seconds: f64::from(index + 1) / 10.0,
            bytes_per_second,
            counts: true,
        };
        let intervals = (0..).zip(rates).map(interval).collect();
        let path = NetDistribution { p50_ns: round_trip_ns, ..NetDistribution::default() };
        let probes = NetProbes { sent: 100, path: Some(path), ..NetProbes::default() };
        let flow = NetBulkFlow { intervals, bytes_per_second: 1e8, ..NetBulkFlow::default() };
        let phase = NetPhase {
            name: PhaseName::Up,
            flows: vec![flow],
            probes: Some(probes),
            ..NetPhase::default()
        };
        NetDocument { phases: vec![phase], ..NetDocument::default() }
    }

    #[test]
    fn a_rate_that_falls_by_half_is_not_steady_unless_it_waits_for_round_trips() {
        let uneven: Vec<f64> = (0..40).map(|n| if n % 4 == 0 { 1e6 } else { 1e8 }).collect();
        let warnings = |document: &NetDocument| summarize(document).unwrap().warnings;
        let told = warnings(&document(&uneven, 1e5));
        assert!(told.len() == 1 && told[0].contains("up: the rate is not steady"), "{told:?}");
        assert_eq!(warnings(&document(&uneven, 1e8)), [] as [String; 0], "a round trip of 100 ms");
        assert_eq!(warnings(&document(&[1e8; 40], 1e5)), [] as [String; 0]);
    }

    #[test]
    fn outages_are_told_first_one_line_a_load() {
        let outage = |round, to_seconds| NetOutage {
            phase: PhaseName::Up,
            round,
            from_seconds: 1.0,
            to_seconds,
        };
        let outages = vec![outage(0, 1.5), outage(3, 3.0)];
        let document = NetDocument { outages, ..document(&[1e8; 40], 1e5) };
        let summary = summarize(&document).unwrap();
        let told = &summary.warnings;
        assert!(told.len() == 1 && told[0].starts_with("OUTAGE: nothing came through for 2.0 s"));
        assert_eq!(summary.loads[0].bytes_per_second, Some(1e8));
    }
}
