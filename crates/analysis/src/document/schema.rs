//! The published JSON Schemas of every document, made from the types; a test keeps `docs/schema/` in step.

use plumb_result::http::{self, HttpDocument};
use plumb_result::iperf3::{self, Iperf3Document};
use plumb_result::net::{self, NetDocument};
use plumb_result::stamp::{self, StampDocument};
use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

use crate::document::advise::{ADVISE_SCHEMA, AdviseDocument, CHATTY_SCHEMA, ChattyDocument};
use crate::document::compare::{self, CompareDocument};
use crate::document::display::{self, DisplayDocument};
use crate::document::explain::{self, ExplainDocument};
use crate::document::host::{
    AGENT_SCHEMA, AgentDocument, CheckDocument, DOCTOR_SCHEMA, DoctorDocument, PAIR_SCHEMA,
    PairDocument, SELFTEST_SCHEMA, STORE_CHECK_SCHEMA, SelftestDocument,
};
use crate::document::link::{
    LINK_CHECK_SCHEMA, LINK_SCHEMA, LINKS_SCHEMA, LinkCheckDocument, LinkDocument, LinksDocument,
};
use crate::document::list::{
    CLAIMS_SCHEMA, ClaimsDocument, LIST_SCHEMA, ListDocument, RUNS_SCHEMA, RunsDocument,
};
use crate::document::model::{
    MODEL_SCHEMA, ModelDocument, PREDICT_SCHEMA, PredictDocument, SENSITIVITY_SCHEMA,
    SensitivityDocument,
};
use crate::document::scale::{INDEX_SCHEMA, IndexDocument, SCALE_SCHEMA, ScaleDocument};
use crate::document::sim::{self, CONGESTION_SCHEMA, CongestionDocument, SimDocument};
use crate::document::stack::{self, ConformDocument, StackDocument};
use crate::document::{RUN_SCHEMA, RunDocument};

/// One published shape.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentSchema {
    /// What a document says in its `schema` field: `plumb.run/1`.
    pub name: &'static str,
    /// The file in `docs/schema/`: `plumb.run-1.json`.
    pub file: String,
    /// The JSON Schema, draft 2020-12.
    pub schema: Value,
}

/// Every document this program prints, with its schema.
pub fn all() -> Vec<DocumentSchema> {
    vec![
        document_schema::<RunDocument>(RUN_SCHEMA),
        document_schema::<CompareDocument>(compare::SCHEMA),
        document_schema::<RunsDocument>(RUNS_SCHEMA),
        document_schema::<ListDocument>(LIST_SCHEMA),
        document_schema::<ClaimsDocument>(CLAIMS_SCHEMA),
        document_schema::<IndexDocument>(INDEX_SCHEMA),
        document_schema::<ScaleDocument>(SCALE_SCHEMA),
        document_schema::<ModelDocument>(MODEL_SCHEMA),
        document_schema::<PredictDocument>(PREDICT_SCHEMA),
        document_schema::<SensitivityDocument>(SENSITIVITY_SCHEMA),
        document_schema::<DoctorDocument>(DOCTOR_SCHEMA),
        document_schema::<CheckDocument>(STORE_CHECK_SCHEMA),
        document_schema::<ExplainDocument>(explain::SCHEMA),
        document_schema::<SelftestDocument>(SELFTEST_SCHEMA),
        document_schema::<ConformDocument>(stack::CONFORM_SCHEMA),
        document_schema::<DisplayDocument>(display::SCHEMA),
        document_schema::<ChattyDocument>(CHATTY_SCHEMA),
        document_schema::<AdviseDocument>(ADVISE_SCHEMA),
        document_schema::<SimDocument>(sim::SCHEMA),
        document_schema::<CongestionDocument>(CONGESTION_SCHEMA),
        document_schema::<StackDocument>(stack::SCHEMA),
        document_schema::<StampDocument>(stamp::SCHEMA),
        document_schema::<Iperf3Document>(iperf3::SCHEMA),
        document_schema::<LinkDocument>(LINK_SCHEMA),
        document_schema::<LinkCheckDocument>(LINK_CHECK_SCHEMA),
        document_schema::<LinksDocument>(LINKS_SCHEMA),
        document_schema::<NetDocument>(net::SCHEMA),
        document_schema::<HttpDocument>(http::SCHEMA),
        document_schema::<AgentDocument>(AGENT_SCHEMA),
        document_schema::<PairDocument>(PAIR_SCHEMA),
    ]
}

fn document_schema<T: JsonSchema>(name: &'static str) -> DocumentSchema {
    let mut schema = schema_for!(T).to_value();
    // The shape's name is a promise, so a document of another shape must not validate.
    if let Some(property) = schema.pointer_mut("/properties/schema") {
        property["const"] = json!(name);
    }
    schema["title"] = json!(name);
    DocumentSchema { name, file: format!("{}.json", name.replace('/', "-")), schema }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Rewrites the files instead when `PLUMB_WRITE_SCHEMAS` is set.
    #[test]
    fn published_schemas_match_the_types() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
        for DocumentSchema { name, file, schema } in all() {
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
