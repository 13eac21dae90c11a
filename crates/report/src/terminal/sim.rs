//! A simulation in a terminal: connections, sources and links in tables, and whether the laws held.

use plumb_analysis::document::sim::{
    CongestionAnswer, CongestionDocument, SimDocument, SimFlow, SimLink, SimProcessor, SimRun,
    SimSource,
};
use plumb_base::units::{Unit, significant};

use super::format_bit_rate;
use super::{TerminalPage, TerminalStyle, TextRole};
use crate::figure::{simulation, text};
use crate::table::TextTable;
use crate::value;

/// Connections that have a line each; more are put together by their groups.
const FLOW_LINES: usize = 20;
/// Links that have a line: those used most.
const LINK_LINES: usize = 8;

/// The page; `whole` has a line for every connection and link.
pub fn render(document: &SimDocument, whole: bool, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    match document.runs.as_slice() {
        [run] => {
            put_run(&mut page, run, whole);
            put_goodput(&mut page, run);
            put_laws(&mut page, run);
        }
        runs => put_sweep(&mut page, &document.file, runs),
    }
    page.out
}

/// The tables alone, for a page that has the figures.
pub fn tables(document: &SimDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    match document.runs.as_slice() {
        [run] => put_run(&mut page, run, false),
        runs => put_sweep(&mut page, &document.file, runs),
    }
    page.out
}

/// Connections over time, where there are few enough to tell them apart.
fn put_goodput(page: &mut TerminalPage, run: &SimRun) {
    /// More lines than a terminal can show.
    const LINES_MAX: usize = 4;
    let sampled = run.flows.iter().filter(|flow| flow.series.len() >= 20).count();
    if (1..=LINES_MAX).contains(&sampled) && sampled == run.flows.len() {
        page.out += &text::render(&simulation::goodput(run), page.style);
        page.out.push('\n');
    }
}

fn put_run(page: &mut TerminalPage, run: &SimRun, whole: bool) {
    let title = if run.title.is_empty() { "Simulation" } else { &run.title };
    page.put(0, TextRole::Bold, title);
    let warmup = if run.warmup_seconds > 0.0 {
        format!(", figures from {} on", seconds(run.warmup_seconds))
    } else {
        String::new()
    };
    let speed = run.packet_hops as f64 / run.wall_seconds.max(1e-9);
    let threads = match run.threads {
        0 => String::new(),
        1 => " in one thread".to_owned(),
        several => format!(" in {several} threads"),
    };
    let text = format!(
        "{} simulated{warmup}; took {}{threads}, {} packet-hops at {} a second; seed {}",
        seconds(run.seconds),
        seconds(run.wall_seconds),
        count(run.packet_hops as f64),
        count(speed),
        run.seed
    );
    page.put(0, TextRole::Dim, &text);
    page.out.push('\n');
    put_flows(page, run, whole);
    put_sources(page, &run.sources);
    put_processors(page, run);
    put_links(page, &run.links, whole);
}

fn put_flows(page: &mut TerminalPage, run: &SimRun, whole: bool) {
    if run.flows.is_empty() {
        return;
    }
    let mut table = if whole || run.flows.len() <= FLOW_LINES {
        flow_table(&run.flows)
    } else {
        group_table(&run.flows)
    };
    table.drop_empty_columns();
    page.out += &table.render(page.style);
    for flow in run.flows.iter().filter(|flow| flow.error.is_some()).take(FLOW_LINES) {
        let error = flow.error.as_deref().unwrap_or_default();
        page.put(2, TextRole::Bad, &format!("{} > {}: {error}", flow.from, flow.to));
    }
    if let Some(fairness) = run.fairness {
        let text = format!(
            "{} connections, {} together, Jain's fairness {fairness:.3}",
            run.flows.len(),
            bit_rate(run.goodput)
        );
        page.put(2, TextRole::Plain, &text);
    }
    page.out.push('\n');
}

fn flow_table(flows: &[SimFlow]) -> TextTable {
    TextTable::of_rows(
        flows,
        &[
            ("flow", &|flow| flow.name.clone()),
            ("from?", &|flow| flow.from.clone()),
            ("to?", &|flow| flow.to.clone()),
            ("control?", &|flow| flow.congestion.clone()),
            ("#goodput", &|flow| bit_rate(flow.goodput)),
            ("#rtt", &|flow| milliseconds(flow.rtt_ms)),
            ("#rtt min??", &|flow| milliseconds(flow.rtt_ms_min)),
            ("#delay?", &|flow| milliseconds(flow.delay_ms_p50)),
            ("#retransmitted", &|flow| share(flow.retransmits, flow.segments)),
            ("#timeouts?", &|flow| flow.timeouts.to_string()),
            ("#marks??", &|flow| {
                if flow.marks > 0 { flow.marks.to_string() } else { String::new() }
            }),
            ("#done??", &|flow| flow.end_seconds.map_or_else(|| "–".to_owned(), seconds)),
        ],
    )
}

/// A line for each group of connections.
fn group_table(flows: &[SimFlow]) -> TextTable {
    let groups: Vec<&[SimFlow]> = flows.chunk_by(|a, b| a.name == b.name).collect();
    let sum = |group: &[SimFlow], of: fn(&SimFlow) -> u64| group.iter().map(of).sum::<u64>();
    let goodputs = |group: &&[SimFlow]| group.iter().map(|flow| flow.goodput).collect::<Vec<_>>();
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let rows: Vec<&&[SimFlow]> = groups.iter().collect();
    TextTable::of_rows(
        rows,
        &[
            ("flows", &|group: &&[SimFlow]| {
                group.first().map_or_else(String::new, |flow| flow.name.clone())
            }),
            ("#count", &|group| group.len().to_string()),
            ("control?", &|group| {
                group.first().map_or_else(String::new, |flow| flow.congestion.clone())
            }),
            ("#mean goodput", &|group| bit_rate(mean(goodputs(group)))),
            ("#least?", &|group| {
                bit_rate(goodputs(group).into_iter().fold(f64::INFINITY, f64::min))
            }),
            ("#most?", &|group| bit_rate(goodputs(group).into_iter().fold(0.0, f64::max))),
            ("#rtt", &|group| {
                let rtts: Vec<f64> = group.iter().filter_map(|flow| flow.rtt_ms).collect();
                milliseconds((!rtts.is_empty()).then(|| mean(rtts)))
            }),
            ("#retransmitted", &|group| {
                share(sum(group, |flow| flow.retransmits), sum(group, |flow| flow.segments))
            }),
            ("#timeouts??", &|group| sum(group, |flow| flow.timeouts).to_string()),
            ("#done??", &|group| {
                let done = group.iter().filter(|flow| flow.end_seconds.is_some()).count();
                if done > 0 { done.to_string() } else { "–".to_owned() }
            }),
        ],
    )
}

fn put_sources(page: &mut TerminalPage, sources: &[SimSource]) {
    if sources.is_empty() {
        return;
    }
    let table = TextTable::of_rows(
        &sources[..sources.len().min(FLOW_LINES)],
        &[
            ("source", &|source| match source.count {
                0 | 1 => source.name.clone(),
                count => format!("{} × {count}", source.name),
            }),
            ("from", &|source| source.from.clone()),
            ("to", &|source| source.to.clone()),
            ("#sent", &|source| bit_rate(source.sent)),
            ("#received", &|source| bit_rate(source.received)),
            ("#delay", &|source| milliseconds(Some(source.delay_ms_p50))),
            ("#p99?", &|source| milliseconds(Some(source.delay_ms_p99))),
            ("#max??", &|source| milliseconds(Some(source.delay_ms_max))),
        ],
    );
    page.out += &table.render(page.style);
    put_more(page, sources.len(), FLOW_LINES, "sources");
    page.out.push('\n');
}

fn put_processors(page: &mut TerminalPage, run: &SimRun) {
    if run.processors.is_empty() {
        return;
    }
    let table = TextTable::of_rows(
        &run.processors[..run.processors.len().min(FLOW_LINES)],
        &[
            ("processor", &|processor: &SimProcessor| processor.host.clone()),
            ("#busy", &|processor| format!("{:.1} %", processor.busy * 100.0)),
            ("#interrupts?", &|processor| processor.interrupts.to_string()),
            ("#received??", &|processor| processor.received.to_string()),
            ("#sent??", &|processor| processor.sent.to_string()),
            ("#ring full", &|processor| processor.dropped.to_string()),
        ],
    );
    page.out += &table.render(page.style);
    put_more(page, run.processors.len(), FLOW_LINES, "processors");
    page.out.push('\n');
}

fn put_links(page: &mut TerminalPage, links: &[SimLink], whole: bool) {
    let mut used: Vec<&SimLink> = links.iter().collect();
    if !whole && links.len() > LINK_LINES {
        let key = |link: &&SimLink| (link.utilisation.unwrap_or(0.0), link.loss);
        used.sort_by(|a, b| key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal));
        used.truncate(LINK_LINES);
    }
    let shown = used.len();
    let mut table = TextTable::of_rows(
        used,
        &[
            ("link", &|link: &SimLink| link.name.clone()),
            ("#used", &|link| {
                link.utilisation
                    .map_or_else(|| "–".to_owned(), |share| format!("{:.2} %", share * 100.0))
            }),
            ("#lost", &|link| share(link.discarded, link.packets_in)),
            ("#marked??", &|link| {
                if link.marked > 0 { link.marked.to_string() } else { String::new() }
            }),
            ("#queue", &|link| significant(link.queue_mean, 3)),
            ("#max?", &|link| link.queue_max.to_string()),
            ("#waited?", &|link| milliseconds(Some(link.wait_ms_p50))),
            ("#p99??", &|link| milliseconds(Some(link.wait_ms_p99))),
            ("#packets??", &|link| link.packets_out.to_string()),
        ],
    );
    table.drop_empty_columns();
    page.out += &table.render(page.style);
    put_more(page, links.len(), shown, "links, used less; --all shows them");
    page.out.push('\n');
}

fn put_more(page: &mut TerminalPage, all: usize, shown: usize, what: &str) {
    if all > shown {
        page.put(2, TextRole::Dim, &format!("and {} more {what}", all - shown));
    }
}

fn put_laws(page: &mut TerminalPage, run: &SimRun) {
    if run.misdirected > 0 {
        page.put(0, TextRole::Bad, &format!("{} packets had no route.", run.misdirected));
    }
    for violation in &run.violations {
        page.put(0, TextRole::Bad, &format!("plumb has a bug: {violation}"));
    }
    if run.violations.is_empty() {
        let text = "Checked: no packet or byte lost or made, Little's law at every queue, none earlier than transmission and propagation.";
        page.put(0, TextRole::Dim, text);
    }
    if let Some(sha256) = &run.trace_sha256 {
        page.put(0, TextRole::Plain, &format!("Trace: SHA-256 {sha256}"));
    }
}

/// A line for each point of a sweep.
fn put_sweep(page: &mut TerminalPage, file: &str, runs: &[SimRun]) {
    page.put(0, TextRole::Bold, &format!("{file}: {} simulations", runs.len()));
    let names = runs.first().map(|run| run.variables.keys().cloned());
    let has_replications = runs.iter().any(|run| run.replication > 0);
    let mut heads: Vec<String> = names.into_iter().flatten().collect();
    if has_replications {
        heads.push("#replication?".to_owned());
    }
    heads.extend(
        [
            "#goodput",
            "#fairness??",
            "#rtt?",
            "#retransmitted?",
            "#used",
            "#lost?",
            "#packets queued??",
        ]
        .map(str::to_owned),
    );
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = TextTable::with_heads(&heads);
    for run in runs {
        let sum = |of: fn(&SimFlow) -> u64| run.flows.iter().map(of).sum::<u64>();
        let rtts: Vec<f64> = run.flows.iter().filter_map(|flow| flow.rtt_ms).collect();
        let key = |link: &&SimLink| link.utilisation.unwrap_or(0.0);
        let used = run.links.iter().max_by(|a, b| key(a).total_cmp(&key(b)));
        let mut row: Vec<String> = run.variables.values().cloned().collect();
        if has_replications {
            row.push(run.replication.to_string());
        }
        row.extend([
            bit_rate(run.goodput),
            run.fairness.map_or_else(|| "–".to_owned(), |fairness| format!("{fairness:.3}")),
            milliseconds((!rtts.is_empty()).then(|| rtts.iter().sum::<f64>() / rtts.len() as f64)),
            share(sum(|flow| flow.retransmits), sum(|flow| flow.segments)),
            used.map_or_else(|| "–".to_owned(), |link| format!("{:.2} %", key(&link) * 100.0)),
            used.map_or_else(|| "–".to_owned(), |link| share(link.discarded, link.packets_in)),
            used.map_or_else(|| "–".to_owned(), |link| significant(link.queue_mean, 3)),
        ]);
        table.push(row);
    }
    table.drop_empty_columns();
    page.out += &table.render(page.style);
    page.put(
        2,
        TextRole::Dim,
        "used, lost and packets queued, on average, are of the link used most",
    );
    for run in runs {
        for violation in &run.violations {
            page.put(
                0,
                TextRole::Bad,
                &format!("plumb has a bug: {violation} (seed {})", run.seed),
            );
        }
    }
}

/// What is known about a congestion control.
pub fn congestion(document: &CongestionDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let CongestionDocument { congestion, standards, findings, .. } = document;
    page.put(0, TextRole::Bold, &format!("The questions of RFC 9743 about {congestion}"));
    let text = format!(
        "simulated beside {} in the same place; took {}; seed {}",
        standards.join(" and "),
        seconds(document.wall_seconds),
        document.seed
    );
    page.put(0, TextRole::Dim, &text);
    page.out.push('\n');
    let heads = ["§", "topic?", "measure", "better??"].map(str::to_owned);
    let numbers = std::iter::once(congestion).chain(standards).map(|name| format!("#{name}"));
    let heads: Vec<String> = heads.into_iter().chain(numbers).chain([String::new()]).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = TextTable::with_heads(&heads);
    for finding in findings {
        let CongestionAnswer { section, topic, measure, better, value, .. } = finding;
        let number = |value: &f64| match finding.unit.as_str() {
            "" => significant(*value, 3),
            unit => format!("{} {unit}", significant(*value, 3)),
        };
        let names = [section, topic, measure, better].map(Clone::clone).into_iter();
        let numbers = std::iter::once(value).chain(&finding.standards).map(number);
        let mark = if finding.look { "look" } else { "" };
        table.push(names.chain(numbers).chain([mark.to_owned()]));
    }
    table.drop_empty_columns();
    page.out += &table.render(page.style);
    page.out.push('\n');
    let looks = findings.iter().filter(|finding| finding.look).count();
    let text = format!(
        "{looks} of {} are worse by a quarter than with each of the others (look). The RFC sets no thresholds.",
        findings.len()
    );
    page.put(0, TextRole::Plain, &text);
    let unanswered: Vec<String> =
        document.unanswered.iter().map(|(section, why)| format!("{section} {why}")).collect();
    page.put(0, TextRole::Dim, &format!("Not answered: {}.", unanswered.join("; ")));
    page.out
}

fn bit_rate(bits: f64) -> String {
    format_bit_rate(bits / 8.0)
}

fn milliseconds(ms: Option<f64>) -> String {
    value::optional(Unit::Nanoseconds, ms.map(|ms| ms * 1e6))
}

fn seconds(seconds: f64) -> String {
    value::plain(Unit::Nanoseconds, seconds * 1e9)
}

/// A share that may be very small.
fn share(part: u64, whole: u64) -> String {
    if part == 0 {
        return "0".to_owned();
    }
    let percent = part as f64 * 100.0 / whole.max(1) as f64;
    if percent < 0.01 {
        format!("{} of {}", part, count(whole as f64))
    } else {
        format!("{} %", significant(percent, 3))
    }
}

fn count(number: f64) -> String {
    match number {
        1e9.. => format!("{} billion", significant(number / 1e9, 3)),
        1e6.. => format!("{} million", significant(number / 1e6, 3)),
        1e4.. => format!("{} thousand", significant(number / 1e3, 3)),
        _ => format!("{number:.0}"),
    }
}
