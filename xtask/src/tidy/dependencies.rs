//! Which crate may know which: ARCHITECTURE.md's table against `cargo metadata`.
//!
//! The table is the rule, so the page cannot go stale. Development dependencies are left out: a
//! test may borrow what the crate may not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::Finding;
use crate::ProjectFile;

const PAGE: &str = "ARCHITECTURE.md";
const HEADER: &str = "| crate | may depend on |";

/// What the table says about one crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DependencyRule {
    /// Crates of the workspace that it may name.
    may: BTreeSet<String>,
    /// When given, the only outside packages that it may name.
    outside: Option<BTreeSet<String>>,
}

/// What a manifest says: its direct dependencies, inside and outside the workspace.
#[derive(Clone, Debug, Default)]
struct CrateDependencies {
    inside: BTreeSet<String>,
    outside: BTreeSet<String>,
}

pub(super) fn check(root: &Path, files: &[ProjectFile]) -> anyhow::Result<Vec<Finding>> {
    let crates = crates(&metadata(root, &["--no-deps"])?);
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        bail!("{PAGE} is missing: it holds the table of allowed dependencies");
    };
    Ok(compare(page, &rules(&page.text, &crates), &crates))
}

/// What `cargo metadata` says with these arguments.
fn metadata(root: &Path, arguments: &[&str]) -> anyhow::Result<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1"]).args(arguments).current_dir(root);
    let output = command.output().context("cargo could not be run; tidy asks it for packages")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")
}

/// Every crate of the workspace by its short name, without `plumb-`.
fn crates(metadata: &Value) -> BTreeMap<String, CrateDependencies> {
    let packages = metadata["packages"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let short = |name: &str| name.strip_prefix("plumb-").unwrap_or(name).to_owned();
    let name = |package: &Value| package["name"].as_str().unwrap_or_default().to_owned();
    let inside: BTreeSet<String> = packages.iter().map(name).collect();
    let mut crates = BTreeMap::new();
    for package in packages {
        let mut found = CrateDependencies::default();
        let dependencies =
            package["dependencies"].as_array().map_or(&[] as &[Value], Vec::as_slice);
        for dependency in dependencies.iter().filter(|d| d["kind"].as_str() != Some("dev")) {
            let dependency = name(dependency);
            if inside.contains(&dependency) {
                found.inside.insert(short(&dependency));
            } else {
                found.outside.insert(dependency);
            }
        }
        crates.insert(short(&name(package)), found);
    }
    crates
}

/// The table's rows: `| \`host\` | base, sys | … |`, `–` for none, `all but sys`, and names of
/// outside packages in parentheses.
fn rules(
    page: &str,
    crates: &BTreeMap<String, CrateDependencies>,
) -> BTreeMap<String, DependencyRule> {
    let rows = page.lines().skip_while(|line| !line.starts_with(HEADER)).skip(2);
    let mut rules = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let mut columns = row.trim_matches('|').split('|').map(str::trim);
        let (Some(name), Some(may)) = (columns.next(), columns.next()) else { continue };
        let name = name.trim_matches('`').to_owned();
        rules.insert(name.clone(), rule(&name, may, crates));
    }
    rules
}

fn rule(name: &str, may: &str, crates: &BTreeMap<String, CrateDependencies>) -> DependencyRule {
    let (may, outside) = match may.split_once('(') {
        Some((may, outside)) => (may.trim(), Some(words(outside.trim_end_matches(')')))),
        None => (may, None),
    };
    let may = match may.strip_prefix("all but ") {
        Some(but) => {
            let but = words(but);
            crates.keys().filter(|c| *c != name && !but.contains(*c)).cloned().collect()
        }
        None => words(may),
    };
    DependencyRule { may, outside }
}

fn words(list: &str) -> BTreeSet<String> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "–");
    words.map(str::to_owned).collect()
}

fn compare(
    page: &ProjectFile,
    rules: &BTreeMap<String, DependencyRule>,
    crates: &BTreeMap<String, CrateDependencies>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |message: String| findings.push(Finding::new(page, 0, message));
    for (name, found) in crates {
        let Some(rule) = rules.get(name) else {
            say(format!("crate `{name}` has no row in the table of dependencies: add one"));
            continue;
        };
        for extra in found.inside.difference(&rule.may) {
            say(format!("`{name}` depends on `{extra}`, which the table does not allow"));
        }
        for extra in rule.outside.iter().flat_map(|allowed| found.outside.difference(allowed)) {
            say(format!("`{name}` depends on the package `{extra}`, which its row does not name"));
        }
    }
    for name in rules.keys().filter(|name| !crates.contains_key(*name)) {
        say(format!("the table has a row for `{name}`, which is no crate: remove it"));
    }
    findings
}

const POLICY: &str = "deny.toml";

pub(super) fn check_licenses(root: &Path, files: &[ProjectFile]) -> anyhow::Result<Vec<Finding>> {
    let Some(policy) = files.iter().find(|file| file.path == POLICY) else {
        bail!("{POLICY} is missing: it holds the licences that may come into the build");
    };
    let allowed = allowed(&policy.text)?;
    let mut findings = Vec::new();
    for (name, licence) in licences(root)? {
        if !satisfies(&licence, &allowed) {
            let message = format!("`{name}` is under `{licence}`, which the list does not allow");
            findings.push(Finding::new(policy, 0, message));
        }
    }
    Ok(findings)
}

fn allowed(policy: &str) -> anyhow::Result<BTreeSet<String>> {
    let policy: toml::Table = policy.parse().context("deny.toml is not TOML")?;
    let list = policy.get("licenses").and_then(|licenses| licenses.get("allow"));
    let list = list.and_then(toml::Value::as_array).context("deny.toml allows no licence")?;
    Ok(list.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

/// Every package that Cargo would build here, with its licence; the project's own are left out.
fn licences(root: &Path) -> anyhow::Result<BTreeSet<(String, String)>> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = metadata(root, &["--offline", "--filter-platform", &target])?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let outside = packages.iter().filter(|package| !package["source"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or("no licence").to_owned();
    Ok(outside.map(|package| (text(&package["name"]), text(&package["license"]))).collect())
}

/// Whether each part of an SPDX expression that `AND` joins names a licence of the list among those that `OR` (or the
/// old `/`) joins: never laxer than the expression, whatever its parentheses. An exception (`WITH …`) only adds rights.
fn satisfies(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let is_balanced = expression.matches('(').count() == expression.matches(')').count();
    let plain = expression.replace(['(', ')'], "").replace('/', " OR ");
    let is_allowed = |licence: &str| {
        let (name, _) = licence.split_once(" WITH ").unwrap_or((licence, ""));
        allowed.contains(name.trim())
    };
    is_balanced && plain.split(" AND ").all(|part| part.split(" OR ").any(is_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    const TABLE: &str = "| crate | may depend on | never |\n|---|---|---|\n\
        | `base` | – | |\n| `sys` | – (libc) | |\n| `host` | base, sys | |\n| `top` | all but sys | |\n";

    fn found(name: &str, inside: &[&str], outside: &[&str]) -> BTreeMap<String, CrateDependencies> {
        let set = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<BTreeSet<_>>();
        let mut crates: BTreeMap<String, CrateDependencies> = ["base", "sys", "host", "top"]
            .iter()
            .map(|&n| (n.to_owned(), CrateDependencies::default()))
            .collect();
        crates.insert(
            name.to_owned(),
            CrateDependencies { inside: set(inside), outside: set(outside) },
        );
        crates
    }

    fn findings(crates: &BTreeMap<String, CrateDependencies>) -> Vec<String> {
        let page = file(PAGE, TABLE);
        compare(&page, &rules(TABLE, crates), crates).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn an_arrow_outside_the_table_is_found() {
        assert_eq!(findings(&found("host", &["base", "sys"], &[])), Vec::<String>::new());
        assert_eq!(findings(&found("base", &["host"], &[])).len(), 1);
        assert_eq!(findings(&found("top", &["sys"], &[])).len(), 1);
        assert_eq!(findings(&found("top", &["host", "base"], &["clap"])), Vec::<String>::new());
    }

    #[test]
    fn packages_in_parentheses_are_the_only_ones_allowed() {
        assert_eq!(findings(&found("sys", &[], &["libc"])), Vec::<String>::new());
        assert_eq!(findings(&found("sys", &[], &["serde"])).len(), 1);
    }

    #[test]
    fn a_crate_without_a_row_and_a_row_without_a_crate_are_found() {
        let mut crates = found("host", &[], &[]);
        crates.remove("sys");
        crates.insert("extra".to_owned(), CrateDependencies::default());
        assert_eq!(findings(&crates).len(), 2);
    }

    #[test]
    fn an_expression_is_met_exactly_when_some_reading_of_it_is_allowed() {
        let allowed = ["MIT", "Unicode-3.0"].map(str::to_owned).into();
        for met in ["MIT", "GPL-3.0 OR MIT", "Apache-2.0/MIT", "(MIT OR X) AND Unicode-3.0"] {
            assert!(satisfies(met, &allowed), "{met}");
        }
        for unmet in ["GPL-3.0", "MIT AND GPL-3.0", "", "(MIT", "MIT GPL-3.0", "no licence"] {
            assert!(!satisfies(unmet, &allowed), "{unmet}");
        }
        assert!(satisfies("Apache-2.0 WITH LLVM-exception OR MIT", &allowed));
    }
}
