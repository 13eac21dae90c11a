//! With `--json` standard output is one document that matches its published schema.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::home::{ProgramOutput, TestHome, assert_valid};

/// The document that a command printed, which must match this schema.
pub fn valid(outcome: &ProgramOutput, shape: &str) -> Value {
    let document = outcome.json();
    assert_valid(&document, shape);
    document
}

#[test]
fn documents_without_a_run_match_their_schemas() {
    let place = TestHome::new();
    let list = valid(&place.assert_success("list --json"), "plumb.list/1");
    assert_eq!(list["mechanisms"].as_array().unwrap().len(), 34);
    assert!(list["experiments"].as_array().unwrap().iter().all(|e| e["claims"].is_object()));
    valid(&place.assert_success("doctor --json"), "plumb.doctor/1");
    let runs = valid(&place.assert_success("runs --json"), "plumb.runs/1");
    assert_eq!(runs["runs"].as_array().unwrap().len(), 0);
}

#[test]
fn a_run_in_virtual_time_has_its_launches_and_repeats_to_the_same_numbers() {
    let place = TestHome::new();
    let first =
        place.assert_success("run stack.nic --json --quick --launches=3 --seed=9 --set=card=4Ki");
    let first = valid(&first, "plumb.run/1");
    for result in first["results"].as_array().unwrap() {
        assert_eq!(result["summary"]["launches"], 3, "{result}");
        assert!(
            result["flags"]
                .as_array()
                .unwrap()
                .iter()
                .any(|flag| flag.as_str().unwrap().starts_with("simulated")),
            "{result}"
        );
    }
    let again = valid(&place.assert_success("rerun last --json"), "plumb.run/1");
    let summaries = |run: &Value| -> Vec<Value> {
        run["results"].as_array().unwrap().iter().map(|result| result["summary"].clone()).collect()
    };
    assert!(!summaries(&first).is_empty());
    assert_eq!(summaries(&again), summaries(&first));
}

#[test]
fn documents_of_a_run_match_their_schemas_and_agree() {
    let place = TestHome::new();
    let run = place.assert_success(
        "run latency.local --json --quick --launches=3 --seed=9 --set=mechanism=pipe,shm-spin \
         --set=size=64 --set=placement=same-cpu",
    );
    let run = valid(&run, "plumb.run/1");
    assert_eq!(run["run"]["status"], "complete");
    assert_eq!(run["run"]["seed"], 9);
    let result = &run["results"][0];
    assert_eq!(result["factors"]["mechanism"], "pipe");
    assert_eq!(result["factors"]["size"], 64);
    assert_eq!(result["summary"]["launches"], 3);
    let number = |name: &str| result["summary"][name].as_f64().unwrap();
    assert!(number("min") > 0.0 && number("min") <= number("median"));
    assert!(number("median") <= number("max"));
    assert!(result["cpu"]["local"].as_f64().unwrap() > 0.0);
    // A cell that cannot be measured is listed with the reason.
    assert_eq!(run["unavailable"][0]["factors"]["mechanism"], "shm-spin");
    assert!(run["unavailable"][0]["reason"].as_str().unwrap().contains("spin on one CPU"));

    let shown = valid(&place.assert_success("show last --json"), "plumb.run/1");
    assert_eq!(shown["results"], run["results"], "summaries are recomputed to the same numbers");
    valid(&place.assert_success("export last"), "plumb.run/1");
    valid(&place.assert_success("report last --json"), "plumb.run/1");
    let runs = valid(&place.assert_success("runs --json"), "plumb.runs/1");
    assert_eq!(runs["runs"][0]["id"], run["run"]["id"]);
    let check = valid(&place.assert_success("store check --json"), "plumb.check/1");
    assert_eq!(check["sound"], true);
    let compared = place.run("compare last last --json");
    let compare = valid(&compared, "plumb.compare/1");
    assert_eq!(compare["exit_code"].as_i64(), compared.code.map(i64::from));
    assert_ne!(compare["verdict"], "slower", "a run is not slower than itself");
}

#[test]
fn runs_of_one_machine_differ_in_no_setting() {
    let place = TestHome::new();
    for _ in 0..2 {
        place.assert_success("run call.kernel --set=call=getppid --launches=6 --quick");
    }
    let compared = place.run("compare last~1 last --json");
    let compare = valid(&compared, "plumb.compare/1");
    assert_eq!(compare["differences"].as_array().unwrap().len(), 0, "{compare}");
    // A cell has none whose canaries were all interrupted on one side.
    let rows = compare["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["machine"].as_f64().is_some_and(|by| by > 0.0)), "{compare}");
    let twice = place.run("compare last~1,last last");
    assert_eq!(twice.code, Some(2));
    assert!(twice.stderr.contains("is named twice"), "{}", twice.stderr);
}

#[test]
fn sets_of_runs_are_compared_over_runs() {
    let place = TestHome::new();
    for _ in 0..8 {
        place.assert_success("run call.kernel --set=call=getppid --launches=1 --quick");
    }
    let sides = "last~7,last~5,last~3,last~1 last~6,last~4,last~2,last";
    let compare = valid(&place.run(&format!("compare {sides} --json")), "plumb.compare/1");
    assert_eq!(compare["replicate"], "run");
    assert_eq!(compare["b"]["runs"].as_array().unwrap().len(), 4, "{compare}");
    assert!(compare["rows"][0]["ci95"].is_array(), "one launch a run is enough: {compare}");
}

#[test]
fn the_ladder_has_its_rungs_in_order() {
    let place = TestHome::new();
    // Enough launches for a median, however few round trips each is given the time for.
    let outcome = place.assert_success("--json ladder --launches=6 --set=mechanism=pipe,tcp4");
    let document = valid(&outcome, "plumb.run/1");
    let rungs = document["ladder"].as_array().unwrap();
    let at = |label: &str| rungs.iter().position(|rung| rung["label"].as_str() == Some(label));
    assert!(at("pipe").is_some() && at("tcp4").is_some(), "{document}\n{}", outcome.stderr);
    assert!(at("clock-gettime, vDSO") < at("pipe"));
}

#[test]
fn imported_runs_are_shown_exported_and_marked() {
    let place = TestHome::new();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/");
    for (tool, file) in [
        ("iperf3", "iperf3-tcp-bidir.json"),
        ("netperf", "netperf-several.txt"),
        ("netperf", "netperf-omni-keywords.txt"),
        ("sockperf", "sockperf-pingpong-tcp.txt"),
        ("sockperf", "sockperf-fulllog.csv"),
        ("qperf", "qperf-conf-v.txt"),
        ("flent", "flent-rrul-be.flent.gz"),
        ("lmbench", "lmbench-programs.txt"),
        ("lmbench", "lmbench-summary-v2.0-2002-i686.txt"),
    ] {
        let path = format!("{fixtures}{file}");
        let runs = valid(&place.assert_success(&["import", tool, &path, "--json"]), "plumb.runs/1");
        let id = runs["runs"][0]["id"].as_str().unwrap();
        let shown = valid(&place.assert_success(&["show", id, "--json"]), "plumb.run/1");
        let exported = valid(&place.assert_success(&["export", id]), "plumb.run/1");
        assert_eq!(shown, exported, "{file}");
        assert_eq!(shown["run"]["status"], "imported");
        assert_eq!(shown["claims"].as_array().unwrap().len(), 0, "{file} is judged");
        for result in shown["results"].as_array().unwrap() {
            let flags = result["flags"].as_array().unwrap();
            let is_marked = |flag: &Value| flag.as_str().unwrap().starts_with("imported: ");
            assert!(flags.iter().any(is_marked), "{file}: {flags:?}");
        }
        let metrics = place.assert_success(&["export", id, "--format", "prometheus"]).stdout;
        assert!(metrics.contains("origin=\"imported\"") && metrics.ends_with('\n'), "{metrics}");
    }
}

/// A flent file in which every text that plumb shows has control characters, mark-up and a line break.
fn hostile_flent_file() -> String {
    let hostile =
        |name: &str| format!("{name}\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\r<script>\n# owned");
    let mut file = serde_json::json!({
        "version": 4,
        "metadata": {
            "NAME": hostile("test"), "LOCAL_HOST": hostile("host"), "TITLE": hostile("title"),
            "NOTE": hostile("note"), "FLENT_VERSION": hostile("2"), "SERIES_META": {},
        },
        "raw_values": {},
    });
    for (name, unit) in [("a", "ms"), ("b", "ms"), ("c", "furlongs")] {
        file["metadata"]["SERIES_META"][hostile(name)] = serde_json::json!({ "UNITS": unit });
        file["raw_values"][hostile(name)] = serde_json::json!([{ "t": 1.0, "val": 2.0 }]);
    }
    file.to_string()
}

#[test]
fn text_of_others_is_printed_without_control_characters() {
    let place = TestHome::new();
    let file = place.file("hostile.flent", hostile_flent_file());
    let refused = place.file("refused.json", r#"{"start":{},"error":"no \u001b]0;owned\u0007"}"#);
    let said = |words: &[&str]| {
        let output = place.run(words);
        output.stdout + &output.stderr
    };
    for words in [
        &["import", "flent", &file][..],
        &["import", "iperf3", &refused],
        &["show", "last"],
        &["show", "last", "--json"],
        &["show", "last", "--ascii"],
        &["compare", "last", "last"],
        &["export", "last"],
        &["export", "last", "--format", "csv"],
        &["export", "last", "--format", "markdown"],
        &["export", "last", "--format", "prometheus"],
    ] {
        let text = said(words).replace("\r\n", "\n");
        assert!(text.contains("owned"), "{words:?}: {text}");
        let control = |c: &char| c.is_control() && *c != '\n';
        assert_eq!(text.chars().find(control), None, "{words:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("# owned")), "{words:?}: {text}");
    }
    let markdown = said(&["export", "last", "--format", "markdown"]);
    assert!(markdown.contains("&lt;script>") && !markdown.contains("<script"), "{markdown}");
    let colored = said(&["show", "last", "--color=always"]);
    assert!(colored.contains("\u{1b}[1m") && !colored.contains("\u{1b}]"), "{colored:?}");
}

#[test]
fn the_smallest_figure_of_another_tool_is_shown_as_a_number() {
    let place = TestHome::new();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/iperf3-tcp.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
    file["end"]["sum_received"]["bits_per_second"] = 1e-308.into();
    let file = place.file("tiny.json", file.to_string());
    place.assert_success(&["import", "iperf3", &file]);
    let shown = place.stdout_of("show last");
    assert!(shown.contains("1.00e-308") && !shown.contains("NaN"), "{shown}");
    let page = place.path("page.html");
    place.assert_success(&["report", "last", "-o", page.to_str().unwrap()]);
    assert!(!std::fs::read_to_string(page).unwrap().contains("NaN"));
}

#[test]
fn a_page_of_an_imported_run_does_not_advise_to_resume_it() {
    let place = TestHome::new();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/iperf3-tcp.json");
    place.assert_success(&["import", "iperf3", fixture]);
    let page = place.path("page.html");
    place.assert_success(&["report", "last", "-o", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Another tool measured") && !page.contains("--resume"), "{page}");
}

#[test]
fn a_run_repeated_from_the_store_measures_the_same_cells() {
    let place = TestHome::new();
    place.with_stored_run();
    let document = |line: &str| valid(&place.assert_success(line), "plumb.run/1");
    let first = document("show last --json");
    let second = document("rerun last --json");
    assert_ne!(first["run"]["id"], second["run"]["id"]);
    assert_eq!(first["run"]["plan"], second["run"]["plan"]);
    let cells = |run: &Value| -> Vec<String> {
        run["results"].as_array().unwrap().iter().map(|r| r["factors"].to_string()).collect()
    };
    assert_eq!(cells(&first), cells(&second));
}

#[test]
fn levels_are_compared_as_pairs_with_exit_code() {
    let place = TestHome::new();
    // An effect of three orders of magnitude, which no other test beside this one can hide.
    let outcome = place.run(
        "ab tcp.options --json --quick --launches=6 --factor=nodelay=on,off --set=pattern=write-write-read \
         --set=quickack=off --set=size=64 --set=buffer=default --set=mtu=loopback --set=placement=same-cpu",
    );
    let compare = valid(&outcome, "plumb.compare/1");
    assert_eq!(compare["pairing"], "paired");
    assert_eq!(compare["verdict"], "slower", "Nagle's rule waits for a delayed acknowledgement");
    assert_eq!(outcome.code, Some(1));
}

#[test]
fn two_levels_take_turns_block_by_block_in_processes_of_their_own() {
    let place = TestHome::new();
    place.run(
        "ab latency.local --quick --launches=2 --factor=wake=block,poll --set=mechanism=pipe --set=size=64 \
         --set=placement=same-cpu",
    );
    let exported = place.assert_success("export last --format jsonl").stdout;
    let mut blocks: Vec<Value> =
        exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    blocks.sort_by_key(|block| block["effort"]["started_ns"].as_u64().unwrap());
    let visits: Vec<(&str, u64)> = blocks
        .iter()
        .map(|block| (block["factors"]["wake"].as_str().unwrap(), block["pass"].as_u64().unwrap()))
        .collect();
    assert!(visits.len() >= 16, "two launches of four blocks a level: {visits:?}");
    for pair in visits.chunks(2) {
        assert!(pair[0].0 != pair[1].0 && pair[0].1 == pair[1].1, "one block of each: {visits:?}");
    }
    for four in visits.chunks(4) {
        assert_eq!(four[1].0, four[2].0, "A, B, B, A: {visits:?}");
    }
    let launches: BTreeSet<u64> =
        blocks.iter().map(|block| block["launch"].as_u64().unwrap()).collect();
    assert_eq!(launches.len(), 4, "each level has launches of its own");
}

#[test]
fn mechanisms_with_different_options_are_comparable() {
    let place = TestHome::new();
    let outcome = place.run(
        "ab latency.local --json --quick --launches=3 --factor=mechanism=pipe,tcp4 \
         --set=size=64 --set=placement=same-cpu",
    );
    let compare = valid(&outcome, "plumb.compare/1");
    assert_eq!(compare["rows"].as_array().unwrap().len(), 1, "{compare}");
}
