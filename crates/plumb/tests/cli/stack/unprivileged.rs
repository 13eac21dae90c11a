//! The experiments of the stack as a user runs them who may make user namespaces, and may not read the kernel's
//! tracepoints: what can be measured is, and the rest bears its reason.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::home::{NOBODY, is_root, public_copy};
use crate::support::skip;

/// plumb as nobody.
fn plumb(place: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(place.join("plumb"));
    command.args(words).env("HOME", place);
    command.env_remove("XDG_DATA_HOME").env_remove("PLUMB_STORE");
    command.current_dir("/").stdin(Stdio::null());
    command.uid(NOBODY).gid(NOBODY).output().unwrap()
}

/// One short run by nobody.
fn run(place: &Path, words: &[&str]) -> (Output, Value) {
    let common = ["run", "--launches=2", "--json", "--no-progress", "--quiet"];
    let output = plumb(place, &[&common[..], words].concat());
    let document = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output, document)
}

/// Whether only root may enter where the kernel lists its tracepoints; only root may bring that there.
fn are_tracepoints_refused() -> bool {
    let tracefs = std::fs::metadata("/sys/kernel/tracing").ok();
    let is_mounted = std::fs::exists("/sys/kernel/tracing/events").unwrap_or(false);
    !is_mounted || tracefs.is_none_or(|tracefs| tracefs.permissions().mode() & 0o001 == 0)
}

fn reasons(document: &Value) -> String {
    let all = document["unavailable"].as_array().map_or(&[][..], Vec::as_slice);
    let reasons = all.iter().filter_map(|cell| cell["reason"].as_str());
    reasons.collect::<Vec<_>>().join("\n")
}

#[test]
fn without_tracepoints_a_user_measures_what_needs_none() {
    if !is_root() {
        return skip("only root can become nobody");
    }
    let place = public_copy();
    if !plumb(place.path(), &["stack", "lab", "--", "true"]).status.success() {
        return skip("user namespaces are not allowed here");
    }
    let common = ["--set=frame=60", "--set=placement=same-cpu", "--set=wake=block"];
    let words = ["mirror.rtt", "--set=stack=linux", "--set=checksum=computed", "--set=family=ipv4"];
    let (output, document) = run(place.path(), &[&words[..], &common].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}{document}");
    let results = document["results"].as_array().unwrap();
    assert!(results.iter().any(|r| r["response"] == "rtt"), "{document}");

    // Into Linux's own stack only tracepoints look; plumb's has its own clock reads.
    let (output, document) =
        run(place.path(), &[&["stack.time", "--set=stack=linux,plumb"], &common[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}{document}");
    let results = document["results"].as_array().unwrap();
    assert!(results.iter().any(|r| r["factors"]["stack"] == "plumb"), "{said}{document}");
    if !are_tracepoints_refused() {
        return skip("everybody may read the kernel's tracepoints here");
    }
    assert!(results.iter().all(|r| r["factors"]["stack"] != "linux"), "{document}");
    let reasons = reasons(&document);
    let (refused, fix) = ("tracepoints", "run plumb as root");
    assert!(reasons.contains(refused) && reasons.contains(fix), "{reasons}");
}
