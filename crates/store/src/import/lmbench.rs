//! lmbench 1.0 to 3.0 (McVoy & Staelin 1996): raw results and the summary tables made of them.
//!
//! lmbench prints one figure for each test: from version 2 the median of eleven intervals. Its
//! pipe, socket and datagram latencies are whole round trips and are halved here; its bandwidths
//! are timed by the receiver. Nothing in its files says where the processes ran. Left out: the
//! memory curves of raw results, which are no communication.

mod raw;
mod summary;

use super::builder::{ImportBuilder, ImportedMetric};
use super::{ImportError, ImportFormat, channel_factors};
use crate::record::{Factors, RunData};

const FORMAT: ImportFormat = ImportFormat::Lmbench;

const EXPECTED: &str =
    "raw results, which begin with '[lmbench', or a summary titled 'L M B E N C H'";

/// The runs in a file: one for raw results, one for each machine and kernel of a summary.
///
/// # Errors
/// [`ImportError`] when a result is not a number, or when there is none.
pub fn parse(bytes: &[u8]) -> Result<Vec<RunData>, ImportError> {
    let text = String::from_utf8_lossy(bytes);
    let is_summary = text.contains("L M B E N C H");
    let drafts = if is_summary { summary::parse(&text)? } else { raw::parse(&text)? };
    if drafts.is_empty() {
        return Err(ImportError::NoResults { format: FORMAT, expected: EXPECTED });
    }
    if is_summary {
        FORMAT.require_final_newline(&text)?;
    }
    Ok(drafts.into_iter().map(ImportBuilder::finish).collect())
}

/// Which figure a version of lmbench prints.
fn statistic(version: &str) -> &'static str {
    // 1.x times one long loop, or several and keeps one; its files do not say which.
    if version.starts_with('1') { "as printed" } else { "median" }
}

/// A call into the kernel.
fn call(name: &str) -> ImportedMetric {
    let factors = Factors::default().with("call", name).with("via", "libc");
    ImportedMetric::new("call.kernel", "call", factors)
}

/// Half the round trip through a mechanism on one machine, or between two.
fn latency(is_local: bool, mechanism: &str) -> ImportedMetric {
    // lat_pipe, lat_unix and lat_tcp send one byte, lat_udp a four-byte sequence number.
    let size = if mechanism == "udp4" { 4 } else { 1 };
    let factors = channel_factors(mechanism, Some(size)).with("wake", "block");
    let experiment = if is_local { "latency.local" } else { "latency.remote" };
    ImportedMetric::new(experiment, "latency", factors)
}

/// A long transfer, timed by its receiver.
fn throughput_local(mechanism: &str, size: Option<u64>) -> ImportedMetric {
    let factors = channel_factors(mechanism, size).with("wake", "block");
    ImportedMetric::new("throughput.local", "throughput", factors)
}

/// A context switch among a ring of processes that each touch some bytes.
fn context_switch(processes: u64, bytes: u64) -> ImportedMetric {
    let factors = Factors::default().with("processes", processes).with("size", bytes);
    ImportedMetric::new("lmbench.context-switch", "time", factors)
}

/// A test that plumb does not have, timed.
fn time(group: &str, operation: &str) -> ImportedMetric {
    lmbench_metric(group, "time", operation)
}

/// A test that plumb does not have, as bytes a second.
fn bandwidth(group: &str, operation: &str) -> ImportedMetric {
    lmbench_metric(group, "bandwidth", operation)
}

fn lmbench_metric(group: &str, response: &'static str, operation: &str) -> ImportedMetric {
    let operation: String = operation
        .to_ascii_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        // Summaries shorten what raw results spell out.
        .map(|word| match word {
            "intgr" => "integer",
            "bogo" => "bogomflops",
            word => word,
        })
        .collect::<Vec<_>>()
        .join("-");
    let factors = Factors::default().with("operation", operation.as_str());
    ImportedMetric::new(format!("lmbench.{group}"), response, factors)
}
