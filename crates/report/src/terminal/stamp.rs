//! A STAMP session or reflector in a terminal.

use plumb_base::units::{Unit, significant};
use plumb_result::net::OneWayDelay;
use plumb_result::stamp::{
    ReflectorCounts, StampClock, StampDistribution, StampDocument, StampEnding, StampRole,
    StampSession,
};

use super::{TerminalPage, TerminalStyle, TextRole, occurred};

/// The page.
pub fn render(document: &StampDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let mode = if document.authenticated { "authenticated" } else { "open" };
    let what = match document.role {
        StampRole::Reflector => "STAMP reflector on",
        StampRole::Sender => "STAMP with",
    };
    let title = format!("{what} {}, {mode} mode", document.address);
    page.put(0, TextRole::Bold, &title);
    if let Some(session) = &document.session {
        put_session(&mut page, session);
    }
    if let Some(reflected) = &document.reflected {
        put_reflected(&mut page, reflected);
    }
    if document.ended == StampEnding::Interrupted && document.session.is_some() {
        page.put(2, TextRole::Warn, "interrupted: these are the results so far");
    }
    page.out
}

/// A line of a name and what there is to say, which hangs below itself where it wraps.
fn line(page: &mut TerminalPage, name: &str, role: TextRole, text: &str) {
    /// Where what there is to say begins.
    const COLUMN: usize = 15;
    let column = COLUMN.min(usize::from(page.style.width) / 3);
    let head = format!("  {name:<width$} ", width = column.saturating_sub(3));
    page.put_behind(&head, column, role, &TerminalStyle::keep_units_together(text));
}

fn time(ns: f64) -> String {
    Unit::Nanoseconds.format(ns, 3).to_string()
}

fn put_session(page: &mut TerminalPage, session: &StampSession) {
    let ink = if session.lost > 0 { TextRole::Warn } else { TextRole::Plain };
    line(page, "packets", ink, &packets_text(session));
    if let Some(spread) = &session.round_trip {
        line(page, "round trip", TextRole::Plain, &spread_text(spread));
    }
    if let Some(way) = &session.forward {
        line(page, "there", TextRole::Plain, &way_text(way));
    }
    if let Some(way) = &session.backward {
        line(page, "back", TextRole::Plain, &way_text(way));
    }
    if let Some(spread) = &session.dwell {
        let text = format!("p50 {}, max {}", time(spread.p50_ns), time(spread.max_ns));
        line(page, "reflector", TextRole::Plain, &text);
    }
    if let Some(clock) = &session.clock {
        line(page, "its clock", TextRole::Plain, &clock_text(clock, session));
        for step in &clock.steps {
            let sure = if step.proved { "" } else { ", probably: both ways changed" };
            let when = time(step.after_ns as f64);
            let text = format!(
                "a clock stepped by {} after {when}{sure}; the times between steps are compared separately",
                signed(step.size_ns)
            );
            line(page, "", TextRole::Warn, &text);
        }
    }
    if let Some(text) = hops(session) {
        line(page, "hops", TextRole::Plain, &text);
    }
    if session.sessionless > 0 {
        let what = "answers without a session, which this reflector does not know";
        let text = format!("{} {what}", session.sessionless);
        line(page, "", TextRole::Plain, &text);
    }
    put_odd(
        page,
        &[
            (session.unsealed, "answers with an invalid HMAC"),
            (session.foreign, "datagrams that answer no packet of the session"),
            (session.unrecognised_tlvs, "extensions that the reflector does not know"),
            (session.malformed_tlvs, "extensions that the reflector cannot read"),
            (session.unsealed_tlvs, "extensions whose HMAC the reflector found invalid"),
        ],
    );
}

/// A line for each of these counts that occurred.
fn put_odd(page: &mut TerminalPage, counts: &[(u64, &str)]) {
    for text in occurred(counts) {
        line(page, "", TextRole::Warn, &text);
    }
}

fn packets_text(session: &StampSession) -> String {
    let StampSession { sent, answered, lost, duplicates, reordered, .. } = session;
    let mut text = format!("{sent} sent, {answered} answered, {lost} lost");
    match (session.lost_forward, session.lost_backward) {
        _ if *lost == 0 => {}
        (Some(forward), Some(backward)) => {
            let last = match session.lost_last {
                None | Some(0) => String::new(),
                Some(last) => format!(", {last} after the last answer"),
            };
            text += &format!(" ({forward} there, {backward} back{last})");
        }
        _ => text += " (the reflector does not tell where)",
    }
    if *duplicates > 0 {
        text += &format!(", {duplicates} duplicates");
    }
    if *reordered > 0 {
        text += &format!(", {reordered} reordered");
    }
    text
}

fn spread_text(spread: &StampDistribution) -> String {
    format!(
        "min {}, p50 {}, p90 {}, p99 {}, max {}",
        time(spread.min_ns),
        time(spread.p50_ns),
        time(spread.p90_ns),
        time(spread.p99_ns),
        time(spread.max_ns)
    )
}

fn way_text(way: &OneWayDelay) -> String {
    format!(
        "min {} ± {}; above min: p50 {}, p99 {}, max {}",
        time(way.least_ns),
        time(way.bound_ns),
        time(way.above_p50_ns),
        time(way.above_p99_ns),
        time(way.above_max_ns)
    )
}

fn signed(ns: f64) -> String {
    let sign = if ns < 0.0 { "−" } else { "+" };
    format!("{sign}{}", time(ns.abs()))
}

fn clock_text(clock: &StampClock, session: &StampSession) -> String {
    let ppm = |value: f64| significant(value, 3);
    let mut text = format!("offset {} ± {}", signed(clock.offset_ns), time(clock.bound_ns));
    text += &format!(
        "; drift {} ppm ({} to {})",
        ppm(clock.drift_ppm),
        ppm(clock.drift_ppm_min),
        ppm(clock.drift_ppm_max)
    );
    let said = |synchronised: bool| if synchronised { "synchronised" } else { "not synchronised" };
    if let Some(theirs) = session.reflector_synchronised {
        text += &format!("; {} there", said(theirs));
    }
    text + &format!(", {} here", said(session.sender_synchronised))
}

/// From 255, which both sides send with.
fn hops(session: &StampSession) -> Option<String> {
    let passed = |ttl: Option<u8>| ttl.map(|ttl| u8::MAX - ttl);
    match (passed(session.ttl_forward), passed(session.ttl_backward)) {
        (Some(there), Some(back)) => Some(format!("{there} there, {back} back")),
        (Some(there), None) => Some(format!("{there} there")),
        (None, Some(back)) => Some(format!("{back} back, if the reflector sends with 255")),
        (None, None) => None,
    }
}

fn put_reflected(page: &mut TerminalPage, reflected: &ReflectorCounts) {
    line(page, "answered", TextRole::Plain, &reflected.answered.to_string());
    put_odd(
        page,
        &[
            (reflected.short, "too short for this mode"),
            (reflected.unsealed, "with an invalid HMAC"),
            (reflected.limited, "above the rate"),
            (reflected.looped, "from another reflector"),
            (reflected.unsent, "answered, but refused by the kernel"),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> StampDocument {
        let spread = StampDistribution {
            min_ns: 51_234.0,
            p50_ns: 60_000.0,
            p90_ns: 70_000.0,
            p99_ns: 80_000.0,
            max_ns: 1.2e6,
        };
        let way = OneWayDelay {
            least_ns: 25_600.0,
            bound_ns: 25_600.0,
            above_p50_ns: 4_000.0,
            above_p90_ns: 9_000.0,
            above_p99_ns: 20_000.0,
            above_max_ns: 1.1e6,
        };
        let clock = StampClock { offset_ns: -3.2e6, bound_ns: 25_600.0, ..StampClock::default() };
        StampDocument {
            address: "[2001:db8::1]:862".to_owned(),
            session: Some(StampSession {
                sent: 100,
                answered: 97,
                lost: 3,
                lost_forward: Some(2),
                lost_backward: Some(1),
                round_trip: Some(spread),
                dwell: Some(spread),
                forward: Some(way),
                backward: Some(way),
                clock: Some(clock),
                ttl_forward: Some(253),
                ttl_backward: Some(252),
                ..StampSession::default()
            }),
            ..StampDocument::default()
        }
    }

    #[test]
    fn a_session_says_where_losses_were_and_how_sure_each_way_is() {
        let page = render(&document(), TerminalStyle::plain(120));
        for text in [
            "STAMP with [2001:db8::1]:862, open mode",
            "100 sent, 97 answered, 3 lost (2 there, 1 back)",
            "min 25.6 µs ± 25.6 µs; above min: p50 4.00 µs",
            "offset −3.20 ms",
            "2 there, 3 back",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
    }

    #[test]
    fn a_session_fits_forty_columns() {
        let page = render(&document(), TerminalStyle::plain(40));
        assert!(page.lines().all(|line| line.chars().count() <= 40), "{page}");
    }

    #[test]
    fn a_reflector_says_what_it_did_not_answer() {
        let reflected = ReflectorCounts { answered: 5, limited: 2, ..ReflectorCounts::default() };
        let document = StampDocument {
            role: StampRole::Reflector,
            address: "127.0.0.1:862".to_owned(),
            reflected: Some(reflected),
            ..StampDocument::default()
        };
        let page = render(&document, TerminalStyle::plain(80));
        assert!(page.contains("reflector on 127.0.0.1:862") && page.contains("2 above the rate"));
    }
}
