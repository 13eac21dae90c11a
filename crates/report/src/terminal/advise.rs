//! How to send items over a path, in a terminal.

use plumb_analysis::document::advise::{AdviseDocument, AdvisedMode};
use plumb_base::units::Unit;

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::table::TextTable;
use crate::value;

/// The way that others are compared with.
const WAITING: &str = "stop-and-wait";

/// The ways, fastest first, and what to choose.
pub fn render(document: &AdviseDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let mut modes: Vec<&AdvisedMode> = document.modes.iter().collect();
    modes.sort_by(|a, b| a.time_ns.total_cmp(&b.time_ns));
    let waiting = document.modes.iter().find(|mode| mode.mode == WAITING);
    if let (Some(best), Some(waiting)) = (modes.first(), waiting) {
        let head = format!(
            "{} takes {}, {} less than one by one",
            way(best),
            time(best.time_ns),
            time(waiting.time_ns - best.time_ns),
        );
        page.put(0, TextRole::Bold, &head);
    }
    let text = format!(
        "Batches of {} items; a window of {} messages. A message costs either end {} ({}).",
        value::plain(Unit::Count, document.batch),
        value::plain(Unit::Count, document.window),
        time(document.message_ns),
        document.costs,
    );
    page.put(0, TextRole::Plain, &text);
    let table = TextTable::of_rows(
        modes,
        &[
            ("way", &|mode: &AdvisedMode| way(mode).to_owned()),
            ("#predicted", &|mode| time(mode.time_ns)),
            ("#twice as fast from an RTT of", &|mode| match mode.break_even_ns {
                Some(ns) if ns <= 0.0 => "any".to_owned(),
                Some(ns) => time(ns),
                None => "–".to_owned(),
            }),
        ],
    );
    page.out += &table.render_folded(style);
    let text = "A model of round trips, link and processors, without an interval: it has not been scored against measured runs.";
    page.put(0, TextRole::Dim, text);
    page.out
}

fn way(mode: &AdvisedMode) -> &str {
    if mode.mode == WAITING { "one by one" } else { &mode.mode }
}

fn time(ns: f64) -> String {
    value::plain(Unit::Nanoseconds, ns)
}
