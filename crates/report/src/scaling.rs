//! Tables and sentences of many machines, which terminal and page share.

use plumb_analysis::document::scale::{
    GrowthRate, ScaleDocument, ScaleLine, ScaleMachine, TwoTermModel,
};
use plumb_base::units::significant;

use crate::table::TextTable;
use crate::value;

/// What the page answers, in sentences.
pub fn sentences(document: &ScaleDocument) -> Vec<String> {
    let mut sentences = vec![format!(
        "{} machines; speed is the {}. A slope of 1 keeps up with processors; 0.5 means that a hundred times the speed \
         gives ten times as much.",
        document.machines.len(),
        document.speed_label
    )];
    if document.speed == "clock" {
        sentences.push(
            "A clock rate is less than speed: later processors do more in each cycle, so that slopes against it are \
             too steep. An index on each machine (plumb index) has no such bias."
                .to_owned(),
        );
    }
    let all = || document.lines.iter().filter(|line| line.class.is_empty());
    let lags = all().filter(|line| line.slope_ci95.is_some_and(|[_, hi]| hi < 1.0)).count();
    let keeps = all().filter(|line| line.slope_ci95.is_some_and(|[lo, _]| lo >= 1.0)).count();
    let fitted = all().filter(|line| line.slope.is_some()).count();
    if fitted > 0 {
        sentences.push(format!(
            "Of {fitted} quantities {lags} lag behind processors, {keeps} keep up, {} are open at 95 %.",
            fitted - lags - keeps
        ));
    }
    let better = document.models.iter().filter(|model| model.is_better).count();
    if !document.models.is_empty() {
        sentences.push(format!(
            "Memory beside the processor predicts machines that were left out better for {better} of {} quantities.",
            document.models.len()
        ));
    }
    let few = all().filter(|line| line.slope.is_none()).count();
    if few > 0 {
        sentences.push(format!(
            "{few} quantities have fewer than four machines: their points are shown, and no slope."
        ));
    }
    sentences
}

/// One row a line: quantity, machines, slope, and how far they reach.
pub fn lines<'a>(lines: impl IntoIterator<Item = &'a ScaleLine>) -> TextTable {
    let name = |line: &ScaleLine| match line.class.as_str() {
        "" => line.label.clone(),
        class => format!("{}, {class}", line.label),
    };
    TextTable::of_rows(
        lines,
        &[
            ("quantity", &name),
            ("#machines?", &|it| it.machines.to_string()),
            ("#slope", &|it| slope(it.slope, it.slope_ci95)),
            ("#Theil–Sen??", &|it| slope(it.theil_sen, it.theil_sen_ci95)),
            ("#speed?", &|it| it.speed_most.map_or_else(String::new, value::times)),
            ("#improvement?", &|it| it.improvement_most.map_or_else(String::new, value::times)),
        ],
    )
}

fn slope(slope: Option<f64>, ends: Option<[f64; 2]>) -> String {
    match (slope, ends) {
        (Some(slope), Some([lo, hi])) => format!("{slope:.2} [{lo:.2}, {hi:.2}]"),
        (Some(slope), None) => format!("{slope:.2}"),
        _ => "–".to_owned(),
    }
}

/// One row a model: exponents, and the errors on machines that were left out.
pub fn models(models: &[TwoTermModel]) -> TextTable {
    TextTable::of_rows(
        models,
        &[
            ("quantity", &|it: &TwoTermModel| it.label.clone()),
            ("#machines??", &|it| it.machines.to_string()),
            ("#processor", &|it| slope(Some(it.processor_slope), Some(it.processor_ci95))),
            ("#memory", &|it| slope(Some(it.memory_slope), Some(it.memory_ci95))),
            ("#error, one?", &|it| format!("×÷{}", significant(it.error_one, 3))),
            ("#two?", &|it| format!("×÷{}", significant(it.error_two, 3))),
            ("better", &|it| if it.is_better { "two" } else { "one" }.to_owned()),
        ],
    )
}

/// One row a rate of growth, with those that the document gives as lines.
pub fn growth(rates: &[GrowthRate]) -> TextTable {
    let mut table =
        TextTable::with_heads(&["quantity", "years?", "#doublings a year", "#months to double"]);
    for rate in rates {
        table.push([
            rate.label.clone(),
            format!("{:.0}–{:.0}", rate.from_year, rate.to_year),
            slope(Some(rate.doublings_a_year), Some(rate.doublings_ci95)),
            rate.doubling_months.map_or_else(|| "–".to_owned(), |months| significant(months, 2)),
        ]);
    }
    for (given, months) in GIVEN_RATES {
        let rate = significant(12.0 / months, 2);
        table.push([given.to_owned(), "given".to_owned(), rate, significant(months, 2)]);
    }
    table
}

/// Growth rates that are taken as given.
const GIVEN_RATES: [(&str, f64); 2] =
    [("Moore's law: processors", 18.0), ("Gilder's law: networks, slowest", 12.0)];

/// One row a machine.
pub fn machines(document: &ScaleDocument) -> TextTable {
    let year =
        |it: &ScaleMachine| it.year.map_or_else(String::new, |year| format!("{:.0}", year.floor()));
    TextTable::of_rows(
        &document.machines,
        &[
            ("machine", &|it: &ScaleMachine| it.name.clone()),
            ("class?", &|it| it.class.clone()),
            ("#year??", &year),
            ("#speed", &|it| speed(document, it)),
            ("#quantities?", &|it| it.values.len().to_string()),
            ("from???", &|it| it.basis.clone()),
        ],
    )
}

fn speed(document: &ScaleDocument, machine: &ScaleMachine) -> String {
    let Some(speed) = machine.speed.get(&document.speed) else { return "–".to_owned() };
    match document.speed.as_str() {
        "clock" => format!("{} MHz", significant(speed / 1e6, 4)),
        "integer" => format!("{} M/s", significant(speed / 1e6, 3)),
        _ => significant(*speed, 3),
    }
}
