//! lmbench summaries: tables with one row for every machine and kernel.
//!
//! Columns differ between versions, so each is known by its heading and by the dashes under it.
//! Left out: file deletion and the guesses about caches.

use std::collections::BTreeMap;

use super::super::builder::{ImportBuilder, ImportedMetric};
use super::super::{ImportError, excerpt};
use super::{FORMAT, bandwidth, call, context_switch, latency, statistic, throughput_local, time};

/// What a table is about, by its title.
#[derive(Clone, Copy)]
enum LmbenchTopic {
    Latencies { remote: bool },
    Bandwidths,
    Processes,
    Switching,
    Files,
    Arithmetic,
    Memory,
    Other,
}

/// One table: its topic, and its columns from left to right.
struct LmbenchTable {
    topic: LmbenchTopic,
    columns: Vec<LmbenchColumn>,
    /// Whether null I/O has a column of its own, so that the null call is not a write.
    has_null_io: bool,
}

/// One column: where its dashes are, and its heading in lower case.
struct LmbenchColumn {
    start: usize,
    end: usize,
    heading: String,
}

/// The runs of a summary, in the order of their first rows.
pub(super) fn parse(text: &str) -> Result<Vec<ImportBuilder>, ImportError> {
    let mut reader = LmbenchSummaryParser::default();
    for (index, line) in text.lines().enumerate() {
        // Bytes, columns and characters are the same thing in these tables.
        let line: String =
            line.chars().map(|c| if c.is_ascii() && c != '\t' { c } else { ' ' }).collect();
        reader.line(index + 1, line.trim_end())?;
    }
    let mut drafts = reader.drafts;
    drafts.retain(|draft| !draft.is_empty());
    Ok(drafts)
}

#[derive(Default)]
struct LmbenchSummaryParser {
    version: String,
    /// Lines since the last blank one: title, underline, headings.
    above: Vec<String>,
    table: Option<LmbenchTable>,
    /// A draft for each host and kernel, in the order of their first rows.
    drafts: Vec<ImportBuilder>,
    /// Where the draft of a host and kernel is.
    hosts: BTreeMap<(String, String), usize>,
}

impl LmbenchSummaryParser {
    fn line(&mut self, number: usize, line: &str) -> Result<(), ImportError> {
        if line.is_empty() {
            self.above.clear();
            self.table = None;
        } else if let Some(version) = version(line) {
            self.version = version;
        } else if let Some(table) = &self.table {
            let figures = table.row(number, line, &self.version)?;
            self.add(line, key_column_ends(table), figures);
        } else if is_ruler(line) {
            self.table = Some(LmbenchTable::new(&self.above, line));
        } else {
            self.above.push(line.to_owned());
        }
        Ok(())
    }

    /// Adds the figures of a row to the run of its host and kernel.
    fn add(&mut self, line: &str, (host_end, os_end): (usize, usize), figures: Vec<LmbenchValue>) {
        let slice = |from: usize, to: usize| {
            line.get(from.min(line.len())..to.min(line.len())).unwrap_or_default().trim()
        };
        let (host, os) = (slice(0, host_end), slice(host_end, os_end));
        let key = (host.to_owned(), os.to_owned());
        let index = *self.hosts.entry(key).or_insert_with(|| {
            let mut draft = ImportBuilder::new(FORMAT);
            draft.tool = format!("lmbench {}", self.version);
            draft.add_provenance("host.name", Some(host));
            draft.add_provenance("kernel.release", Some(os));
            self.drafts.push(draft);
            self.drafts.len() - 1
        });
        let draft = &mut self.drafts[index];
        for figure in figures {
            match figure {
                LmbenchValue::Measured(target, value) => {
                    draft.add_number(target, value, statistic(&self.version));
                }
                LmbenchValue::Missing(heading) => draft.add_unmeasured(&heading),
                LmbenchValue::Clock(mhz) => {
                    draft.provenance.entry("cpu.mhz".to_owned()).or_insert(mhz);
                }
            }
        }
    }
}

enum LmbenchValue {
    Measured(ImportedMetric, f64),
    Missing(String),
    Clock(String),
}

/// Where the columns of host and kernel end.
fn key_column_ends(table: &LmbenchTable) -> (usize, usize) {
    let end = |index: usize| table.columns.get(index).map_or(0, |column| column.end);
    (end(0), end(1))
}

/// `3.0` of the banner `L M B E N C H  3 . 0   S U M M A R Y`.
fn version(line: &str) -> Option<String> {
    let packed: String = line.split_whitespace().collect();
    Some(packed.strip_prefix("LMBENCH")?.strip_suffix("SUMMARY")?.to_owned())
}

/// Whether a line is the dashes between headings and rows, in at least three columns.
fn is_ruler(line: &str) -> bool {
    line.starts_with('-')
        && line.bytes().all(|byte| byte == b'-' || byte == b' ')
        && line.split_whitespace().count() >= 3
}

impl LmbenchTable {
    fn new(above: &[String], ruler: &str) -> Self {
        let is_underline = |line: &String| line.trim().bytes().all(|byte| byte == b'-');
        let under = above.iter().position(is_underline);
        let (title, headings) = match under {
            Some(index) => (above[..index].join(" "), &above[index + 1..]),
            None => (String::new(), above),
        };
        let mut columns: Vec<LmbenchColumn> = words(ruler)
            .map(|(start, word)| LmbenchColumn {
                start,
                end: start + word.len(),
                heading: String::new(),
            })
            .collect();
        for (start, word) in headings.iter().flat_map(|line| words(line)) {
            let end = start + word.len();
            // The column below the heading.
            if let Some(column) = nearest_column(&columns, start, end) {
                let column = &mut columns[column];
                if !column.heading.is_empty() {
                    column.heading.push(' ');
                }
                column.heading.push_str(&word.to_ascii_lowercase());
            }
        }
        let has_null_io = columns.iter().any(|column| column.heading == "null i/o");
        Self { topic: LmbenchTopic::of_title(&title.to_ascii_lowercase()), columns, has_null_io }
    }

    /// The figures of a row.
    fn row(
        &self,
        line: usize,
        text: &str,
        version: &str,
    ) -> Result<Vec<LmbenchValue>, ImportError> {
        let (_, os_end) = key_column_ends(self);
        let rest = text.get(os_end.min(text.len())..).unwrap_or_default();
        let mut figures = Vec::new();
        for (start, word) in words(rest) {
            let (start, end) = (start + os_end, start + os_end + word.len());
            let columns = self.columns.get(2..).unwrap_or_default();
            let Some(column) = nearest_column(columns, start, end).map(|index| &columns[index])
            else {
                continue;
            };
            if column.heading == "mhz" {
                figures.push(LmbenchValue::Clock(word.to_owned()));
                continue;
            }
            let Some((target, scale)) = self.metric(&column.heading, version) else { continue };
            let Some(value) = parse_number(word) else {
                let expected = format!("a number under '{}'", column.heading);
                return Err(FORMAT.unexpected(line, expected, excerpt(word)));
            };
            // lmbench writes 0, -1 or - where it measured nothing.
            figures.push(if value > 0.0 {
                LmbenchValue::Measured(target, value * scale)
            } else {
                LmbenchValue::Missing(column.heading.clone())
            });
        }
        Ok(figures)
    }

    /// What a column holds, and the factor from its figure to our unit.
    fn metric(&self, heading: &str, version: &str) -> Option<(ImportedMetric, f64)> {
        let microseconds = |target: Option<ImportedMetric>| Some((target?, 1e3));
        match self.topic {
            LmbenchTopic::Latencies { remote } => latency_metric(heading, remote),
            LmbenchTopic::Bandwidths => {
                // "Megabytes" were 2^20 bytes until version 1.9.
                let early = version.starts_with("1.") && version != "1.9";
                let scale = if early { 1_048_576.0 } else { 1e6 };
                Some((bandwidth_metric(heading)?, scale))
            }
            LmbenchTopic::Processes => microseconds(self.process_metric(heading)),
            LmbenchTopic::Switching => microseconds(context_switch_metric(heading)),
            LmbenchTopic::Files => microseconds(match heading {
                "prot fault" => Some(time("fault", "protection")),
                "page fault" => Some(time("fault", "page")),
                _ => None,
            }),
            LmbenchTopic::Arithmetic => Some((time("arithmetic", heading), 1.0)),
            LmbenchTopic::Memory => {
                matches!(heading, "l1 $" | "l2 $" | "main mem" | "rand mem" | "tlb")
                    .then(|| (time("memory", heading), 1.0))
            }
            LmbenchTopic::Other => None,
        }
    }

    fn process_metric(&self, heading: &str) -> Option<ImportedMetric> {
        Some(match heading {
            "null call" if self.has_null_io => call("getppid"),
            // Before null I/O had its own column, the null call was a write to /dev/null.
            "null call" | "null syscall" => call("write-dev-null"),
            "stat" => call("stat"),
            "open clos" => call("open-close"),
            "sig inst" => call("sigaction"),
            "sig hndl" => time("signal", "deliver"),
            "fork proc" | "null process" => time("process", "fork+exit"),
            "exec proc" | "simple process" => time("process", "fork+execve"),
            "sh proc" | "/bin/sh process" => time("process", "fork+/bin/sh -c"),
            "2-proc ctxsw" => context_switch(2, 0),
            "8-proc ctxsw" => context_switch(8, 0),
            _ => return None,
        })
    }
}

impl LmbenchTopic {
    /// The topic of a title in lower case.
    fn of_title(title: &str) -> Self {
        if title.contains("communication latencies") {
            Self::Latencies { remote: title.contains("remote") }
        } else if title.contains("communication bandwidths") {
            Self::Bandwidths
        } else if title.starts_with("processor") || title.contains("processor, processes") {
            Self::Processes
        } else if title.contains("context switching") {
            Self::Switching
        } else if title.contains("file & vm") {
            Self::Files
        } else if title.contains("operations") {
            Self::Arithmetic
        } else if title.contains("memory latencies") {
            Self::Memory
        } else {
            Self::Other
        }
    }
}

/// The column that shares most with a word, or else the nearest; of columns from left to right.
fn nearest_column(columns: &[LmbenchColumn], start: usize, end: usize) -> Option<usize> {
    let first = columns.partition_point(|column| column.end <= start).saturating_sub(1);
    let behind = columns.partition_point(|column| column.start < end);
    (first..columns.len().min(behind + 1)).max_by_key(|&index| columns[index].overlap(start, end))
}

impl LmbenchColumn {
    /// How many characters a word shares with the column, or minus the distance between them.
    fn overlap(&self, start: usize, end: usize) -> i64 {
        let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        signed(self.end.min(end)) - signed(self.start.max(start))
    }
}

fn latency_metric(heading: &str, remote: bool) -> Option<(ImportedMetric, f64)> {
    let mechanism = match heading {
        "pipe" => "pipe",
        "af unix" => "socketpair-stream",
        "udp" => "udp4",
        "tcp" => "tcp4",
        "tcp conn" if !remote => return Some((time("connect", "tcp4"), 1e3)),
        _ => return None,
    };
    Some((latency(!remote, mechanism), 500.0))
}

/// `2p/16k ctxsw` as two processes that touch 16 KiB.
fn context_switch_metric(heading: &str) -> Option<ImportedMetric> {
    let (processes, size) = heading.strip_suffix(" ctxsw")?.split_once("p/")?;
    let kibibytes: u64 = size.strip_suffix('k')?.parse().ok()?;
    Some(context_switch(processes.parse().ok()?, kibibytes.checked_mul(1024)?))
}

fn bandwidth_metric(heading: &str) -> Option<ImportedMetric> {
    Some(match heading {
        "pipe" => throughput_local("pipe", Some(65_536)),
        "af unix" => throughput_local("socketpair-stream", Some(65_536)),
        // Which size a summary shows for TCP differs between versions.
        "tcp" => throughput_local("tcp4", None),
        "file reread" | "mmap reread" | "bcopy (libc)" | "bcopy (hand)" | "mem read"
        | "mem write" => bandwidth("memory", heading),
        _ => return None,
    })
}

/// A figure: `12.3`, `95.`, `1.2K`; `-` is none, written as 0.
fn parse_number(word: &str) -> Option<f64> {
    if word.trim_matches('-').is_empty() {
        return Some(0.0);
    }
    let (digits, scale) = match word.as_bytes().last() {
        Some(b'K') => (&word[..word.len() - 1], 1e3),
        Some(b'M') => (&word[..word.len() - 1], 1e6),
        _ => (word, 1.0),
    };
    let value: f64 = digits.parse().ok()?;
    let value = value * scale;
    value.is_finite().then_some(value)
}

/// The words of a line, each with where it begins.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split_whitespace().map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word))
}
