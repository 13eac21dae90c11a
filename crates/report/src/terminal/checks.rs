//! Checks of this program and of this host in a terminal: the self-test, a line a check, and what the host can and
//! cannot measure.

use plumb_analysis::document::host::{
    DoctorCheck, DoctorDocument, SelftestCheck, SelftestDocument,
};
use plumb_base::units::{Unit, significant};

use super::{TerminalPage, TerminalStyle, TextRole};

/// What a host can measure: checks that need attention first, each with its fix, then those that are fine.
pub fn doctor(document: &DoctorDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let (fine, poor): (Vec<&DoctorCheck>, Vec<&DoctorCheck>) =
        document.checks.iter().partition(|check| check.status == "ok");
    for check in &poor {
        let role = if check.status == "missing" { TextRole::Bad } else { TextRole::Warn };
        let status = style.paint(role, &check.status);
        let what = style.paint(TextRole::Bold, &style.to_charset(&check.what));
        page.out += &format!("{status} {what}\n");
        page.put(4, TextRole::Plain, &check.finding);
        page.put(4, TextRole::Plain, &check.why);
        if !check.fix.is_empty() {
            page.put(4, TextRole::Plain, &format!("→ {}", check.fix));
        }
    }
    if !poor.is_empty() && !fine.is_empty() {
        page.out.push('\n');
    }
    for check in &fine {
        let head = format!("{} ", style.paint(TextRole::Good, "ok"));
        let text = format!("{}: {}", check.what, check.finding);
        page.put_behind(&head, 3, TextRole::Plain, &text);
    }
    page.out += &format!("\n{} of {} checks are fine.\n", fine.len(), document.checks.len());
    page.out
}

/// The whole self-test, what was claimed and what was seen; ended by its verdict.
pub fn selftest(document: &SelftestDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    for check in &document.checks {
        let (mark, role) =
            if check.passed { ("pass", TextRole::Good) } else { ("FAIL", TextRole::Bad) };
        let head = format!("{}  ", style.paint(role, mark));
        page.put_behind(&head, 6, TextRole::Plain, &sentence(check));
        page.put(6, TextRole::Plain, &check.note);
    }
    let failed = document.checks.iter().filter(|check| !check.passed).count();
    let verdict = match failed {
        0 => format!("all {} checks passed", document.checks.len()),
        1 => "1 check failed".to_owned(),
        n => format!("{n} checks failed"),
    };
    let seconds = significant(document.seconds, 3);
    page.out += &format!("{verdict} in {seconds} s (seed {})\n", document.seed);
    page.out
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
        let style = TerminalStyle { unicode: false, ..TerminalStyle::plain(100) };
        let text = selftest(&document, style);
        assert!(text.contains("FAIL  nothing is called nothing: 8.00%"), "{text}");
        assert!(text.contains("wanted 0% to 5%"), "{text}");
        assert!(text.ends_with("1 check failed in 61.0 s (seed 7)\n"), "{text}");
    }
}
