//! A run as one self-contained page: no script, no request, light, dark and print.
//!
//! That a run is not to be trusted comes first, then the answer, then the figures, each with its data. Left
//! out: files; the page is returned as text. Closing tags that HTML makes optional are omitted,
//! for a thousand cells must stay under a megabyte.

use plumb_analysis::document::advise::ChattyDocument;
use plumb_analysis::document::explain::ExplainDocument;
use plumb_analysis::document::sim::SimDocument;
use plumb_analysis::document::stack::StackDocument;
use plumb_analysis::document::{RankTable, RunDocument};

use crate::figure::svg::PALETTE_CSS;
use crate::terminal::TerminalStyle;
use crate::{headline, name, section, verdict};

pub(crate) mod element;
mod net;
mod provenance;
mod results;

pub(crate) use element::escape;
use element::{details, table};
pub use net::net;

/// The report of a run.
pub fn report(document: &RunDocument) -> String {
    page(document, Vec::new())
}

/// The report of a run that was made to explain another: the latencies it explains come first.
pub fn explain(document: &ExplainDocument, measured: &RunDocument) -> String {
    let caption = format!("The latencies of run {}, explained", document.run.id);
    let body = table(&crate::terminal::explain::rungs(document), &caption);
    page(measured, vec![part("rungs", "The rungs explained", body)])
}

fn page(document: &RunDocument, first: Vec<PageSection>) -> String {
    let parts = [
        first,
        ladder(document),
        results::sections(document),
        ranks(document),
        claims(document),
        expectations(document),
    ];
    let tail = [missing(document), provenance::machine(document), provenance::method(document)];
    let body: Vec<PageSection> =
        parts.into_iter().flatten().chain(tail.into_iter().flatten()).collect();
    let title = headline::title(document);
    let repeated = document.repeat_command().map_or_else(String::new, |command| {
        format!(" Repeat it with <code>{}</code>.", escape(&command))
    });
    let footer = format!(
        "Made by plumb {} from run {}.{repeated}",
        escape(&document.run.code),
        escape(&document.run.id),
    );
    whole(&document.run.code, &title, &head(document, &title), &body, &footer)
}

/// A TCP connection as one page: its figures over time.
pub fn connection(document: &StackDocument, code: &str) -> String {
    let mut body = Vec::new();
    for connection in &document.connections {
        for figure in crate::figure::connection::figures(connection) {
            body.push(part(&figure.id, &figure.title, element::figure(&figure)));
        }
    }
    let style = TerminalStyle::plain(PAGE_COLUMNS);
    let title = "A TCP connection of plumb's stack";
    let head = format!(
        "<header><p class=\"brand\">plumb<h1>{title}</h1><pre>{}</pre></header>",
        escape(&crate::terminal::stack::connection_lines(document, style)),
    );
    whole(code, title, &head, &body, &format!("Made by plumb {}.", escape(code)))
}

/// Simulations as one page: tables, and the figures of each over time.
pub fn simulation(document: &SimDocument, code: &str) -> String {
    let mut body = Vec::new();
    for (number, run) in (1..).zip(&document.runs) {
        // A value of several settings names itself.
        let variable = |(name, value): (&String, &String)| {
            if value.contains('=') { value.clone() } else { format!("{name} = {value}") }
        };
        let variables: Vec<String> = run.variables.iter().map(variable).collect();
        let mut figures = String::from("<div class=\"figures\">");
        for mut figure in crate::figure::simulation::figures(run) {
            figure.id = format!("{}-{number}", figure.id);
            figures += &element::figure(&figure);
        }
        figures += "</div>";
        let title =
            if variables.is_empty() { "Over time".to_owned() } else { variables.join(", ") };
        body.push(part(&format!("run-{number}"), &title, figures));
    }
    let style = TerminalStyle::plain(PAGE_COLUMNS);
    let title = document.runs.first().map_or("", |run| run.title.as_str());
    let title = if title.is_empty() { document.file.as_str() } else { title };
    let head = format!(
        "<header><p class=\"brand\">plumb<h1>{}</h1><pre>{}</pre></header>",
        escape(title),
        escape(&crate::terminal::sim::tables(document, style)),
    );
    whole(code, title, &head, &body, &format!("Made by plumb {}.", escape(code)))
}

/// The turns of a capture's connections: a picture of each that waits.
pub fn chatty(document: &ChattyDocument, code: &str) -> String {
    let figures = document.connections.iter().filter_map(crate::figure::connection::waterfall);
    let body: Vec<_> = figures
        .map(|figure| part(&format!("at-{}", figure.id), &figure.title, element::figure(&figure)))
        .collect();
    let style = TerminalStyle::plain(PAGE_COLUMNS);
    let head = format!(
        "<header><p class=\"brand\">plumb<h1>{}</h1><pre>{}</pre></header>",
        escape(&document.file),
        escape(&crate::terminal::chatty::tables(document, style)),
    );
    whole(code, &document.file, &head, &body, &format!("Made by plumb {}.", escape(code)))
}

/// A whole page: its head, a list of its sections, the sections.
pub(crate) fn whole(
    code: &str,
    title: &str,
    head: &str,
    body: &[PageSection],
    footer: &str,
) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; img-src data:\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta name=\"generator\" content=\"plumb {}\"><title>{} – plumb</title>\
         <style>{PALETTE_CSS}{}</style></head><body>",
        escape(code),
        escape(title),
        STYLE.replace(['\n', '\r'], ""),
    );
    page += head;
    page += "<nav aria-label=\"Contents\"><ul>";
    for part in body {
        page += &format!("<li><a href=\"#{}\">{}</a>", part.id, escape(&part.title));
    }
    page += "</ul></nav><main>";
    for part in body {
        page += &format!(
            "<section id=\"{0}\" aria-labelledby=\"{0}-h\"><h2 id=\"{0}-h\">{1}</h2>{2}</section>",
            part.id,
            escape(&part.title),
            part.body
        );
    }
    page += &format!("</main><footer><p>{footer}</footer></body></html>\n");
    page
}

/// One section of the page.
#[derive(Debug)]
pub(crate) struct PageSection {
    id: String,
    title: String,
    body: String,
}

pub(crate) fn part(id: &str, title: &str, body: String) -> PageSection {
    PageSection { id: id.to_owned(), title: title.to_owned(), body }
}

fn head(document: &RunDocument, title: &str) -> String {
    let run = &document.run;
    let mut html = format!(
        "<header><p class=\"brand\">plumb<h1>{}</h1><p class=\"sub\">{}</p>",
        escape(title),
        escape(&provenance::subtitle(document)),
    );
    if let Some(sentence) = section::network_conditions(document) {
        html += &format!("<p class=\"box warn\">{}</p>", escape(&sentence));
    }
    let is_distrusted = !document.trust.trusted && document.trust.blocks > 0;
    let (class, word) = if is_distrusted { ("bad", "Warning") } else { ("good", "Conditions") };
    let trust = escape(&section::trust(&document.trust));
    let trust = format!("<p class=\"box {class}\"><strong>{word}.</strong> {trust}");
    if is_distrusted {
        html += &trust;
    }
    html += "<div class=\"tiles\">";
    for tile in headline::tiles(document) {
        html += &format!(
            "<div class=\"tile\"><p class=\"what\">{}<p class=\"big\">{}<p class=\"ci\">{}\
             <p class=\"where\">{}</div>",
            escape(&tile.label),
            escape(&tile.value),
            escape(&tile.interval),
            escape(&tile.conditions),
        );
    }
    html += "</div><ul class=\"answer\">";
    for sentence in headline::sentences(document) {
        html += &format!("<li>{}", escape(&sentence));
    }
    html += "</ul>";
    if run.status == "imported" {
        html += "<p class=\"box warn\"><strong>Another tool measured this.</strong> plumb shows what it printed.";
    } else if run.status != "complete" {
        html += &format!(
            "<p class=\"box warn\"><strong>This run is {}.</strong> Finish it with \
             <code>plumb run --resume {}</code>.",
            escape(&run.status),
            escape(&run.id)
        );
    }
    if !is_distrusted {
        html += &trust;
    }
    html += "</header>";
    html
}

fn ladder(document: &RunDocument) -> Vec<PageSection> {
    let Some(figure) = crate::figure::ladder::figure(&document.ladder) else { return Vec::new() };
    let mut body = element::figure(&figure);
    body +=
        &details("Where the time goes, rung by rung", &results::where_time_goes(&document.ladder));
    vec![part("ladder", "The ladder", body)]
}

fn ranks(document: &RunDocument) -> Vec<PageSection> {
    if document.ranks.is_empty() {
        return Vec::new();
    }
    let mut body = String::from(
        "<p>Mechanisms by their median. An equals sign marks a tie: the interval of the ratio to a \
         neighbour includes 1. Where a published order exists, its ranks stand beside those that \
         the same mechanisms take today.",
    );
    let mut ranks: Vec<&RankTable> = document.ranks.iter().collect();
    ranks.sort_by_key(|ranks| {
        (
            ranks.response.clone(),
            name::placement_rank(&ranks.placement),
            ranks.wake.clone(),
            ranks.size,
        )
    });
    body += "<div class=\"claims\">";
    for ranks in ranks.iter().filter(|ranks| ranks.published.is_some()) {
        body += &then_and_now(ranks);
    }
    body += "</div>";
    for group in ranks.chunk_by(|a, b| verdict::matrix_title(a) == verdict::matrix_title(b)) {
        let Some(first) = group.first() else { continue };
        let title = format!("Ranks at every size: {}", verdict::matrix_title(first));
        body += &details(&title, &table(&verdict::rank_matrix(group), &title));
    }
    vec![part("ranks", "Ranks, then and now", body)]
}

fn then_and_now(ranks: &RankTable) -> String {
    let Some(published) = &ranks.published else { return String::new() };
    let title = verdict::rank_title(ranks);
    let mut html = format!(
        "<article><h3>{}</h3><p>Then: {} <span class=\"dim\">({})</span><p>Now: {}\
         <ul class=\"verdicts\">",
        escape(&name::capitalize(&title)),
        escape(&published.order.join(", ")),
        escape(&published.source),
        escape(&verdict::order_today(ranks)),
    );
    for (verdict, text) in verdict::relations(ranks) {
        html += &format!("<li>{} {}", element::verdict(&verdict), escape(&text));
    }
    html += "</ul>";
    html += &details("Whole rank table", &table(&verdict::ranks(ranks), &title));
    html + "</article>"
}

fn claims(document: &RunDocument) -> Vec<PageSection> {
    if document.claims.is_empty() {
        return Vec::new();
    }
    let mut body = format!("<p>{}", escape(&verdict::tally(document)));
    for open in verdict::undecided_statements(document) {
        body += &format!("<p class=\"dim\">{}", escape(&open));
    }
    let mut cards = String::from("<div class=\"claims\">");
    for claim in &document.claims {
        cards += &format!(
            "<article>{}<h3>{}</h3><p>{}",
            element::verdict(&claim.verdict),
            escape(&claim.claim),
            escape(&claim.effect)
        );
        let needs = verdict::needs(claim);
        if !needs.is_empty() {
            cards += &format!("<p>{}", escape(&needs));
        }
        cards += &format!(
            "<p class=\"dim\">Published: {}</article>",
            escape(&verdict::published(claim))
        );
    }
    cards += "</div>";
    // Of a ladder they are beside the point.
    body += &if document.ladder.is_empty() { cards } else { details("The claims", &cards) };
    vec![part("claims", "Published claims, re-tested", body)]
}

/// Statements of our own, apart from what others have published.
fn expectations(document: &RunDocument) -> Vec<PageSection> {
    if document.expectations.is_empty() {
        return Vec::new();
    }
    let body = table(&verdict::expectations(&document.expectations), "Our expectations");
    vec![part("expectations", "Our expectations", body)]
}

fn missing(document: &RunDocument) -> Vec<PageSection> {
    if document.unavailable.is_empty() {
        return Vec::new();
    }
    let mut body = String::from("<p>A cell without numbers is a result too: here is why.<ul>");
    for (reason, groups) in section::missing_by_reason(&document.unavailable) {
        body += &format!("<li>{} ", escape(&reason));
        let words: Vec<String> = groups.iter().map(section::MissingCells::label).collect();
        body += &format!("<span class=\"dim\">({})</span>", escape(&words.join("; ")));
    }
    vec![part("missing", "Not measured", body + "</ul>")]
}

/// What fits beside the margins of a page at its full width.
const PAGE_COLUMNS: u16 = 104;

const STYLE: &str = include_str!("html/style.css");
