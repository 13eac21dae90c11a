//! Plans as TOML: every fault of one that is read names its line and the nearest word that would do.
//!
//! The document is walked by hand, not derived, because a derived reader forgets where a value
//! stood as soon as it has it.

use std::fmt::Write as _;
use std::ops::Range;

use plumb_base::time::Span;
use plumb_base::units::quantity::{format_span, parse_span};
use plumb_store::record::FactorLevel;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::resolve::{domain, resolve};
use super::{PlannedExperiment, RunPlan};
use crate::definition::Experiment;
use crate::error::{ExperimentError, nearest};
use crate::factor::LevelContext;
use crate::list::{self, ExperimentRequest};
use crate::preset::{RunLimits, RunPreset};

use crate::surroundings::Surroundings;

const TOP: [&str; 6] = ["title", "seed", "preset", "limits", "interleave", "experiment"];
const LIMITS: [&str; 7] =
    ["budget", "launches_min", "launches_max", "passes", "block", "samples_max", "precision"];
const EXPERIMENT: [&str; 2] = ["id", "factors"];

impl RunPlan {
    /// Reads a plan; what it leaves out is filled in from its preset.
    ///
    /// `origin` names the text in messages.
    ///
    /// # Errors
    /// Text that is not TOML, misspelt keys, ids or levels, impossible limits: each with its line.
    pub fn from_toml(
        text: &str,
        origin: &str,
        surroundings: &Surroundings,
    ) -> Result<Self, ExperimentError> {
        let reader = PlanReader { text, origin, surroundings };
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| reader.line(&span));
            ExperimentError::usage(format!("{origin}, line {line}: this is not TOML"))
                .because(error.message())
                .fix("see plumb run --help for a plan that is")
        })?;
        reader.plan(table.get_ref())
    }
}

type TomlKey<'i> = Spanned<std::borrow::Cow<'i, str>>;
type TomlValue<'i> = Spanned<DeValue<'i>>;

struct PlanReader<'a> {
    text: &'a str,
    origin: &'a str,
    surroundings: &'a Surroundings,
}

impl PlanReader<'_> {
    fn plan(&self, table: &DeTable<'_>) -> Result<RunPlan, ExperimentError> {
        self.check_keys(table, "a plan", &TOP)?;
        let preset = match table.get("preset") {
            None => RunPreset::default(),
            Some(value) => {
                let name = self.word(value, "preset")?;
                RunPreset::from_name(&name).ok_or_else(|| {
                    self.fault(value, format!("there is no preset '{name}'"))
                        .suggest(&name, RunPreset::ALL.map(RunPreset::name))
                })?
            }
        };
        let mut limits = preset.limits();
        if let Some(value) = table.get("limits") {
            self.limits(self.table(value, "limits")?, &mut limits)?;
        }
        let seed = table.get("seed").map(|value| self.seed(value)).transpose()?;
        let entries = table.get("experiment").ok_or_else(|| {
            ExperimentError::usage(format!("{}: a plan needs an [[experiment]]", self.origin))
                .because("it says what to measure")
                .fix("add [[experiment]] and id = \"latency.local\"")
        })?;
        let DeValue::Array(entries_in) = entries.get_ref() else {
            return Err(self
                .fault(entries, "'experiment' is not a list")
                .fix("write it as [[experiment]], with two brackets"));
        };
        let mut experiments = Vec::new();
        for entry in entries_in {
            experiments.extend(self.experiment(self.table(entry, "experiment")?, entry, preset)?);
        }
        let title = match table.get("title") {
            Some(value) => self.word(value, "title")?,
            None => experiments.first().map_or_else(|| "plan".to_owned(), |first| first.id.clone()),
        };
        let interleave = match table.get("interleave") {
            None => None,
            Some(value) => {
                let name = self.word(value, "interleave")?;
                if !experiments.iter().any(|planned| planned.factors.contains_key(&name)) {
                    let fault =
                        self.fault(value, format!("no experiment here has factor '{name}'"));
                    return Err(fault.fix("name the factor whose levels are to be compared"));
                }
                Some(name)
            }
        };
        Ok(RunPlan { title, seed, limits, interleave, experiments })
    }

    fn experiment(
        &self,
        table: &DeTable<'_>,
        at: &TomlValue<'_>,
        preset: RunPreset,
    ) -> Result<Vec<PlannedExperiment>, ExperimentError> {
        self.check_keys(table, "an experiment", &EXPERIMENT)?;
        let Some(id_value) = table.get("id") else {
            return Err(self
                .fault(at, "this experiment has no id")
                .fix("add id = \"latency.local\"; plumb list experiments shows them all"));
        };
        let id = self.word(id_value, "id")?;
        let experiment = list::find(&id).map_err(|problem| self.locate(id_value, problem))?;
        let mut request = ExperimentRequest::bare(experiment);
        if let Some(value) = table.get("factors") {
            for (key, levels) in self.table(value, "factors")? {
                let chosen = self.levels(experiment, key, levels)?;
                request.chosen.insert(key.get_ref().to_string(), chosen);
            }
        }
        resolve(&request, &LevelContext { preset, surroundings: self.surroundings })
            .map_err(|problem| self.locate(at, problem))
    }

    fn levels(
        &self,
        experiment: &Experiment,
        key: &TomlKey<'_>,
        value: &TomlValue<'_>,
    ) -> Result<Vec<FactorLevel>, ExperimentError> {
        let name = key.get_ref().as_ref();
        let kind =
            domain(experiment, name).map_err(|problem| self.locate_span(&key.span(), problem))?;
        let read = |value: &TomlValue<'_>| {
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
                DeValue::Boolean(on) => if *on { "on" } else { "off" }.to_owned(),
                _ => {
                    return Err(
                        self.fault(value, format!("a level of '{name}' is a word or a number"))
                    );
                }
            };
            kind.parse(name, &text).map_err(|problem| self.locate(value, problem))
        };
        let levels = match value.get_ref() {
            DeValue::Array(values) => values.iter().map(read).collect::<Result<Vec<_>, _>>()?,
            _ => vec![read(value)?],
        };
        if levels.is_empty() {
            return Err(self
                .fault(value, format!("factor '{name}' has no levels"))
                .fix("give it one, or leave the line out to have the preset's"));
        }
        Ok(levels)
    }

    fn limits(&self, table: &DeTable<'_>, limits: &mut RunLimits) -> Result<(), ExperimentError> {
        self.check_keys(table, "limits", &LIMITS)?;
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "budget" => limits.budget = self.budget(value)?,
                "block" => limits.block = self.block(value)?,
                "launches_min" => limits.launches_min = self.count(value, key, 1, 100_000)?,
                "launches_max" => limits.launches_max = self.count(value, key, 1, 100_000)?,
                "passes" => limits.passes = self.count(value, key, 1, 1_000)?,
                "samples_max" => limits.samples_max = self.count(value, key, 10, 10_000_000)?,
                _ => limits.precision = self.precision(value)?,
            }
        }
        match ["launches_min", "launches_max"].map(|key| table.get(key).is_some()) {
            [true, false] => limits.launches_max = limits.launches_max.max(limits.launches_min),
            [false, true] => limits.launches_min = limits.launches_min.min(limits.launches_max),
            _ => {}
        }
        if let Some(value) = table.get("launches_min")
            && limits.launches_min > limits.launches_max
        {
            return Err(self
                .fault(value, "launches_min is larger than launches_max")
                .fix("make launches_max at least as large"));
        }
        Ok(())
    }

    fn budget(&self, value: &TomlValue<'_>) -> Result<Option<Span>, ExperimentError> {
        if self.word(value, "budget")? == "none" {
            return Ok(None);
        }
        let span = self.span(value, "budget")?;
        (span > Span::ZERO).then_some(Some(span)).ok_or_else(|| {
            self.fault(value, "a budget of nothing measures nothing")
                .fix("give it some time, such as \"2m\", or \"none\" for no limit")
        })
    }

    fn block(&self, value: &TomlValue<'_>) -> Result<Span, ExperimentError> {
        let span = self.span(value, "block")?;
        let is_possible = (Span::from_ms(1)..=Span::from_secs(60)).contains(&span);
        let refused = || self.fault(value, "a block lasts from 1ms to 60s");
        is_possible.then_some(span).ok_or_else(refused)
    }

    fn span(&self, value: &TomlValue<'_>, key: &str) -> Result<Span, ExperimentError> {
        parse_span(&self.word(value, key)?).map_err(|error| self.fault(value, error.to_string()))
    }

    fn precision(&self, value: &TomlValue<'_>) -> Result<f64, ExperimentError> {
        let number = match value.get_ref() {
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            DeValue::String(text) => text
                .strip_suffix('%')
                .and_then(|percent| percent.trim().parse::<f64>().ok())
                .map(|percent| percent / 100.0),
            _ => None,
        };
        number.filter(|share| *share > 0.0 && *share < 1.0).ok_or_else(|| {
            self.fault(value, "precision is a share of the median between 0 and 1")
                .fix("write 0.02, or \"2%\"")
        })
    }

    fn seed(&self, value: &TomlValue<'_>) -> Result<u64, ExperimentError> {
        let text = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::String(text) => text.to_string(),
            _ => String::new(),
        };
        text.parse().map_err(|_| self.fault(value, "a seed is a whole number from 0 to 2^64 − 1"))
    }

    fn count(
        &self,
        value: &TomlValue<'_>,
        key: &TomlKey<'_>,
        least: u32,
        most: u32,
    ) -> Result<u32, ExperimentError> {
        let number = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            _ => None,
        };
        number.filter(|n| (least..=most).contains(n)).ok_or_else(|| {
            self.fault(value, format!("{} is a whole number from {least} to {most}", key.get_ref()))
        })
    }

    fn word(&self, value: &TomlValue<'_>, key: &str) -> Result<String, ExperimentError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(self.fault(value, format!("'{key}' is text in quotes"))),
        }
    }

    fn table<'v, 'i>(
        &self,
        value: &'v TomlValue<'i>,
        key: &str,
    ) -> Result<&'v DeTable<'i>, ExperimentError> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.fault(value, format!("'{key}' is a table of its own"))),
        }
    }

    fn check_keys(
        &self,
        table: &DeTable<'_>,
        of: &str,
        known: &[&str],
    ) -> Result<(), ExperimentError> {
        let unknown = table
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        let Some(key) = unknown else { return Ok(()) };
        let name = key.get_ref().as_ref();
        let problem = ExperimentError::usage(format!("unknown key '{name}'"))
            .because(format!("{of} has {}", known.join(", ")));
        let problem = match nearest(name, known.iter().copied()) {
            Some(near) => problem.fix(format!("did you mean '{near}'?")),
            None => problem.fix("remove it, or spell it as one of these"),
        };
        Err(self.locate_span(&key.span(), problem))
    }

    fn fault(&self, at: &TomlValue<'_>, what: impl Into<String>) -> ExperimentError {
        self.locate(at, ExperimentError::usage(what))
    }

    fn locate(&self, at: &TomlValue<'_>, problem: ExperimentError) -> ExperimentError {
        self.locate_span(&at.span(), problem)
    }

    /// The problem with the line where it stands.
    fn locate_span(&self, span: &Range<usize>, problem: ExperimentError) -> ExperimentError {
        let what = format!("{}, line {}: {}", self.origin, self.line(span), problem.what);
        ExperimentError { what, ..problem }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
    }
}

impl RunPlan {
    /// The plan as TOML, complete: `plumb run` of it measures the same cells on the same host.
    pub fn to_toml(&self) -> String {
        let mut text = format!("title = {}\n", quoted(&self.title));
        if let Some(seed) = self.seed {
            // TOML integers are signed; a seed is any 64 bits.
            let _ = writeln!(text, "seed = \"{seed}\"");
        }
        if let Some(factor) = &self.interleave {
            let _ = writeln!(text, "interleave = {}", quoted(factor));
        }
        write_limits(&mut text, &self.limits);
        for planned in &self.experiments {
            let _ = write!(text, "\n[[experiment]]\nid = {}\n", quoted(&planned.id));
            text.push_str("[experiment.factors]\n");
            let experiment = list::from_id(&planned.id);
            for (name, levels) in &planned.factors {
                let domain = experiment.and_then(|e| e.factor(name)).map(|factor| factor.domain);
                let spelt: Vec<String> = levels
                    .iter()
                    .map(|level| {
                        let spelt = domain.map_or_else(|| level.to_string(), |d| d.spell(level));
                        match level {
                            FactorLevel::Int(n) if spelt == n.to_string() => spelt,
                            _ => quoted(&spelt),
                        }
                    })
                    .collect();
                let _ = writeln!(text, "{} = [{}]", key(name), spelt.join(", "));
            }
        }
        text
    }
}

fn write_limits(text: &mut String, limits: &RunLimits) {
    let budget = limits.budget.map_or_else(|| "none".to_owned(), format_span);
    let _ = write!(
        text,
        "\n[limits]\nbudget = {}\nlaunches_min = {}\nlaunches_max = {}\npasses = {}\n\
         block = {}\nsamples_max = {}\nprecision = {:?}\n",
        quoted(&budget),
        limits.launches_min,
        limits.launches_max,
        limits.passes,
        quoted(&format_span(limits.block)),
        limits.samples_max,
        limits.precision,
    );
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A TOML key: bare where it may be.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"title = "pipes against sockets"
seed = 42

[limits]
budget = "90s"
launches_min = 4
launches_max = 6
block = "25ms"
precision = "1%"

[[experiment]]
id = "latency.local"
[experiment.factors]
mechanism = ["pipe", "tcp4", "eventfd"]
size = [64, "4Ki"]
placement = "same-cpu"
"#;

    #[test]
    fn a_plan_reads_as_it_is_written_and_keeps_what_it_says() {
        let plan = RunPlan::from_toml(PLAN, "p.toml", &Surroundings::NONE).unwrap();
        assert_eq!(plan.seed, Some(42));
        assert_eq!(plan.limits.budget, Some(Span::from_secs(90)));
        assert_eq!(plan.limits.passes, RunPreset::Default.limits().passes);
        assert!((plan.limits.precision - 0.01).abs() < 1e-12);
        // TCP has a congestion control, the others do not.
        assert_eq!(plan.experiments.len(), 2);
        assert_eq!(
            plan.experiments[0].factors["size"],
            vec![FactorLevel::Int(64), FactorLevel::Int(4096)]
        );
    }

    #[test]
    fn a_written_plan_reads_back_the_same() {
        let mut plan = RunPlan::from_toml(PLAN, "p.toml", &Surroundings::NONE).unwrap();
        plan.title = "quotes \" and\nlines".to_owned();
        plan.seed = Some(u64::MAX);
        plan.limits.budget = None;
        plan.interleave = Some("mechanism".to_owned());
        assert_eq!(
            RunPlan::from_toml(&plan.to_toml(), "again", &Surroundings::NONE).unwrap(),
            plan
        );
    }

    #[test]
    fn every_fault_is_named_with_its_line_and_the_neighbour_of_what_is_misspelt() {
        for (from, to, line, meant) in [
            ("launches_max", "lanches_max", 7, "launches_max"),
            ("[experiment.factors]", "[experiment.factor]", 13, "factors"),
            ("latency.local", "latency.lcal", 12, "latency.local"),
            ("mechanism =", "mechansim =", 14, "mechanism"),
            ("\"tcp4\"", "\"tpc4\"", 14, "tcp4"),
            ("size = [64,", "size = [0,", 15, ""),
            ("\"4Ki\"", "\"4 parsecs\"", 15, ""),
            ("launches_min = 4", "launches_min = 7", 6, ""),
            ("launches_min = 4", "launches_min = 0", 6, ""),
            ("\"25ms\"", "\"25\"", 8, ""),
            ("\"1%\"", "5", 9, ""),
            ("seed = 42", "interleave = \"wke\"", 2, ""),
            ("seed = 42", "seed = -1", 2, ""),
            ("seed = 42", "seed = = 42", 2, ""),
            ("\"90s\"", "\"0s\"", 5, ""),
            ("placement = \"same-cpu\"", "placement = []", 16, ""),
        ] {
            assert!(PLAN.contains(from), "{from}");
            let text = PLAN.replace(from, to);
            let problem = RunPlan::from_toml(&text, "p.toml", &Surroundings::NONE).unwrap_err();
            assert!(problem.what.contains(&format!("p.toml, line {line}: ")), "{to}: {problem}");
            if !meant.is_empty() {
                assert_eq!(problem.fix, Some(format!("did you mean '{meant}'?")));
            }
        }
    }
}
