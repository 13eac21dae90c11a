//! The fields of netperf's omni tests, however they are laid out: `KEY=value` lines, CSV, columns.
//!
//! All three layouts name the same fields, by keyword or by heading. A field of -1 was not
//! measured. Left out: buffer alignments, dirty counts, drivers, and what netperf calls deprecated.

use std::collections::BTreeMap;

use super::super::builder::ImportBuilder;
use super::super::{ImportError, excerpt};
use super::{FORMAT, NetperfTest, NetperfTestKind, bytes_per_second};
use crate::record::ImportedSummary;

/// The fields of one result by keyword.
pub(super) type OmniFields = BTreeMap<String, String>;

/// Fields that are read: their keywords and their headings.
const HEADINGS: &[(&str, &str)] = &[
    ("PROTOCOL", "Protocol"),
    ("DIRECTION", "Direction"),
    ("ELAPSED_TIME", "Elapsed Time (sec)"),
    ("THROUGHPUT", "Throughput"),
    ("THROUGHPUT_UNITS", "Throughput Units"),
    ("LOCAL_SEND_SIZE", "Local Send Size"),
    ("REMOTE_SEND_SIZE", "Remote Send Size"),
    ("REQUEST_SIZE", "Request Size Bytes"),
    ("RESPONSE_SIZE", "Response Size Bytes"),
    ("LOCAL_CPU_UTIL", "Local CPU Util %"),
    ("REMOTE_CPU_UTIL", "Remote CPU Util %"),
    ("LOCAL_SD", "Local Service Demand"),
    ("REMOTE_SD", "Remote Service Demand"),
    ("SD_UNITS", "Service Demand Units"),
    ("THROUGHPUT_CONFID", "Throughput Confidence Width (%)"),
    ("TRANSACTION_RATE", "Transaction Rate Tran/s"),
    ("RT_LATENCY", "Round Trip Latency usec/tran"),
    ("BURST_SIZE", "Initial Burst Requests"),
    ("LOCAL_TRANSPORT_RETRANS", "Local Transport Retransmissions"),
    ("DEST_ADDR", "Destination Address"),
    ("DEST_FAMILY", "Destination Family"),
    ("LOCAL_BYTES_SENT", "Local Bytes Sent"),
    ("REMOTE_BYTES_RECVD", "Remote Bytes Received"),
    ("LOCAL_NODELAY", "Local NODELAY"),
    ("MIN_LATENCY", "Minimum Latency Microseconds"),
    ("MAX_LATENCY", "Maximum Latency Microseconds"),
    ("P50_LATENCY", "50th Percentile Latency Microseconds"),
    ("P90_LATENCY", "90th Percentile Latency Microseconds"),
    ("P99_LATENCY", "99th Percentile Latency Microseconds"),
    ("MEAN_LATENCY", "Mean Latency Microseconds"),
    ("STDDEV_LATENCY", "Stddev Latency Microseconds"),
    ("LOCAL_CONG_CONTROL", "Local Congestion Control Algorithm"),
    ("COMMAND_LINE", "Command Line"),
];

/// The keyword of a field with this heading, if it is read.
pub(super) fn key_of_heading(heading: &str) -> Option<&'static str> {
    HEADINGS.iter().find(|(_, known)| *known == heading).map(|(key, _)| *key)
}

/// Key and value of a line such as `THROUGHPUT=11755.32`.
pub(super) fn keyword(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let is_key = key.starts_with(|c: char| c.is_ascii_uppercase())
        && key.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    is_key.then_some((key, value))
}

/// The headings of a CSV line, if one of them is a field that is read.
pub(super) fn csv_headings(line: &str) -> Option<Vec<String>> {
    let headings = csv_fields(line);
    (headings.len() > 1 && headings.iter().any(|heading| key_of_heading(heading).is_some()))
        .then_some(headings)
}

/// The fields of a CSV line: netperf quotes its command line and nothing else.
pub(super) fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match (c, fields.last_mut()) {
            ('"', _) => quoted = !quoted,
            (',', _) if !quoted => fields.push(String::new()),
            (c, Some(field)) => field.push(c),
            (_, None) => {}
        }
    }
    fields
}

/// netperf parts a heading at most so often.
const HEADING_LINES_MAX: usize = 4;

/// The fields of columns: every line but the last is headings; a column of characters that is
/// blank in all lines parts them.
pub(super) fn columns(block: &[&str]) -> Option<OmniFields> {
    let (values, headings) = block.split_last()?;
    if !(1..=HEADING_LINES_MAX).contains(&headings.len())
        || block.iter().any(|line| !line.is_ascii())
    {
        return None;
    }
    let width = block.iter().map(|line| line.len()).max()?;
    let is_blank =
        |at: usize| block.iter().all(|l| l.as_bytes().get(at).is_none_or(|b| *b == b' '));
    let cut = |line: &str, from: usize, to: usize| {
        line.get(from.min(line.len())..to.min(line.len())).unwrap_or_default().trim().to_owned()
    };
    let mut fields = OmniFields::new();
    let mut from = 0;
    while from < width {
        let to = (from..width).find(|at| is_blank(*at)).unwrap_or(width);
        let words: Vec<String> = headings.iter().map(|line| cut(line, from, to)).collect();
        let heading = words.join(" ").trim().to_owned();
        if let Some(key) = key_of_heading(&heading) {
            fields.insert(key.to_owned(), cut(values, from, to));
        }
        from = to + 1;
    }
    (!fields.is_empty()).then_some(fields)
}

/// What a direction says about a test.
pub(super) fn kind_of_direction(direction: &str) -> Option<NetperfTestKind> {
    Some(match direction {
        "Send" => NetperfTestKind::Stream { reverse: false },
        "Receive" => NetperfTestKind::Stream { reverse: true },
        "Send|Recv" => NetperfTestKind::RoundTrip,
        "Connect|Send|Recv" => NetperfTestKind::Transaction,
        "Connection" => NetperfTestKind::Connection,
        _ => return None,
    })
}

/// Puts one result into the draft.
///
/// # Errors
/// A field that is no number, or a result whose test or units the file does not say.
pub(super) fn add(
    draft: &mut ImportBuilder,
    banner: Option<&NetperfTest>,
    fields: &OmniFields,
    line: usize,
) -> Result<(), ImportError> {
    let outcome = OmniResult { line, fields };
    let test = outcome.test(banner)?;
    let Some(kind) = test.kind else {
        let expected = "the banner of a test, or its DIRECTION";
        return Err(FORMAT.unexpected(line, expected, "a result without either"));
    };
    match kind {
        NetperfTestKind::Stream { reverse } => outcome.stream(draft, &test, reverse)?,
        NetperfTestKind::RoundTrip | NetperfTestKind::Transaction | NetperfTestKind::Connection => {
            outcome.transactions(draft, &test)?;
        }
    }
    outcome.describe(draft);
    Ok(())
}

/// The fields of one result and the line they are near.
struct OmniResult<'a> {
    line: usize,
    fields: &'a OmniFields,
}

impl OmniResult<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// A number that was measured.
    fn number(&self, key: &str) -> Result<Option<f64>, ImportError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(value) if value.is_nan() || value < 0.0 => Ok(None),
            Ok(value) if value < 1e18 => Ok(Some(value)),
            _ => Err(FORMAT.unexpected(self.line, format!("a number for {key}"), excerpt(text))),
        }
    }

    /// A size that there is.
    fn size(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok().filter(|size| *size > 0)
    }

    /// The banner's test with what the fields say better.
    fn test(&self, banner: Option<&NetperfTest>) -> Result<NetperfTest, ImportError> {
        let mut test = banner.cloned().unwrap_or_default();
        if let Some(direction) = self.text("DIRECTION") {
            test.kind = Some(kind_of_direction(direction).ok_or_else(|| {
                FORMAT.unexpected(self.line, "a DIRECTION that netperf has", excerpt(direction))
            })?);
        }
        if let Some(protocol) = self.text("PROTOCOL") {
            let known = ["TCP", "UDP", "SCTP", "DCCP"];
            test.protocol = known.into_iter().find(|known| *known == protocol);
        }
        if let Some(host) = self.text("DEST_ADDR") {
            test.is_ipv6 = host.contains(':');
            test.host = Some(host.to_owned());
        }
        if let Some(burst) = self.text("BURST_SIZE") {
            test.burst = burst.parse().ok();
        }
        test.nodelay |= self.text("LOCAL_NODELAY") == Some("1");
        Ok(test)
    }

    fn stream(
        &self,
        draft: &mut ImportBuilder,
        test: &NetperfTest,
        reverse: bool,
    ) -> Result<(), ImportError> {
        let sent = if reverse { "REMOTE_SEND_SIZE" } else { "LOCAL_SEND_SIZE" };
        let size = self.size(sent);
        if let Some(rate) = self.number("THROUGHPUT")? {
            let units = self.text("THROUGHPUT_UNITS").unwrap_or("none");
            let Some(scale) = bytes_per_second(units) else {
                let expected = "THROUGHPUT_UNITS in bytes or bits beside THROUGHPUT";
                return Err(FORMAT.unexpected(self.line, expected, excerpt(units)));
            };
            let target = test.throughput("throughput", size);
            draft.add_number(target, rate * scale, "mean");
        }
        let counted = (self.number("LOCAL_BYTES_SENT")?, self.number("REMOTE_BYTES_RECVD")?);
        if let (Some(sent), Some(received), false, Some("UDP")) =
            (counted.0, counted.1, reverse, test.protocol)
            && sent > 0.0
            && received <= sent
        {
            let target = test.throughput("delivered", size);
            draft.add_number(target, received / sent, "total");
        }
        Ok(())
    }

    fn transactions(
        &self,
        draft: &mut ImportBuilder,
        test: &NetperfTest,
    ) -> Result<(), ImportError> {
        let sizes = self.size("REQUEST_SIZE").zip(self.size("RESPONSE_SIZE"));
        let (target, scale) = test.transactions(sizes);
        let Some((value_us, statistic)) = self.central_time(test)? else { return Ok(()) };
        if test.kind == Some(NetperfTestKind::RoundTrip) && test.burst.is_none() {
            let assumed = "netperf does not say how many transactions were in flight: taken as one";
            draft.add_note("import.assumed", assumed);
        }
        // Without -j there is a mean, and every other statistic is 0 or -1.
        let positive = |key: &str| Ok(self.number(key)?.filter(|us| *us > 0.0));
        let scaled = |us: f64| us * 1e3 * scale;
        let mut percentiles = BTreeMap::new();
        for (key, name) in [("P50_LATENCY", "p50"), ("P90_LATENCY", "p90"), ("P99_LATENCY", "p99")]
        {
            if let Some(us) = positive(key)? {
                percentiles.insert(name.to_owned(), scaled(us));
            }
        }
        let (min, max) = (positive("MIN_LATENCY")?, positive("MAX_LATENCY")?);
        if percentiles.is_empty() && max.is_none() {
            draft.add_number(target, scaled(value_us), statistic);
        } else {
            let summary = ImportedSummary {
                tool: draft.tool.clone(),
                value: scaled(value_us),
                statistic: statistic.to_owned(),
                n: None,
                min: min.map(scaled),
                max: max.map(scaled),
                percentiles,
            };
            draft.add_summary(target, summary);
        }
        Ok(())
    }

    /// The time of a transaction in microseconds, and which statistic that is.
    fn central_time(&self, test: &NetperfTest) -> Result<Option<(f64, &'static str)>, ImportError> {
        for (key, statistic) in
            [("P50_LATENCY", "median"), ("RT_LATENCY", "mean"), ("MEAN_LATENCY", "mean")]
        {
            if let Some(us) = self.number(key)?.filter(|us| *us > 0.0) {
                return Ok(Some((us, statistic)));
            }
        }
        let counted = self.number("TRANSACTION_RATE")?;
        let rate = match self.text("THROUGHPUT_UNITS") {
            Some("Trans/s") => self.number("THROUGHPUT")?.or(counted),
            _ => counted,
        };
        let Some(rate) = rate else { return Ok(None) };
        if rate <= 0.0 {
            return Err(FORMAT.failed(format!("line {} counts no transaction", self.line)));
        }
        Ok(Some((1e6 * test.in_flight() / rate, "mean")))
    }

    /// Facts beside the figures.
    fn describe(&self, draft: &mut ImportBuilder) {
        let facts = [
            ("LOCAL_CPU_UTIL", "netperf.cpu.local_percent"),
            ("REMOTE_CPU_UTIL", "netperf.cpu.remote_percent"),
            ("LOCAL_SD", "netperf.cpu.local_demand"),
            ("REMOTE_SD", "netperf.cpu.remote_demand"),
            ("THROUGHPUT_CONFID", "netperf.confidence_width_percent"),
            ("TRANSACTION_RATE", "netperf.transactions_per_s"),
            ("LOCAL_TRANSPORT_RETRANS", "netperf.retransmits"),
            ("STDDEV_LATENCY", "netperf.latency_stddev_us"),
            ("ELAPSED_TIME", "netperf.duration_s"),
        ];
        for (key, name) in facts {
            let Some(text) = self.text(key) else { continue };
            if text.parse::<f64>().is_ok_and(|value| value >= 0.0) {
                let unit = match self.text("SD_UNITS") {
                    Some(unit) if name.ends_with("_demand") => format!(" {unit}"),
                    _ => String::new(),
                };
                draft.add_note(name, &format!("{text}{unit}"));
            }
        }
        if let Some(command) = self.text("COMMAND_LINE") {
            draft.add_note("netperf.command", command.trim_matches('"'));
        }
        draft.add_provenance("tcp.congestion", self.text("LOCAL_CONG_CONTROL"));
    }
}
