//! Every testable statement of the five documents, from `docs/claims.toml`.

use std::sync::LazyLock;

use plumb_analysis::registry::TestableStatement;

const TEXT: &str = include_str!("../../../docs/claims.toml");

/// The statements in the order of the file.
pub(crate) static STATEMENTS: LazyLock<Vec<TestableStatement>> = LazyLock::new(|| read(TEXT));

fn read(text: &str) -> Vec<TestableStatement> {
    let table: toml::Table = text.parse().unwrap_or_default();
    let entries = table.get("claim").and_then(toml::Value::as_array);
    entries.into_iter().flatten().filter_map(statement).collect()
}

fn statement(entry: &toml::Value) -> Option<TestableStatement> {
    let text = |key: &str| entry.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    Some(TestableStatement {
        id: text("id")?,
        document: text("document")?,
        experiment: text("experiment")?,
        is_encoded: entry.get("encoded")?.as_bool()?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::claims::{KJELLERSTEDT, MARKATOS, MILLER, WEIGLE, ZHAO};
    use crate::definition::Experiment;
    use crate::list;

    /// What a claim's source is called in the file; none of a source that is not one of the five documents.
    fn document_of(source: &str) -> Option<&'static str> {
        let of = |(document, sources): (&'static str, &[&str])| {
            sources.contains(&source).then_some(document)
        };
        [
            ("ipc", &[ZHAO, MILLER][..]),
            ("gigabit", &[WEIGLE]),
            ("scaling", &[MARKATOS]),
            ("stack", &[KJELLERSTEDT]),
        ]
        .into_iter()
        .find_map(of)
    }

    #[test]
    fn the_file_and_the_experiments_agree_on_what_is_encoded() {
        let encoded = STATEMENTS.iter().filter(|statement| statement.is_encoded);
        let in_file: BTreeMap<&str, (&str, &str)> = encoded
            .map(|found| (found.id.as_str(), (found.document.as_str(), found.experiment.as_str())))
            .collect();
        let claims = |experiment: &'static Experiment| {
            let claims = experiment.analysis.claims.iter();
            claims.filter_map(|claim| Some((claim.id, (document_of(claim.source)?, experiment.id))))
        };
        let in_code: BTreeMap<&str, (&str, &str)> = list::all().flat_map(claims).collect();
        assert_eq!(in_file, in_code);
    }

    #[test]
    fn every_entry_of_the_file_is_read_and_has_its_own_id() {
        let ids: BTreeSet<&str> = STATEMENTS.iter().map(|found| found.id.as_str()).collect();
        assert_eq!(ids.len(), TEXT.matches("[[claim]]").count());
        assert_eq!(ids.len(), STATEMENTS.len());
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
