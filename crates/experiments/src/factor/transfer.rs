//! What experiments with transfers over plumb's own TCP have in common: their factors, and the paths that levels name.

use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_base::units::quantity::parse_span;
use plumb_harness::spec::LaunchSubject;
use plumb_harness::spec::{
    BlockTask, StackEntry, TransferLoad, TransferPath, TransferSpec, TransferTcp,
};
use plumb_harness::topology::CpuPlacement;
use plumb_store::record::Better;

use super::Factor;
use crate::definition::{DesignPoint, Exclusion, LaunchGroup, ResponseVariable};

/// What a transfer carried.
pub(crate) const THROUGHPUT: ResponseVariable = ResponseVariable::rate(
    "throughput",
    "bytes of a whole transfer a second, from the open connection to the last byte read",
);

/// What a terminal's user waits for.
pub(crate) const DELAY: ResponseVariable = ResponseVariable::time(
    "delay",
    "from the writing of a line to its reading, the mean of a transfer's lines",
);

/// What was sent in vain.
pub(crate) const RETRANSMITTED: ResponseVariable = ResponseVariable::share(
    "retransmitted",
    Better::Lower,
    "share of the sender's segments that it had sent before",
);

/// How full segments are.
pub(crate) const PAYLOAD: ResponseVariable = ResponseVariable::new(
    "payload",
    Unit::Bytes,
    Better::Higher,
    "mean payload of a segment that is sent for the first time",
);

/// The names of these responses on pages.
pub(crate) const RESPONSES: &[(&str, &str)] = &[
    ("throughput", "throughput of a transfer"),
    ("delay", "delay of a line"),
    ("retransmitted", "share of segments sent again"),
    ("payload", "mean payload of a segment"),
];

/// Which TCP.
pub(crate) const TCP: Factor = Factor::of_words(
    "tcp",
    "a TCP as before 1988, with a constant window of 16 KiB and no recovery but by the timer, or as today, with CUBIC, SACK \
     and RACK-TLP",
    &["early", "today"],
)
.labelled(&[("early", "TCP before 1988"), ("today", "TCP of today")]);

/// Bytes of a file on a fast and on a slow path.
const FILE: u64 = 2 << 20;
const SMALL_FILE: u64 = 256 << 10;
/// Lines that a terminal shows, and their bytes.
const LINES: u32 = 1_000;
pub(crate) const LINE: u32 = 80;
/// From one line to the next.
const LINE_INTERVAL_NS: u64 = 100_000_000;

/// The text of a path in virtual time: a local network, a host there that takes 0.3 s to answer, a line of the ARPANET, and an internet
/// on whose way packets wait between nothing and half a second.
pub(crate) fn link_of(path: &str, faults: &str) -> Option<String> {
    let faults = if faults.is_empty() { String::new() } else { format!(",{faults}") };
    let (up, down) = match path {
        "lan" => ("rate=10mbit,limit=64packets,delay=1ms", "rate=10mbit,limit=64packets,delay=1ms"),
        "slow-host" => {
            ("rate=10mbit,limit=64packets,delay=1ms", "rate=10mbit,limit=64packets,delay=300ms")
        }
        "arpanet" => {
            ("rate=56kbit,limit=64packets,delay=50ms", "rate=56kbit,limit=64packets,delay=50ms")
        }
        "internet" => (
            "rate=1mbit,limit=64packets,delay=50ms..550ms",
            "rate=1mbit,limit=64packets,delay=50ms",
        ),
        _ => return None,
    };
    Some(format!("{up}{faults}|{down}{faults}"))
}

/// A file as this path carries it in a while.
pub(crate) fn file(path: &str, write: u32, entry: StackEntry) -> TransferLoad {
    let bytes = if matches!(path, "lan" | "slow-host") { FILE } else { SMALL_FILE };
    TransferLoad::Bulk { bytes, write, entry }
}

/// What a terminal shows.
pub(crate) const TERMINAL: TransferLoad =
    TransferLoad::Lines { count: LINES, line: LINE, interval_ns: LINE_INTERVAL_NS };

/// A transfer in the worker alone.
pub(crate) fn cell(
    path: TransferPath,
    load: TransferLoad,
    tcp: TransferTcp,
) -> (LaunchGroup, BlockTask) {
    let task = BlockTask::Transfer(Box::new(TransferSpec { path, load, tcp }));
    (LaunchGroup::new(LaunchSubject::Alone, CpuPlacement::SameCpu), task)
}

/// The path in virtual time that a setting names, with these faults.
pub(crate) fn virtual_path(
    point: &DesignPoint<'_>,
    faults: &str,
) -> Result<TransferPath, Exclusion> {
    let path = point.text("path").unwrap_or("lan");
    let link = link_of(path, faults)
        .ok_or_else(|| Exclusion::impossible(format!("{path} is not a path in virtual time")))?;
    Ok(TransferPath::Virtual(link))
}

/// The nanoseconds of a level that is a length of time.
pub(crate) fn span_ns(level: &str) -> Option<u64> {
    parse_span(level).ok().map(Span::as_ns)
}
