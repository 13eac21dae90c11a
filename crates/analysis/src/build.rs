//! A run document from a run's records.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use plumb_store::record::{RunData, RunRecord, RunStatus};

use crate::claim::ClaimEvidence;
use crate::document::{
    ClaimVerdict, DocumentStatements, ExpectationVerdict, RUN_SCHEMA, RunDocument, RunHeader,
    RunTrust, UnavailableCell,
};
use crate::registry::{ExperimentAnalysis, Registry};
use crate::summary::{self, MeasuredCell};
use crate::{breakdown, ladder, rank, ratio};

/// A run is trusted up to this share of disturbed blocks (rule 10).
const DISTURBED_MAX: f64 = 0.2;

/// Title of the run whose document carries the ladder.
const LADDER: &str = "ladder";

/// Summarises a run: every cell, its trust, the claims it re-tests, its ranks and its ladder.
///
/// The same records give the same document: all resampling is seeded by the run's seed.
pub fn build(registry: &Registry, data: &RunData) -> RunDocument {
    let measured = summary::measured_cells(data);
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
            let (state, reason) = summary::missing_reason(&cell.status);
            unavailable.push(UnavailableCell {
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
        statements: Vec::new(),
        expectations: Vec::new(),
        ranks: Vec::new(),
        ladder: Vec::new(),
        breakdowns: Vec::new(),
        ratios: Vec::new(),
    };
    // Imported figures, without launches and from elsewhere, decide nothing here.
    if !is_imported {
        document.breakdowns = breakdown::breakdowns(&measured);
        document.ratios = ratio::ratios(registry, &measured);
        judge(&mut document, registry, data, &measured);
    }
    document
}

fn judge(
    document: &mut RunDocument,
    registry: &Registry,
    data: &RunData,
    measured: &[MeasuredCell<'_>],
) {
    document.claims = verdicts(registry, data, measured);
    document.expectations = expectations(registry, data, measured);
    if data.run.title == LADDER {
        // A ladder has one size of everything; what it says nothing about is not worth a line.
        document.claims.retain(|claim| claim.estimate.is_some());
        document.expectations.retain(|expectation| expectation.estimate.is_some());
        document.ladder = ladder::rungs(registry, document);
    } else {
        document.ranks = rank::tables(registry, measured);
    }
    document.statements = statements(registry, &document.claims);
}

/// What happens to every testable statement of the documents whose claims were judged.
fn statements(registry: &Registry, claims: &[ClaimVerdict]) -> Vec<DocumentStatements> {
    let judged: BTreeSet<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
    let mut documents: BTreeMap<&str, DocumentStatements> = BTreeMap::new();
    for statement in registry.statements() {
        let document = documents.entry(&statement.document).or_insert_with(|| DocumentStatements {
            document: statement.document.clone(),
            ..DocumentStatements::default()
        });
        document.testable += 1;
        document.encoded += u64::from(statement.is_encoded);
        document.judged += u64::from(judged.contains(statement.id.as_str()));
        if !statement.is_encoded {
            let ids = document.open.entry(statement.experiment.clone()).or_default();
            ids.push(statement.id.clone());
        }
    }
    documents.into_values().filter(|document| document.judged > 0).collect()
}

/// Judges every claim whose experiment is part of the run.
///
/// A claim whose cells are missing is not decided, and says what would measure them.
pub fn verdicts(
    registry: &Registry,
    data: &RunData,
    measured: &[MeasuredCell<'_>],
) -> Vec<ClaimVerdict> {
    let evidence = ClaimEvidence::new(data, measured);
    let judged = |(id, known): (&str, &'static ExperimentAnalysis)| {
        let id = id.to_owned();
        known.claims.iter().map(move |claim| claim.verdict(&id, &evidence))
    };
    experiments_of(registry, data).flat_map(judged).collect()
}

/// Judges every expectation whose experiment is part of the run.
pub fn expectations(
    registry: &Registry,
    data: &RunData,
    measured: &[MeasuredCell<'_>],
) -> Vec<ExpectationVerdict> {
    let evidence = ClaimEvidence::new(data, measured);
    let judged = |(id, known): (&str, &'static ExperimentAnalysis)| {
        let id = id.to_owned();
        known.expectations.iter().map(move |expectation| expectation.verdict(&id, &evidence))
    };
    experiments_of(registry, data).flat_map(judged).collect()
}

fn experiments_of<'a>(
    registry: &'a Registry,
    data: &'a RunData,
) -> impl Iterator<Item = (&'static str, &'static ExperimentAnalysis)> + 'a {
    let is_part = |id: &str| data.cells.iter().any(|cell| cell.experiment == id);
    registry.iter().filter(move |(id, _)| is_part(id))
}

/// Identity and state of a run.
pub fn header(run: &RunRecord) -> RunHeader {
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

/// Rule 10's judgement of a run: nothing outside a simulation disturbs it.
pub fn trust(data: &RunData) -> RunTrust {
    let measured = || data.blocks.iter().filter(|block| !summary::is_simulated(block));
    let blocks = measured().count() as u64;
    let flagged = measured().filter(|block| summary::is_disturbed(block)).count() as u64;
    RunTrust {
        blocks,
        flagged,
        trusted: flagged as f64 <= DISTURBED_MAX * blocks as f64,
        flags: summary::flag_counts(measured()),
    }
}
