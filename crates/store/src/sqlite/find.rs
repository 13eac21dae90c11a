//! Runs by the names that people type: an id, the beginning of one, `last`, `last~2`.

use super::{Store, StoreError};

/// The title of runs that were made to explain another, which `last` passes over.
pub const EXPLANATION_TITLE: &str = "explain";

/// How many candidates an error lists.
const LISTED_MAX: usize = 6;

impl Store {
    /// The id of the run that `text` means.
    ///
    /// An exact id first, then `last` (the newest run that does not explain another) and `last~N` (the Nth before it),
    /// then the unique id that begins with `text`.
    ///
    /// # Errors
    /// [`StoreError::NoRun`] with the ids nearest to it, [`StoreError::Ambiguous`] with the ids
    /// that begin with it, and the store's own troubles.
    pub fn find(&self, text: &str) -> Result<String, StoreError> {
        let ids = self.ids()?;
        let asked = text.trim();
        if ids.iter().any(|id| id == asked) {
            return Ok(asked.to_owned());
        }
        if let Some(back) = steps_back(asked) {
            let sql =
                "SELECT id FROM run WHERE title <> ?1 ORDER BY created_unix_ms DESC, key DESC";
            let ids: Vec<String> = self.query_all(sql, [EXPLANATION_TITLE], |row| row.get(0))?;
            return ids.get(back).cloned().ok_or_else(|| match ids.len() {
                0 => similar_runs_error(asked, &ids),
                count => StoreError::TooFewRuns { requested: asked.to_owned(), count },
            });
        }
        let mut candidates = ids.iter().filter(|id| !asked.is_empty() && id.starts_with(asked));
        match (candidates.next(), candidates.next()) {
            (None, _) => Err(similar_runs_error(asked, &ids)),
            (Some(only), None) => Ok(only.clone()),
            (Some(first), Some(second)) => Err(StoreError::Ambiguous {
                asked: asked.to_owned(),
                candidates: [first, second]
                    .into_iter()
                    .chain(candidates)
                    .take(LISTED_MAX)
                    .cloned()
                    .collect(),
            }),
        }
    }

    /// The error for a run that is not there.
    pub(super) fn run_not_found(&self, asked: &str) -> StoreError {
        match self.ids() {
            Ok(ids) => similar_runs_error(asked, &ids),
            Err(error) => error,
        }
    }

    /// The ids of all runs, newest first.
    fn ids(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT id FROM run ORDER BY created_unix_ms DESC, key DESC";
        self.query_all(sql, [], |row| row.get(0))
    }
}

/// How many runs before the newest `last` or `last~N` means.
fn steps_back(text: &str) -> Option<usize> {
    match text.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

/// The error that lists the ids most like `asked`, or the newest where none is.
fn similar_runs_error(asked: &str, ids: &[String]) -> StoreError {
    // Ids share their day, so likeness is Jaro–Winkler's, which weighs the beginning most.
    let mut scored: Vec<(f64, &String)> = ids
        .iter()
        .map(|id| {
            let bonus = if !asked.is_empty() && id.contains(asked) { 1.0 } else { 0.0 };
            (strsim::jaro_winkler(asked, id) + bonus, id)
        })
        .filter(|(score, _)| *score > 0.7)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut near: Vec<String> = scored.into_iter().map(|(_, id)| id.clone()).collect();
    if near.is_empty() {
        near = ids.to_vec();
    }
    near.truncate(LISTED_MAX);
    StoreError::NoRun { requested: asked.to_owned(), similar: near }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::fixture;

    fn store_with(ids: &[(&str, i64)]) -> (tempfile::TempDir, Store) {
        let (directory, mut store) = fixture::store();
        for (id, created_unix_ms) in ids {
            store.insert(&fixture::bare(id, *created_unix_ms)).unwrap();
        }
        (directory, store)
    }

    #[test]
    fn runs_are_found_by_id_prefix_and_age() {
        let (_directory, store) = store_with(&[
            ("ladder-20261120-aaaa", 1),
            ("ladder-20261121-bbbb", 3),
            ("latency-20261121-cccc", 2),
        ]);
        let found = |text: &str| store.find(text).unwrap();
        assert_eq!(found("ladder-20261120-aaaa"), "ladder-20261120-aaaa");
        assert_eq!(found("lat"), "latency-20261121-cccc");
        assert_eq!(found("last"), "ladder-20261121-bbbb");
        assert_eq!(found("last~1"), "latency-20261121-cccc");
        assert_eq!(found("last~2"), "ladder-20261120-aaaa");
    }

    #[test]
    fn an_exact_id_wins_over_longer_ones_and_over_last() {
        let (_directory, store) = store_with(&[("a", 1), ("ab", 2), ("last", 0)]);
        assert_eq!(store.find("a").unwrap(), "a");
        assert_eq!(store.find("last").unwrap(), "last");
    }

    #[test]
    fn a_name_that_fits_several_runs_lists_them() {
        let (_directory, store) =
            store_with(&[("ladder-20261120-aaaa", 1), ("ladder-20261121-bbbb", 2)]);
        let message = store.find("ladder").unwrap_err().to_string();
        assert!(message.contains("ladder-20261121-bbbb, ladder-20261120-aaaa"), "{message}");
    }

    #[test]
    fn a_name_that_fits_none_lists_the_nearest() {
        let (_directory, store) = store_with(&[
            ("ladder-20261120-aaaa", 1),
            ("throughput-20261121-9f3e", 2),
            ("call-kernel-20261121-77b1", 3),
        ]);
        for (asked, nearest) in [
            ("lader-20261120", "ladder-20261120-aaaa"),
            ("9f3e", "throughput-20261121-9f3e"),
            ("", "call-kernel-20261121-77b1"),
            ("last~x", "call-kernel-20261121-77b1"),
        ] {
            let Err(StoreError::NoRun { similar: near, .. }) = store.find(asked) else {
                panic!("{asked} found something");
            };
            assert_eq!(near[0], nearest, "asked for '{asked}'");
        }
        let few = store.find("last~3").unwrap_err();
        assert!(matches!(few, StoreError::TooFewRuns { count: 3, .. }), "{few}");
    }

    #[test]
    fn an_empty_store_says_that_there_is_no_run() {
        let (_directory, store) = store_with(&[]);
        let message = store.find("last").unwrap_err().to_string();
        assert!(message.starts_with("there is no run 'last' in the store;"), "{message}");
    }
}
