//! What an emulated link really did, in a terminal: asked against got.
//!
//! Left out: the line that appears while it runs, which the command line writes.

use plumb_analysis::document::link::{LinkDirection, LinkDocument, LinkDriver, LinkGateway};

use super::summary::push_wrapped;
use super::{TerminalStyle, TextRole};

/// The page; `whole` with everything that was counted, else only what a reader must know.
pub fn render(document: &LinkDocument, whole: bool, style: TerminalStyle) -> String {
    let mut out = String::new();
    let title = format!("Link {} after {:.1} s", document.link, document.seconds);
    push_wrapped(&mut out, &title, TextRole::Bold, 0, style);
    if whole {
        directions(&mut out, &document.directions, style);
        routers(&mut out, document, style);
    }
    put_driver(&mut out, &document.driver, whole, style);
    if let (Some(gateway), true) = (&document.gateway, whole) {
        push_wrapped(&mut out, &carried(gateway), TextRole::Plain, 2, style);
        if let Some(evicted) = evicted(gateway) {
            push_wrapped(&mut out, &evicted, TextRole::Plain, 2, style);
        }
    }
    if let Some(gateway) = document.gateway.as_ref().filter(|gateway| gateway.not_carried > 0) {
        let text = format!(
            "{} packets to the outside were neither TCP nor UDP, and were not carried: only the far end \
             answers ping.",
            gateway.not_carried
        );
        push_wrapped(&mut out, &text, TextRole::Dim, 2, style);
    }
    if let Some(gateway) = document.gateway.as_ref().filter(|gateway| gateway.no_room > 0) {
        let text = format!(
            "{} first packets of flows to the outside were dropped: as many flows were in use as there \
             was room for; 'ulimit -n' bounds them.",
            gateway.no_room
        );
        push_wrapped(&mut out, &text, TextRole::Bad, 2, style);
    }
    if document.no_memory > 0 {
        let text = format!(
            "Frames lost inside the link because there was no memory for them: {}.",
            document.no_memory
        );
        push_wrapped(&mut out, &text, TextRole::Bad, 2, style);
    }
    if document.left > 0 {
        let text = match document.left {
            1 => "1 process that the command left running was ended.".to_owned(),
            left => format!("{left} processes that the command left running were ended."),
        };
        push_wrapped(&mut out, &text, TextRole::Plain, 2, style);
    }
    for violation in &document.violations {
        push_wrapped(&mut out, &format!("plumb has a bug: {violation}"), TextRole::Bad, 2, style);
    }
    for flag in &document.flags {
        push_wrapped(&mut out, flag, TextRole::Dim, 2, style);
    }
    out
}

/// The links and labs that run: a line each where it is short enough, else a few.
pub fn list(documents: &[LinkDocument], style: TerminalStyle) -> String {
    let mut out = String::new();
    for document in documents {
        let what = if document.command.is_empty() {
            format!("hosts {}", document.hosts.join(", "))
        } else {
            document.command.join(" ")
        };
        let line = [&document.name, document.link.as_str(), &what].join("  ");
        if line.chars().count() <= usize::from(style.width) {
            out += &style.to_charset(&line);
            out.push('\n');
            continue;
        }
        push_wrapped(&mut out, &document.name, TextRole::Bold, 0, style);
        push_wrapped(&mut out, &document.link, TextRole::Plain, 2, style);
        push_wrapped(&mut out, &what, TextRole::Dim, 2, style);
    }
    out
}

fn directions(out: &mut String, directions: &[LinkDirection], style: TerminalStyle) {
    for direction in directions {
        push_wrapped(
            out,
            &format!("{}: asked {}", direction.name, direction.asked),
            TextRole::Plain,
            2,
            style,
        );
        let busy = direction
            .utilisation
            .map_or_else(String::new, |share| format!(", {:.1} % of the rate used", share * 100.0));
        let got = format!(
            "got {}{busy}; {} frames in, {} out, waited {} (median), {} (99 %), {} (worst); {:.1} in the queue on \
             average",
            rate(direction.bits_per_second),
            direction.frames_in,
            direction.frames_out,
            us(direction.sojourn_us_p50),
            us(direction.sojourn_us_p99),
            us(direction.sojourn_us_max),
            direction.queue_mean,
        );
        push_wrapped(out, &got, TextRole::Plain, 4, style);
        let mut ended: Vec<String> =
            direction.discarded.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let others = [
            ("marked", direction.marked),
            ("twice", direction.duplicated),
            ("reordered", direction.reordered),
            ("corrupted", direction.corrupted),
            ("truncated", direction.truncated),
            ("held", direction.held),
        ];
        ended.extend(
            others.iter().filter(|(_, n)| *n > 0).map(|(name, count)| format!("{count} {name}")),
        );
        if !ended.is_empty() {
            push_wrapped(out, &ended.join(", "), TextRole::Plain, 4, style);
        }
    }
}

/// What routers did, where they did anything.
fn routers(out: &mut String, document: &LinkDocument, style: TerminalStyle) {
    let LinkDocument { router_errors, router_errors_withheld, fragmented, fragments, .. } =
        document;
    if router_errors + router_errors_withheld > 0 {
        let text = format!(
            "Errors told to senders of what could not go on: {router_errors}; not told: {router_errors_withheld}."
        );
        push_wrapped(out, &text, TextRole::Plain, 2, style);
    }
    if *fragmented > 0 {
        let text = format!("Packets cut into fragments: {fragmented}, into {fragments}.");
        push_wrapped(out, &text, TextRole::Plain, 2, style);
    }
}

/// Bits in a second, in the unit that suits.
fn rate(bits: f64) -> String {
    let units = [("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 1e3)];
    match units.into_iter().find(|(_, unit)| bits >= *unit) {
        Some((name, unit)) => format!("{:.3} {name}", bits / unit),
        None => format!("{bits:.0} b/s"),
    }
}

/// The account of a driver; `whole` also of one that was in time.
pub(super) fn put_driver(out: &mut String, driver: &LinkDriver, whole: bool, style: TerminalStyle) {
    if whole {
        let text = format!(
            "Moments waited for: {}, awake {} before; a sleep was too long by {} (median), {} (99 %); \
             nice {}.",
            driver.precision,
            us(driver.margin_us),
            us(driver.wake_us_p50),
            us(driver.wake_us_p99),
            driver.nice,
        );
        push_wrapped(out, &text, TextRole::Plain, 2, style);
        let text = format!(
            "Frames handed over: {}, late by {} (median), {} (99 %), {} (worst); deadlines count as \
             missed beyond {}.",
            driver.frames,
            us(driver.late_us_p50),
            us(driver.late_us_p99),
            us(driver.late_us_max),
            us(driver.tolerance_us),
        );
        push_wrapped(out, &text, TextRole::Plain, 2, style);
    }
    if whole && driver.found_asleep > 0 {
        let text = format!(
            "Frames that found the link asleep, and entered late by what waking costs: {}.",
            driver.found_asleep
        );
        push_wrapped(out, &text, TextRole::Plain, 2, style);
    }
    if driver.missed > 0 {
        let text = format!(
            "Deadlines missed: {} of {}, the worst by {}.",
            driver.missed,
            driver.frames,
            us(driver.missed_us_worst)
        );
        push_wrapped(out, &text, TextRole::Bad, 2, style);
    }
    let harmed = driver.missed > 0 || driver.entered_late > 0;
    if driver.absences > 0 && (whole || harmed) {
        let text = format!(
            "Times the link was stopped or put aside: {}, {} in all, {} at most.",
            driver.absences,
            us(driver.absent_us),
            us(driver.absent_us_worst),
        );
        push_wrapped(out, &text, TextRole::Bad, 2, style);
    }
    if driver.entered_late > 0 {
        let text = format!(
            "Frames that may have entered late: {}, by {} at most.",
            driver.entered_late,
            us(driver.entered_late_us_worst)
        );
        push_wrapped(out, &text, TextRole::Bad, 2, style);
    }
    if driver.lost_before + driver.lost_after > 0 {
        let text = format!(
            "Frames lost that the link did not mean to lose: {} before it, {} behind it.",
            driver.lost_before, driver.lost_after
        );
        push_wrapped(out, &text, TextRole::Bad, 2, style);
    }
    if driver.suspended_us > 0.0 {
        let text = format!("The machine was suspended for {}.", us(driver.suspended_us));
        push_wrapped(out, &text, TextRole::Bad, 2, style);
    }
}

fn carried(gateway: &LinkGateway) -> String {
    format!(
        "To the outside: {} TCP connections ({} refused), {} flows of UDP; {} bytes up, {} down.",
        gateway.connections,
        gateway.refused,
        gateway.datagram_flows,
        gateway.bytes_up,
        gateway.bytes_down
    )
}

/// Which flows have made room for others; `None` where none has.
fn evicted(gateway: &LinkGateway) -> Option<String> {
    let all: u64 = gateway.evicted.values().sum();
    let reasons = gateway.evicted.iter().map(|(reason, count)| format!("{count} {reason}"));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    (all > 0).then(|| format!("{all} flows made room for new ones: {reasons}."))
}

/// Microseconds in the unit that suits.
fn us(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2} s", value / 1e6),
        value if value >= 1e3 => format!("{:.2} ms", value / 1e3),
        value => format!("{value:.1} µs"),
    }
}
