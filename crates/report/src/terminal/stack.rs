//! What a command of `plumb stack` saw, in a terminal: round trips, services, rates, counters.
//!
//! Left out: lines that appear while it runs, which the command line writes.

use std::collections::BTreeMap;

use plumb_analysis::document::CellResult;
use plumb_analysis::document::stack::{
    ReplayRate, ServiceCount, StackConnection, StackDocument, StackRoundTrips, StreamServiceCount,
};
use plumb_base::units::Unit;
use serde_json::Value;

use super::{TerminalPage, TerminalStyle, TextRole, occurred};
use crate::figure::{connection, spread, text};
use crate::table::TextTable;
use crate::value;

/// The whole page; `counters` shows every counter, else only packets that were dropped.
pub fn render(document: &StackDocument, counters: bool, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if !document.exchanges.is_empty() {
        put_exchanges(&mut page, document);
    }
    if let Some(rate) = &document.replay {
        put_replay(&mut page, rate);
    }
    for connection in &document.connections {
        put_connection(&mut page, connection);
        put_window(&mut page, connection);
    }
    if document.services.iter().any(|service| service.received > 0) || document.replay.is_none() {
        put_services(&mut page, &document.services);
    }
    put_stream_services(&mut page, &document.stream_services);
    for flag in &document.flags {
        page.put(0, TextRole::Dim, flag);
    }
    let end = format!("{} after {}.", end_reason(&document.ended), span(document.seconds));
    page.put(0, TextRole::Plain, &end);
    if counters {
        for (title, counts) in [
            ("Stack", &document.stack_counters),
            ("Device", &document.device_counters),
            ("Injected faults", &document.fault_counters),
        ] {
            put_counts(&mut page, title, counts);
        }
    } else {
        // Drops are shown without --details.
        put_counts(&mut page, "Dropped by the stack", &document.drop_counters);
    }
    page.out
}

fn put_exchanges(page: &mut TerminalPage, document: &StackDocument) {
    let title = match document.device.as_ref() {
        Some(device) => format!("Round trips of plumb's stack on {}", device.name),
        None => "Round trips of the kernel's stack".to_owned(),
    };
    page.put(0, TextRole::Bold, &title);
    let ns = |quantity| value::optional(Unit::Nanoseconds, quantity);
    let mut table = TextTable::of_rows(
        &document.exchanges,
        &[
            ("frame", &|exchange| format!("{} B", exchange.frame_bytes)),
            ("#median", &|exchange| ns(exchange.rtt.median)),
            ("#min", &|exchange| ns(exchange.rtt.min)),
            ("#q1?", &|exchange| ns(exchange.rtt.q1)),
            ("#q3?", &|exchange| ns(exchange.rtt.q3)),
            ("#max", &|exchange| ns(exchange.rtt.max)),
            ("#p99?", &|exchange| ns(exchange.rtt.p99)),
            ("#p99.9??", &|exchange| ns(exchange.rtt.p999)),
            ("#first??", &|exchange| ns(exchange.first_ns)),
            ("#n???", &|exchange| exchange.rtt.n.to_string()),
            ("#lost", &|exchange| exchange.lost.to_string()),
        ],
    );
    table.drop_empty_columns();
    page.out += &table.render(page.style);
    for exchange in &document.exchanges {
        put_anomalies(page, exchange);
    }
    let cells: Vec<CellResult> = document.exchanges.iter().map(cell).collect();
    let cells: Vec<&CellResult> = cells.iter().filter(|cell| cell.summary.n >= PLOT_FROM).collect();
    if let Some(figure) = spread::quantiles("Distribution", &cells) {
        page.out.push('\n');
        page.out += &text::render(&figure, page.style);
    }
    page.out.push('\n');
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

/// What a perfect link would not do.
fn put_anomalies(page: &mut TerminalPage, exchange: &StackRoundTrips) {
    let counts = occurred(&[
        (exchange.late, "late or again"),
        (exchange.corrupt, "broken"),
        (exchange.errors, "refused or not sent"),
    ]);
    if !counts.is_empty() {
        let text = format!("{} B: {}", exchange.frame_bytes, counts.join(", "));
        page.put(0, TextRole::Warn, &text);
    }
}

fn put_replay(page: &mut TerminalPage, rate: &ReplayRate) {
    let title = match rate.frames {
        1 => "One frame through plumb's stack".to_owned(),
        frames => format!("{frames} frames of {} through plumb's stack", rate.source),
    };
    page.put(0, TextRole::Bold, &title);
    let ns = |quantity| value::plain(Unit::Nanoseconds, quantity);
    let millions = rate.packets_per_second / 1e6;
    for line in [
        format!("{} packets in, {} out", rate.received, rate.sent),
        format!("{millions:.3} million packets a second, {} each", ns(rate.ns_per_packet)),
        format!("of which the memory device takes {} by itself", ns(rate.device_ns_per_packet)),
    ] {
        page.put(2, TextRole::Plain, &line);
    }
    page.out.push('\n');
}

fn put_services(page: &mut TerminalPage, services: &[ServiceCount]) {
    if services.is_empty() {
        return;
    }
    let count = |n: u64| if n == 0 { String::new() } else { n.to_string() };
    let mut table = TextTable::of_rows(
        services,
        &[
            ("service", &|service| service.name.clone()),
            ("#port", &|service| service.port.to_string()),
            ("#received", &|service| service.received.to_string()),
            ("#answered", &|service| service.answered.to_string()),
            ("#payload?", &|service| value::plain(Unit::Bytes, service.bytes as f64)),
            ("#to a group?", &|service| count(service.to_group)),
            ("#from a service?", &|service| count(service.from_service)),
            ("#failed?", &|service| count(service.failed)),
        ],
    );
    table.drop_empty_columns();
    page.out += &table.render(page.style);
    page.out.push('\n');
}

fn put_stream_services(page: &mut TerminalPage, services: &[StreamServiceCount]) {
    if services.is_empty() {
        return;
    }
    let count = |n: u64| if n == 0 { String::new() } else { n.to_string() };
    let bytes = |n: u64| value::plain(Unit::Bytes, n as f64);
    let mut table = TextTable::of_rows(
        services,
        &[
            ("TCP service", &|service| service.name.clone()),
            ("#port", &|service| service.port.to_string()),
            ("#connections", &|service| service.connections.to_string()),
            ("#received?", &|service| bytes(service.received_bytes)),
            ("#sent?", &|service| bytes(service.sent_bytes)),
            ("#requests??", &|service| count(service.requests)),
            ("#refused??", &|service| count(service.refused)),
            ("#failed??", &|service| count(service.failed)),
            ("#idle??", &|service| count(service.idle)),
        ],
    );
    table.drop_empty_columns();
    page.out += &table.render(page.style);
    page.out.push('\n');
}

/// What the connections of a document did, in words.
pub fn connection_lines(document: &StackDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    document.connections.iter().for_each(|connection| put_connection(&mut page, connection));
    page.out
}

/// A connection: what it moved, and how.
fn put_connection(page: &mut TerminalPage, connection: &StackConnection) {
    let (verb, preposition) =
        if connection.direction == "send" { ("Sent", "to") } else { ("Received", "from") };
    let bytes = value::plain(Unit::Bytes, connection.bytes as f64);
    let title =
        format!("{verb} {bytes} {preposition} {} by {}", connection.remote, connection.congestion);
    page.put(0, TextRole::Bold, &title);
    let ns = |quantity| value::optional(Unit::Nanoseconds, quantity);
    let rate = value::plain(Unit::NetworkRate, connection.bytes_per_second);
    let mut lines = vec![format!("{rate} over {}", span(connection.seconds))];
    if connection.setup_ns.is_some() {
        lines.push(format!(
            "opened in {}; round trip min {}, smoothed {} at the end",
            ns(connection.setup_ns),
            ns(connection.rtt_min_ns),
            ns(connection.srtt_ns)
        ));
    }
    lines.push(format!(
        "{} segments sent, {} received, at most {} B of payload",
        connection.segments_sent, connection.segments_received, connection.mss
    ));
    if let Some(response) = &connection.http {
        lines.push(format!("{}: status {}", response.url, response.status));
    }
    for line in &lines {
        page.put(2, TextRole::Plain, line);
    }
    let losses = occurred(&[
        (connection.retransmits, "retransmitted"),
        (connection.timeouts, "timeouts"),
        (connection.out_of_order, "received out of order"),
    ]);
    if !losses.is_empty() {
        page.put(2, TextRole::Warn, &losses.join(", "));
    }
}

/// A picture of the window of a connection that sent.
fn put_window(page: &mut TerminalPage, connection: &StackConnection) {
    let pictures = connection::figures(connection);
    if let Some(figure) = pictures.first().filter(|_| connection.direction == "send") {
        page.out.push('\n');
        page.out += &text::render(figure, page.style);
    }
    page.out.push('\n');
}

fn put_counts(page: &mut TerminalPage, title: &str, counts: &BTreeMap<String, u64>) {
    if counts.is_empty() {
        return;
    }
    page.put(0, TextRole::Bold, title);
    let widest = counts.keys().map(String::len).max().unwrap_or(0);
    for (name, count) in counts {
        page.out += &format!("  {name:<widest$}  {count}\n");
    }
}

fn end_reason(word: &str) -> &'static str {
    match word {
        "duration" => "Time was up",
        "interrupted" => "Interrupted",
        "silent" => "Given up",
        "refused" => "Refused",
        "failed" => "Failed",
        "device" => "The device failed",
        _ => "Done",
    }
}

fn span(seconds: f64) -> String {
    value::plain(Unit::Nanoseconds, seconds * 1e9)
}
