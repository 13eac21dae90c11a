//! What experiments with the structured display have in common: paths, responses, and how a setting becomes a cell.

use plumb_analysis::claim::{ClaimEvidence, FigureFinder, FigureToday, PublishedFigure};
use plumb_analysis::summary::MeasuredCell;
use plumb_base::units::Unit;
use plumb_harness::spec::{BlockTask, DisplayPath, DisplaySpec};
use plumb_store::record::Better;

use super::Factor;
use crate::definition::{CellDecision, Exclusion, LaunchGroup, ResponseVariable};

/// What is drawn a second.
pub(crate) const RATE: ResponseVariable = ResponseVariable::new(
    "rate",
    Unit::Count,
    Better::Higher,
    "items, or characters of text, a second, until the last frame is proved by its checksum",
);

/// What crosses the connection.
pub(crate) const BYTES: ResponseVariable = ResponseVariable::new(
    "bytes",
    Unit::Bytes,
    Better::Lower,
    "bytes of messages both ways for one drawing",
);

/// What has to be waited for.
pub(crate) const ROUND_TRIPS: ResponseVariable = ResponseVariable::new(
    "round-trips",
    Unit::Count,
    Better::Lower,
    "round trips that depend on each other for one drawing",
);

/// What both ends cost.
pub(crate) const CPU: ResponseVariable = ResponseVariable::time(
    "cpu",
    "CPU time of both ends, and of what is between them, for an item",
);

/// How often they take turns.
pub(crate) const SWITCHES: ResponseVariable = ResponseVariable::new(
    "switches",
    Unit::Count,
    Better::Lower,
    "context switches of both ends, and of what is between them, for an item",
);

/// What a relay does for it.
pub(crate) const WRITES: ResponseVariable = ResponseVariable::new(
    "writes",
    Unit::Count,
    Better::Lower,
    "writes of the relay to the display for one drawing",
);

/// What a connection's ends run.
pub(crate) const CODE: ResponseVariable = ResponseVariable::new(
    "code",
    Unit::Bytes,
    Better::Lower,
    "bytes of code and constants that both ends use to draw, in whole pages",
);

/// Memory that both ends use, as a response.
pub(crate) const DATA: ResponseVariable = ResponseVariable::new(
    "data",
    Unit::Bytes,
    Better::Lower,
    "bytes of variables, stacks and heap that both ends use to draw, in whole pages",
);

/// The names of these responses on pages.
pub(crate) const RESPONSES: &[(&str, &str)] = &[
    ("rate", "items a second"),
    ("bytes", "bytes of a drawing"),
    ("round-trips", "dependent round trips of a drawing"),
    ("cpu", "CPU time of an item"),
    ("switches", "context switches of an item"),
    ("writes", "writes of the relay for a drawing"),
    ("code", "code that is used"),
    ("data", "data that is used"),
];

/// How long processors take that are as slow as those of 1985, in percent of this one: their 310 rectangles a second in a local batch
/// against some millions here.
pub(crate) const SLOW_PERCENT: u64 = 1_000_000;

/// What lies between client and display.
pub(crate) const PATH: Factor = Factor::of_words(
    "path",
    "a call, a unix socket, TCP over loopback; in virtual time, by plumb's TCP, 10 Mb/s and 1 ms or 50 ms each way; the same with processors \
     10,000 times slower, and 56 kb/s and 100 ms; and one slow processor for both ends",
    &[
        "direct",
        "unix",
        "tcp",
        "lan",
        "wan",
        "slow-local",
        "slow-lan",
        "slow-arpanet",
    ],
)
.labelled(&[
    ("lan", "10 Mb/s, 2 ms"),
    ("wan", "10 Mb/s, 100 ms"),
    ("slow-local", "one slow processor"),
    ("slow-lan", "slow processors, 10 Mb/s, 2 ms"),
    ("slow-arpanet", "slow processors, 56 kb/s, 200 ms"),
]);

/// The same rate and delay both ways, with room for what waits.
pub(crate) fn link(rate: &str, delay: &str) -> String {
    format!("rate={rate},delay={delay},limit=1000packets")
}

/// The path of a level of [`PATH`].
pub(crate) fn path(level: &str) -> Option<DisplayPath> {
    let over = |rate: &str, delay: &str, percent: u64| DisplayPath::Virtual {
        link: link(rate, delay),
        slower_percent: [percent; 2],
        is_shared: false,
        item_ns: 0,
    };
    Some(match level {
        "direct" | "unix" | "tcp" => DisplayPath::Local(level.to_owned()),
        "lan" => over("10mbit", "1ms", 100),
        "wan" => over("10mbit", "50ms", 100),
        "slow-lan" => over("10mbit", "1ms", SLOW_PERCENT),
        "slow-arpanet" => over("56kbit", "100ms", SLOW_PERCENT),
        "slow-local" => DisplayPath::Virtual {
            link: link("400gbit", "0"),
            slower_percent: [SLOW_PERCENT; 2],
            is_shared: true,
            item_ns: 0,
        },
        _ => return None,
    })
}

/// A drawing in a mode over a path. A mode `structured` is a batch of the structured array, and `bitmap` one of what the drawing looks like.
pub(crate) fn cell(drawing: &str, mode: &str, path: Option<DisplayPath>) -> CellDecision {
    let path = path.ok_or_else(|| Exclusion::impossible("there is no such path"))?;
    let (drawing, mode) = match mode {
        "structured" => ("structured-array".to_owned(), "batch"),
        "bitmap" => (format!("{drawing}-bitmap"), "batch"),
        _ => (drawing.to_owned(), mode),
    };
    let spec = DisplaySpec { drawing, mode: mode.to_owned(), path };
    Ok((LaunchGroup::alone(), BlockTask::Display(Box::new(spec))))
}

/// The first cell of a response at these levels.
pub(crate) fn cell_at<'a>(
    evidence: &ClaimEvidence<'a>,
    (experiment, response): (&'static str, &'static str),
    levels: &[(&str, &str)],
) -> Option<&'a MeasuredCell<'a>> {
    let is_meant =
        |cell: &&MeasuredCell<'_>| levels.iter().all(|(name, level)| cell.is(name, *level));
    evidence.cells(experiment, response).find(is_meant)
}

/// The rate of the first cell at these levels.
pub(crate) fn rate_at(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    levels: &[(&str, &str)],
) -> Option<f64> {
    cell_at(evidence, (experiment, RATE.name), levels).map(MeasuredCell::median)
}

/// A number of a table, of items or characters a second, and where today's is found.
pub(crate) const fn table_entry(
    label: &'static str,
    value: f64,
    place: &'static str,
    find: FigureFinder,
) -> PublishedFigure {
    PublishedFigure {
        today: FigureToday::Found(find),
        ..PublishedFigure::alone(label, value, Unit::Count, place)
    }
}
