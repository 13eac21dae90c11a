//! Ratios over launches, spreads, and whether the targets were met.

use std::fmt;
use std::io::Write;

use anyhow::Context;
use plumb_base::seed::Seed;
use plumb_base::stats::hierarchy::SampleHierarchy;
use plumb_base::stats::shift::Shift;
use plumb_base::stats::{ConfidenceInterval, bootstrap};
use plumb_base::units::Unit;

use super::{BenchKind, BenchTool, PeerComparison};

pub(super) const CONFIDENCE: f64 = 0.95;
const RESAMPLES: usize = 4_000;
pub(super) const SEED: Seed = Seed(1);

/// What the ratio of plumb to the peer has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RatioTarget {
    /// No more than this.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
}

/// Whether a target was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetVerdict {
    /// It was.
    Pass,
    /// The estimate misses it, but its interval does not: more launches would tell.
    Undecided,
    /// It was not.
    Miss,
}

/// A line of a table, and whether the targets in it were met.
#[derive(Debug)]
pub(super) struct BenchRow {
    pub(super) line: String,
    pub(super) verdicts: Vec<TargetVerdict>,
}

/// The heading of the rows of comparisons.
pub(super) const HEADING: &str = "\
contest                        against       plumb       peer  ratio [95 % interval]    target          \
spread plumb, peer, ratio
";

/// The ratios of plumb's launches to those of a peer, round by round.
pub(super) fn compare(
    contest: &PeerComparison,
    racer: BenchTool,
    plumb: &[f64],
    peer: &[f64],
) -> anyhow::Result<BenchRow> {
    let [ours, theirs] = [plumb, peer].map(|values| launches(values.iter().copied()));
    let ratio = paired_ratio(&ours, &theirs)?;
    let unit = match contest.kind {
        BenchKind::PingPong => Unit::Nanoseconds,
        BenchKind::Bulk => Unit::BytesPerSecond,
    };
    let [our_median, their_median] =
        [ours, theirs].map(|side| unit.format(side.median(), 3).to_string());
    let target = contest.target(racer).map(|target| target.of_ratio(&ratio));
    let target_text = match target {
        Some((target, verdict)) => format!("{target} {verdict:<9}"),
        None => format!("{:<16}", racer.statistic()),
    };
    let mut verdicts: Vec<TargetVerdict> = target.iter().map(|(_, verdict)| *verdict).collect();
    let spreads = [spread(plumb), spread(peer)];
    let mut spread_text = String::new();
    if racer == BenchTool::Sockperf {
        let interval = spread_ratio(plumb, peer).context("too few launches for a spread")?;
        let target = RatioTarget::AtMost(1.0);
        let verdict = target.judge(spreads[0] / spreads[1], interval);
        let ConfidenceInterval { lo, hi, .. } = interval;
        spread_text = format!("  [{lo:.2}, {hi:.2}] {target} {verdict}");
        verdicts.push(verdict);
    }
    let [our_spread, their_spread] =
        spreads.map(|spread| Unit::Share.format(spread, 2).to_string());
    let line = format!(
        "{:<30} {:<8} {our_median:>10} {their_median:>10}  {}  {target_text}{our_spread:>6} {their_spread:>6}{spread_text}",
        contest.name,
        racer.name(),
        format_ratio(&ratio)
    );
    Ok(BenchRow { line, verdicts })
}

/// Launches as the estimators take them: one sample each.
pub(super) fn launches(values: impl IntoIterator<Item = f64>) -> SampleHierarchy {
    SampleHierarchy::new(values.into_iter().map(|value| vec![vec![value]]).collect())
}

/// A ratio over pairs of launches, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LaunchRatio {
    pub(super) estimate: f64,
    pub(super) interval: ConfidenceInterval,
}

/// Ours over theirs, launch by launch.
pub(super) fn paired_ratio(
    ours: &SampleHierarchy,
    theirs: &SampleHierarchy,
) -> anyhow::Result<LaunchRatio> {
    let pairs = ours.launch_medians().into_iter().zip(theirs.launch_medians());
    let logs: Vec<f64> = pairs.map(|(ours, theirs)| (ours / theirs).ln()).collect();
    let shift = Shift::of_pairs(&logs).context("a launch has no positive result")?;
    let interval = shift.interval(CONFIDENCE).context("too few launches for an interval")?;
    Ok(LaunchRatio {
        estimate: shift.estimate().exp(),
        interval: ConfidenceInterval {
            lo: interval.lo.exp(),
            hi: interval.hi.exp(),
            confidence: CONFIDENCE,
        },
    })
}

impl BenchRow {
    /// Columns, then the target and whether it was met.
    pub fn new(columns: &str, target: Option<(RatioTarget, TargetVerdict)>) -> Self {
        match target {
            Some((target, verdict)) => {
                Self { line: format!("{columns} {target} {verdict}"), verdicts: vec![verdict] }
            }
            None => Self { line: columns.to_owned(), verdicts: Vec::new() },
        }
    }
}

/// A ratio with its interval, as tables show it.
pub(super) fn format_ratio(ratio: &LaunchRatio) -> String {
    let (lo, hi) = (ratio.interval.lo, ratio.interval.hi);
    format!("{:.3} [{lo:.3}, {hi:.3}]", ratio.estimate)
}

/// Prints rows as they come, and in the end how many targets were met.
pub(super) struct BenchTable<'a> {
    out: &'a mut dyn Write,
    verdicts: Vec<TargetVerdict>,
}

impl<'a> BenchTable<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out, verdicts: Vec::new() }
    }

    pub fn print(&mut self, rows: impl IntoIterator<Item = BenchRow>) -> anyhow::Result<()> {
        for row in rows {
            writeln!(self.out, "{}", row.line)?;
            self.out.flush()?;
            self.verdicts.extend(row.verdicts);
        }
        Ok(())
    }

    /// Whether no target was missed.
    pub fn finish(self) -> anyhow::Result<bool> {
        let count = |wanted| self.verdicts.iter().filter(|verdict| **verdict == wanted).count();
        let (passed, missed) = (count(TargetVerdict::Pass), count(TargetVerdict::Miss));
        let undecided = count(TargetVerdict::Undecided);
        writeln!(
            self.out,
            "\n{passed} PASS, {undecided} UNDECIDED (more launches would tell), {missed} MISS"
        )?;
        Ok(missed == 0)
    }
}

/// Standard deviation of the launches, as a share of their mean.
fn spread(launches: &[f64]) -> f64 {
    let n = launches.len() as f64;
    let mean = launches.iter().sum::<f64>() / n;
    let squares: f64 = launches.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (n - 1.0)).sqrt() / mean
}

/// The interval of plumb's spread over the peer's: rounds are drawn, so that both sides keep
/// their pairs.
fn spread_ratio(plumb: &[f64], peer: &[f64]) -> Option<ConfidenceInterval> {
    let rounds: Vec<f64> = (0..plumb.len()).map(|round| round as f64).collect();
    let statistic = |drawn: &[f64]| {
        let of = |values: &[f64]| {
            let chosen = drawn.iter().filter_map(|round| values.get(index(*round)).copied());
            spread(&chosen.collect::<Vec<_>>())
        };
        // A resample of one round alone has no spread; then neither side is the wider.
        let ratio = of(plumb) / of(peer);
        if ratio.is_finite() { ratio } else { 1.0 }
    };
    bootstrap::percentile(&rounds, statistic, RESAMPLES, CONFIDENCE, SEED)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the index of a round, made from a length just above"
)]
fn index(round: f64) -> usize {
    round as usize
}

impl RatioTarget {
    /// The same of a ratio, with its verdict.
    pub fn of_ratio(self, ratio: &LaunchRatio) -> (Self, TargetVerdict) {
        (self, self.judge(ratio.estimate, ratio.interval))
    }

    /// Whether a number that is the same each time meets it.
    pub fn of_count(self, count: f64) -> TargetVerdict {
        self.judge(count, ConfidenceInterval { lo: count, hi: count, confidence: CONFIDENCE })
    }

    /// The estimate decides; where it misses and the interval reaches the target, that is said.
    pub fn judge(self, estimate: f64, interval: ConfidenceInterval) -> TargetVerdict {
        let (met, reached) = match self {
            Self::AtMost(most) => (estimate <= most, interval.lo <= most),
            Self::AtLeast(least) => (estimate >= least, interval.hi >= least),
        };
        match (met, reached) {
            (true, _) => TargetVerdict::Pass,
            (false, true) => TargetVerdict::Undecided,
            (false, false) => TargetVerdict::Miss,
        }
    }
}

impl fmt::Display for RatioTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "<={most:.2}"),
            Self::AtLeast(least) => write!(f, ">={least:.2}"),
        }
    }
}

impl fmt::Display for TargetVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "PASS",
            Self::Undecided => "UNDECIDED",
            Self::Miss => "MISS",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest() -> PeerComparison {
        PeerComparison {
            name: "tcp ping-pong".to_owned(),
            kind: BenchKind::PingPong,
            protocol: "tcp",
            placement: "same-cpu",
            wake: "block",
            size: 64,
            racers: vec![BenchTool::Plumb, BenchTool::Sockperf],
        }
    }

    fn verdicts(factor: f64) -> Vec<TargetVerdict> {
        let peer: Vec<f64> = (0..10).map(|round| 5000.0 + f64::from(round * 7 % 10)).collect();
        let plumb: Vec<f64> = peer.iter().rev().map(|value| value * factor).collect();
        compare(&contest(), BenchTool::Sockperf, &plumb, &peer).unwrap().verdicts
    }

    #[test]
    fn a_ratio_within_the_target_passes_and_one_beyond_it_misses() {
        assert_eq!(verdicts(1.00)[0], TargetVerdict::Pass);
        assert_eq!(verdicts(1.05)[0], TargetVerdict::Miss);
    }

    #[test]
    fn an_estimate_beyond_the_target_with_an_interval_across_it_is_close() {
        let interval = ConfidenceInterval { lo: 1.01, hi: 1.05, confidence: CONFIDENCE };
        assert_eq!(RatioTarget::AtMost(1.02).judge(1.03, interval), TargetVerdict::Undecided);
        assert_eq!(RatioTarget::AtLeast(1.06).judge(1.03, interval), TargetVerdict::Miss);
        assert_eq!(RatioTarget::AtLeast(1.04).judge(1.03, interval), TargetVerdict::Undecided);
    }

    #[test]
    fn a_spread_five_times_the_peers_misses() {
        let peer: Vec<f64> = (0..10).map(|round| 5000.0 + f64::from(round)).collect();
        let plumb: Vec<f64> = (0..10).map(|round| 5000.0 + 5.0 * f64::from(round)).collect();
        let row = compare(&contest(), BenchTool::Sockperf, &plumb, &peer).unwrap();
        assert_eq!(row.verdicts[1], TargetVerdict::Miss);
    }
}
