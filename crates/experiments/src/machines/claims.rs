//! The claims of Markatos (2001) that machines decide, and of Weigle, Feng & Gardner (2001) on growth, each with its judge.
//!
//! A judge speaks only of speeds that its machines span: a line is never followed beyond the fastest of them.

use plumb_analysis::claim::{
    CaseOutcome, ClaimCase, ClaimCases, ClaimJudgment, ClaimOutcome, judge_all,
};
use plumb_analysis::claim_table::{FoundVerdict, FoundVerdicts};
use plumb_analysis::document::{ClaimVerdict, PublishedNumber};
use plumb_analysis::scale::{
    self, KnownMachine, MACHINES_MIN, MachineSet, SpeedKind, find_metric, points,
};
use plumb_base::units::Unit;

use crate::claims::{MARKATOS, WEIGLE};

/// One claim over machines.
#[derive(Clone, Copy, Debug)]
pub struct MachineClaim {
    /// Its id in `docs/claims.toml`.
    pub id: &'static str,
    /// The experiment whose results on each machine it needs.
    pub experiment: &'static str,
    /// How it is judged.
    judge: MachineJudge,
}

#[derive(Clone, Copy, Debug)]
enum MachineJudge {
    /// The slope of a quantity lies within bounds.
    Slope {
        metric: &'static str,
        bounds: (f64, f64),
        machines: MachineFilter,
        published: Option<f64>,
    },
    /// The improvement of a quantity at a multiple of speed lies within bounds; as a share of that multiple or as it is.
    Improvement {
        metric: &'static str,
        speed: f64,
        bounds: (f64, f64),
        is_share: bool,
        machines: MachineFilter,
        published: &'static [f64],
    },
    /// The slope of the first is less than that of the second.
    SlopeBelow { first: SlopeOf, second: SlopeOf },
    /// The months in which the speed doubles.
    Doubling { bounds: (f64, f64), published: f64 },
    /// The months in which the rate of Ethernet doubles.
    LinkDoubling { bounds: (f64, f64), published: f64 },
    /// Those of processors are as many or more.
    LinksOutpace,
    /// The months in which the speed doubles are fewer than those of I/O buses.
    BusesLag,
    /// The exponent of one of the two terms of a model lies within bounds.
    Exponent { metric: &'static str, of_memory: bool, bounds: (f64, f64) },
}

/// A quantity over some machines.
type SlopeOf = (&'static str, MachineFilter);

/// Which machines.
#[derive(Clone, Copy, Debug, PartialEq)]
enum MachineFilter {
    All,
    Class(&'static str),
    NotClass(&'static str),
    Before(f64),
    Since(f64),
}

impl MachineFilter {
    fn keeps(self, machine: &KnownMachine) -> bool {
        match self {
            Self::All => true,
            Self::Class(class) => machine.class == class,
            Self::NotClass(class) => machine.class != class,
            Self::Before(year) => machine.year.is_some_and(|it| it < year),
            Self::Since(year) => machine.year.is_some_and(|it| it >= year),
        }
    }

    fn label(self) -> String {
        match self {
            Self::All => "all machines".to_owned(),
            Self::Class(class) => class.to_owned(),
            Self::NotClass(class) => format!("not {class}"),
            Self::Before(year) => format!("before {year:.0}"),
            Self::Since(year) => format!("since {year:.0}"),
        }
    }
}

/// Less than in proportion.
const LAGS: (f64, f64) = (f64::NEG_INFINITY, 1.0);

const fn slope(metric: &'static str, bounds: (f64, f64), published: f64) -> MachineJudge {
    MachineJudge::Slope { metric, bounds, machines: MachineFilter::All, published: Some(published) }
}

const fn lags(metric: &'static str, machines: MachineFilter) -> MachineJudge {
    MachineJudge::Slope { metric, bounds: LAGS, machines, published: None }
}

const fn claim(id: &'static str, experiment: &'static str, judge: MachineJudge) -> MachineClaim {
    MachineClaim { id, experiment, judge }
}

/// "About": half as much and twice as much are about it.
const fn about(value: f64) -> (f64, f64) {
    (value / 2.0, value * 2.0)
}

/// Every claim, in the order of the document.
pub const CLAIMS: [MachineClaim; 27] = [
    claim(
        "scaling.trend.processors-double-in-18-months",
        "index.cpu",
        MachineJudge::Doubling { bounds: (12.0, 27.0), published: 18.0 },
    ),
    // As far from it as is about eighteen.
    claim(
        "scaling.trend.networks-double-in-9-to-12-months",
        "index.cpu",
        MachineJudge::LinkDoubling { bounds: (6.0, 18.0), published: 12.0 },
    ),
    claim("scaling.trend.networks-outpace-processors", "index.cpu", MachineJudge::LinksOutpace),
    claim("gigabit.growth.bus-lags-processor", "index.cpu", MachineJudge::BusesLag),
    // A factor of 1.5 a year.
    claim(
        "gigabit.growth.cpu-fifty-percent",
        "index.cpu",
        MachineJudge::Doubling { bounds: (13.0, 29.0), published: 19.2 },
    ),
    claim(
        "gigabit.growth.network-doubles",
        "index.cpu",
        MachineJudge::LinkDoubling { bounds: (6.0, 18.0), published: 12.0 },
    ),
    claim("scaling.trend.tcp-applications-lag", "scaling.http", lags("http", MachineFilter::All)),
    claim("scaling.tcp.lags-processors", "scaling.loopback", lags("tcp", MachineFilter::All)),
    claim(
        "scaling.http.magnifies-the-lag-of-tcp",
        "scaling.http",
        below(("http", MachineFilter::All), ("tcp-bandwidth", MachineFilter::All)),
    ),
    claim(
        "scaling.trend.gap-widens",
        "scaling.loopback",
        lags("tcp-bandwidth", MachineFilter::Since(2002.0)),
    ),
    claim(
        "scaling.entry.pentium-at-best-15",
        "scaling.entry",
        at_speed("entry-io", 50.0, (0.0, 15.0), MachineFilter::Class("x86"), &[15.0]),
    ),
    claim(
        "scaling.entry.sparc-less-than-3",
        "scaling.entry",
        at_speed("entry-io", 25.0, (0.0, 3.0), MachineFilter::Class("sparc"), &[3.0]),
    ),
    claim(
        "scaling.entry.lags-processors",
        "scaling.entry",
        at_speed("entry-io", 50.0, (0.12, 0.28), MachineFilter::All, &[0.12, 0.28]),
    ),
    claim(
        "scaling.entry.ousterhout-50-to-80",
        "scaling.entry",
        at_speed("entry-io", 10.0, (0.5, 0.8), MachineFilter::Before(1992.0), &[0.5, 0.8]),
    ),
    claim(
        "scaling.entry.gap-grows-faster",
        "scaling.entry",
        below(
            ("entry-io", MachineFilter::Since(1998.0)),
            ("entry-io", MachineFilter::Before(1998.0)),
        ),
    ),
    claim(
        "scaling.loopback.lags-processors",
        "scaling.loopback",
        lags("tcp-bandwidth", MachineFilter::All),
    ),
    claim("scaling.loopback.alpha-factor-5", "scaling.loopback", factor("alpha", 5.0, &[5.0])),
    claim("scaling.loopback.pentium-factor-12", "scaling.loopback", factor("x86", 12.0, &[12.0])),
    claim(
        "scaling.loopback.sparc-scales-better",
        "scaling.loopback",
        below(
            ("tcp-bandwidth", MachineFilter::NotClass("sparc")),
            ("tcp-bandwidth", MachineFilter::Class("sparc")),
        ),
    ),
    claim("scaling.lan.100m-follows-processors", "scaling.lan", slope("lan-100m", (0.7, 0.9), 0.8)),
    claim("scaling.lan.10m-lags-processors", "scaling.lan", slope("lan-10m", (0.52, 0.72), 0.62)),
    claim(
        "scaling.lan.100m-scales-better-than-10m",
        "scaling.lan",
        below(("lan-10m", MachineFilter::All), ("lan-100m", MachineFilter::All)),
    ),
    claim("scaling.wan.lags-processors", "scaling.wan", slope("wan", (0.5, 0.7), 0.6)),
    claim("scaling.http.lags-processors", "scaling.http", slope("http", (0.2, 0.4), 0.3)),
    claim(
        "scaling.cause.kernel-work-costs-more-cycles",
        "scaling.entry",
        lags("entry-io", MachineFilter::All),
    ),
    claim(
        "scaling.cause.large-are-memory-bound",
        "index.memory",
        exponent_within(true, (f64::MIN_POSITIVE, f64::INFINITY)),
    ),
    // A fifth of what the processor gives would not be nothing.
    claim(
        "scaling.cause.speed-alone-gives-nothing",
        "index.memory",
        exponent_within(false, (f64::NEG_INFINITY, 0.2)),
    ),
];

/// An improvement at a multiple of speed; bounds up to 1 are of its share of that multiple.
const fn at_speed(
    metric: &'static str,
    speed: f64,
    bounds: (f64, f64),
    machines: MachineFilter,
    published: &'static [f64],
) -> MachineJudge {
    let is_share = bounds.1 <= 1.0;
    MachineJudge::Improvement { metric, speed, bounds, is_share, machines, published }
}

const fn exponent_within(of_memory: bool, bounds: (f64, f64)) -> MachineJudge {
    MachineJudge::Exponent { metric: "tcp-bandwidth", of_memory, bounds }
}

const fn below(first: SlopeOf, second: SlopeOf) -> MachineJudge {
    MachineJudge::SlopeBelow { first, second }
}

const fn factor(class: &'static str, times: f64, published: &'static [f64]) -> MachineJudge {
    at_speed("tcp-bandwidth", 35.0, about(times), MachineFilter::Class(class), published)
}

/// Whether machines decide the claim of an id.
pub fn is_known(id: &str) -> bool {
    CLAIMS.iter().any(|claim| claim.id == id)
}

/// Judges every claim by these machines.
pub fn judge(set: &MachineSet, speed: SpeedKind, found: &mut FoundVerdicts) {
    for claim in CLAIMS {
        let mut judged = claim.judge.judged(&set.machines, speed);
        if speed == SpeedKind::Clock
            && let Some(case) = &mut judged.case
            && claim.judge.may_be_of_clock(case)
        {
            case.outcome = CaseOutcome::Undecided(None);
            CLOCK_LACKS.clone_into(&mut judged.lacks);
        }
        let cases: ClaimCases = judged.case.into_iter().collect();
        let mut judgment = judge_all(cases, "");
        if judgment.outcome == ClaimOutcome::NotDecided {
            judgment.needs = format!("{}: {}", judged.lacks, command(claim.experiment));
        }
        let verdict = claim.verdict(judgment, &judged.published);
        let basis = match claim.judge {
            MachineJudge::LinkDoubling { .. } => {
                format!("{} standards of Ethernet", ETHERNET.len())
            }
            _ => format!("{} machines by {}", judged.machines, speed.label()),
        };
        found.add(FoundVerdict { verdict, basis, measured: String::new() });
    }
}

/// What a claim needs whose verdict the clock rate may give.
const CLOCK_LACKS: &str =
    "a clock rate understates later processors, which may be all of this; an index of each machine";

/// What gives another machine.
fn command(experiment: &str) -> String {
    format!(
        "on each machine: plumb run {experiment} && plumb export last --format plumb -o NAME.plumb; then: plumb \
         scale *.plumb"
    )
}

impl MachineClaim {
    /// The document that it is of.
    pub fn source(&self) -> &'static str {
        if self.id.starts_with("gigabit.") { WEIGLE } else { MARKATOS }
    }

    fn verdict(&self, found: ClaimJudgment, published: &[(f64, Unit, f64)]) -> ClaimVerdict {
        let number = |(value, unit, now): &(f64, Unit, f64)| PublishedNumber {
            label: String::new(),
            value: *value,
            unit: unit.name().to_owned(),
            place: String::new(),
            now: Some(*now),
            ratio: Some(now / value),
        };
        ClaimVerdict {
            id: self.id.to_owned(),
            experiment: self.experiment.to_owned(),
            claim: String::new(),
            source: self.source().to_owned(),
            historical: None,
            published: published.iter().map(number).collect(),
            verdict: found.outcome.name().to_owned(),
            effect: found.effect,
            estimate: found.estimate,
            ci95: found.ci95,
            needs: found.needs,
        }
    }
}

/// What a judge found.
#[derive(Debug, Default)]
struct MachineJudgment {
    case: Option<ClaimCase>,
    published: Vec<(f64, Unit, f64)>,
    machines: usize,
    lacks: String,
}

impl MachineJudgment {
    fn few(machines: usize, what: &str, of: MachineFilter) -> Self {
        let of = of.label();
        let lacks = format!(
            "no slope is claimed over fewer than {MACHINES_MIN} machines, and {machines} have {what} ({of})"
        );
        Self { machines, lacks, ..Self::default() }
    }

    fn of(case: ClaimCase, machines: usize) -> Self {
        let lacks = "more machines, or less scatter between them".to_owned();
        Self { case: Some(case), machines, lacks, ..Self::default() }
    }
}

impl MachineJudge {
    /// Whether a verdict may come of the clock rate, against which quantities improve more than against speed.
    fn may_be_of_clock(self, case: &ClaimCase) -> bool {
        match (self, case.outcome) {
            (Self::LinkDoubling { .. }, _)
            | (_, CaseOutcome::Undecided(_) | CaseOutcome::PerhapsChance) => false,
            (Self::Slope { bounds, .. } | Self::Improvement { bounds, .. }, outcome) => {
                match outcome {
                    CaseOutcome::Supports(_) => bounds.0 > 0.0,
                    _ => case.value.is_some_and(|found| found > bounds.1),
                }
            }
            // The bias is the same where the machines are.
            (Self::SlopeBelow { first, second }, _) => first.1 != second.1,
            (
                Self::Doubling { .. } | Self::LinksOutpace | Self::BusesLag | Self::Exponent { .. },
                _,
            ) => true,
        }
    }

    fn judged(self, machines: &[KnownMachine], speed: SpeedKind) -> MachineJudgment {
        match self {
            Self::Slope { metric, bounds, machines: of, published } => {
                let line = match SlopeEstimate::of((metric, of), machines, speed) {
                    Ok(line) => line,
                    Err(count) => return MachineJudgment::few(count, metric, of),
                };
                let label = format!("slope of {metric}");
                let ends = Some(line.ends);
                let case =
                    ClaimCase::quantity(&of.label(), label, line.slope, ends, bounds, Unit::Count);
                let published = published.map(|value| (value, Unit::Count, line.slope));
                let published =
                    published.into_iter().flat_map(|it| [it, (it.0, Unit::Share, it.2)]).collect();
                MachineJudgment { published, ..MachineJudgment::of(case, line.machines) }
            }
            Self::Improvement { metric, speed: at, bounds, is_share, machines: of, published } => {
                improvement(machines, (metric, of, speed), (at, bounds, is_share), published)
            }
            Self::SlopeBelow { first, second } => slope_below(machines, speed, first, second),
            Self::Doubling { bounds, published } => {
                doubling(speed.label(), &dated(machines, speed), bounds, published)
            }
            Self::LinkDoubling { bounds, published } => {
                doubling("rate of Ethernet", &ETHERNET, bounds, published)
            }
            Self::LinksOutpace => {
                let processors = (speed.label(), &dated(machines, speed)[..]);
                outpaces(("Ethernet", &ETHERNET), processors, machines.len())
            }
            Self::BusesLag => {
                let processors = (speed.label(), &dated(machines, speed)[..]);
                outpaces(processors, ("I/O bus", &BUSES), machines.len())
            }
            Self::Exponent { metric, of_memory, bounds } => {
                exponent(machines, speed, (metric, of_memory), bounds)
            }
        }
    }
}

/// A slope over some machines.
struct SlopeEstimate {
    slope: f64,
    ends: [f64; 2],
    machines: usize,
}

impl SlopeEstimate {
    /// The slope, or how many machines there were instead of four.
    fn of((name, of): SlopeOf, machines: &[KnownMachine], speed: SpeedKind) -> Result<Self, usize> {
        let metric = find_metric(name).ok_or(0_usize)?;
        let chosen = machines.iter().filter(|machine| of.keeps(machine));
        let points = points(chosen, metric, speed);
        let fitted = scale::fit(&points).ok_or(points.len())?;
        let interval = fitted.interval(1, CONFIDENCE);
        let ends = [interval.lo, interval.hi];
        Ok(Self { slope: fitted.coefficients[1], ends, machines: points.len() })
    }

    /// Standard error, about.
    fn error(&self) -> f64 {
        (self.ends[1] - self.ends[0]) / (2.0 * 1.96)
    }
}

const CONFIDENCE: f64 = 0.95;

/// The improvement that the line has where processors are so many times as fast, or where they are fastest.
fn improvement(
    machines: &[KnownMachine],
    (name, of, speed): (&'static str, MachineFilter, SpeedKind),
    (at, bounds, is_share): (f64, (f64, f64), bool),
    published: &[f64],
) -> MachineJudgment {
    let Some(metric) = find_metric(name) else { return MachineJudgment::default() };
    let points = points(machines.iter().filter(|machine| of.keeps(machine)), metric, speed);
    let Some(fitted) = scale::fit(&points) else {
        return MachineJudgment::few(points.len(), name, of);
    };
    let fastest = points.last().map_or(1.0, |point| point.speed);
    let at = at.min(fastest);
    // From the line's value at the base, not from the base machine, which is off the line by chance.
    let row = [0.0, at.ln()];
    let interval = fitted.mean_interval(&row, CONFIDENCE);
    let divisor = if is_share { at } else { 1.0 };
    let [value, lo, hi] =
        [fitted.at(&row), interval.lo, interval.hi].map(|log| log.exp() / divisor);
    let unit = if is_share { Unit::Share } else { Unit::Count };
    let what = if is_share { "share of the processor's improvement" } else { "improvement" };
    let label = format!("{what} of {name} at {at:.0} times the speed");
    let case = ClaimCase::quantity(&of.label(), label, value, Some([lo, hi]), bounds, unit);
    let published = published.iter().map(|known| (*known, unit, value)).collect();
    MachineJudgment { published, ..MachineJudgment::of(case, points.len()) }
}

/// Whether one slope is less than another, by the normal interval of their difference.
fn slope_below(
    machines: &[KnownMachine],
    speed: SpeedKind,
    first: SlopeOf,
    second: SlopeOf,
) -> MachineJudgment {
    let [a, b] = [first, second].map(|of| SlopeEstimate::of(of, machines, speed));
    let (a, b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(count), _) => return MachineJudgment::few(count, first.0, first.1),
        (_, Err(count)) => return MachineJudgment::few(count, second.0, second.1),
    };
    let difference = b.slope - a.slope;
    let reach = 1.96 * a.error().hypot(b.error());
    let name = |(metric, of): SlopeOf| format!("{metric}, {}", of.label());
    let label = format!("slope of {} less that of {}:", name(second), name(first));
    let bounds = (f64::MIN_POSITIVE, f64::INFINITY);
    let ends = Some([difference - reach, difference + reach]);
    let case = ClaimCase::quantity("", label, difference, ends, bounds, Unit::Count);
    MachineJudgment::of(case, a.machines + b.machines)
}

/// Years and bits a second of Ethernet, by the standard that brought each rate: IEEE 802.3-1983, 802.3u, z, ae, ba, bs and df.
const ETHERNET: [(f64, f64); 7] = [
    (1983.0, 10e6),
    (1995.0, 100e6),
    (1998.0, 1e9),
    (2002.0, 10e9),
    (2010.0, 100e9),
    (2017.0, 400e9),
    (2024.0, 800e9),
];

/// Years and speeds of machines.
fn dated(machines: &[KnownMachine], speed: SpeedKind) -> Vec<(f64, f64)> {
    let dated = |machine: &KnownMachine| Some((machine.year?, *machine.speed.get(&speed)?));
    machines.iter().filter_map(dated).collect()
}

/// Years and bytes a second of I/O buses of PCs, by the standard that brought each: EISA; PCI 1.0 (32 bits, 33 MHz) and 2.1 (64 bits, 66 MHz);
/// PCI-X 1.0; PCI Express 1.0 to 6.0 with 16 lanes.
const BUSES: [(f64, f64); 10] = [
    (1988.0, 33e6),
    (1992.0, 133e6),
    (1995.0, 533e6),
    (1999.0, 1_066e6),
    (2003.0, 4e9),
    (2007.0, 8e9),
    (2010.0, 15.75e9),
    (2017.0, 31.5e9),
    (2019.0, 63e9),
    (2022.0, 121e9),
];

/// What it is, and its value by years.
type DatedSeries<'a> = (&'a str, &'a [(f64, f64)]);

/// How many times as often in a year the first doubles as the second: more than once.
fn outpaces(first: DatedSeries<'_>, second: DatedSeries<'_>, machines: usize) -> MachineJudgment {
    let [faster, slower] = [first, second].map(|(what, series)| scale::growth(what, series));
    let Some((faster, slower)) = faster.zip(slower) else {
        return MachineJudgment::few(machines, "a date and a speed", MachineFilter::All);
    };
    let ratio = faster.doublings_a_year / slower.doublings_a_year;
    let (a, b) = (faster.doublings_ci95, slower.doublings_ci95);
    let label = format!("doublings of the {} for one of the {}", first.0, second.0);
    let (ends, bounds) = ([a[0] / b[1], a[1] / b[0].max(f64::MIN_POSITIVE)], (1.0, f64::INFINITY));
    let case = ClaimCase::quantity("", label, ratio, Some(ends), bounds, Unit::Count);
    MachineJudgment::of(case, machines)
}

/// The months in which something doubles.
fn doubling(
    what: &str,
    dated: &[(f64, f64)],
    bounds: (f64, f64),
    published: f64,
) -> MachineJudgment {
    let rate = scale::growth(what, dated);
    let Some((months, rate)) = rate.and_then(|rate| Some((rate.doubling_months?, rate))) else {
        return MachineJudgment::few(dated.len(), "a date and a speed", MachineFilter::All);
    };
    let [lo, hi] = rate.doublings_ci95;
    // Of a rate that may be zero the months have no upper end.
    let longest = if lo > 0.0 { 12.0 / lo } else { f64::MAX };
    let place = format!("{:.0} to {:.0}", rate.from_year, rate.to_year);
    let label = format!("months in which the {what} doubles");
    let case =
        ClaimCase::quantity(&place, label, months, Some([12.0 / hi, longest]), bounds, Unit::Count);
    MachineJudgment {
        published: vec![(published, Unit::Count, months)],
        ..MachineJudgment::of(case, dated.len())
    }
}

/// The exponent of processor or memory where both explain a quantity.
fn exponent(
    machines: &[KnownMachine],
    speed: SpeedKind,
    (name, of_memory): (&'static str, bool),
    bounds: (f64, f64),
) -> MachineJudgment {
    let all: Vec<&KnownMachine> = machines.iter().collect();
    let model = find_metric(name).and_then(|metric| scale::two_terms(&all, metric, speed));
    let Some(model) = model else {
        return MachineJudgment::few(0, "speed, memory and quantity", MachineFilter::All);
    };
    let (value, ends, what) = if of_memory {
        (model.memory_slope, model.memory_ci95, model.memory.as_str())
    } else {
        (model.processor_slope, model.processor_ci95, speed.label())
    };
    let label = format!("exponent of {what} in {name}, beside the other");
    let machines = usize::try_from(model.machines).unwrap_or(0);
    MachineJudgment::of(
        ClaimCase::quantity("", label, value, Some(ends), bounds, Unit::Count),
        machines,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list;
    use plumb_analysis::claim_table;
    use plumb_analysis::scale::{METRICS, MachineValue};

    /// Machines of every class over 40 years whose quantities all follow speed with one slope, except that a class or
    /// years may have another; speed doubles in this many months.
    struct SyntheticArchive {
        slope: f64,
        others: fn(&KnownMachine) -> Option<f64>,
        months: f64,
        memory: f64,
        kind: SpeedKind,
    }

    impl SyntheticArchive {
        fn verdict(&self, id: &str) -> String {
            let mut set = MachineSet::default();
            for i in 0..80_i32 {
                let year = 1985.0 + f64::from(i) / 2.0;
                let speed = 1e6 * 2_f64.powf((year - 1985.0) * 12.0 / self.months);
                let class = ["x86", "sparc", "alpha"][usize::try_from(i).unwrap() % 3];
                let mut machine = KnownMachine {
                    name: format!("m{i}"),
                    class: class.to_owned(),
                    year: Some(year),
                    speed: [(self.kind, speed)].into(),
                    ..KnownMachine::default()
                };
                // Off the line by a little and differently each, so that a line has a width.
                let off = |salt: i32| (f64::from((i * salt) % 7) - 3.0) * 0.004;
                let memory = 1e6 * (speed / 1e6).powf(0.5) * (8.0 * off(5)).exp();
                for metric in &METRICS {
                    let slope = (self.others)(&machine).unwrap_or(self.slope);
                    let has_own = matches!(metric.name, "http" | "lan-10m") && self.slope < 0.5;
                    let own = if has_own { 0.3 } else { slope };
                    let good = (speed / 1e6).powf(own) * off(3).exp() * memory.powf(self.memory);
                    let value = metric.goodness(metric.goodness(1e6) * good);
                    let value = if metric.name == "memory-copy" { memory } else { value };
                    machine.values.insert(metric.name, MachineValue::exact(value));
                }
                set.extend([machine]);
            }
            let mut found = FoundVerdicts::default();
            judge(&set, self.kind, &mut found);
            let rows = claim_table::rows(&list::registry(), &found);
            rows.into_iter().find(|row| row.id == id).unwrap().verdict
        }
    }

    const NONE: fn(&KnownMachine) -> Option<f64> = |_| None;

    fn archive(slope: f64) -> SyntheticArchive {
        let kind = SpeedKind::Index;
        SyntheticArchive { slope, others: NONE, months: 24.0, memory: 0.0, kind }
    }

    #[test]
    fn every_slope_has_machines_that_hold_and_machines_that_do_not() {
        for (id, holds, refutes) in [
            ("scaling.trend.tcp-applications-lag", 0.6, 1.2),
            ("scaling.tcp.lags-processors", 0.6, 1.2),
            ("scaling.trend.gap-widens", 0.6, 1.2),
            ("scaling.entry.pentium-at-best-15", 0.6, 1.0),
            ("scaling.entry.sparc-less-than-3", 0.2, 1.0),
            // The share at fifty times the speed: 50^-0.4 = 0.21.
            ("scaling.entry.lags-processors", 0.6, 1.0),
            // At ten times: 10^-0.2 = 0.63.
            ("scaling.loopback.lags-processors", 0.6, 1.2),
            // At 35 times: 35^0.45 = 5.
            ("scaling.loopback.alpha-factor-5", 0.45, 1.1),
            ("scaling.loopback.pentium-factor-12", 0.7, 1.3),
            ("scaling.lan.100m-follows-processors", 0.8, 0.5),
            ("scaling.lan.10m-lags-processors", 0.62, 0.9),
            ("scaling.wan.lags-processors", 0.6, 0.9),
            ("scaling.http.lags-processors", 0.3, 0.9),
            ("scaling.cause.kernel-work-costs-more-cycles", 0.6, 1.2),
        ] {
            assert_eq!(archive(holds).verdict(id), "holds", "{id}");
            assert_eq!(archive(refutes).verdict(id), "does not hold", "{id}");
        }
    }

    #[test]
    fn a_slope_below_another_holds_and_the_opposite_does_not() {
        let early: fn(&KnownMachine) -> Option<f64> =
            |m| m.year.filter(|y| *y < 1998.0).map(|_| 0.9);
        let late: fn(&KnownMachine) -> Option<f64> =
            |m| m.year.filter(|y| *y >= 1998.0).map(|_| 0.9);
        let sparc: fn(&KnownMachine) -> Option<f64> = |m| (m.class == "sparc").then_some(0.9);
        let rest: fn(&KnownMachine) -> Option<f64> = |m| (m.class != "sparc").then_some(0.9);
        for (id, holds, refutes) in [
            ("scaling.entry.gap-grows-faster", early, late),
            ("scaling.loopback.sparc-scales-better", sparc, rest),
        ] {
            let verdict = |others| SyntheticArchive { others, ..archive(0.6) }.verdict(id);
            assert_eq!(verdict(holds), "holds", "{id}");
            assert_eq!(verdict(refutes), "does not hold", "{id}");
        }
        let magnifies = "scaling.http.magnifies-the-lag-of-tcp";
        assert_eq!(archive(0.45).verdict(magnifies), "holds");
        assert_ne!(archive(0.9).verdict(magnifies), "holds");
        let better = "scaling.lan.100m-scales-better-than-10m";
        assert_eq!(archive(0.45).verdict(better), "holds");
        assert_eq!(archive(0.2).verdict(better), "does not hold");
    }

    #[test]
    fn doubling_times_and_early_machines_and_memory_decide_their_claims() {
        let of = |months: f64| SyntheticArchive { months, ..archive(0.6) };
        let moore = "scaling.trend.processors-double-in-18-months";
        assert_eq!(
            (of(18.0).verdict(moore), of(60.0).verdict(moore)),
            ("holds".into(), "does not hold".into())
        );
        // Ethernet's rate doubled in some thirty months, whatever machines did.
        let outpace = "scaling.trend.networks-outpace-processors";
        assert_eq!(
            (of(60.0).verdict(outpace), of(18.0).verdict(outpace)),
            ("holds".into(), "does not hold".into())
        );
        // Buses doubled in some thirty-six.
        let buses = "gigabit.growth.bus-lags-processor";
        assert_eq!(
            (of(18.0).verdict(buses), of(60.0).verdict(buses)),
            ("holds".into(), "does not hold".into())
        );
        let nine_to_twelve = "scaling.trend.networks-double-in-9-to-12-months";
        assert_eq!(of(18.0).verdict(nine_to_twelve), "does not hold");
        let fifty_percent = "gigabit.growth.cpu-fifty-percent";
        assert_eq!(
            (of(19.0).verdict(fifty_percent), of(60.0).verdict(fifty_percent)),
            ("holds".into(), "does not hold".into())
        );
        assert_eq!(of(18.0).verdict("gigabit.growth.network-doubles"), "does not hold");
        // Fourteen machines before 1992: at ten times the speed of the first, 10^-0.2 and 10^-0.6.
        let early = "scaling.entry.ousterhout-50-to-80";
        let at = |slope: f64| SyntheticArchive { months: 18.0, ..archive(slope) }.verdict(early);
        assert_eq!((at(0.8), at(0.4)), ("holds".into(), "does not hold".into()));
        let memory = "scaling.cause.large-are-memory-bound";
        let by = |memory: f64| SyntheticArchive { memory, ..archive(0.4) };
        assert_eq!(by(0.8).verdict(memory), "holds");
        assert_eq!(by(-0.8).verdict(memory), "does not hold");
        let alone = "scaling.cause.speed-alone-gives-nothing";
        assert_eq!(by(0.8).verdict(alone), "does not hold");
        let memory_only = SyntheticArchive { memory: 0.8, ..archive(0.05) };
        assert_eq!(memory_only.verdict(alone), "holds");
    }

    #[test]
    fn what_a_clock_rate_alone_may_give_is_not_decided() {
        let clock = |slope| SyntheticArchive { kind: SpeedKind::Clock, ..archive(slope) };
        for (id, slope, verdict) in [
            ("scaling.tcp.lags-processors", 0.6, "holds"),
            ("scaling.tcp.lags-processors", 1.2, "not decided"),
            ("scaling.lan.100m-follows-processors", 0.8, "not decided"),
            ("scaling.lan.100m-follows-processors", 0.5, "does not hold"),
            ("scaling.trend.processors-double-in-18-months", 0.6, "not decided"),
        ] {
            assert_eq!(clock(slope).verdict(id), verdict, "{id}, slope {slope}");
        }
    }

    #[test]
    fn three_machines_decide_nothing_and_the_command_is_told() {
        let mut set = crate::machines::history();
        set.machines.truncate(3);
        let mut found = FoundVerdicts::default();
        judge(&set, SpeedKind::Clock, &mut found);
        let rows = claim_table::rows(&list::registry(), &found);
        // Claims decided by Ethernet's standards need no machine.
        let of_standards = ["networks-double-in-9-to-12-months", "growth.network-doubles"];
        let needs_machines =
            |id: &str| is_known(id) && !of_standards.iter().any(|end| id.ends_with(end));
        for row in rows.iter().filter(|row| needs_machines(&row.id)) {
            assert!(matches!(row.verdict.as_str(), "not decided" | "not measured"), "{}", row.id);
            assert!(row.to_decide.contains("plumb scale"), "{}: {}", row.id, row.to_decide);
        }
    }
}
