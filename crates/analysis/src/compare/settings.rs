//! Settings of the machine and the program that differ between two runs.
//!
//! Left out: what each of them does to a result, and the conditions of the moment, such as load and free memory, which
//! differ between any two runs.

use plumb_store::record::RunRecord;

use crate::document::compare::SettingDifference;
use crate::document::{OUTER_LINK, host_notes};

/// Facts that are conditions of the moment: nobody set them, and they are never twice the same.
const TRANSIENT_KEYS: [&str; 6] = [
    "cgroup.cpu.throttled",
    "cpu.mhz",
    "kernel.clock.correction_ppm",
    "kernel.uptime_s",
    "memory.available",
    "memory.swap.free",
];

/// Facts below this are conditions of the moment as well.
const TRANSIENT_PREFIX: &str = "load.";

fn is_setting(key: &str) -> bool {
    !TRANSIENT_KEYS.contains(&key) && !key.starts_with(TRANSIENT_PREFIX)
}

/// Settings that differ, the outer link, the other host and the program's version among them, by their names.
pub fn setting_differences(a: &RunRecord, b: &RunRecord) -> Vec<SettingDifference> {
    let mut keys: Vec<&String> = a.provenance.keys().chain(b.provenance.keys()).collect();
    keys.sort();
    keys.dedup();
    let difference = |key: &str, a: Option<&String>, b: Option<&String>| {
        (a != b).then(|| SettingDifference { key: key.to_owned(), a: a.cloned(), b: b.cloned() })
    };
    let mut found: Vec<SettingDifference> = keys
        .into_iter()
        .filter(|key| is_setting(key))
        .filter_map(|key| difference(key, a.provenance.get(key), b.provenance.get(key)))
        .collect();
    found.extend(difference(OUTER_LINK, a.notes.get(OUTER_LINK), b.notes.get(OUTER_LINK)));
    let mut notes: Vec<&String> = a.notes.keys().chain(b.notes.keys()).collect();
    notes.sort();
    notes.dedup();
    let of_host = notes.into_iter().filter(|name| host_notes::is_setting(name));
    found.extend(of_host.filter_map(|key| difference(key, a.notes.get(key), b.notes.get(key))));
    found.extend(difference("code", Some(&a.code_version), Some(&b.code_version)));
    found
}
