//! Scenarios as text: what is read, and what is refused with its line.

use plumb_link::text::NoFiles;
use plumb_sim::scenario::{Scenario, SweepPoint, sweep_points};
use plumb_sim::simulation::Simulation;

use crate::network::run;

const BASE: &str = r#"duration = "2s"
[topology]
kind = "dumbbell"
pairs = 2
access = "rate=1gbit,delay=1ms"
bottleneck = "rate=10mbit,delay=10ms"
[[flow]]
from = "left*"
to = "right*"
"#;

fn read(text: &str) -> Result<Scenario, String> {
    let points = sweep_points(text, "s.toml").map_err(|error| error.to_string())?;
    Scenario::from_toml(text, "s.toml", &points[0], &NoFiles).map_err(|error| error.to_string())
}

#[test]
fn a_scenario_is_read_and_runs() {
    let scenario = read(BASE).expect("a scenario");
    assert_eq!((scenario.flow_count(), scenario.network.nodes.len()), (2, 6));
    let report = run(scenario);
    assert!(report.goodput() > 9e6, "{}", report.goodput());
}

#[test]
fn mistakes_are_named_with_their_lines() {
    let replaced = |from: &str, to: &str| {
        assert!(BASE.contains(from), "{from}");
        read(&BASE.replace(from, to)).map(|_| ()).expect_err(to)
    };
    for (from, to, line, words) in [
        ("rate=10mbit", "rate=0", 6, "zero"),
        ("delay=10ms", "delay=-1ms", 6, "delay"),
        ("rate=10mbit,delay=10ms", "plain", 2, "takes no time"),
        ("dumbbell", "dumbel", 3, "fat-tree"),
        ("pairs = 2", "pairs = 0", 4, "between 1 and"),
        ("pairs = 2", "pears = 2", 4, "pairs"),
        ("left*", "lift*", 8, "there is no host"),
        ("left*\"\nto = \"right*", "left1\"\nto = \"left1", 9, "sends to itself"),
        ("right*", "router1", 9, "is a router"),
        ("duration = \"2s\"", "duration = \"0s\"", 1, "more than 0"),
        ("duration = \"2s\"", "duration = 2", 1, "unit"),
        ("duration = \"2s\"", "duration = \"2s\"\nwarmup = \"3s\"", 2, "warm-up"),
        ("to = \"right*\"", "to = \"right*\"\ncongestion = \"cubik\"", 10, "cubic"),
        ("to = \"right*\"", "to = \"right*\"\ncount = 0", 10, "1 to"),
        ("to = \"right*\"", "to = \"right*\"\nstop = \"0s\"", 10, "stop"),
        ("rate=10mbit", "rate=$rate", 6, "no variable"),
        ("bottleneck = \"rate=10mbit,delay=10ms\"", "", 2, "bottleneck"),
        ("[[flow]]", "[flow]", 7, "two brackets"),
        ("kind = ", "kind ", 3, "TOML"),
        ("delay=10ms", "delay=10ms,mtu=1400", 2, "mtu"),
    ] {
        let error = replaced(from, to);
        assert!(
            error.contains(&format!("s.toml, line {line}: ")) && error.contains(words),
            "{to}: {error}"
        );
    }
}

#[test]
fn without_a_way_there_is_no_scenario() {
    let text = r#"
[[link]]
between = ["a", "r"]
link = "rate=1mbit,delay=1ms"
[[link]]
between = ["b", "r"]
link = "rate=1mbit,delay=1ms"
[[link]]
between = ["c", "d"]
link = "rate=1mbit,delay=1ms"
[[source]]
pattern = "constant"
rate = "1mbit"
from = "a"
to = "c"
"#;
    let error = read(text).expect_err("no way");
    assert!(error.contains("no way from a to c"), "{error}");
    read(&text.replace("to = \"c\"", "to = \"b\"")).expect("a way");
}

#[test]
fn memory_that_is_not_allowed_is_refused_with_the_estimate() {
    let text = BASE.replace("rate=10mbit,delay=10ms", "rate=100gbit,delay=10s");
    let scenario = read(&text).expect("a scenario");
    let error = Simulation::new(scenario, 1 << 20).expect_err("too much").to_string();
    assert!(error.contains("1 MiB is allowed"), "{error}");
}

#[test]
fn a_sweep_has_every_combination_and_replication() {
    let sweep = "replications = 3\n".to_owned()
        + &BASE
            .replace("rate=10mbit", "rate=$rate")
            .replace("[[flow]]", "[[flow]]\ncount = \"$n\"")
        + "[sweep]\nrate = [\"1mbit\", \"2mbit\"]\nn = [1, 2, 4]\n";
    let points = sweep_points(&sweep, "s.toml").expect("a sweep");
    assert_eq!(points.len(), 18);
    let read = |point: &SweepPoint| {
        Scenario::from_toml(&sweep, "s.toml", point, &NoFiles).expect("a scenario")
    };
    let mut seeds: Vec<u64> = points.iter().map(|point| read(point).seed.0).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 3, "replications differ in their seeds");
    let mut counts: Vec<usize> = points.iter().map(|point| read(point).flow_count()).collect();
    counts.sort_unstable();
    counts.dedup();
    assert_eq!(counts, [2, 4, 8]);
    let many = sweep.replace("replications = 3", "replications = 1000000000");
    assert!(
        sweep_points(&many, "s.toml")
            .expect_err("too many")
            .to_string()
            .contains("more than 1000000")
    );
}
