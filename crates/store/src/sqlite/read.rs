//! Getting runs out of a store by the names that people type (an id, the beginning of one, `last`, `last~2`), and whether the
//! store is sound.
//!
//! Left out: whether histograms decode, which their owner knows.

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
    /// The store's own errors.
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
    /// The store's own errors.
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
    /// store's own errors.
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
    /// The store's own errors.
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
    /// The store's own errors.
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
    /// The store's own errors.
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
    /// The store's own errors; damage that lets the check go on is listed instead.
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

/// The title of runs that were made to explain another, which `last` passes over.
pub const EXPLANATION_TITLE: &str = "explain";

/// How many candidates an error lists.
const LISTED_MAX: usize = 6;

impl Store {
    /// The id of the run that `text` means.
    ///
    /// An exact id first, then `last` (the newest run that does not explain another) and `last~N` (the Nth before it),
    /// then the unique id that begins with `text`.
    ///
    /// # Errors
    /// [`StoreError::NoRun`] with the ids nearest to it, [`StoreError::Ambiguous`] with the ids
    /// that begin with it, and the store's own errors.
    pub fn find(&self, text: &str) -> Result<String, StoreError> {
        let ids = self.ids()?;
        let asked = text.trim();
        if ids.iter().any(|id| id == asked) {
            return Ok(asked.to_owned());
        }
        if let Some(back) = steps_back(asked) {
            let sql =
                "SELECT id FROM run WHERE title <> ?1 ORDER BY created_unix_ms DESC, key DESC";
            let ids: Vec<String> = self.query_all(sql, [EXPLANATION_TITLE], |row| row.get(0))?;
            return ids.get(back).cloned().ok_or_else(|| match ids.len() {
                0 => similar_runs_error(asked, &ids),
                count => StoreError::TooFewRuns { requested: asked.to_owned(), count },
            });
        }
        let mut candidates = ids.iter().filter(|id| !asked.is_empty() && id.starts_with(asked));
        match (candidates.next(), candidates.next()) {
            (None, _) => Err(similar_runs_error(asked, &ids)),
            (Some(only), None) => Ok(only.clone()),
            (Some(first), Some(second)) => Err(StoreError::Ambiguous {
                asked: asked.to_owned(),
                candidates: [first, second]
                    .into_iter()
                    .chain(candidates)
                    .take(LISTED_MAX)
                    .cloned()
                    .collect(),
            }),
        }
    }

    /// The error for a run that is not there.
    pub(super) fn run_not_found(&self, asked: &str) -> StoreError {
        match self.ids() {
            Ok(ids) => similar_runs_error(asked, &ids),
            Err(error) => error,
        }
    }

    /// The ids of all runs, newest first.
    fn ids(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT id FROM run ORDER BY created_unix_ms DESC, key DESC";
        self.query_all(sql, [], |row| row.get(0))
    }
}

/// How many runs before the newest `last` or `last~N` means.
fn steps_back(text: &str) -> Option<usize> {
    match text.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

/// The error that lists the ids most like `asked`, or the newest where none is.
fn similar_runs_error(asked: &str, ids: &[String]) -> StoreError {
    // Ids share their day, so likeness is Jaro–Winkler's, which weighs the beginning most.
    let mut scored: Vec<(f64, &String)> = ids
        .iter()
        .map(|id| {
            let bonus = if !asked.is_empty() && id.contains(asked) { 1.0 } else { 0.0 };
            (strsim::jaro_winkler(asked, id) + bonus, id)
        })
        .filter(|(score, _)| *score > 0.7)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut near: Vec<String> = scored.into_iter().map(|(_, id)| id.clone()).collect();
    if near.is_empty() {
        near = ids.to_vec();
    }
    near.truncate(LISTED_MAX);
    StoreError::NoRun { requested: asked.to_owned(), similar: near }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::fixture;

    fn store_with(ids: &[(&str, i64)]) -> (tempfile::TempDir, Store) {
        let (directory, mut store) = fixture::store();
        for (id, created_unix_ms) in ids {
            store.insert(&fixture::bare(id, *created_unix_ms)).unwrap();
        }
        (directory, store)
    }

    #[test]
    fn runs_are_found_by_id_prefix_and_age() {
        let (_directory, store) = store_with(&[
            ("ladder-20261120-aaaa", 1),
            ("ladder-20261121-bbbb", 3),
            ("latency-20261121-cccc", 2),
        ]);
        let found = |text: &str| store.find(text).unwrap();
        assert_eq!(found("ladder-20261120-aaaa"), "ladder-20261120-aaaa");
        assert_eq!(found("lat"), "latency-20261121-cccc");
        assert_eq!(found("last"), "ladder-20261121-bbbb");
        assert_eq!(found("last~1"), "latency-20261121-cccc");
        assert_eq!(found("last~2"), "ladder-20261120-aaaa");
    }

    #[test]
    fn an_exact_id_wins_over_longer_ones_and_over_last() {
        let (_directory, store) = store_with(&[("a", 1), ("ab", 2), ("last", 0)]);
        assert_eq!(store.find("a").unwrap(), "a");
        assert_eq!(store.find("last").unwrap(), "last");
    }

    #[test]
    fn a_name_that_fits_several_runs_lists_them() {
        let (_directory, store) =
            store_with(&[("ladder-20261120-aaaa", 1), ("ladder-20261121-bbbb", 2)]);
        let message = store.find("ladder").unwrap_err().to_string();
        assert!(message.contains("ladder-20261121-bbbb, ladder-20261120-aaaa"), "{message}");
    }

    #[test]
    fn a_name_that_fits_none_lists_the_nearest() {
        let (_directory, store) = store_with(&[
            ("ladder-20261120-aaaa", 1),
            ("throughput-20261121-9f3e", 2),
            ("call-kernel-20261121-77b1", 3),
        ]);
        for (asked, nearest) in [
            ("lader-20261120", "ladder-20261120-aaaa"),
            ("9f3e", "throughput-20261121-9f3e"),
            ("", "call-kernel-20261121-77b1"),
            ("last~x", "call-kernel-20261121-77b1"),
        ] {
            let Err(StoreError::NoRun { similar: near, .. }) = store.find(asked) else {
                panic!("{asked} found something");
            };
            assert_eq!(near[0], nearest, "asked for '{asked}'");
        }
        let few = store.find("last~3").unwrap_err();
        assert!(matches!(few, StoreError::TooFewRuns { count: 3, .. }), "{few}");
    }

    #[test]
    fn an_empty_store_says_that_there_is_no_run() {
        let (_directory, store) = store_with(&[]);
        let message = store.find("last").unwrap_err().to_string();
        assert!(message.starts_with("there is no run 'last' in the store;"), "{message}");
    }
}
