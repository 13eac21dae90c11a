//! `plumb link check`: what it prints, and what it refuses.

use super::test_home::LinkTestHome;
use crate::home::{assert_valid, json_of, text};

#[test]
fn the_exit_code_of_a_check_says_whether_a_property_is_off() {
    let Some(bench) = LinkTestHome::new() else { return };
    let words = ["check", "--rate", "4mbit", "--delay", "5ms", "--time", "1s", "--json"];
    let output = bench.link(&words).output().unwrap();
    let document = json_of(&output);
    assert_valid(&document, "plumb.link-check/1");
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
    let Some(bench) = LinkTestHome::new() else { return };
    bench.assert_refused(&["check", "--time", "1h"], &["--time"]);
    bench.assert_refused(&["check", "--rate", "0"], &["zero"]);
}
