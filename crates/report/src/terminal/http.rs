//! A page that was fetched over every version of HTTP, in a terminal.

use plumb_base::units::Unit;
use plumb_result::http::{HttpDocument, HttpFetchMode, HttpModeResult, PageLoad};

use super::summary::push_wrapped;
use super::{TerminalStyle, TextRole};
use crate::table::{TextTable, text};

/// The page.
pub fn render(document: &HttpDocument, style: TerminalStyle) -> String {
    let mut out = String::new();
    let visit = document.ways.iter().find_map(|way| way.visits.first());
    let size = visit.map_or_else(String::new, |visit| {
        format!(": {} objects, {} B", visit.objects, visit.bytes)
    });
    push_wrapped(&mut out, &format!("{}{size}", document.url), TextRole::Bold, 0, style);
    let mut table = TextTable::with_heads(&[
        "mode",
        "#whole page",
        "#p90?",
        "#ready??",
        "#HTML??",
        "#client CPU?",
        "#connections??",
    ]);
    for way in document.ways.iter().filter(|way| !way.visits.is_empty()) {
        let time = |share, of: fn(&PageLoad) -> u64| {
            let ns = way.quantile(share, of);
            ns.map_or("–".to_owned(), |ns| Unit::Nanoseconds.format(ns as f64, 3).to_string())
        };
        table.push([
            name(way),
            time(0.5, |visit| visit.total_ns),
            time(0.9, |visit| visit.total_ns),
            time(0.5, |visit| visit.connected_ns),
            time(0.5, |visit| visit.page_ns),
            time(0.5, |visit| visit.cpu_ns),
            way.visits[0].connections.to_string(),
        ]);
    }
    out += &text::render(&table, style);
    for way in &document.ways {
        if let Some(error) = &way.error {
            push_wrapped(&mut out, &format!("{}: {error}", name(way)), TextRole::Warn, 0, style);
        }
    }
    let visits = document.ways.iter().map(|way| way.visits.len()).max().unwrap_or(0);
    let verified = if document.is_verified { " Every byte was verified." } else { "" };
    let is_encrypted = document.ways.iter().any(|way| way.is_encrypted);
    let unchecked = if is_encrypted && !document.is_server_proven {
        " The server's certificate was not checked."
    } else {
        ""
    };
    let legend = format!(
        "Medians of {visits} page loads, from the first connection attempt to the last byte. Ready: the first \
         connection is established, TLS included. From {}.{verified}{unchecked}",
        document.address,
    );
    push_wrapped(&mut out, &legend, TextRole::Dim, 0, style);
    out
}

fn name(way: &HttpModeResult) -> String {
    let name = way.way.summary();
    let is_extra = way.is_encrypted && way.way != HttpFetchMode::Http3;
    if is_extra { format!("{name}, TLS 1.3") } else { name.to_owned() }
}
