//! The published JSON Schemas of every document, made from the types.
//!
//! Left out: writing them to `docs/schema/`; a test keeps those files in step.

use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use crate::document::agent::{self, AgentDocument};
use crate::document::check::{self, CheckDocument};
use crate::document::compare::{self, CompareDocument};
use crate::document::doctor::{self, DoctorDocument};
use crate::document::explain::{self, ExplainDocument};
use crate::document::http::{self, HttpDocument};
use crate::document::iperf3::{self, Iperf3Document};
use crate::document::link::{self, LinkDocument};
use crate::document::link_check::{self, LinkCheckDocument};
use crate::document::links::{self, LinksDocument};
use crate::document::list::{self, ListDocument};
use crate::document::net::{self, NetDocument};
use crate::document::pair::{self, PairDocument};
use crate::document::runs::{self, RunsDocument};
use crate::document::selftest::{self, SelftestDocument};
use crate::document::stack::{self, StackDocument};
use crate::document::stamp::{self, StampDocument};
use crate::document::{RUN_SCHEMA, RunDocument};

/// One published shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// What a document says in its `schema` field: `plumb.run/1`.
    pub name: &'static str,
    /// The file in `docs/schema/`: `plumb.run-1.json`.
    pub file: String,
    /// The JSON Schema, draft 2020-12.
    pub schema: Value,
}

/// Every document this program prints, with its schema.
pub fn all() -> Vec<Published> {
    vec![
        published::<RunDocument>(RUN_SCHEMA),
        published::<CompareDocument>(compare::SCHEMA),
        published::<RunsDocument>(runs::SCHEMA),
        published::<ListDocument>(list::SCHEMA),
        published::<DoctorDocument>(doctor::SCHEMA),
        published::<CheckDocument>(check::SCHEMA),
        published::<ExplainDocument>(explain::SCHEMA),
        published::<SelftestDocument>(selftest::SCHEMA),
        published::<StackDocument>(stack::SCHEMA),
        published::<StampDocument>(stamp::SCHEMA),
        published::<Iperf3Document>(iperf3::SCHEMA),
        published::<LinkDocument>(link::SCHEMA),
        published::<LinkCheckDocument>(link_check::SCHEMA),
        published::<LinksDocument>(links::SCHEMA),
        published::<NetDocument>(net::SCHEMA),
        published::<HttpDocument>(http::SCHEMA),
        published::<AgentDocument>(agent::SCHEMA),
        published::<PairDocument>(pair::SCHEMA),
    ]
}

fn published<T: JsonSchema>(name: &'static str) -> Published {
    let mut schema = schema_for!(T).to_value();
    // The shape's name is a promise, so a document of another shape must not validate.
    if let Some(property) = schema.pointer_mut("/properties/schema") {
        property["const"] = json!(name);
    }
    schema["title"] = json!(name);
    Published { name, file: format!("{}.json", name.replace('/', "-")), schema }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Rewrites the files instead when `PLUMB_WRITE_SCHEMAS` is set.
    #[test]
    fn published_schemas_match_the_types() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
        for Published { name, file, schema } in all() {
            let path = directory.join(&file);
            let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
            if std::env::var_os("PLUMB_WRITE_SCHEMAS").is_some() {
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            let stored = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                stored == text,
                "docs/schema/{file} is not the schema of {name}: \
                 run PLUMB_WRITE_SCHEMAS=1 cargo test -p plumb-analysis published_schemas"
            );
        }
    }

    #[test]
    fn every_schema_refuses_a_document_of_another_shape() {
        for published in all() {
            assert_eq!(published.schema["properties"]["schema"]["const"], published.name);
        }
    }
}
