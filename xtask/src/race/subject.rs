//! plumb's side of the race: one launch through its command line, read from its run document.
//!
//! Left out: plumb's own summary over launches; the race makes its own, the same for all sides.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::contest::{Contest, Cpus, Kind};

/// Median of one launch: nanoseconds or bytes a second.
pub(super) fn launch(
    plumb: &Path,
    contest: &Contest,
    cpus: &Cpus,
    congestion: Option<&str>,
) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir().context("no temporary folder for the store")?;
    let (experiment, response) = match contest.kind {
        Kind::PingPong => ("latency.local", "latency"),
        Kind::Bulk => ("throughput.local", "throughput"),
    };
    let [_, _, both] = cpus.lists(contest.placement);
    let mut command = Command::new("timeout");
    command.args(["120", "taskset", "-c", &both]).arg(plumb).args(["run", experiment]);
    let settings = [
        Some(format!("mechanism={}", contest.protocol.mechanism())),
        Some(format!("size={}", contest.size)),
        Some(format!("placement={}", contest.placement.name())),
        Some(format!("wake={}", contest.wake.name())),
        congestion.map(|name| format!("congestion={name}")),
    ];
    for setting in settings.iter().flatten() {
        command.args(["--set", setting]);
    }
    command.args(["--launches", "1", "--json", "--store"]).arg(folder.path().join("race.plumb"));
    let output = command.output().context("timeout(1) or taskset(1) cannot be run")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let document = serde_json::from_slice(&output.stdout).context("plumb's output is not JSON")?;
    parse(&document, response)
}

fn parse(document: &Value, response: &str) -> anyhow::Result<f64> {
    let results = document["results"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let result = results.iter().find(|result| result["response"] == response);
    let Some(median) = result.and_then(|result| result["summary"]["median"].as_f64()) else {
        bail!(
            "the run document has no median {response}; unavailable: {}",
            document["unavailable"]
        );
    };
    Ok(median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_median_of_the_response_is_read() {
        let document = json!({
            "results": [
                {"response": "other", "factors": {}, "summary": {"median": 1.0}},
                {"response": "latency", "factors": {}, "summary": {"median": 5800.0}},
            ],
            "unavailable": [],
        });
        assert!((parse(&document, "latency").unwrap() - 5800.0).abs() < 1e-9);
    }

    #[test]
    fn a_document_without_the_result_says_why() {
        let document = json!({"results": [], "unavailable": [{"reason": "one CPU only"}]});
        let error = parse(&document, "latency").unwrap_err().to_string();
        assert!(error.contains("one CPU only"), "{error}");
    }
}
