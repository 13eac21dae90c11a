//! `plumb link check`.

use super::test_home::LinkTestHome;
use crate::home::{assert_valid, json_of, text};

#[test]
fn exit_code_of_a_check_says_whether_a_property_is_off() {
    let Some(bench) = LinkTestHome::new() else { return };
    let output = bench.link("check --rate 4mbit --delay 5ms --time 1s --json").output().unwrap();
    let document = json_of(&output);
    assert_valid(&document, "plumb.link-check/1");
    let properties = document["properties"].as_array().unwrap();
    let off = properties.iter().filter(|property| property["status"] == "off").count();
    assert_eq!(document["ok"], off == 0);
    assert_eq!(output.status.code(), Some(i32::from(off > 0)), "{}", text(&output.stderr));
    for way in ["up", "down"] {
        // 60 bytes at 4 Mb/s are 120 µs.
        for (property, asked) in [("delay", "5.12 ms"), ("rate", "4.0000 Mb/s"), ("loss", "0%")] {
            let mut lines = properties.iter();
            let is_meant =
                |line: &&serde_json::Value| line["way"] == way && line["property"] == property;
            assert_eq!(lines.find(is_meant).unwrap()["asked"], asked, "{way} {property}");
        }
    }
}

#[test]
fn checks_out_of_range_are_rejected() {
    let Some(bench) = LinkTestHome::new() else { return };
    bench.assert_rejected(&[("check --time 1h", "--time"), ("check --rate 0", "zero")]);
}
