//! A link measured from outside, in a terminal: a line a way and property, asked against got.
//!
//! Left out: the measuring.

use plumb_analysis::document::link_check::{LinkCheckDocument, LinkProperty};

use super::link::put_driver;
use super::summary::push_wrapped;
use super::{TerminalStyle, TextRole};

/// The page; with the account of the link's driver where something is off or it was not in time.
pub fn render(document: &LinkCheckDocument, style: TerminalStyle) -> String {
    let mut out = String::new();
    let title =
        format!("Link {}, measured from outside for {:.1} s", document.link, document.seconds);
    push_wrapped(&mut out, &title, TextRole::Bold, 0, style);
    for property in &document.properties {
        line(&mut out, property, style);
    }
    put_driver(&mut out, &document.driver, true, style);
    let is_vague = |property: &LinkProperty| {
        property.status == "off" || property.numbers.contains_key("late_frames")
    };
    if !document.faithful && document.properties.iter().any(is_vague) {
        let text = "The driver of the link was late or lost frames: what is not as asked may be this machine's doing. \
                    Try again while it does nothing else, or with --precision busy.";
        push_wrapped(&mut out, text, TextRole::Warn, 2, style);
    }
    out
}

fn line(out: &mut String, property: &LinkProperty, style: TerminalStyle) {
    let ink = match property.status.as_str() {
        "ok" => TextRole::Good,
        "off" => TextRole::Bad,
        _ => TextRole::Dim,
    };
    let status = style.paint(ink, &format!("{:8}", property.status));
    let got = if property.got.is_empty() { "–" } else { &property.got };
    let text = format!("asked {}, got {got}", property.asked);
    let mut lines = style.wrap(&text, COLUMN).into_iter();
    let first = lines.next().unwrap_or_default();
    *out +=
        &format!("  {status} {:4} {:6} {}\n", property.way, property.property, first.trim_start());
    for line in lines {
        *out += &format!("{line}\n");
    }
    if !property.note.is_empty() {
        push_wrapped(out, &property.note, TextRole::Dim, COLUMN, style);
    }
}

/// Where what was asked begins: behind the status, the way and the property.
const COLUMN: usize = 23;

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
        render(&document, TerminalStyle { color: false, unicode: true, width: 240 })
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
        let page = render(&document, TerminalStyle::plain(40));
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
