//! How much each factor of a run matters, in a terminal.

use plumb_analysis::document::sensitivity::{FactorSensitivity, SensitivityDocument};
use plumb_base::units::significant;

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::name;
use crate::table::TextTable;
use crate::value;

/// For each response the factor that matters most, and a row for every factor.
pub fn render(document: &SensitivityDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let same = |a: &FactorSensitivity, b: &FactorSensitivity| {
        a.experiment == b.experiment && a.response == b.response
    };
    for factors in document.factors.chunk_by(same) {
        let first = &factors[0];
        page.put(
            0,
            TextRole::Bold,
            &format!("{}: {}", name::experiment(&first.experiment), first.response),
        );
        page.put(0, TextRole::Plain, &headline(first));
        let table = TextTable::of_rows(
            factors,
            &[
                ("factor", &|it: &FactorSensitivity| it.factor.clone()),
                ("from", &|it| it.levels[0].clone()),
                ("to", &|it| it.levels[1].clone()),
                ("#cost", &|it| ratio(it.ratio, Some(it.ratio_ci95))),
                ("#sensitivity", &|it| {
                    it.sensitivity.map_or_else(String::new, |at| number(at, it.sensitivity_ci95))
                }),
                ("#all settings?", &|it| {
                    format!("{}–{}", value::times(it.range[0]), value::times(it.range[1]))
                }),
                ("#settings??", &|it| it.settings.to_string()),
            ],
        );
        page.out += &table.render(style);
        page.out.push('\n');
    }
    if document.undecided > 0 {
        let text = format!(
            "{} more settings have too few launches to be compared: measure with --launches 6.",
            document.undecided
        );
        page.put(0, TextRole::Warn, &text);
    }
    let text = "Cost of the second level over the first, in the setting with the median; sensitivity is its relative change over that of \
                the factor: 1 in proportion, 0 no effect, below 0 more costs less. Words are compared cheapest with dearest.";
    page.put(0, TextRole::Dim, text);
    page.out
}

fn headline(first: &FactorSensitivity) -> String {
    let FactorSensitivity { factor, levels: [from, to], .. } = first;
    let cost = ratio(first.ratio, Some(first.ratio_ci95));
    format!("{factor} matters most: from {from} to {to} costs {cost}.")
}

fn ratio(value: f64, ci95: Option<[f64; 2]>) -> String {
    let ends =
        ci95.map(|[low, high]| format!(" [{}, {}]", significant(low, 3), significant(high, 3)));
    value::times(value) + &ends.unwrap_or_default()
}

fn number(value: f64, ci95: Option<[f64; 2]>) -> String {
    let ends = ci95.map(|[low, high]| format!(" [{low:.2}, {high:.2}]"));
    format!("{value:.2}{}", ends.unwrap_or_default())
}
