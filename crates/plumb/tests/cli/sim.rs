//! `plumb sim` and `plumb cc-report`: documents, sweeps, checks, and mistakes with their lines.

use std::path::{Path, PathBuf};

use crate::documents::valid;
use crate::home::TestHome;

const SCENARIO: &str = r#"title = "two at a bottleneck"
duration = "3s"
warmup = "1s"
[topology]
kind = "dumbbell"
pairs = 2
access = "rate=100mbit,delay=1ms"
bottleneck = "rate=5mbit,delay=10ms,limit=$buffer,loss=0.1%"
[[flow]]
from = "left*"
to = "right*"
[sweep]
buffer = ["0.5bdp", "1bdp"]
"#;

fn gallery() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_simulation_gives_the_same_document_every_time() {
    let place = TestHome::new();
    place.file("s.toml", SCENARIO);
    let run = |line: &str| valid(&place.assert_success(line), "plumb.sim/1");
    let first = run("sim s.toml --json --digest");
    let runs = first["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["variables"]["buffer"], "0.5bdp");
    assert_eq!(runs[0]["violations"].as_array().unwrap().len(), 0);
    assert!(runs[0]["goodput"].as_f64().unwrap() > 3e6, "{first}");
    let again = run("sim s.toml --json --digest");
    assert!(first["runs"][0]["trace_sha256"].is_string());
    for index in [0, 1] {
        assert_eq!(first["runs"][index]["trace_sha256"], again["runs"][index]["trace_sha256"]);
    }
    let other = run("sim s.toml --json --digest --seed=2 --set=buffer=1bdp");
    assert_eq!(other["runs"].as_array().unwrap().len(), 1);
    assert_ne!(other["runs"][0]["trace_sha256"], first["runs"][1]["trace_sha256"]);
}

#[test]
fn a_simulation_is_shown_in_tables() {
    let place = TestHome::new();
    place.file("s.toml", SCENARIO);
    let one = place.stdout_of("sim s.toml --set=buffer=1bdp");
    for words in [
        "two at a bottleneck",
        "left1",
        "router1 > router2",
        "Jain's fairness",
        "Checked: no packet",
    ] {
        assert!(one.contains(words), "{words}: {one}");
    }
    let sweep = place.stdout_of("sim s.toml");
    assert!(sweep.contains("0.5bdp") && sweep.contains("2 simulations"), "{sweep}");
}

#[test]
fn mistakes_in_a_scenario_name_their_lines() {
    let place = TestHome::new();
    place.file("s.toml", SCENARIO);
    place.file("rate.toml", SCENARIO.replace("rate=5mbit", "rate=0"));
    place.file("host.toml", SCENARIO.replace("left*", "links*"));
    place.file("memory.toml", SCENARIO.replace("rate=5mbit,delay=10ms", "rate=400gbit,delay=10s"));
    place.assert_errors(&[
        ("sim rate.toml", 2, "rate.toml, line 8"),
        ("sim host.toml", 2, "host.toml, line 10"),
        ("sim memory.toml --memory=1MiB", 2, "1 MiB is allowed"),
        ("sim absent.toml", 2, "cannot read 'absent.toml'"),
        ("sim s.toml --set=bufer=1bdp", 2, "'buffer'?"),
        ("sim s.toml --duration=1s", 2, "warm-up"),
        ("cc-report cubik", 2, "cubic"),
    ]);
}

#[test]
fn every_scenario_of_the_gallery_is_one() {
    let place = TestHome::new();
    let files = gallery();
    assert!(files.len() >= 6);
    for file in files {
        let page = place.stdout_of(&["sim", "--check", file.to_str().unwrap()]);
        assert!(page.contains("is a scenario"), "{page}");
    }
}

#[test]
fn parts_of_a_sweep_make_up_the_whole_and_are_not_run_twice() {
    let place = TestHome::new();
    place.file("s.toml", SCENARIO);
    let first = place.assert_success("sweep s.toml --results out --shard 1/2 --digest");
    assert!(first.stdout.is_empty() && first.stderr.contains("1 of 2"), "{}", first.stderr);
    let second = place.assert_success("sweep s.toml --results out --shard 2/2 --digest --json");
    let parts = valid(&second, "plumb.sim/1");
    let whole = valid(&place.assert_success("sim s.toml --json --digest"), "plumb.sim/1");
    for index in [0, 1] {
        let digest = &parts["runs"][index]["trace_sha256"];
        assert!(digest.is_string());
        assert_eq!(digest, &whole["runs"][index]["trace_sha256"]);
    }
    let again = place.assert_success("sweep s.toml --results out --digest");
    assert!(again.stderr.contains("2 of 2 simulations were there already"), "{}", again.stderr);
    place.file("out/a.txt", "not a result");
    place.assert_errors(&[("sweep s.toml --results out --shard 3/2", 2, "PART/COUNT")]);
}
