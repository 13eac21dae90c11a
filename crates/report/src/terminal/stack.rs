//! What a command of `plumb stack` saw, in a terminal: round trips, services, rates, counters.
//!
//! Left out: lines that appear while it runs, which the command line writes.

use std::collections::BTreeMap;

use plumb_analysis::document::CellResult;
use plumb_analysis::document::stack::{ReplayRate, ServiceCount, StackDocument, StackRoundTrips};
use plumb_base::units::Unit;
use serde_json::Value;

use super::summary::push_wrapped;
use super::{TerminalStyle, TextRole};
use crate::figure::{quantiles, text};
use crate::table::{self, TextTable};
use crate::value;

/// The whole page; `counters` shows every counter, else only packets that were dropped.
pub fn render(document: &StackDocument, counters: bool, style: TerminalStyle) -> String {
    let mut out = String::new();
    if !document.exchanges.is_empty() {
        exchanges(&mut out, document, style);
    }
    if let Some(rate) = &document.replay {
        replay(&mut out, rate, style);
    }
    if document.services.iter().any(|service| service.received > 0) || document.replay.is_none() {
        services(&mut out, &document.services, style);
    }
    for flag in &document.flags {
        push_wrapped(&mut out, flag, TextRole::Dim, 0, style);
    }
    let end = format!("{} after {}.", end_reason(&document.ended), span(document.seconds));
    push_wrapped(&mut out, &end, TextRole::Plain, 0, style);
    if counters {
        for (title, counts) in [
            ("Stack", &document.stack_counters),
            ("Device", &document.device_counters),
            ("Injected faults", &document.fault_counters),
        ] {
            list(&mut out, title, counts, style);
        }
    } else {
        // What nobody should have to ask for.
        list(&mut out, "Dropped by the stack", &document.drop_counters, style);
    }
    out
}

fn exchanges(out: &mut String, document: &StackDocument, style: TerminalStyle) {
    let title = match document.device.as_ref() {
        Some(device) => format!("Round trips of plumb's stack on {}", device.name),
        None => "Round trips of the kernel's stack".to_owned(),
    };
    push_wrapped(out, &title, TextRole::Bold, 0, style);
    let mut table = TextTable::with_heads(&[
        "frame", "#median", "#min", "#q1?", "#q3?", "#max", "#p99?", "#p99.9??", "#first??",
        "#n???", "#lost",
    ]);
    for exchange in &document.exchanges {
        let rtt = &exchange.rtt;
        let ns = |quantity| value::optional(Unit::Nanoseconds, quantity);
        table.push([
            format!("{} B", exchange.frame_bytes),
            ns(rtt.median),
            ns(rtt.min),
            ns(rtt.q1),
            ns(rtt.q3),
            ns(rtt.max),
            ns(rtt.p99),
            ns(rtt.p999),
            ns(exchange.first_ns),
            rtt.n.to_string(),
            exchange.lost.to_string(),
            loss(exchange),
        ]);
    }
    table.drop_empty_columns();
    *out += &style.to_charset(&table::text::render(&table, style));
    for exchange in &document.exchanges {
        anomalies(out, exchange, style);
    }
    let cells: Vec<CellResult> = document.exchanges.iter().map(cell).collect();
    let cells: Vec<&CellResult> = cells.iter().filter(|cell| cell.summary.n >= PLOT_FROM).collect();
    if let Some(figure) = quantiles::figure("Distribution", &cells) {
        out.push('\n');
        *out += &text::render(&figure, style);
    }
    out.push('\n');
}

/// Round trips below which a picture says nothing.
const PLOT_FROM: u64 = 20;

fn cell(exchange: &StackRoundTrips) -> CellResult {
    let factors = [("frame".to_owned(), Value::from(exchange.frame_bytes))];
    CellResult {
        experiment: "stack".to_owned(),
        factors: factors.into_iter().collect(),
        response: "rtt".to_owned(),
        unit: "ns".to_owned(),
        better: "lower".to_owned(),
        summary: exchange.rtt.clone(),
        cpu: plumb_analysis::document::CpuCost::default(),
        counters: BTreeMap::new(),
        flags: Vec::new(),
    }
}

fn loss(exchange: &StackRoundTrips) -> String {
    if exchange.lost == 0 {
        return String::new();
    }
    format!("{:.2}%", exchange.lost as f64 / exchange.sent.max(1) as f64 * 100.0)
}

/// What a perfect link would not do.
fn anomalies(out: &mut String, exchange: &StackRoundTrips, style: TerminalStyle) {
    let counts = [
        (exchange.late, "late or again"),
        (exchange.corrupt, "broken"),
        (exchange.errors, "refused or not sent"),
    ];
    let words: Vec<String> = counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !words.is_empty() {
        let text = format!("{} B: {}", exchange.frame_bytes, words.join(", "));
        push_wrapped(out, &text, TextRole::Warn, 0, style);
    }
}

fn replay(out: &mut String, rate: &ReplayRate, style: TerminalStyle) {
    let title = match rate.frames {
        1 => "One frame through plumb's stack".to_owned(),
        frames => format!("{frames} frames of {} through plumb's stack", rate.source),
    };
    push_wrapped(out, &title, TextRole::Bold, 0, style);
    let ns = |quantity| value::plain(Unit::Nanoseconds, quantity);
    let millions = rate.packets_per_second / 1e6;
    for line in [
        format!("{} packets in, {} out", rate.received, rate.sent),
        format!("{millions:.3} million packets a second, {} each", ns(rate.ns_per_packet)),
        format!("of which the memory device takes {} by itself", ns(rate.device_ns_per_packet)),
    ] {
        push_wrapped(out, &line, TextRole::Plain, 2, style);
    }
    out.push('\n');
}

fn services(out: &mut String, services: &[ServiceCount], style: TerminalStyle) {
    if services.is_empty() {
        return;
    }
    let mut table = TextTable::with_heads(&[
        "service",
        "#port",
        "#received",
        "#answered",
        "#payload?",
        "#to a group?",
        "#from a service?",
        "#failed?",
    ]);
    let count = |n: u64| if n == 0 { String::new() } else { n.to_string() };
    for service in services {
        table.push([
            service.name.clone(),
            service.port.to_string(),
            service.received.to_string(),
            service.answered.to_string(),
            value::plain(Unit::Bytes, service.bytes as f64),
            count(service.to_group),
            count(service.from_service),
            count(service.failed),
        ]);
    }
    table.drop_empty_columns();
    *out += &table::text::render(&table, style);
    out.push('\n');
}

fn list(out: &mut String, title: &str, counts: &BTreeMap<String, u64>, style: TerminalStyle) {
    if counts.is_empty() {
        return;
    }
    push_wrapped(out, title, TextRole::Bold, 0, style);
    let widest = counts.keys().map(String::len).max().unwrap_or(0);
    for (name, count) in counts {
        *out += &format!("  {name:<widest$}  {count}\n");
    }
}

fn end_reason(word: &str) -> &'static str {
    match word {
        "duration" => "Time was up",
        "interrupted" => "Interrupted",
        "silent" => "Given up",
        "refused" => "Refused",
        "device" => "The device failed",
        _ => "Done",
    }
}

fn span(seconds: f64) -> String {
    value::plain(Unit::Nanoseconds, seconds * 1e9)
}
