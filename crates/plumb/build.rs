//! Records which commit the program is built from, where that is known.

use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        (output.status.success()).then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let described =
        commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=PLUMB_CODE_VERSION={described}");
    if let Some(head) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={head}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
