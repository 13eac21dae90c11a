//! Size, naming and structure of the Rust code, per crate and in all.
//!
//! Lines that are blank count nowhere; lines that hold only a `//` comment are comments; of the rest, lines of items under
//! `#[cfg(test)]` and of files under `tests/`, `benches/`, `examples/` or `fuzz/` are tests. Names, functions and import cycles
//! are those of code that is not a test.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::files::{ProjectFile, project_files};

mod cycles;
mod source;

pub use cycles::ImportCycle;
use cycles::wide_cycles;
use source::{SourceFile, SourceTree};

/// The measures of one crate, or of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CodeStats {
    /// Files that are not tests.
    pub files: usize,
    /// Lines of code without tests.
    pub code: usize,
    /// Lines of tests.
    pub tests: usize,
    /// Lines of comments, in tests too.
    pub comments: usize,
    /// Definitions of structs and enums.
    pub types: usize,
    /// Of them, those whose name is one word in upper camel case.
    pub types_one_word: usize,
    /// Of them, those whose name another definition of the workspace has. A module or crate does not make a name unique.
    pub types_shared: usize,
    /// Groups of files that import each other and are not one file with its submodules.
    pub cycles: usize,
    /// Of them, those whose files are in several folders, not counting a file beside its own folder.
    pub cycles_across_folders: usize,
    /// Functions of more than 70 lines from signature to closing brace.
    pub functions_long: usize,
}

impl CodeStats {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.code += other.code;
        self.tests += other.tests;
        self.comments += other.comments;
        self.types += other.types;
        self.types_one_word += other.types_one_word;
        self.types_shared += other.types_shared;
        self.cycles += other.cycles;
        self.cycles_across_folders += other.cycles_across_folders;
        self.functions_long += other.functions_long;
    }
}

/// The measures of every crate, and where the code falls short of its limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkspaceStats {
    /// By the crate's folder.
    pub crates: BTreeMap<String, CodeStats>,
    /// Type names with more than one definition: how many.
    pub names_shared: BTreeMap<String, usize>,
    /// Import cycles wider than a file and its submodules.
    pub cycles: Vec<ImportCycle>,
    /// Functions of more than 70 lines: where, and how many lines.
    pub functions_long: Vec<(String, usize)>,
}

impl WorkspaceStats {
    /// Measures the workspace.
    ///
    /// # Errors
    ///
    /// When git cannot list the files, or one is not Rust.
    pub fn measure(root: &Path) -> anyhow::Result<Self> {
        Self::of_files(&project_files(root)?)
    }

    fn of_files(files: &[ProjectFile]) -> anyhow::Result<Self> {
        let tree = SourceTree::parse(files)?;
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for name in tree.files.iter().flat_map(|file| &file.types) {
            *names.entry(name).or_default() += 1;
        }
        let cycles = wide_cycles(&tree);
        let mut stats = Self::default();
        for file in &tree.files {
            let row = stats.crates.entry(file.crate_folder().to_owned()).or_default();
            row.add(&file_stats(file, &names));
            for (name, lines) in &file.functions_long {
                stats.functions_long.push((format!("{}: {name}", file.path), *lines));
            }
        }
        for cycle in &cycles {
            let row = stats.crates.entry(source::crate_folder(&cycle.files[0]).to_owned());
            let row = row.or_default();
            row.cycles += 1;
            row.cycles_across_folders += usize::from(cycle.across_folders);
        }
        let shared = names.into_iter().filter(|(_, count)| *count > 1);
        stats.names_shared = shared.map(|(name, count)| (name.to_owned(), count)).collect();
        stats.cycles = cycles;
        Ok(stats)
    }

    /// The sum over all crates.
    pub fn total(&self) -> CodeStats {
        let mut total = CodeStats::default();
        for row in self.crates.values() {
            total.add(row);
        }
        total
    }

    /// What `--details` prints: every shared name, cycle and long function.
    pub fn details(&self) -> String {
        use fmt::Write as _;
        let mut text = String::from("\nshared type names\n");
        let mut shared: Vec<_> = self.names_shared.iter().collect();
        shared.sort_by_key(|(name, count)| (usize::MAX - *count, name.as_str()));
        for (name, count) in shared {
            let _ = writeln!(text, "  {count:3} {name}");
        }
        text.push_str("\nimport cycles wider than a file and its submodules\n");
        for cycle in &self.cycles {
            let _ = writeln!(text, "  {}", cycle.files.join("\n    "));
        }
        text.push_str("\nfunctions over 70 lines\n");
        for (name, lines) in &self.functions_long {
            let _ = writeln!(text, "  {lines:3} {name}");
        }
        text
    }
}

fn file_stats(file: &SourceFile, names: &BTreeMap<&str, usize>) -> CodeStats {
    CodeStats {
        files: usize::from(!file.is_test),
        code: file.code,
        tests: file.tests,
        comments: file.comments,
        types: file.types.len(),
        types_one_word: file.types.iter().filter(|name| is_one_word(name)).count(),
        types_shared: file.types.iter().filter(|name| names[name.as_str()] > 1).count(),
        functions_long: file.functions_long.len(),
        ..CodeStats::default()
    }
}

fn is_one_word(name: &str) -> bool {
    name.chars().filter(char::is_ascii_uppercase).count() == 1
}

impl fmt::Display for WorkspaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:22} {:>7} {:>7} {:>8} {:>6} {:>10} {:>6} {:>9} {:>8} {:>7} {:>14} {:>11}",
            "crate",
            "code",
            "tests",
            "comments",
            "files",
            "files/kloc",
            "types",
            "one word",
            "shared",
            "cycles",
            "across folders",
            "fns > 70",
        )?;
        for (name, row) in &self.crates {
            write_row(f, name, row)?;
        }
        write_row(f, "all", &self.total())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, row: &CodeStats) -> fmt::Result {
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    writeln!(
        f,
        "{name:22} {:7} {:7} {:8} {:6} {:10.1} {:6} {:7.0} % {:6.0} % {:7} {:14} {:11}",
        row.code,
        row.tests,
        row.comments,
        row.files,
        row.files as f64 / row.code.max(1) as f64 * 1000.0,
        row.types,
        percent(row.types_one_word, row.types),
        percent(row.types_shared, row.types),
        row.cycles,
        row.cycles_across_folders,
        row.functions_long,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(files: &[(&str, &str)]) -> WorkspaceStats {
        let files: Vec<ProjectFile> =
            files.iter().map(|(path, text)| crate::files::file(path, text)).collect();
        WorkspaceStats::of_files(&files).unwrap()
    }

    #[test]
    fn test_modules_and_test_files_count_as_tests() {
        let total = stats(&[
            ("crates/a/src/lib.rs", "//! A.\nmod b;\n#[cfg(test)]\nmod fixture;\n\nfn f() {}\n"),
            (
                "crates/a/src/b.rs",
                "fn g() {}\n#[cfg(test)]\nmod tests {\n    // why\n    fn h() {}\n}\n",
            ),
            ("crates/a/src/fixture.rs", "fn i() {}\n"),
            ("crates/a/tests/it.rs", "fn j() {}\n"),
        ])
        .total();
        assert_eq!((total.code, total.tests, total.comments, total.files), (3, 8, 2, 2));
    }

    #[test]
    fn a_name_is_shared_across_crates_and_modules() {
        let total = stats(&[
            ("crates/a/src/lib.rs", "struct Line;\nenum TcpState {}\n"),
            (
                "crates/b/src/lib.rs",
                "mod m { struct Line; }\n#[cfg(test)]\nmod t { struct Line; }\n",
            ),
        ])
        .total();
        assert_eq!((total.types, total.types_one_word, total.types_shared), (3, 2, 2));
    }

    #[test]
    fn a_function_of_71_lines_is_long() {
        let body = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        let long = |lines| stats(&[("crates/a/src/lib.rs", &body(lines))]).total().functions_long;
        assert_eq!((long(70), long(71)), (0, 1));
    }
}
