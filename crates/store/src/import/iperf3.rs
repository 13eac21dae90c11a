//! iperf3: the document of `--json`, and the events of `--json-stream`.
//!
//! The figure taken is what the receiver got, as the sender's includes what never left its
//! buffers. Left out: the intervals, which are counted at one end only.

use plumb_base::units::Rate;
use serde_json::Value;

use super::builder::{ImportBuilder, ImportedMetric};
use super::{ImportError, ImportFormat, channel_factors, mechanism};
use crate::record::{Factors, RunData};

const FORMAT: ImportFormat = ImportFormat::Iperf3;

const EXPECTED: &str = "'end.sum_received' or 'end.sum' with 'bits_per_second'";

/// The run in a file.
///
/// # Errors
/// [`ImportError`] when the file is not JSON, when iperf3 says that it failed, or when there is no
/// result.
pub fn parse(bytes: &[u8]) -> Result<RunData, ImportError> {
    let document = document(bytes)?;
    if let Some(reason) = document.get("error").and_then(Value::as_str) {
        return Err(FORMAT.failed(reason));
    }
    let (start, end) = (&document["start"], &document["end"]);
    let mut draft = ImportBuilder::new(FORMAT);
    describe(&mut draft, start, end);
    let is_udp = start["test_start"]["protocol"].as_str() == Some("UDP");
    // With both directions at once the sums without a suffix are the client's own.
    let is_reverse = start["test_start"]["reverse"].as_u64().is_some_and(|reverse| reverse != 0);
    let alone = if is_reverse { "reverse" } else { "forward" };
    for (suffix, direction) in [("", alone), ("_bidir_reverse", "reverse")] {
        let factors = factors(start).with("direction", direction);
        let place = if is_local(start) { "local" } else { "remote" };
        let target = |response| {
            ImportedMetric::new(format!("throughput.{place}"), response, factors.clone())
        };
        if let Some(rate) = received(end, suffix) {
            draft.add_number(target("throughput"), rate / 8.0, "mean");
        }
        if is_udp && let Some(share) = delivered(end, suffix) {
            draft.add_number(target("delivered"), share, "total");
        }
    }
    if draft.is_empty() {
        return Err(ImportError::NoResults { format: FORMAT, expected: EXPECTED });
    }
    Ok(draft.finish())
}

/// The document, put together from its events where it is a stream of them.
fn document(bytes: &[u8]) -> Result<Value, ImportError> {
    let first: Option<Value> =
        serde_json::Deserializer::from_slice(bytes).into_iter().next().and_then(Result::ok);
    if first.is_none_or(|value| value.get("event").is_none()) {
        return serde_json::from_slice(bytes).map_err(|error| not_json(&error, 0));
    }
    let mut document = serde_json::Map::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let mut event: Value =
            serde_json::from_slice(line).map_err(|error| not_json(&error, index))?;
        // Intervals are many, and not used.
        if let Some(name @ ("start" | "end" | "error")) = event["event"].as_str() {
            let name = name.to_owned();
            document.insert(name, event["data"].take());
        }
    }
    Ok(Value::Object(document))
}

fn not_json(error: &serde_json::Error, lines_before: usize) -> ImportError {
    let expected = "the JSON of `iperf3 --json` or `--json-stream`";
    FORMAT.unexpected(lines_before + error.line().max(1), expected, error.to_string())
}

/// Facts about the machine and the measurement.
fn describe(draft: &mut ImportBuilder, start: &Value, end: &Value) {
    if let Some(version) = start["version"].as_str() {
        draft.tool = format!("iperf3 {}", version.trim_start_matches("iperf "));
    }
    let seconds = start["timestamp"]["timesecs"].as_i64().unwrap_or(0);
    let ms = start["timestamp"]["timemillisecs"].as_i64();
    draft.created_unix_ms = ms.unwrap_or_else(|| seconds.saturating_mul(1000));
    draft.add_provenance("iperf3.system", start["system_info"].as_str());
    draft.add_provenance("tcp.congestion", end["sender_tcp_congestion"].as_str());
    let cpu = &end["cpu_utilization_percent"];
    let numbers = [
        ("iperf3.duration_s", &start["test_start"]["duration"]),
        ("iperf3.reverse", &start["test_start"]["reverse"]),
        ("iperf3.omit_s", &start["test_start"]["omit"]),
        ("iperf3.target_bits_per_s", &start["test_start"]["target_bitrate"]),
        ("iperf3.cpu.host_percent", &cpu["host_total"]),
        ("iperf3.cpu.remote_percent", &cpu["remote_total"]),
        ("iperf3.retransmits", &end["sum_sent"]["retransmits"]),
        ("iperf3.jitter_ms", &end["sum"]["jitter_ms"]),
    ];
    for (name, number) in numbers {
        if number.is_number() {
            draft.notes.insert(name.to_owned(), number.to_string());
        }
    }
}

fn factors(start: &Value) -> Factors {
    let test = &start["test_start"];
    let size = test["blksize"].as_u64().filter(|size| *size > 0);
    let mut factors = channel_factors(&mechanism_of(start), size);
    // Of each stream; 0 is no limit, and another question than any rate.
    if let Some(rate) = test["target_bitrate"].as_u64().and_then(Rate::from_bits_per_second) {
        factors = factors.with("rate", rate.to_string().as_str());
    }
    match test["num_streams"].as_u64() {
        Some(streams) if streams > 1 => factors.with("streams", streams),
        _ => factors,
    }
}

fn mechanism_of(start: &Value) -> String {
    let is_ipv6 = start["connected"][0]["remote_host"]
        .as_str()
        .is_some_and(|host| host.contains(':') && !host.starts_with("::ffff:"));
    mechanism(start["test_start"]["protocol"].as_str().unwrap_or_default(), is_ipv6)
}

/// Whether both ends have the same address.
fn is_local(start: &Value) -> bool {
    let connection = &start["connected"][0];
    let remote = connection["remote_host"].as_str();
    remote.is_some() && remote == connection["local_host"].as_str()
}

/// Bits a second that reached the receiver.
fn received(end: &Value, suffix: &str) -> Option<f64> {
    let rate = |sum: &Value| sum["bits_per_second"].as_f64().filter(|rate| *rate >= 0.0);
    if let Some(rate) = rate(&end[format!("sum_received{suffix}")]).filter(|rate| *rate > 0.0) {
        return Some(rate);
    }
    // Old versions report UDP as sent, with the share that was lost.
    let sum = &end[format!("sum{suffix}")];
    Some(rate(sum)? * delivered(end, suffix).unwrap_or(1.0))
}

/// Share of datagrams that arrived.
fn delivered(end: &Value, suffix: &str) -> Option<f64> {
    let sum = &end[format!("sum{suffix}")];
    let (lost, packets) = (sum["lost_packets"].as_f64()?, sum["packets"].as_f64()?);
    // Duplicates are subtracted from what iperf3 calls lost, which may go below zero.
    (packets > 0.0).then(|| (1.0 - lost / packets).clamp(0.0, 1.0))
}
