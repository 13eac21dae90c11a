//! Licences of everything that is built in, against the list in `deny.toml`.
//!
//! The same question that `cargo deny check licenses` asks, so that it is asked where cargo-deny
//! is not installed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::Finding;
use crate::files::ProjectFile;

const POLICY: &str = "deny.toml";

pub(super) fn check(root: &Path, files: &[ProjectFile]) -> anyhow::Result<Vec<Finding>> {
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
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &target])
        .current_dir(root)
        .output()
        .context("cargo could not be run; tidy asks it for the licences")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let outside = packages.iter().filter(|package| !package["source"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or("no licence").to_owned();
    Ok(outside.map(|package| (text(&package["name"]), text(&package["license"]))).collect())
}

/// Whether an SPDX expression can be met from the list: `OR` (or the old `/`) binds less than
/// `AND`, and parentheses bind most. An exception (`WITH …`) only adds rights, so it is dropped.
fn satisfies(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    let met = either(&mut tokens, allowed);
    met && tokens.next().is_none()
}

type LicenseTokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(tokens: &mut LicenseTokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = both(tokens, allowed);
    while tokens.next_if_eq(&"OR").is_some() {
        met |= both(tokens, allowed);
    }
    met
}

fn both(tokens: &mut LicenseTokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(tokens, allowed);
    while tokens.next_if_eq(&"AND").is_some() {
        met &= one(tokens, allowed);
    }
    met
}

fn one(tokens: &mut LicenseTokens<'_>, allowed: &BTreeSet<String>) -> bool {
    let Some(token) = tokens.next() else { return false };
    if token == "(" {
        let met = either(tokens, allowed);
        return tokens.next() == Some(")") && met;
    }
    if tokens.next_if_eq(&"WITH").is_some() {
        tokens.next();
    }
    allowed.contains(token)
}

#[cfg(test)]
mod tests {
    use super::*;

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
