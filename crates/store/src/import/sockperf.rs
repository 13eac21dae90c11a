//! sockperf 3: what its client prints, and the log of every packet that `--full-log` writes.
//!
//! sockperf prints half of each round trip unless asked for `--full-rtt`; both become half a round
//! trip here. Its throughput is what the sender handed to the kernel, in units of 2^20 bytes. Left
//! out: feeds with several servers, whose percentiles are not told apart here.

use super::builder::{ImportBuilder, ImportedMetric};
use super::{ImportError, ImportFormat, channel_factors, excerpt, is_local, mechanism};
use crate::record::{BlockUsage, ImportedSummary, RunData, SampleBlock};
use std::collections::BTreeMap;

const FORMAT: ImportFormat = ImportFormat::Sockperf;

const EXPECTED: &str = "a line 'Summary: Latency is …', 'Summary: Round trip is …' or \
                        'Summary: BandWidth is …', or the rows of a full log";

/// Thirty thousand years: no time in a file is longer.
const SECONDS_MAX: f64 = 1e12;

/// The run in a file.
///
/// # Errors
/// [`ImportError`] when a figure is not a number, when sockperf says that it failed, or when there
/// is no result.
pub fn parse(bytes: &[u8]) -> Result<RunData, ImportError> {
    let text = String::from_utf8_lossy(bytes);
    let mut reader = SockperfParser::default();
    for (index, line) in text.lines().enumerate() {
        let line = strip_colors(line);
        reader.line(index + 1, line.trim_start_matches("sockperf: ").trim())?;
    }
    let run = reader.finish()?;
    FORMAT.require_final_newline(&text)?;
    Ok(run)
}

/// A line without its terminal colours, `ESC [ … m`.
fn strip_colors(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    plain
}

#[derive(Default)]
struct SockperfParser {
    version: Option<String>,
    address: Option<(String, String)>,
    handler: Option<String>,
    size: Option<u64>,
    parameters: Option<String>,
    observations: Option<u64>,
    mean_us: Option<f64>,
    whole_round_trip: bool,
    percentiles: BTreeMap<String, f64>,
    min_us: Option<f64>,
    max_us: Option<f64>,
    bandwidth_mib: Option<f64>,
    counters: BTreeMap<String, u64>,
    in_log: bool,
    last_line: usize,
    /// Rows of a full log: when a message was sent and when its answer came, in seconds.
    rows: Vec<(f64, f64)>,
    unread: Vec<(usize, String)>,
}

impl SockperfParser {
    fn line(&mut self, number: usize, line: &str) -> Result<(), ImportError> {
        self.last_line = number;
        if line.starts_with("packet, txTime(sec)") {
            self.in_log = true;
        } else if self.in_log && line.starts_with("---") {
            self.in_log = false;
        } else if self.in_log {
            self.rows.push(row(number, line)?);
        } else if let Some(rest) = line.strip_prefix("--->") {
            self.percentile(number, rest.trim())?;
        } else if let Some(rest) = line.strip_prefix("Summary:") {
            self.summary(number, rest.trim())?;
        } else if line.starts_with("No messages were received") || line.starts_with("ERROR:") {
            return Err(FORMAT.failed(line.trim_end_matches('.')));
        } else {
            self.header_line(number, line)?;
        }
        Ok(())
    }

    /// Lines that say how it was measured.
    fn header_line(&mut self, number: usize, line: &str) -> Result<(), ImportError> {
        if let Some(version) = between(line, "version #", " ") {
            self.version = Some(version.to_owned());
        } else if let Some(handler) = between(line, "using ", "()") {
            self.handler = Some(handler.to_owned());
        } else if let Some((host, protocol)) = address(line) {
            self.address = Some((host, protocol));
        } else if line.starts_with("====> avg-") {
            let figure =
                between(line, "=", " (std-dev").and_then(|rest| rest.split('=').next_back());
            self.whole_round_trip = line.contains("avg-rtt");
            self.mean_us = Some(FORMAT.number(number, figure.unwrap_or(line), "the average")?);
        } else if line.starts_with("# dropped messages") {
            self.count(number, line)?;
        } else if let Some(count) = between(line, "Total ", " observations") {
            self.observations = Some(integer_in(number, count, "the number of observations")?);
        } else if let Some(rest) = line.split_once("following parameters: ") {
            self.parameters = Some(rest.1.trim().to_owned());
        } else if let Some(server) = line.split_once("statistics for Server No: ")
            && server.1.trim() != "0"
        {
            return Err(ImportError::Unsupported {
                format: FORMAT,
                line: number,
                what: "the statistics of several servers",
                instead: "a run against one server",
            });
        } else if !is_ignored_line(line) {
            self.unread.push((number, line.to_owned()));
        }
        // Both the throughput note and the parameters of a log name it.
        if let Some((_, rest)) = line.split_once("msg-size=") {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            self.size = Some(integer_in(number, digits, "the message size")?);
        }
        Ok(())
    }

    /// `# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0`.
    fn count(&mut self, number: usize, line: &str) -> Result<(), ImportError> {
        let ours =
            [("dropped", "lost"), ("duplicated", "duplicated"), ("out-of-order", "reordered")];
        for part in line.split(';') {
            let Some((name, count)) = part.split_once('=') else { continue };
            if let Some((_, counter)) = ours.iter().find(|(theirs, _)| name.contains(theirs)) {
                let count = integer_in(number, count, "a number of messages")?;
                self.counters.insert((*counter).to_owned(), count);
            }
        }
        Ok(())
    }

    /// `<MAX> observation =  459.867` or `percentile 99.900 =  240.482`.
    fn percentile(&mut self, number: usize, text: &str) -> Result<(), ImportError> {
        let Some((name, figure)) = text.split_once('=') else {
            let expected = "an observation or percentile with its value";
            return Err(FORMAT.unexpected(number, expected, excerpt(text)));
        };
        let value = FORMAT.number(number, figure, "a time in microseconds")?;
        match name.trim() {
            "<MAX> observation" => self.max_us = Some(value),
            "<MIN> observation" => self.min_us = Some(value),
            name => {
                let Some(percent) = name.strip_prefix("percentile ") else {
                    return Err(FORMAT.unexpected(number, "a percentile", excerpt(name)));
                };
                FORMAT.number(number, percent, "a percentage")?;
                let percent = percent.trim();
                let percent = if percent.contains('.') {
                    percent.trim_end_matches('0').trim_end_matches('.')
                } else {
                    percent
                };
                self.percentiles.insert(format!("p{percent}"), value);
            }
        }
        Ok(())
    }

    /// `Latency is 31.312 usec`, `BandWidth is 405.708 MBps (3245.660 Mbps)`.
    fn summary(&mut self, number: usize, text: &str) -> Result<(), ImportError> {
        if let Some(rest) = text.strip_prefix("BandWidth is ") {
            let expected = "a bandwidth as '405.708 MBps (3245.660 Mbps)'";
            let words: Vec<&str> = rest.split_whitespace().collect();
            let &[mebibytes, "MBps", mebibits, "Mbps)"] = words.as_slice() else {
                return Err(FORMAT.unexpected(number, expected, excerpt(rest)));
            };
            let mebibytes = FORMAT.number(number, mebibytes, expected)?;
            let mebibits = FORMAT.number(number, mebibits.trim_start_matches('('), expected)?;
            if (mebibytes * 8.0 - mebibits).abs() > 0.01 + mebibits * 1e-4 {
                return Err(FORMAT.unexpected(number, "two bandwidths that agree", excerpt(rest)));
            }
            self.bandwidth_mib = Some(mebibytes);
        } else if let Some(figure) = between(text, " is ", " usec") {
            self.whole_round_trip = text.starts_with("Round trip");
            self.mean_us = Some(FORMAT.number(number, figure, "a time in microseconds")?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<RunData, ImportError> {
        let mut draft = ImportBuilder::new(FORMAT);
        if let Some(version) = &self.version {
            draft.tool = format!("sockperf {version}");
        }
        if let Some(parameters) = self.parameters.take() {
            draft.notes.insert("sockperf.parameters".to_owned(), parameters);
        }
        if self.address.is_none() {
            let assumed = "the file does not name protocol and host: taken as local";
            draft.notes.insert("import.assumed".to_owned(), assumed.to_owned());
        }
        for (number, line) in std::mem::take(&mut self.unread) {
            draft.add_unparsed_line(number, &line);
        }
        self.check_complete()?;
        if !self.rows.is_empty() {
            let block = self.block();
            draft.add_samples(self.metric("latency"), block);
        } else if let Some(mean) = self.mean_us {
            for (counter, count) in &self.counters {
                draft.notes.insert(format!("sockperf.{counter}"), count.to_string());
            }
            let summary = self.latency(mean, draft.tool.clone());
            draft.add_summary(self.metric("latency"), summary);
        }
        if let Some(mebibytes) = self.bandwidth_mib {
            let counted = "by the sender, when it handed them to the kernel";
            draft.notes.insert("sockperf.bytes-counted".to_owned(), counted.to_owned());
            draft.add_number(self.metric("throughput"), mebibytes * 1_048_576.0, "mean");
        }
        if draft.is_empty() {
            return Err(ImportError::NoResults { format: FORMAT, expected: EXPECTED });
        }
        Ok(draft.finish())
    }

    /// Refuses what ends before sockperf ended it.
    fn check_complete(&self) -> Result<(), ImportError> {
        let rows = self.rows.len() as u64;
        let cut =
            |expected: &str, found: &str| Err(FORMAT.unexpected(self.last_line, expected, found));
        let end = "the end of the file";
        match self.observations {
            _ if self.in_log => cut("the line of dashes that ends the log", end),
            Some(total) if rows > 0 && total != rows => {
                cut(&format!("a log of {total} rows"), &rows.to_string())
            }
            _ if rows == 0 && self.mean_us.is_some() && self.min_us.is_none() => {
                cut("percentiles down to the '<MIN> observation'", end)
            }
            _ => Ok(()),
        }
    }

    fn metric(&self, response: &'static str) -> ImportedMetric {
        let (local, mechanism) = match &self.address {
            Some((host, protocol)) => {
                let protocol = protocol.split_whitespace().next().unwrap_or_default();
                (is_local(host), mechanism(protocol, host.contains(':')))
            }
            None => (true, "unknown".to_owned()),
        };
        let place = if local { "local" } else { "remote" };
        let mut factors = channel_factors(&mechanism, self.size);
        match self.handler.as_deref() {
            Some("recvfrom" | "recvfromvma") => factors = factors.with("wake", "block"),
            Some(_) => factors = factors.with("wake", "poll"),
            None => {}
        }
        ImportedMetric::new(format!("{response}.{place}"), response, factors)
    }

    /// The printed statistics as half round trips in nanoseconds.
    fn latency(&self, mean_us: f64, tool: String) -> ImportedSummary {
        let half = |us: f64| us * 1e3 / if self.whole_round_trip { 2.0 } else { 1.0 };
        let percentiles: BTreeMap<String, f64> =
            self.percentiles.iter().map(|(name, us)| (name.clone(), half(*us))).collect();
        let (value, statistic) = match percentiles.get("p50") {
            Some(median) => (*median, "median"),
            None => (half(mean_us), "mean"),
        };
        ImportedSummary {
            tool,
            value,
            statistic: statistic.to_owned(),
            n: self.observations,
            min: self.min_us.map(half),
            max: self.max_us.map(half),
            percentiles,
        }
    }

    /// The rows of a full log as one block; half round trips, in nanoseconds.
    fn block(&self) -> SampleBlock {
        // Times are printed to the nanosecond, so half of them is exact in tenths of one.
        let rows = self.rows.iter();
        let samples: Vec<f64> =
            rows.map(|(sent_s, received_s)| ((received_s - sent_s) * 1e9).round() / 2.0).collect();
        let wall_s = match (self.rows.first(), self.rows.last()) {
            (Some((sent_s, _)), Some((_, received_s))) => (received_s - sent_s).max(0.0),
            _ => 0.0,
        };
        let n = samples.len() as u64;
        SampleBlock {
            cell: 0,
            launch: 0,
            pass: 0,
            batch: 1,
            n,
            warmup: 0,
            samples,
            histogram: Vec::new(),
            histogram_scale: 0.001,
            n_eff: None,
            effort: BlockUsage {
                wall_ns: plumb_base::time::Span::from_secs_f64(wall_s).as_ns(),
                operations: n,
                ..BlockUsage::default()
            },
            counters: self.counters.clone(),
            flags: Vec::new(),
        }
    }
}

/// `0, 2.407268161, 2.407339016, 35.427`.
fn row(number: usize, line: &str) -> Result<(f64, f64), ImportError> {
    let expected = "packet, txTime, rxTime and latency, four numbers";
    let fields: Vec<f64> = line.split(',').map_while(|field| field.trim().parse().ok()).collect();
    match fields.as_slice() {
        &[_, sent_s, received_s, _]
            if (0.0..=SECONDS_MAX).contains(&sent_s)
                && (sent_s..=SECONDS_MAX).contains(&received_s) =>
        {
            Ok((sent_s, received_s))
        }
        _ => Err(FORMAT.unexpected(number, expected, excerpt(line))),
    }
}

/// `[ 0] IP = 127.0.0.1       PORT = 23111 # TCP` as host and protocol.
fn address(line: &str) -> Option<(String, String)> {
    let (_, rest) = line.split_once("IP = ")?;
    let (host, rest) = rest.split_once(" PORT")?;
    let (_, protocol) = rest.split_once("# ")?;
    Some((host.trim().to_owned(), protocol.trim().to_owned()))
}

/// Lines that are known and say nothing that is kept.
fn is_ignored_line(line: &str) -> bool {
    let known = [
        "sockperf[CLIENT]",
        "Warmup stage",
        "Starting test",
        "Test end",
        "[Total Run]",
        "[Valid Duration]",
        "========= Printing statistics",
        "Total of ",
        "NOTE: ",
        "---",
    ];
    line.is_empty() || known.iter().any(|known| line.starts_with(known))
}

/// What stands between two marks.
fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    line.split_once(before)?.1.split_once(after).map(|(middle, _)| middle)
}

fn integer_in(line: usize, text: &str, expected: &str) -> Result<u64, ImportError> {
    text.trim().parse().map_err(|_| FORMAT.unexpected(line, expected, excerpt(text)))
}
