//! `plumb link check`: what it prints, and what it refuses.

use serde_json::Value;

use crate::bench::{Bench, text};

#[test]
fn a_check_prints_a_document_of_the_published_shape_and_its_code_says_whether_all_is_well() {
    let Some(bench) = Bench::new() else { return };
    let words = ["check", "--rate", "4mbit", "--delay", "5ms", "--time", "1s", "--json"];
    let output = bench.link(&words).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema = include_str!("../../../../docs/schema/plumb.link-check-1.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    assert!(jsonschema::is_valid(&schema, &document), "{document}");
    let off = document["properties"].as_array().unwrap().iter();
    let off = off.filter(|property| property["status"] == "off").count();
    assert_eq!(document["ok"], off == 0);
    assert_eq!(output.status.code(), Some(i32::from(off > 0)), "{}", text(&output.stderr));
    let asked = |way: &str, property: &str| {
        let mut lines = document["properties"].as_array().unwrap().iter();
        let line = lines.find(|line| line["way"] == way && line["property"] == property).unwrap();
        line["asked"].as_str().unwrap().to_owned()
    };
    for way in ["up", "down"] {
        // 60 bytes at 4 Mb/s are 120 µs.
        assert_eq!(asked(way, "delay"), "5.12 ms");
        assert_eq!(asked(way, "rate"), "4.0000 Mb/s");
        assert_eq!(asked(way, "loss"), "0%");
    }
}

#[test]
fn a_check_of_no_link_or_for_no_time_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let (code, said) = bench.failed(&["check", "--time", "1h"]);
    assert!(code == Some(2) && said.contains("--time"), "{said}");
    let (code, said) = bench.failed(&["check", "--rate", "0"]);
    assert!(code == Some(2) && said.contains("zero"), "{said}");
}
