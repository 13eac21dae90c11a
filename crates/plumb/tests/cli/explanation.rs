//! `plumb explain`: by what is stored; the breakdown of a run is measured once, when asked for, and stored beside it.

use crate::documents::valid;
use crate::home::{TestHome, assert_ended};

#[test]
fn the_rungs_of_a_run_are_explained_once_and_their_parts_sum_to_the_whole() {
    let place = TestHome::new();
    place.assert_success(
        "run latency.local --quick --launches=6 --set=mechanism=pipe,eventfd --set=size=64 \
         --set=placement=same-cpu",
    );
    let runs = || place.json_of("runs --json")["runs"].as_array().unwrap().len();
    let stored = valid(&place.assert_success("explain --json"), "plumb.explain/1");
    assert_eq!((stored["stored"].as_array().unwrap().len(), runs()), (1, 1), "nothing is measured");
    assert!(place.stdout_of("explain").contains("Where the time goes"));
    let output = place.plumb("explain --measure --launches=1 --json -o where.html");
    if output.status.code() == Some(4) {
        // Tracepoints are not allowed here.
        return assert_ended(&output, 4, &["root"]);
    }
    let document = valid(&crate::home::ProgramOutput::of(output), "plumb.explain/1");
    let rungs = document["rungs"].as_array().unwrap();
    assert_eq!(rungs.len(), 1, "only the pipe can be broken down: {document}");
    assert!(rungs[0]["latency"]["median"].as_f64().unwrap() > 0.0);
    let breakdown = &rungs[0]["breakdown"];
    let mean = |value: &serde_json::Value| value["mean"].as_f64().unwrap();
    let parts: f64 = breakdown["parts"].as_array().unwrap().iter().map(mean).sum();
    let sum = breakdown["sum"].as_f64().unwrap();
    assert!(((parts + mean(&breakdown["unexplained"])) / sum - 1.0).abs() < 1e-6, "{breakdown}");
    assert!(place.path("where.html").exists());
    // The breakdown is a run of its own and is not measured again.
    let again = valid(&place.assert_success("explain --json"), "plumb.explain/1");
    assert_eq!(again["run"]["id"], document["run"]["id"]);
    assert_eq!(again["measured"]["id"], document["measured"]["id"]);
    assert_ne!(again["run"]["id"], again["measured"]["id"]);
    assert_eq!((&place.json_of("show last --json")["run"]["id"], runs()), (&again["run"]["id"], 2));
}
