//! What this host can and cannot measure, in a terminal: one paragraph a check.
//!
//! Left out: the examination itself.

use plumb_analysis::document::doctor::{DoctorCheck, DoctorDocument};

use super::summary::push_wrapped;
use super::{TerminalStyle, TextRole};

/// Checks that need attention first, each with its fix, then those that are fine, one line each.
pub fn render(document: &DoctorDocument, style: TerminalStyle) -> String {
    let mut out = String::new();
    let (fine, poor): (Vec<&DoctorCheck>, Vec<&DoctorCheck>) =
        document.checks.iter().partition(|check| check.status == "ok");
    for check in &poor {
        let ink = if check.status == "missing" { TextRole::Bad } else { TextRole::Warn };
        let status = style.paint(ink, &check.status);
        out +=
            &format!("{status} {}\n", style.paint(TextRole::Bold, &style.to_charset(&check.what)));
        for text in [&check.finding, &check.why] {
            push_wrapped(&mut out, text, TextRole::Plain, 4, style);
        }
        if !check.fix.is_empty() {
            push_wrapped(&mut out, &format!("→ {}", check.fix), TextRole::Plain, 4, style);
        }
    }
    if !poor.is_empty() && !fine.is_empty() {
        out.push('\n');
    }
    for check in &fine {
        let lines = style.wrap(&format!("{}: {}", check.what, check.finding), 3);
        for (index, line) in lines.iter().enumerate() {
            let head = if index == 0 { style.paint(TextRole::Good, "ok") } else { "  ".to_owned() };
            out += &format!("{head}{}\n", &line[2..]);
        }
    }
    out += &format!("\n{} of {} checks are fine.\n", fine.len(), document.checks.len());
    out
}
