//! Invalid requests: exit code 2, and an error that names the valid choice.

use crate::home::TestHome;

#[test]
fn invalid_requests_name_the_valid_choice() {
    let place = TestHome::new();
    place.assert_errors(&[
        ("run latancy.local", 2, "'latency.local'?"),
        ("ab tcp.optoins --factor=nodelay=on,off", 2, "'tcp.options'?"),
        ("run latency.local --set mechanism=pip", 2, "'pipe'?"),
        ("run latency.local --set mechansim=pipe", 2, "'mechanism'?"),
        ("run latency.local --set size=0", 2, "1 byte"),
        ("run latency.local --set size=1Gi", 2, "64Mi"),
        ("run latency.local --set size=64,lots", 2, "'lots'"),
        ("run latency.local --set nodelay=on", 2, "tcp.options"),
        ("run latency.local --set mechanism", 2, "'='"),
        ("run latency.local --set=mechanism=eventfd --set=size=64", 2, "8 bytes"),
        ("run latency.local --set=mechanism=shm-spin --set=placement=same-cpu", 2, "one CPU"),
        ("ab latency.local --factor wake=block", 2, "wake=block,spin"),
        ("ab latency.local --factor wake=block,block", 2, "wake=block,spin"),
        ("ab latency.local --factor wake=block,poll,spin", 2, "wake=block,spin"),
        ("ab latency.local --factor=wake=block,poll --set=wake=spin", 2, "--set wake"),
        ("help metod", 2, "'method'?"),
    ]);
    assert!(!place.store().exists(), "a rejected request creates no store");
}

#[test]
fn invalid_plan_names_the_line() {
    let place = TestHome::new();
    place.file("a.toml", "title = \"x\"\n\n[limits]\nlanches_max = 3\n");
    place.file("b.toml", "[[experiment]]\nid = \"pipe.latency\"\n");
    place.file("c.toml", "[[experiment]\n");
    place.file("d.toml", [0xff, 0xfe, 0x00]);
    place.assert_errors(&[
        ("run a.toml", 2, "a.toml, line 4"),
        ("run a.toml", 2, "'launches_max'?"),
        ("run b.toml", 2, "b.toml, line 2"),
        ("run c.toml", 2, "c.toml, line 1"),
        ("run d.toml", 2, "d.toml"),
        ("run absent.toml", 2, "absent.toml"),
    ]);
}

#[test]
fn a_printed_plan_is_a_plan() {
    let place = TestHome::new();
    let printed = place.stdout_of("run ipc --quick --plan --seed=5");
    place.file("ipc.toml", &printed);
    assert_eq!(place.stdout_of("run ipc.toml --plan"), printed);
}

#[test]
fn options_with_impossible_values_are_refused() {
    let place = TestHome::new();
    for line in [
        "ladder --budget=0s",
        "ladder --budget=soon",
        "ladder --launches=0",
        "ladder --quick --paper",
        "compare a b --margin=0",
        "export --format=parquet",
        "frobnicate",
        "store path --json",
        "help method --json",
        "run",
    ] {
        assert_eq!(place.run(line).code, Some(2), "{line}");
    }
}

#[test]
fn a_run_that_cannot_be_compared_says_so_before_it_measures() {
    let line = "run latency.local --quick --launches=3 --set=mechanism=pipe --set=size=8 --set=placement=same-cpu";
    let output = TestHome::new().assert_success(line);
    assert!(output.stderr.contains("two such runs cannot be compared"), "{}", output.stderr);
}

#[test]
fn imported_runs_cannot_be_measured_again() {
    let place = TestHome::new();
    place.file("notes.txt", "not a result\n");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/iperf3-tcp.json");
    place.assert_errors(&[
        ("import sockperf notes.txt", 2, "notes.txt"),
        ("import iperf3 absent.json", 2, "absent.json"),
        (&format!("import sockperf {fixture}"), 2, "plumb import iperf3"),
    ]);
    place.assert_success(&["import", "iperf3", fixture]);
    place.assert_errors(&[("rerun last", 2, "imported"), ("run --resume last", 2, "resumed")]);
}
