//! The page of `plumb net --http` for people.

use plumb_analysis::document::http::{HttpDocument, HttpModeResult, HttpPageLoad};
use plumb_base::units::Unit;
use plumb_interop::http::client::HttpFetchMode;
use plumb_report::table::{TextTable, text};
use plumb_report::terminal::TextRole;

use crate::cli::output::CliOutput;

/// The page for people.
pub fn render(report: &HttpDocument, output: &CliOutput) -> String {
    let style = output.style;
    let visit = report.ways.iter().find_map(|way| way.visits.first());
    let size = visit.map_or_else(String::new, |visit| {
        format!(": {} objects, {} B", visit.objects, visit.bytes)
    });
    let mut out = put(output, TextRole::Bold, &format!("{}{size}", report.url));
    let mut table = TextTable::with_heads(&[
        "mode",
        "#whole page",
        "#p90?",
        "#ready??",
        "#HTML??",
        "#client CPU?",
        "#connections??",
    ]);
    for way in report.ways.iter().filter(|way| !way.visits.is_empty()) {
        let time = |share, of: fn(&HttpPageLoad) -> u64| {
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
    let visits = report.ways.iter().map(|way| way.visits.len()).max().unwrap_or(0);
    out += &text::render(&table, style);
    for way in &report.ways {
        if let Some(error) = &way.error {
            out += &put(output, TextRole::Warn, &format!("{}: {error}", name(way)));
        }
    }
    out += &put(
        output,
        TextRole::Dim,
        &format!(
            "Medians of {visits} page loads, from the first connection attempt to the last byte. Ready: the first \
         connection is established, TLS included. From {}.{}{}",
            report.address,
            if report.is_verified { " Every byte was verified." } else { "" },
            match (report.ways.iter().any(|way| way.is_encrypted), report.is_server_proven) {
                (true, false) => " The server's certificate was not checked.",
                _ => "",
            },
        ),
    );
    out
}

fn name(way: &HttpModeResult) -> String {
    let name = HttpFetchMode::from_name(&way.way).map_or(way.way.as_str(), |way| way.summary());
    let is_extra = way.is_encrypted && way.way != HttpFetchMode::Http3.name();
    if is_extra { format!("{name}, TLS 1.3") } else { name.to_owned() }
}

fn put(output: &CliOutput, ink: TextRole, text: &str) -> String {
    let style = output.style;
    let lines = style.wrap(text, 0).into_iter();
    lines.map(|line| style.paint(ink, &style.to_charset(&line)) + "\n").collect()
}
