//! Every testable statement of the five documents, from `docs/claims.toml`.

use std::sync::LazyLock;

use plumb_analysis::registry::{StatementFigure, TestableStatement};

const TEXT: &str = include_str!("../../../docs/claims.toml");

/// The statements in the order of the file.
pub(crate) static STATEMENTS: LazyLock<Vec<TestableStatement>> = LazyLock::new(|| read(TEXT));

fn read(text: &str) -> Vec<TestableStatement> {
    let table: toml::Table = text.parse().unwrap_or_default();
    let entries = table.get("claim").and_then(toml::Value::as_array);
    entries.into_iter().flatten().filter_map(statement).collect()
}

fn statement(entry: &toml::Value) -> Option<TestableStatement> {
    let text = |key: &str| text(entry, key);
    let figures = entry.get("figures").and_then(toml::Value::as_array);
    Some(TestableStatement {
        id: text("id")?,
        document: text("document")?,
        author: text("author")?,
        place: text("place")?,
        statement: text("statement")?,
        figures: figures.into_iter().flatten().filter_map(figure).collect(),
        experiment: text("experiment")?,
        is_encoded: entry.get("encoded")?.as_bool()?,
        needs: text("needs").unwrap_or_default(),
        flaw: text("flaw").unwrap_or_default(),
    })
}

fn figure(entry: &toml::Value) -> Option<StatementFigure> {
    let value = entry.get("value")?.as_float()?;
    Some(StatementFigure { name: text(entry, "name")?, value, unit: text(entry, "unit")? })
}

fn text(entry: &toml::Value, key: &str) -> Option<String> {
    entry.get(key).and_then(toml::Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::definition::Experiment;
    use crate::{list, machines};

    /// The document that a claim's source is; none of a source that is not one of the five.
    fn document_of(source: &str) -> Option<&'static str> {
        match source.split([',', ' ']).next()? {
            "Markatos" => Some("scaling"),
            "Weigle" => Some("gigabit"),
            "Lantz" => Some("distributed"),
            "Miller" | "Zhao" => Some("ipc"),
            "Kjellerstedt" => Some("stack"),
            _ => None,
        }
    }

    #[test]
    fn the_file_and_the_experiments_agree_on_what_is_encoded() {
        let encoded = STATEMENTS.iter().filter(|statement| statement.is_encoded);
        let in_file: BTreeSet<(&str, &str)> =
            encoded.map(|found| (found.id.as_str(), found.document.as_str())).collect();
        let claims = |experiment: &'static Experiment| {
            let claims = experiment.analysis.claims.iter();
            claims.filter_map(|claim| Some((claim.id, document_of(claim.source)?)))
        };
        let mut in_code: BTreeSet<(&str, &str)> = list::all().flat_map(claims).collect();
        let of_machines = machines::claims::CLAIMS.iter();
        in_code.extend(of_machines.filter_map(|it| Some((it.id, document_of(it.source())?))));
        let only_in_file: Vec<_> = in_file.difference(&in_code).collect();
        let only_in_code: Vec<_> = in_code.difference(&in_file).collect();
        assert!(
            only_in_file.is_empty() && only_in_code.is_empty(),
            "only in docs/claims.toml: {only_in_file:?}; only in the experiments: {only_in_code:?}"
        );
    }

    #[test]
    fn every_entry_of_the_file_is_read_and_has_its_own_id() {
        let ids: BTreeSet<&str> = STATEMENTS.iter().map(|found| found.id.as_str()).collect();
        assert_eq!(ids.len(), TEXT.matches("[[claim]]").count());
        assert_eq!(ids.len(), STATEMENTS.len());
        let figures: usize = STATEMENTS.iter().map(|found| found.figures.len()).sum();
        assert_eq!(figures, TEXT.matches("{ name = ").count());
    }

    #[test]
    fn no_statement_of_a_document_is_an_expectation_of_ours() {
        let expectations = list::all().flat_map(|experiment| experiment.analysis.expectations);
        let found: Vec<&str> = expectations
            .map(|expectation| expectation.id)
            .filter(|id| STATEMENTS.iter().any(|statement| statement.id == *id))
            .collect();
        assert_eq!(found, Vec::<&str>::new());
    }
}
