//! Getting runs out of a store, and whether the store is sound.
//!
//! Left out: choosing a run by a shortened name ([`Store::find`]), and whether histograms decode,
//! which their owner knows.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{OptionalExtension, Params, Row, named_params};

use super::{Store, StoreError, rows};
use crate::record::{RunData, RunRecord};

/// A run as a list shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunListing {
    /// The run itself.
    pub run: RunRecord,
    /// Its cells.
    pub cells: u64,
    /// Those of them that still wait for their result.
    pub cells_open: u64,
    /// Its launches.
    pub launches: u64,
    /// Its blocks.
    pub blocks: u64,
}

impl Store {
    /// All runs, newest first.
    ///
    /// # Errors
    /// The store's own troubles.
    pub fn runs(&self) -> Result<Vec<RunListing>, StoreError> {
        let sql = format!(
            "SELECT {},
                    (SELECT count(*) FROM cell WHERE cell.run = run.key),
                    (SELECT count(*) FROM cell WHERE cell.run = run.key AND state = 'open'),
                    (SELECT count(*) FROM launch WHERE launch.run = run.key),
                    (SELECT count(*) FROM block WHERE block.run = run.key)
             FROM run ORDER BY created_unix_ms DESC, key DESC",
            rows::RUN
        );
        self.query_all(&sql, [], listing)
    }

    /// The experiments of each run, by its id.
    ///
    /// # Errors
    /// The store's own troubles.
    pub fn experiments(&self) -> Result<BTreeMap<String, BTreeSet<String>>, StoreError> {
        let sql =
            "SELECT DISTINCT run.id, cell.experiment FROM cell JOIN run ON run.key = cell.run";
        let mut runs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (run, experiment) in self.query_all(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))? {
            runs.entry(run).or_default().insert(experiment);
        }
        Ok(runs)
    }

    /// A run with everything in it, by its whole id.
    ///
    /// All of it is of one instant, even while the run is being measured.
    ///
    /// # Errors
    /// [`StoreError::NoRun`], [`StoreError::Corrupt`] when a row does not make sense, and the
    /// store's own troubles.
    pub fn load(&self, run: &str) -> Result<RunData, StoreError> {
        let snapshot =
            self.connection.unchecked_transaction().map_err(|source| self.error(source))?;
        let Some(key) = self.run_key(run).map_err(|source| self.error(source))? else {
            return Err(self.run_not_found(run));
        };
        let select = |columns, table, order| {
            format!("SELECT {columns} FROM {table} WHERE run = ?1 ORDER BY {order}")
        };
        let header = format!("SELECT {} FROM run WHERE key = ?1", rows::RUN);
        let data = RunData {
            run: self
                .connection
                .query_row(&header, [key], rows::run)
                .map_err(|source| self.error(source))?,
            cells: self.query_all(&select(rows::CELL, "cell", "id"), [key], rows::cell)?,
            launches: self.query_all(&select(rows::LAUNCH, "launch", "id"), [key], rows::launch)?,
            blocks: self.query_all(&select(rows::BLOCK, "block", "key"), [key], rows::block)?,
        };
        snapshot.finish().map_err(|source| self.error(source))?;
        Ok(data)
    }

    /// The header of a run, by its whole id; none when it is not there.
    ///
    /// # Errors
    /// The store's own troubles.
    pub fn header(&self, run: &str) -> Result<Option<RunRecord>, StoreError> {
        let sql = format!("SELECT {} FROM run WHERE id = ?1", rows::RUN);
        self.connection
            .query_row(&sql, [run], rows::run)
            .optional()
            .map_err(|source| self.error(source))
    }

    /// The JSON document of that name that is kept with a run.
    ///
    /// # Errors
    /// The store's own troubles.
    pub fn attachment(&self, run: &str, name: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT body FROM evidence JOIN run ON run.key = evidence.run
                   WHERE run.id = :run AND name = :name";
        self.connection
            .query_row(sql, named_params! { ":run": run, ":name": name }, |row| row.get(0))
            .optional()
            .map_err(|source| self.error(source))
    }

    /// Names and texts of the JSON documents kept with any run whose names begin so.
    ///
    /// # Errors
    /// The store's own troubles.
    pub fn attachments(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let sql = "SELECT name, body FROM evidence WHERE substr(name, 1, length(?1)) = ?1
                   ORDER BY run, name";
        let read = || {
            let mut found = self.connection.prepare(sql)?;
            let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            found.query_map([prefix], row)?.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(|source| self.error(source))
    }

    /// Everything wrong with the store, in words, and what `examine` finds wrong with each run that
    /// can be read.
    ///
    /// SQLite's own integrity check, then every reference between rows, then every row of every
    /// run read as the record it stands for.
    ///
    /// # Errors
    /// The store's own troubles; damage that lets the check go on is listed instead.
    pub fn check(
        &self,
        mut examine: impl FnMut(&RunData) -> Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        let mut problems: Vec<String> =
            self.query_all("PRAGMA integrity_check", [], |row| row.get(0))?;
        problems.retain(|line| line != "ok");
        problems.extend(self.query_all("PRAGMA foreign_key_check", [], describe_dangling_row)?);
        for id in self.query_all("SELECT id FROM run ORDER BY key", [], |row| row.get(0))? {
            let id: String = id;
            match self.load(&id) {
                Ok(data) => {
                    let found = examine(&data).into_iter();
                    problems.extend(found.map(|problem| format!("run {id}, {problem}")));
                }
                Err(StoreError::Corrupt { detail, .. }) => {
                    problems.push(format!("run {id}: {detail}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(problems)
    }

    /// Every row of a query.
    pub(super) fn query_all<T>(
        &self,
        sql: &str,
        parameters: impl Params,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let fault = |source| self.error(source);
        let mut statement = self.connection.prepare(sql).map_err(fault)?;
        let rows = statement.query_map(parameters, read).map_err(fault)?;
        rows.collect::<rusqlite::Result<Vec<T>>>().map_err(fault)
    }
}

fn listing(row: &Row<'_>) -> rusqlite::Result<RunListing> {
    let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(RunListing {
        run: rows::run(row)?,
        cells: count(9)?,
        cells_open: count(10)?,
        launches: count(11)?,
        blocks: count(12)?,
    })
}

fn describe_dangling_row(row: &Row<'_>) -> rusqlite::Result<String> {
    let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
    let rowid: Option<i64> = row.get(1)?;
    let which = rowid.map_or(String::new(), |rowid| format!(" (row {rowid})"));
    Ok(format!("a {table}{which} belongs to a {parent} that is not there"))
}
