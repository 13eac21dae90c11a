//! The shape of Rust files: opening docs, length, names, and the fence of unsafe code.
//!
//! A light reading of lines, not a parser: it counts a line as code when it is neither blank nor
//! only a comment, and takes everything after a test module's attribute as tests.

use super::Finding;
use crate::ProjectFile;

/// Where one asks whether two concepts live in a file.
const CODE_LINES_MAX: usize = 500;

/// Top-level modules of `base`: a sixth needs a decision record, or it becomes a junk drawer.
const BASE_MODULES_MAX: usize = 5;

/// Files allowed to be longer, up to the given number of lines, each with its reason. The numbers
/// may only go down.
const RATCHET: &[(&str, usize, &str)] = &[];

/// Names that say nothing about what a file holds.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "manager", "helper", "helpers", "misc"];

const KEYWORD: &str = "unsafe";
/// The crates that unsafe code may live in: kernel facilities, and vector instructions.
const FENCES: &[&str] = &["crates/sys/", "crates/copy/"];
const FORBID: &str = "#![forbid(unsafe_code)]";

/// What an emulated link consists of: a step of the time of day must move none of its frames.
const MONOTONIC: &[&str] = &[
    "crates/link/src/",
    "crates/netdev/src/emulator",
    "crates/netdev/src/gateway",
    "crates/netdev/src/lab",
    "crates/plumb/src/link",
];
/// A check compares with the kernel's receive timestamps, which are of the time of day.
const MONOTONIC_EXCEPT: &str = "crates/netdev/src/emulator/check";
const TIME_OF_DAY: &[&str] = &["SystemTime", "Realtime", "gettimeofday", "unix_ms"];

pub(super) fn check(files: &[ProjectFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("rs")) {
        opening(file, &mut findings);
        name(file, &mut findings);
        length(file, RATCHET, &mut findings);
        fence(file, &mut findings);
        lines(file, &mut findings);
        if file.path == "crates/base/src/lib.rs" {
            base_modules(file, &mut findings);
        }
    }
    findings
}

fn opening(file: &ProjectFile, findings: &mut Vec<Finding>) {
    if !file.text.starts_with("//!") {
        findings.push(Finding::new(
            file,
            1,
            "open with `//!`: what the file is, what it leaves out",
        ));
    }
}

fn name(file: &ProjectFile, findings: &mut Vec<Finding>) {
    let stem = file.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
    match stem {
        Some("mod") => findings.push(Finding::new(file, 0, "name it `foo.rs` beside `foo/`")),
        Some(stem) if EMPTY_NAMES.contains(&stem) => {
            findings.push(Finding::new(file, 0, "name the file after the concept it holds"));
        }
        _ => {}
    }
}

fn length(file: &ProjectFile, ratchet: &[(&str, usize, &str)], findings: &mut Vec<Finding>) {
    if is_test_file(&file.path) {
        return;
    }
    let allowed = ratchet.iter().find(|(path, ..)| *path == file.path);
    let limit = allowed.map_or(CODE_LINES_MAX, |(_, limit, _)| *limit);
    let count = code_lines(file).count();
    if count > limit {
        let message = format!("{count} lines of code, at most {limit}: find the second concept");
        findings.push(Finding::new(file, 0, message));
    }
}

fn fence(file: &ProjectFile, findings: &mut Vec<Finding>) {
    if FENCES.iter().any(|fence| file.path.starts_with(fence)) {
        return;
    }
    let is_root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
    if is_root && !file.lines().any(|(_, line)| line == FORBID) {
        findings.push(Finding::new(file, 0, format!("a crate outside the fence says `{FORBID}`")));
    }
    for (number, line) in file.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let follows = code.split_once(KEYWORD).map(|(_, rest)| rest.trim_start());
        let opens = ["{", "fn ", "impl ", "extern ", "trait "];
        if follows.is_some_and(|rest| opens.iter().any(|open| rest.starts_with(open))) {
            let message = format!("{KEYWORD} code lives in crates/sys and crates/copy only");
            findings.push(Finding::new(file, number, message));
        }
    }
}

fn lines(file: &ProjectFile, findings: &mut Vec<Finding>) {
    let skipped = concat!("#[", "ignore");
    let getter = concat!("fn ", "get_");
    let is_monotonic = MONOTONIC.iter().any(|place| file.path.starts_with(place))
        && !file.path.starts_with(MONOTONIC_EXCEPT);
    for (number, line) in file.lines() {
        if line.contains(skipped) {
            findings.push(Finding::new(file, number, "a test that never runs proves nothing"));
        }
        if is_monotonic && TIME_OF_DAY.iter().any(|word| line.contains(word)) {
            findings.push(Finding::new(file, number, "a link goes by the monotonic clock only"));
        }
        if line.contains(getter) {
            findings.push(Finding::new(file, number, "name a getter by what it gives"));
        }
    }
}

fn base_modules(file: &ProjectFile, findings: &mut Vec<Finding>) {
    let count = file.lines().filter(|(_, line)| line.starts_with("pub mod ")).count();
    if count > BASE_MODULES_MAX {
        let message =
            format!("{count} modules, at most {BASE_MODULES_MAX} without a decision record");
        findings.push(Finding::new(file, 0, message));
    }
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Lines that hold code, up to the test module.
fn code_lines(file: &ProjectFile) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = file.text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0].trim() == "#[cfg(test)]" && pair[1].trim_start().starts_with("mod ")
    });
    let end = tests.unwrap_or(lines.len());
    lines.into_iter().take(end).filter(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("//")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&[file(path, text)]).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_file_that_keeps_the_rules_has_no_finding() {
        let text = "//! What it is.\n\nfn measure() {}\n";
        assert_eq!(messages("crates/host/src/local/pipe.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_missing_opening_is_found() {
        assert_eq!(messages("crates/host/src/local/pipe.rs", "fn f() {}\n").len(), 1);
    }

    #[test]
    fn comments_blanks_and_tests_are_not_code() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    fn t() {}\n".repeat(600));
        let body = format!("//! Long.\n{}\n{tests}", "// why\n\nlet x = 1;\n".repeat(400));
        assert_eq!(messages("crates/base/src/stats/long.rs", &body), Vec::<String>::new());
    }

    #[test]
    fn a_file_past_the_limit_is_found_unless_the_ratchet_allows_it() {
        let long = file("crates/base/src/stats/long.rs", &"let x = 1;\n".repeat(501));
        let mut findings = Vec::new();
        length(&long, &[(&long.path, 501, "one table")], &mut findings);
        assert_eq!(findings, Vec::new());
        length(&long, &[], &mut findings);
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn the_fence_holds_outside_sys_and_copy_only() {
        let text = format!("//! X.\nfn f() {{ {KEYWORD} {{ g() }} }}\n");
        assert_eq!(messages("crates/host/src/local/pipe.rs", &text).len(), 1);
        assert_eq!(messages("crates/sys/src/pipe.rs", &text), Vec::<String>::new());
        assert_eq!(messages("crates/copy/src/kernel/avx2.rs", &text), Vec::<String>::new());
        assert_eq!(messages("crates/copying/src/pipe.rs", &text).len(), 1);
    }

    #[test]
    fn a_crate_root_without_its_prohibition_is_found() {
        assert_eq!(messages("crates/store/src/lib.rs", "//! X.\n").len(), 1);
        assert_eq!(messages("crates/store/src/lib.rs", &format!("//! X.\n{FORBID}\n")).len(), 0);
    }

    #[test]
    fn a_sixth_module_of_base_is_found() {
        let modules = |n: usize| format!("//! X.\n{FORBID}\n{}", "pub mod a;\n".repeat(n));
        assert_eq!(messages("crates/base/src/lib.rs", &modules(5)).len(), 0);
        assert_eq!(messages("crates/base/src/lib.rs", &modules(6)).len(), 1);
    }

    #[test]
    fn a_module_file_or_an_empty_name_is_found() {
        assert_eq!(messages("crates/host/src/local/mod.rs", "//! X.\n").len(), 1);
        assert_eq!(messages("crates/host/src/util.rs", "//! X.\n").len(), 1);
    }
}
