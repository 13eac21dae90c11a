//! The document of a run whose truth is known.

use crate::list::registry;
use plumb_analysis::build::{build, trust};
use plumb_analysis::document::RUN_SCHEMA;

use plumb_store::record::CellStatus;

use plumb_analysis::document::schema;
use plumb_analysis::fixture::{SyntheticDesign, SyntheticRun, local};

fn synthetic() -> SyntheticRun {
    let mut synthetic = SyntheticRun::new(1);
    synthetic.design = SyntheticDesign { rounds: 5, samples: 40, ..SyntheticDesign::default() };
    synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 16), 1_000.0);
    synthetic.measure("latency.local", "latency", local("tcp4", "same-cpu", 16), 4_000.0);
    let reason = "the kernel has no io_uring".to_owned();
    let cell = synthetic.cell("latency.local", "latency", local("uring", "same-cpu", 16));
    cell.status = CellStatus::Unavailable(reason);
    synthetic
}

#[test]
fn a_document_is_stable() {
    insta::assert_json_snapshot!(build(&registry(), &synthetic().data));
}

#[test]
fn the_same_records_give_the_same_document() {
    let data = synthetic().data;
    assert_eq!(build(&registry(), &data), build(&registry(), &data));
}

#[test]
fn a_cell_without_numbers_is_listed_with_its_reason() {
    let document = build(&registry(), &synthetic().data);
    assert_eq!(document.results.len(), 2);
    assert_eq!(document.unavailable[0].state, "unavailable");
    assert_eq!(document.unavailable[0].reason, "the kernel has no io_uring");
}

#[test]
fn more_than_a_fifth_of_disturbed_blocks_is_not_trusted() {
    let mut data = synthetic().data;
    assert!(trust(&data).trusted);
    data.blocks[0].flags = vec!["steal: 10 ms".to_owned(), "batched".to_owned()];
    data.blocks[1].flags = vec!["canary".to_owned()];
    assert!(trust(&data).trusted, "2 of 10");
    data.blocks[2].flags = vec!["migration".to_owned()];
    let judged = trust(&data);
    assert!(!judged.trusted && judged.flagged == 3, "{judged:?}");
    assert_eq!(judged.flags["steal"], 1);
}

#[test]
fn an_empty_or_damaged_run_still_makes_a_document() {
    let mut data = synthetic().data;
    data.launches.clear();
    let document = build(&registry(), &data);
    assert!(document.results.is_empty());
    assert_eq!(document.unavailable.len(), 3);
    for block in &mut data.blocks {
        block.samples = vec![f64::NAN, f64::INFINITY];
        block.n = u64::MAX / 4;
    }
    data.launches = synthetic().data.launches;
    build(&registry(), &data);
}

#[test]
fn a_document_validates_against_its_published_schema() {
    let published = schema::all().into_iter().find(|p| p.name == RUN_SCHEMA).unwrap();
    let value = serde_json::to_value(build(&registry(), &synthetic().data)).unwrap();
    assert!(jsonschema::is_valid(&published.schema, &value));
    let other = serde_json::json!({ "schema": "plumb.run/2" });
    assert!(!jsonschema::is_valid(&published.schema, &other));
}
