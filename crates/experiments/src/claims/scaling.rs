//! What the claims of study `scaling` share. Most are about a slope over machines, which one run does not decide.

use plumb_analysis::claim::{ClaimEvidence, ClaimJudgment, ClaimOutcome};
use plumb_analysis::summary::{MeasuredCell, rounded};

/// The paper that the study `scaling` re-tests.
pub const MARKATOS: &str = "Markatos, Speeding up TCP/IP: Faster Processors are not Enough, 2001";

/// The measurements that HTTP/1.1 was justified by.
pub const NIELSEN: &str =
    "Nielsen et al., Network Performance Effects of HTTP/1.1, CSS1, and PNG, SIGCOMM 1997";

/// Bytes that arrive for each second of the sender's CPU.
pub(crate) const SENDER_CPU: &str = "sender-cpu";

/// Machines below which no slope is claimed.
pub(crate) const MACHINES_MIN: usize = 4;

pub(crate) fn link<'a>(cell: &'a MeasuredCell<'_>) -> &'a str {
    cell.cell.factors.text("link").unwrap_or("unknown")
}

/// What a claim over machines is told with where there is one machine: its own figures.
pub(crate) fn single_machine_judgment(
    evidence: &ClaimEvidence<'_>,
    (experiment, response): (&'static str, &'static str),
    wanted: impl Fn(&MeasuredCell<'_>) -> bool,
) -> ClaimJudgment {
    let cells: Vec<_> = evidence.cells(experiment, response).filter(|cell| wanted(cell)).collect();
    let Some(first) = cells.first() else {
        return ClaimJudgment::not_measured(&machines(experiment));
    };
    let told: Vec<String> = cells.iter().take(CELLS_SHOWN).map(|cell| cell_text(cell)).collect();
    let ends = first.interval().map(|interval| [interval.lo, interval.hi]);
    undecided(&told.join(", "), Some(first.median()), ends, experiment)
}

/// Figures of one machine that are told.
pub(crate) const CELLS_SHOWN: usize = 4;

pub(crate) fn cell_text(cell: &MeasuredCell<'_>) -> String {
    let unit = cell.cell.unit_type();
    let factors = &cell.cell.factors;
    let names =
        ["way", "link", "placement", "call"].into_iter().filter_map(|name| factors.text(name));
    let value = unit.format(cell.median(), 3).to_string();
    let value = match cell.interval() {
        Some(interval) => {
            format!("{value} ({}–{})", unit.format(interval.lo, 3), unit.format(interval.hi, 3))
        }
        None => value,
    };
    format!("{value} at {}", names.collect::<Vec<_>>().join(", "))
}

pub(crate) fn undecided(
    told: &str,
    estimate: Option<f64>,
    ends: Option<[f64; 2]>,
    experiment: &str,
) -> ClaimJudgment {
    ClaimJudgment {
        outcome: ClaimOutcome::NotDecided,
        effect: format!("one machine: {told}"),
        estimate: estimate.map(rounded),
        ci95: ends.map(|ends| ends.map(rounded)),
        needs: machines(experiment),
    }
}

pub(crate) fn machines(experiment: &str) -> String {
    format!(
        "no slope is claimed over fewer than {MACHINES_MIN} machines: plumb run {experiment} on each"
    )
}

/// Whether most of a cell's blocks had a link that was not late: otherwise it is the link that was not filled.
pub(crate) fn is_link_on_time(cell: &MeasuredCell<'_>) -> bool {
    let is_late = |flags: &[String]| flags.iter().any(|flag| flag == "link-late");
    let late = cell.blocks().filter(|block| is_late(&block.flags)).count();
    2 * late <= cell.blocks().count()
}
