//! Tells the crate how it was built, for the provenance of results: nothing that differs between two builds of the same
//! source, such as times and paths.

use std::process::Command;

fn main() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    tell("RUSTC", version.as_deref().unwrap_or("unknown"));
    for (name, variable) in
        [("TARGET", "TARGET"), ("PROFILE", "PROFILE"), ("OPT_LEVEL", "OPT_LEVEL")]
    {
        tell(name, std::env::var(variable).as_deref().unwrap_or("unknown"));
    }
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    // Flags that name a path say where it was built, not what was built.
    let flags: Vec<&str> = flags.split('\x1f').filter(|flag| !flag.contains('/')).collect();
    let flags = flags.join(" ");
    tell("FLAGS", if flags.is_empty() { "none" } else { &flags });
    tell_cargo("rerun-if-changed=build.rs");
}

fn tell(name: &str, value: &str) {
    tell_cargo(&format!("rustc-env=PLUMB_BUILD_{name}={value}"));
}

fn tell_cargo(line: &str) {
    println!("cargo::{line}");
}
