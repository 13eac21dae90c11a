//! Records as rows and back: the one place that knows which column holds what.
//!
//! Left out: which rows are asked for.

use std::fmt;

use rusqlite::Row;
use rusqlite::types::Type;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::sample_codec;
use crate::record::{Cell, CellStatus, LaunchRecord, RunRecord, RunStatus, SampleBlock};

/// The columns of a run, in the order that [`run`] reads them.
pub(super) const RUN: &str =
    "id, title, created_unix_ms, status, plan_toml, seed, code_version, provenance, notes";

/// The columns of a cell, in the order that [`cell`] reads them.
pub(super) const CELL: &str =
    "id, experiment, factors, response, unit, better, state, reason, imported";

/// The columns of a launch, in the order that [`launch`] reads them.
pub(super) const LAUNCH: &str = "id, round, launch_group, started_ns";

/// The columns of a block, in the order that [`block`] reads them.
pub(super) const BLOCK: &str = "cell, launch, pass, batch, n, warmup, samples, histogram, \
                                histogram_scale, effort, counters, flags, n_eff";

/// A value that a row holds and a record cannot.
fn invalid_column(column: usize, reason: impl fmt::Display) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, reason.to_string().into())
}

/// JSON in a column.
fn json_column<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| invalid_column(column, error))
}

/// A word in a column, as serde names it.
fn enum_column<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_value(text.into()).map_err(|error| invalid_column(column, error))
}

/// The JSON of a record's part; refuses what JSON cannot give back.
pub(super) fn to_json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// The word serde uses for a unit variant.
pub(super) fn to_enum_name(value: &impl Serialize) -> Result<String, String> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        Ok(other) => Err(format!("{other} is not a word")),
        Err(error) => Err(error.to_string()),
    }
}

/// An unsigned number as SQLite's signed one; refuses what does not fit.
pub(super) fn to_signed(n: u64, what: &str) -> Result<i64, String> {
    i64::try_from(n).map_err(|_| format!("{what} {n} is beyond 2^63"))
}

/// A count in a column.
fn count_column(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let n: i64 = row.get(column)?;
    u64::try_from(n).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, n))
}

/// Reads the columns [`RUN`].
pub(super) fn run(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    Ok(RunRecord {
        id: row.get(0)?,
        title: row.get(1)?,
        created_unix_ms: row.get(2)?,
        status: enum_column::<RunStatus>(row, 3)?,
        plan_toml: row.get(4)?,
        seed: row.get::<_, i64>(5)?.cast_unsigned(),
        code_version: row.get(6)?,
        provenance: json_column(row, 7)?,
        notes: json_column(row, 8)?,
    })
}

/// Reads the columns [`CELL`].
pub(super) fn cell(row: &Row<'_>) -> rusqlite::Result<Cell> {
    let imported = match row.get::<_, Option<String>>(8)? {
        Some(text) => Some(serde_json::from_str(&text).map_err(|error| invalid_column(8, error))?),
        None => None,
    };
    Ok(Cell {
        id: row.get(0)?,
        experiment: row.get(1)?,
        factors: json_column(row, 2)?,
        response: row.get(3)?,
        unit: row.get(4)?,
        better: enum_column(row, 5)?,
        status: status(&row.get::<_, String>(6)?, row.get(7)?)?,
        imported,
    })
}

/// State and reason of a cell as its status.
fn status(state: &str, reason: String) -> rusqlite::Result<CellStatus> {
    match state {
        "open" => Ok(CellStatus::Open),
        "done" => Ok(CellStatus::Done(reason)),
        "unavailable" => Ok(CellStatus::Unavailable(reason)),
        "failed" => Ok(CellStatus::Failed(reason)),
        state => Err(invalid_column(6, format!("'{state}' is not the state of a cell"))),
    }
}

/// A status as state and reason.
pub(super) fn state_and_reason(status: &CellStatus) -> (&'static str, &str) {
    match status {
        CellStatus::Open => ("open", ""),
        CellStatus::Done(reason) => ("done", reason),
        CellStatus::Unavailable(reason) => ("unavailable", reason),
        CellStatus::Failed(reason) => ("failed", reason),
    }
}

/// Reads the columns [`LAUNCH`].
pub(super) fn launch(row: &Row<'_>) -> rusqlite::Result<LaunchRecord> {
    Ok(LaunchRecord {
        id: row.get(0)?,
        round: row.get(1)?,
        group: row.get(2)?,
        started_ns: row.get(3)?,
    })
}

/// Reads the columns [`BLOCK`].
pub(super) fn block(row: &Row<'_>) -> rusqlite::Result<SampleBlock> {
    let samples = sample_codec::decode(row.get_ref(6)?.as_blob()?)
        .map_err(|reason| invalid_column(6, reason))?;
    Ok(SampleBlock {
        cell: row.get(0)?,
        launch: row.get(1)?,
        pass: row.get(2)?,
        batch: row.get(3)?,
        n: count_column(row, 4)?,
        warmup: count_column(row, 5)?,
        samples,
        histogram: row.get(7)?,
        histogram_scale: row.get(8)?,
        effort: json_column(row, 9)?,
        counters: json_column(row, 10)?,
        flags: json_column(row, 11)?,
        n_eff: json_column(row, 12)?,
    })
}
