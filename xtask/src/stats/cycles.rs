//! Files that import each other, in strongly connected groups.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{SourceFile, SourceTree, module_path};

/// Files of one crate, each of which imports the others, directly or through others of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportCycle {
    /// In order.
    pub files: Vec<String>,
    /// Whether they are in several folders, where a file `x.rs` is in its folder `x` if another file of the cycle is.
    pub across_folders: bool,
}

/// The cycles that are not within one file and its submodules. A file outside `src` belongs to none.
pub(super) fn wide_cycles(tree: &SourceTree) -> Vec<ImportCycle> {
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

/// Tarjan's strongly connected components, as paths in order.
fn components(files: &[&SourceFile], edges: &[Vec<usize>]) -> Vec<Vec<String>> {
    let mut search =
        ComponentSearch { edges, index: vec![None; edges.len()], ..ComponentSearch::default() };
    search.low = vec![0; edges.len()];
    for node in 0..edges.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    let paths = |group: Vec<usize>| {
        let mut paths: Vec<String> = group.iter().map(|node| files[*node].path.clone()).collect();
        paths.sort();
        paths
    };
    search.groups.into_iter().map(paths).collect()
}

#[derive(Default)]
struct ComponentSearch<'a> {
    edges: &'a [Vec<usize>],
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    visited: usize,
    groups: Vec<Vec<usize>>,
}

impl ComponentSearch<'_> {
    fn visit(&mut self, node: usize) {
        self.index[node] = Some(self.visited);
        self.low[node] = self.visited;
        self.visited += 1;
        self.stack.push(node);
        for &next in &self.edges[node] {
            match self.index[next] {
                None => {
                    self.visit(next);
                    self.low[node] = self.low[node].min(self.low[next]);
                }
                Some(index) if self.stack.contains(&next) => {
                    self.low[node] = self.low[node].min(index);
                }
                Some(_) => {}
            }
        }
        if self.index[node] == Some(self.low[node]) {
            let at = self.stack.iter().rposition(|on| *on == node).unwrap_or(0);
            self.groups.push(self.stack.split_off(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::file;

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
