//! `plumb model`: what a message costs as a sum of terms, fitted to a stored run; `plumb predict`: what it would cost at another
//! size, or if something were different.
//!
//! Errors of predictions that were scored are kept with the run that they were made from: intervals of later ones come of them.

use std::collections::BTreeSet;

use clap::Args;
use plumb_analysis::cost_model::{self, CostChange, CostModel, PredictedCost};
use plumb_analysis::document::model::{
    CostPrediction, MODEL_SCHEMA, ModelDocument, PREDICT_SCHEMA, PredictDocument,
};
use plumb_analysis::summary::{MeasuredCell, factor_values, measured_cells};
use plumb_base::units::parse_bytes;
use plumb_base::units::quantity::{parse_rate, parse_span};
use plumb_report::terminal;
use plumb_store::record::RunData;
use plumb_store::sqlite::{Store, StoreMode};

use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Predict what a message costs at other sizes, with a faster CPU or memory, over a link
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The model is that of 'plumb model'. A faster CPU divides what is fixed, per byte and per packet; faster
memory divides what bytes beyond the caches cost more; batching shares what is fixed.
Scores are kept: later predictions of the same kind of change have intervals from the errors of those before.

Examples:
  plumb predict last --size 3000,100k
  plumb predict last --mechanism tcp4 --cpu 2x --memory 0.5x
  plumb predict last --mechanism tcp4 --rtt 50ms --rate 1gbit --mtu 9000 --batch 32
  plumb predict last~1 --score last        how well a run predicts a later one
  plumb predict last --score left-out      how well its sizes predict one another
  plumb predict last --score parts         how well TLS and HTTP over a Unix socket follow from their parts"
)]
pub struct PredictCommand {
    /// The run that models are fitted to: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Only models whose mechanism is this
    #[arg(long, value_name = "NAME")]
    mechanism: Option<String>,
    /// Only models of this response: latency, throughput, throughput.acked
    #[arg(long, value_name = "NAME")]
    response: Option<String>,
    /// Message sizes
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = parse_size)]
    #[arg(default_value = "64,4Ki,64Ki")]
    size: Vec<u64>,
    /// How much faster the processor would be: 2x, 0.5x
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, default_value = "1x")]
    cpu: f64,
    /// How much faster memory would be
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, default_value = "1x")]
    memory: f64,
    /// Round-trip time of a network that would be added
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// Rate of a link that messages would go through
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Bytes of a packet
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(576..=65_536))]
    mtu: Option<u64>,
    /// Messages that would share what is fixed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: Option<u32>,
    /// Compare predictions with a run, with 'left-out' sizes of the same, or with mechanisms made of measured 'parts'
    #[arg(long, value_name = "RUN|left-out|parts")]
    score: Option<String>,
}

/// A factor beyond this is no what-if of these models.
const FACTOR_MAX: f64 = 100.0;

fn parse_factor(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim().trim_end_matches(['x', '×']).parse().ok();
    match number {
        Some(factor) if (1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&factor) => Ok(factor),
        Some(factor) if factor.is_finite() => Err(format!(
            "{factor} is not between 0.01 and 100, and a model says nothing of such machines: write 2x or 0.5x"
        )),
        _ => Err("it is not a factor: write 2x or 0.5x".to_owned()),
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text).map_err(|error| error.to_string())? {
        0 => Err("a message has at least one byte".to_owned()),
        size => Ok(size),
    }
}

impl PredictCommand {
    /// Fits the models of the run, and prints what they predict.
    ///
    /// # Errors
    /// No such run or mechanism, a change that the models say nothing of.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let data = store::read(global, &self.run)?;
        let measured = measured_cells(&data);
        let (models, _) = models_of(&data, &measured)?;
        let models = self.chosen(models)?;
        let change = self.change()?;
        let stretch = cost_model::stretch(&models);
        let mut document = PredictDocument {
            schema: PREDICT_SCHEMA.to_owned(),
            run: data.run.id.clone(),
            changes: self.changes(),
            predictions: Vec::new(),
            scope: Vec::new(),
            score: None,
            against: None,
        };
        if let Some(against) = self.score.as_deref() {
            let compared = match against {
                "left-out" => cost_model::left_out_pairs(&models),
                "parts" => {
                    document.against = Some("parts".to_owned());
                    cost_model::pairs_from_parts(&measured)
                }
                run => {
                    let later = store::read(global, run)?;
                    document.against = Some(later.run.id.clone());
                    let pairs = cost_model::later_pairs(&models, &measured_cells(&later), &change);
                    pairs.into_iter().map(|(ns, it)| (ns, it.stretched(stretch))).collect()
                }
            };
            score(&mut document, against, compared, &change, global)?;
        } else {
            let store = store::open(global, StoreMode::Read)?;
            let kept = kept_errors(&store, &change.kind(), None)?;
            for model in &models {
                let of = |size: &u64| prediction(model, *size, &change, (stretch, &kept));
                document.predictions.extend(self.size.iter().filter_map(of));
            }
            if document.predictions.is_empty() {
                return Err(Problem::usage("no model says anything of another MTU")
                    .because(
                        "none has a term of packets: its sizes fit in one, or its mechanism has none",
                    )
                    .fix("measure over a link: plumb run latency.remote --set mechanism=tcp4")
                    .into());
            }
            let without = models.len() * self.size.len() - document.predictions.len();
            document.scope = scope(&change, kept.len(), without);
        }
        output.show(&document, |style| terminal::model::predictions(&document, style))?;
        Ok(ExitReason::Success)
    }

    fn chosen(&self, models: Vec<CostModel>) -> Result<Vec<CostModel>, Problem> {
        let mechanism =
            |model: &CostModel| model.factors.text("mechanism").unwrap_or("").to_owned();
        let models = only(models, "mechanism", self.mechanism.as_deref(), mechanism)?;
        only(models, "response", self.response.as_deref(), |model| model.response.clone())
    }

    fn change(&self) -> Result<CostChange, Problem> {
        let rtt = self.rtt.as_deref().map(parse_span).transpose().map_err(Problem::rejected)?;
        let rate = self.rate.as_deref().map(parse_rate).transpose().map_err(Problem::rejected)?;
        Ok(CostChange {
            cpu: self.cpu,
            memory: self.memory,
            rtt_ns: rtt.map_or(0.0, |rtt| rtt.as_ps() as f64 / 1e3),
            rate: rate.map(|rate| rate.bits_per_second() as f64 / 8.0),
            mtu: self.mtu,
            batch: f64::from(self.batch.unwrap_or(1)),
        })
    }

    fn changes(&self) -> Vec<String> {
        let factor = |what: &str, by: f64| {
            ((by - 1.0).abs() > f64::EPSILON).then(|| format!("{what} {by} times as fast"))
        };
        let added = |what: &str, it: &Option<String>| it.as_ref().map(|it| format!("{what} {it}"));
        let changes = [
            factor("a processor", self.cpu),
            factor("memory", self.memory),
            added("a round trip of", &self.rtt),
            added("a link of", &self.rate),
            self.mtu.map(|mtu| format!("packets of {mtu} B")),
            self.batch.map(|batch| format!("{batch} messages a call")),
        ];
        changes.into_iter().flatten().collect()
    }
}

/// The models whose `what` is the wanted one; all where none is wanted.
fn only(
    models: Vec<CostModel>,
    what: &str,
    wanted: Option<&str>,
    name: impl Fn(&CostModel) -> String,
) -> Result<Vec<CostModel>, Problem> {
    let Some(wanted) = wanted else { return Ok(models) };
    let names: BTreeSet<String> = models.iter().map(&name).collect();
    let kept: Vec<CostModel> = models.into_iter().filter(|it| name(it) == wanted).collect();
    if kept.is_empty() {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(Problem::usage(format!("there is no model of {what} '{wanted}'"))
            .because(format!("the run has models of {}", known.join(", ")))
            .suggest(wanted, known));
    }
    Ok(kept)
}

/// Scores predictions, of what-ifs and parts with the intervals that others' errors give, and keeps their errors for others.
fn score(
    document: &mut PredictDocument,
    against: &str,
    mut compared: Vec<(f64, PredictedCost)>,
    change: &CostChange,
    global: &GlobalOptions,
) -> Result<(), Problem> {
    if compared.is_empty() {
        return Err(Problem::usage(format!("{against} has nothing that these models predict"))
            .because("mechanisms and settings must be the same, and sizes within those measured")
            .fix("measure the same plan again: plumb rerun RUN"));
    }
    let kind = match against {
        "left-out" => String::new(),
        "parts" => against.to_owned(),
        _ => change.kind(),
    };
    let mut kept = Vec::new();
    if !kind.is_empty() {
        // Parts and their whole are of one run.
        let of = document.against.as_deref().filter(|it| *it != "parts");
        let of = of.unwrap_or(&document.run);
        let errors: Vec<f64> = compared.iter().map(|(ns, it)| it.log_error(*ns)).collect();
        keep_errors(&errors, &kind, [&document.run, of], global)?;
        kept = kept_errors(&store::open(global, StoreMode::Read)?, &kind, Some(of))?;
    }
    for (_, predicted) in &mut compared {
        *predicted = predicted.calibrated(&kept);
    }
    document.score = Some(cost_model::score(&compared));
    document.scope = scope(change, kept.len(), 0);
    Ok(())
}

/// What a model predicts of a size; none where it says nothing of the change.
fn prediction(
    model: &CostModel,
    size: u64,
    change: &CostChange,
    (stretch, kept): (f64, &[f64]),
) -> Option<CostPrediction> {
    let now = model.predict(size, &CostChange::NONE)?;
    let predicted = model.predict(size, change)?.stretched(stretch).calibrated(kept);
    Some(CostPrediction {
        experiment: model.experiment.clone(),
        response: model.response.clone(),
        factors: factor_values(&model.factors),
        size,
        now_ns: now.ns,
        predicted_ns: predicted.ns,
        interval: predicted.interval,
        is_extrapolated: model.is_beyond(size),
    })
}

/// What predictions rest on.
fn scope(change: &CostChange, kept: usize, without: usize) -> Vec<String> {
    let mut scope = vec![
        "Intervals hold for this machine, kernel and placement; * is outside the sizes that were measured.".to_owned(),
    ];
    if kept > 0 {
        scope.push(format!(
            "They are those of {kept} errors of such predictions that were scored before."
        ));
    } else if *change != CostChange::NONE {
        scope.push(
            "A change is assumed to divide its terms and nothing else; what a real one does to caches and wake-ups is \
             not in the interval until such predictions were scored (--score)."
                .to_owned(),
        );
    }
    if without > 0 {
        scope.push(format!("{without} predictions are left out: their models have no packets."));
    }
    scope
}

/// Fit what a message costs: fixed, per byte, per packet and by wake-up, with intervals
#[derive(Clone, Debug, Args)]
#[command(after_help = "A model needs a mechanism at four sizes or more:
  time = fixed + per byte · size + beyond caches · max(0, size − 256 KiB) + per packet · packets
Terms are those that predict sizes which were left out best; residuals are relative.

Examples:
  plumb run latency.local --set mechanism=pipe,tcp4 && plumb model last
  plumb model last --residuals
  plumb model last --json | jq '.models[].terms'")]
pub struct ModelCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Print measured, fitted and left-out values of every size
    #[arg(long)]
    residuals: bool,
}

impl ModelCommand {
    /// Fits and prints the models.
    ///
    /// # Errors
    /// No such run, or one without a mechanism at enough sizes.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let data = store::read(global, &self.run)?;
        let measured = measured_cells(&data);
        let (models, without) = models_of(&data, &measured)?;
        let document = ModelDocument {
            schema: MODEL_SCHEMA.to_owned(),
            run: data.run.id.clone(),
            entry_ns: entry(&measured),
            models: models.iter().map(|model| model.entry(one_cpu(model, &models))).collect(),
            without,
            score: cost_model::score(&cost_model::left_out_pairs(&models)),
        };
        output
            .show(&document, |style| terminal::model::models(&document, self.residuals, style))?;
        Ok(ExitReason::Success)
    }
}

/// The models of a run, and the settings that have none.
///
/// # Errors
/// It has no model at all.
pub fn models_of(
    data: &RunData,
    measured: &[MeasuredCell<'_>],
) -> Result<(Vec<CostModel>, Vec<String>), Problem> {
    let (models, without) = cost_model::models(measured);
    if models.is_empty() {
        return Err(Problem::usage(format!("run {} has nothing to fit a model to", data.run.id))
            .because("a model needs the latency or throughput of a mechanism at four sizes or more")
            .fix("measure some: plumb run latency.local --set size=1,64,1Ki,16Ki,64Ki"));
    }
    Ok((models, without))
}

/// The median of an empty kernel call, where it was measured.
fn entry(measured: &[MeasuredCell<'_>]) -> Option<f64> {
    let is_empty = |cell: &&MeasuredCell<'_>| {
        matches!(cell.cell.experiment.as_str(), "call.kernel" | "scaling.entry")
            && cell.is("call", "getppid")
    };
    measured.iter().find(is_empty).map(MeasuredCell::median)
}

/// The fixed term of the same mechanism with both processes on one CPU.
fn one_cpu(model: &CostModel, models: &[CostModel]) -> Option<f64> {
    model.factors.text("placement").filter(|placement| *placement != "same-cpu")?;
    let twin = model.factors.clone().with("placement", "same-cpu");
    let is_twin = |other: &&CostModel| {
        other.factors == twin
            && other.experiment == model.experiment
            && other.response == model.response
    };
    models.iter().find(is_twin).map(CostModel::fixed_ns)
}

/// What the names of kept errors begin with; the kind of prediction follows, and the runs that predicted and measured.
const ERRORS_SCHEMA: &str = "plumb.prediction-errors/1";

/// Keeps errors, as logarithms of measured to predicted, of predictions of a kind from a run, scored against another.
///
/// # Errors
/// The store cannot be written.
pub fn keep_errors(
    errors: &[f64],
    kind: &str,
    [run, against]: [&str; 2],
    global: &GlobalOptions,
) -> Result<(), Problem> {
    let mut store = store::open(global, StoreMode::Write)?;
    let json = serde_json::to_string(errors)
        .map_err(|error| Problem::failure("cannot write the errors as JSON").because(error))?;
    store.put_attachment(run, &format!("{ERRORS_SCHEMA} {kind} {run} {against}"), &json)?;
    Ok(())
}

/// The errors kept of predictions of this kind, but for those scored against a run.
///
/// # Errors
/// The store cannot be read.
pub fn kept_errors(store: &Store, kind: &str, but: Option<&str>) -> Result<Vec<f64>, Problem> {
    let mut errors: Vec<f64> = Vec::new();
    for (name, json) in store.attachments(&format!("{ERRORS_SCHEMA} {kind} "))? {
        if but.is_none_or(|run| !name.ends_with(&format!(" {run}"))) {
            let more: Vec<f64> = serde_json::from_str(&json)
                .map_err(|error| Problem::failure(format!("cannot read {name}")).because(error))?;
            errors.extend(more);
        }
    }
    Ok(errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_factors_are_refused() {
        for text in ["0", "0x", "1000000x", "-2x", "nan", "fast", "inf"] {
            assert!(parse_factor(text).is_err(), "{text}");
        }
        assert_eq!(parse_factor("0.5x"), Ok(0.5));
        assert!(parse_size("0").is_err());
    }
}
