//! A directory for names that must exist for a moment: sockets and named pipes.
//!
//! It is removed as soon as the channel is open. A process killed in that moment leaves it
//! behind; its name tells whose it was, and [`sweep`] removes it at the next start.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::{fs, io};

use plumb_sys::process;

/// A directory of this process's own, removed when dropped.
#[derive(Debug)]
pub(crate) struct ScratchDirectory {
    directory: PathBuf,
}

impl ScratchDirectory {
    /// Makes the directory, readable by this user alone.
    pub(crate) fn new(seed: u64) -> io::Result<Self> {
        let pid = std::process::id();
        let directory = std::env::temp_dir().join(format!("{}{pid}-{seed:016x}", prefix()));
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self { directory })
    }

    /// The path of a name in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The same as a C string.
    pub(crate) fn c_path(&self, name: &str) -> io::Result<CString> {
        CString::new(self.path(name).as_os_str().as_bytes()).map_err(io::Error::other)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // A directory that cannot be removed now is swept at the next start.
        drop(fs::remove_dir_all(&self.directory));
    }
}

fn prefix() -> String {
    format!("plumb-{}-", process::effective_user())
}

/// Removes what killed processes of this user left behind; returns how many directories.
pub fn sweep() -> usize {
    let prefix = prefix();
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return 0 };
    let stale = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.split('-').next());
        owner.and_then(|pid| pid.parse().ok()).is_some_and(|pid: u32| !process::exists(pid))
    });
    stale.filter(|entry| fs::remove_dir_all(entry.path()).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeping_removes_only_directories_of_dead_processes() {
        let own = ScratchDirectory::new(1).unwrap();
        // Process ids end at 2²² on Linux.
        let dead = std::env::temp_dir().join(format!("{}4194999-0", prefix()));
        fs::create_dir_all(&dead).unwrap();
        // How many it removes is nobody's to say: a plumb that starts meanwhile sweeps as well.
        sweep();
        assert!(!dead.exists());
        assert!(own.directory.exists());
        let path = own.directory.clone();
        drop(own);
        assert!(!path.exists());
    }
}
