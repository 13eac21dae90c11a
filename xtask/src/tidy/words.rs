//! Words that must not be in the tree: notes to oneself, traces of a workplace, and metaphors for which the field has a term.

use super::Finding;
use crate::ProjectFile;

/// Notes that belong into the tracker, matched as whole words.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Traces of a workplace, matched anywhere, in lower case.
const TRACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp/", "wt"),
    concat!("/ro", "ot/"),
    concat!("../sha", "red"),
    concat!("clau", "de"),
    concat!("anthro", "pic"),
    concat!("sub", "agent"),
    concat!("this ", "session of"),
];

/// Metaphors and the field's term for each, matched as whole words in any case; past decisions keep theirs.
const METAPHORS: &[(&str, &str)] = &[
    (concat!("ha", "ll"), "pending connections"),
    (concat!("stew", "ard"), "supervisor"),
    (concat!("stew", "ards"), "supervisors"),
    (concat!("cr", "ew"), "connection pool"),
    (concat!("she", "lf"), "report cache"),
    (concat!("se", "at"), "CPU placement"),
    (concat!("se", "ats"), "CPU placements"),
    (concat!("stra", "nger"), "unauthenticated client"),
    (concat!("stra", "ngers"), "unauthenticated clients"),
];

/// Where past decisions and changes are recorded in the words of their time.
const RECORDS: &[&str] = &["CHANGELOG.md", "docs/adr/"];

pub(super) fn check(files: &[ProjectFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path != "Cargo.lock") {
        for (number, line) in file.lines() {
            for note in NOTES.iter().filter(|note| has_word(line, note)) {
                let message = format!("{note}: do it, or put it into the tracker");
                findings.push(Finding::new(file, number, message));
            }
            let lower = line.to_lowercase();
            let is_record = RECORDS.iter().any(|record| file.path.starts_with(record));
            // An option or a name on the wire may keep one after its hyphen.
            let plain = lower.replace('-', "_");
            for (word, term) in METAPHORS.iter().filter(|(word, _)| has_word(&plain, word)) {
                if !is_record {
                    let message = format!("`{word}`: the field says {term}");
                    findings.push(Finding::new(file, number, message));
                }
            }
            for trace in TRACES.iter().filter(|trace| lower.contains(*trace)) {
                let message = format!("`{trace}` means nothing to a reader elsewhere: remove it");
                findings.push(Finding::new(file, number, message));
            }
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

const EXPERIMENTS: &str = "crates/experiments/src/";
const ENGINES: [&str; 2] = ["crates/analysis/src/", "crates/report/src/"];

/// Literals with the id of an experiment in the code of an engine; tests may name what they make up.
pub(super) fn check_experiment_ids(files: &[ProjectFile]) -> Vec<Finding> {
    let ids = ids(files);
    let engines = files.iter().filter(|file| {
        file.has_extension("rs") && ENGINES.iter().any(|engine| file.path.starts_with(engine))
    });
    let mut findings = Vec::new();
    for file in engines {
        let code = file.lines().take_while(|(_, line)| *line != "#[cfg(test)]");
        for (number, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let found = ids.iter().filter(|id| line.contains(&format!("\"{id}\"")));
            findings.extend(found.map(|id| {
                let message =
                    format!("\"{id}\" is an experiment: what concerns it belongs in its own file");
                Finding::new(file, number, message)
            }));
        }
    }
    findings
}

/// The ids that the experiments declare.
fn ids(files: &[ProjectFile]) -> Vec<&str> {
    let experiments = files.iter().filter(|file| {
        file.path.starts_with(EXPERIMENTS)
            && file.text.contains("pub static EXPERIMENT: Experiment")
    });
    experiments.filter_map(|file| file.text.split("    id: \"").nth(1)?.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

    #[test]
    fn a_note_is_found_as_a_word_only() {
        let note = NOTES[2];
        assert_eq!(check(&[file("a.sh", &format!("# {note}: later"))]).len(), 1);
        assert_eq!(check(&[file("a.sh", &format!("mktemp plumb.{note}{note}"))]).len(), 0);
    }

    #[test]
    fn a_metaphor_is_found_except_in_records() {
        let (word, _) = METAPHORS[0];
        let text = format!("The {word} is full; shallow.");
        assert_eq!(check(&[file("crates/a/src/lib.rs", &text)]).len(), 1);
        assert_eq!(check(&[file("docs/adr/0001.md", &text)]).len(), 0);
    }

    #[test]
    fn a_trace_of_a_workplace_is_found_in_any_case() {
        let trace = TRACES[0].to_uppercase();
        assert_eq!(check(&[file("a.md", &format!("see {trace}main"))]).len(), 1);
        assert_eq!(check(&[file("a.md", "work in the workshop")]).len(), 0);
    }

    #[test]
    fn an_engine_that_names_an_experiment_is_found() {
        let experiment =
            "pub static EXPERIMENT: Experiment = Experiment {\n    id: \"latency.moon\",\n";
        let files = |code: &str| {
            vec![
                file("crates/experiments/src/ipc/latency_moon.rs", experiment),
                file("crates/report/src/name.rs", code),
            ]
        };
        let findings = check_experiment_ids(&files("let id = 1;\nlet id = \"latency.moon\";\n"));
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/report/src/name.rs", 2));
        assert!(
            check_experiment_ids(&files("#[cfg(test)]\nlet id = \"latency.moon\";\n")).is_empty()
        );
    }
}
