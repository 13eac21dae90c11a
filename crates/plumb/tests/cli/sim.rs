//! `plumb sim` and `plumb cc-report`: documents, sweeps, checks, and mistakes with their lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plumb_wire::capture::CaptureReader;
use plumb_wire::ipv4::Ipv4Packet;
use serde_json::Value;

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
        ("sim memory.toml --memory=1MiB --check", 2, "1 MiB is allowed"),
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

#[test]
fn simulations_beside_each_other_are_what_they_are_alone() {
    let place = TestHome::new();
    place.file("s.toml", format!("replications = 3\n{SCENARIO}"));
    let runs = |threads: &str| {
        let mut document =
            place.json_of(&["sim", "s.toml", "--digest", "--no-store", "--json", threads]);
        for run in document["runs"].as_array_mut().unwrap() {
            let run = run.as_object_mut().unwrap();
            run.remove("wall_seconds").unwrap();
            run.remove("threads").unwrap();
        }
        document
    };
    let alone = runs("--threads=1");
    assert_eq!(alone["runs"].as_array().unwrap().len(), 6);
    assert_eq!(runs("--threads=4"), alone);
    // The room for one is enough for all, one after the other.
    place.assert_success("sim s.toml --no-store --threads=4 --memory=13MiB");
}

#[test]
fn a_sweep_that_was_cut_goes_on_with_what_is_missing() {
    let place = TestHome::new();
    place.file("s.toml", SCENARIO);
    place.assert_success("sweep s.toml --results out");
    let results = || {
        let files = std::fs::read_dir(place.path("out")).unwrap();
        files.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let lost = results().remove(0);
    let whole = std::fs::read_to_string(&lost).unwrap();
    // Killed while it wrote: a result is there whole or not at all.
    std::fs::rename(&lost, lost.with_extension("1.part")).unwrap();
    let again = place.assert_success("sweep s.toml --results out");
    assert!(again.stderr.contains("1 of 2 simulations were there already"), "{}", again.stderr);
    assert!(lost.is_file());
    std::fs::write(&lost, &whole[..whole.len() / 2]).unwrap();
    place.assert_errors(&[("sweep s.toml --results out", 4, "is not the result of a simulation")]);
    std::fs::remove_file(&lost).unwrap();
    place.assert_success("sweep s.toml --results out");
}

#[test]
fn simulations_are_runs_that_are_shown_reported_and_compared() {
    let place = TestHome::new();
    place.file("s.toml", format!("replications = 6\n{SCENARIO}"));
    let simulated =
        valid(&place.assert_success("sim s.toml --set=buffer=1bdp --json"), "plumb.sim/1");
    let first = simulated["runs"].as_array().unwrap();
    assert_eq!(first.len(), 6);
    let second = place.json_of("sim s.toml --set=buffer=1bdp --seed=2 --json");
    let seeds = |runs: &Value| -> BTreeSet<u64> {
        runs.as_array().unwrap().iter().map(|run| run["seed"].as_u64().unwrap()).collect()
    };
    let all: BTreeSet<u64> = &seeds(&simulated["runs"]) | &seeds(&second["runs"]);
    assert_eq!(all.len(), 12, "each replication has a seed of its own");
    let shown = valid(&place.assert_success("show last~1 --json"), "plumb.run/1");
    let goodput = |shown: &Value| {
        let results = shown["results"].as_array().unwrap().iter();
        let mut found = results.filter(|result| result["response"] == "goodput");
        found.next().expect("a goodput")["summary"].clone()
    };
    let summary = goodput(&shown);
    assert_eq!(summary["launches"], 6);
    let mut rates: Vec<f64> =
        first.iter().map(|run| run["goodput"].as_f64().unwrap() / 8.0).collect();
    rates.sort_by(f64::total_cmp);
    let estimate = summary["median"].as_f64().unwrap();
    assert!(rates[0] <= estimate && estimate <= rates[5], "{summary}");
    let compared = place.run("compare last~1 last");
    assert!(compared.stdout.contains("goodput"), "{}", compared.stdout);
    place.assert_success("report last -o page.html");
    assert!(place.stdout_of("sim s.toml --no-store").contains("simulations"));
    assert_eq!(place.json_of("runs --json")["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn sources_of_one_name_are_stored_as_one() {
    let place = TestHome::new();
    let sources = "[[source]]\nname = \"calls\"\npattern = \"constant\"\nfrom = \"left1\"\nto = \"right1\"\nrate = \"300kbit\"\ncount = 3\n";
    place.file("s.toml", format!("{SCENARIO}{sources}"));
    place.assert_success("sim s.toml --set=buffer=1bdp");
    let shown = place.json_of("show last --json");
    let results = shown["results"].as_array().unwrap().iter();
    let goodputs: Vec<f64> = results
        .filter(|result| result["factors"]["source"] == "calls" && result["response"] == "goodput")
        .map(|result| result["summary"]["mean"].as_f64().unwrap())
        .collect();
    let [goodput] = goodputs[..] else { panic!("{shown}") };
    assert!((700_000.0..=900_000.0).contains(&(8.0 * goodput)), "{goodput}");
}

#[test]
fn a_limit_that_is_raised_is_told() {
    let place = TestHome::new();
    place.file("s.toml", SCENARIO);
    place.file("long.toml", SCENARIO.replace("delay=10ms", "delay=100ms"));
    let raised = place.assert_success("sim s.toml --check").stderr;
    assert!(
        raised.contains("router1 > router2 (and 1 others) has room for ten packets"),
        "{raised}"
    );
    assert_eq!(place.assert_success("sim long.toml --check").stderr, "");
}

#[test]
fn a_recording_has_every_packet_with_whole_checksums() {
    let place = TestHome::new();
    place.file("s.toml", SCENARIO);
    let run = place.json_of("sim s.toml --set=buffer=1bdp --pcap=seen.pcapng --no-store --json");
    let file = std::fs::read(place.path("seen.pcapng")).unwrap();
    let mut packets = 0;
    for packet in CaptureReader::new(&file).unwrap() {
        let packet = packet.unwrap();
        let ip = Ipv4Packet::parse(packet.bytes).expect("an IPv4 packet");
        assert!(ip.pseudo().verifies(ip.payload()), "packet {packets}");
        packets += 1;
    }
    assert_eq!(Some(packets), run["runs"][0]["packet_hops"].as_u64());
    place.assert_errors(&[
        ("sim s.toml --pcap=seen.pcapng", 2, "a recording is of one"),
        ("sim s.toml --set=buffer=1bdp --pcap=absent/seen.pcapng", 2, "cannot write"),
    ]);
}
