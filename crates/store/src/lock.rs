//! One measuring run per store at a time.
//!
//! Two runs at once would disturb each other's numbers, so measuring takes an advisory lock,
//! flock(2), on `<store>.lock`. The kernel releases it when its holder ends, however it ends.
//! Reading takes no lock. Left out: guarding the database itself, which SQLite does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Why the lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody is measuring into this store.
    #[error(
        "the store {} is being measured into by {holder}: two runs at once would spoil each \
         other's numbers; wait for it, stop it, or measure into another file with --store",
        store.display()
    )]
    Held {
        /// The store.
        store: PathBuf,
        /// The holder of the lock, as far as the lock file tells.
        holder: LockHolder,
    },
    /// The lock file cannot be opened or locked.
    #[error(
        "cannot lock the store {}: {source} ({}); its directory must be writable on a file \
         system with locks, or choose another place with --store",
        store.display(),
        file.display()
    )]
    Unusable {
        /// The store.
        store: PathBuf,
        /// The lock file.
        file: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// The process that measures, as it wrote itself into the lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process id, when it got as far as writing it.
    pub pid: Option<u32>,
    /// Its run, likewise.
    pub run: Option<String>,
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.pid, &self.run) {
            (Some(pid), Some(run)) => write!(f, "run {run} (process {pid})"),
            (Some(pid), None) => write!(f, "process {pid}"),
            _ => f.write_str("another run that is just starting"),
        }
    }
}

/// The right to measure into a store; released when dropped.
#[derive(Debug)]
pub struct MeasureLock {
    file: File,
}

impl MeasureLock {
    /// Takes the lock of the store at `store` for `run`, measured by process `pid`.
    ///
    /// # Errors
    /// [`LockError::Held`] when another process measures into this store, and
    /// [`LockError::Unusable`] when the lock file cannot be made or locked.
    pub fn acquire(store: &Path, pid: u32, run: &str) -> Result<Self, LockError> {
        let path = lock_path(store);
        let unusable =
            |source| LockError::Unusable { store: store.into(), file: path.clone(), source };
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(unusable)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(unusable)?;
        match lock_exclusive(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held {
                    store: store.into(),
                    holder: read_holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let mut lock = Self { file };
        lock.write_holder(&format!("{pid} {run}\n")).map_err(unusable)?;
        Ok(lock)
    }

    /// Names the run once it is known, where the lock was taken before.
    ///
    /// # Errors
    /// What the operating system says about a failed write.
    pub fn rename(&mut self, pid: u32, run: &str) -> io::Result<()> {
        self.write_holder(&format!("{pid} {run}\n"))
    }

    fn write_holder(&mut self, text: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for MeasureLock {
    fn drop(&mut self) {
        // The file stays: unlinking it would let a third process lock a file nobody else sees.
        // Its text is cleared on the way out; a failure to do so harms nobody.
        self.file.set_len(0).ok();
        // Closing alone does not release it while a forked child, before its execve(2), has a copy of the descriptor.
        self.file.unlock().ok();
    }
}

/// Locks the file for this process alone; would block only while a run holds it.
///
/// Whoever asks `measuring` holds it too, shared and for an instant: that is waited out.
fn lock_exclusive(file: &File) -> Result<(), TryLockError> {
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {}
            done => return done,
        }
        // A run shares with nobody.
        file.try_lock_shared()?;
        file.unlock().map_err(TryLockError::Error)?;
        std::thread::yield_now();
    }
}

/// Who measures into the store at this moment, if anybody does.
///
/// Takes the lock for an instant when it is free. A lock file that is missing or cannot be opened
/// counts as free.
pub fn current_holder(store: &Path) -> Option<LockHolder> {
    let mut file = File::open(lock_path(store)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read_holder(&mut file)),
        Ok(()) => {
            file.unlock().ok();
            None
        }
        Err(TryLockError::Error(_)) => None,
    }
}

/// `<store>.lock`.
fn lock_path(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn read_holder(file: &mut File) -> LockHolder {
    let mut bytes = Vec::new();
    // Bounded, because the file may be anything.
    if file.take(512).read_to_end(&mut bytes).is_err() {
        return LockHolder::default();
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|word| word.parse().ok());
    LockHolder { pid, run: pid.and(words.next()).map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_measuring_run_is_told_who_holds_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("new/plumb.db");
        assert_eq!(current_holder(&store), None);
        let mut first = MeasureLock::acquire(&store, 42, "ladder-1").unwrap();
        let message = MeasureLock::acquire(&store, 43, "ladder-2").unwrap_err().to_string();
        assert!(message.contains("run ladder-1 (process 42)"), "{message}");
        first.rename(42, "b").unwrap();
        assert_eq!(current_holder(&store).unwrap().run.as_deref(), Some("b"));
        drop(first);
        assert_eq!(current_holder(&store), None);
        MeasureLock::acquire(&store, 43, "ladder-2").unwrap();
    }

    #[test]
    fn whoever_only_asks_keeps_no_run_from_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("plumb.db");
        drop(MeasureLock::acquire(&store, 1, "first").unwrap());
        let asked = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !asked.load(std::sync::atomic::Ordering::Relaxed) {
                        current_holder(&store);
                    }
                });
            }
            // A window of microseconds, hence many runs.
            let refused = (0..20_000).find_map(|_| MeasureLock::acquire(&store, 2, "next").err());
            asked.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(refused.is_none(), "{}", refused.unwrap());
        });
    }

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_a_store_locked() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("plumb.db");
        let first = MeasureLock::acquire(&store, 1, "first").unwrap();
        // Like that of a forked child before execve(2).
        let _copy = first.file.try_clone().unwrap();
        drop(first);
        assert_eq!(current_holder(&store), None);
        MeasureLock::acquire(&store, 2, "next").unwrap();
    }

    #[test]
    fn garbage_in_the_lock_file_names_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("plumb.db");
        let held = MeasureLock::acquire(&store, 1, "x").unwrap();
        std::fs::write(lock_path(&store), b"\xff\xfe\0 nonsense").unwrap();
        let message = MeasureLock::acquire(&store, 2, "y").unwrap_err().to_string();
        assert!(message.contains("another run that is just starting"), "{message}");
        drop(held);
    }

    #[test]
    fn a_place_that_cannot_hold_a_lock_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = MeasureLock::acquire(&file.join("plumb.db"), 1, "x").unwrap_err();
        assert!(matches!(error, LockError::Unusable { .. }), "{error}");
    }
}
