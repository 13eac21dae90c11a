//! flent: its data files, `.flent` and `.flent.gz`, of file formats 3 and 4.
//!
//! Every series becomes a cell of the experiment `flent.TEST`, for a test loads a path in a way
//! that no experiment of plumb does; round trips stay whole. The mean is flent's own, the rest is
//! taken from its raw values. Left out: series that are neither times nor rates, and the points
//! that flent interpolated to draw.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use jiff::Timestamp;
use serde_json::Value;

use super::builder::{ImportBuilder, ImportedMetric};
use super::{ImportError, ImportFormat, excerpt, median, whole_number};
use crate::record::{Factors, ImportedSummary, RunData};

const FORMAT: ImportFormat = ImportFormat::Flent;

const EXPECTED: &str = "series with units in 'metadata.SERIES_META' and their 'raw_values'";

/// Longest text that is unpacked: hours of a test with a hundred series.
const BYTES_MAX: u64 = 256 << 20;

/// The newest file format that is known, `FILEFORMAT_VERSION` in flent's resultset.py.
const VERSION_MAX: u64 = 4;

/// Whether a file is packed as flent packs its own.
pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// The run in a file.
///
/// # Errors
/// [`ImportError`] when the file cannot be unpacked, is no JSON, is of a newer flent, or holds no
/// series of times or rates.
pub fn parse(bytes: &[u8]) -> Result<RunData, ImportError> {
    let unpacked;
    let text = if is_gzip(bytes) {
        unpacked = unpack(bytes)?;
        unpacked.as_slice()
    } else if bytes.starts_with(b"BZh") {
        return Err(ImportError::Unsupported {
            format: FORMAT,
            line: 1,
            what: "a file packed by bzip2",
            instead: "what bunzip2 makes of it",
        });
    } else {
        bytes
    };
    let document: Value = serde_json::from_slice(text).map_err(|error| {
        FORMAT.unexpected(error.line().max(1), "the JSON of a .flent file", error.to_string())
    })?;
    let none = ImportError::NoResults { format: FORMAT, expected: EXPECTED };
    let metadata = &document["metadata"];
    let (Some(version), Some(series)) =
        (document["version"].as_u64(), metadata["SERIES_META"].as_object())
    else {
        return Err(none);
    };
    if version > VERSION_MAX {
        let expected = format!("a file format of at most {VERSION_MAX}");
        return Err(FORMAT.unexpected(1, expected, format!("version {version}")));
    }
    let mut draft = ImportBuilder::new(FORMAT);
    describe(&mut draft, metadata);
    let mut series: Vec<_> = series.iter().collect();
    series.sort_by_key(|(name, meta)| (meta["IDX"].as_u64(), (*name).clone()));
    for (name, meta) in series {
        add(&mut draft, &document, name, meta)?;
    }
    if draft.is_empty() { Err(none) } else { Ok(draft.finish()) }
}

fn unpack(bytes: &[u8]) -> Result<Vec<u8>, ImportError> {
    let mut text = Vec::new();
    let taken = MultiGzDecoder::new(bytes)
        .take(BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| FORMAT.unexpected(1, "a whole gzip file", error.to_string()))?;
    if taken as u64 > BYTES_MAX {
        return Err(FORMAT.unexpected(1, "at most 256 MiB of text in the gzip file", "more"));
    }
    Ok(text)
}

/// Facts about the machine and the measurement.
fn describe(draft: &mut ImportBuilder, metadata: &Value) {
    if let Some(version) = metadata["FLENT_VERSION"].as_str() {
        draft.tool = format!("flent {version}");
    }
    // Times are in UTC; older files do not say so.
    let time = metadata["TIME"].as_str().unwrap_or_default();
    let time = if time.ends_with('Z') { time.to_owned() } else { format!("{time}Z") };
    draft.created_unix_ms = time.parse::<Timestamp>().map_or(0, Timestamp::as_millisecond);
    let machine = [
        ("host.name", &metadata["LOCAL_HOST"]),
        ("kernel.name", &metadata["KERNEL_NAME"]),
        ("kernel.release", &metadata["KERNEL_RELEASE"]),
        ("tcp.congestion", &metadata["SYSCTLS"]["net.ipv4.tcp_congestion_control"]),
    ];
    for (name, fact) in machine {
        draft.add_provenance(name, fact.as_str());
    }
    let facts = [
        ("flent.host", "HOST"),
        ("flent.title", "TITLE"),
        ("flent.note", "NOTE"),
        ("flent.duration_s", "LENGTH"),
        ("flent.failed_runners", "FAILED_RUNNERS"),
    ];
    for (name, key) in facts {
        match &metadata[key] {
            Value::String(text) if !text.is_empty() => draft.add_note(name, text),
            Value::Number(number) => draft.add_note(name, &number.to_string()),
            _ => {}
        }
    }
}

/// The quantity behind one of flent's units, and the factor to ours.
fn response_and_scale(unit: &str, name: &str) -> Option<(&'static str, f64)> {
    let time = if name.starts_with("Ping") { "round-trip" } else { "time" };
    Some(match unit {
        "ms" => (time, 1e6),
        "us" => (time, 1e3),
        "s" => (time, 1e9),
        "Mbits/s" => ("throughput", 125_000.0),
        "bits/s" => ("throughput", 0.125),
        _ => return None,
    })
}

/// Adds one series.
fn add(
    draft: &mut ImportBuilder,
    document: &Value,
    name: &str,
    meta: &Value,
) -> Result<(), ImportError> {
    let meant = meta["UNITS"].as_str().and_then(|unit| response_and_scale(unit, name));
    let Some((response, scale)) = meant else {
        draft.add_unmeasured(name);
        return Ok(());
    };
    let mut values = Vec::new();
    let mut are_intervals = false;
    for point in document["raw_values"][name].as_array().into_iter().flatten() {
        are_intervals |= point.get("dur").is_some();
        match &point["val"] {
            Value::Null => {}
            value => values.push(number(name, value, scale)?),
        }
    }
    let mean = match &meta["MEAN_VALUE"] {
        Value::Null => mean(&values),
        value => Some(number(name, value, scale)?),
    };
    let Some(mean) = mean else {
        draft.add_unmeasured(name);
        return Ok(());
    };
    let test = document["metadata"]["NAME"].as_str().unwrap_or("unknown");
    let mut factors = Factors::default().with("series", name);
    if are_intervals && let Some(step) = interval_ms(document) {
        // The points are averages over intervals, so the extremes are those of averages.
        factors = factors.with("interval_ms", step);
    }
    values.sort_by(f64::total_cmp);
    let target = ImportedMetric::new(format!("flent.{test}"), response, factors);
    let summary = ImportedSummary {
        tool: draft.tool.clone(),
        value: mean,
        statistic: "mean".to_owned(),
        n: (!values.is_empty()).then_some(values.len() as u64),
        min: values.first().copied(),
        max: values.last().copied(),
        percentiles: median(&values).map(|p50| ("p50".to_owned(), p50)).into_iter().collect(),
    };
    draft.add_summary(target, summary);
    Ok(())
}

/// The length of the intervals in milliseconds.
fn interval_ms(document: &Value) -> Option<u64> {
    whole_number(document["metadata"]["STEP_SIZE"].as_f64()? * 1e3).filter(|ms| *ms > 0)
}

/// A number of a series in our unit.
fn number(series: &str, value: &Value, scale: f64) -> Result<f64, ImportError> {
    match value.as_f64().map(|value| value * scale) {
        // One-way delays between two clocks may be below zero.
        Some(value) if value.abs() < 1e18 => Ok(value),
        _ => {
            let expected = format!("a number in the series '{series}'");
            Err(FORMAT.unexpected(1, expected, excerpt(&value.to_string())))
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of points")]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
