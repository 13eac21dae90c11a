//! Pages: links that resolve and paths that exist.

use std::path::{Component, Path, PathBuf};

use super::Finding;
use crate::ProjectFile;

/// What a page calls a path of this repository, when it stands in backquotes.
const FOLDERS: &[&str] = &["crates/", "docs/", "tools/", "xtask/", ".ci/"];

pub(super) fn check(root: &Path, files: &[ProjectFile]) -> Vec<Finding> {
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
