//! The turns of a capture's connections, in a terminal.

use plumb_analysis::document::advise::{ChattyConnection, ChattyDocument, ChattySaving};
use plumb_base::units::Unit;

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::figure::{connection, text};
use crate::table::TextTable;
use crate::value;

/// Connections of the table, at most.
const ROWS_MAX: usize = 20;

/// Sums, savings, connections, and the picture of the one with the most round trips.
pub fn render(document: &ChattyDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    page.out += &tables(document, style);
    let most = document.connections.iter().max_by_key(|connection| connection.round_trips);
    if let Some(figure) = most.and_then(connection::waterfall) {
        page.out.push('\n');
        page.out += &text::render(&figure, style);
        page.put(0, TextRole::Dim, &figure.note);
    }
    page.out
}

/// The same without the picture.
pub fn tables(document: &ChattyDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let sum = &document.sum;
    let many =
        |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let head = format!(
        "{}: {}; {} in {}; {} waiting for the peer, {} stalled by Nagle's algorithm; {}",
        document.file,
        many(sum.connections, "TCP connection"),
        many(sum.round_trips, "dependent round trip"),
        many(sum.turns, "turn"),
        time(sum.waiting_ns),
        time(sum.stalled_ns),
        many(sum.retransmissions, "retransmit"),
    );
    page.put(0, TextRole::Bold, &head);
    page.out.push('\n');
    let savings = TextTable::of_rows(
        &sum.savings,
        &[
            ("what", &|saving: &ChattySaving| described(saving, document)),
            ("#saves at most", &|saving| time(saving.saved_ns)),
            ("computed as?", &|saving| saving.computed.clone()),
        ],
    );
    if sum.savings.is_empty() {
        page.put(
            0,
            TextRole::Plain,
            "No connection has round trips and a known round-trip time: nothing to save is seen.",
        );
    } else {
        page.out += &savings.render(style);
        if document.connections.len() > 1 {
            let text = "Sums over connections; where these overlap in time, so do the savings.";
            page.put(0, TextRole::Dim, text);
        }
    }
    page.out.push('\n');
    page.out += &connections(document).render(style);
    let left_out = document.connections.len().saturating_sub(ROWS_MAX);
    if left_out > 0 {
        page.put(0, TextRole::Dim, &format!("{left_out} more connections with --json."));
    }
    for ignored in &document.ignored {
        let text = format!("{} packets: {}.", ignored.packets, ignored.reason);
        page.put(0, TextRole::Warn, &text);
    }
    for note in &document.notes {
        page.put(0, TextRole::Dim, note);
    }
    page.out
}

/// The connections with the most round trips.
fn connections(document: &ChattyDocument) -> TextTable {
    let mut shown: Vec<&ChattyConnection> = document.connections.iter().collect();
    shown.sort_by_key(|connection| std::cmp::Reverse(connection.round_trips));
    shown.truncate(ROWS_MAX);
    let rtt = |connection: &ChattyConnection| match (
        connection.client_rtt_ns,
        connection.server_rtt_ns,
    ) {
        (Some(client), Some(server)) => time(client.saturating_add(server)),
        (None, Some(server)) => format!("{} to the server", time(server)),
        (Some(client), None) => format!("{} to the client", time(client)),
        (None, None) => "–".to_owned(),
    };
    TextTable::of_rows(
        shown,
        &[
            ("client", &|connection: &ChattyConnection| {
                let guess = if connection.is_client_guessed { " (guessed)" } else { "" };
                format!("{}{guess}", connection.client)
            }),
            ("server", &|connection| connection.server.clone()),
            ("protocol??", &|connection| connection.protocol.clone().unwrap_or_default()),
            ("#round trips", &|connection| connection.round_trips.to_string()),
            ("#turns?", &|connection| connection.turns.to_string()),
            ("#lasted", &|connection| time(connection.duration_ns)),
            ("#waiting", &|connection| time(connection.waiting_ns)),
            ("#thinking?", &|connection| time(connection.thinking_ns)),
            ("#RTT", &rtt),
            ("captured at??", &|connection| connection.captured_at.clone()),
            ("#stalls?", &|connection| connection.stalls.to_string()),
            ("#retransmits??", &|connection| connection.retransmissions.to_string()),
            ("#missing???", &|connection| {
                value::plain(Unit::Bytes, connection.missing_bytes as f64)
            }),
        ],
    )
}

fn described(saving: &ChattySaving, document: &ChattyDocument) -> String {
    match saving.change.as_str() {
        "pipelining" => "pipelining all requests".to_owned(),
        "batching" => format!("batches of {} requests", document.batch),
        "moving-closer" => format!("moving to {} of RTT", time(document.near_rtt_ns)),
        "no-delay" => "TCP_NODELAY, or one write a request".to_owned(),
        other => other.to_owned(),
    }
}

fn time(ns: u64) -> String {
    value::plain(Unit::Nanoseconds, ns as f64)
}
