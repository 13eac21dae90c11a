//! Whether a store is sound.
//!
//! Left out: whether histograms decode, which their owner knows.

use rusqlite::Row;

use super::{Store, StoreError};
use crate::record::RunData;

impl Store {
    /// Everything wrong with the store, in words; nothing when it is sound.
    ///
    /// As [`Store::check`], which hears nothing of the runs.
    ///
    /// # Errors
    /// The store's own troubles; damage that lets the check go on is listed instead.
    pub fn integrity(&self) -> Result<Vec<String>, StoreError> {
        self.check(|_| Vec::new())
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
}

fn describe_dangling_row(row: &Row<'_>) -> rusqlite::Result<String> {
    let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
    let rowid: Option<i64> = row.get(1)?;
    let which = rowid.map_or(String::new(), |rowid| format!(" (row {rowid})"));
    Ok(format!("a {table}{which} belongs to a {parent} that is not there"))
}
