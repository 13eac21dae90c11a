//! The kernel's files, read below a root that tests can replace.
//!
//! Left out: what any file means. A file that is missing or unreadable is an answer here, never a
//! failure of the whole.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Longest file that is read: /proc and /sys hold text of a few pages.
const BYTES_MAX: u64 = 4 << 20;

/// A directory tree with `proc` and `sys` in it: the machine's own, or a fixture.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

/// Why a file gave no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// There is no such file: the kernel lacks the feature, or hides it.
    #[error("absent")]
    Absent,
    /// It is there, but reading it failed.
    #[error("unreadable: {0}")]
    Unreadable(String),
}

impl Tree {
    /// The machine plumb runs on.
    pub fn machine() -> Self {
        Self::at("/")
    }

    /// A tree below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where `path`, written without a leading slash, is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The whole text of a file, without white space around it.
    ///
    /// # Errors
    /// Says whether the file is absent or cannot be read.
    pub fn text(&self, path: &str) -> Result<String, Missing> {
        let mut bytes = Vec::new();
        File::open(self.path(path))
            .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|error| Missing::from(&error))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The text of a file on one line, or the reason why there is none.
    pub fn text_or_reason(&self, path: &str) -> String {
        match self.text(path) {
            Ok(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
            Err(missing) => missing.to_string(),
        }
    }

    /// The number in a file, if it holds just that.
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path).ok()?.parse().ok()
    }

    /// Whether there is such a file or directory.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a directory, sorted; none where it is absent or unreadable.
    pub fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = list(&self.path(path)).unwrap_or_default();
        names.sort();
        names
    }
}

impl From<&io::Error> for Missing {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Absent,
            io::ErrorKind::PermissionDenied => Self::Unreadable("permission denied".to_owned()),
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

fn list(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_an_answer_and_a_directory_is_not_a_text() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sys")).unwrap();
        fs::write(dir.path().join("sys/lines"), " a  b\nc \n").unwrap();
        let tree = Tree::at(dir.path());
        assert_eq!(tree.text("sys/none"), Err(Missing::Absent));
        assert_eq!(tree.text("sys/lines/below"), Err(Missing::Absent));
        assert!(tree.text_or_reason("sys").starts_with("unreadable: "));
        assert_eq!(tree.text_or_reason("sys/lines"), "a b c");
        assert_eq!(tree.number::<u32>("sys/lines"), None);
        assert_eq!(tree.names("sys"), ["lines"]);
    }
}
