//! plumb's side of the race: one launch through its command line, read from its run document.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::comparison::{BenchCpus, BenchKind, PeerComparison};

/// One launch: nanoseconds of half a round trip, or bytes a second.
pub(super) fn launch(
    plumb: &Path,
    contest: &PeerComparison,
    cpus: &BenchCpus,
    seconds: u32,
    congestion: Option<&str>,
) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir().context("no temporary folder for plan and store")?;
    let file = folder.path().join("race.toml");
    std::fs::write(&file, plan(contest, seconds, congestion)).context("the plan")?;
    let [_, _, both] = cpus.lists(contest.placement);
    let mut command = Command::new("timeout");
    command.args([&(seconds + 60).to_string(), "taskset", "-c", &both]).arg(plumb);
    command.arg("run").arg(&file).args(["--json", "--no-progress", "--store"]);
    command.arg(folder.path().join("race.plumb"));
    let output = command.output().context("timeout(1) or taskset(1) cannot be run")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let document = serde_json::from_slice(&output.stdout).context("plumb's output is not JSON")?;
    parse(&document, contest)
}

/// The contest as a plan of one launch with one block.
///
/// The block lasts as long as the peer's measuring: sockperf spends 400 ms of its time on warming
/// up and trims 50 ms off the end.
fn plan(contest: &PeerComparison, seconds: u32, congestion: Option<&str>) -> String {
    let (experiment, ms) = match contest.kind {
        BenchKind::PingPong => ("latency.local", seconds * 1000 - 450),
        BenchKind::Bulk => ("throughput.local", seconds * 1000),
    };
    let (mechanism, size) = (contest.protocol.mechanism(), contest.size);
    let (placement, wake) = (contest.placement.name(), contest.wake.name());
    let mut plan = format!(
        "title = \"race\"\n\
         [limits]\n\
         launches_min = 1\nlaunches_max = 1\npasses = 1\n\
         block = \"{ms}ms\"\nsamples_max = 1000000\n\
         [[experiment]]\n\
         id = \"{experiment}\"\n\
         [experiment.factors]\n\
         mechanism = [\"{mechanism}\"]\nsize = [{size}]\n\
         placement = [\"{placement}\"]\nwake = [\"{wake}\"]\n"
    );
    let congestion = congestion.map(|name| format!("congestion = [\"{name}\"]\n"));
    plan.push_str(congestion.as_deref().unwrap_or_default());
    plan
}

/// The launch's median latency; or the bytes of its transfers over the wall time of all of them,
/// as iperf3 counts.
fn parse(document: &Value, contest: &PeerComparison) -> anyhow::Result<f64> {
    let results = document["results"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let result = results.iter().find(|result| result["response"] == contest.kind.response());
    let value = result.and_then(|result| match contest.kind {
        BenchKind::PingPong => result["summary"]["launch_medians"][0].as_f64(),
        BenchKind::Bulk => {
            result["cpu"]["wall"].as_f64().map(|ns| contest.size as f64 / (ns * 1e-9))
        }
    });
    let Some(value) = value.filter(|value| value.is_finite() && *value > 0.0) else {
        bail!(
            "the run document has no {}; unavailable: {}",
            contest.kind.response(),
            document["unavailable"]
        );
    };
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_is_toml_and_measures_as_long_as_sockperf_does() {
        for contest in PeerComparison::all(true) {
            let plan: toml::Table = plan(&contest, 1, Some("cubic")).parse().unwrap();
            let block = plan["limits"]["block"].as_str().unwrap();
            assert_eq!(block == "550ms", contest.kind == BenchKind::PingPong, "{block}");
        }
    }

    fn contest(kind: BenchKind) -> PeerComparison {
        PeerComparison::all(true)
            .into_iter()
            .find(|c| c.kind == kind)
            .expect("both kinds are raced")
    }

    #[test]
    fn the_figure_of_the_contests_response_is_read() {
        let document = json!({
            "results": [
                {"response": "other", "summary": {"launch_medians": [1.0]}},
                {"response": "latency", "summary": {"launch_medians": [5800.0]}},
                {"response": "throughput", "cpu": {"wall": 131_072.0}},
            ],
            "unavailable": [],
        });
        let close = |kind, wanted: f64| {
            (parse(&document, &contest(kind)).unwrap() / wanted - 1.0).abs() < 1e-9
        };
        assert!(close(BenchKind::PingPong, 5800.0));
        assert!(close(BenchKind::Bulk, 1e9));
    }

    #[test]
    fn a_document_without_the_result_says_why() {
        let document = json!({"results": [], "unavailable": [{"reason": "one CPU only"}]});
        let error = parse(&document, &contest(BenchKind::PingPong)).unwrap_err().to_string();
        assert!(error.contains("one CPU only"), "{error}");
    }
}
