//! A page that was fetched over every version of HTTP, in a terminal.

use plumb_base::units::Unit;
use plumb_result::http::{HttpDocument, HttpFetchMode, HttpModeResult, PageLoad};

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::table::TextTable;

/// The page.
pub fn render(document: &HttpDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let visit = document.ways.iter().find_map(|way| way.visits.first());
    let size = visit.map_or_else(String::new, |visit| {
        format!(": {} objects, {} B", visit.objects, visit.bytes)
    });
    page.put(0, TextRole::Bold, &format!("{}{size}", document.url));
    let time = |way: &HttpModeResult, share, of: fn(&PageLoad) -> u64| {
        let ns = way.quantile(share, of);
        ns.map_or("–".to_owned(), |ns| Unit::Nanoseconds.format(ns as f64, 3).to_string())
    };
    let table = TextTable::of_rows(
        document.ways.iter().filter(|way| !way.visits.is_empty()),
        &[
            ("mode", &name),
            ("#whole page", &|way| time(way, 0.5, |visit| visit.total_ns)),
            ("#p90?", &|way| time(way, 0.9, |visit| visit.total_ns)),
            ("#ready??", &|way| time(way, 0.5, |visit| visit.connected_ns)),
            ("#HTML??", &|way| time(way, 0.5, |visit| visit.page_ns)),
            ("#client CPU?", &|way| time(way, 0.5, |visit| visit.cpu_ns)),
            ("#connections??", &|way| way.visits[0].connections.to_string()),
        ],
    );
    page.out += &table.render(style);
    for way in &document.ways {
        if let Some(error) = &way.error {
            page.put(0, TextRole::Warn, &format!("{}: {error}", name(way)));
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
    page.put(0, TextRole::Dim, &legend);
    page.out
}

fn name(way: &HttpModeResult) -> String {
    let name = way.way.summary();
    let is_extra = way.is_encrypted && way.way != HttpFetchMode::Http3;
    if is_extra { format!("{name}, TLS 1.3") } else { name.to_owned() }
}
