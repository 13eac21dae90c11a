//! Ratios over launches, spreads, and whether the targets were met.
//!
//! Left out: estimators; they are `plumb_base::stats`.

use std::fmt;

use anyhow::Context;
use plumb_base::seed::Seed;
use plumb_base::stats::Interval;
use plumb_base::stats::bootstrap;
use plumb_base::stats::hierarchy::{self, Hierarchy, Pairing, Ratio};
use plumb_base::units::Unit;

use super::contest::{Contest, Kind, Racer};

pub(super) const CONFIDENCE: f64 = 0.95;
const RESAMPLES: usize = 4_000;
pub(super) const SEED: Seed = Seed(1);

/// How plumb stands against one peer in one contest.
#[derive(Clone, Debug)]
pub(super) struct Score {
    name: String,
    racer: Racer,
    unit: Unit,
    medians: [f64; 2],
    ratio: Ratio,
    target: Option<(Target, Verdict)>,
    spreads: [f64; 2],
    spread_ratio: Interval,
    spread_verdict: Option<Verdict>,
}

/// What the ratio of plumb to the peer has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// No more than this.
    AtMost(f64),
    /// No less.
    AtLeast(f64),
}

/// Whether a target was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was.
    Pass,
    /// The estimate misses it, but its interval does not: more launches would tell.
    Close,
    /// It was not.
    Miss,
}

impl Score {
    /// Scores the launches of plumb against those of a peer, round by round.
    pub(super) fn new(
        contest: &Contest,
        racer: Racer,
        plumb: &[f64],
        peer: &[f64],
    ) -> anyhow::Result<Self> {
        let hierarchy =
            |values: &[f64]| Hierarchy::new(values.iter().map(|v| vec![vec![*v]]).collect());
        let (ours, theirs) = (hierarchy(plumb), hierarchy(peer));
        let ratio = hierarchy::ratio(&theirs, &ours, Pairing::Paired, CONFIDENCE, SEED)
            .context("too few launches for an interval")?;
        let (unit, target) = match (contest.kind, contest.target(racer)) {
            (Kind::PingPong, target) => (Unit::Nanoseconds, target.map(Target::AtMost)),
            (Kind::Bulk, target) => (Unit::BytesPerSecond, target.map(Target::AtLeast)),
        };
        let spreads = [spread(plumb), spread(peer)];
        let spread_ratio = spread_ratio(plumb, peer).context("too few launches for a spread")?;
        Ok(Self {
            name: contest.name.clone(),
            racer,
            unit,
            medians: [ours.quantile(0.5), theirs.quantile(0.5)],
            target: target.map(|target| (target, target.judge(ratio.estimate, ratio.interval))),
            ratio,
            spreads,
            spread_ratio,
            spread_verdict: (racer == Racer::Sockperf)
                .then(|| Target::AtMost(1.0).judge(spreads[0] / spreads[1], spread_ratio)),
        })
    }

    pub(super) fn verdicts(&self) -> impl Iterator<Item = Verdict> + use<> {
        self.target.map(|(_, verdict)| verdict).into_iter().chain(self.spread_verdict)
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
fn spread_ratio(plumb: &[f64], peer: &[f64]) -> Option<Interval> {
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

impl Target {
    /// The estimate decides; where it misses and the interval reaches the target, that is said.
    pub(super) fn judge(self, estimate: f64, interval: Interval) -> Verdict {
        let (met, reached) = match self {
            Self::AtMost(most) => (estimate <= most, interval.lo <= most),
            Self::AtLeast(least) => (estimate >= least, interval.hi >= least),
        };
        match (met, reached) {
            (true, _) => Verdict::Pass,
            (false, true) => Verdict::Close,
            (false, false) => Verdict::Miss,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "<={most:.2}"),
            Self::AtLeast(least) => write!(f, ">={least:.2}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "PASS",
            Self::Close => "CLOSE",
            Self::Miss => "MISS",
        })
    }
}

/// The heading of the rows that scores print as.
pub(super) const HEADING: &str = "\
contest                        against       plumb       peer  ratio [95 % interval]    target      \
spread plumb, peer, ratio
";

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, theirs] = self.medians.map(|value| self.unit.format(value, 3).to_string());
        let Interval { lo, hi, .. } = self.ratio.interval;
        write!(f, "{:<30} {:<8} {ours:>10} ", self.name, self.racer.name())?;
        write!(f, "{theirs:>10}  {:.3} [{lo:.3}, {hi:.3}]  ", self.ratio.estimate)?;
        match self.target {
            Some((target, verdict)) => write!(f, "{target} {verdict:<5}")?,
            None => write!(f, "{:<12}", self.racer.statistic())?,
        }
        let [ours, theirs] = self.spreads.map(|spread| Unit::Share.format(spread, 2).to_string());
        write!(f, "{ours:>6} {theirs:>6}")?;
        if let Some(verdict) = self.spread_verdict {
            let Interval { lo, hi, .. } = self.spread_ratio;
            write!(f, "  [{lo:.2}, {hi:.2}] {} {verdict}", Target::AtMost(1.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::contest::{Placement, Protocol, Wake};
    use super::*;

    fn contest() -> Contest {
        Contest {
            name: "tcp ping-pong".to_owned(),
            kind: Kind::PingPong,
            protocol: Protocol::Tcp,
            placement: Placement::SameCpu,
            wake: Wake::Block,
            size: 64,
            racers: vec![Racer::Plumb, Racer::Sockperf],
        }
    }

    fn verdicts(factor: f64) -> Vec<Verdict> {
        let peer: Vec<f64> = (0..10).map(|round| 5000.0 + f64::from(round * 7 % 10)).collect();
        let plumb: Vec<f64> = peer.iter().rev().map(|value| value * factor).collect();
        let score = Score::new(&contest(), Racer::Sockperf, &plumb, &peer).unwrap();
        score.verdicts().collect()
    }

    #[test]
    fn a_ratio_within_the_target_passes_and_one_beyond_it_misses() {
        assert_eq!(verdicts(1.00)[0], Verdict::Pass);
        assert_eq!(verdicts(1.05)[0], Verdict::Miss);
    }

    #[test]
    fn an_estimate_beyond_the_target_with_an_interval_across_it_is_close() {
        let interval = Interval { lo: 1.01, hi: 1.05, confidence: CONFIDENCE };
        assert_eq!(Target::AtMost(1.02).judge(1.03, interval), Verdict::Close);
        assert_eq!(Target::AtLeast(1.06).judge(1.03, interval), Verdict::Miss);
        assert_eq!(Target::AtLeast(1.04).judge(1.03, interval), Verdict::Close);
    }

    #[test]
    fn a_spread_five_times_the_peers_misses() {
        let peer: Vec<f64> = (0..10).map(|round| 5000.0 + f64::from(round)).collect();
        let plumb: Vec<f64> = (0..10).map(|round| 5000.0 + 5.0 * f64::from(round)).collect();
        let score = Score::new(&contest(), Racer::Sockperf, &plumb, &peer).unwrap();
        assert_eq!(score.spread_verdict, Some(Verdict::Miss));
    }
}
