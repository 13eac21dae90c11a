//! netperf 2: the classic tables of its stream and request–response tests, and the fields of its
//! omni tests as keywords (`-k`), CSV (`-o`) or columns (`-O`).
//!
//! What a stream carried is what the receiver got. A transaction is a round trip, halved here;
//! one that also connects is filed whole under netperf's name. Left out: tables without their
//! banner (`-P 0`), which name no units, and netperf's CPU columns, which are kept as notes.

mod classic;
mod omni;

use super::builder::{ImportBuilder, ImportedMetric};
use super::{ImportError, ImportFormat, channel_factors, is_local, mechanism};
use crate::record::{Factors, RunData};

const FORMAT: ImportFormat = ImportFormat::Netperf;

const EXPECTED: &str = "a banner such as 'TCP STREAM TEST from … to …' with the table below it, \
                        or keywords such as THROUGHPUT= and THROUGHPUT_UNITS=";

/// The run in a file; the file may hold the results of several tests.
///
/// # Errors
/// [`ImportError`] when a table is not whole or not of numbers, when netperf says that it failed,
/// or when there is no result.
pub fn parse(bytes: &[u8]) -> Result<RunData, ImportError> {
    let text = String::from_utf8_lossy(bytes);
    let mut reader = NetperfParser::new(&text);
    while let Some((number, line)) = reader.next() {
        reader.line(number, line)?;
    }
    reader.draft.finish_text(&text, reader.failure, EXPECTED)
}

/// What a test does, as far as its figures mean different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetperfTestKind {
    /// Bytes one way; in reverse they come from the other side.
    Stream { reverse: bool },
    /// A request and its response over one connection.
    RoundTrip,
    /// Connect, request, response, close.
    Transaction,
    /// Connect and close.
    Connection,
}

/// What the banner says about the results below it.
#[derive(Clone, Debug, Default)]
struct NetperfTest {
    kind: Option<NetperfTestKind>,
    protocol: Option<&'static str>,
    host: Option<String>,
    is_ipv6: bool,
    sendfile: bool,
    nodelay: bool,
    /// Transactions in flight besides the first.
    burst: Option<u64>,
}

impl NetperfTest {
    /// `MIGRATED TCP STREAM TEST from 0.0.0.0 () port 0 AF_INET to host () port 0 AF_INET : demo`.
    fn from_banner(line: &str) -> Option<Self> {
        let (title, rest) = line.split_once(" TEST from ")?;
        let (_, rest) = rest.split_once(" to ")?;
        let mut options = rest.split(" : ");
        let address = options.next().unwrap_or_default();
        let title = title.trim().trim_start_matches("MIGRATED ");
        let mut test = Self {
            protocol: ["TCP", "UDP", "SCTP", "DCCP"]
                .into_iter()
                .find(|protocol| title.starts_with(protocol)),
            host: address.split_whitespace().next().map(str::to_owned),
            is_ipv6: address.trim_end().ends_with("AF_INET6"),
            sendfile: title.contains("SENDFILE"),
            kind: kind_of_title(title),
            ..Self::default()
        };
        for option in options {
            if let Some(burst) = option.trim().strip_prefix("first burst ") {
                test.burst = burst.trim().parse().ok();
            }
            test.nodelay |= option.trim() == "nodelay";
        }
        Some(test)
    }

    /// How the two programs are joined, and the size of what they send.
    fn factors(&self, size: Option<u64>) -> Factors {
        let mechanism = mechanism(self.protocol.unwrap_or_default(), self.is_ipv6);
        let mut factors = channel_factors(&mechanism, size);
        if self.nodelay {
            factors = factors.with("nodelay", "on");
        }
        if self.sendfile {
            factors = factors.with("send", "sendfile");
        }
        factors
    }

    /// Transactions in flight at once; one that connects is always alone.
    #[expect(clippy::cast_precision_loss, reason = "a count of transactions in flight")]
    fn in_flight(&self) -> f64 {
        match self.kind {
            Some(NetperfTestKind::RoundTrip) => 1.0 + self.burst.unwrap_or(0) as f64,
            _ => 1.0,
        }
    }

    fn locality(&self) -> &'static str {
        if self.host.as_deref().is_some_and(is_local) { "local" } else { "remote" }
    }

    /// A stream of messages of some size.
    fn throughput(&self, response: &'static str, size: Option<u64>) -> ImportedMetric {
        let mut factors = self.factors(size);
        if self.kind == Some(NetperfTestKind::Stream { reverse: true }) {
            factors = factors.with("direction", "reverse");
        }
        ImportedMetric::new(format!("throughput.{}", self.locality()), response, factors)
    }

    /// Requests of one size and responses of another, and what one of them in nanoseconds is worth.
    fn transactions(&self, sizes: Option<(u64, u64)>) -> (ImportedMetric, f64) {
        let mut factors = self.factors(sizes.map(|(request, _)| request));
        if let Some((_, response)) = sizes.filter(|(request, response)| response != request) {
            factors = factors.with("response_size", response);
        }
        if let Some(burst) =
            self.burst.filter(|burst| *burst > 0 && self.kind == Some(NetperfTestKind::RoundTrip))
        {
            factors = factors.with("burst", burst);
        }
        let (experiment, response, scale) = match self.kind {
            Some(NetperfTestKind::Transaction) => {
                ("netperf.connect-transaction".to_owned(), "time", 1.0)
            }
            Some(NetperfTestKind::Connection) => ("netperf.connect".to_owned(), "time", 1.0),
            _ => (format!("latency.{}", self.locality()), "latency", 0.5),
        };
        (ImportedMetric::new(experiment, response, factors), scale)
    }
}

fn kind_of_title(title: &str) -> Option<NetperfTestKind> {
    if let Some(direction) = title.strip_prefix("OMNI ") {
        return omni::kind_of_direction(direction);
    }
    let kinds = [
        ("Connect/Request/Response", NetperfTestKind::Transaction),
        ("REQUEST/RESPONSE", NetperfTestKind::RoundTrip),
        ("Connect/Close", NetperfTestKind::Connection),
        ("MAERTS", NetperfTestKind::Stream { reverse: true }),
        ("STREAM", NetperfTestKind::Stream { reverse: false }),
        ("SENDFILE", NetperfTestKind::Stream { reverse: false }),
        ("UNIDIRECTIONAL SEND", NetperfTestKind::Stream { reverse: false }),
    ];
    kinds.into_iter().find(|(words, _)| title.contains(words)).map(|(_, kind)| kind)
}

struct NetperfParser<'a> {
    lines: Vec<&'a str>,
    /// Lines taken.
    lines_taken: usize,
    test: Option<NetperfTest>,
    draft: ImportBuilder,
    failure: Option<String>,
}

impl<'a> NetperfParser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            lines: text.lines().collect(),
            lines_taken: 0,
            test: None,
            draft: ImportBuilder::new(FORMAT),
            failure: None,
        }
    }

    /// The next line and its number, counted from 1.
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let line = *self.lines.get(self.lines_taken)?;
        self.lines_taken += 1;
        Some((self.lines_taken, line))
    }

    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.lines_taken).copied()
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), ImportError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            return Ok(());
        }
        if let Some(test) = NetperfTest::from_banner(line) {
            if line.contains(" : interval") || line.contains(" : spin interval") {
                let assumed = "this netperf can pace its requests: taken as not paced";
                self.draft.add_note("import.assumed", assumed);
            }
            self.test = Some(test);
        } else if line.starts_with("!!!") {
            if let Some((_, widths)) = line.split_once("Confidence intervals: Throughput") {
                let width = widths.trim_start_matches([' ', ':']).trim();
                self.draft.add_note("netperf.confidence-missed", &format!("throughput ±{width}"));
            }
        } else if omni::keyword(line).is_some() {
            self.lines_taken -= 1;
            self.keywords()?;
        } else if let Some(headings) = omni::csv_headings(line) {
            self.csv(number, &headings)?;
        } else if classic::is_heading(&words) {
            self.classic(number)?;
        } else if matches!(words[0], "Alignment" | "Maximum") {
            // Lines of `-v 2`: buffer alignments and the segment size.
            while self.peek().is_some_and(|line| !line.trim().is_empty() && !is_banner(line)) {
                self.lines_taken += 1;
            }
        } else if let Some(reason) = failure(line) {
            self.failure.get_or_insert(reason);
            self.draft.add_unparsed_line(number, line);
        } else if self.test.is_some() && !is_numbers_only(&words) {
            self.columns(number)?;
        } else {
            self.draft.add_unparsed_line(number, line);
        }
        Ok(())
    }

    /// Keyword lines up to the first line that is none, or that begins another result.
    fn keywords(&mut self) -> Result<(), ImportError> {
        let first = self.lines_taken + 1;
        let mut fields = omni::OmniFields::new();
        while let Some((key, value)) = self.peek().and_then(omni::keyword) {
            if fields.contains_key(key) {
                break;
            }
            fields.insert(key.to_owned(), value.trim().to_owned());
            self.lines_taken += 1;
        }
        omni::add(&mut self.draft, self.test.as_ref(), &fields, first)
    }

    fn csv(&mut self, number: usize, headings: &[String]) -> Result<(), ImportError> {
        let Some((row_number, row)) = self.next() else {
            return Err(FORMAT.unexpected(number, "a row of values below the headings", "the end"));
        };
        let values = omni::csv_fields(row);
        if values.len() != headings.len() {
            let expected = format!("{} values separated by commas", headings.len());
            return Err(FORMAT.unexpected(
                row_number,
                expected,
                format!("{} values", values.len()),
            ));
        }
        let pairs = headings.iter().zip(values);
        let fields = pairs
            .filter_map(|(heading, value)| {
                Some((omni::key_of_heading(heading)?.to_owned(), value.trim().to_owned()))
            })
            .collect();
        omni::add(&mut self.draft, self.test.as_ref(), &fields, row_number)
    }

    /// Columns for people: up to four lines of headings, then one of values.
    fn columns(&mut self, number: usize) -> Result<(), ImportError> {
        let first = number - 1;
        while self.peek().is_some_and(|line| !line.trim().is_empty() && !is_banner(line)) {
            self.lines_taken += 1;
        }
        let block = &self.lines[first..self.lines_taken];
        let Some(fields) = omni::columns(block) else {
            for (index, line) in block.iter().enumerate() {
                self.draft.add_unparsed_line(number + index, line);
            }
            return Ok(());
        };
        omni::add(&mut self.draft, self.test.as_ref(), &fields, self.lines_taken)
    }

    fn classic(&mut self, number: usize) -> Result<(), ImportError> {
        let Some(test) = self.test.clone() else {
            return Err(ImportError::Unsupported {
                format: FORMAT,
                line: number,
                what: "a table without the banner that names its test",
                instead: "the whole output, measured without -P 0",
            });
        };
        let mut table = classic::NetperfTable::new(&test, number, self.lines[number - 1]);
        while let Some((number, line)) = self.next() {
            if line.trim().is_empty() {
                continue;
            }
            if table.line(number, line)? {
                return table.finish(&mut self.draft);
            }
        }
        Err(FORMAT.unexpected(self.lines_taken, "the rows of a table", "the end of the file"))
    }
}

fn is_banner(line: &str) -> bool {
    NetperfTest::from_banner(line).is_some()
}

/// Whether a line is nothing but numbers: a figure of `-v 0`, or a row without its headings.
fn is_numbers_only(words: &[&str]) -> bool {
    words.iter().all(|word| word.parse::<f64>().is_ok())
}

/// What netperf complains of.
fn failure(line: &str) -> Option<String> {
    let complaints = [
        "establish_control",
        "establish control:",
        "resolve_host:",
        "netperf:",
        "remote error",
        "send_omni:",
        "netperf_response",
        "shutdown_control:",
    ];
    complaints
        .iter()
        .any(|complaint| line.trim_start().starts_with(complaint))
        .then(|| line.trim().chars().take(200).collect())
}

/// Bytes a second in one of netperf's units, whose bytes come in powers of 1024 and whose bits in
/// powers of 1000 (`format_units` and `calc_thruput_interval` in its netlib.c).
fn bytes_per_second(unit: &str) -> Option<f64> {
    let unit = unit.split('/').next().unwrap_or_default();
    Some(match unit {
        "Bytes" => 1.0,
        "KBytes" => 1024.0,
        "MBytes" => 1_048_576.0,
        "GBytes" => 1_073_741_824.0,
        "10^0bits" => 0.125,
        "10^3bits" => 125.0,
        "10^6bits" => 125_000.0,
        "10^9bits" => 125_000_000.0,
        _ => return None,
    })
}
