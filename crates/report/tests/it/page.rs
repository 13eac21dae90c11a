//! The HTML report: self-contained, complete, small.
//!
//! Left out: how it looks, which needs eyes; the pages are left in `target/tmp/` for them.

use crate::fixture;

fn kept(name: &str, html: String) -> String {
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/").to_owned() + name, &html).unwrap();
    html
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_page_asks_nothing_of_the_network_and_runs_no_script() {
    let pages = [
        kept("ladder.html", plumb_report::html::report(&fixture::ladder())),
        kept("tables.html", plumb_report::html::report(&fixture::tables(1_000))),
    ];
    for page in pages {
        let without_namespaces = page.replace("http://www.w3.org/2000/svg", "");
        for forbidden in
            ["http:", "https:", "//", "<script", "src=", "@import", "url(", "<link", " on"]
        {
            let found = match forbidden {
                " on" => ["onload=", "onclick=", "onerror="].iter().any(|h| page.contains(h)),
                // Comments and paths of the plan or machine may hold slashes; references may not.
                "//" => without_namespaces.contains("=\"//"),
                other => without_namespaces.contains(other),
            };
            assert!(!found, "{forbidden} on the page");
        }
        assert!(page.contains("default-src 'none'"));
    }
}

#[test]
fn every_figure_has_words_and_its_data() {
    // A ladder is one figure; its tables are folded away.
    for (page, least) in [
        (plumb_report::html::report(&fixture::ladder()), 1),
        (plumb_report::html::report(&fixture::tables(1_000)), 3),
    ] {
        let figures: Vec<&str> = page.split("<figure").skip(1).collect();
        assert!(figures.len() >= least, "{} figures", figures.len());
        assert!(least > 1 || figures.len() == 1, "{} figures", figures.len());
        for figure in figures {
            let figure = figure.split("</figure>").next().unwrap();
            assert_eq!(count(figure, "role=\"img\""), 1);
            assert_eq!(count(figure, "<figcaption>"), 1);
            assert!(figure.contains("<details><summary>Data of this figure</summary>"));
            assert!(count(figure, "<tr>") >= 2, "{figure}");
            assert!(!figure.contains("aria-label=\"\""), "{figure}");
        }
    }
}

#[test]
fn ids_are_unique_on_a_page() {
    let page = plumb_report::html::report(&fixture::tables(1_440));
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn a_thousand_cells_fit_in_a_megabyte() {
    let page = plumb_report::html::report(&fixture::tables(1_000));
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    let all = kept("all.html", plumb_report::html::report(&fixture::tables(1_440)));
    assert!(all.len() < 1_000_000, "{} bytes for 1,440 cells", all.len());
}

#[test]
fn an_untrusted_and_interrupted_run_says_so_before_any_figure() {
    let mut document = fixture::ladder();
    document.trust.trusted = false;
    document.run.status = "interrupted".to_owned();
    let page = plumb_report::html::report(&document);
    let (before, _) = page.split_once("<figure").unwrap();
    assert!(before.contains("not to be trusted"));
    assert!(before.contains("plumb run --resume ladder-20260102-7f3a"));
}

#[test]
fn a_document_without_results_is_still_a_page() {
    let page = plumb_report::html::report(&fixture::empty("nothing"));
    assert!(page.contains("0 results"));
    assert!(page.contains("How these numbers were made"));
}

#[test]
fn hostile_words_in_a_document_stay_words() {
    let mut document = fixture::ladder();
    let hostile = "</pre><script>alert(1)</script>\"'";
    document.run.plan = hostile.to_owned();
    document.run.id = hostile.to_owned();
    document.machine.insert(hostile.to_owned(), hostile.to_owned());
    document.results[0].flags.push(hostile.to_owned());
    document.unavailable[0].reason = hostile.to_owned();
    document.ladder[0].label = hostile.to_owned();
    document.ladder[0].sentence = hostile.to_owned();
    assert!(!plumb_report::html::report(&document).contains("<script"));
}

#[test]
fn the_skeleton_of_a_page_is_as_it_was() {
    let mut document = fixture::ladder();
    document.results.truncate(5);
    document.ladder =
        plumb_analysis::ladder::rungs(&plumb_experiments::list::registry(), &document);
    let page = plumb_report::html::report(&document);
    let skeleton: Vec<String> = page
        .split('<')
        .filter(|part| {
            ["h1", "h2", "h3", "section", "figure", "summary", "nav", "main", "header", "footer"]
                .iter()
                .any(|tag| part.starts_with(tag))
        })
        .map(|part| format!("<{part}"))
        .collect();
    insta::assert_snapshot!(skeleton.join("\n"));
}
