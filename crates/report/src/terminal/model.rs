//! Cost models, their predictions, and how much each factor of a run matters, in a terminal.

use std::collections::BTreeMap;

use plumb_analysis::document::model::{
    CostPrediction, FactorSensitivity, FittedModel, ModelDocument, ModelResidual, PredictDocument,
    PredictionScore, SensitivityDocument,
};
use plumb_base::units::{Unit, format_bytes, significant};

use super::{TerminalPage, TerminalStyle, TextRole};
use crate::table::TextTable;
use crate::{name, value};

/// Every model with its terms, and with its residuals where they are asked for.
pub fn models(document: &ModelDocument, residuals: bool, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if let Some(entry) = document.entry_ns {
        let entry = value::plain(Unit::Nanoseconds, entry);
        page.put(0, TextRole::Plain, &format!("An empty kernel call takes {entry} in this run."));
    }
    let mut table = TextTable::with_heads(&[
        "mechanism",
        "#fixed",
        "#per KiB",
        "#more beyond caches?",
        "#per packet??",
        "#wake-up??",
    ]);
    for model in &document.models {
        let ns = |name: &str, times: f64| {
            let term = model.terms.iter().find(|term| term.name == name)?;
            let ends = term.ci95.map(|end| end * times);
            Some(value::with_interval(Unit::Nanoseconds, term.ns * times, Some(ends)))
        };
        let term = |name: &str, times: f64| ns(name, times).unwrap_or_default();
        table.push([
            label(&model.experiment, &model.response, &model.factors),
            term("fixed", 1.0),
            term("byte", 1024.0),
            term("byte-beyond-caches", 1024.0),
            term("packet", 1.0),
            model.wake_up_ns.map_or_else(String::new, |ns| value::plain(Unit::Nanoseconds, ns)),
        ]);
    }
    table.drop_empty_columns();
    page.out += &table.render(style);
    if residuals {
        for model in &document.models {
            put_residuals(&mut page, model);
        }
    }
    page.put(0, TextRole::Plain, &score(&document.score, "sizes that were left out"));
    for without in &document.without {
        page.put(0, TextRole::Dim, &format!("no model, which needs four sizes: {without}"));
    }
    page.out
}

fn put_residuals(page: &mut TerminalPage, model: &FittedModel) {
    page.out.push('\n');
    page.put(0, TextRole::Bold, &label(&model.experiment, &model.response, &model.factors));
    let time = |ns: f64| value::plain(Unit::Nanoseconds, ns);
    let share = |ns: f64, of: f64| format!("{:+.1}%", (ns / of - 1.0) * 100.0);
    let table = TextTable::of_rows(
        &model.residuals,
        &[
            ("#size", &|it: &ModelResidual| format_bytes(it.size)),
            ("#measured", &|it| time(it.measured_ns)),
            ("#fitted", &|it| time(it.fitted_ns)),
            ("#error", &|it| share(it.fitted_ns, it.measured_ns)),
            ("#left out?", &|it| {
                it.left_out_ns.map_or_else(String::new, |ns| share(ns, it.measured_ns))
            }),
        ],
    );
    page.out += &table.render(page.style);
}

/// Predictions, what they rest on, and their score.
pub fn predictions(document: &PredictDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    if !document.changes.is_empty() {
        page.put(0, TextRole::Bold, &format!("With {}", document.changes.join(", ")));
    }
    if let Some(found) = &document.score {
        let of = match document.against.as_deref() {
            Some("parts") => "mechanisms made of measured parts".to_owned(),
            Some(run) => format!("measurements of {run}"),
            None => "sizes that were left out".to_owned(),
        };
        page.put(0, TextRole::Bold, &score(found, &of));
    }
    if !document.predictions.is_empty() {
        let time = |ns: f64| value::plain(Unit::Nanoseconds, ns);
        let mut table =
            TextTable::with_heads(&["mechanism", "#size", "#now?", "#predicted", "#change?"]);
        for it in &document.predictions {
            let CostPrediction { predicted_ns, interval, .. } = it;
            let mark = if it.is_extrapolated { "*" } else { "" };
            table.push([
                label(&it.experiment, &it.response, &it.factors),
                format!("{}{mark}", format_bytes(it.size)),
                time(it.now_ns),
                value::with_interval(Unit::Nanoseconds, *predicted_ns, Some(*interval)),
                value::times(predicted_ns / it.now_ns),
            ]);
        }
        page.out += &table.render(style);
    }
    for line in &document.scope {
        page.put(0, TextRole::Dim, line);
    }
    page.out
}

fn score(score: &PredictionScore, of: &str) -> String {
    let percent = |share: Option<f64>| value::optional(Unit::Share, share);
    format!(
        "{} predictions of {of}: median error {}, 90th percentile {}; {} lie in their 95 % interval.",
        score.predictions,
        percent(score.error_median),
        percent(score.error_p90),
        percent(score.coverage),
    )
}

/// `pipe same-cpu block, latency`.
fn label(
    experiment: &str,
    response: &str,
    factors: &BTreeMap<String, serde_json::Value>,
) -> String {
    let word = |name: &str| factors.get(name).and_then(|level| level.as_str()).map(str::to_owned);
    let first = word("mechanism").unwrap_or_else(|| experiment.to_owned());
    let others = factors.iter().filter(|(name, _)| name.as_str() != "mechanism");
    let others = others.map(|(name, level)| match level.as_str() {
        Some(text) => text.to_owned(),
        None => format!("{name} {level}"),
    });
    let words: Vec<String> = [first].into_iter().chain(others).collect();
    let response = if response == "latency" { "" } else { response };
    [&words.join(" "), response]
        .iter()
        .filter(|it| !it.is_empty())
        .map(|it| (**it).to_owned())
        .collect::<Vec<_>>()
        .join(", ")
}

/// For each response the factor that matters most, and a row for every factor.
pub fn sensitivity(document: &SensitivityDocument, style: TerminalStyle) -> String {
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
