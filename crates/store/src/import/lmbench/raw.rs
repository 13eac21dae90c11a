//! Raw lmbench results: `name: figure unit` lines between a bracketed header and a date.
//!
//! Left out: the memory curves; what lmbench's summary makes of the rest.

use plumb_base::units::parse_bytes;

use super::super::builder::{ImportBuilder, ImportedMetric};
use super::super::{ImportError, excerpt, is_local, whole_number};
use super::{FORMAT, bandwidth, call, context_switch, latency, statistic, throughput_local, time};

/// Header keys worth keeping, and the names of what they say.
const HEADER: &[(&str, &str)] = &[
    ("HOSTNAME", "host.name"),
    ("SYSNAME", "kernel.name"),
    ("RELEASE", "kernel.release"),
    ("VERSION", "kernel.version"),
    ("MACHINE", "cpu.architecture"),
    ("MHZ", "cpu.mhz"),
    ("PROCESSORS", "cpu.count"),
    ("LMBENCH_SCHED", "lmbench.placement"),
    ("ENOUGH", "lmbench.enough_us"),
    ("LMBENCH VERSION", "lmbench.version"),
];

/// Which list of number pairs the lines below belong to.
#[derive(Clone, Copy)]
enum LmbenchSection {
    None,
    Socket { local: bool },
    Switch { bytes: u64 },
}

/// The runs of a file; results appended to one another are told apart by their headers.
pub(super) fn parse(text: &str) -> Result<Vec<ImportBuilder>, ImportError> {
    let mut reader = LmbenchRawParser::new();
    let mut drafts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("[lmbench") {
            drafts.push(std::mem::replace(&mut reader, LmbenchRawParser::new()).draft);
            reader.version(rest);
        } else if let Some(rest) = line.strip_prefix('[') {
            reader.header(rest.trim_end_matches(']'));
        } else {
            reader.result(index + 1, line)?;
        }
    }
    drafts.push(reader.draft);
    drafts.retain(|draft| !draft.is_empty());
    if drafts.is_empty() { Ok(drafts) } else { check_complete(text).map(|()| drafts) }
}

/// Refuses results of the whole suite that lack the date which it prints last, and any file whose
/// last figure may be cut.
fn check_complete(text: &str) -> Result<(), ImportError> {
    let is_suite = text.lines().any(|line| line.trim_start().starts_with("[lmbench"));
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if is_suite && !(last.starts_with('[') && last.ends_with(']')) {
        let expected = "the date in brackets with which lmbench ends its results";
        return Err(FORMAT.unexpected(text.lines().count(), expected, excerpt(last)));
    }
    if is_suite { Ok(()) } else { FORMAT.require_final_newline(text) }
}

struct LmbenchRawParser {
    draft: ImportBuilder,
    statistic: &'static str,
    section: LmbenchSection,
}

impl LmbenchRawParser {
    fn new() -> Self {
        Self {
            draft: ImportBuilder::new(FORMAT),
            statistic: "median",
            section: LmbenchSection::None,
        }
    }

    /// `3.0 results for Linux host 5.15.0 …]`.
    fn version(&mut self, rest: &str) {
        let version = rest.split_whitespace().next().unwrap_or_default();
        self.draft.tool = format!("lmbench {version}");
        self.statistic = statistic(version);
    }

    fn header(&mut self, text: &str) {
        let Some((key, value)) = text.split_once(':') else { return };
        let Some((key, name)) = HEADER.iter().find(|(known, _)| *known == key.trim()) else {
            return;
        };
        // `1500 MHz, 0.6667 nanosec clock`
        let value = if *key == "MHZ" { value.trim().split(' ').next() } else { Some(value) };
        let value = value.map(str::trim).filter(|value| !value.is_empty());
        self.draft.add_provenance(name, value);
    }

    fn result(&mut self, number: usize, line: &str) -> Result<(), ImportError> {
        if line.is_empty() {
            self.section = LmbenchSection::None;
        } else if let Some(section) = section_title(line) {
            self.section = section;
        } else if let Some((label, figure)) = line.rsplit_once(": ")
            && let Some((target, scale)) = metric(label, figure)
        {
            let value = value(number, label, figure)?;
            if value > 0.0 {
                self.draft.add_number(target, value * scale, self.statistic);
            } else {
                self.draft.add_unmeasured(label);
            }
        } else {
            self.number_pair(number, line);
        }
        Ok(())
    }

    /// A line of two numbers inside a section; anything else is not understood.
    fn number_pair(&mut self, number: usize, line: &str) {
        let mut words = line.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(first)), Some(Ok(second))) = (words.next(), words.next()) else {
            self.draft.add_unparsed_line(number, line);
            return;
        };
        if !(first.is_finite() && second.is_finite() && second > 0.0) {
            return;
        }
        match self.section {
            LmbenchSection::Socket { local: true } => {
                let size = whole_number(first * 1e6).filter(|size| *size > 0);
                let target = throughput_local("tcp4", size);
                self.draft.add_number(target, second * 1e6, self.statistic);
            }
            LmbenchSection::Switch { bytes } => {
                if let Some(processes) = whole_number(first).filter(|count| *count > 0) {
                    let target = context_switch(processes, bytes);
                    self.draft.add_number(target, second * 1e3, self.statistic);
                }
            }
            LmbenchSection::Socket { local: false } | LmbenchSection::None => {}
        }
    }
}

/// The list that a line opens, if it opens one.
fn section_title(line: &str) -> Option<LmbenchSection> {
    if let Some(host) = line.strip_prefix("Socket bandwidth using ")
        && !host.contains(':')
    {
        return Some(LmbenchSection::Socket { local: is_local(host) });
    }
    let title = line.strip_prefix('"')?;
    let size = title.strip_prefix("size=").and_then(|rest| rest.split_whitespace().next());
    Some(match size.and_then(kibibytes) {
        Some(bytes) => LmbenchSection::Switch { bytes },
        None => LmbenchSection::None,
    })
}

/// `64k`, in lmbench's k of 1024.
fn kibibytes(text: &str) -> Option<u64> {
    parse_bytes(&text.replace(['k', 'K'], "Ki")).ok()
}

/// The number of a known result.
fn value(line: usize, label: &str, figure: &str) -> Result<f64, ImportError> {
    let number = figure.split_whitespace().next().unwrap_or_default();
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => {
            let expected = format!("a number after {}", excerpt(label));
            Err(FORMAT.unexpected(line, expected, excerpt(figure)))
        }
    }
}

/// What a label stands for, and the factor from its figure to our unit.
fn metric(label: &str, figure: &str) -> Option<(ImportedMetric, f64)> {
    let unit = figure.split_whitespace().nth(1)?;
    let scale = match unit {
        "nanoseconds" => 1.0,
        "microseconds" | "KB/sec" => 1e3,
        "MB/sec" => 1e6,
        _ => return None,
    };
    if unit.ends_with("/sec") {
        return Some((bandwidth_metric(label)?, scale));
    }
    if let Some(half) = round_trip_metric(label) {
        return Some((half, scale / 2.0));
    }
    Some((timed_metric(label)?, scale))
}

/// The latencies that are whole round trips.
fn round_trip_metric(label: &str) -> Option<ImportedMetric> {
    match label {
        "Pipe latency" => return Some(latency(true, "pipe")),
        "Fifo latency" => return Some(latency(true, "fifo")),
        "AF_UNIX sock stream latency" => return Some(latency(true, "socketpair-stream")),
        _ => {}
    }
    let (test, host) = label.split_once(" latency using ")?;
    let mechanism = match test {
        "UDP" => "udp4",
        "TCP" => "tcp4",
        _ => return None,
    };
    Some(latency(is_local(host), mechanism))
}

fn timed_metric(label: &str) -> Option<ImportedMetric> {
    if let Some(name) = label.strip_prefix("Simple ").or_else(|| label.strip_prefix("Null ")) {
        return Some(call(match name {
            // Version 1 wrote one byte to /dev/null and called it the null call.
            "syscall" if label.starts_with("Null") => "write-dev-null",
            "syscall" => "getppid",
            "read" => "read-dev-zero",
            "write" => "write-dev-null",
            "stat" => "stat",
            "fstat" => "fstat",
            "open/close" => "open-close",
            _ => return None,
        }));
    }
    if let Some(rest) = label.strip_prefix("Select on ") {
        let name = rest.trim_end_matches(" fd's").replace(' ', "-");
        return Some(call(&format!("select-{name}")));
    }
    if let Some(host) = label.strip_prefix("TCP/IP connection cost to ") {
        return is_local(host).then(|| time("connect", "tcp4"));
    }
    if let Some(rest) = label.strip_prefix("Process ") {
        return Some(time("process", rest));
    }
    match label {
        "Signal handler installation" => Some(call("sigaction")),
        "Signal handler overhead" => Some(time("signal", "deliver")),
        "Protection fault" => Some(time("fault", "protection")),
        _ if label.starts_with("Pagefaults on ") => Some(time("fault", "page")),
        _ if is_arithmetic(label) => Some(time("arithmetic", label)),
        _ => None,
    }
}

/// `integer add`, `double div`, …
fn is_arithmetic(label: &str) -> bool {
    let mut words = label.split(' ');
    let kind = words.next().unwrap_or_default();
    matches!(kind, "integer" | "int64" | "uint64" | "float" | "double")
        && words.next().is_some()
        && words.next().is_none()
}

fn bandwidth_metric(label: &str) -> Option<ImportedMetric> {
    // bw_pipe and bw_unix move 64 KiB at a time.
    match label {
        "Pipe bandwidth" => return Some(throughput_local("pipe", Some(65_536))),
        "AF_UNIX sock stream bandwidth" => {
            return Some(throughput_local("socketpair-stream", Some(65_536)));
        }
        _ => {}
    }
    if let Some(host) = label.strip_prefix("Socket bandwidth using ") {
        return is_local(host).then(|| throughput_local("tcp4", None));
    }
    let stream = label.strip_prefix("STREAM").and_then(|rest| rest.strip_suffix(" bandwidth"))?;
    Some(bandwidth("memory", &format!("stream{stream}")))
}
