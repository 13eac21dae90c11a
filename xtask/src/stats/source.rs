//! What one Rust file holds: lines by kind, types, long functions, imports.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::ProjectFile;

const FUNCTION_LINES_MAX: usize = 70;
const TEST_FOLDERS: [&str; 4] = ["tests", "benches", "examples", "fuzz"];

/// Every Rust file of the workspace.
pub(super) struct SourceTree {
    pub(super) files: Vec<SourceFile>,
}

/// One Rust file.
#[derive(Debug, Default)]
pub(super) struct SourceFile {
    pub(super) path: String,
    pub(super) is_test: bool,
    pub(super) code: usize,
    pub(super) tests: usize,
    pub(super) comments: usize,
    /// Names of structs and enums.
    pub(super) types: Vec<String>,
    /// Functions over the limit, with their lines.
    pub(super) functions_long: Vec<(String, usize)>,
    /// Paths of modules of the same crate, from its root, ending in the imported name.
    pub(super) imports: BTreeSet<Vec<String>>,
    /// Names that the file re-exports, with the path that each stands for.
    pub(super) reexports: BTreeMap<String, Vec<String>>,
    /// Modules that are tests and stand in files of their own.
    test_modules: Vec<String>,
}

impl SourceTree {
    pub fn parse(files: &[ProjectFile]) -> anyhow::Result<Self> {
        let rust = files.iter().filter(|file| file.has_extension("rs"));
        let mut files = rust.map(SourceFile::parse).collect::<anyhow::Result<Vec<_>>>()?;
        let mut test_modules: Vec<String> = Vec::new();
        for file in &files {
            let folder = file.path.trim_end_matches(".rs");
            let folder = ["/lib", "/main"].iter().find_map(|root| folder.strip_suffix(root));
            let folder = folder.unwrap_or_else(|| file.path.trim_end_matches(".rs"));
            test_modules.extend(file.test_modules.iter().map(|name| format!("{folder}/{name}")));
        }
        for file in &mut files {
            let is_below = |module: &String| {
                let rest = file.path.strip_prefix(module.as_str());
                rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            };
            if test_modules.iter().any(is_below) {
                file.make_test();
            }
        }
        Ok(Self { files })
    }
}

impl SourceFile {
    fn parse(file: &ProjectFile) -> anyhow::Result<Self> {
        let parsed = syn::parse_file(&file.text)
            .with_context(|| format!("{} is not Rust that can be parsed", file.path))?;
        let mut found = Self { path: file.path.clone(), ..Self::default() };
        let mut visitor = ItemVisitor {
            module: module_path(&file.path),
            file: &mut found,
            test_lines: BTreeSet::new(),
        };
        visitor.visit_file(&parsed);
        let test_lines = visitor.test_lines;
        for (number, line) in file.lines() {
            let line = line.trim();
            if line.starts_with("//") {
                found.comments += 1;
            } else if test_lines.contains(&number) {
                found.tests += usize::from(!line.is_empty());
            } else {
                found.code += usize::from(!line.is_empty());
            }
        }
        if file.path.split('/').any(|part| TEST_FOLDERS.contains(&part)) {
            found.make_test();
        }
        Ok(found)
    }

    fn make_test(&mut self) {
        self.is_test = true;
        self.tests += std::mem::take(&mut self.code);
        self.types.clear();
        self.functions_long.clear();
        self.imports.clear();
        self.reexports.clear();
    }

    pub fn crate_folder(&self) -> &str {
        crate_folder(&self.path)
    }
}

/// `crates/NAME`, or the first folder.
pub(super) fn crate_folder(path: &str) -> &str {
    let depth = if path.starts_with("crates/") { 2 } else { 1 };
    path.match_indices('/').nth(depth - 1).map_or(path, |(end, _)| &path[..end])
}

/// The module that a file is, from its crate's root.
pub(super) fn module_path(path: &str) -> Vec<String> {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    let inside = inside.trim_end_matches(".rs");
    match inside {
        "lib" | "main" => Vec::new(),
        _ => inside.split('/').map(str::to_owned).collect(),
    }
}

struct ItemVisitor<'a> {
    module: Vec<String>,
    file: &'a mut SourceFile,
    test_lines: BTreeSet<usize>,
}

impl ItemVisitor<'_> {
    /// A path of this crate as it is from the root; `None` for other crates' paths.
    fn resolve(&self, path: &[String]) -> Option<Vec<String>> {
        let mut resolved = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => self.module.split_last()?.1.to_vec(),
            _ => return None,
        };
        for part in &path[1..] {
            match part.as_str() {
                "self" => {}
                "super" => drop(resolved.pop()),
                part => resolved.push(part.to_owned()),
            }
        }
        Some(resolved)
    }

    fn use_tree(&mut self, prefix: &[String], tree: &syn::UseTree, is_public: bool) {
        let joined = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.use_tree(&joined(&path.ident), &path.tree, is_public),
            syn::UseTree::Name(name) => self.import(&joined(&name.ident), &name.ident, is_public),
            syn::UseTree::Rename(name) => {
                self.import(&joined(&name.ident), &name.rename, is_public);
            }
            syn::UseTree::Glob(_) => self.insert_import(prefix),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(prefix, tree, is_public);
                }
            }
        }
    }

    fn import(&mut self, path: &[String], name: &syn::Ident, is_public: bool) {
        // A re-export may name a submodule without `self::`.
        let path = if is_public && self.resolve(path).is_none() {
            [&["self".to_owned()], path].concat()
        } else {
            path.to_vec()
        };
        if is_public && let Some(resolved) = self.resolve(&path) {
            self.file.reexports.insert(name.to_string(), resolved);
        }
        self.insert_import(&path);
    }

    fn insert_import(&mut self, path: &[String]) {
        if let Some(resolved) = self.resolve(path) {
            self.file.imports.insert(resolved);
        }
    }

    fn check_function(&mut self, name: &syn::Ident, span: Span) {
        let lines = span.end().line - name.span().start().line + 1;
        if lines > FUNCTION_LINES_MAX {
            self.file.functions_long.push((name.to_string(), lines));
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for ItemVisitor<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            let span = item.span();
            self.test_lines.extend(span.start().line..=span.end().line);
            if let syn::Item::Mod(module) = item
                && module.content.is_none()
            {
                self.file.test_modules.push(module.ident.to_string());
            }
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if is_test(&function.attrs) {
            let span = function.span();
            self.test_lines.extend(span.start().line..=span.end().line);
            return;
        }
        self.check_function(&function.sig.ident, function.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check_function(&function.sig.ident, function.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.file.types.push(item.ident.to_string());
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.file.types.push(item.ident.to_string());
        visit::visit_item_enum(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.use_tree(&[], &item.tree, is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.insert_import(&segments);
        }
        visit::visit_path(self, path);
    }
}
