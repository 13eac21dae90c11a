//! Which version a store's schema has, and the steps from one version to the next.
//!
//! A new version is one more file beside `schema/v1.sql` and one more line in [`STEPS`]; old steps
//! never change, and `tests/fixtures/store-v*.db` holds a store of every version. Left out: what
//! the rows mean.

use rusqlite::{Connection, TransactionBehavior};

/// `PRAGMA application_id` of every store: `plmb`.
pub(super) const APPLICATION_ID: i64 = 0x706c_6d62;

/// Step n brings a store from version n to version n + 1.
const STEPS: &[&str] =
    &[include_str!("schema/v1.sql"), include_str!("schema/v2.sql"), include_str!("schema/v3.sql")];

/// The version this program writes.
#[expect(clippy::cast_possible_wrap, reason = "a handful of steps")]
pub const VERSION: i64 = STEPS.len() as i64;

/// What a database file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseIdentity {
    /// Nothing in it yet.
    Blank,
    /// A store of this version.
    Store(i64),
    /// Another program's.
    Foreign {
        /// Its application id, 0 when it has none.
        application_id: i64,
    },
}

/// Looks at a database without changing it.
///
/// One transaction around the three questions: between two of them another process may be making
/// the store, and half of each answer would look like another program's file.
pub(super) fn identify(connection: &Connection) -> rusqlite::Result<DatabaseIdentity> {
    let snapshot = connection.unchecked_transaction()?;
    let number = |sql| snapshot.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application_id = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    snapshot.finish()?;
    Ok(match (application_id, version, tables) {
        (APPLICATION_ID, version, _) => DatabaseIdentity::Store(version),
        (0, 0, 0) => DatabaseIdentity::Blank,
        _ => DatabaseIdentity::Foreign { application_id },
    })
}

/// Brings a blank database or an older store to [`VERSION`], one transaction a step.
///
/// Two processes may do so at once: each step looks at the version again inside its transaction.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    migrate_by(connection, STEPS)
}

fn migrate_by(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let Some(step) = usize::try_from(version).ok().and_then(|version| steps.get(version))
        else {
            return transaction.commit();
        };
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", version + 1)?;
        transaction.commit()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RunData;
    use crate::sqlite::{Store, StoreMode, fixture};
    use std::path::{Path, PathBuf};

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
    }

    #[test]
    fn a_store_grows_step_by_step_and_keeps_its_rows() {
        let mut connection = Connection::open_in_memory().unwrap();
        let mut steps = STEPS.to_vec();
        migrate_by(&mut connection, &steps).unwrap();
        connection
            .execute_batch("INSERT INTO run VALUES (1,'a','t',0,'complete','',0,'','{}','{}')")
            .unwrap();
        steps.push("ALTER TABLE run ADD COLUMN place TEXT NOT NULL DEFAULT 'here'");
        migrate_by(&mut connection, &steps).unwrap();
        assert_eq!(identify(&connection).unwrap(), DatabaseIdentity::Store(VERSION + 1));
        let place: String =
            connection.query_row("SELECT place FROM run", [], |row| row.get(0)).unwrap();
        assert_eq!(place, "here");
    }

    #[test]
    fn a_step_that_fails_leaves_the_version_before_it() {
        let mut connection = Connection::open_in_memory().unwrap();
        let steps = [STEPS[0], "CREATE TABLE extra (a); CREATE TABLE run (b)"];
        migrate_by(&mut connection, &steps).unwrap_err();
        assert_eq!(identify(&connection).unwrap(), DatabaseIdentity::Store(1));
        let extra = "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'";
        assert_eq!(connection.query_row(extra, [], |row| row.get::<_, i64>(0)), Ok(0));
    }

    /// The golden file was written by version 1's first release; `PLUMB_WRITE_GOLDEN=1` writes the
    /// present version's, which is done once, when the version is made.
    #[test]
    fn stores_of_every_version_still_read_as_they_were_written() {
        if std::env::var_os("PLUMB_WRITE_GOLDEN").is_some() {
            write_golden();
        }
        for version in 1..=VERSION {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("plumb.db");
            std::fs::copy(fixture(&format!("store-v{version}.db")), &path).unwrap();
            let json = std::fs::read(fixture(&format!("store-v{version}.json"))).unwrap();
            let expected: RunData = serde_json::from_slice(&json).unwrap();
            let store = Store::open(&path, StoreMode::Read).unwrap();
            assert_eq!(store.load(&expected.run.id).unwrap(), expected);
            assert_eq!(store.check(|_| Vec::new()).unwrap(), Vec::<String>::new());
        }
    }

    fn write_golden() {
        let path = fixture(&format!("store-v{VERSION}.db"));
        std::fs::remove_file(&path).ok();
        let data = fixture::run_data("golden-20261121-0001");
        let mut store = Store::open(&path, StoreMode::Write).unwrap();
        store.insert(&data).unwrap();
        drop(store);
        let json = serde_json::to_vec(&data).unwrap();
        std::fs::write(path.with_extension("json"), json).unwrap();
    }
}
