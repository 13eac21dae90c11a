//! Many machines: how much each quantity improves where processors improve.
//!
//! A machine is one computer under one kernel; its rows of several sources are merged. Speed and quantities are set on
//! logarithmic axes, so that a slope is the share of the processor's improvement that arrives: 1 keeps up, 0.5 is
//! fifty times the speed and seven times the quantity.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::stats::ConfidenceInterval;
use plumb_base::stats::linear::{self, LinearFit};
use plumb_base::stats::regression::theil_sen;
use plumb_base::units::Unit;

use crate::document::scale::{GrowthRate, ScaleLine, TwoTermModel};
use crate::summary::rounded;

pub mod archive;

/// Machines below which no slope is claimed.
pub const MACHINES_MIN: usize = 4;

/// Confidence of every interval.
const CONFIDENCE: f64 = 0.95;

/// Measures of a processor's speed, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpeedKind {
    /// `plumb-index/1`.
    Index,
    /// A SPEC integer figure that a source notes.
    Spec,
    /// Inverse of the time of an integer operation.
    Integer,
    /// The clock rate.
    Clock,
}

impl SpeedKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Index, Self::Spec, Self::Integer, Self::Clock];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Spec => "spec",
            Self::Integer => "integer",
            Self::Clock => "clock",
        }
    }

    /// What it is, for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Index => "processor index",
            Self::Spec => "SPECint92 as noted in the archive",
            Self::Integer => "integer operations a second",
            Self::Clock => "clock rate",
        }
    }
}

/// One machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownMachine {
    /// Its name, unique among the machines of a question.
    pub name: String,
    /// Its architecture, where known.
    pub class: String,
    /// Where it is from: a run, or an archive.
    pub basis: String,
    /// When it was measured, in years since 0.
    pub year: Option<f64>,
    /// Its speed, by each kind that is known.
    pub speed: BTreeMap<SpeedKind, f64>,
    /// Its quantities by the name of their metric, in the unit of that.
    pub values: BTreeMap<&'static str, MachineValue>,
}

/// A quantity of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineValue {
    /// The value.
    pub value: f64,
    /// Standard error of its logarithm; 0 where it is not known.
    pub log_error: f64,
}

impl MachineValue {
    /// A value whose error is not known.
    pub const fn exact(value: f64) -> Self {
        Self { value, log_error: 0.0 }
    }
}

/// The machines of a question, and what was noticed while they were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineSet {
    /// The machines, in the order in which they came.
    pub machines: Vec<KnownMachine>,
    /// What a reader must know: rows merged, names told apart, cells left out.
    pub notes: Vec<String>,
}

impl MachineSet {
    /// Adds machines: of two with one name, equals are merged and others are told apart.
    pub fn extend(&mut self, machines: impl IntoIterator<Item = KnownMachine>) {
        for machine in machines {
            self.add(machine);
        }
    }

    fn add(&mut self, mut machine: KnownMachine) {
        let is_same = |known: &KnownMachine| {
            base_name(&known.name) == machine.name
                && known.class == machine.class
                && have_one_speed(known, &machine)
        };
        if let Some(known) = self.machines.iter_mut().find(|known| is_same(known)) {
            self.notes.push(format!("{}: rows of one machine, merged", known.name));
            known.merge(&machine);
            return;
        }
        let is_named = |known: &&KnownMachine| base_name(&known.name) == machine.name;
        let same_name = self.machines.iter().filter(is_named).count();
        if same_name > 0 {
            let name = format!("{} ({})", machine.name, same_name + 1);
            self.notes
                .push(format!("two machines are called {}: one is shown as {name}", machine.name));
            machine.name = name;
        }
        self.machines.push(machine);
    }

    /// The kind of speed that most machines have; among equals the best.
    pub fn usual_speed(&self) -> SpeedKind {
        let count = |kind: SpeedKind| {
            self.machines.iter().filter(|machine| machine.speed.contains_key(&kind)).count()
        };
        let most = SpeedKind::ALL.into_iter().map(count).max().unwrap_or(0);
        SpeedKind::ALL.into_iter().find(|kind| count(*kind) == most).unwrap_or(SpeedKind::Clock)
    }
}

/// The name without the number that tells it from others.
fn base_name(name: &str) -> &str {
    let numbered = name.strip_suffix(')').and_then(|name| name.rsplit_once(" ("));
    let numbered = numbered.filter(|(_, number)| number.parse::<u32>().is_ok());
    numbered.map_or(name, |(base, _)| base)
}

/// Whether two machines have no kind of speed by which they differ by more than five percent.
fn have_one_speed(a: &KnownMachine, b: &KnownMachine) -> bool {
    let close = |kind: &SpeedKind| match (a.speed.get(kind), b.speed.get(kind)) {
        (Some(a), Some(b)) => (a / b).ln().abs() < 0.05,
        _ => true,
    };
    SpeedKind::ALL.iter().all(close)
}

impl KnownMachine {
    /// Takes what another row of the same machine says: geometric means where both have a value.
    fn merge(&mut self, other: &Self) {
        for (metric, value) in &other.values {
            let known = self.values.entry(metric).or_insert(*value);
            known.value = (known.value * value.value).sqrt();
            known.log_error = f64::midpoint(known.log_error, value.log_error);
        }
        for (kind, speed) in &other.speed {
            self.speed.entry(*kind).or_insert(*speed);
        }
        self.year = self.year.or(other.year);
        if !self.basis.contains(&other.basis) {
            self.basis = format!("{}, {}", self.basis, other.basis);
        }
    }
}

/// One machine's place on a line: its speed and quantity as multiples of the base machine's.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePoint<'a> {
    /// The machine.
    pub machine: &'a KnownMachine,
    /// How much faster its processor is.
    pub speed: f64,
    /// How much better its quantity is.
    pub improvement: f64,
    /// Standard error of the logarithm of the latter.
    pub log_error: f64,
}

/// The machines that have both, against the slowest processor among them; slowest first.
pub fn points<'a>(
    machines: impl IntoIterator<Item = &'a KnownMachine>,
    metric: &ScaleMetric,
    speed: SpeedKind,
) -> Vec<ScalePoint<'a>> {
    let mut found: Vec<ScalePoint<'a>> = Vec::new();
    for machine in machines {
        if let (Some(speed), Some(value)) =
            (machine.speed.get(&speed), machine.values.get(metric.name))
        {
            let improvement = metric.goodness(value.value);
            let log_error = value.log_error;
            found.push(ScalePoint { machine, speed: *speed, improvement, log_error });
        }
    }
    found.sort_by(|a, b| a.speed.total_cmp(&b.speed));
    if let Some((speed, improvement)) = found.first().map(|base| (base.speed, base.improvement)) {
        for point in &mut found {
            point.speed /= speed;
            point.improvement /= improvement;
        }
    }
    found
}

/// How a quantity follows speed over the machines of one class: points always, a slope from four machines on.
pub fn line(
    class: &str,
    metric: &ScaleMetric,
    points: &[ScalePoint<'_>],
    machines: usize,
) -> ScaleLine {
    let fitted = fit(points);
    let slope = fitted.as_ref().map(|fitted| rounded(fitted.coefficients[1]));
    let robust = (points.len() >= MACHINES_MIN).then(|| {
        theil_sen(&logs(points, |p| p.speed), &logs(points, |p| p.improvement), CONFIDENCE)
    });
    let robust = robust.flatten();
    let last = points.last();
    ScaleLine {
        metric: metric.name.to_owned(),
        label: metric.label.to_owned(),
        class: class.to_owned(),
        machines: points.len() as u64,
        without: machines.saturating_sub(points.len()) as u64,
        base: points.first().map_or_else(String::new, |base| base.machine.name.clone()),
        speed_most: last.map(|last| rounded(last.speed)),
        improvement_most: points
            .iter()
            .map(|point| point.improvement)
            .reduce(f64::max)
            .map(rounded),
        slope,
        slope_ci95: fitted.as_ref().map(|fitted| ends(fitted.interval(1, CONFIDENCE))),
        intercept: fitted.as_ref().map(|fitted| rounded(fitted.coefficients[0])),
        theil_sen: robust.map(|line| rounded(line.slope)),
        theil_sen_ci95: robust.map(|line| ends(line.slope_interval)),
        points: points.iter().map(|p| [rounded(p.speed), rounded(p.improvement)]).collect(),
        names: points.iter().map(|point| point.machine.name.clone()).collect(),
    }
}

fn ends(interval: ConfidenceInterval) -> [f64; 2] {
    [rounded(interval.lo), rounded(interval.hi)]
}

fn logs(points: &[ScalePoint<'_>], of: impl Fn(&ScalePoint<'_>) -> f64) -> Vec<f64> {
    points.iter().map(|point| of(point).ln()).collect()
}

/// The weighted line on logarithmic axes.
///
/// Machines differ by more than their own errors: each weighs the inverse of its own variance and that of the machines
/// about the line, which is found from a fit with equal weights.
pub fn fit(points: &[ScalePoint<'_>]) -> Option<LinearFit> {
    if points.len() < MACHINES_MIN {
        return None;
    }
    let rows: Vec<Vec<f64>> = points.iter().map(|point| vec![1.0, point.speed.ln()]).collect();
    let y = logs(points, |point| point.improvement);
    let equal = linear::fit(&rows, &y, &vec![1.0; points.len()])?;
    let own = points.iter().map(|point| point.log_error.powi(2));
    let mean_own = own.clone().sum::<f64>() / points.len() as f64;
    let between = (equal.residual_sd.powi(2) - mean_own).max(1e-12);
    let weights: Vec<f64> = own.map(|own| between / (between + own)).collect();
    linear::fit(&rows, &y, &weights)
}

/// Whether memory beside the processor predicts machines that were left out better than the processor alone.
pub fn two_terms(
    machines: &[&KnownMachine],
    metric: &ScaleMetric,
    speed: SpeedKind,
) -> Option<TwoTermModel> {
    let memory = find_metric(metric.memory?)?;
    let mut rows = Vec::new();
    let mut y = Vec::new();
    for machine in machines {
        if let (Some(cpu), Some(memory), Some(value)) = (
            machine.speed.get(&speed),
            machine.values.get(memory.name).map(|value| memory.goodness(value.value)),
            machine.values.get(metric.name),
        ) {
            rows.push(vec![1.0, cpu.ln(), memory.ln()]);
            y.push(metric.goodness(value.value).ln());
        }
    }
    if rows.len() < MACHINES_MIN + 1 {
        return None;
    }
    let ones = vec![1.0; rows.len()];
    let both = linear::fit(&rows, &y, &ones)?;
    let one: Vec<Vec<f64>> = rows.iter().map(|row| row[..2].to_vec()).collect();
    let (error_one, error_two) = (
        root_mean_square(&linear::left_out_errors(&one, &y, &ones)?),
        root_mean_square(&linear::left_out_errors(&rows, &y, &ones)?),
    );
    Some(TwoTermModel {
        metric: metric.name.to_owned(),
        label: metric.label.to_owned(),
        memory: memory.name.to_owned(),
        machines: rows.len() as u64,
        processor_slope: rounded(both.coefficients[1]),
        processor_ci95: ends(both.interval(1, CONFIDENCE)),
        memory_slope: rounded(both.coefficients[2]),
        memory_ci95: ends(both.interval(2, CONFIDENCE)),
        error_one: rounded(error_one.exp()),
        error_two: rounded(error_two.exp()),
        is_better: error_two < error_one,
    })
}

fn root_mean_square(errors: &[f64]) -> f64 {
    (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt()
}

/// How fast a quantity grows over the years: the months in which it doubles.
pub fn growth(label: &str, dated: &[(f64, f64)]) -> Option<GrowthRate> {
    if dated.len() < MACHINES_MIN {
        return None;
    }
    let rows: Vec<Vec<f64>> = dated.iter().map(|(year, _)| vec![1.0, year - 2000.0]).collect();
    let y: Vec<f64> = dated.iter().map(|(_, value)| value.log2()).collect();
    let fitted = linear::fit(&rows, &y, &vec![1.0; y.len()])?;
    let interval = fitted.interval(1, CONFIDENCE);
    let years = || dated.iter().map(|(year, _)| *year);
    Some(GrowthRate {
        label: label.to_owned(),
        machines: dated.len() as u64,
        from_year: years().fold(f64::INFINITY, f64::min).floor(),
        to_year: years().fold(f64::NEG_INFINITY, f64::max).floor(),
        doublings_a_year: rounded(fitted.coefficients[1]),
        doublings_ci95: ends(interval),
        doubling_months: (fitted.coefficients[1] > 0.0)
            .then(|| rounded(12.0 / fitted.coefficients[1])),
    })
}

/// The class of an architecture's name.
pub fn architecture_class(architecture: &str) -> &str {
    match architecture {
        "x86_64" | "i386" | "i586" | "i686" => "x86",
        "sparc64" => "sparc",
        "ppc64" => "powerpc",
        "mipsel" => "mips",
        other => other,
    }
}

/// The classes of these machines, each with its machines.
pub fn classes(machines: &[KnownMachine]) -> BTreeMap<&str, Vec<&KnownMachine>> {
    let names: BTreeSet<&str> = machines.iter().map(|machine| machine.class.as_str()).collect();
    let of = |name: &str| machines.iter().filter(|machine| machine.class == name).collect();
    names.into_iter().filter(|name| !name.is_empty()).map(|name| (name, of(name))).collect()
}

/// One quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleMetric {
    /// Its name in results.
    pub name: &'static str,
    /// What it is, for people.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The quantity of memory that may explain it beside the processor.
    pub memory: Option<&'static str>,
}

impl ScaleMetric {
    /// A number that grows where the quantity gets better.
    pub fn goodness(&self, value: f64) -> f64 {
        if self.unit == Unit::Nanoseconds { 1.0 / value } else { value }
    }
}

const fn time(name: &'static str, label: &'static str) -> ScaleMetric {
    ScaleMetric { name, label, unit: Unit::Nanoseconds, memory: Some("memory-load") }
}

const fn rate(name: &'static str, label: &'static str) -> ScaleMetric {
    ScaleMetric { name, label, unit: Unit::BytesPerSecond, memory: Some("memory-copy") }
}

const fn alone(metric: ScaleMetric) -> ScaleMetric {
    ScaleMetric { memory: None, ..metric }
}

/// Every quantity, in the order of pages.
pub const METRICS: [ScaleMetric; 17] = [
    time("entry", "empty kernel call"),
    time("entry-io", "smallest read or write"),
    time("switch", "context switch"),
    time("pipe", "pipe latency"),
    time("unix", "Unix socket latency"),
    time("udp", "UDP latency, loopback"),
    time("tcp", "TCP latency, loopback"),
    time("connect", "TCP connect, loopback"),
    rate("pipe-bandwidth", "pipe throughput"),
    rate("unix-bandwidth", "Unix socket throughput"),
    rate("tcp-bandwidth", "TCP throughput, loopback"),
    rate("lan-100m", "TCP per sender CPU-second, 100 Mb/s"),
    rate("lan-10m", "TCP per sender CPU-second, 10 Mb/s"),
    rate("wan", "TCP per sender CPU-second, wide area"),
    time("http", "page of HTTP, loopback"),
    alone(time("memory-load", "memory latency")),
    alone(rate("memory-copy", "memory copy")),
];

/// The quantity of a name.
pub fn find_metric(name: &str) -> Option<&'static ScaleMetric> {
    METRICS.iter().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use plumb_base::stats::simulation::normal;

    use super::*;

    /// Machines whose speeds span a factor of 100, and whose pipes follow them with this slope.
    pub(super) fn machines(count: u32, slope: f64, noise: f64, seed: u64) -> Vec<KnownMachine> {
        let mut stream = Seed(seed).stream("machines");
        let machine = |i: u32| {
            let speed = 100_f64.powf(f64::from(i) / f64::from(count - 1));
            let time = 5e4 * speed.powf(-slope) * (noise * normal(&mut stream)).exp();
            KnownMachine {
                name: format!("m{i}"),
                speed: [(SpeedKind::Clock, 40.0 * speed)].into(),
                values: [("pipe", MachineValue::exact(time))].into(),
                ..KnownMachine::default()
            }
        };
        (0..count).map(machine).collect()
    }

    fn slope_of(machines: &[KnownMachine]) -> ScaleLine {
        let metric = find_metric("pipe").unwrap();
        line("", metric, &points(machines, metric, SpeedKind::Clock), machines.len())
    }

    #[test]
    fn known_slopes_are_recovered_within_their_intervals() {
        for slope in [0.3, 0.62, 1.0] {
            let (mut weighted, mut robust) = (0, 0);
            for seed in 0..500 {
                let found = slope_of(&machines(15, slope, 0.3, seed));
                let holds = |ends: Option<[f64; 2]>| {
                    ends.is_some_and(|[lo, hi]| (lo..=hi).contains(&slope))
                };
                weighted += u32::from(holds(found.slope_ci95));
                robust += u32::from(holds(found.theil_sen_ci95));
            }
            assert!((465..=485).contains(&weighted), "{slope}: {weighted} of 500");
            assert!((460..=490).contains(&robust), "{slope}: {robust} of 500 by Theil-Sen");
        }
    }

    #[test]
    fn three_machines_give_points_and_no_slope() {
        let found = slope_of(&machines(3, 0.5, 0.0, 1));
        assert_eq!((found.points.len(), found.slope, found.theil_sen), (3, None, None));
        assert!((slope_of(&machines(4, 0.5, 0.0, 1)).slope.unwrap() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_machine_known_badly_weighs_less() {
        let mut machines = machines(8, 0.5, 0.02, 3);
        let last = machines.last_mut().unwrap().values.get_mut("pipe").unwrap();
        last.value *= 3.0;
        let equal = slope_of(&machines).slope.unwrap();
        machines.last_mut().unwrap().values.get_mut("pipe").unwrap().log_error = 1.5;
        let weighted = slope_of(&machines).slope.unwrap();
        assert!((weighted - 0.5).abs() < (equal - 0.5).abs(), "{weighted} {equal}");
    }

    #[test]
    fn rows_of_one_machine_are_merged_and_others_of_its_name_told_apart() {
        let machine = |clock: f64, pipe: f64| KnownMachine {
            name: "box".to_owned(),
            speed: [(SpeedKind::Clock, clock)].into(),
            values: [("pipe", MachineValue::exact(pipe))].into(),
            ..KnownMachine::default()
        };
        let mut set = MachineSet::default();
        set.extend([machine(100.0, 4.0), machine(101.0, 9.0), machine(400.0, 2.0)]);
        let names: Vec<&str> = set.machines.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["box", "box (2)"]);
        assert!((set.machines[0].values["pipe"].value - 6.0).abs() < 1e-9);
        assert_eq!(set.notes.len(), 2, "{:?}", set.notes);
    }

    #[test]
    fn memory_wins_out_of_sample_exactly_where_it_matters() {
        let mut stream = Seed(7).stream("two terms");
        for (share, expected) in [(0.6, true), (0.0, false)] {
            let mut wins = 0;
            for _ in 0..100 {
                let machine = |i: i32| {
                    let cpu = 1.3_f64.powi(i);
                    let memory = 1e8 * 1.2_f64.powi(i) * (0.5 * normal(&mut stream)).exp();
                    let rate = 1e6
                        * cpu.powf(0.4)
                        * (memory / 1e8).powf(share)
                        * (0.05 * normal(&mut stream)).exp();
                    KnownMachine {
                        speed: [(SpeedKind::Clock, cpu)].into(),
                        values: [
                            ("tcp-bandwidth", MachineValue::exact(rate)),
                            ("memory-copy", MachineValue::exact(memory)),
                        ]
                        .into(),
                        ..KnownMachine::default()
                    }
                };
                let machines: Vec<KnownMachine> = (0..14).map(machine).collect();
                let all: Vec<&KnownMachine> = machines.iter().collect();
                let metric = find_metric("tcp-bandwidth").unwrap();
                wins += u32::from(two_terms(&all, metric, SpeedKind::Clock).unwrap().is_better);
            }
            assert_eq!(wins > 60, expected, "share {share}: {wins} of 100");
        }
    }

    #[test]
    fn a_quantity_that_doubles_every_18_months_is_told_so() {
        let dated: Vec<(f64, f64)> =
            (0..6).map(|i| (1990.0 + f64::from(i), 2_f64.powf(f64::from(i) / 1.5))).collect();
        let found = growth("speed", &dated).unwrap();
        assert!((found.doubling_months.unwrap() - 18.0).abs() < 1e-6);
    }
}
