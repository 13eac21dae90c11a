//! Files that are either old or new, never half: written beside, made durable, put in place at once.
//!
//! Left out: what is in them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes a directory and its parents, for its owner alone.
pub(super) fn create_private_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Reads a file of at most `bytes_max`.
pub(super) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > bytes_max) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is larger than it can be",
        ));
    }
    Ok(bytes)
}

/// Puts `bytes` in the place of `path`, readable for the owner alone.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = write_beside(path, bytes)?;
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))?;
    make_entry_durable(path)
}

/// Puts `bytes` at `path` unless somebody else has been quicker.
///
/// # Errors
/// `AlreadyExists` then; what was there stays.
pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = write_beside(path, bytes)?;
    // A link is made whole or not at all, and never over another file.
    let linked = fs::hard_link(&beside, path);
    fs::remove_file(&beside).ok();
    linked?;
    make_entry_durable(path)
}

fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.{count}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(&beside)))?;
    Ok(beside)
}

fn make_entry_durable(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_private_replaced_whole_and_never_created_over_another() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/er/file");
        create_private_directory(path.parent().unwrap()).unwrap();
        create(&path, b"first").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path, b"other").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_bounded(&path, 5).unwrap(), b"first");
        replace(&path, b"second").unwrap();
        assert_eq!(read_bounded(&path, 6).unwrap(), b"second");
        assert_eq!(read_bounded(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing left beside");
    }
}
