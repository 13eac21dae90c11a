//! What was seen of a link against what was asked for: one line a property, each with its verdict.

use std::collections::BTreeMap;

use plumb_base::stats::distribution::normal_quantile;
use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_base::units::{Unit, significant};
use plumb_link::frame::DiscardReason;
use plumb_link::report::NetworkReport;
use plumb_link::spec::DelayDistribution;

use crate::emulator::check::plan::{
    BusyTraffic, CheckPlan, OneWayPath, PROBE_PAYLOAD, transmission_time, wire_len,
};
use crate::emulator::check::traffic::{ObservedTraffic, ProbeSendTimes};
use crate::emulator::{EmulatorReport, EmulatorTiming, PortLosses};

/// What a link's delay may err by in the middle: what a busy machine needs to wake a driver.
const DELAY_BOUND: Span = Span::from_us(200);
/// No frame may come earlier than the link allows, but for the clock's grain.
const EARLY_BOUND: f64 = -2_000.0;
/// A datagram whose sending took longer was disturbed: its moment is not known well enough.
const SEND_CALL_MAX_NS: u64 = 100_000;
/// By how much a rate may err.
const RATE_BOUND: f64 = 0.001;
/// How late a frame may be told, which a rate's error is made of, in nanoseconds.
const LATENESS_MIN_NS: u64 = 50_000;
/// Two-sided 99.9 %.
const CONFIDENCE: f64 = 0.999;

/// How a property turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As asked.
    Pass,
    /// Not as asked.
    Fail,
    /// It cannot be told from outside, or not in this time, or not of a link whose driver says that it was late.
    Untested,
}

impl Verdict {
    /// `ok`, `off`, `untested`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "ok",
            Self::Fail => "off",
            Self::Untested => "untested",
        }
    }

    fn of(is_fine: bool) -> Self {
        if is_fine { Self::Pass } else { Self::Fail }
    }
}

/// One property of one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// `up` or `down`.
    pub direction: &'static str,
    /// `delay`, `rate`, `jitter`, `loss` or `order`.
    pub property: &'static str,
    /// How it turned out.
    pub verdict: Verdict,
    /// What was asked for.
    pub expected: String,
    /// What was got.
    pub measured: String,
    /// By what that is judged, or why it is not.
    pub note: String,
    /// The numbers, in the base unit that each name says.
    pub numbers: Vec<(&'static str, f64)>,
}

/// Every line of one way: of its sparse datagrams, and of its busy ones, beside what the link itself dropped.
pub fn judge(
    way: &OneWayPath<'_>,
    plan: &CheckPlan,
    sparse: &ObservedTraffic,
    busy: Option<&ObservedTraffic>,
    dropped: UnmodeledDrops,
) -> Vec<Property> {
    let mut lines = vec![delay(way, sparse), rate(way, plan, busy)];
    lines.extend(jitter(way, sparse));
    lines.push(loss(way, plan, [Some(sparse), busy], dropped));
    lines.push(order(way, plan, sparse));
    lines
}

/// The line of a property, before it is judged.
fn unjudged_property(way: &OneWayPath<'_>, what: &'static str, asked: String) -> Property {
    let (got, note) = (String::new(), String::new());
    Property {
        direction: way.name,
        property: what,
        verdict: Verdict::Untested,
        expected: asked,
        measured: got,
        note,
        numbers: Vec::new(),
    }
}

fn delay(way: &OneWayPath<'_>, sparse: &ObservedTraffic) -> Property {
    let expected = way.delay().and_then(|(constant, varying)| {
        Ok((
            constant + way.serialization_time(PROBE_PAYLOAD)?,
            varying.map(DelayDistribution::mean),
        ))
    });
    let (least, mean) = match expected {
        Ok((least, mean)) => (least, mean),
        Err(why) => {
            return Property {
                note: why.to_owned(),
                ..unjudged_property(way, "delay", "–".to_owned())
            };
        }
    };
    let asked = (least + mean.unwrap_or_default()).to_string();
    let line = unjudged_property(way, "delay", asked);
    let errors = delay_errors(sparse, least + mean.unwrap_or_default());
    if errors.len() < 3 {
        return Property { note: "too few datagrams arrived undisturbed".to_owned(), ..line };
    }
    let at = |p| quantile::of_sorted(&errors, p);
    let mut numbers = vec![
        ("asked_ns", (least + mean.unwrap_or_default()).as_ns_f64()),
        ("error_p50_ns", at(0.5)),
        ("error_p99_ns", at(0.99)),
        ("error_p999_ns", at(0.999)),
        ("error_least_ns", errors[0]),
        ("datagrams", errors.len() as f64),
    ];
    if mean.is_none() {
        let is_fine = errors[0] >= EARLY_BOUND && at(0.5) <= DELAY_BOUND.as_ns_f64();
        let got = format!(
            "{} late; p99 {}, p99.9 {}",
            signed(at(0.5)),
            signed(at(0.99)),
            signed(at(0.999))
        );
        let note = format!("at most {DELAY_BOUND} in the middle, never early");
        let relieved = sparse.lateness.subtract_from(&errors);
        let is_excused = errors[0] >= EARLY_BOUND
            && quantile::of_sorted(&relieved, 0.5) <= DELAY_BOUND.as_ns_f64();
        let line = Property { verdict: Verdict::of(is_fine), measured: got, note, numbers, ..line };
        return excuse_lateness(line, is_excused, &sparse.lateness);
    }
    let n = errors.len() as f64;
    let average = errors.iter().sum::<f64>() / n;
    let deviation = (errors.iter().map(|e| (e - average).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let reach = normal_quantile(0.5 + CONFIDENCE / 2.0) * deviation / n.sqrt();
    numbers.extend([("error_mean_ns", average), ("interval_ns", reach)]);
    let is_fine = average.abs() <= reach + DELAY_BOUND.as_ns_f64();
    let got = format!("{} from the mean", signed(average));
    let note = format!("at most {} for {n} draws", signed(reach + DELAY_BOUND.as_ns_f64()));
    let relieved = sparse.lateness.subtract_from(&errors).iter().sum::<f64>() / n;
    let is_excused = average > 0.0 && relieved <= reach + DELAY_BOUND.as_ns_f64();
    let line = Property { verdict: Verdict::of(is_fine), measured: got, note, numbers, ..line };
    excuse_lateness(line, is_excused, &sparse.lateness)
}

/// A line that is off is untested instead where the link's own driver counted lateness that explains as much: what the
/// link does when its driver is in time is not known then.
fn excuse_lateness(mut line: Property, is_excused: bool, lateness: &Lateness) -> Property {
    let worst_ns = lateness.latest().next().unwrap_or(0);
    if line.verdict != Verdict::Fail || !is_excused || worst_ns == 0 {
        return line;
    }
    let figure = lateness.describe(LATENESS_MIN_NS);
    line.verdict = Verdict::Untested;
    line.note = format!("{}, but the link's driver may be why: meanwhile it {figure}", line.note);
    line.numbers.push(("late_frames", lateness.frames_beyond(LATENESS_MIN_NS) as f64));
    line.numbers.push(("late_ns_worst", worst_ns as f64));
    line
}

/// Nanoseconds by which each undisturbed datagram came later than `expected`, sorted.
fn delay_errors(seen: &ObservedTraffic, expected: Span) -> Vec<f64> {
    let late = seen.received.iter().filter_map(|received| {
        let sent = seen.sent.get(usize::try_from(received.number).ok()?)?;
        (sent.after_call_ns - sent.before_call_ns <= SEND_CALL_MAX_NS)
            .then(|| received.at_ns as f64 - sent.before_call_ns as f64 - expected.as_ns_f64())
    });
    quantile::sorted(&late.collect::<Vec<f64>>())
}

fn rate(way: &OneWayPath<'_>, plan: &CheckPlan, seen: Option<&ObservedTraffic>) -> Property {
    let (busy, seen) = match (&plan.busy, seen) {
        (Ok(busy), Some(seen)) => (busy, seen),
        (Err(why), _) => {
            return Property {
                note: (*why).to_owned(),
                ..unjudged_property(way, "rate", "–".to_owned())
            };
        }
        (Ok(_), None) => return unjudged_property(way, "rate", "–".to_owned()),
    };
    let asked = busy.bottleneck.rate.bits_per_second() as f64;
    let line = unjudged_property(way, "rate", format_rate(asked));
    let kept = match way.delay() {
        Ok((_, Some(_))) => back_to_back_run(busy, seen),
        _ => back_to_back_pairs(way, busy, seen),
    };
    let Some(kept) = kept else {
        let note = "the sender could not keep the link busy".to_owned();
        return Property { note, ..line };
    };
    let len = wire_len(busy.traffic.payload, busy.bottleneck.overhead) as f64;
    let got = kept.frames as f64 * len * 8.0 / (kept.ns / 1e9);
    let error = got / asked - 1.0;
    // Each stretch begins and ends at a moment that is told late, or varies by itself.
    let vagueness = LATENESS_MIN_NS as f64 + 0.5 * way.spread().as_ns_f64();
    let bound = RATE_BOUND + 3.0 * (2.0 * kept.stretches as f64).sqrt() * vagueness / kept.ns;
    let line = Property {
        verdict: Verdict::of(error.abs() <= bound),
        measured: format!("{} ({:+.3} %)", format_rate(got), error * 100.0),
        note: format!(
            "at most {} % for {} frames of {len} bytes over {}",
            significant(bound * 100.0, 2),
            kept.frames,
            Unit::Nanoseconds.format(kept.ns, 3)
        ),
        numbers: vec![
            ("asked_bits_per_second", asked),
            ("got_bits_per_second", got),
            ("error_share", error),
            ("bound_share", bound),
            ("frames", kept.frames as f64),
        ],
        ..line
    };
    let ideal_ns = kept.frames as f64 * len * 8.0 / asked * 1e9;
    let longer_ns = kept.ns - ideal_ns;
    let vague_ns = seen.lateness.uncertainty_ns(kept.stretches) as f64;
    // A link that frames did not reach in time was idle, and none is the faster for that.
    let idle_ns = if longer_ns > 0.0 { seen.lateness.idle_ns() as f64 } else { 0.0 };
    excuse_lateness(line, longer_ns.abs() - vague_ns - idle_ns <= bound * ideal_ns, &seen.lateness)
}

/// Frames that the slowest hop is known to have sent one right after the other.
struct BackToBackFrames {
    frames: u64,
    /// From one's reception to the next one's, over all of them.
    ns: f64,
    /// Stretches without a pause or a loss.
    stretches: u64,
}

/// Pairs of neighbours of which the second was waiting at the slowest hop when the first left it.
fn back_to_back_pairs(
    way: &OneWayPath<'_>,
    busy: &BusyTraffic,
    seen: &ObservedTraffic,
) -> Option<BackToBackFrames> {
    let payload = busy.traffic.payload;
    let wire = wire_len(payload, busy.bottleneck.overhead);
    let own = transmission_time(busy.bottleneck.rate, wire);
    let (constant, varying) = way.delay().ok()?;
    let around = way.serialization_time(payload).ok()?.saturating_sub(own) + constant;
    let varying = varying.map_or(Span::ZERO, |varying| varying.mean() + way.spread());
    let travel = (around + varying).as_ns();
    let (mut kept, mut was_kept) = (BackToBackFrames { frames: 0, ns: 0.0, stretches: 0 }, false);
    for pair in seen.received.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        let sent: Option<&ProbeSendTimes> = seen.sent.get(usize::try_from(second.number).ok()?);
        let is_kept = second.number == first.number + 1
            && usize::try_from(first.number).is_ok_and(|number| number >= busy.skipped)
            && sent.is_some_and(|sent| sent.after_call_ns + travel <= first.at_ns);
        if is_kept {
            kept.frames += 1;
            kept.ns += second.at_ns.saturating_sub(first.at_ns) as f64;
            kept.stretches += u64::from(!was_kept);
        }
        was_kept = is_kept;
    }
    (kept.frames >= 3 && kept.frames * 4 >= seen.sent.len() as u64 && kept.ns > 0.0).then_some(kept)
}

/// The same where delays vary, which say nothing of when a frame left the hop, and to choose pairs by
/// which would choose short gaps: all frames but the first, if the sender never fell behind by more
/// than what was waiting.
fn back_to_back_run(busy: &BusyTraffic, seen: &ObservedTraffic) -> Option<BackToBackFrames> {
    let traffic = &busy.traffic;
    let wire = wire_len(traffic.payload, busy.bottleneck.overhead);
    let at_once = traffic.send_times.iter().take_while(|moment| **moment == Span::ZERO).count();
    let waiting = at_once.saturating_sub(busy.skipped).saturating_sub(1) as u64;
    let slack = (transmission_time(busy.bottleneck.rate, wire) * waiting).as_ns();
    let start = seen.sent.first()?.before_call_ns;
    let in_time = |(sent, moment): (&ProbeSendTimes, &Span)| {
        sent.after_call_ns <= start + moment.as_ns() + slack
    };
    if !seen.sent.iter().zip(&traffic.send_times).all(in_time) {
        return None;
    }
    let skipped = busy.skipped + seen.received.len() / 8;
    let (first, last) = (seen.received.get(skipped)?, seen.received.last()?);
    let frames = last.number.checked_sub(first.number)?;
    let ns = last.at_ns.checked_sub(first.at_ns)? as f64;
    (frames >= 3 && ns > 0.0).then_some(BackToBackFrames {
        frames: frames.into(),
        ns,
        stretches: 1,
    })
}

/// The distance of the delays seen from the distribution asked for.
fn jitter(way: &OneWayPath<'_>, sparse: &ObservedTraffic) -> Option<Property> {
    let (constant, varying) = way.delay().ok()?;
    let distribution = varying?;
    let base = constant + way.serialization_time(PROBE_PAYLOAD).ok()?;
    let draws = delay_errors(sparse, base);
    let n = draws.len() as f64;
    let line = unjudged_property(way, "jitter", format!("mean {}", distribution.mean()));
    if draws.len() < 8 {
        return Some(Property { note: "too few datagrams arrived".to_owned(), ..line });
    }
    let distance = draws.iter().enumerate().fold(0.0_f64, |worst, (rank, ns)| {
        let expected = distribution.cdf(Span::from_secs_f64(ns / 1e9));
        let (before, after) = (rank as f64 / n, (rank + 1) as f64 / n);
        worst.max((expected - before).abs()).max((expected - after).abs())
    });
    // Kolmogorov's distribution: √(ln(2 / α) / 2) / √n, for α of 0.1 %.
    let critical = ((2.0 / (1.0 - CONFIDENCE)).ln() / 2.0).sqrt() / n.sqrt();
    let line = Property {
        verdict: Verdict::of(distance <= critical),
        measured: format!("distance {}", significant(distance, 2)),
        note: format!("Kolmogorov–Smirnov; at most {} for {n} draws", significant(critical, 2)),
        numbers: vec![("distance", distance), ("critical", critical), ("datagrams", n)],
        ..line
    };
    // Each draw that was told late may be anywhere.
    let late = sparse.lateness.frames_beyond(LATENESS_MIN_NS) as f64;
    Some(excuse_lateness(line, distance - late / n <= critical, &sparse.lateness))
}

fn loss(
    way: &OneWayPath<'_>,
    plan: &CheckPlan,
    [sparse, busy]: [Option<&ObservedTraffic>; 2],
    dropped: UnmodeledDrops,
) -> Property {
    let busy = busy.zip(plan.busy.as_ref().ok().map(|busy| busy.traffic.payload));
    let groups = sparse.map(|sparse| (sparse, PROBE_PAYLOAD)).into_iter().chain(busy);
    let (mut sent, mut lost, mut expected, mut inflation) = (0.0, 0.0, 0.0, 1.0_f64);
    for (seen, payload) in groups {
        let model = match way.loss(payload) {
            Ok(model) => model,
            Err(why) => {
                return Property {
                    note: why.to_owned(),
                    ..unjudged_property(way, "loss", "–".to_owned())
                };
            }
        };
        if seen.overrun > 0 {
            let note = "the receiver could not keep up".to_owned();
            return Property { note, ..unjudged_property(way, "loss", "–".to_owned()) };
        }
        let arrived: std::collections::BTreeSet<u32> =
            seen.received.iter().map(|received| received.number).collect();
        sent += seen.sent.len() as f64;
        lost += (seen.sent.len() - arrived.len().min(seen.sent.len())) as f64;
        expected += model.share * seen.sent.len() as f64;
        inflation = inflation.max(model.inflation);
    }
    if sent < 1.0 {
        return unjudged_property(way, "loss", "–".to_owned());
    }
    let (share, got) = (expected / sent, lost / sent);
    let (lo, hi) = wilson(got, sent / inflation);
    // A share of nothing is exact: a single frame lost is one too many.
    let is_fine = |lost: f64| {
        let (lo, hi) = wilson(lost / sent, sent / inflation);
        if share <= 0.0 { lost < 0.5 } else { (lo..=hi).contains(&share) }
    };
    let verdict = match Verdict::of(is_fine(lost)) {
        Verdict::Fail if is_fine((lost - dropped.total() as f64).max(0.0)) => Verdict::Untested,
        verdict => verdict,
    };
    let UnmodeledDrops { by_queues, by_driver } = dropped;
    let (low, high) = (Unit::Share.format(lo, 2), Unit::Share.format(hi, 2));
    let note = match verdict {
        Verdict::Untested => format!(
            "queues dropped {by_queues} and the driver {by_driver}, which no loss was asked to"
        ),
        _ => format!("99.9 % interval {low} to {high}"),
    };
    Property {
        verdict,
        measured: format!("{} ({lost} of {sent})", Unit::Share.format(got, 3)),
        note,
        numbers: vec![
            ("asked_share", share),
            ("got_share", got),
            ("interval_lo", lo),
            ("interval_hi", hi),
            ("datagrams", sent),
            ("dropped_by_queues", by_queues as f64),
            ("dropped_by_driver", by_driver as f64),
        ],
        ..unjudged_property(way, "loss", Unit::Share.format(share, 3).to_string())
    }
}

/// Wilson's interval of a share of `n` trials.
fn wilson(share: f64, n: f64) -> (f64, f64) {
    let z = normal_quantile(0.5 + CONFIDENCE / 2.0);
    let scale = 1.0 + z * z / n;
    let middle = (share + z * z / (2.0 * n)) / scale;
    let reach = z / scale * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    // Rounding leaves a trace of what should be nothing.
    let lo = if share <= 0.0 { 0.0 } else { (middle - reach).max(0.0) };
    (lo, (middle + reach).min(1.0))
}

fn order(way: &OneWayPath<'_>, plan: &CheckPlan, sparse: &ObservedTraffic) -> Property {
    let (overtaken, depth) = count_overtaken(sparse);
    let arrived = sparse.received.len() as f64;
    let share = way.reordered(plan.interval);
    let numbers = vec![
        ("asked_share", share),
        ("got_share", overtaken as f64 / arrived.max(1.0)),
        ("depth", depth as f64),
        ("datagrams", arrived),
    ];
    let got = format!("{overtaken} of {arrived} overtaken, by {depth} at most");
    let line = unjudged_property(way, "order", Unit::Share.format(share, 3).to_string());
    if way.may_overtake() {
        let note = "delays that vary may let frames overtake".to_owned();
        return Property { measured: got, note, numbers, ..line };
    }
    if arrived < 3.0 {
        return Property {
            note: "too few datagrams arrived".to_owned(),
            measured: got,
            numbers,
            ..line
        };
    }
    let (lo, hi) = wilson(overtaken as f64 / arrived, arrived);
    let is_fine = if share <= 0.0 { overtaken == 0 } else { (lo..=hi).contains(&share) };
    let note = format!("datagrams {} apart", plan.interval);
    let late = sparse.lateness.frames_beyond(LATENESS_MIN_NS) as f64 / arrived;
    // A driver that is late hands over in order all the same, but what it takes in at once is not apart any more.
    let is_excused = share > 0.0 && lo - late <= share && share <= hi + late;
    let line = Property { verdict: Verdict::of(is_fine), measured: got, note, numbers, ..line };
    excuse_lateness(line, is_excused, &sparse.lateness)
}

/// Datagrams that came after one that was sent later, and by how many of these at most
fn count_overtaken(seen: &ObservedTraffic) -> (u64, usize) {
    let (mut count, mut depth) = (0, 0);
    for (index, one) in seen.received.iter().enumerate() {
        let before = &seen.received[..index];
        let passed = before.iter().filter(|other| other.number > one.number).count();
        count += u64::from(passed > 0);
        depth = depth.max(passed);
    }
    (count, depth)
}

fn format_rate(bits_per_second: f64) -> String {
    let (factor, unit) = match bits_per_second {
        rate if rate >= 1e9 => (1e9, "Gb/s"),
        rate if rate >= 1e6 => (1e6, "Mb/s"),
        rate if rate >= 1e3 => (1e3, "kb/s"),
        _ => (1.0, "b/s"),
    };
    format!("{} {unit}", significant(bits_per_second / factor, 5))
}

fn signed(ns: f64) -> String {
    let sign = if ns < 0.0 { "−" } else { "" };
    format!("{sign}{}", Unit::Nanoseconds.format(ns.abs(), 3))
}

/// The lateness of one part.
///
/// The driver counts for both directions together and not by datagram: the most that its lateness may explain is assumed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Nanoseconds by which frames were handed over late, and how many, the latest first.
    pub handed_over: Vec<(u64, u64)>,
    /// Frames that entered later than they came.
    pub entered: u64,
    /// By how many nanoseconds at the most, of all so far.
    pub entered_worst_ns: u64,
    /// For how many nanoseconds the driver was away, or ready to run without a CPU.
    pub stalled_ns: u64,
}

impl Lateness {
    /// What a driver counted between two of its accounts.
    pub fn between(before: &EmulatorTiming, after: &EmulatorTiming) -> Self {
        let earlier: BTreeMap<u64, u64> = before.lateness.iter_recorded().collect();
        let grown = after.lateness.iter_recorded().map(|(late_ns, count)| {
            let earlier = earlier.get(&late_ns).copied().unwrap_or(0);
            (late_ns, count.saturating_sub(earlier))
        });
        let mut handed_over: Vec<_> = grown.filter(|&(_, count)| count > 0).collect();
        handed_over.reverse();
        let entered = after.entered_late.saturating_sub(before.entered_late);
        let waited = |account: &EmulatorTiming| account.waited_for_cpu.unwrap_or_default();
        let away = after.stalls.total.saturating_sub(before.stalls.total)
            + waited(after).saturating_sub(waited(before));
        let entered_worst = if entered > 0 { after.entered_late_worst } else { Span::ZERO };
        Self {
            handed_over,
            entered,
            entered_worst_ns: entered_worst.as_ns(),
            stalled_ns: away.as_ns(),
        }
    }

    /// The most by which each frame may have been late in all, the latest first.
    pub fn latest(&self) -> impl Iterator<Item = u64> + '_ {
        (0_u64..).zip(self.each_handed_over()).map(|(rank, late_ns)| {
            late_ns + if rank < self.entered { self.entered_worst_ns } else { 0 }
        })
    }

    /// By how much each frame was handed over late.
    fn each_handed_over(&self) -> impl Iterator<Item = u64> + '_ {
        let repeated = |&(late_ns, count): &(u64, u64)| (0..count).map(move |_| late_ns);
        self.handed_over.iter().flat_map(repeated)
    }

    /// Frames that were handed over later than that, or entered late.
    pub fn frames_beyond(&self, ns: u64) -> u64 {
        let beyond = self.handed_over.iter().filter(|&&(late_ns, _)| late_ns > ns);
        beyond.map(|&(_, count)| count).sum::<u64>() + self.entered
    }

    /// What is left of delays that are too long when all of it is taken away, each from the one that it explains
    /// best; `sorted` and the result ascend.
    pub fn subtract_from(&self, sorted: &[f64]) -> Vec<f64> {
        let late = self.latest().map(|ns| ns as f64).chain(std::iter::repeat(0.0));
        let mut relieved: Vec<f64> =
            sorted.iter().rev().zip(late).map(|(delay, late)| delay - late).collect();
        relieved.sort_by(f64::total_cmp);
        relieved
    }

    /// The longest time that `stretches` of frames one after the other may have lasted longer or shorter for it,
    /// because their ends were told late.
    pub fn uncertainty_ns(&self, stretches: u64) -> u64 {
        let stretches = usize::try_from(stretches).unwrap_or(usize::MAX);
        self.each_handed_over().take(stretches).fold(0, u64::saturating_add)
    }

    /// For how long at the most frames that came were not in the link yet.
    pub fn idle_ns(&self) -> u64 {
        self.stalled_ns.min(self.entered.saturating_mul(self.entered_worst_ns))
    }

    /// The figure of it, with how many frames were handed over later than `ns`.
    pub fn describe(&self, ns: u64) -> String {
        let time = |ns: u64| Unit::Nanoseconds.format(ns as f64, 3);
        let handed_over = self.frames_beyond(ns) - self.entered;
        let worst = self.handed_over.first().map_or(0, |&(late_ns, _)| late_ns);
        let mut parts = Vec::new();
        if handed_over > 0 || (worst > 0 && self.entered == 0) {
            let (limit, worst) = (time(ns), time(worst));
            parts.push(format!(
                "handed {handed_over} frames over more than {limit} late, the latest by {worst}"
            ));
        }
        if self.entered > 0 {
            let worst = time(self.entered_worst_ns);
            parts.push(format!("took {} in late, by {worst} at most", self.entered));
        }
        parts.join(" and ")
    }
}

/// The frames of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnmodeledDrops {
    /// A queue was full, kept short, or a policer found them beyond its rate.
    pub by_queues: u64,
    /// A device or its driver had no room for them.
    pub by_driver: u64,
}

impl UnmodeledDrops {
    /// Those of both ways: up, down.
    pub fn both(network: &NetworkReport, driver: &EmulatorReport) -> [Self; 2] {
        let near = driver.losses.first().copied().unwrap_or_default();
        let far = driver.losses.get(1).copied().unwrap_or_default();
        [("up", near, far), ("down", far, near)]
            .map(|(way, from, to)| of_way(network, way, from, to))
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_queues + self.by_driver
    }
}

fn of_way(network: &NetworkReport, way: &str, from: PortLosses, to: PortLosses) -> UnmodeledDrops {
    let hops = || network.directions.iter().filter(|direction| direction.name.ends_with(way));
    let of = |reason| hops().map(|direction| direction.discards.of(reason).0).sum::<u64>();
    UnmodeledDrops {
        by_queues: of(DiscardReason::Full) + of(DiscardReason::Early) + of(DiscardReason::Policed),
        by_driver: from.received + to.sent + of(DiscardReason::NoMemory),
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::time::Instant;

    use super::*;
    use crate::emulator::timing::TimingRecorder;

    fn at(us: u64) -> Instant {
        Instant::ORIGIN + Span::from_us(us)
    }

    #[test]
    fn the_lateness_of_a_part_is_what_was_counted_since_the_part_before() {
        let mut account = TimingRecorder::new(at(0), Span::from_us(100));
        for late_us in [500, 3, 900] {
            account.on_sent(at(10_000 + late_us), at(10_000));
        }
        let before = account.timing();
        for late_us in [2, 700, 3, 700] {
            account.on_sent(at(20_000 + late_us), at(20_000));
        }
        account.on_poll(at(20_000));
        account.on_poll(at(50_000));
        account.on_entered(2);
        let lateness = Lateness::between(&before, &account.timing());
        let shown: Vec<u64> = lateness.handed_over.iter().map(|(ns, _)| ns / 1_000).collect();
        assert_eq!(shown, [700, 3, 2], "{lateness:?}");
        assert_eq!(lateness.frames_beyond(50_000), 4, "two handed over, two taken in");
        assert_eq!((lateness.entered, lateness.entered_worst_ns), (2, 30_000_000));
        let latest: Vec<u64> = lateness.latest().map(|ns| ns / 1_000).collect();
        assert_eq!(latest, [30_700, 30_700, 3, 2]);
        let figure = lateness.describe(50_000);
        assert!(figure.contains("handed 2 frames over more than 50.0 µs late"), "{figure}");
        assert!(figure.contains("took 2 in late, by 30.0 ms at most"), "{figure}");
        assert_eq!(Lateness::between(&before, &before), Lateness::default());
    }

    #[test]
    fn the_most_that_lateness_explains_is_taken_from_the_longest_delays() {
        let handed_over = vec![(300, 2), (50, 1)];
        let lateness = Lateness { handed_over, ..Lateness::default() };
        assert_eq!(
            lateness.subtract_from(&[10.0, 20.0, 400.0, 500.0]),
            [-30.0, 10.0, 100.0, 200.0]
        );
        assert_eq!(lateness.uncertainty_ns(2), 600);
        assert_eq!(lateness.idle_ns(), 0, "none came before it was in the link");
    }
}
