//! An emulated link in a terminal: what it did, and what a check measured, requested beside measured.
//!
//! Left out: the line that appears while it runs, which the command line writes.

use plumb_analysis::document::link::{
    LinkCheckDocument, LinkDirection, LinkDocument, LinkDriver, LinkGateway, LinkProperty,
};

use super::{TerminalPage, TerminalStyle, TextRole, occurred};

/// The page; `whole` with everything that was counted, else only what a reader must know.
pub fn render(document: &LinkDocument, whole: bool, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let LinkDocument { link, seconds, no_memory, left, .. } = document;
    page.put(0, TextRole::Bold, &format!("Link {link} after {seconds:.1} s"));
    if whole {
        for direction in &document.directions {
            put_direction(&mut page, direction);
        }
        put_routers(&mut page, document);
    }
    put_driver(&mut page, &document.driver, whole);
    if let Some(gateway) = &document.gateway {
        put_gateway(&mut page, gateway, whole);
    }
    if *no_memory > 0 {
        let text = "Frames lost inside the link because there was no memory for them";
        page.put(2, TextRole::Bad, &format!("{text}: {no_memory}."));
    }
    if *left > 0 {
        let (processes, were) = if *left == 1 { ("process", "was") } else { ("processes", "were") };
        let text = format!("{left} {processes} that the command left running {were} ended.");
        page.put(2, TextRole::Plain, &text);
    }
    for violation in &document.violations {
        page.put(2, TextRole::Bad, &format!("plumb has a bug: {violation}"));
    }
    for flag in &document.flags {
        page.put(2, TextRole::Dim, flag);
    }
    page.out
}

/// The links and labs that run: a line each where it is short enough, else a few.
pub fn list(documents: &[LinkDocument], style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for document in documents {
        let what = if document.command.is_empty() {
            format!("hosts {}", document.hosts.join(", "))
        } else {
            document.command.join(" ")
        };
        let line = [&document.name, document.link.as_str(), &what].join("  ");
        if line.chars().count() <= usize::from(style.width) {
            page.out += &style.to_charset(&line);
            page.out.push('\n');
            continue;
        }
        page.put(0, TextRole::Bold, &document.name);
        page.put(2, TextRole::Plain, &document.link);
        page.put(2, TextRole::Dim, &what);
    }
    page.out
}

/// A link measured from outside: a line a way and property, and the account of the link's driver.
pub fn check(document: &LinkCheckDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let LinkCheckDocument { link, seconds, .. } = document;
    let title = format!("Link {link}, measured from outside for {seconds:.1} s");
    page.put(0, TextRole::Bold, &title);
    for property in &document.properties {
        put_property(&mut page, property);
    }
    put_driver(&mut page, &document.driver, true);
    let is_vague = |property: &LinkProperty| {
        property.status == "off" || property.numbers.contains_key("late_frames")
    };
    if !document.faithful && document.properties.iter().any(is_vague) {
        let text = "The driver of the link was late or lost frames: what is not as asked may be this machine's doing. \
                    Try again while it does nothing else, or with --precision busy.";
        page.put(2, TextRole::Warn, text);
    }
    page.out
}

fn put_property(page: &mut TerminalPage, property: &LinkProperty) {
    /// Where what was asked begins: behind the status, the way and the property.
    const COLUMN: usize = 23;
    let LinkProperty { way, property: name, status, asked, got, note, .. } = property;
    let role = match status.as_str() {
        "ok" => TextRole::Good,
        "off" => TextRole::Bad,
        _ => TextRole::Dim,
    };
    let status = page.style.paint(role, &format!("{status:8}"));
    let got = if got.is_empty() { "–" } else { got };
    let head = format!("  {status} {way:4} {name:6} ");
    page.put_behind(&head, COLUMN, TextRole::Plain, &format!("asked {asked}, got {got}"));
    page.put(COLUMN, TextRole::Dim, note);
}

fn put_direction(page: &mut TerminalPage, direction: &LinkDirection) {
    let LinkDirection { name, asked, frames_in, frames_out, queue_mean, .. } = direction;
    page.put(2, TextRole::Plain, &format!("{name}: asked {asked}"));
    let busy = direction
        .utilisation
        .map_or_else(String::new, |share| format!(", {:.1} % of the rate used", share * 100.0));
    let got = format!(
        "got {}{busy}; {frames_in} frames in, {frames_out} out, queue wait p50 {}, p99 {}, max {}; \
         {queue_mean:.1} in the queue on average",
        rate(direction.bits_per_second),
        us(direction.sojourn_us_p50),
        us(direction.sojourn_us_p99),
        us(direction.sojourn_us_max),
    );
    page.put(4, TextRole::Plain, &got);
    let mut ended: Vec<String> =
        direction.discarded.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    ended.extend(occurred(&[
        (direction.marked, "marked"),
        (direction.duplicated, "twice"),
        (direction.reordered, "reordered"),
        (direction.corrupted, "corrupted"),
        (direction.truncated, "truncated"),
        (direction.held, "held"),
    ]));
    page.put(4, TextRole::Plain, &ended.join(", "));
}

/// The routers' counters, where they did anything.
fn put_routers(page: &mut TerminalPage, document: &LinkDocument) {
    let LinkDocument { router_errors: sent, router_errors_withheld: withheld, .. } = document;
    let LinkDocument { fragmented, fragments, .. } = document;
    if sent + withheld > 0 {
        let what = "ICMP errors sent back to senders";
        page.put(2, TextRole::Plain, &format!("{what}: {sent}; withheld: {withheld}."));
    }
    if *fragmented > 0 {
        let text = format!("Packets cut into fragments: {fragmented}, into {fragments}.");
        page.put(2, TextRole::Plain, &text);
    }
}

/// The account of a driver; `whole` also of one that was in time.
fn put_driver(page: &mut TerminalPage, driver: &LinkDriver, whole: bool) {
    let LinkDriver { precision, nice, .. } = driver;
    let LinkDriver { frames, found_asleep, missed, absences, entered_late, .. } = *driver;
    let LinkDriver { lost_before, lost_after, .. } = *driver;
    if whole {
        let [margin, p50, p99] = [driver.margin_us, driver.wake_us_p50, driver.wake_us_p99].map(us);
        let text = format!(
            "Timer: {precision}, awake {margin} before a deadline; sleeps too long by p50 {p50}, p99 {p99}; nice {nice}."
        );
        page.put(2, TextRole::Plain, &text);
        let [p50, p99, worst] =
            [driver.late_us_p50, driver.late_us_p99, driver.late_us_max].map(us);
        let text = format!(
            "Frames delivered: {frames}, late by p50 {p50}, p99 {p99}, max {worst}; deadlines count as missed \
             beyond {}.",
            us(driver.tolerance_us)
        );
        page.put(2, TextRole::Plain, &text);
    }
    if whole && found_asleep > 0 {
        let what = "Frames that arrived while the link slept, and entered it after a wake-up";
        page.put(2, TextRole::Plain, &format!("{what}: {found_asleep}."));
    }
    if missed > 0 {
        let worst = us(driver.missed_us_worst);
        let text = format!("Deadlines missed: {missed} of {frames}, max {worst}.");
        page.put(2, TextRole::Bad, &text);
    }
    if absences > 0 && (whole || missed > 0 || entered_late > 0) {
        let [all, most] = [driver.absent_us, driver.absent_us_worst].map(us);
        let what = "Times the link was stopped or preempted";
        page.put(2, TextRole::Bad, &format!("{what}: {absences}, {all} in all, max {most}."));
    }
    if entered_late > 0 {
        let most = us(driver.entered_late_us_worst);
        let text = format!("Frames that may have entered late: {entered_late}, max {most}.");
        page.put(2, TextRole::Bad, &text);
    }
    if lost_before + lost_after > 0 {
        let what = "Frames lost by the machine";
        let text = format!("{what}: {lost_before} before it, {lost_after} behind it.");
        page.put(2, TextRole::Bad, &text);
    }
    if driver.suspended_us > 0.0 {
        let text = format!("The machine was suspended for {}.", us(driver.suspended_us));
        page.put(2, TextRole::Bad, &text);
    }
}

/// What was carried to the outside where `whole`, and what was not.
fn put_gateway(page: &mut TerminalPage, gateway: &LinkGateway, whole: bool) {
    let LinkGateway { connections, refused, datagram_flows, bytes_up, bytes_down, .. } = gateway;
    if whole {
        let text = format!(
            "To the outside: {connections} TCP connections ({refused} refused), {datagram_flows} flows of UDP; \
             {bytes_up} bytes up, {bytes_down} down."
        );
        page.put(2, TextRole::Plain, &text);
        let all: u64 = gateway.evicted.values().sum();
        let reasons = gateway.evicted.iter().map(|(reason, count)| format!("{count} {reason}"));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        if all > 0 {
            let text = format!("{all} flows made room for new ones: {reasons}.");
            page.put(2, TextRole::Plain, &text);
        }
    }
    let LinkGateway { not_carried, no_room, .. } = gateway;
    if *not_carried > 0 {
        let text = format!(
            "{not_carried} packets to the outside were neither TCP nor UDP, and were not carried: only the far \
             end answers ping."
        );
        page.put(2, TextRole::Dim, &text);
    }
    if *no_room > 0 {
        let text = format!(
            "{no_room} first packets of flows to the outside were dropped: as many flows were in use as there \
             was room for; 'ulimit -n' bounds them."
        );
        page.put(2, TextRole::Bad, &text);
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

/// Microseconds in the unit that suits.
fn us(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2} s", value / 1e6),
        value if value >= 1e3 => format!("{:.2} ms", value / 1e3),
        value => format!("{value:.1} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: &str, faithful: bool) -> String {
        let property = LinkProperty {
            way: "up".to_owned(),
            property: "rate".to_owned(),
            status: status.to_owned(),
            asked: "10 Mb/s".to_owned(),
            got: "9.0 Mb/s".to_owned(),
            ..LinkProperty::default()
        };
        let document = LinkCheckDocument {
            ok: status == "ok",
            faithful,
            properties: vec![property],
            ..LinkCheckDocument::default()
        };
        check(&document, TerminalStyle::plain(240))
    }

    #[test]
    fn a_check_fits_forty_columns() {
        let property = LinkProperty {
            way: "down".to_owned(),
            property: "jitter".to_owned(),
            status: "unsure".to_owned(),
            asked: "uniform from 10 ms to 20 ms".to_owned(),
            got: "a distance of 0.012 from it".to_owned(),
            note: "of 4000 samples".to_owned(),
            ..LinkProperty::default()
        };
        let document = LinkCheckDocument {
            link: "rate=10mbit,queue=drop-tail,limit=1bdp,delay=uniform 10ms 20ms".to_owned(),
            properties: vec![property],
            ..LinkCheckDocument::default()
        };
        let page = check(&document, TerminalStyle::plain(40));
        assert!(page.lines().all(|line| line.chars().count() <= 40), "{page}");
    }

    #[test]
    fn a_line_says_what_was_asked_and_got_and_the_machine_is_blamed_only_with_a_reason() {
        assert!(page("ok", true).contains("ok       up   rate   asked 10 Mb/s, got 9.0 Mb/s"));
        assert!(!page("off", true).contains("this machine's doing"));
        assert!(page("off", false).contains("this machine's doing"));
        assert!(!page("ok", false).contains("this machine's doing"));
        assert!(!page("untested", false).contains("this machine's doing"));
    }
}
