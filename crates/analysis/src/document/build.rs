//! A run document from a run's records.
//!
//! Left out: every estimator and judgement, each in its own module.

use jiff::Timestamp;
use plumb_store::record::{Run, RunData, RunStatus};

use crate::document::{RUN_SCHEMA, RunDocument, RunHeader, Trust, Unavailable};
use crate::summary::{self, Measured};
use crate::{breakdown, claim, ladder, rank, ratio};

/// A run is trusted up to this share of disturbed blocks (rule 10).
const DISTURBED_MAX: f64 = 0.2;

/// Title of the run whose document carries the ladder.
const LADDER: &str = "ladder";

/// Summarises a run: every cell, its trust, the claims it re-tests, its ranks and its ladder.
///
/// The same records give the same document: all resampling is seeded by the run's seed.
pub fn build(data: &RunData) -> RunDocument {
    let measured = summary::measured(data);
    let is_imported = data.run.status == RunStatus::Imported;
    let mut results = Vec::new();
    let mut unavailable = Vec::new();
    let mut found = measured.iter().peekable();
    for cell in &data.cells {
        if let Some(measured) = found.next_if(|measured| measured.cell.id == cell.id) {
            let mut result = measured.result();
            if is_imported {
                result.flags.push(summary::imported_samples(&data.run));
            }
            results.push(result);
        } else if let Some(result) = summary::imported(cell) {
            results.push(result);
        } else {
            let (state, reason) = summary::absence(&cell.status);
            unavailable.push(Unavailable {
                experiment: cell.experiment.clone(),
                factors: summary::factors(cell),
                response: cell.response.clone(),
                state: state.to_owned(),
                reason,
            });
        }
    }
    let mut document = RunDocument {
        schema: RUN_SCHEMA.to_owned(),
        run: header(&data.run),
        machine: data.run.provenance.clone(),
        notes: data.run.notes.clone(),
        trust: trust(data),
        results,
        unavailable,
        claims: Vec::new(),
        ranks: Vec::new(),
        ladder: Vec::new(),
        breakdowns: Vec::new(),
        ratios: Vec::new(),
    };
    // What another tool measured, elsewhere and without launches, decides nothing here.
    if !is_imported {
        document.breakdowns = breakdown::breakdowns(&measured);
        document.ratios = ratio::ratios(&measured);
        judge(&mut document, data, &measured);
    }
    document
}

fn judge(document: &mut RunDocument, data: &RunData, measured: &[Measured<'_>]) {
    document.claims = claim::verdicts(data, measured);
    if data.run.title == LADDER {
        // A ladder has one size of everything; what it says nothing about is not worth a line.
        document.claims.retain(|claim| claim.estimate.is_some());
        document.ladder = ladder::rungs(document);
    } else {
        document.ranks = rank::tables(measured);
    }
}

/// Identity and state of a run.
pub fn header(run: &Run) -> RunHeader {
    RunHeader {
        id: run.id.clone(),
        title: run.title.clone(),
        created: instant(run.created_unix_ms),
        status: status(run.status).to_owned(),
        seed: run.seed,
        code: run.code_version.clone(),
        plan: run.plan_toml.clone(),
    }
}

/// Milliseconds since 1970 as RFC 3339 in UTC; instants beyond the calendar give its start.
pub fn instant(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms).unwrap_or_default().to_string()
}

/// The stored name of a run's status.
pub const fn status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running => "running",
        RunStatus::Complete => "complete",
        RunStatus::Interrupted => "interrupted",
        RunStatus::Imported => "imported",
    }
}

/// Rule 10's judgement of a run.
pub fn trust(data: &RunData) -> Trust {
    let blocks = data.blocks.len() as u64;
    let flagged = data.blocks.iter().filter(|block| summary::is_disturbed(block)).count() as u64;
    Trust {
        blocks,
        flagged,
        trusted: flagged as f64 <= DISTURBED_MAX * blocks as f64,
        flags: summary::flag_counts(&data.blocks),
    }
}

#[cfg(test)]
mod tests {
    use plumb_store::record::CellStatus;

    use super::*;
    use crate::document::schema;
    use crate::fixture::{Design, Synthetic, local};

    fn synthetic() -> Synthetic {
        let mut synthetic = Synthetic::new(1);
        synthetic.design = Design { rounds: 5, samples: 40, ..Design::default() };
        synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 16), 1_000.0);
        synthetic.measure("latency.local", "latency", local("tcp4", "same-cpu", 16), 4_000.0);
        let reason = "the kernel has no io_uring".to_owned();
        let cell = synthetic.cell("latency.local", "latency", local("uring", "same-cpu", 16));
        cell.status = CellStatus::Unavailable(reason);
        synthetic
    }

    #[test]
    fn a_document_is_stable() {
        insta::assert_json_snapshot!(build(&synthetic().data));
    }

    #[test]
    fn the_same_records_give_the_same_document() {
        let data = synthetic().data;
        assert_eq!(build(&data), build(&data));
    }

    #[test]
    fn a_cell_without_numbers_is_listed_with_its_reason() {
        let document = build(&synthetic().data);
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
        let document = build(&data);
        assert!(document.results.is_empty());
        assert_eq!(document.unavailable.len(), 3);
        for block in &mut data.blocks {
            block.samples = vec![f64::NAN, f64::INFINITY];
            block.n = u64::MAX / 4;
        }
        data.launches = synthetic().data.launches;
        build(&data);
    }

    #[test]
    fn a_document_validates_against_its_published_schema() {
        let published = schema::all().into_iter().find(|p| p.name == RUN_SCHEMA).unwrap();
        let value = serde_json::to_value(build(&synthetic().data)).unwrap();
        assert!(jsonschema::is_valid(&published.schema, &value));
        let other = serde_json::json!({ "schema": "plumb.run/2" });
        assert!(!jsonschema::is_valid(&published.schema, &other));
    }
}
