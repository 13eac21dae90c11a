//! qperf 0.4: what it prints of each test, at any verbosity.
//!
//! Its units are decimal, its latency is already half a round trip, and its bandwidth is the
//! receiver's. It names the hosts only when asked for `conf`: without that, results are filed under
//! its own name. Left out: message rates and CPU use, which are kept as notes.

use std::collections::BTreeMap;

use super::builder::{ImportBuilder, ImportedMetric};
use super::{ImportError, ImportFormat, channel_factors, excerpt, whole_number};
use crate::record::{Factors, RunData};

const FORMAT: ImportFormat = ImportFormat::Qperf;

const EXPECTED: &str = "a line such as 'tcp_lat:' with 'latency  =  12.4 us' below it";

/// The run in a file.
///
/// # Errors
/// [`ImportError`] when a test lacks its figure or its unit, when qperf says that it failed, or
/// when there is no result.
pub fn parse(bytes: &[u8]) -> Result<RunData, ImportError> {
    let text = String::from_utf8_lossy(bytes);
    let mut draft = ImportBuilder::new(FORMAT);
    let (blocks, complaint) = tests_and_complaint(&text, &mut draft);
    let place = locality(&blocks, &mut draft);
    let mut seen: BTreeMap<(String, Option<u64>), u64> = BTreeMap::new();
    for block in &blocks {
        let key = (block.name.clone(), block.size()?);
        let nth = seen.entry(key).and_modify(|nth| *nth += 1).or_insert(1);
        block.add(&mut draft, place, *nth, complaint.as_deref())?;
    }
    draft.finish_text(&text, complaint, EXPECTED)
}

/// One test and the lines below it.
struct QperfTest {
    name: String,
    line: usize,
    /// Key → line, value and unit.
    values: BTreeMap<String, (usize, String)>,
}

/// The tests of a file, and the first thing that qperf complained of.
fn tests_and_complaint(text: &str, draft: &mut ImportBuilder) -> (Vec<QperfTest>, Option<String>) {
    let mut blocks: Vec<QperfTest> = Vec::new();
    let mut complaint = None;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(name) = line.strip_suffix(':').filter(|name| is_name(name)) {
            blocks.push(QperfTest { name: name.to_owned(), line: number, values: BTreeMap::new() });
        } else if let Some((key, value)) = line.split_once('=')
            && line.starts_with("    ")
            && is_name(key.trim())
            && let Some(block) = blocks.last_mut()
        {
            let fact = (number, value.trim().to_owned());
            block.values.entry(key.trim().to_owned()).or_insert(fact);
        } else if !line.trim().is_empty() {
            let is_complaint = ["failed", "unable", "error", "cannot"]
                .iter()
                .any(|word| line.to_ascii_lowercase().contains(word));
            if is_complaint && complaint.is_none() {
                complaint = Some(line.trim().chars().take(200).collect());
            }
            draft.add_unparsed_line(number, line);
        }
    }
    (blocks, complaint)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Whether both ends were one host, and which: known only from the `conf` test.
fn locality(blocks: &[QperfTest], draft: &mut ImportBuilder) -> Option<&'static str> {
    let conf = blocks.iter().find(|block| block.name == "conf")?;
    let fact = |key: &str| conf.values.get(key).map(|(_, value)| value.as_str());
    for (key, name) in
        [("loc_node", "host.name"), ("loc_cpu", "cpu.model"), ("loc_os", "kernel.release")]
    {
        draft.add_provenance(name, fact(key));
    }
    if let Some(version) = fact("loc_qperf") {
        draft.tool = format!("qperf {version}");
    }
    let (local, remote) = (fact("loc_node")?, fact("rem_node")?);
    draft.notes.insert("qperf.remote".to_owned(), remote.to_owned());
    Some(if local == remote { "local" } else { "remote" })
}

impl QperfTest {
    fn size(&self) -> Result<Option<u64>, ImportError> {
        let Some((line, text)) = self.values.get("msg_size") else { return Ok(None) };
        bytes(text).map(Some).ok_or_else(|| {
            FORMAT.unexpected(*line, "a size in bytes, such as '64 KiB (65,536)'", excerpt(text))
        })
    }

    /// A figure in a unit: its value times the unit's worth.
    fn number(&self, key: &str, units: &[(&str, f64)]) -> Result<Option<f64>, ImportError> {
        let Some((line, text)) = self.values.get(key) else { return Ok(None) };
        let known = || units.iter().map(|(unit, _)| *unit).collect::<Vec<_>>().join(", ");
        quantity(text)
            .and_then(|(value, unit)| {
                let (_, worth) = units.iter().find(|(known, _)| *known == unit)?;
                Some(value * worth)
            })
            .map(Some)
            .ok_or_else(|| {
                FORMAT.unexpected(*line, format!("a number in one of {}", known()), excerpt(text))
            })
    }

    fn add(
        &self,
        draft: &mut ImportBuilder,
        place: Option<&str>,
        nth: u64,
        complaint: Option<&str>,
    ) -> Result<(), ImportError> {
        let Some((protocol, what)) = self.name.rsplit_once('_') else { return Ok(()) };
        let mut factors = channel_factors(protocol, self.size()?);
        if nth > 1 {
            // The parameter that a loop (-oo) changed is not printed: two results need not be repetitions.
            factors = factors.with("nth", nth);
        }
        let (response, value) = match what {
            "bw" => ("throughput", self.number("recv_bw", BANDS)?.or(self.number("bw", BANDS)?)),
            "lat" => ("latency", self.number("latency", TIMES)?),
            _ => {
                draft.add_unmeasured(&self.name);
                return Ok(());
            }
        };
        let Some(value) = value else {
            let expected = format!("the {response} of {}", self.name);
            let missing = FORMAT.unexpected(self.line, expected, "none below it");
            return Err(complaint.map_or(missing, |reason| FORMAT.failed(reason)));
        };
        // Reads and atomics of remote memory are timed whole, and by one side.
        let is_whole = what == "lat" && !has_round_trip(protocol);
        let (experiment, response) = match place {
            _ if is_whole => ("qperf.operation".to_owned(), "time"),
            Some(place) => (format!("{response}.{place}"), response),
            None => (format!("qperf.{response}"), response),
        };
        let target = ImportedMetric::new(experiment, response, factors.clone());
        draft.add_number(target, value, "mean");
        self.delivered(draft, place, factors)?;
        self.describe(draft);
        Ok(())
    }

    /// The share of datagrams that arrived, where both counts are printed.
    fn delivered(
        &self,
        draft: &mut ImportBuilder,
        place: Option<&str>,
        factors: Factors,
    ) -> Result<(), ImportError> {
        let count = |key| self.number(key, &[("", 1.0)]);
        if self.name != "udp_bw" {
            return Ok(());
        }
        if let (Some(sent), Some(received)) = (count("send_msgs")?, count("recv_msgs")?)
            && sent > 0.0
            && received <= sent
        {
            let group = place.map_or("qperf.throughput".to_owned(), |p| format!("throughput.{p}"));
            let target = ImportedMetric::new(group, "delivered", factors);
            draft.add_number(target, received / sent, "total");
        }
        Ok(())
    }

    /// Everything else that was printed, as it was printed.
    fn describe(&self, draft: &mut ImportBuilder) {
        for (key, (_, text)) in &self.values {
            if !matches!(key.as_str(), "bw" | "recv_bw" | "latency" | "msg_size") {
                draft.add_note(&format!("qperf.{}.{key}", self.name), text);
            }
        }
    }
}

/// Transports whose latency test sends a message there and back.
fn has_round_trip(protocol: &str) -> bool {
    matches!(protocol, "tcp" | "udp" | "sctp" | "sdp" | "rds" | "rc" | "uc" | "ud" | "xrc")
}

/// `view_band` in qperf.c: steps of 1000, in bytes or, with `-ub`, bits.
const BANDS: &[(&str, f64)] = &[
    ("bytes/sec", 1.0),
    ("KB/sec", 1e3),
    ("MB/sec", 1e6),
    ("GB/sec", 1e9),
    ("TB/sec", 1e12),
    ("bits/sec", 0.125),
    ("Kb/sec", 125.0),
    ("Mb/sec", 125e3),
    ("Gb/sec", 125e6),
    ("Tb/sec", 125e9),
];

/// Nanoseconds of each unit of time (`view_time` in qperf.c).
const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("sec", 1e9)];

/// `21,577` or `12.4 us` as a number that is not negative and its unit.
fn quantity(text: &str) -> Option<(f64, &str)> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let value: f64 = number.replace(',', "").parse().ok()?;
    (0.0..1e15).contains(&value).then_some((value, unit.trim()))
}

/// `1 bytes`, `64 KiB (65,536)`, `64 KB`.
fn bytes(text: &str) -> Option<u64> {
    if let Some((_, exact)) = text.split_once('(') {
        return exact.strip_suffix(')')?.replace(',', "").parse().ok();
    }
    let (value, unit) = quantity(text)?;
    let worth = match unit {
        "bytes" => 1.0,
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    };
    whole_number(value * worth)
}
