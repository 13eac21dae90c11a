//! Words that cannot be met: each gets its exit code, its reason and the nearest word that would do.

use crate::home::TestHome;

#[test]
fn an_unknown_experiment_names_its_neighbour() {
    let place = TestHome::new();
    place.assert_error(
        &["run", "latancy.local"],
        2,
        &["'latancy.local'", "did you mean 'latency.local'?"],
    );
    place.assert_error(&["ab", "tcp.optoins", "--factor=nodelay=on,off"], 2, &["'tcp.options'?"]);
    assert!(!place.store().exists(), "a request that is refused leaves no store behind");
}

#[test]
fn levels_that_do_not_exist_name_what_would_do() {
    let place = TestHome::new();
    let latency = |set: &'static str| vec!["run", "latency.local", "--set", set];
    place.assert_error(&latency("mechanism=pip"), 2, &["did you mean 'pipe'?"]);
    place.assert_error(&latency("mechansim=pipe"), 2, &["did you mean 'mechanism'?"]);
    place.assert_error(&latency("size=0"), 2, &["at least 1 byte"]);
    place.assert_error(&latency("size=1Gi"), 2, &["at most 64Mi"]);
    place.assert_error(&latency("size=64,lots"), 2, &["'lots'", "size"]);
    place.assert_error(&latency("nodelay=on"), 2, &["tcp.options"]);
    place.assert_error(&latency("mechanism"), 2, &["a factor, '='"]);
}

#[test]
fn a_size_beyond_a_mechanism_says_what_it_carries() {
    let place = TestHome::new();
    let words = ["run", "latency.local", "--set=mechanism=eventfd", "--set=size=64"];
    place.assert_error(&words, 2, &["exactly 8 bytes"]);
    let words = ["run", "latency.local", "--set=mechanism=shm-spin", "--set=placement=same-cpu"];
    place.assert_error(&words, 2, &["spin on one CPU"]);
}

#[test]
fn a_plan_at_fault_names_the_line() {
    let place = TestHome::new();
    place.file("a.toml", "title = \"x\"\n\n[limits]\nlanches_max = 3\n");
    place.assert_error(&["run", "a.toml"], 2, &["a.toml, line 4", "did you mean 'launches_max'?"]);
    place.file("b.toml", "[[experiment]]\nid = \"pipe.latency\"\n");
    place.assert_error(&["run", "b.toml"], 2, &["b.toml, line 2", "pipe.latency"]);
    place.file("c.toml", "[[experiment]\n");
    place.assert_error(&["run", "c.toml"], 2, &["c.toml, line 1", "not TOML"]);
    place.file("d.toml", [0xff, 0xfe, 0x00]);
    place.assert_error(&["run", "d.toml"], 2, &["cannot read the plan d.toml"]);
    place.assert_error(&["run", "absent.toml"], 2, &["cannot read the plan absent.toml"]);
}

#[test]
fn a_printed_plan_is_a_plan() {
    let place = TestHome::new();
    let printed = place.assert_success(&["run", "ipc", "--quick", "--plan", "--seed=5"]).stdout;
    place.file("ipc.toml", &printed);
    assert_eq!(place.assert_success(&["run", "ipc.toml", "--plan"]).stdout, printed);
}

#[test]
fn options_with_impossible_values_are_refused() {
    let place = TestHome::new();
    for words in [
        vec!["ladder", "--budget=0s"],
        vec!["ladder", "--budget=soon"],
        vec!["ladder", "--launches=0"],
        vec!["ladder", "--quick", "--paper"],
        vec!["compare", "a", "b", "--margin=0"],
        vec!["export", "--format=parquet"],
        vec!["frobnicate"],
        vec!["store", "path", "--json"],
        vec!["help", "method", "--json"],
        vec!["run"],
    ] {
        assert_eq!(place.run(&words).code, Some(2), "{words:?}");
    }
}

#[test]
fn a_comparison_has_two_sides() {
    let place = TestHome::new();
    for factor in ["wake=block", "wake=block,block", "wake=block,poll,spin"] {
        let words = ["ab", "latency.local", "--factor", factor];
        place.assert_error(&words, 2, &["two sides"]);
    }
    let words = ["ab", "latency.local", "--factor=wake=block,poll", "--set=wake=spin"];
    place.assert_error(&words, 2, &["set twice"]);
}

#[test]
fn files_of_other_tools_are_told_apart() {
    let place = TestHome::new();
    place.file("notes.txt", "nothing of the kind\n");
    place.assert_error(&["import", "sockperf", "notes.txt"], 2, &["notes.txt", "sockperf"]);
    place.assert_error(&["import", "iperf3", "absent.json"], 2, &["absent.json"]);
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures");
    let iperf = format!("{fixtures}/iperf3-tcp.json");
    place.assert_error(&["import", "sockperf", &iperf], 2, &["it looks like iperf3"]);
    place.assert_success(&["import", "iperf3", &iperf]);
    place.assert_error(&["rerun", "last"], 2, &["imported"]);
    place.assert_error(&["run", "--resume", "last"], 2, &["cannot be resumed"]);
}
