//! Adding to a store: every call is one transaction.
//!
//! Blocks are only ever added; a run's status and notes and a cell's status are all that changes.
//! Left out: reading, and who may measure.

use std::collections::BTreeMap;

use rusqlite::{Connection, ErrorCode, ToSql, TransactionBehavior, named_params};

use super::rows::{state_and_reason, to_enum_name, to_json, to_signed};
use super::{Store, StoreError, rows, sample_codec};
use crate::record::{
    self, Cell, CellStatus, ImportedSummary, LaunchRecord, RunData, RunRecord, RunStatus,
    SampleBlock,
};

/// Why a record was not written.
pub(super) enum StoreWriteError {
    Sqlite(rusqlite::Error),
    Invalid(String),
    NoRun,
}

impl From<rusqlite::Error> for StoreWriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<String> for StoreWriteError {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

impl Store {
    /// An id that no run of this store has: title, UTC day and four hexadecimal digits from
    /// `random`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn new_run_id(
        &self,
        title: &str,
        now_unix_ms: i64,
        random: u64,
    ) -> Result<String, StoreError> {
        let taken = |id: &str| Ok(self.run_key(id)?.is_some());
        record::new_run_id(title, now_unix_ms, random, taken).map_err(|source| self.error(source))
    }

    /// Sets the status of a run and adds to its notes; a note of the same name is replaced.
    ///
    /// # Errors
    /// [`StoreError::NoRun`], and the store's own errors.
    pub fn update_run(
        &mut self,
        run: &str,
        status: RunStatus,
        notes: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        self.write(&format!("status of run {run}"), run, |connection| {
            let sql = "UPDATE run SET status = :status, notes = json_patch(notes, :notes)
                       WHERE id = :run";
            let (status, notes) = (to_enum_name(&status)?, to_json(notes)?);
            let changed = connection
                .prepare_cached(sql)?
                .execute(named_params! { ":run": run, ":status": status, ":notes": notes })?;
            if changed == 0 { Err(StoreWriteError::NoRun) } else { Ok(()) }
        })
    }

    /// Sets the status of a cell.
    ///
    /// # Errors
    /// [`StoreError::NoRun`], [`StoreError::Invalid`] when there is no such cell, and the store's
    /// own errors.
    pub fn set_cell_status(
        &mut self,
        run: &str,
        cell: i64,
        status: &CellStatus,
    ) -> Result<(), StoreError> {
        self.write(&format!("status of cell {cell} of run {run}"), run, |connection| {
            let key = find_run_key(connection, run)?.ok_or(StoreWriteError::NoRun)?;
            let (state, reason) = state_and_reason(status);
            let sql = "UPDATE cell SET state = :state, reason = :reason
                       WHERE run = :run AND id = :id";
            let changed = connection.prepare_cached(sql)?.execute(
                named_params! { ":run": key, ":id": cell, ":state": state, ":reason": reason },
            )?;
            if changed == 0 { Err("the run has no such cell".to_owned().into()) } else { Ok(()) }
        })
    }

    /// Adds a launch to a run.
    ///
    /// # Errors
    /// [`StoreError::NoRun`], [`StoreError::Invalid`] when its id is taken, and the store's own
    /// errors.
    pub fn add_launch(&mut self, run: &str, launch: &LaunchRecord) -> Result<(), StoreError> {
        self.write(&format!("launch {} of run {run}", launch.id), run, |connection| {
            let key = find_run_key(connection, run)?.ok_or(StoreWriteError::NoRun)?;
            insert_launch(connection, key, launch)
        })
    }

    /// Adds a block to a run.
    ///
    /// # Errors
    /// [`StoreError::NoRun`], [`StoreError::Invalid`] when its cell or launch is not there or the
    /// block is, and the store's own errors.
    pub fn add_block(&mut self, run: &str, block: &SampleBlock) -> Result<(), StoreError> {
        self.add_blocks(run, std::slice::from_ref(block))
    }

    /// Adds blocks to a run, all or none.
    ///
    /// # Errors
    /// As for [`Store::add_block`].
    pub fn add_blocks(&mut self, run: &str, blocks: &[SampleBlock]) -> Result<(), StoreError> {
        let record = match blocks {
            [one] => format!("a block of cell {}, launch {} of run {run}", one.cell, one.launch),
            _ => format!("blocks of run {run}"),
        };
        self.write(&record, run, |connection| {
            let key = find_run_key(connection, run)?.ok_or(StoreWriteError::NoRun)?;
            blocks.iter().try_for_each(|block| insert_block(connection, key, block))
        })
    }

    /// Adds a run with whatever it has so far, all or nothing.
    ///
    /// # Errors
    /// [`StoreError::RunExists`] when its id is taken, [`StoreError::Invalid`] when its parts
    /// contradict each other, and the store's own errors.
    pub fn insert(&mut self, data: &RunData) -> Result<(), StoreError> {
        let id = &data.run.id;
        self.write(&format!("run {id}"), id, |connection| {
            let key = insert_run(connection, &data.run)?;
            data.cells.iter().try_for_each(|cell| insert_cell(connection, key, cell))?;
            data.launches.iter().try_for_each(|launch| insert_launch(connection, key, launch))?;
            data.blocks.iter().try_for_each(|block| insert_block(connection, key, block))
        })
    }

    /// Deletes a run with everything in it.
    ///
    /// # Errors
    /// [`StoreError::NoRun`], and the store's own errors.
    pub fn delete_run(&mut self, run: &str) -> Result<(), StoreError> {
        self.write(&format!("deletion of run {run}"), run, |connection| {
            match connection.execute("DELETE FROM run WHERE id = ?1", [run])? {
                0 => Err(StoreWriteError::NoRun),
                _ => Ok(()),
            }
        })
    }

    /// The key of a run.
    pub(super) fn run_key(&self, run: &str) -> rusqlite::Result<Option<i64>> {
        find_run_key(&self.connection, run)
    }

    /// Carries out `action` in one transaction, which is rolled back when it fails.
    pub(super) fn write(
        &mut self,
        record: &str,
        run: &str,
        action: impl FnOnce(&Connection) -> Result<(), StoreWriteError>,
    ) -> Result<(), StoreError> {
        // Immediate: a transaction that began by reading could find itself unable to write.
        let outcome = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(StoreWriteError::Sqlite)
            .and_then(|transaction| {
                action(&transaction)?;
                Ok(transaction.commit()?)
            });
        outcome
            .map_err(|refused| match refused {
                StoreWriteError::NoRun => self.run_not_found(run),
                StoreWriteError::Invalid(reason) => {
                    StoreError::Invalid { record: record.to_owned(), reason }
                }
                StoreWriteError::Sqlite(source) => match source.sqlite_error_code() {
                    Some(ErrorCode::ConstraintViolation) => StoreError::Invalid {
                        record: record.to_owned(),
                        reason: source.to_string(),
                    },
                    _ => self.error(source),
                },
            })
            .map_err(|error| match error {
                // The id of a run is the one constraint that a user, not a defect, can violate.
                StoreError::Invalid { reason, .. } if reason.contains("run.id") => {
                    StoreError::RunExists { id: run.to_owned() }
                }
                error => error,
            })
    }

    /// Keeps a JSON document with a run; one of the same name is replaced.
    ///
    /// # Errors
    /// [`StoreError::NoRun`], and the store's own errors.
    pub fn put_attachment(&mut self, run: &str, name: &str, json: &str) -> Result<(), StoreError> {
        self.write(&format!("evidence {name} of run {run}"), run, |connection| {
            let sql = "INSERT OR REPLACE INTO evidence (run, name, body)
                       SELECT key, :name, :body FROM run WHERE id = :run";
            let parameters = named_params! { ":run": run, ":name": name, ":body": json };
            match connection.execute(sql, parameters)? {
                0 => Err(StoreWriteError::NoRun),
                _ => Ok(()),
            }
        })
    }
}

fn find_run_key(connection: &Connection, run: &str) -> rusqlite::Result<Option<i64>> {
    use rusqlite::OptionalExtension;
    connection
        .prepare_cached("SELECT key FROM run WHERE id = ?1")?
        .query_row([run], |row| row.get(0))
        .optional()
}

/// Adds a row of these columns.
fn insert_row(
    connection: &Connection,
    table: &str,
    columns: &str,
    values: &[&dyn ToSql],
) -> Result<(), StoreWriteError> {
    let marks: Vec<&str> = values.iter().map(|_| "?").collect();
    let sql = format!("INSERT INTO {table} ({columns}) VALUES ({})", marks.join(", "));
    connection.prepare_cached(&sql)?.execute(values)?;
    Ok(())
}

fn insert_run(connection: &Connection, run: &RunRecord) -> Result<i64, StoreWriteError> {
    let values: &[&dyn ToSql] = &[
        &run.id,
        &run.title,
        &run.created_unix_ms,
        &to_enum_name(&run.status)?,
        &run.plan_toml,
        &run.seed.cast_signed(),
        &run.code_version,
        &to_json(&run.provenance)?,
        &to_json(&run.notes)?,
    ];
    insert_row(connection, "run", rows::RUN, values)?;
    Ok(connection.last_insert_rowid())
}

fn insert_cell(connection: &Connection, run: i64, cell: &Cell) -> Result<(), StoreWriteError> {
    let imported = match &cell.imported {
        Some(summary) if !is_finite(summary) => {
            return Err(format!("the summary of cell {} is not finite", cell.id).into());
        }
        Some(summary) => Some(to_json(summary)?),
        None => None,
    };
    let (state, reason) = state_and_reason(&cell.status);
    let values: &[&dyn ToSql] = &[
        &cell.id,
        &cell.experiment,
        &to_json(&cell.factors)?,
        &cell.response,
        &cell.unit,
        &to_enum_name(&cell.better)?,
        &state,
        &reason,
        &imported,
        &run,
    ];
    insert_row(connection, "cell", &format!("{}, run", rows::CELL), values)
}

/// Whether every number of a summary is one that JSON can hold.
fn is_finite(summary: &ImportedSummary) -> bool {
    let optional = [summary.min, summary.max].into_iter().flatten();
    std::iter::once(summary.value)
        .chain(optional)
        .chain(summary.percentiles.values().copied())
        .all(f64::is_finite)
}

fn insert_launch(
    connection: &Connection,
    run: i64,
    launch: &LaunchRecord,
) -> Result<(), StoreWriteError> {
    let LaunchRecord { id, round, group, started_ns } = launch;
    let columns = format!("{}, run", rows::LAUNCH);
    insert_row(connection, "launch", &columns, &[id, round, group, started_ns, &run])
}

fn insert_block(
    connection: &Connection,
    run: i64,
    block: &SampleBlock,
) -> Result<(), StoreWriteError> {
    // JSON has no word for them, and SQLite stores a NaN as NULL.
    let numbers = [block.effort.canary_ns, block.histogram_scale];
    let mut numbers = numbers.into_iter().chain(block.n_eff.into_iter().flatten());
    if !numbers.all(f64::is_finite) {
        return Err("its canary, its histogram scale or its effective size is not a finite number"
            .to_owned()
            .into());
    }
    let values: &[&dyn ToSql] = &[
        &block.cell,
        &block.launch,
        &block.pass,
        &block.batch,
        &to_signed(block.n, "the number of samples")?,
        &to_signed(block.warmup, "the length of the warm-up")?,
        &sample_codec::encode(&block.samples),
        &block.histogram,
        &block.histogram_scale,
        &to_json(&block.effort)?,
        &to_json(&block.counters)?,
        &to_json(&block.flags)?,
        &to_json(&block.n_eff)?,
        &run,
    ];
    insert_row(connection, "block", &format!("{}, run", rows::BLOCK), values)
}
