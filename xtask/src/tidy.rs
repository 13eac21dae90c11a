//! Tidy: banned words, experiments named by engines, import cycles, dependencies and pages, which neither the compiler nor clippy can check.
//!
//! Reads the tree and reports; it changes nothing.

use std::fmt;
use std::path::Path;

use crate::stats::WorkspaceStats;
use crate::{ProjectFile, project_files};

mod dependencies;
mod pages;
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
    fn new(file: &ProjectFile, line: usize, message: impl Into<String>) -> Self {
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

/// Every finding of every rule, in the order of paths.
///
/// # Errors
///
/// When git or cargo cannot be run, or a file cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let files = project_files(root)?;
    let mut findings = dependencies::check(root, &files)?;
    findings.extend(dependencies::check_licenses(root, &files)?);
    findings.extend(pages::check(root, &files));
    findings.extend(words::check(&files));
    findings.extend(words::check_experiment_ids(&files));
    findings.extend(cycles_across_folders(&WorkspaceStats::measure(root)?));
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(findings)
}

/// Files of several folders that import each other: none of them can be read or moved without the others.
fn cycles_across_folders(stats: &WorkspaceStats) -> Vec<Finding> {
    let cycles = stats.cycles.iter().filter(|cycle| cycle.across_folders);
    let finding = |files: &[String]| Finding {
        path: files.first().cloned().unwrap_or_default(),
        line: 0,
        message: format!("imports go in a circle across folders: {}", files.join(", ")),
    };
    cycles.map(|cycle| finding(&cycle.files)).collect()
}
