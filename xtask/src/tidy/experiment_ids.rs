//! The engines name no experiment: what `analysis` and `report` know of one comes from its file.

use super::Finding;
use crate::files::ProjectFile;

const EXPERIMENTS: &str = "crates/experiments/src/";
const ENGINES: [&str; 2] = ["crates/analysis/src/", "crates/report/src/"];

/// Literals with the id of an experiment in the code of an engine; tests may name what they make up.
pub(super) fn check(files: &[ProjectFile]) -> Vec<Finding> {
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
    use crate::files::file;

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
        let findings = check(&files("let id = 1;\nlet id = \"latency.moon\";\n"));
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/report/src/name.rs", 2));
        assert!(check(&files("#[cfg(test)]\nlet id = \"latency.moon\";\n")).is_empty());
    }
}
