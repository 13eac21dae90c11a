//! What was seen of a link against what was asked for: one line a property, each with its verdict.
//!
//! Left out: how it was seen.

use plumb_base::stats::distribution::normal_quantile;
use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_base::units::{Unit, significant};
use plumb_link::spec::DelayDistribution;

use super::dropped::Dropped;
use super::expect::{Way, sending, wire_len};
use super::lateness::Lateness;
use super::plan::{Busy, PROBE, Plan};
use super::traffic::{Seen, Sent};

/// What a link's delay may err by in the middle: what a busy machine needs to wake a driver.
const DELAY_BOUND: Span = Span::from_us(200);
/// No frame may come earlier than the link allows, but for the clock's grain.
const EARLY_BOUND: f64 = -2_000.0;
/// A datagram whose sending took longer was disturbed: its moment is not known well enough.
const SENDING_MAX: u64 = 100_000;
/// By how much a rate may err.
const RATE_BOUND: f64 = 0.001;
/// How late a frame may be told, which a rate's error is made of, in nanoseconds.
const LATENESS: u64 = 50_000;
/// Two-sided 99.9 %.
const CONFIDENCE: f64 = 0.999;

/// How a property turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As asked.
    Ok,
    /// Not as asked.
    Off,
    /// It cannot be told from outside, or not in this time, or not of a link whose driver says that it was late.
    Untested,
}

impl Verdict {
    /// `ok`, `off`, `untested`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Off => "off",
            Self::Untested => "untested",
        }
    }

    fn of(is_fine: bool) -> Self {
        if is_fine { Self::Ok } else { Self::Off }
    }
}

/// One property of one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// `up` or `down`.
    pub way: &'static str,
    /// `delay`, `rate`, `jitter`, `loss` or `order`.
    pub what: &'static str,
    /// How it turned out.
    pub verdict: Verdict,
    /// What was asked for.
    pub asked: String,
    /// What was got.
    pub got: String,
    /// By what that is judged, or why it is not.
    pub note: String,
    /// The numbers, in the base unit that each name says.
    pub numbers: Vec<(&'static str, f64)>,
}

/// Every line of one way: of its sparse datagrams, and of its busy ones, beside what the link itself dropped.
pub fn judge(
    way: &Way<'_>,
    plan: &Plan,
    sparse: &Seen,
    busy: Option<&Seen>,
    dropped: Dropped,
) -> Vec<Line> {
    let mut lines = vec![delay(way, sparse), rate(way, plan, busy)];
    lines.extend(jitter(way, sparse));
    lines.push(loss(way, plan, [Some(sparse), busy], dropped));
    lines.push(order(way, plan, sparse));
    lines
}

/// The line of a property, before it is judged.
fn line(way: &Way<'_>, what: &'static str, asked: String) -> Line {
    let (got, note) = (String::new(), String::new());
    Line { way: way.name, what, verdict: Verdict::Untested, asked, got, note, numbers: Vec::new() }
}

fn delay(way: &Way<'_>, sparse: &Seen) -> Line {
    let expected = way.delay().and_then(|(constant, varying)| {
        Ok((constant + way.serialisation(PROBE)?, varying.map(DelayDistribution::mean)))
    });
    let (least, mean) = match expected {
        Ok((least, mean)) => (least, mean),
        Err(why) => return Line { note: why.to_owned(), ..line(way, "delay", "–".to_owned()) },
    };
    let asked = (least + mean.unwrap_or_default()).to_string();
    let line = line(way, "delay", asked);
    let errors = errors(sparse, least + mean.unwrap_or_default());
    if errors.len() < 3 {
        return Line { note: "too few datagrams arrived undisturbed".to_owned(), ..line };
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
        let relieved = sparse.lateness.relieve(&errors);
        let is_excused = errors[0] >= EARLY_BOUND
            && quantile::of_sorted(&relieved, 0.5) <= DELAY_BOUND.as_ns_f64();
        let line = Line { verdict: Verdict::of(is_fine), got, note, numbers, ..line };
        return excuse(line, is_excused, &sparse.lateness);
    }
    let n = errors.len() as f64;
    let average = errors.iter().sum::<f64>() / n;
    let deviation = (errors.iter().map(|e| (e - average).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let reach = normal_quantile(0.5 + CONFIDENCE / 2.0) * deviation / n.sqrt();
    numbers.extend([("error_mean_ns", average), ("interval_ns", reach)]);
    let is_fine = average.abs() <= reach + DELAY_BOUND.as_ns_f64();
    let got = format!("{} from the mean", signed(average));
    let note = format!("at most {} for {n} draws", signed(reach + DELAY_BOUND.as_ns_f64()));
    let relieved = sparse.lateness.relieve(&errors).iter().sum::<f64>() / n;
    let is_excused = average > 0.0 && relieved <= reach + DELAY_BOUND.as_ns_f64();
    let line = Line { verdict: Verdict::of(is_fine), got, note, numbers, ..line };
    excuse(line, is_excused, &sparse.lateness)
}

/// A line that is off is untested instead where the link's own driver counted lateness that explains as much: what the
/// link does when its driver is in time is not known then.
fn excuse(mut line: Line, is_excused: bool, lateness: &Lateness) -> Line {
    let worst_ns = lateness.latest().next().unwrap_or(0);
    if line.verdict != Verdict::Off || !is_excused || worst_ns == 0 {
        return line;
    }
    let figure = lateness.figure(LATENESS);
    line.verdict = Verdict::Untested;
    line.note = format!("{}, but the link's driver may be why: meanwhile it {figure}", line.note);
    line.numbers.push(("late_frames", lateness.frames_beyond(LATENESS) as f64));
    line.numbers.push(("late_ns_worst", worst_ns as f64));
    line
}

/// Nanoseconds by which each undisturbed datagram came later than `expected`, sorted.
fn errors(seen: &Seen, expected: Span) -> Vec<f64> {
    let late = seen.received.iter().filter_map(|received| {
        let sent = seen.sent.get(usize::try_from(received.number).ok()?)?;
        (sent.done - sent.begun <= SENDING_MAX)
            .then(|| received.at as f64 - sent.begun as f64 - expected.as_ns_f64())
    });
    quantile::sorted(&late.collect::<Vec<f64>>())
}

fn rate(way: &Way<'_>, plan: &Plan, seen: Option<&Seen>) -> Line {
    let (busy, seen) = match (&plan.busy, seen) {
        (Ok(busy), Some(seen)) => (busy, seen),
        (Err(why), _) => {
            return Line { note: (*why).to_owned(), ..line(way, "rate", "–".to_owned()) };
        }
        (Ok(_), None) => return line(way, "rate", "–".to_owned()),
    };
    let asked = busy.bottleneck.rate.bits_per_second() as f64;
    let line = line(way, "rate", format_rate(asked));
    let kept = match way.delay() {
        Ok((_, Some(_))) => kept_up(busy, seen),
        _ => kept_busy(way, busy, seen),
    };
    let Some(kept) = kept else {
        let note = "the sender could not keep the link busy".to_owned();
        return Line { note, ..line };
    };
    let len = wire_len(busy.traffic.payload, busy.bottleneck.overhead) as f64;
    let got = kept.frames as f64 * len * 8.0 / (kept.ns / 1e9);
    let error = got / asked - 1.0;
    // Each stretch begins and ends at a moment that is told late, or varies by itself.
    let vagueness = LATENESS as f64 + 0.5 * way.spread().as_ns_f64();
    let bound = RATE_BOUND + 3.0 * (2.0 * kept.stretches as f64).sqrt() * vagueness / kept.ns;
    let line = Line {
        verdict: Verdict::of(error.abs() <= bound),
        got: format!("{} ({:+.3} %)", format_rate(got), error * 100.0),
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
    let vague_ns = seen.lateness.vagueness_ns(kept.stretches) as f64;
    // A link that frames did not reach in time was idle, and none is the faster for that.
    let idle_ns = if longer_ns > 0.0 { seen.lateness.idle_ns() as f64 } else { 0.0 };
    excuse(line, longer_ns.abs() - vague_ns - idle_ns <= bound * ideal_ns, &seen.lateness)
}

/// Frames that the slowest hop is known to have sent one right after the other.
struct KeptBusy {
    frames: u64,
    /// From one's reception to the next one's, over all of them.
    ns: f64,
    /// Stretches without a pause or a loss.
    stretches: u64,
}

/// Pairs of neighbours of which the second was waiting at the slowest hop when the first left it.
fn kept_busy(way: &Way<'_>, busy: &Busy, seen: &Seen) -> Option<KeptBusy> {
    let payload = busy.traffic.payload;
    let wire = wire_len(payload, busy.bottleneck.overhead);
    let own = sending(busy.bottleneck.rate, wire);
    let (constant, varying) = way.delay().ok()?;
    let around = way.serialisation(payload).ok()?.saturating_sub(own) + constant;
    let varying = varying.map_or(Span::ZERO, |varying| varying.mean() + way.spread());
    let travel = (around + varying).as_ns();
    let (mut kept, mut was_kept) = (KeptBusy { frames: 0, ns: 0.0, stretches: 0 }, false);
    for pair in seen.received.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        let sent: Option<&Sent> = seen.sent.get(usize::try_from(second.number).ok()?);
        let is_kept = second.number == first.number + 1
            && usize::try_from(first.number).is_ok_and(|number| number >= busy.skipped)
            && sent.is_some_and(|sent| sent.done + travel <= first.at);
        if is_kept {
            kept.frames += 1;
            kept.ns += second.at.saturating_sub(first.at) as f64;
            kept.stretches += u64::from(!was_kept);
        }
        was_kept = is_kept;
    }
    (kept.frames >= 3 && kept.frames * 4 >= seen.sent.len() as u64 && kept.ns > 0.0).then_some(kept)
}

/// The same where delays vary, which say nothing of when a frame left the hop, and to choose pairs by
/// which would choose short gaps: all frames but the first, if the sender never fell behind by more
/// than what was waiting.
fn kept_up(busy: &Busy, seen: &Seen) -> Option<KeptBusy> {
    let traffic = &busy.traffic;
    let wire = wire_len(traffic.payload, busy.bottleneck.overhead);
    let at_once = traffic.moments.iter().take_while(|moment| **moment == Span::ZERO).count();
    let waiting = at_once.saturating_sub(busy.skipped).saturating_sub(1) as u64;
    let slack = (sending(busy.bottleneck.rate, wire) * waiting).as_ns();
    let start = seen.sent.first()?.begun;
    let in_time = |(sent, moment): (&Sent, &Span)| sent.done <= start + moment.as_ns() + slack;
    if !seen.sent.iter().zip(&traffic.moments).all(in_time) {
        return None;
    }
    let skipped = busy.skipped + seen.received.len() / 8;
    let (first, last) = (seen.received.get(skipped)?, seen.received.last()?);
    let frames = last.number.checked_sub(first.number)?;
    let ns = last.at.checked_sub(first.at)? as f64;
    (frames >= 3 && ns > 0.0).then_some(KeptBusy { frames: frames.into(), ns, stretches: 1 })
}

/// The distance of the delays seen from the distribution asked for.
fn jitter(way: &Way<'_>, sparse: &Seen) -> Option<Line> {
    let (constant, varying) = way.delay().ok()?;
    let distribution = varying?;
    let base = constant + way.serialisation(PROBE).ok()?;
    let draws = errors(sparse, base);
    let n = draws.len() as f64;
    let line = line(way, "jitter", format!("mean {}", distribution.mean()));
    if draws.len() < 8 {
        return Some(Line { note: "too few datagrams arrived".to_owned(), ..line });
    }
    let distance = draws.iter().enumerate().fold(0.0_f64, |worst, (rank, ns)| {
        let expected = distribution.share_up_to(Span::from_secs_f64(ns / 1e9));
        let (before, after) = (rank as f64 / n, (rank + 1) as f64 / n);
        worst.max((expected - before).abs()).max((expected - after).abs())
    });
    // Kolmogorov's distribution: √(ln(2 / α) / 2) / √n, for α of 0.1 %.
    let critical = ((2.0 / (1.0 - CONFIDENCE)).ln() / 2.0).sqrt() / n.sqrt();
    let line = Line {
        verdict: Verdict::of(distance <= critical),
        got: format!("distance {}", significant(distance, 2)),
        note: format!("Kolmogorov–Smirnov; at most {} for {n} draws", significant(critical, 2)),
        numbers: vec![("distance", distance), ("critical", critical), ("datagrams", n)],
        ..line
    };
    // Each draw that was told late may be anywhere.
    let late = sparse.lateness.frames_beyond(LATENESS) as f64;
    Some(excuse(line, distance - late / n <= critical, &sparse.lateness))
}

fn loss(way: &Way<'_>, plan: &Plan, [sparse, busy]: [Option<&Seen>; 2], dropped: Dropped) -> Line {
    let busy = busy.zip(plan.busy.as_ref().ok().map(|busy| busy.traffic.payload));
    let groups = sparse.map(|sparse| (sparse, PROBE)).into_iter().chain(busy);
    let (mut sent, mut lost, mut expected, mut inflation) = (0.0, 0.0, 0.0, 1.0_f64);
    for (seen, payload) in groups {
        let model = match way.loss(payload) {
            Ok(model) => model,
            Err(why) => {
                return Line { note: why.to_owned(), ..line(way, "loss", "–".to_owned()) };
            }
        };
        if seen.overrun > 0 {
            let note = "the receiver could not keep up".to_owned();
            return Line { note, ..line(way, "loss", "–".to_owned()) };
        }
        let arrived: std::collections::BTreeSet<u32> =
            seen.received.iter().map(|received| received.number).collect();
        sent += seen.sent.len() as f64;
        lost += (seen.sent.len() - arrived.len().min(seen.sent.len())) as f64;
        expected += model.share * seen.sent.len() as f64;
        inflation = inflation.max(model.inflation);
    }
    if sent < 1.0 {
        return line(way, "loss", "–".to_owned());
    }
    let (share, got) = (expected / sent, lost / sent);
    let (lo, hi) = wilson(got, sent / inflation);
    // A share of nothing is exact: a single frame lost is one too many.
    let is_fine = |lost: f64| {
        let (lo, hi) = wilson(lost / sent, sent / inflation);
        if share <= 0.0 { lost < 0.5 } else { (lo..=hi).contains(&share) }
    };
    let verdict = match Verdict::of(is_fine(lost)) {
        Verdict::Off if is_fine((lost - dropped.total() as f64).max(0.0)) => Verdict::Untested,
        verdict => verdict,
    };
    let Dropped { by_queues, by_driver } = dropped;
    let (low, high) = (Unit::Share.format(lo, 2), Unit::Share.format(hi, 2));
    let note = match verdict {
        Verdict::Untested => format!(
            "queues dropped {by_queues} and the driver {by_driver}, which no loss was asked to"
        ),
        _ => format!("99.9 % interval {low} to {high}"),
    };
    Line {
        verdict,
        got: format!("{} ({lost} of {sent})", Unit::Share.format(got, 3)),
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
        ..line(way, "loss", Unit::Share.format(share, 3).to_string())
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

fn order(way: &Way<'_>, plan: &Plan, sparse: &Seen) -> Line {
    let (overtaken, depth) = overtaken(sparse);
    let arrived = sparse.received.len() as f64;
    let share = way.reordered(plan.apart);
    let numbers = vec![
        ("asked_share", share),
        ("got_share", overtaken as f64 / arrived.max(1.0)),
        ("depth", depth as f64),
        ("datagrams", arrived),
    ];
    let got = format!("{overtaken} of {arrived} overtaken, by {depth} at most");
    let line = line(way, "order", Unit::Share.format(share, 3).to_string());
    if way.may_overtake() {
        let note = "delays that vary may let frames overtake".to_owned();
        return Line { got, note, numbers, ..line };
    }
    if arrived < 3.0 {
        return Line { note: "too few datagrams arrived".to_owned(), got, numbers, ..line };
    }
    let (lo, hi) = wilson(overtaken as f64 / arrived, arrived);
    let is_fine = if share <= 0.0 { overtaken == 0 } else { (lo..=hi).contains(&share) };
    let note = format!("datagrams {} apart", plan.apart);
    let late = sparse.lateness.frames_beyond(LATENESS) as f64 / arrived;
    // A driver that is late hands over in order all the same, but what it takes in at once is not apart any more.
    let is_excused = share > 0.0 && lo - late <= share && share <= hi + late;
    let line = Line { verdict: Verdict::of(is_fine), got, note, numbers, ..line };
    excuse(line, is_excused, &sparse.lateness)
}

/// Datagrams that came after one that was sent later, and by how many of these at most
fn overtaken(seen: &Seen) -> (u64, usize) {
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

#[cfg(test)]
mod tests;
