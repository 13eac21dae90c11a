//! What `plumb net` has measured as runs of the store, with the whole document as evidence, and such runs shown again.
//!
//! Left out: which cells and blocks they have (`crate::net::{record, page}`).

use plumb_analysis::document::{http, net};
use plumb_host::{clock, environment};
use plumb_report::terminal;
use plumb_store::record::RunData;
use plumb_store::sqlite::{Mode, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::http::render;
use crate::cli::output::{Failure, Output};
use crate::cli::{Global, VERSION, stored};
use crate::net::record::{Header, TITLE};
use crate::problem::{Exit, Problem};

/// A document that may be kept with a run.
pub trait Document: Serialize {
    /// The name of its shape.
    const SCHEMA: &'static str;

    /// When what it says was begun, in milliseconds since 1970 UTC.
    fn created_unix_ms(&self) -> i64;

    /// Has it say of which run it is.
    fn name_run(&mut self, id: String);
}

impl Document for net::NetDocument {
    const SCHEMA: &'static str = net::SCHEMA;

    fn created_unix_ms(&self) -> i64 {
        self.created_unix_ms
    }

    fn name_run(&mut self, id: String) {
        self.run = Some(id);
    }
}

impl Document for http::HttpDocument {
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
pub fn keep<D: Document>(
    global: &Global,
    output: &Output,
    document: &mut D,
    run: impl FnOnce(Header, &D) -> Option<RunData>,
) -> Result<(), Problem> {
    let mut store = stored::open(global, Mode::Write)?;
    let random = clock::entropy().map_err(|error| {
        Problem::trouble("cannot read random bits from /dev/urandom").because(error)
    })?;
    let created_unix_ms = document.created_unix_ms();
    let id = store.new_run_id(TITLE, created_unix_ms, random)?;
    let header = Header {
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
        output.remark("nothing was counted, so nothing is stored");
        return Ok(());
    };
    store.insert(&data)?;
    document.name_run(id.clone());
    let json = serde_json::to_string(document)
        .map_err(|error| Problem::trouble("cannot write the evidence as JSON").because(error))?;
    store.keep_evidence(&id, D::SCHEMA, &json)?;
    output.remark(&format!("stored as {id}"));
    Ok(())
}

/// Prints a stored measurement.
///
/// # Errors
/// No such run, or one of another command.
pub fn show(run: &str, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let store = stored::open(global, Mode::Read)?;
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

fn evidence<D: Document + DeserializeOwned>(store: &Store, id: &str) -> Result<Option<D>, Problem> {
    let kept = store.evidence(id, D::SCHEMA).map_err(Problem::from)?;
    let read = |text: String| serde_json::from_str(&text);
    kept.map(read).transpose().map_err(|error| {
        Problem::trouble(format!("the evidence of {id} cannot be read")).because(error)
    })
}

fn print<D: Document>(
    document: &D,
    output: &Output,
    page: impl FnOnce(&D) -> String,
) -> Result<Exit, Failure> {
    if output.json {
        output.document(document)?;
    } else {
        output.page(&page(document))?;
    }
    Ok(Exit::Fine)
}
