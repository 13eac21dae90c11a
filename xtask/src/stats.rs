//! Size, naming and structure of the Rust code, per crate and in all.
//!
//! Lines that are blank count nowhere; lines that hold only a `//` comment are comments; of the rest, lines of items under
//! `#[cfg(test)]` and of files under `tests/`, `benches/`, `examples/` or `fuzz/` are tests. Names, functions and import cycles
//! are those of code that is not a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use crate::{ProjectFile, project_files};

mod source;

use source::{SourceFile, SourceTree, module_path};

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

/// The heading and width of each column.
const COLUMNS: [(&str, usize); 11] = [
    ("code", 7),
    ("tests", 7),
    ("comments", 8),
    ("files", 6),
    ("files/kloc", 10),
    ("types", 6),
    ("one word", 9),
    ("shared", 8),
    ("cycles", 7),
    ("across folders", 14),
    ("fns > 70", 11),
];

impl fmt::Display for WorkspaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, "crate", &COLUMNS.map(|(head, _)| head.to_owned()))?;
        for (name, row) in &self.crates {
            write_line(f, name, &cells(row))?;
        }
        write_line(f, "all", &cells(&self.total()))
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, name: &str, cells: &[String; 11]) -> fmt::Result {
    write!(f, "{name:22}")?;
    for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
        write!(f, " {cell:>width$}")?;
    }
    writeln!(f)
}

fn cells(row: &CodeStats) -> [String; 11] {
    let percent = |part: usize| format!("{:.0} %", 100.0 * part as f64 / row.types.max(1) as f64);
    [
        row.code.to_string(),
        row.tests.to_string(),
        row.comments.to_string(),
        row.files.to_string(),
        format!("{:.1}", row.files as f64 / row.code.max(1) as f64 * 1000.0),
        row.types.to_string(),
        percent(row.types_one_word),
        percent(row.types_shared),
        row.cycles.to_string(),
        row.cycles_across_folders.to_string(),
        row.functions_long.to_string(),
    ]
}

/// Files of one crate, each of which imports the others, directly or through others of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportCycle {
    /// In order.
    pub files: Vec<String>,
    /// Whether they are in several folders, where a file `x.rs` is in its folder `x` if another file of the cycle is.
    pub across_folders: bool,
}

/// The cycles that are not within one file and its submodules. A file outside `src` belongs to none.
fn wide_cycles(tree: &SourceTree) -> Vec<ImportCycle> {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| !file.is_test && file.path.contains("/src/")) {
        crates.entry(file.crate_folder()).or_default().push(file);
    }
    let groups = crates.values().flat_map(|files| components(files, &edges(files)));
    groups.filter(|group| group.len() > 1 && !is_one_module(group)).map(cycle).collect()
}

fn cycle(files: Vec<String>) -> ImportCycle {
    let folder = |path: &String| {
        let own = format!("{}/", path.trim_end_matches(".rs"));
        if files.iter().any(|file| file.starts_with(&own)) {
            own
        } else {
            path[..=path.rfind('/').unwrap_or(0)].to_owned()
        }
    };
    let folders: BTreeSet<String> = files.iter().map(folder).collect();
    ImportCycle { across_folders: folders.len() > 1, files }
}

/// Whether one of the files, other than the crate's root, has all others as its submodules.
fn is_one_module(files: &[String]) -> bool {
    let is_root = |file: &str| module_path(file).is_empty();
    files.iter().filter(|file| !is_root(file)).any(|parent| {
        let folder = format!("{}/", parent.trim_end_matches(".rs"));
        files.iter().all(|file| file == parent || file.starts_with(&folder))
    })
}

/// For each file, those that it imports.
fn edges(files: &[&SourceFile]) -> Vec<Vec<usize>> {
    let modules: BTreeMap<Vec<String>, usize> =
        files.iter().enumerate().map(|(index, file)| (module_path(&file.path), index)).collect();
    let imports = |(index, file): (usize, &&SourceFile)| {
        let targets = file.imports.iter().filter_map(|path| target(files, &modules, path));
        let mut targets: Vec<usize> = targets.filter(|target| *target != index).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    };
    files.iter().enumerate().map(imports).collect()
}

/// The file that defines what a path names, re-exports followed.
fn target(
    files: &[&SourceFile],
    modules: &BTreeMap<Vec<String>, usize>,
    path: &[String],
) -> Option<usize> {
    let mut path = path.to_vec();
    // Re-exports could name each other in a circle only in code that does not compile; the bound is for such code.
    for _ in 0..16 {
        let depth = (0..=path.len()).rev().find(|depth| modules.contains_key(&path[..*depth]))?;
        let file = modules[&path[..depth]];
        let Some(name) = path.get(depth) else { return Some(file) };
        let Some(to) = files[file].reexports.get(name) else { return Some(file) };
        path = [to.as_slice(), &path[depth + 1..]].concat();
    }
    None
}

/// Groups of files each of which imports all others, directly or through others; as paths in order.
fn components(files: &[&SourceFile], edges: &[Vec<usize>]) -> Vec<Vec<String>> {
    let imported: Vec<BTreeSet<usize>> = (0..edges.len()).map(|file| reach(edges, file)).collect();
    let group = |file: usize| -> BTreeSet<&str> {
        let is_mutual =
            |other: &usize| imported[file].contains(other) && imported[*other].contains(&file);
        let others = (0..edges.len()).filter(is_mutual).chain([file]);
        others.map(|file| files[file].path.as_str()).collect()
    };
    let groups: BTreeSet<BTreeSet<&str>> = (0..edges.len()).map(group).collect();
    groups.iter().map(|group| group.iter().map(|path| (*path).to_owned()).collect()).collect()
}

/// What a file imports, directly or through others.
fn reach(edges: &[Vec<usize>], file: usize) -> BTreeSet<usize> {
    let (mut found, mut pending) = (BTreeSet::new(), vec![file]);
    while let Some(file) = pending.pop() {
        pending.extend(edges[file].iter().filter(|next| found.insert(**next)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    fn stats(files: &[(&str, &str)]) -> WorkspaceStats {
        let files: Vec<ProjectFile> = files.iter().map(|(path, text)| file(path, text)).collect();
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

    fn cycles(files: &[(&str, &str)]) -> Vec<ImportCycle> {
        let files: Vec<_> = files.iter().map(|(path, text)| file(path, text)).collect();
        wide_cycles(&SourceTree::parse(&files).unwrap())
    }

    #[test]
    fn a_file_and_its_submodules_may_import_each_other() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; pub use a::b::B;"),
            ("crates/x/src/a.rs", "mod b; use self::b::B; struct A;"),
            ("crates/x/src/a/b.rs", "use super::A; struct B;"),
        ];
        assert_eq!(cycles(&files), []);
    }

    #[test]
    fn a_cycle_through_a_re_export_is_found() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod c; pub use a::b::B;"),
            ("crates/x/src/a.rs", "mod b;"),
            ("crates/x/src/a/b.rs", "struct B; fn f() -> crate::c::C { todo() }"),
            ("crates/x/src/c.rs", "use crate::B; struct C;"),
        ];
        let found = cycles(&files);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].files, ["crates/x/src/a/b.rs", "crates/x/src/c.rs"]);
        assert!(found[0].across_folders);
    }
}
