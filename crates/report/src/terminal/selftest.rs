//! The self-test in the terminal: one line a check, what was claimed and what was seen.

use plumb_analysis::document::selftest::{SelftestCheck, SelftestDocument};
use plumb_base::units::{Unit, significant};

use super::{TerminalStyle, TextRole};

/// The whole self-test, ended by its verdict.
pub fn render(document: &SelftestDocument, style: TerminalStyle) -> String {
    let mut text = String::new();
    for check in &document.checks {
        let (mark, ink) =
            if check.passed { ("pass", TextRole::Good) } else { ("FAIL", TextRole::Bad) };
        let lines = style.wrap(&sentence(check), 6);
        text.push_str(&format!("{}  {}\n", style.paint(ink, mark), lines.join("\n").trim_start()));
        if !check.note.is_empty() {
            text.push_str(&style.wrap(&check.note, 6).join("\n"));
            text.push('\n');
        }
    }
    let failed = document.checks.iter().filter(|check| !check.passed).count();
    let verdict = match failed {
        0 => format!("all {} checks passed", document.checks.len()),
        1 => "1 check failed".to_owned(),
        n => format!("{n} checks failed"),
    };
    let seconds = significant(document.seconds, 3);
    text.push_str(&format!("{verdict} in {seconds} s (seed {})\n", document.seed));
    style.to_charset(&text)
}

/// `95 % intervals …: 95.1% [94.0%, 96.0%] of 2000, wanted 93% to 97%`.
fn sentence(check: &SelftestCheck) -> String {
    let unit = Unit::from_name(&check.unit).unwrap_or(Unit::Count);
    let show = |value: f64| unit.format(value, 3).to_string();
    let interval =
        check.ci95.map_or_else(String::new, |[lo, hi]| format!(" [{}, {}]", show(lo), show(hi)));
    let [least, most] = check.bounds;
    let wanted = if unit == Unit::Share {
        format!("wanted {} to {}", exact(unit, least), exact(unit, most))
    } else {
        format!("wanted {} inside", exact(unit, least))
    };
    format!(
        "{}: {}{interval} in {} trials, {wanted}",
        check.claim,
        show(check.observed),
        check.trials
    )
}

/// A bound is a given number and not a measured one: no zeros are added to it.
fn exact(unit: Unit, value: f64) -> String {
    let mut formatted = unit.format(value, 3);
    if formatted.number.contains('.') {
        let trimmed = formatted.number.trim_end_matches('0').trim_end_matches('.');
        formatted.number = trimmed.to_owned();
    }
    formatted.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_is_counted_and_says_what_was_wanted() {
        let check = |passed| SelftestCheck {
            id: "aa.apart".to_owned(),
            claim: "nothing is called nothing".to_owned(),
            trials: 100,
            observed: 0.08,
            ci95: Some([0.04, 0.15]),
            bounds: [0.0, 0.05],
            unit: "share".to_owned(),
            passed,
            note: String::new(),
        };
        let document = SelftestDocument {
            schema: "plumb.selftest/1".to_owned(),
            code: "0".to_owned(),
            seed: 7,
            seconds: 61.0,
            passed: false,
            checks: vec![check(true), check(false)],
        };
        let text = render(&document, TerminalStyle { color: false, unicode: false, width: 100 });
        assert!(text.contains("FAIL  nothing is called nothing: 8.00%"), "{text}");
        assert!(text.contains("wanted 0% to 5%"), "{text}");
        assert!(text.ends_with("1 check failed in 61.0 s (seed 7)\n"), "{text}");
    }
}
