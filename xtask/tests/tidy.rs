//! The project is tidy: the same check as `cargo xtask tidy`, as an ordinary test.

use std::path::Path;

#[test]
fn the_project_keeps_the_rules_of_the_house() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lives in the workspace");
    let findings = xtask::tidy::check(root).expect("git and cargo run here");
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}", list.join("\n"));
}
