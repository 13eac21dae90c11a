//! What `plumb net` has measured as runs of the store, with the whole document as evidence, and such runs shown again.

use plumb_harness::environment;
use plumb_result::http::HttpDocument;
use plumb_result::net::NetDocument;
use plumb_store::sqlite::{Store, StoreMode};

use crate::VERSION;
use crate::cli::output::{CliOutput, CommandError};
use crate::cli::{GlobalOptions, store};
use crate::net::stored_run::{NetRunHeader, StoredDocument, TITLE};
use crate::problem::{ExitReason, Problem};

/// Stores a measurement as a run, with the document as its evidence; nothing where it has no cells.
///
/// # Errors
/// The store's.
pub fn store<D: StoredDocument>(
    global: &GlobalOptions,
    output: &CliOutput,
    document: &mut D,
) -> Result<(), Problem> {
    let mut store = store::open(global, StoreMode::Write)?;
    let random = plumb_clock::entropy().map_err(|error| {
        Problem::failure("cannot read random bits from /dev/urandom").because(error)
    })?;
    let created_unix_ms = document.created_unix_ms();
    let id = store.new_run_id(TITLE, created_unix_ms, random)?;
    let command: Vec<_> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let header = NetRunHeader {
        id: id.clone(),
        created_unix_ms,
        provenance: environment::capture(),
        command: command.join(" "),
        code_version: VERSION.to_owned(),
    };
    let Some(data) = document.run(header) else {
        output.note("nothing was counted, so nothing is stored");
        return Ok(());
    };
    store.insert(&data)?;
    *document.run_id() = Some(id.clone());
    let json = serde_json::to_string(document)
        .map_err(|error| Problem::failure("cannot write the evidence as JSON").because(error))?;
    store.put_attachment(&id, D::SCHEMA, &json)?;
    output.note(&format!("stored as {id}"));
    Ok(())
}

/// Prints a stored measurement.
///
/// # Errors
/// No such run, or one of another command.
pub fn show(
    run: &str,
    details: bool,
    global: &GlobalOptions,
    output: &CliOutput,
) -> Result<ExitReason, CommandError> {
    let store = store::open(global, StoreMode::Read)?;
    let id = store.find(run).map_err(Problem::from)?;
    if !show_any(&store, &id, details, output)? {
        return Err(Problem::usage(format!("{id} was not measured by 'plumb net'"))
            .fix(format!("look at it with: plumb show {id}"))
            .into());
    }
    Ok(ExitReason::Success)
}

/// Prints what `plumb net` printed of a run, if that has measured it.
///
/// # Errors
/// The store's.
pub fn show_any(
    store: &Store,
    id: &str,
    details: bool,
    output: &CliOutput,
) -> Result<bool, CommandError> {
    if let Some(document) = stored::<NetDocument>(store, id)? {
        output.show(&document, |style| document.page(details, style))?;
        return Ok(true);
    }
    let Some(document) = stored::<HttpDocument>(store, id)? else { return Ok(false) };
    output.show(&document, |style| document.page(details, style))?;
    Ok(true)
}

/// The document of a run, if it has one of this kind.
///
/// # Errors
/// The store's.
pub fn stored<D: StoredDocument>(store: &Store, id: &str) -> Result<Option<D>, Problem> {
    let Some(kept) = store.attachment(id, D::SCHEMA)? else { return Ok(None) };
    let document = serde_json::from_str(&kept).map_err(|error| {
        Problem::failure(format!("the evidence of {id} cannot be read")).because(error)
    })?;
    Ok(Some(document))
}
