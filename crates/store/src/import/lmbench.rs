//! lmbench 1.0 to 3.0 (McVoy & Staelin 1996): raw results and the summary tables made of them.
//!
//! lmbench prints one figure for each test: from version 2 the median of eleven intervals. Its
//! pipe, socket and datagram latencies are whole round trips and are halved here; its bandwidths
//! are timed by the receiver. Nothing in its files says where the processes ran. Left out: the
//! memory curves of raw results, which are no communication.

mod raw;
mod summary;

use plumb_base::units::Unit;

use super::builder::ImportedMetric;
use super::{ImportError, ImportFormat};
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
    let drafts =
        if text.contains("L M B E N C H") { summary::parse(&text)? } else { raw::parse(&text)? };
    if drafts.is_empty() {
        return Err(ImportError::NoResults { format: FORMAT, expected: EXPECTED });
    }
    if text.contains("L M B E N C H") {
        FORMAT.require_final_newline(&text)?;
    }
    Ok(drafts.into_iter().map(super::builder::ImportBuilder::finish).collect())
}

/// Which figure a version of lmbench prints.
fn statistic(version: &str) -> &'static str {
    // 1.x times one long loop, or several and keeps one; its files do not say which.
    if version.starts_with('1') { "as printed" } else { "median" }
}

/// A call into the kernel.
fn call(name: &str) -> ImportedMetric {
    let factors = Factors::default().with("call", name).with("via", "libc");
    ImportedMetric::new("call.kernel", "call", Unit::Nanoseconds, factors)
}

/// Half the round trip through a mechanism on one machine.
fn latency_local(mechanism: &str) -> ImportedMetric {
    latency("latency.local", mechanism)
}

/// Half the round trip through a mechanism between two machines.
fn latency_remote(mechanism: &str) -> ImportedMetric {
    latency("latency.remote", mechanism)
}

fn latency(experiment: &str, mechanism: &str) -> ImportedMetric {
    // What lat_pipe, lat_unix and lat_tcp send is one byte, lat_udp a four-byte sequence number.
    let size: u64 = if mechanism == "udp4" { 4 } else { 1 };
    let factors = blocking_factors(mechanism).with("size", size);
    ImportedMetric::new(experiment, "latency", Unit::Nanoseconds, factors)
}

/// A long transfer, timed by its receiver.
fn throughput_local(mechanism: &str, size: Option<u64>) -> ImportedMetric {
    let factors = blocking_factors(mechanism);
    let factors = match size {
        Some(size) => factors.with("size", size),
        None => factors,
    };
    ImportedMetric::new("throughput.local", "throughput", Unit::BytesPerSecond, factors)
}

/// The factors of a mechanism whose processes block, wherever the scheduler put them.
fn blocking_factors(mechanism: &str) -> Factors {
    Factors::default()
        .with("mechanism", mechanism)
        .with("placement", "unknown")
        .with("wake", "block")
}

/// A context switch among a ring of processes that each touch some bytes.
fn context_switch(processes: u64, bytes: u64) -> ImportedMetric {
    let factors = Factors::default().with("processes", processes).with("size", bytes);
    ImportedMetric::new("lmbench.context-switch", "time", Unit::Nanoseconds, factors)
}

/// A test that plumb does not have, timed.
fn time(group: &str, operation: &str) -> ImportedMetric {
    lmbench_metric(group, "time", Unit::Nanoseconds, operation)
}

/// A test that plumb does not have, as bytes a second.
fn bandwidth(group: &str, operation: &str) -> ImportedMetric {
    lmbench_metric(group, "bandwidth", Unit::BytesPerSecond, operation)
}

fn lmbench_metric(
    group: &str,
    response: &'static str,
    unit: Unit,
    operation: &str,
) -> ImportedMetric {
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
    ImportedMetric::new(format!("lmbench.{group}"), response, unit, factors)
}
