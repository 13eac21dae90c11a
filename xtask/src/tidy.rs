//! Tidy checks what neither the compiler nor clippy can: banned words, experiments named by engines, import cycles,
//! dependencies, pages and mutations.
//!
//! Reads the tree and reports; it changes nothing.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::stats::WorkspaceStats;
use crate::{ProjectFile, mutations, project_files};

mod dependencies;

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
    findings.extend(check_pages(root, &files));
    findings.extend(check_words(&files));
    findings.extend(check_experiment_ids(&files));
    findings.extend(mutations::check(root)?.into_iter().map(|message| Finding {
        path: mutations::LIST.to_owned(),
        line: 0,
        message,
    }));
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

/// Notes that belong into the tracker, matched as whole words.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Traces of a workplace, matched anywhere, in lower case.
const TRACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp/", "wt"),
    concat!("/ro", "ot/"),
    concat!("../sha", "red"),
    concat!("clau", "de"),
    concat!("anthro", "pic"),
    concat!("sub", "agent"),
    concat!("this ", "session of"),
];

/// Metaphors and the field's term for each, matched as whole words in any case; past decisions keep theirs.
const METAPHORS: &[(&str, &str)] = &[
    (concat!("ha", "ll"), "pending connections"),
    (concat!("stew", "ard"), "supervisor"),
    (concat!("stew", "ards"), "supervisors"),
    (concat!("cr", "ew"), "connection pool"),
    (concat!("she", "lf"), "report cache"),
    (concat!("se", "at"), "CPU placement"),
    (concat!("se", "ats"), "CPU placements"),
    (concat!("stra", "nger"), "unauthenticated client"),
    (concat!("stra", "ngers"), "unauthenticated clients"),
];

/// Where past decisions and changes are recorded in the words of their time.
const RECORDS: &[&str] = &["CHANGELOG.md", "docs/adr/"];

fn check_words(files: &[ProjectFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path != "Cargo.lock") {
        for (number, line) in file.lines() {
            for note in NOTES.iter().filter(|note| has_word(line, note)) {
                let message = format!("{note}: do it, or put it into the tracker");
                findings.push(Finding::new(file, number, message));
            }
            let lower = line.to_lowercase();
            let is_record = RECORDS.iter().any(|record| file.path.starts_with(record));
            // An option or a name on the wire may keep one after its hyphen.
            let plain = lower.replace('-', "_");
            for (word, term) in METAPHORS.iter().filter(|(word, _)| has_word(&plain, word)) {
                if !is_record {
                    let message = format!("`{word}`: the field says {term}");
                    findings.push(Finding::new(file, number, message));
                }
            }
            for trace in TRACES.iter().filter(|trace| lower.contains(*trace)) {
                let message = format!("`{trace}` means nothing to a reader elsewhere: remove it");
                findings.push(Finding::new(file, number, message));
            }
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

const EXPERIMENTS: &str = "crates/experiments/src/";
const ENGINES: [&str; 2] = ["crates/analysis/src/", "crates/report/src/"];

/// Literals with the id of an experiment in the code of an engine; tests may name what they make up.
fn check_experiment_ids(files: &[ProjectFile]) -> Vec<Finding> {
    let ids = ids(files);
    let engines = files.iter().filter(|file| {
        file.has_extension("rs") && ENGINES.iter().any(|engine| file.path.starts_with(engine))
    });
    let mut findings = Vec::new();
    for file in engines {
        let code = file.lines().take_while(|(_, line)| *line != "#[cfg(test)]");
        for (number, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let found = ids.iter().filter(|id| line.contains(&format!("\"{id}\"")));
            findings.extend(found.map(|id| {
                let message =
                    format!("\"{id}\" is an experiment: what concerns it belongs in its own file");
                Finding::new(file, number, message)
            }));
        }
    }
    findings
}

/// The ids that the experiments declare.
fn ids(files: &[ProjectFile]) -> Vec<&str> {
    let experiments = files.iter().filter(|file| {
        file.path.starts_with(EXPERIMENTS)
            && file.text.contains("pub static EXPERIMENT: Experiment")
    });
    experiments.filter_map(|file| file.text.split("    id: \"").nth(1)?.split('"').next()).collect()
}

/// What a page calls a path of this repository, when it stands in backquotes.
const FOLDERS: &[&str] = &["crates/", "docs/", "tools/", "xtask/", ".ci/"];

fn check_pages(root: &Path, files: &[ProjectFile]) -> Vec<Finding> {
    let exists = |path: &Path| root.join(path).exists();
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.has_extension("md")) {
        links(page, &exists, &mut findings);
        paths(page, &exists, &mut findings);
    }
    for page in files.iter().filter(|file| file.path == PROMISES) {
        tests(page, files, &mut findings);
    }
    findings
}

/// The page whose names in backquotes are those of tests.
const PROMISES: &str = "docs/security.md";

/// Names of tests in backquotes, of three words or more: there must be such a function.
fn tests(page: &ProjectFile, files: &[ProjectFile], findings: &mut Vec<Finding>) {
    let is_name = |text: &str| {
        text.matches('_').count() >= 2
            && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    for (number, line) in outside_fences(page) {
        for name in line.split('`').skip(1).step_by(2).filter(|name| is_name(name)) {
            let function = format!("fn {name}(");
            let is_held =
                |file: &ProjectFile| file.lines().any(|(_, line)| line.contains(&function));
            if !files.iter().any(|file| file.has_extension("rs") && is_held(file)) {
                findings.push(Finding::new(page, number, format!("`{name}`: no such test")));
            }
        }
    }
}

/// `[text](target)`: a relative target must exist.
fn links(page: &ProjectFile, exists: &dyn Fn(&Path) -> bool, findings: &mut Vec<Finding>) {
    for (number, line) in outside_fences(page) {
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let base = Path::new(&page.path).parent().unwrap_or(Path::new(""));
            if !exists(&normalized(&base.join(target))) {
                findings.push(Finding::new(
                    page,
                    number,
                    format!("link to {target}: no such file"),
                ));
            }
        }
    }
}

/// Paths in backquotes: up to the first placeholder they must exist.
fn paths(page: &ProjectFile, exists: &dyn Fn(&Path) -> bool, findings: &mut Vec<Finding>) {
    for (number, line) in outside_fences(page) {
        for quoted in line.split('`').skip(1).step_by(2) {
            if !FOLDERS.iter().any(|folder| quoted.starts_with(folder)) || quoted.contains(' ') {
                continue;
            }
            let known = match quoted.find(['<', '*', '{', '…']) {
                Some(end) => quoted[..end].rsplit_once('/').map_or("", |(folder, _)| folder),
                None => quoted,
            };
            if !exists(Path::new(known)) {
                findings.push(Finding::new(page, number, format!("`{quoted}`: no such path")));
            }
        }
    }
}

fn outside_fences(page: &ProjectFile) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    page.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The path without `.` and `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    #[test]
    fn a_note_is_found_as_a_word_only() {
        let note = NOTES[2];
        assert_eq!(check_words(&[file("a.sh", &format!("# {note}: later"))]).len(), 1);
        assert_eq!(check_words(&[file("a.sh", &format!("mktemp plumb.{note}{note}"))]).len(), 0);
    }

    #[test]
    fn a_metaphor_is_found_except_in_records() {
        let (word, _) = METAPHORS[0];
        let text = format!("The {word} is full; shallow.");
        assert_eq!(check_words(&[file("crates/a/src/lib.rs", &text)]).len(), 1);
        assert_eq!(check_words(&[file("docs/adr/0001.md", &text)]).len(), 0);
    }

    #[test]
    fn a_trace_of_a_workplace_is_found_in_any_case() {
        let trace = TRACES[0].to_uppercase();
        assert_eq!(check_words(&[file("a.md", &format!("see {trace}main"))]).len(), 1);
        assert_eq!(check_words(&[file("a.md", "work in the workshop")]).len(), 0);
    }

    #[test]
    fn an_engine_that_names_an_experiment_is_found() {
        let experiment =
            "pub static EXPERIMENT: Experiment = Experiment {\n    id: \"latency.moon\",\n";
        let files = |code: &str| {
            vec![
                file("crates/experiments/src/ipc/latency_moon.rs", experiment),
                file("crates/report/src/name.rs", code),
            ]
        };
        let findings = check_experiment_ids(&files("let id = 1;\nlet id = \"latency.moon\";\n"));
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/report/src/name.rs", 2));
        assert!(
            check_experiment_ids(&files("#[cfg(test)]\nlet id = \"latency.moon\";\n")).is_empty()
        );
    }

    fn found(page: &ProjectFile, existing: &[&str]) -> usize {
        let exists = |path: &Path| existing.iter().any(|known| path == Path::new(known));
        let mut findings = Vec::new();
        links(page, &exists, &mut findings);
        paths(page, &exists, &mut findings);
        findings.len()
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let page =
            file("docs/adr/0001-x.md", "[a](../../README.md) [b](../gone.md#x) [c](https://x.y)");
        assert_eq!(found(&page, &["README.md"]), 1);
    }

    #[test]
    fn a_path_to_nothing_is_found_and_placeholders_are_cut() {
        let page = file("A.md", "`crates/host/src/local/<name>.rs` `crates/gone.rs` `cargo test`");
        assert_eq!(found(&page, &["crates/host/src/local"]), 1);
    }

    #[test]
    fn a_promise_without_its_test_is_found() {
        let page = file(PROMISES, "`a_test_that_is_there` `a_test_that_is_gone` `unsafe_code`");
        let mut findings = Vec::new();
        tests(&page, &[file("a.rs", "    fn a_test_that_is_there() {")], &mut findings);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].message.contains("gone"), "{findings:?}");
    }

    #[test]
    fn fenced_code_is_not_read() {
        assert_eq!(found(&file("A.md", "```\n[a](gone.md)\n```\n"), &[]), 0);
    }
}
