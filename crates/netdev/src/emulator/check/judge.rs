//! What was seen of a link against what was asked for: one line a property, each with its verdict.

use std::collections::BTreeSet;

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
use crate::emulator::timing::Lateness;
use crate::emulator::{EmulatorReport, PortLosses};

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
    lines.push(loss(way, plan, sparse, busy, dropped));
    lines.push(order(way, plan, sparse));
    lines
}

impl Property {
    /// A line that is not judged, and why.
    fn untested(
        way: &OneWayPath<'_>,
        property: &'static str,
        expected: impl Into<String>,
        why: &str,
    ) -> Self {
        Self {
            direction: way.name,
            property,
            verdict: Verdict::Untested,
            expected: expected.into(),
            measured: String::new(),
            note: why.to_owned(),
            numbers: Vec::new(),
        }
    }
}

fn delay(way: &OneWayPath<'_>, sparse: &ObservedTraffic) -> Property {
    let expected = way.delay().and_then(|(constant, varying)| {
        let least = constant + way.serialization_time(PROBE_PAYLOAD)?;
        Ok((least, varying.map(DelayDistribution::mean)))
    });
    let (least, mean) = match expected {
        Ok(expected) => expected,
        Err(why) => return Property::untested(way, "delay", "–", why),
    };
    let asked = least + mean.unwrap_or_default();
    let line = |why| Property::untested(way, "delay", asked.to_string(), why);
    let errors = delay_errors(sparse, asked);
    if errors.len() < 3 {
        return line("too few datagrams arrived undisturbed");
    }
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|p| quantile::of_sorted(&errors, p));
    let mut numbers = vec![
        ("asked_ns", asked.as_ns_f64()),
        ("error_p50_ns", p50),
        ("error_p99_ns", p99),
        ("error_p999_ns", p999),
        ("error_least_ns", errors[0]),
        ("datagrams", errors.len() as f64),
    ];
    let relieved = sparse.lateness.subtract_from(&errors);
    let (is_fine, is_excused, measured, note);
    if mean.is_none() {
        let holds = |middle: f64| errors[0] >= EARLY_BOUND && middle <= DELAY_BOUND.as_ns_f64();
        (is_fine, is_excused) = (holds(p50), holds(quantile::of_sorted(&relieved, 0.5)));
        measured = format!("{} late; p99 {}, p99.9 {}", signed(p50), signed(p99), signed(p999));
        note = format!("at most {DELAY_BOUND} in the middle, never early");
    } else {
        let n = errors.len() as f64;
        let average_of = |errors: &[f64]| errors.iter().sum::<f64>() / n;
        let average = average_of(&errors);
        let squares = errors.iter().map(|error| (error - average).powi(2)).sum::<f64>();
        let reach =
            normal_quantile(0.5 + CONFIDENCE / 2.0) * (squares / (n - 1.0)).sqrt() / n.sqrt();
        numbers.extend([("error_mean_ns", average), ("interval_ns", reach)]);
        let bound = reach + DELAY_BOUND.as_ns_f64();
        is_fine = average.abs() <= bound;
        is_excused = average > 0.0 && average_of(&relieved) <= bound;
        measured = format!("{} from the mean", signed(average));
        note = format!("at most {} for {n} draws", signed(bound));
    }
    let line = Property { verdict: Verdict::of(is_fine), measured, note, numbers, ..line("") };
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
        (Err(why), _) => return Property::untested(way, "rate", "–", why),
        (Ok(_), None) => return Property::untested(way, "rate", "–", ""),
    };
    let asked = busy.bottleneck.rate.bits_per_second() as f64;
    let line = |why| Property::untested(way, "rate", format_rate(asked), why);
    let kept = match way.delay() {
        Ok((_, Some(_))) => back_to_back_run(busy, seen),
        _ => back_to_back_pairs(way, busy, seen),
    };
    let Some(kept) = kept else { return line("the sender could not keep the link busy") };
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
        ..line("")
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
    let asked = format!("mean {}", distribution.mean());
    let line = |why| Property::untested(way, "jitter", asked, why);
    if draws.len() < 8 {
        return Some(line("too few datagrams arrived"));
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
        ..line("")
    };
    // Each draw that was told late may be anywhere.
    let late = sparse.lateness.frames_beyond(LATENESS_MIN_NS) as f64;
    Some(excuse_lateness(line, distance - late / n <= critical, &sparse.lateness))
}

fn loss(
    way: &OneWayPath<'_>,
    plan: &CheckPlan,
    sparse: &ObservedTraffic,
    busy: Option<&ObservedTraffic>,
    dropped: UnmodeledDrops,
) -> Property {
    let untested = |why| Property::untested(way, "loss", "–", why);
    let busy = busy.zip(plan.busy.as_ref().ok().map(|busy| busy.traffic.payload));
    let (mut sent, mut lost, mut expected, mut inflation) = (0.0, 0.0, 0.0, 1.0_f64);
    for (seen, payload) in [(sparse, PROBE_PAYLOAD)].into_iter().chain(busy) {
        let model = match way.loss(payload) {
            Ok(model) => model,
            Err(why) => return untested(why),
        };
        if seen.overrun > 0 {
            return untested("the receiver could not keep up");
        }
        let arrived: BTreeSet<u32> = seen.received.iter().map(|received| received.number).collect();
        sent += seen.sent.len() as f64;
        lost += (seen.sent.len() - arrived.len().min(seen.sent.len())) as f64;
        expected += model.share * seen.sent.len() as f64;
        inflation = inflation.max(model.inflation);
    }
    if sent < 1.0 {
        return untested("");
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
        ..Property::untested(way, "loss", Unit::Share.format(share, 3).to_string(), "")
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
    let measured = format!("{overtaken} of {arrived} overtaken, by {depth} at most");
    let asked = Unit::Share.format(share, 3).to_string();
    let line = |why: &str| Property {
        measured: measured.clone(),
        numbers: numbers.clone(),
        ..Property::untested(way, "order", asked.clone(), why)
    };
    if way.may_overtake() {
        return line("delays that vary may let frames overtake");
    }
    if arrived < 3.0 {
        return line("too few datagrams arrived");
    }
    let (lo, hi) = wilson(overtaken as f64 / arrived, arrived);
    let is_fine = if share <= 0.0 { overtaken == 0 } else { (lo..=hi).contains(&share) };
    let late = sparse.lateness.frames_beyond(LATENESS_MIN_NS) as f64 / arrived;
    // A driver that is late hands over in order all the same, but what it takes in at once is not apart any more.
    let is_excused = share > 0.0 && lo - late <= share && share <= hi + late;
    let line = line(&format!("datagrams {} apart", plan.interval));
    let line = Property { verdict: Verdict::of(is_fine), ..line };
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
mod tests;
