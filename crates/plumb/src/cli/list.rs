//! `plumb list`: what can be measured.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use plumb_analysis::document::list::{
    ExperimentEntry, FactorEntry, LIST_SCHEMA, ListDocument, MechanismEntry, ResponseEntry,
    StudyEntry,
};
use plumb_harness::spec::{Mechanism, MessageShape};
use plumb_report::table::TextTable;
use plumb_report::terminal::TextRole;
use plumb_store::record::Better;

use super::output::{CliOutput, CommandResult};
use super::run::surroundings;
use crate::problem::ExitReason;
use plumb_experiments::definition::Experiment;
use plumb_experiments::factor::{Factor, LevelContext};
use plumb_experiments::list;
use plumb_experiments::list::Study;
use plumb_experiments::preset::RunPreset;

/// List what can be measured: studies, experiments with their factors, mechanisms
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb list
  plumb list experiments
  plumb list mechanisms --json")]
pub struct ListCommand {
    /// Only this part
    what: Option<ListPart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListPart {
    Studies,
    Experiments,
    Mechanisms,
}

impl ListCommand {
    /// Prints the list.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let document = document();
        if output.json {
            output.document(&document)?;
            return Ok(ExitReason::Success);
        }
        let mut page = String::new();
        let shows = |part| self.what.is_none_or(|what| what == part);
        if shows(ListPart::Studies) {
            studies(&mut page, &document, output);
        }
        match self.what {
            None => experiments_in_short(&mut page, &document, output),
            Some(ListPart::Experiments) => experiments(&mut page, &document, output),
            Some(_) => {}
        }
        if shows(ListPart::Mechanisms) {
            mechanisms(&mut page, &document, output);
        }
        output.page(page.trim_start_matches('\n'))?;
        Ok(ExitReason::Success)
    }
}

fn heading(page: &mut String, title: &str, output: &CliOutput) {
    page.push('\n');
    page.push_str(&output.style.paint(TextRole::Bold, title));
    page.push('\n');
}

fn paragraph(page: &mut String, text: &str, indent: usize, output: &CliOutput) {
    for line in output.style.wrap(text, indent) {
        page.push_str(&line);
        page.push('\n');
    }
}

fn studies(page: &mut String, document: &ListDocument, output: &CliOutput) {
    heading(page, "Studies: plumb run NAME", output);
    for study in &document.studies {
        paragraph(page, &format!("{}: {}", study.id, study.question), 2, output);
    }
}

fn experiments_in_short(page: &mut String, document: &ListDocument, output: &CliOutput) {
    heading(page, "Experiments: plumb run ID (details: plumb list experiments)", output);
    for experiment in &document.experiments {
        paragraph(page, &format!("{}: {}", experiment.id, experiment.question), 2, output);
    }
}

fn experiments(page: &mut String, document: &ListDocument, output: &CliOutput) {
    for experiment in &document.experiments {
        heading(page, &experiment.id, output);
        paragraph(page, &experiment.question, 2, output);
        paragraph(page, &format!("Hypothesis: {}", experiment.hypothesis), 2, output);
        for factor in &experiment.factors {
            let levels = factor.levels.get(RunPreset::Default.name()).cloned().unwrap_or_default();
            let levels = if levels.len() > 12 {
                format!("{} and {} more", levels[..6].join(","), levels.len() - 6)
            } else {
                levels.join(",")
            };
            let line = format!("--set {}={levels}  {}", factor.name, factor.meaning);
            paragraph(page, &line, 4, output);
        }
        for response in &experiment.responses {
            let line = format!("measures {} in {}", response.name, response.unit);
            paragraph(page, &line, 4, output);
        }
    }
}

fn mechanisms(page: &mut String, document: &ListDocument, output: &CliOutput) {
    heading(page, "Mechanisms: --set mechanism=NAME", output);
    let mut table =
        TextTable::with_heads(&["name", "what it is", "carries?", "receivers wait by??"]);
    for mechanism in &document.mechanisms {
        let carries = match mechanism.size {
            Some(size) => format!("{size} bytes"),
            None => mechanism.carries.clone(),
        };
        table.push([
            mechanism.name.clone(),
            mechanism.summary.clone(),
            carries,
            mechanism.wakes.join(", "),
        ]);
    }
    page.push_str(&table.render(output.style));
}

fn document() -> ListDocument {
    ListDocument {
        schema: LIST_SCHEMA.to_owned(),
        studies: Study::ALL.into_iter().map(study).collect(),
        experiments: list::all().map(experiment).collect(),
        mechanisms: Mechanism::ALL.into_iter().map(mechanism).collect(),
    }
}

fn study(study: &Study) -> StudyEntry {
    let mut experiments: Vec<String> = Vec::new();
    for request in (study.requests)() {
        let id = request.experiment.id.to_owned();
        if !experiments.contains(&id) {
            experiments.push(id);
        }
    }
    StudyEntry { id: study.id.to_owned(), question: study.summary.to_owned(), experiments }
}

fn experiment(experiment: &Experiment) -> ExperimentEntry {
    ExperimentEntry {
        id: experiment.id.to_owned(),
        study: experiment.study.to_owned(),
        question: experiment.question.to_owned(),
        hypothesis: experiment.hypothesis.to_owned(),
        factors: experiment.factors.iter().map(factor).collect(),
        responses: experiment
            .responses
            .iter()
            .map(|response| ResponseEntry {
                name: response.name.to_owned(),
                unit: response.unit.name().to_owned(),
                better: match response.better {
                    Better::Lower => "lower",
                    Better::Higher => "higher",
                }
                .to_owned(),
            })
            .collect(),
        claims: experiment
            .analysis
            .claims
            .iter()
            .map(|claim| (claim.id.to_owned(), claim.claim.to_owned()))
            .collect(),
    }
}

fn factor(factor: &Factor) -> FactorEntry {
    let levels: BTreeMap<String, Vec<String>> = RunPreset::ALL
        .into_iter()
        .map(|preset| {
            let levels =
                factor.preset_levels(&LevelContext { preset, surroundings: &surroundings() });
            let spelt = levels.iter().map(|level| factor.domain.spell(level)).collect();
            (preset.name().to_owned(), spelt)
        })
        .collect();
    FactorEntry { name: factor.name.to_owned(), meaning: factor.meaning.to_owned(), levels }
}

fn mechanism(mechanism: Mechanism) -> MechanismEntry {
    let (carries, size) = match mechanism.message_shape() {
        MessageShape::Stream => ("stream", None),
        MessageShape::Messages => ("messages", None),
        MessageShape::Fixed(bytes) => ("fixed", Some(bytes)),
    };
    MechanismEntry {
        name: mechanism.name().to_owned(),
        summary: mechanism.summary().to_owned(),
        carries: carries.to_owned(),
        size,
        wakes: mechanism.wake_modes().iter().map(|wake| wake.name().to_owned()).collect(),
    }
}
