//! The store: one SQLite file with every run in it.
//!
//! Each block is one transaction in write-ahead-log mode, so that whatever kills the program, at
//! most the block in flight is lost; reading goes on while a run measures. Left out: who may
//! measure ([`crate::lock`]).
//!
//! A new version of its schema is one more file beside `schema/v1.sql` and one more line in `STEPS`; old steps never change,
//! and `tests/fixtures/store-v*.db` holds a store of every version.
//!
//! Its default path follows the XDG base directory specification.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

mod error;
pub mod read;
mod rows;
mod sample_codec;
mod write;

#[cfg(test)]
pub(crate) mod fixture;

pub use error::{StoreError, StoreLimit};
pub use read::RunListing;

/// How long one process waits for another to finish a transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The first bytes of every SQLite 3 file (SQLite file format, §1.3).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Only reading; nothing on disk changes, except that an older schema is brought up to date.
    Read,
    /// Reading and writing; file and directories are made where they are missing.
    Write,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the store at `path`.
    ///
    /// # Errors
    /// Every way in which a file is not a store this program may use, one variant each; the file
    /// is left as it was.
    pub fn open(path: &Path, mode: StoreMode) -> Result<Self, StoreError> {
        match mode {
            StoreMode::Read => Self::open_for_reading(path),
            StoreMode::Write => Self::open_for_writing(path),
        }
    }

    /// An empty store in memory, gone when it is dropped.
    ///
    /// # Errors
    /// SQLite cannot make one.
    pub fn in_memory() -> Result<Self, StoreError> {
        let path = Path::new(":memory:");
        let connection =
            Connection::open_in_memory().map_err(|source| StoreError::from_sqlite(path, source))?;
        Self::initialize(connection, path)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_for_reading(path: &Path) -> Result<Self, StoreError> {
        let fault = |source| StoreError::from_sqlite(path, source);
        if read_signature(path)? == FileSignature::Empty {
            return Err(StoreError::Empty { path: path.to_owned() });
        }
        let (connection, identity) = connect_for_reading(path).map_err(fault)?;
        match identity {
            DatabaseIdentity::Blank => Err(StoreError::Empty { path: path.to_owned() }),
            DatabaseIdentity::Store(VERSION) => Ok(Self { connection, path: path.to_owned() }),
            DatabaseIdentity::Store(1..VERSION) => {
                drop(connection);
                Self::open_for_writing(path)
            }
            unfit => Err(identity_error(path, unfit)),
        }
    }

    fn open_for_writing(path: &Path) -> Result<Self, StoreError> {
        let unwritable = |reason: String| StoreError::Unwritable { path: path.to_owned(), reason };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|source| unwritable(source.to_string()))?;
        }
        match read_signature(path) {
            Ok(_) | Err(StoreError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .map_err(|source| unwritable(source.to_string()))?;
        // The log that is written through is a file beside the store.
        Self::initialize(connection, path).map_err(|error| match error {
            StoreError::Unreadable { reason, .. } => {
                unwritable(format!("{reason} (its directory may be read-only)"))
            }
            other => other,
        })
    }

    /// Takes a fresh connection for writing: checks what it is, then sets it up.
    fn initialize(mut connection: Connection, path: &Path) -> Result<Self, StoreError> {
        let fault = |source| StoreError::from_sqlite(path, source);
        set_up(&connection).map_err(fault)?;
        match identify(&connection).map_err(fault)? {
            DatabaseIdentity::Blank | DatabaseIdentity::Store(1..=VERSION) => {}
            unfit => return Err(identity_error(path, unfit)),
        }
        // SQLite falls back to reading when the file is write-protected.
        if connection.is_readonly("main").map_err(fault)? {
            return Err(StoreError::Unwritable {
                path: path.to_owned(),
                reason: "the file is read-only".to_owned(),
            });
        }
        enable_wal(&connection).map_err(fault)?;
        connection
            .execute_batch("PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;")
            .map_err(fault)?;
        migrate(&mut connection).map_err(fault)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// The store's view of an SQLite error.
    fn error(&self, source: rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, source)
    }
}

/// Has the file written through a write-ahead log.
///
/// The change of a new file needs it alone, and for that SQLite refuses at once instead of waiting
/// while others look at it (they would wait for each other): so ask again, for some seconds.
fn enable_wal(connection: &Connection) -> rusqlite::Result<()> {
    const TRIES: u32 = 200_000;
    let change = || connection.execute_batch("PRAGMA journal_mode = WAL;");
    for _ in 1..TRIES {
        match change() {
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                std::thread::yield_now();
            }
            done => return done,
        }
    }
    change()
}

/// What a file begins with.
#[derive(PartialEq, Eq)]
enum FileSignature {
    Empty,
    Sqlite,
}

/// Looks at the first bytes, so that no other program's file is ever handed to SQLite.
fn read_signature(path: &Path) -> Result<FileSignature, StoreError> {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head))
        .map_err(|source: io::Error| StoreError::unreadable(path, &source))?;
    match head.as_slice() {
        [] => Ok(FileSignature::Empty),
        head if head == MAGIC => Ok(FileSignature::Sqlite),
        _ => Err(StoreError::NotSqlite { path: path.to_owned() }),
    }
}

/// A reading connection to an SQLite file.
///
/// A write-ahead log needs a shared-memory file beside it even for reading. Where that cannot be
/// made, in a directory we may not write to, a store without a log is read as one that nobody
/// changes (`immutable`, SQLite URI file names).
fn connect_for_reading(path: &Path) -> rusqlite::Result<(Connection, DatabaseIdentity)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let plain = Connection::open_with_flags(path, flags).and_then(|connection| {
        set_up(&connection)?;
        let identity = identify(&connection)?;
        Ok((connection, identity))
    });
    let Err(error) = plain else { return plain };
    let refused = matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::ReadOnly)
    );
    if !refused || log_has_content(path) {
        return Err(error);
    }
    let connection =
        Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?;
    set_up(&connection)?;
    let identity = identify(&connection)?;
    Ok((connection, identity))
}

/// What every connection needs before its first statement. The file may be another's: its views and triggers may
/// call no function that does more than compute (SQLite, `PRAGMA trusted_schema`).
fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA trusted_schema = OFF;")
}

fn log_has_content(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(PathBuf::from(log)).is_ok_and(|metadata| metadata.len() > 0)
}

/// `file:PATH?immutable=1`, with every byte escaped that could mean something in a URI.
fn immutable_uri(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let escaped: String = absolute
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .map(|&byte| match byte {
            b'/' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    format!("file:{escaped}?immutable=1")
}

/// Why a file of this identity is not used.
fn identity_error(path: &Path, identity: DatabaseIdentity) -> StoreError {
    let path = path.to_owned();
    match identity {
        DatabaseIdentity::Blank => StoreError::Empty { path },
        DatabaseIdentity::Foreign { application_id } => {
            StoreError::Foreign { path, application_id }
        }
        DatabaseIdentity::Store(found) if found < 1 => {
            StoreError::Corrupt { path, detail: format!("its schema version is {found}") }
        }
        DatabaseIdentity::Store(found) => StoreError::Newer { path, found, supported: VERSION },
    }
}

/// `PRAGMA application_id` of every store: `plmb`.
const APPLICATION_ID: i64 = 0x706c_6d62;

/// Step n brings a store from version n to version n + 1.
const STEPS: &[&str] = &[
    include_str!("sqlite/schema/v1.sql"),
    include_str!("sqlite/schema/v2.sql"),
    include_str!("sqlite/schema/v3.sql"),
];

/// The version this program writes.
#[expect(clippy::cast_possible_wrap, reason = "a handful of steps")]
pub const VERSION: i64 = STEPS.len() as i64;

/// What a database file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatabaseIdentity {
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
fn identify(connection: &Connection) -> rusqlite::Result<DatabaseIdentity> {
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
fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
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

/// No place for the store could be worked out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no place for the store: neither PLUMB_STORE, XDG_DATA_HOME nor HOME is set; \
     pass --store FILE or set PLUMB_STORE"
)]
pub struct StoreLocationError;

/// The path of the store: `explicit`, else `$PLUMB_STORE`, else `plumb/plumb.db` in
/// `$XDG_DATA_HOME`, else in `$HOME/.local/share`.
///
/// `environment` looks a variable up, so that this function asks the process nothing. Empty
/// variables count as unset, and a relative `$XDG_DATA_HOME` is ignored (XDG base directory
/// specification 0.8).
///
/// # Errors
/// When none of them is given.
pub fn default_path(
    explicit: Option<PathBuf>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, StoreLocationError> {
    let variable =
        |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    explicit
        .or_else(|| variable("PLUMB_STORE"))
        .or_else(|| {
            let data = variable("XDG_DATA_HOME").filter(|path| path.is_absolute())?;
            Some(data.join("plumb/plumb.db"))
        })
        .or_else(|| Some(variable("HOME")?.join(".local/share/plumb/plumb.db")))
        .ok_or(StoreLocationError)
}

#[cfg(test)]
mod tests;
