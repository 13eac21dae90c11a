//! Documents that are kept with a run: what was read while it was measured and could explain its results.
//!
//! By the name of their schema, one of each; they go with their run. Left out: what is in them.

use rusqlite::{OptionalExtension as _, named_params};

use super::write::StoreWriteError;
use super::{Store, StoreError};

impl Store {
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
}

#[cfg(test)]
mod tests {
    use crate::sqlite::{Store, StoreError, StoreMode, fixture};

    #[test]
    fn a_document_stays_with_its_run_and_goes_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(&directory.path().join("plumb.db"), StoreMode::Write).unwrap();
        let data = fixture::run_data("net-20261121-0001");
        store.insert(&data).unwrap();
        let id = &data.run.id;
        assert_eq!(store.attachment(id, "plumb.net/1").unwrap(), None);
        store.put_attachment(id, "plumb.net/1", "{\"a\":1}").unwrap();
        store.put_attachment(id, "plumb.net/1", "{\"a\":2}").unwrap();
        assert_eq!(store.attachment(id, "plumb.net/1").unwrap().unwrap(), "{\"a\":2}");
        let absent = store.put_attachment("nobody", "plumb.net/1", "{}").unwrap_err();
        assert!(matches!(absent, StoreError::NoRun { .. }), "{absent}");
        store.delete_run(id).unwrap();
        assert_eq!(store.attachment(id, "plumb.net/1").unwrap(), None);
        store.insert(&data).unwrap();
        assert_eq!(store.attachment(id, "plumb.net/1").unwrap(), None);
    }
}
