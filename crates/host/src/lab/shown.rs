//! Files that a tree of processes sees at the place of others: `/etc/resolv.conf`, `/etc/hosts`.
//!
//! They are in memory and in the tree's own mounts: nothing outside changes, and they end with it.
//! Left out: what is in them.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plumb_sys::namespace;

use super::LabError;

/// Directories over which a file may be made for a moment.
const PASSING: [&str; 4] = ["/mnt", "/srv", "/opt", "/var/tmp"];

/// Shows text at the place of a file that exists; of a symbolic link, at the place of what it leads
/// to. To be called in a tree of its own mounts: see [`super::Contained::begin`].
///
/// # Errors
/// There is no such file; the kernel refuses a mount.
pub fn show_text(place: &Path, text: &str) -> Result<(), LabError> {
    let refused = |error| LabError::refused(format!("show another {}", place.display()), error);
    let place = fs::canonicalize(place).map_err(refused)?;
    let directory = passing_place().map_err(refused)?;
    let directory_words = words(&directory).map_err(refused)?;
    namespace::mount_memory(&directory_words).map_err(refused)?;
    let shown = || -> io::Result<()> {
        let file = directory.join("shown");
        fs::write(&file, text)?;
        namespace::mount_over(&words(&file)?, &words(&place)?)
    };
    let outcome = shown();
    // What is shown keeps the memory that it is in.
    namespace::unmount(&directory_words).map_err(refused)?;
    outcome.map_err(refused)
}

/// Hides what is in a directory; nothing where there is none.
///
/// # Errors
/// The kernel refuses a mount.
pub fn hide_directory(place: &Path) -> Result<(), LabError> {
    let refused = |error| LabError::refused(format!("hide {}", place.display()), error);
    if !place.is_dir() {
        return Ok(());
    }
    namespace::mount_memory(&words(place).map_err(refused)?).map_err(refused)
}

fn passing_place() -> io::Result<PathBuf> {
    let found = PASSING.iter().map(PathBuf::from).find(|place| place.is_dir());
    found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn words(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}
