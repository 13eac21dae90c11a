//! The first screen of a measurement between two hosts: what would change the answer, the answer, where to look further.

use plumb_base::units::{Unit, significant};
use plumb_result::net::{
    LatencySummary, LoadSummary, NetDocument, NetEnding, NetSummary, PhaseName,
};

use super::format_bit_rate;
use super::{TerminalPage, TerminalStyle, TextRole};
use crate::table::TextTable;
use crate::value;

/// Warnings that the first screen has room for.
const WARNINGS_MAX: usize = 5;

/// Adds the summary of a document to a page.
pub(super) fn put(page: &mut TerminalPage, document: &NetDocument, summary: &NetSummary) {
    for outage in summary.warnings.iter().filter(|warning| is_outage(warning)) {
        page.put(0, TextRole::Bad, &format!("! {outage}"));
    }
    page.put(0, TextRole::Bold, &title(document));
    page.put(0, TextRole::Dim, &conditions(document, summary));
    for problem in &document.problems {
        page.put(0, TextRole::Warn, &format!("! partial: {problem}"));
    }
    if document.ended == NetEnding::Stopped {
        page.put(0, TextRole::Warn, "! stopped: these are the results so far");
    }
    let others: Vec<&String> =
        summary.warnings.iter().filter(|warning| !is_outage(warning)).collect();
    for warning in others.iter().take(WARNINGS_MAX) {
        page.put(0, TextRole::Warn, &format!("! {warning}"));
    }
    let more = others.len().saturating_sub(WARNINGS_MAX);
    if more > 0 {
        page.put(0, TextRole::Dim, &format!("{more} more: --details"));
    }
    page.out.push('\n');
    page.out += &table(summary).render(page.style);
    let p99 = summary.p99_refused.as_ref();
    let p99 = p99.map(|why| format!("no p99 where '–' stands: {why} (--rounds N)"));
    for line in [p99, path(document), costs(summary)].into_iter().flatten() {
        page.put(0, TextRole::Plain, &TerminalStyle::keep_units_together(&line));
    }
    if let Some(run) = &document.run {
        let more = format!("More: plumb show {run} --details; plumb report {run} -o net.html");
        page.put(0, TextRole::Dim, &more);
    }
}

/// Whether a warning of a summary says that the path was cut.
pub fn is_outage(warning: &str) -> bool {
    warning.starts_with("OUTAGE")
}

/// `user@host at 10.0.0.2 (host, Linux 6.1)`.
pub(crate) fn title(document: &NetDocument) -> String {
    let there = if document.there.name.is_empty() { "?" } else { &document.there.name };
    let kernel = match document.there.kernel.as_str() {
        "" => String::new(),
        kernel => format!(", Linux {kernel}"),
    };
    format!("{} at {} ({there}{kernel})", document.asked, document.address)
}

/// What was measured, how often, and what the figures are.
pub(crate) fn conditions(document: &NetDocument, summary: &NetSummary) -> String {
    let flow = document.phases.iter().find_map(|phase| phase.flows.first());
    let flow = flow.map(|flow| {
        let streams = if flow.streams == 1 { "stream" } else { "streams" };
        format!("TCP {}, {} {streams}", flow.congestion, flow.streams)
    });
    let rounds = match summary.rounds {
        1 => "1 round: no interval (--rounds 6 gives one)".to_owned(),
        rounds @ 2..=5 => format!("mean of {rounds} rounds: no interval (--rounds 6 gives one)"),
        rounds => format!("median of {rounds} rounds and its 95 % interval"),
    };
    let took = format!("{} s", significant(document.seconds, 3));
    let parts: Vec<String> = flow.into_iter().chain([rounds, took]).collect();
    parts.join(" · ")
}

/// The name of a load: its direction, or the transport of its requests.
pub(crate) fn load_name(load: &LoadSummary) -> String {
    match (load.phase, load.direction) {
        (PhaseName::ExchangeTcp, _) => "requests TCP".to_owned(),
        (PhaseName::ExchangeUdp, _) => "requests UDP".to_owned(),
        (PhaseName::ExchangeTls, _) => "requests TLS".to_owned(),
        (PhaseName::ExchangeQuic, _) => "requests QUIC".to_owned(),
        (PhaseName::Both, Some(direction)) => format!("both: {direction}"),
        (phase, Some(direction)) if phase.name() != direction.name() => {
            format!("{} {direction}", phase.name().trim_end_matches(&format!("-{direction}")))
        }
        (phase, _) => phase.name().to_owned(),
    }
}

/// A row a load.
pub fn table(summary: &NetSummary) -> TextTable {
    let rate = |load: &LoadSummary| match (load.bytes_per_second, load.requests_per_second) {
        (Some(rate), _) if is_noisy(rate, load.bytes_per_second_ci95) => {
            let [low, high] = load.bytes_per_second_ci95.unwrap_or_default();
            format!("{}–{}", format_bit_rate(low.max(0.0)), format_bit_rate(high))
        }
        (Some(rate), _) => format_bit_rate(rate),
        (None, Some(requests)) => format!("{} /s", significant(requests, 3)),
        (None, None) => "–".to_owned(),
    };
    let precision = |load: &LoadSummary| match (load.bytes_per_second, load.requests_per_second) {
        (Some(rate), _) if is_noisy(rate, load.bytes_per_second_ci95) => {
            value::TOO_NOISY.to_owned()
        }
        (Some(rate), _) => value::precision(rate, load.bytes_per_second_ci95),
        (None, Some(requests)) => value::precision(requests, load.requests_per_second_ci95),
        (None, None) => String::new(),
    };
    let trips = |load: &LoadSummary, of: fn(&LatencySummary) -> Option<f64>| {
        let [idle, loaded] = [load.idle, load.loaded].map(|found| found.as_ref().and_then(of));
        from_to(idle, loaded, load.requests_per_second.is_some())
    };
    let loss = |load: &LoadSummary| {
        load.loss.map_or_else(|| "–".to_owned(), |share| Unit::Share.format(share, 2).to_string())
    };
    let mut table = TextTable::of_rows(
        &summary.loads,
        &[
            ("", &load_name),
            ("#rate", &rate),
            ("#±?", &precision),
            ("#p50 idle→load", &|load| trips(load, |found| Some(found.p50_ns))),
            ("#p90 idle→load???", &|load| trips(load, |found| found.p90_ns)),
            ("#p99 idle→load??", &|load| trips(load, |found| found.p99_ns)),
            ("#loss?", &loss),
            ("limited by?", &|load| load.limited_by.clone().unwrap_or_default()),
        ],
    );
    table.drop_empty_columns();
    table
}

fn is_noisy(rate: f64, ci95: Option<[f64; 2]>) -> bool {
    value::is_too_noisy(Unit::BytesPerSecond, rate, ci95)
}

/// `28→144 µs`; of requests, which nothing idle is compared with, one of them.
fn from_to(idle: Option<f64>, loaded: Option<f64>, is_alone: bool) -> String {
    let time = |ns: Option<f64>| ns.map(|ns| Unit::Nanoseconds.format(ns, 3));
    match (time(idle), time(loaded)) {
        (_, loaded) if is_alone => loaded.map_or_else(|| "–".to_owned(), |ns| ns.to_string()),
        (Some(idle), Some(loaded)) if idle.suffix == loaded.suffix => {
            format!("{}→{loaded}", idle.number)
        }
        (None, None) => "–".to_owned(),
        (Some(idle), None) => idle.to_string(),
        (None, Some(loaded)) => format!("–→{loaded}"),
        (Some(idle), Some(loaded)) => format!("{idle}→{loaded}"),
    }
}

fn path(document: &NetDocument) -> Option<String> {
    let mtu = document.mtu.as_ref()?;
    Some(match (mtu.path_bytes, &mtu.problem) {
        (Some(path), _) => format!("path MTU up {path} B"),
        (None, Some(problem)) => format!("path MTU up: {problem}"),
        (None, None) => return None,
    })
}

/// What a gigabyte costs: a nanosecond a byte is a second a gigabyte.
fn costs(summary: &NetSummary) -> Option<String> {
    let told = summary.loads.iter().filter_map(|load| {
        let direction = load.direction?;
        let [sender, receiver] = [load.sender_cpu_ns_per_byte?, load.receiver_cpu_ns_per_byte?];
        let [sender, receiver] = [sender, receiver].map(|cost| significant(cost, 2));
        Some(format!("{direction} {sender} sending, {receiver} receiving"))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("CPU in s/GB: {}", told.join("; ")))
}
