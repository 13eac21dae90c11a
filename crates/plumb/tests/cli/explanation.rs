//! `plumb explain`: parts measured for the rungs of a run, stored beside it, or a reason and a fix.

use crate::documents::valid;
use crate::home::TestHome;

const MEASURED: [&str; 7] = [
    "run",
    "latency.local",
    "--quick",
    "--launches=1",
    "--set=mechanism=pipe,eventfd",
    "--set=size=64",
    "--set=placement=same-cpu",
];

#[test]
fn the_rungs_of_a_run_are_explained_once_and_their_parts_sum_to_the_whole() {
    let place = TestHome::new();
    place.assert_success(&MEASURED);
    let words = ["explain", "--launches=1", "--json", "-o", "where.html"];
    let page = place.path("where.html");
    let words = [&words[..4], &[page.to_str().unwrap()]].concat();
    let outcome = place.run(&words);
    if outcome.code == Some(4) {
        // Nobody but root may look into the kernel here: then that is said, with the way out.
        assert!(
            outcome.stderr.contains("no round trip could be broken down"),
            "{}",
            outcome.stderr
        );
        assert!(outcome.stderr.contains("root"), "{}", outcome.stderr);
        return;
    }
    let document = valid(&outcome, "plumb.explain/1");
    let rungs = document["rungs"].as_array().unwrap();
    assert_eq!(rungs.len(), 1, "only the pipe can be broken down: {document}");
    assert!(rungs[0]["latency"]["median"].as_f64().unwrap() > 0.0);
    let breakdown = &rungs[0]["breakdown"];
    let mean = |value: &serde_json::Value| value["mean"].as_f64().unwrap();
    let parts: f64 = breakdown["parts"].as_array().unwrap().iter().map(mean).sum();
    let sum = breakdown["sum"].as_f64().unwrap();
    assert!(((parts + mean(&breakdown["unexplained"])) / sum - 1.0).abs() < 1e-6, "{breakdown}");
    assert!(std::fs::read_to_string(page).unwrap().contains("The rungs explained"));
    // The explanation is a run of its own, which knows what it explains and is not measured again.
    let again = valid(&place.assert_success(&["explain", "--json"]), "plumb.explain/1");
    assert_eq!(again["run"]["id"], document["run"]["id"]);
    assert_eq!(again["measured"]["id"], document["measured"]["id"]);
    assert_ne!(again["run"]["id"], again["measured"]["id"]);
}

#[test]
fn a_run_that_is_not_there_cannot_be_explained() {
    let place = TestHome::new();
    place.assert_error(&["explain"], 4, &["nothing has been measured"]);
    place.assert_success(&MEASURED);
    place.assert_error(&["explain", "lost"], 2, &["there is no run"]);
}
