//! Errors of predictions that were scored, kept with the run that they were made from: intervals of later predictions come of them.

use plumb_store::sqlite::{Store, StoreMode};

use super::{GlobalOptions, store};
use crate::problem::Problem;

/// What the names of kept errors begin with; the kind of prediction follows, and the runs that predicted and measured.
const SCHEMA: &str = "plumb.prediction-errors/1";

/// Keeps errors, as logarithms of measured to predicted, of predictions of a kind from a run, scored against another.
///
/// # Errors
/// The store cannot be written.
pub fn keep(
    errors: &[f64],
    kind: &str,
    [run, against]: [&str; 2],
    global: &GlobalOptions,
) -> Result<(), Problem> {
    let mut store = store::open(global, StoreMode::Write)?;
    let json = serde_json::to_string(errors)
        .map_err(|error| Problem::failure("cannot write the errors as JSON").because(error))?;
    store.put_attachment(run, &format!("{SCHEMA} {kind} {run} {against}"), &json)?;
    Ok(())
}

/// The errors kept of predictions of this kind, but for those scored against a run.
///
/// # Errors
/// The store cannot be read.
pub fn kept(store: &Store, kind: &str, but: Option<&str>) -> Result<Vec<f64>, Problem> {
    let mut errors: Vec<f64> = Vec::new();
    for (name, json) in store.attachments(&format!("{SCHEMA} {kind} "))? {
        if but.is_none_or(|run| !name.ends_with(&format!(" {run}"))) {
            let more: Vec<f64> = serde_json::from_str(&json)
                .map_err(|error| Problem::failure(format!("cannot read {name}")).because(error))?;
            errors.extend(more);
        }
    }
    Ok(errors)
}
