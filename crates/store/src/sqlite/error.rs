//! What can go wrong with a store, in words that say how to mend it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no file.
    #[error(
        "there is no store at {}: nothing has been measured into it yet; run `plumb` first, or \
         name another file with --store",
        path.display()
    )]
    Missing {
        /// Where it was expected.
        path: PathBuf,
    },
    /// There is a file without a run in it, not even a schema.
    #[error(
        "the store at {} is empty: nothing has been measured into it yet; run `plumb` first, or \
         name another file with --store",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else altogether.
    #[error(
        "{} is not a plumb store: it is not an SQLite file; nothing was changed; name the right \
         file with --store (results of other tools are read by `plumb import`)",
        path.display()
    )]
    NotSqlite {
        /// The file.
        path: PathBuf,
    },
    /// The file is an SQLite database of another program.
    #[error(
        "{} is not a plumb store: it is the SQLite database of another program (application id \
         {application_id:#010x}); nothing was changed; name the right file with --store",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// `PRAGMA application_id`.
        application_id: i64,
    },
    /// The file was written by a newer plumb.
    #[error(
        "the store {} has schema version {found}, and this plumb knows versions up to \
         {supported}: a newer plumb wrote it; nothing was changed; upgrade plumb, or name another \
         file with --store",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version known here.
        supported: i64,
    },
    /// The file or its directory cannot be written, or not be made.
    #[error(
        "cannot write the store {}: {reason}; make the file and its directory writable, or name \
         another file with --store",
        path.display()
    )]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What stands in the way.
        reason: String,
    },
    /// The file is there and cannot be opened.
    #[error(
        "cannot read the store {}: {reason}; check the permissions of the file and of its \
         directory, or name another file with --store",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What stands in the way.
        reason: String,
    },
    /// There is no room for more.
    #[error(
        "the store {} cannot grow: {}; everything stored before is safe; {} and continue with \
         `plumb run --resume`, or name another file with --store",
        path.display(), limit.reason(), limit.remedy()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// The limit that was reached.
        limit: StoreLimit,
    },
    /// Another process held the database for longer than we wait.
    #[error(
        "the store {} is busy: another process has been writing to it for more than \
         {waited_s} s; wait for it or stop it, then try again",
        path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// Seconds waited.
        waited_s: u64,
    },
    /// The file is damaged.
    #[error(
        "the store {} is damaged: {detail}; copy the file away, then rescue what is readable with \
         `sqlite3 FILE .recover` and measure into a new file with --store",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// A run of that name is not there.
    #[error(
        "there is no run '{requested}' in the store{}; `plumb runs` lists all",
        suggestions(similar)
    )]
    NoRun {
        /// What was asked for.
        requested: String,
        /// Ids that look like it, best first.
        similar: Vec<String>,
    },
    /// There are not so many runs before the last.
    #[error(
        "there is no run '{requested}': the store has {count}, so the oldest is 'last~{}'; `plumb runs` lists all",
        count - 1
    )]
    TooFewRuns {
        /// What was asked for.
        requested: String,
        /// How many runs there are; at least one.
        count: usize,
    },
    /// Several runs go by that name.
    #[error(
        "'{asked}' could be any of {}: type more of the id",
        candidates.join(", ")
    )]
    Ambiguous {
        /// What was asked for.
        asked: String,
        /// The ids that begin with it, newest first.
        candidates: Vec<String>,
    },
    /// A run of that name is there already.
    #[error("the store already has a run '{id}': nothing was changed; choose another id")]
    RunExists {
        /// The id.
        id: String,
    },
    /// A record contradicts what is stored, or cannot be stored at all.
    #[error("cannot store {record}: {reason}; this is a defect in plumb, please report it")]
    Invalid {
        /// Which record.
        record: String,
        /// What is wrong with it.
        reason: String,
    },
    /// SQLite said something else.
    #[error("the store {} failed: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

/// What a store that cannot grow has too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreLimit {
    /// Space on the device, or in the user's quota.
    DiskSpace,
    /// What the process may write into one file, in bytes: RLIMIT_FSIZE of setrlimit(2).
    FileSize(u64),
}

impl StoreLimit {
    fn reason(self) -> String {
        match self {
            Self::DiskSpace => "its file system is full or its quota is used up".to_owned(),
            Self::FileSize(bytes) => {
                format!("no file may be longer than {bytes} bytes here (ulimit -f)")
            }
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::DiskSpace => "free some space",
            Self::FileSize(_) => "raise that limit",
        }
    }

    /// The limit on the size of files, where a file of the store has come up to it.
    ///
    /// SQLite says that a write failed, and keeps EFBIG to itself.
    fn file_limit(path: &Path) -> Option<Self> {
        let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max file size"))?;
        // The soft limit; "unlimited" is no number.
        let limit = line.split_whitespace().next()?.parse().ok()?;
        let length = |suffix| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            std::fs::metadata(name).map_or(0, |file| file.len())
        };
        let longest = ["", "-wal", "-shm"].into_iter().map(length).max()?;
        (longest.saturating_add(WRITE_MAX) > limit).then_some(Self::FileSize(limit))
    }
}

/// The most that SQLite adds to a file at once: its largest page (SQLite file format, §1.3.2).
const WRITE_MAX: u64 = 64 << 10;

impl StoreError {
    /// The store's view of an SQLite error.
    pub(super) fn from_sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        let detail = source.to_string();
        match &source {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => Self::Corrupt { path, detail },
            rusqlite::Error::SqliteFailure(error, _) => match error.code {
                ErrorCode::DiskFull => Self::Full { path, limit: StoreLimit::DiskSpace },
                ErrorCode::SystemIoFailure => match StoreLimit::file_limit(&path) {
                    Some(room) => Self::Full { path, limit: room },
                    None if is_full(&path) => Self::Full { path, limit: StoreLimit::DiskSpace },
                    None => Self::Sqlite { path, source },
                },
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                    Self::Busy { path, waited_s: super::BUSY_TIMEOUT.as_secs() }
                }
                ErrorCode::DatabaseCorrupt => Self::Corrupt { path, detail },
                ErrorCode::NotADatabase => Self::NotSqlite { path },
                ErrorCode::ReadOnly => Self::Unwritable { path, reason: detail },
                ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
                    Self::Unreadable { path, reason: detail }
                }
                _ => Self::Sqlite { path, source },
            },
            _ => Self::Sqlite { path, source },
        }
    }

    /// The store's view of a failure to read the file.
    pub(super) fn unreadable(path: &Path, source: &io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path: path.to_owned() },
            io::ErrorKind::IsADirectory => {
                Self::Unreadable { path: path.to_owned(), reason: "it is a directory".to_owned() }
            }
            _ => Self::Unreadable { path: path.to_owned(), reason: source.to_string() },
        }
    }
}

/// Whether the file system of a store has no room for what SQLite adds at once: it reports some writes that fail for
/// that as any other.
fn is_full(path: &Path) -> bool {
    let mut trial = path.as_os_str().to_owned();
    trial.push("-space");
    let trial = Path::new(&trial);
    let written = std::fs::write(trial, vec![1; usize::try_from(WRITE_MAX).unwrap_or(0)]);
    std::fs::remove_file(trial).ok();
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    written.is_err_and(|error| full.contains(&error.kind()))
}

fn suggestions(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; near it: {}", near.join(", ")),
    }
}
