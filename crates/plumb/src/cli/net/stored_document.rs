//! What `plumb net` has measured as runs of the store, with the whole document as evidence, and such runs shown again.

use plumb_analysis::document::{http, net};
use plumb_harness::environment;
use plumb_report::terminal;
use plumb_store::record::RunData;
use plumb_store::sqlite::{Store, StoreMode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::http_page::render;
use crate::VERSION;
use crate::cli::output::{CliOutput, CommandError};
use crate::cli::{GlobalOptions, store};
use crate::net::stored_run::{NetRunHeader, TITLE};
use crate::problem::{ExitReason, Problem};

/// A document that may be kept with a run.
pub trait StoredDocument: Serialize {
    /// The name of its shape.
    const SCHEMA: &'static str;

    /// When what it says was begun, in milliseconds since 1970 UTC.
    fn created_unix_ms(&self) -> i64;

    /// Has it say of which run it is.
    fn name_run(&mut self, id: String);
}

impl StoredDocument for net::NetDocument {
    const SCHEMA: &'static str = net::SCHEMA;

    fn created_unix_ms(&self) -> i64 {
        self.created_unix_ms
    }

    fn name_run(&mut self, id: String) {
        self.run = Some(id);
    }
}

impl StoredDocument for http::HttpDocument {
    const SCHEMA: &'static str = http::SCHEMA;

    fn created_unix_ms(&self) -> i64 {
        self.created_unix_ms
    }

    fn name_run(&mut self, id: String) {
        self.run = Some(id);
    }
}

/// Stores a measurement as a run, with the document as its evidence; nothing where it has no cells.
///
/// # Errors
/// The store's.
pub fn store<D: StoredDocument>(
    global: &GlobalOptions,
    output: &CliOutput,
    document: &mut D,
    run: impl FnOnce(NetRunHeader, &D) -> Option<RunData>,
) -> Result<(), Problem> {
    let mut store = store::open(global, StoreMode::Write)?;
    let random = plumb_clock::entropy().map_err(|error| {
        Problem::failure("cannot read random bits from /dev/urandom").because(error)
    })?;
    let created_unix_ms = document.created_unix_ms();
    let id = store.new_run_id(TITLE, created_unix_ms, random)?;
    let header = NetRunHeader {
        id: id.clone(),
        created_unix_ms,
        provenance: environment::capture(),
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" "),
        code_version: VERSION.to_owned(),
    };
    let Some(data) = run(header, document) else {
        output.note("nothing was counted, so nothing is stored");
        return Ok(());
    };
    store.insert(&data)?;
    document.name_run(id.clone());
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
    global: &GlobalOptions,
    output: &CliOutput,
) -> Result<ExitReason, CommandError> {
    let store = store::open(global, StoreMode::Read)?;
    let id = store.find(run).map_err(Problem::from)?;
    if let Some(found) = evidence::<net::NetDocument>(&store, &id)? {
        return print(&found, output, |found| terminal::net::render(found, output.style));
    }
    if let Some(found) = evidence::<http::HttpDocument>(&store, &id)? {
        return print(&found, output, |found| render(found, output));
    }
    Err(Problem::usage(format!("{id} was not measured by 'plumb net'"))
        .fix(format!("look at it with: plumb show {id}"))
        .into())
}

fn evidence<D: StoredDocument + DeserializeOwned>(
    store: &Store,
    id: &str,
) -> Result<Option<D>, Problem> {
    let kept = store.attachment(id, D::SCHEMA).map_err(Problem::from)?;
    let read = |text: String| serde_json::from_str(&text);
    kept.map(read).transpose().map_err(|error| {
        Problem::failure(format!("the evidence of {id} cannot be read")).because(error)
    })
}

fn print<D: StoredDocument>(
    document: &D,
    output: &CliOutput,
    page: impl FnOnce(&D) -> String,
) -> Result<ExitReason, CommandError> {
    if output.json {
        output.document(document)?;
    } else {
        output.page(&page(document))?;
    }
    Ok(ExitReason::Success)
}
