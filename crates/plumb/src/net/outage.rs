//! Outages: times of a phase in which nothing came through, by probes and by what the flows carried.
//!
//! A slow path is none: what is silent for a few of its packets only waits for them.

use plumb_result::net::{NetInterval, NetOutage, NetPhase};

/// The shortest outage that probes show.
const OUTAGE_MIN_SECONDS: f64 = 0.3;
/// The shortest outage that the flows show alone.
const FLOW_OUTAGE_MIN_SECONDS: f64 = 1.0;
/// A phase that ends so much later than planned, and by so many of its longest round trips, was held up.
const OVERRUN_MIN_SECONDS: f64 = 1.5;
const OVERRUN_ROUND_TRIPS: f64 = 10.0;
/// Silence at the end of a phase.
const SILENT_END_SECONDS: f64 = 0.05;
/// The longest that the senders' buffers may take to be emptied.
const DRAIN_MAX_SECONDS: f64 = 0.5;
/// Packets of this size, so many, that may be waited for on a slow path.
const PACKET_BYTES: f64 = 1_500.0;
const PACKETS: f64 = 10.0;

/// The outages of a phase, by the times in which no probe was answered, in seconds since it began.
pub(super) fn outages(phase: &NetPhase, silences: &[[f64; 2]]) -> Vec<NetOutage> {
    let flows: Vec<&[NetInterval]> = phase
        .flows
        .iter()
        .map(|flow| flow.intervals.as_slice())
        .chain(phase.datagrams.iter().map(|stream| stream.intervals.as_slice()))
        .collect();
    let patience = patience_seconds(&flows);
    let outage = |[from_seconds, to_seconds]: [f64; 2]| NetOutage {
        phase: phase.name,
        round: phase.round,
        from_seconds,
        to_seconds,
    };
    let lasts = |[from, to]: &[f64; 2], least: f64| to - from >= patience.max(least);
    if phase.probes.as_ref().is_some_and(|probes| probes.answered > 0) {
        let parts = silences.iter().flat_map(|silence| silent_parts(&flows, *silence));
        return parts.filter(|part| lasts(part, OUTAGE_MIN_SECONDS)).map(outage).collect();
    }
    // Without probes, or where a firewall drops them, only what was carried says anything.
    let runs = flows.iter().flat_map(|flow| silent_runs(flow));
    runs.filter(|run| lasts(run, FLOW_OUTAGE_MIN_SECONDS)).map(outage).collect()
}

/// The outage that a phase ended in: silent at its planned end, and over much later than its round trips explain.
pub(super) fn overrun(
    phase: &NetPhase,
    silences: &[[f64; 2]],
    planned_seconds: f64,
    took_seconds: f64,
) -> Option<NetOutage> {
    let probes = phase.probes.as_ref().filter(|probes| probes.answered > 0)?;
    // A host that sends its own probes so late was held up itself.
    let late_seconds = probes.lateness.as_ref().map_or(0.0, |lateness| lateness.max_ns / 1e9);
    if late_seconds >= OVERRUN_MIN_SECONDS {
        return None;
    }
    let longest_seconds = probes.path.as_ref().map_or(0.0, |path| path.max_ns / 1e9);
    let patience = OVERRUN_MIN_SECONDS + OVERRUN_ROUND_TRIPS * longest_seconds;
    // On a slow path the data in flight at the end may take long to arrive.
    let is_drained_soon = phase.flows.iter().all(|flow| {
        let buffered = flow.send_buffer_bytes.unwrap_or(0) as f64;
        flow.drained && buffered <= flow.bytes_per_second * DRAIN_MAX_SECONDS
    });
    let &[from_seconds, to] = silences.last()?;
    let is_silent = to >= planned_seconds - SILENT_END_SECONDS
        && planned_seconds - from_seconds >= SILENT_END_SECONDS;
    (is_silent && is_drained_soon && took_seconds - planned_seconds >= patience).then_some(
        NetOutage { phase: phase.name, round: phase.round, from_seconds, to_seconds: took_seconds },
    )
}

/// How long some packets take at the rate of the slowest flow that carried anything.
fn patience_seconds(flows: &[&[NetInterval]]) -> f64 {
    let mean = |flow: &&[NetInterval]| {
        let length = |interval: &NetInterval| interval.to_seconds - interval.from_seconds;
        let seconds: f64 = flow.iter().map(length).sum();
        let bytes: f64 =
            flow.iter().map(|interval| interval.bytes_per_second * length(interval)).sum();
        (bytes > 0.0 && seconds > 0.0).then(|| bytes / seconds)
    };
    let slowest = flows.iter().filter_map(mean).reduce(f64::min);
    slowest.map_or(0.0, |rate| PACKETS * PACKET_BYTES / rate)
}

/// What is left of a silence without the intervals wholly within it in which a flow carried something. A receiver that
/// waited for a CPU reads after the beginning of an outage what came before.
fn silent_parts(flows: &[&[NetInterval]], [from, to]: [f64; 2]) -> Vec<[f64; 2]> {
    let mut carried: Vec<[f64; 2]> = flows
        .iter()
        .flat_map(|flow| flow.iter())
        .filter(|interval| interval.from_seconds >= from && interval.to_seconds <= to)
        .filter(|interval| interval.bytes_per_second > 0.0)
        .map(|interval| [interval.from_seconds, interval.to_seconds])
        .collect();
    carried.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let mut parts = Vec::new();
    let mut begin = from;
    for [first, last] in carried {
        parts.push([begin, first]);
        begin = begin.max(last);
    }
    parts.push([begin, to]);
    parts
}

/// Runs of counted intervals in which a flow that carried something carried nothing.
fn silent_runs(flow: &[NetInterval]) -> Vec<[f64; 2]> {
    let counted: Vec<&NetInterval> = flow.iter().filter(|interval| interval.counts).collect();
    if counted.iter().all(|interval| interval.bytes_per_second <= 0.0) {
        return Vec::new();
    }
    let runs = counted.chunk_by(|a, b| (a.bytes_per_second > 0.0) == (b.bytes_per_second > 0.0));
    let silent = runs.filter(|run| run[0].bytes_per_second <= 0.0);
    silent.map(|run| [run[0].from_seconds, run[run.len() - 1].to_seconds]).collect()
}

#[cfg(test)]
mod tests {
    use plumb_result::net::{NetBulkFlow, NetDistribution, NetProbes, PhaseName};

    use super::*;

    /// A phase whose flow carried so much in each tenth of a second, and how many of its probes were answered.
    fn phase(rates: &[f64], answered: u64) -> NetPhase {
        let interval = |(index, &bytes_per_second): (u32, &f64)| NetInterval {
            from_seconds: f64::from(index) / 10.0,
            to_seconds: f64::from(index + 1) / 10.0,
            bytes_per_second,
            counts: true,
        };
        let flow = NetBulkFlow {
            intervals: (0..).zip(rates).map(interval).collect(),
            ..NetBulkFlow::default()
        };
        let probes = NetProbes { sent: 1_000, answered, ..NetProbes::default() };
        NetPhase {
            name: PhaseName::Down,
            flows: vec![flow],
            probes: Some(probes),
            ..NetPhase::default()
        }
    }

    fn lengths(phase: &NetPhase, silences: &[[f64; 2]]) -> Vec<f64> {
        outages(phase, silences).iter().map(NetOutage::seconds).collect()
    }

    #[test]
    fn two_seconds_of_silence_are_an_outage() {
        let mut rates = vec![1e8; 40];
        rates[10..30].fill(0.0);
        assert_eq!(lengths(&phase(&rates, 600), &[[1.0, 3.0]]), [2.0]);
        // A receiver that waited for a CPU reads late what arrived before the outage.
        let mut late = rates.clone();
        late[11] = 1e6;
        let found = lengths(&phase(&late, 600), &[[1.0, 3.0]]);
        assert!(found.len() == 1 && (found[0] - 1.8).abs() < 1e-9, "{found:?}");
        // Probes that are dropped by a firewall say nothing of it.
        let found = lengths(&phase(&rates, 0), &[[0.0, 4.0]]);
        assert!(found.len() == 1 && (found[0] - 2.0).abs() < 1e-9, "{found:?}");
        let idle = NetPhase { flows: Vec::new(), ..phase(&[], 600) };
        assert_eq!(lengths(&idle, &[[1.0, 3.0]]), [2.0]);
    }

    #[test]
    fn an_outage_that_outlasts_its_phase_is_found_by_what_that_took() {
        let mut phase = phase(&[1e8; 10], 190);
        phase.flows[0].drained = true;
        let found = |silences: &[[f64; 2]], took| {
            overrun(&phase, silences, 1.0, took).map(|outage| outage.seconds())
        };
        assert_eq!(found(&[[0.75, 1.0]], 3.25), Some(2.5));
        assert_eq!(found(&[[0.75, 1.0]], 1.25), None, "it ended as planned");
        assert_eq!(found(&[[0.2, 0.4]], 3.25), None, "something came at its end");
        assert_eq!(found(&[], 3.25), None);
    }

    #[test]
    fn a_host_that_was_held_up_itself_calls_no_path_cut() {
        let mut phase = phase(&[1e8; 10], 190);
        phase.flows[0].drained = true;
        let mut is_outage = |late_ns| {
            let lateness = NetDistribution { max_ns: late_ns, ..NetDistribution::default() };
            phase.probes.as_mut().unwrap().lateness = Some(lateness);
            overrun(&phase, &[[0.75, 1.0]], 1.0, 11.0).is_some()
        };
        assert!(is_outage(1e6) && !is_outage(7e9));
    }

    #[test]
    fn a_path_that_is_slow_or_lossy_has_none() {
        // At 9600 bit/s a packet takes 1.25 s: a few of them may be waited for.
        let mut slow = vec![0.0; 100];
        for interval in slow.iter_mut().step_by(13) {
            *interval = 15_000.0;
        }
        assert_eq!(lengths(&phase(&slow, 20), &[[1.0, 3.5]]), [0.0; 0]);
        // Data came meanwhile: only the probes were lost.
        assert_eq!(lengths(&phase(&[1e8; 40], 600), &[[1.0, 3.0]]), [0.0; 0]);
        let mut lossy = vec![1e8; 40];
        lossy[10..12].fill(0.0);
        assert_eq!(lengths(&phase(&lossy, 600), &[[1.0, 1.2]]), [0.0; 0]);
        // A flow that never carried anything had no outage: it was never up.
        assert_eq!(lengths(&phase(&[0.0; 40], 0), &[]), [0.0; 0]);
    }
}
