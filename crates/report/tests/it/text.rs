//! Terminal texts, Markdown and CSV: widths, character sets, snapshots.
//!
//! Left out: colours, except that there are none where they are not allowed.

use plumb_report::terminal::{TerminalStyle, ladder, summary};
use plumb_report::{csv, figure, markdown, section};

use crate::drawn::widest;
use crate::fixture;

fn small() -> plumb_analysis::document::RunDocument {
    let mut document = fixture::ladder();
    document.results.retain(|result| {
        let mechanism = result.factors.get("mechanism").and_then(|level| level.as_str());
        matches!(mechanism, None | Some("pipe" | "tcp4" | "shm-spin"))
    });
    document.ladder =
        plumb_analysis::ladder::rungs(&plumb_experiments::list::registry(), &document);
    document
}

#[test]
fn the_ladder_fits_every_width() {
    for width in [40, 60, 80, 100, 120, 200] {
        let text = ladder::render(&fixture::ladder(), TerminalStyle::plain(width));
        assert!(widest(&text) <= usize::from(width), "{width}: {}\n{text}", widest(&text));
        assert!(text.contains("tcp4"));
    }
}

#[test]
fn twenty_rungs_are_one_screen() {
    let mut document = fixture::ladder();
    document.ladder.truncate(20);
    let text = ladder::render(&document, TerminalStyle::plain(80));
    assert!(text.lines().count() < 24, "{text}");
    let boundaries: Vec<&str> =
        document.ladder.iter().map(|rung| rung.label.split(',').next().unwrap()).collect();
    assert!(boundaries.iter().all(|label| text.contains(label)), "{text}");
}

#[test]
fn a_ladder_that_is_not_to_be_trusted_says_so_first_and_names_noise_with_its_range() {
    let mut document = small();
    document.trust.flagged = 400;
    document.trust.trusted = false;
    let spin = document.ladder.iter_mut().find(|rung| rung.label == "shm-spin").unwrap();
    spin.ci95 = Some([-9e3, 330e3]);
    let text = ladder::render(&document, TerminalStyle::plain(80));
    assert!(text.starts_with("! Not to be trusted"), "{text}");
    assert!(text.contains("shm-spin other CPU, spinning, 0–330 µs"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn the_details_of_a_ladder_say_where_the_time_goes() {
    insta::assert_snapshot!(ladder::details(&small(), TerminalStyle::plain(80)));
}

#[test]
fn the_ladder_at_140_columns() {
    insta::assert_snapshot!(ladder::render(&small(), TerminalStyle::plain(140)));
}

#[test]
fn the_ladder_at_80_columns() {
    insta::assert_snapshot!(ladder::render(&small(), TerminalStyle::plain(80)));
}

#[test]
fn the_ladder_at_40_columns() {
    insta::assert_snapshot!(ladder::render(&small(), TerminalStyle::plain(40)));
}

#[test]
fn the_ladder_in_ascii() {
    let style = TerminalStyle { color: false, unicode: false, width: 80 };
    let text = ladder::render(&small(), style);
    assert!(text.is_ascii(), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn colour_changes_nothing_but_colour() {
    let style = TerminalStyle { color: true, ..TerminalStyle::plain(80) };
    let coloured = ladder::render(&small(), style);
    assert!(coloured.contains("\u{1b}["));
    let mut bare = String::new();
    for (index, part) in coloured.split("\u{1b}[").enumerate() {
        bare.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(&bare), trimmed(&ladder::render(&small(), TerminalStyle::plain(80))));
}

#[test]
fn a_run_at_80_columns() {
    insta::assert_snapshot!(summary::render(&small(), TerminalStyle::plain(80)));
}

#[test]
fn tables_and_figures_fit_forty_columns() {
    let document = fixture::tables(300);
    let style = TerminalStyle::plain(40);
    let mut texts = vec![
        summary::render(&document, style),
        summary::claims(&document, style),
        summary::distribution(&document.results[0], style),
    ];
    texts.extend(document.ranks.iter().map(|table| summary::ranks(table, style)));
    texts.push(summary::rank_tables(&document.ranks, style));
    for section in section::sections(&document.results) {
        let figures = figure::against_size::figures(&section.cells);
        texts.extend(figures.iter().map(|figure| figure::text::render(figure, style)));
    }
    for text in texts {
        assert!(!text.is_empty());
        assert!(widest(&text) <= 40, "{}\n{text}", widest(&text));
    }
}

#[test]
fn the_distribution_of_a_cell() {
    let text = summary::distribution(&fixture::tables(1).results[0], TerminalStyle::plain(80));
    insta::assert_snapshot!(text);
}

#[test]
fn claims_and_ranks_at_80_columns() {
    let document = fixture::tables(10);
    let style = TerminalStyle::plain(80);
    let text = summary::claims(&document, style) + &summary::ranks(&document.ranks[0], style);
    insta::assert_snapshot!(text);
}

#[test]
fn markdown_of_a_small_run() {
    insta::assert_snapshot!(markdown::run(&small()));
}

#[test]
fn csv_has_one_line_a_result_and_the_same_fields_on_each() {
    let document = fixture::tables(25);
    let text = csv::results(&document);
    let lines: Vec<&str> = text.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 26);
    // Commas inside quotes belong to a field: every second part between quotes.
    let fields =
        |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum();
    let expected: usize = fields(lines[0]);
    assert!(lines.iter().all(|line| fields(line) == expected), "{}", lines[1]);
    assert!(lines[0].contains("mechanism") && lines[0].ends_with("flags"));
}

#[test]
fn a_run_behind_a_link_says_so_before_anything_else() {
    let mut document = small();
    let link = "rate=56kbit,queue=drop-tail,limit=1bdp,delay=50ms;mtu=1006,loss=bernoulli 1%";
    document.notes.insert("link.outer".to_owned(), link.to_owned());
    let told = "Measured behind a link: rate=56kbit, limit=1bdp, delay=50ms; mtu=1006";
    for width in [40, 200] {
        let text = summary::render(&document, TerminalStyle::plain(width));
        assert!(text.starts_with("Measured behind a link:"), "{text}");
        assert!(widest(&text) <= usize::from(width), "{text}");
    }
    assert!(summary::render(&document, TerminalStyle::plain(200)).starts_with(told));
    let head = |page: &str| page.split_once("<nav").unwrap().0.contains(told);
    assert!(head(&plumb_report::html::report(&document)));
    assert!(markdown::run(&document).contains(told));
    document.notes.insert("link.outer.after".to_owned(), "delay=7ms".to_owned());
    let told = section::network_conditions(&document).unwrap();
    assert!(told.contains("It changed while this was measured, and was in the end: delay=7ms."));
    document.notes.remove("link.outer");
    assert!(!head(&plumb_report::html::report(&document)));
    assert_eq!(section::network_conditions(&document), None);
}

#[test]
fn a_run_against_another_host_says_which_and_what_that_is() {
    let mut document = small();
    for (name, value) in [
        ("host.name", "me@b"),
        ("host.address", "10.0.0.2"),
        ("host.cpu.model", "EPYC"),
        ("host.kernel.release", "6.1"),
        ("host.plumb", "0.1.0 (abc)"),
        ("host.round_trip_ns", "80000"),
    ] {
        document.notes.insert(name.to_owned(), value.to_owned());
    }
    let told = section::network_conditions(&document).unwrap();
    let expected = "Measured against host me@b at 10.0.0.2, with EPYC, kernel 6.1, plumb 0.1.0 (abc). A \
                    connection to it took 80.0 µs when this began.";
    assert_eq!(told, expected);
    document.notes.insert("host.lost".to_owned(), "'me@b' does not answer".to_owned());
    let told = section::network_conditions(&document).unwrap();
    assert!(told.contains("lost before the end: 'me@b' does not answer"), "{told}");
}
