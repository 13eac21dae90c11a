//! The page of a measurement between two hosts: the answer, what would change it, and its course over time.

use plumb_analysis::document::{CellResult, RunDocument};
use plumb_base::units::{Unit, significant};
use plumb_result::net::{LoadSummary, NetDocument, NetHost, NetPhase, NetSummary};

use super::{element, escape, part, table, whole};
use crate::table::TextTable;
use crate::terminal::net_summary::{self, is_outage};
use crate::terminal::{TerminalStyle, format_bit_rate, net};
use crate::{figure, value};

/// The page of a stored measurement, with the run that holds its distributions.
pub fn net(document: &NetDocument, run: &RunDocument) -> String {
    let mut body = Vec::new();
    let mut figures = String::new();
    for figure in figure::net::figures(document) {
        figures += &element::figure(&figure);
    }
    let trips: Vec<&CellResult> =
        run.results.iter().filter(|cell| cell.response == "round_trip").collect();
    if let Some(figure) = figure::spread::quantiles("Round trips of all rounds", &trips) {
        figures += &element::figure(&figure);
    }
    if !figures.is_empty() {
        let figures = format!("<div class=\"figures\">{figures}</div>");
        body.push(part("time", "Over time, and as distributions", figures));
    }
    body.push(part("cpu", "What it cost both hosts", table(&costs(document), "CPU time")));
    body.push(part("hosts", "The two hosts", table(&hosts(document), "The two hosts")));
    let style = TerminalStyle { color: false, unicode: true, width: 120 };
    let phases = net::phases(document, style);
    let details = format!("<pre tabindex=\"0\">{}</pre>", escape(&phases));
    body.push(part("phases", "Every phase", super::details("Every phase in full", &details)));
    body.push(part("method", "How these numbers were made", METHOD.to_owned()));
    let title = format!("The network to {}", document.asked);
    let code = &document.here.program;
    let repeated = run.repeat_command().map_or_else(String::new, |command| {
        format!(" Repeat it with <code>{}</code>.", escape(&command))
    });
    let footer =
        format!("Made by plumb {} from run {}.{repeated}", escape(code), escape(&run.run.id));
    whole(code, &title, &head(document, run, &title), &body, &footer)
}

fn head(document: &NetDocument, run: &RunDocument, title: &str) -> String {
    let mut html = format!(
        "<header><p class=\"brand\">plumb<h1>{}</h1><p class=\"sub\">{} · {} · run {}",
        escape(title),
        escape(&net_summary::title(document)),
        escape(&run.run.created),
        escape(&run.run.id),
    );
    let nothing = NetSummary::default();
    let summary = document.summary.as_ref().unwrap_or(&nothing);
    let (outages, others): (Vec<&String>, Vec<&String>) =
        summary.warnings.iter().partition(|warning| is_outage(warning));
    for outage in outages {
        html += &format!("<p class=\"box bad\"><strong>{}</strong>", escape(outage));
    }
    for problem in &document.problems {
        html += &format!("<p class=\"box bad\"><strong>Cut short.</strong> {}", escape(problem));
    }
    if !others.is_empty() {
        html += "<div class=\"box warn\"><strong>Before the numbers</strong><ul>";
        for warning in others {
            html += &format!("<li>{}", escape(warning));
        }
        html += "</ul></div>";
    }
    html += "<div class=\"tiles\">";
    for [what, big, more] in summary.loads.iter().flat_map(tiles).take(4) {
        html += &format!(
            "<div class=\"tile\"><p class=\"what\">{}<p class=\"big\">{}<p class=\"ci\">{}</div>",
            escape(&what),
            escape(&big),
            escape(&more),
        );
    }
    html += "</div>";
    html + &table(&net_summary::table(summary), &net_summary::conditions(document, summary))
        + "</header>"
}

/// The rate of a load, and its round trips.
fn tiles(load: &LoadSummary) -> Vec<[String; 3]> {
    let name = net_summary::load_name(load);
    let mut tiles = Vec::new();
    if let Some(rate) = load.bytes_per_second {
        let limit = load.limited_by.as_ref().map(|limit| format!("limited by: {limit}"));
        let precision = value::precision(rate, load.bytes_per_second_ci95);
        let more = [Some(precision), limit].into_iter().flatten().filter(|text| !text.is_empty());
        let more = more.collect::<Vec<_>>().join(", ");
        tiles.push([format!("Rate {name}"), format_bit_rate(rate), more]);
    }
    let ns = |ns: f64| value::plain(Unit::Nanoseconds, ns);
    if let Some(requests) = load.requests_per_second {
        let big = format!("{} /s", significant(requests, 3));
        tiles.push([
            format!("Requests{}", name.trim_start_matches("requests")),
            big,
            String::new(),
        ]);
    }
    if let Some(trips) = load.loaded.or(load.idle) {
        let idle =
            load.idle.filter(|_| load.loaded.is_some() && load.requests_per_second.is_none());
        let idle = idle.map(|idle| format!("{} idle", ns(idle.p50_ns)));
        let p99 = trips.p99_ns.map(|p99| format!("p99 {}", ns(p99)));
        let more: Vec<String> = idle.into_iter().chain(p99).collect();
        let is_load = load.loaded.is_some() && load.requests_per_second.is_none();
        let under = if is_load { " under load" } else { "" };
        let what = format!("Round trip, {name}{under}");
        tiles.push([what, ns(trips.p50_ns), more.join(", ")]);
    }
    tiles
}

/// CPU time of each phase of both hosts, and what a gigabyte costs.
fn costs(document: &NetDocument) -> TextTable {
    let mut table = TextTable::with_heads(&[
        "phase",
        "#plumb here",
        "#plumb there",
        "#host here",
        "#host there",
        "#sending",
        "#receiving",
    ]);
    let cost = |ns: Option<f64>| {
        ns.map_or_else(|| "–".to_owned(), |ns| format!("{} s/GB", significant(ns, 3)))
    };
    for phase in &document.phases {
        let share = |seconds: Option<f64>| {
            let wall = phase.seconds.max(1e-9);
            seconds.map_or_else(
                || "–".to_owned(),
                |seconds| format!("{} CPUs", significant(seconds / wall, 2)),
            )
        };
        let [here, there] = [&phase.cpu_here, &phase.cpu_there].map(Option::as_ref);
        let costs = phase.flows.first().map(|flow| flow.costs);
        let costs = costs.or_else(|| phase.datagrams.first().map(|stream| stream.costs));
        table.push([
            name(phase),
            share(here.map(|cpu| cpu.process_seconds)),
            share(there.map(|cpu| cpu.process_seconds)),
            share(here.map(|cpu| cpu.host_busy_seconds)),
            share(there.map(|cpu| cpu.host_busy_seconds)),
            cost(costs.and_then(|costs| costs.sender_cpu_ns_per_byte)),
            cost(costs.and_then(|costs| costs.receiver_cpu_ns_per_byte)),
        ]);
    }
    table
}

fn name(phase: &NetPhase) -> String {
    format!("{}, round {}", phase.name, phase.round + 1)
}

/// A row a fact, a column a host.
fn hosts(document: &NetDocument) -> TextTable {
    let mut table = TextTable::with_heads(&["", "here", "there"]);
    let (here, there) = (&document.here, &document.there);
    let facts = |host: &NetHost| {
        let NetHost { name, processor, cpus, kernel, program, .. } = host;
        [name.clone(), processor.clone(), cpus.to_string(), kernel.clone(), program.clone()]
    };
    let names = ["name", "processor", "CPUs", "kernel", "plumb"];
    for ((name, here), there) in names.into_iter().zip(facts(here)).zip(facts(there)) {
        table.push([name.to_owned(), here, there]);
    }
    let mut settings: Vec<&String> = here.settings.keys().chain(there.settings.keys()).collect();
    settings.sort();
    settings.dedup();
    for setting in settings {
        let of = |host: &NetHost| {
            let value = host.settings.get(setting).filter(|value| !value.is_empty());
            value.cloned().unwrap_or_else(|| "–".to_owned())
        };
        table.push([setting.clone(), of(here), of(there)]);
    }
    table
}

const METHOD: &str = "<dl><dt>Rate<dd>What the receiver counted in the time that counts, after a warm-up. Of several \
     rounds the median of their means; its interval is over rounds.\
     <dt>Round trip<dd>There and back, of small datagrams at a fixed rate, by stamps of both kernels; 'idle' without \
     load, else beside it.\
     <dt>Loss<dd>Of datagrams, or beside TCP of the probes.\
     <dt>Limited by<dd>What held the sender back for at least half of the time, as its kernel counts it.\
     <dt>Outage<dd>A time in which no probe was answered and nothing was carried, longer than ten packets take at the \
     measured rate.</dl><p>The whole method: <code>plumb help method</code>.";
