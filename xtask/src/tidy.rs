//! Tidy: the rules of the house that neither the compiler nor clippy can check.
//!
//! Reads the tree and reports; it changes nothing. Left out: formatting (rustfmt), lints (clippy),
//! advisories (cargo-deny), and whether a published schema matches its type (a test of
//! `plumb-analysis`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

mod arrows;
mod licences;
mod prose;
mod source;
mod words;

/// One thing that is out of order, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path relative to the root of the workspace.
    pub path: String,
    /// Line, counted from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    fn new(file: &File, line: usize, message: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// A text file of the project.
#[derive(Clone, Debug)]
struct File {
    path: String,
    text: String,
}

impl File {
    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == extension)
    }

    /// Lines with their numbers, counted from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Every finding of every rule, in the order of paths.
///
/// # Errors
///
/// When git or cargo cannot be run, or a file cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let files = project_files(root)?;
    let mut findings = arrows::check(root, &files)?;
    findings.extend(licences::check(root, &files)?);
    findings.extend(source::check(&files));
    findings.extend(prose::check(root, &files));
    findings.extend(words::check(&files));
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(findings)
}

/// Every text file that git tracks or would track; binary files are passed over.
fn project_files(root: &Path) -> anyhow::Result<Vec<File>> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git could not be run; tidy asks it which files belong to the project")?;
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
            files.push(File { path: path.to_owned(), text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}
