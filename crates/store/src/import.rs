//! Results of other tools and run files of plumb as runs, so that they can be listed, shown and compared.
//!
//! What a tool printed becomes cells with an [`ImportedSummary`](crate::record::ImportedSummary);
//! only raw logs give blocks. What plumb also measures keeps plumb's experiment ids and
//! conventions (latency is half a round trip); everything else is filed under the tool's own name.
//! Left out: reading the file, and naming and dating the run, which the caller does: ids come back
//! empty but of run files, and `created_unix_ms` is 0 where the file does not say.

mod builder;
pub mod flent;
pub mod iperf3;
pub mod lmbench;
pub mod netperf;
pub mod qperf;
pub mod sockperf;

use std::fmt;

use crate::export::run_file;
use crate::record::{Factors, RunData};

/// A tool whose results can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// lmbench 1.0 to 3.0: raw results and summaries.
    Lmbench,
    /// sockperf 3: what it prints, and its `--full-log`.
    Sockperf,
    /// iperf3: `--json` and `--json-stream`.
    Iperf3,
    /// netperf 2: classic tables, and the fields of omni tests.
    Netperf,
    /// qperf 0.4: what it prints.
    Qperf,
    /// flent: `.flent` and `.flent.gz`.
    Flent,
    /// plumb: a run file.
    Plumb,
}

impl ImportFormat {
    /// Every format.
    pub const ALL: [Self; 7] = [
        Self::Lmbench,
        Self::Sockperf,
        Self::Iperf3,
        Self::Netperf,
        Self::Qperf,
        Self::Flent,
        Self::Plumb,
    ];

    /// The tool's name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lmbench => "lmbench",
            Self::Sockperf => "sockperf",
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf",
            Self::Qperf => "qperf",
            Self::Flent => "flent",
            Self::Plumb => "plumb",
        }
    }

    /// The format of a tool's name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    fn unexpected(
        self,
        line: usize,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> ImportError {
        let (expected, found) = (expected.into(), found.into());
        ImportError::Unexpected { format: self, line, expected, found }
    }

    fn failed(self, reason: impl Into<String>) -> ImportError {
        ImportError::Failed { format: self, reason: reason.into() }
    }

    /// A figure that is there: a number, finite and not below zero.
    fn number(self, line: usize, text: &str, expected: &str) -> Result<f64, ImportError> {
        let value = text.trim().parse().ok().filter(|value| (0.0..1e18).contains(value));
        value.ok_or_else(|| self.unexpected(line, expected, excerpt(text)))
    }

    /// Refuses a text whose last line has no end: its last figure may have lost digits.
    fn require_final_newline(self, text: &str) -> Result<(), ImportError> {
        if text.is_empty() || text.ends_with('\n') {
            return Ok(());
        }
        let expected =
            "a line break after the last line, without which figures may have been cut off";
        Err(self.unexpected(text.lines().count(), expected, "the end of the file"))
    }
}

impl fmt::Display for ImportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a file was not imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A line is not what it should be.
    #[error(
        "line {line} is not {format} output: expected {expected}, found {found}; \
         was the file edited or cut?"
    )]
    Unexpected {
        /// The format it was read as.
        format: ImportFormat,
        /// Counted from 1.
        line: usize,
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
    },
    /// There is nothing in the file that could be a result.
    #[error(
        "there is no {format} result in the file: expected {expected}; is it the file of another \
         tool, or of a run that failed?"
    )]
    NoResults {
        /// The format it was read as.
        format: ImportFormat,
        /// What would have been a result.
        expected: &'static str,
    },
    /// The file holds something that has no place in a run.
    #[error("line {line}: {what} cannot be imported from {format}; import {instead} instead")]
    Unsupported {
        /// The tool.
        format: ImportFormat,
        /// Counted from 1.
        line: usize,
        /// What it is.
        what: &'static str,
        /// What can be imported.
        instead: &'static str,
    },
    /// The tool itself says that its measurement failed.
    #[error("the file records a failed {format} run: {reason}; measure again and import that")]
    Failed {
        /// The tool.
        format: ImportFormat,
        /// What it says.
        reason: String,
    },
}

/// The tool that a file seems to come from.
pub fn detect(bytes: &[u8]) -> Option<ImportFormat> {
    // The marks of every format are near its beginning, except that shells may print before it.
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(65_536)]);
    let has = |marks: &[&str]| marks.iter().any(|mark| head.contains(mark));
    let is_json = head.trim_start().starts_with('{');
    let is_flent = is_json && has(&["\"SERIES_META\"", "\"raw_values\"", "\"x_values\""]);
    if run_file::is_run_file(&head) {
        Some(ImportFormat::Plumb)
    } else if flent::is_gzip(bytes) || is_flent {
        Some(ImportFormat::Flent)
    } else if is_json && has(&["\"intervals\"", "\"start\"", "\"event\""]) {
        Some(ImportFormat::Iperf3)
    } else if has(&["sockperf: ", "packet, txTime(sec)"]) {
        Some(ImportFormat::Sockperf)
    } else if has(&[" TEST from ", "THROUGHPUT_UNITS=", "Throughput Units"]) {
        Some(ImportFormat::Netperf)
    } else if has(&["[lmbench", "L M B E N C H", "Simple syscall: ", "Pipe latency: "]) {
        Some(ImportFormat::Lmbench)
    } else if has(&["_lat:\n    ", "_bw:\n    ", "conf:\n    "]) {
        Some(ImportFormat::Qperf)
    } else {
        None
    }
}

/// The runs in a file: one, or one for every machine of an lmbench summary.
///
/// # Errors
/// [`ImportError`], with the line and what was expected there.
pub fn parse(format: ImportFormat, bytes: &[u8]) -> Result<Vec<RunData>, ImportError> {
    let run = match format {
        ImportFormat::Lmbench => return lmbench::parse(bytes),
        ImportFormat::Sockperf => sockperf::parse(bytes),
        ImportFormat::Iperf3 => iperf3::parse(bytes),
        ImportFormat::Netperf => netperf::parse(bytes),
        ImportFormat::Qperf => qperf::parse(bytes),
        ImportFormat::Flent => flent::parse(bytes),
        ImportFormat::Plumb => match std::str::from_utf8(bytes) {
            Ok(text) if run_file::is_run_file(text) => {
                run_file::read(text).map_err(|error| format.failed(error.to_string()))
            }
            _ => Err(ImportError::NoResults {
                format,
                expected: "'{\"schema\":\"plumb.record/1\"' first",
            }),
        },
    };
    Ok(vec![run?])
}

/// The nearest whole number of something that cannot be negative; none where doubles are not exact.
fn whole_number(value: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^53")]
    (0.0..9e15).contains(&value.round()).then_some(value.round() as u64)
}

/// The median of ascending values; none where there is none.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(sorted[middle - 1], upper)) }
}

/// What is known about a channel's setting: the mechanism and, if given, the size of messages.
fn channel_factors(mechanism: &str, size: Option<u64>) -> Factors {
    let factors = Factors::default().with("mechanism", mechanism).with("placement", "unknown");
    match size {
        Some(size) => factors.with("size", size),
        None => factors,
    }
}

/// At most forty characters of a line, in quotes, for an error.
fn excerpt(text: &str) -> String {
    let mut kept: String = text.trim().chars().take(40).collect();
    if kept.len() < text.trim().len() {
        kept.push('…');
    }
    format!("{kept:?}")
}

/// Whether a host is the one that measured.
fn is_local(host: &str) -> bool {
    let host = host.trim();
    host.starts_with("127.") || matches!(host, "::1" | "localhost")
}

/// The mechanism of a protocol over IPv4 or IPv6.
fn mechanism(protocol: &str, is_ipv6: bool) -> String {
    match protocol {
        "TCP" | "UDP" | "SCTP" | "DCCP" => {
            format!("{}{}", protocol.to_ascii_lowercase(), if is_ipv6 { 6 } else { 4 })
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests;
