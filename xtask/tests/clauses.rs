//! The generated table of the RFC's requirements is what `cargo xtask clauses` would write.

use std::path::Path;

#[test]
fn the_table_of_musts_is_current() {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lives in the workspace");
    let page = std::fs::read_to_string(root.join(xtask::clauses::PAGE)).unwrap_or_default();
    let current = xtask::clauses::page(root).expect("git runs here");
    assert!(page == current, "docs/rfc9293.md is stale: run cargo xtask clauses");
}
