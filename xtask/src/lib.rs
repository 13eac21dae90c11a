//! The project's own chores, as a library so that tests can call them.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

pub mod clauses;
pub mod mutations;
pub mod packetdrill;
pub mod peer_bench;
pub mod stats;
pub mod tidy;

/// A text file of the project.
#[derive(Clone, Debug)]
pub(crate) struct ProjectFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl ProjectFile {
    pub fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == extension)
    }

    /// Lines with their numbers, counted from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Every text file that git tracks or would track; binary files are passed over.
pub(crate) fn project_files(root: &Path) -> anyhow::Result<Vec<ProjectFile>> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git could not be run; it says which files belong to the project")?;
    if !listing.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr).trim());
    }
    let listing = String::from_utf8(listing.stdout).context("a path is not UTF-8")?;
    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        let full: PathBuf = root.join(path);
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("{path} cannot be read"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(ProjectFile { path: path.to_owned(), text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> ProjectFile {
    ProjectFile { path: path.to_owned(), text: text.to_owned() }
}
