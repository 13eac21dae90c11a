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
        (
            "[[flow]]",
            "[[source]]\npattern = \"poisson\"\nrate = \"1mbit\"\nfloods = \"a\"",
            10,
            "no flow 'a'",
        ),
    ] {
        let error = replaced(from, to);
        assert!(
            error.contains(&format!("s.toml, line {line}: ")) && error.contains(words),
            "{to}: {error}"
        );
    }
}

#[test]
fn forged_syns_fill_a_listener_that_sends_no_cookies() {
    let served = |cookies: bool| {
        let flood = format!(
            "bytes = \"4000\"\nstart = \"1s\"\nname = \"requests\"\nsyn_cookies = {cookies}\n[[source]]\n\
             from = \"left1\"\nto = \"right*\"\npattern = \"poisson\"\nrate = \"56kbit\"\nfloods = \"requests\"\n"
        );
        let report = run(read(&format!("{BASE}{flood}")).expect("a scenario"));
        let counts = &report.sources[0].counts;
        assert!(counts.received > 300 && counts.received <= counts.sent, "{counts:?}");
        report.flows.iter().filter(|flow| flow.ended.is_some()).count()
    };
    assert_eq!((served(true), served(false)), (2, 0));
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
fn connections_and_sources_count_in_the_estimate() {
    let source =
        "[[source]]\npattern = \"poisson\"\nrate = \"1kbit\"\nfrom = \"left1\"\nto = \"right1\"\n";
    let state = |text: &str| read(text).expect("a scenario").memory_need().expect("one").state;
    let few = state(BASE);
    let many = state(&BASE.replace("[[flow]]", "[[flow]]\ncount = 1000"));
    assert!(many - few >= 1_998 * 8_192, "{few} and {many}");
    let [one, thousand] = [1, 1_000].map(|n| state(&format!("{BASE}{source}count = {n}\n")));
    assert_eq!(thousand - one, 999 * 1_024);
    let text = format!("{BASE}{source}count = 1000000\n");
    let error = Simulation::new(read(&text).expect("a scenario"), 512 << 20).expect_err("too much");
    assert!(error.to_string().contains("512 MiB is allowed"), "{error}");
    for (key, words) in [("count = 0", "1 to 1000000"), ("count = 1000001", "1 to 1000000")] {
        let error = read(&format!("{BASE}{source}{key}\n")).expect_err(key);
        assert!(error.contains("s.toml, line 15: ") && error.contains(words), "{error}");
    }
}

#[test]
fn very_many_sources_of_a_name_are_reported_as_one() {
    let sources = |count: u32| {
        let text = format!(
            "duration = \"2s\"\n[topology]\nkind = \"pair\"\nlink = \"rate=100mbit,delay=1ms,limit=9000packets\"\n\
             [[source]]\nname = \"a\"\npattern = \"poisson\"\nrate = \"10kbit\"\nsize = 100\n\
             from = \"left\"\nto = \"right\"\ncount = {count}\n\
             [[source]]\nname = \"b\"\npattern = \"constant\"\nrate = \"1mbit\"\nfrom = \"right\"\nto = \"left\"\n"
        );
        run(read(&text).expect("a scenario")).sources
    };
    assert_eq!(sources(1_023).len(), 1_024);
    let many = sources(2_000);
    let counts: Vec<(&str, u64)> = many.iter().map(|one| (one.name.as_str(), one.count)).collect();
    assert_eq!(counts, [("a", 2_000), ("b", 1)]);
    // 12.5 packets a second each, and one at the start.
    let sent = many[0].counts.sent;
    assert!((51_000..53_000).contains(&sent), "{sent}");
    let received = many[0].counts.received;
    assert!(received.abs_diff(sent) < 100, "{received} of {sent}");
    assert_eq!(many[0].delays.len(), many[0].counts.received);
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

#[test]
fn a_grid_of_a_billion_points_is_refused_with_its_line() {
    let values = (0..1_000).map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
    let grid = format!("{BASE}[sweep]\na = [{values}]\nb = [{values}]\nc = [{values}]\n");
    let error = sweep_points(&grid, "s.toml").expect_err("too many").to_string();
    assert!(error.contains("line 13") && error.contains("more than 1000000 points"), "{error}");
}

#[test]
fn an_unused_variable_is_refused_with_its_line() {
    let sweep = |names: &str| {
        let text = format!("{}[sweep]\n{names}", BASE.replace("rate=10mbit", "rate=$rate"));
        sweep_points(&text, "s.toml")
    };
    let rate = "rate = [\"1mbit\"]\n";
    assert_eq!(sweep(rate).expect("a sweep").len(), 1);
    for (name, fix) in [("rat", "write $rat where"), ("replications", "above all tables")] {
        let error = sweep(&format!("{rate}{name} = 2\n")).expect_err("unused").to_string();
        assert!(error.contains("line 12") && error.contains(fix), "{error}");
    }
}
