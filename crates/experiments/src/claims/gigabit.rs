//! What the claims of study `gigabit` share.

use plumb_analysis::claim::{ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, judge_all};
use plumb_analysis::cost_ratio::{self};
use plumb_analysis::summary::MeasuredCell;
use plumb_store::record::Factors;

/// The paper that the study `gigabit` re-tests.
pub const WEIGLE: &str = "Weigle, Feng & Gardner, Why TCP Will Not Scale for the Next-Generation \
                          Internet, LA-UR-01-1039, 2001";

pub(crate) const THROUGHPUT: &str = "throughput";

/// "About 5 %" and "10 %": half as much and twice as much are about it.
pub(crate) const FIVE: (f64, f64) = (1.025, 1.10);

/// What a case is told with: its link, where it has one, and its placement.
pub(crate) fn place_label(cell: &MeasuredCell<'_>) -> String {
    let factors = &cell.cell.factors;
    let words = ["link", "placement"].into_iter().filter_map(|name| factors.text(name));
    words.collect::<Vec<_>>().join(", ")
}

/// Cells at one level of a factor beside their twins at another: how much more the first carries.
pub(crate) fn gain(
    evidence: &ClaimEvidence<'_>,
    (experiment, factor): (&'static str, &str),
    is_more: impl Fn(&Factors) -> bool,
    is_less: impl Fn(&Factors) -> bool,
    bounds: (f64, f64),
) -> ClaimJudgment {
    let mut pairs = ClaimCases::default();
    let all = || evidence.cells(experiment, THROUGHPUT);
    let rest = |cell: &MeasuredCell<'_>| cell.cell.factors.clone().without(factor);
    for more in all().filter(|cell| is_more(&cell.cell.factors)) {
        let twin =
            |cell: &&MeasuredCell<'_>| is_less(&cell.cell.factors) && rest(cell) == rest(more);
        let label = "gain".to_owned();
        match all().find(twin) {
            Some(less) => {
                // More throughput is less cost: the ratio of costs is that of throughputs upside down.
                let contrast = cost_ratio::within_run(more, less);
                pairs.cases.push(ClaimCase::ratio_within(
                    &place_label(more),
                    label,
                    contrast,
                    bounds,
                ));
            }
            None => pairs.missing.push(format!("{factor} to compare with, {}", place_label(more))),
        }
    }
    judge_all(pairs, &format!("plumb run {experiment}"))
}
