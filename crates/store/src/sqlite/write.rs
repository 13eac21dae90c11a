//! Adding to a store: every call is one transaction.
//!
//! Blocks are only ever added; a run's status and notes and a cell's status are all that changes.
//! Left out: reading, and who may measure.

use std::collections::BTreeMap;

use rusqlite::{Connection, ErrorCode, TransactionBehavior, named_params};

use super::rows::{state_and_reason, to_enum_name, to_json, to_signed};
use super::{Store, StoreError, sample_codec};
use crate::record::{
    Cell, CellStatus, ImportedSummary, LaunchRecord, RunData, RunRecord, RunStatus, SampleBlock,
};
use crate::run_id;

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
        let mut error = None;
        let id = run_id::new(title, now_unix_ms, random, |id| {
            self.run_key(id)
                .unwrap_or_else(|source| {
                    error = Some(source);
                    None
                })
                .is_some()
        });
        error.map_or(Ok(id), |source| Err(self.error(source)))
    }

    /// Sets the status of a run and adds to its notes; a note of the same name is replaced.
    ///
    /// # Errors
    /// [`StoreError::NoRun`], and the store's own troubles.
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
    /// own troubles.
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
    /// troubles.
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
    /// block is, and the store's own troubles.
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
    /// contradict each other, and the store's own troubles.
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
    /// [`StoreError::NoRun`], and the store's own troubles.
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
    /// [`StoreError::NoRun`], and the store's own troubles.
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

fn insert_run(connection: &Connection, run: &RunRecord) -> Result<i64, StoreWriteError> {
    let sql = "INSERT INTO run (id, title, created_unix_ms, status, plan_toml, seed, code_version,
                                provenance, notes)
               VALUES (:id, :title, :created_unix_ms, :status, :plan_toml, :seed, :code_version,
                       :provenance, :notes)";
    connection.prepare_cached(sql)?.execute(named_params! {
        ":id": run.id,
        ":title": run.title,
        ":created_unix_ms": run.created_unix_ms,
        ":status": to_enum_name(&run.status)?,
        ":plan_toml": run.plan_toml,
        ":seed": run.seed.cast_signed(),
        ":code_version": run.code_version,
        ":provenance": to_json(&run.provenance)?,
        ":notes": to_json(&run.notes)?,
    })?;
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
    let sql = "INSERT INTO cell (run, id, experiment, factors, response, unit, better, state,
                                 reason, imported)
               VALUES (:run, :id, :experiment, :factors, :response, :unit, :better, :state,
                       :reason, :imported)";
    connection.prepare_cached(sql)?.execute(named_params! {
        ":run": run,
        ":id": cell.id,
        ":experiment": cell.experiment,
        ":factors": to_json(&cell.factors)?,
        ":response": cell.response,
        ":unit": cell.unit,
        ":better": to_enum_name(&cell.better)?,
        ":state": state,
        ":reason": reason,
        ":imported": imported,
    })?;
    Ok(())
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
    let sql = "INSERT INTO launch (run, id, round, launch_group, started_ns)
               VALUES (:run, :id, :round, :launch_group, :started_ns)";
    connection.prepare_cached(sql)?.execute(named_params! {
        ":run": run,
        ":id": launch.id,
        ":round": launch.round,
        ":launch_group": launch.group,
        ":started_ns": launch.started_ns,
    })?;
    Ok(())
}

fn insert_block(
    connection: &Connection,
    run: i64,
    block: &SampleBlock,
) -> Result<(), StoreWriteError> {
    // JSON has no word for them, and SQLite stores a NaN as NULL.
    if !block.effort.canary_ns.is_finite() || !block.histogram_scale.is_finite() {
        return Err("its canary or its histogram scale is not a finite number".to_owned().into());
    }
    let sql = "INSERT INTO block (run, cell, launch, pass, batch, n, warmup, samples, histogram,
                                  histogram_scale, effort, counters, flags)
               VALUES (:run, :cell, :launch, :pass, :batch, :n, :warmup, :samples, :histogram,
                       :histogram_scale, :effort, :counters, :flags)";
    connection.prepare_cached(sql)?.execute(named_params! {
        ":run": run,
        ":cell": block.cell,
        ":launch": block.launch,
        ":pass": block.pass,
        ":batch": block.batch,
        ":n": to_signed(block.n, "the number of samples")?,
        ":warmup": to_signed(block.warmup, "the length of the warm-up")?,
        ":samples": sample_codec::encode(&block.samples),
        ":histogram": block.histogram,
        ":histogram_scale": block.histogram_scale,
        ":effort": to_json(&block.effort)?,
        ":counters": to_json(&block.counters)?,
        ":flags": to_json(&block.flags)?,
    })?;
    Ok(())
}
