//! The ladder of a run whose truth is known.

use crate::list::registry;
use plumb_analysis::document::RunDocument;
use plumb_analysis::ladder::rungs;

use plumb_store::record::Factors;

use plumb_analysis::build::build;
use plumb_analysis::fixture::{SyntheticRun, local};

fn document() -> RunDocument {
    let mut synthetic = SyntheticRun::new(1);
    let call = |call: &str, via: &str| Factors::default().with("call", call).with("via", via);
    synthetic.measure("latency.local", "latency", local("tcp4", "same-cache", 64), 20_000.0);
    synthetic.measure("latency.local", "latency", local("tcp4", "same-cpu", 64), 4_000.0);
    synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 64), 1_000.0);
    synthetic.measure("call.kernel", "call", call("getpid", "syscall"), 100.0);
    synthetic.measure("call.kernel", "call", call("clock-gettime", "vdso"), 20.0);
    synthetic.data.run.title = "ladder".to_owned();
    build(&registry(), &synthetic.data)
}

#[test]
fn rungs_climb_from_the_cheapest_boundary_and_keep_placements_together() {
    let document = document();
    let order: Vec<(&str, Option<&str>)> = document
        .ladder
        .iter()
        .map(|rung| (rung.label.as_str(), rung.placement.as_deref()))
        .collect();
    assert_eq!(
        order,
        [
            ("clock-gettime, vDSO", None),
            ("getpid, system call", None),
            ("pipe", Some("same-cpu")),
            ("tcp4", Some("same-cpu")),
            ("tcp4", Some("same-cache")),
        ]
    );
    assert!((document.ladder[2].calls.unwrap() - 10.0).abs() < 0.2);
}

#[test]
fn cpu_times_are_of_one_crossing_and_the_sentence_says_who_ran() {
    // The fixture charges a quarter of the round trip here and a fifth to the peer.
    let rung = &document().ladder[4];
    assert!((rung.cpu_local.unwrap() / 5_000.0 - 1.0).abs() < 0.02, "{rung:?}");
    assert!((rung.idle_share.unwrap() - 0.55).abs() < 0.01);
    assert_eq!(
        rung.sentence,
        "55% an idle CPU waking up (75% in the kernel), 200 empty calls, 5.0 × one CPU."
    );
}

#[test]
fn sides_that_run_at_once_are_told_so() {
    let mut document = document();
    let result = &mut document.results[0];
    result.cpu.peer = result.cpu.wall;
    let told = &rungs(&registry(), &document)[4].sentence;
    assert!(told.contains("both sides at once for a while"), "{told}");
}

#[test]
fn a_result_without_a_median_is_no_rung() {
    let mut document = document();
    document.results[2].summary.median = None;
    assert!(rungs(&registry(), &document).iter().all(|rung| rung.label != "pipe"));
}
