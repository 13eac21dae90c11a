//! `plumb list`: what can be measured.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use plumb_analysis::claim;
use plumb_analysis::document::list::{
    ExperimentEntry, FactorEntry, ListDocument, MechanismEntry, ResponseEntry, SCHEMA, StudyEntry,
};
use plumb_host::local::mechanism::{Carries, Mechanism};
use plumb_report::table::{Table, text};
use plumb_report::terminal::Ink;
use plumb_store::record::Better;

use super::output::{Failure, Output};
use crate::experiment::{Experiment, Factor, Study};
use crate::plan::Preset;
use crate::problem::Exit;

/// List what can be measured: studies, experiments with their factors, mechanisms
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb list
  plumb list experiments
  plumb list mechanisms --json")]
pub struct List {
    /// Only this part
    what: Option<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Studies,
    Experiments,
    Mechanisms,
}

impl List {
    /// Prints the list.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let document = document();
        if output.json {
            output.document(&document)?;
            return Ok(Exit::Fine);
        }
        let mut page = String::new();
        let shows = |part| self.what.is_none_or(|what| what == part);
        if shows(Part::Studies) {
            studies(&mut page, &document, output);
        }
        match self.what {
            None => experiments_in_short(&mut page, &document, output),
            Some(Part::Experiments) => experiments(&mut page, &document, output),
            Some(_) => {}
        }
        if shows(Part::Mechanisms) {
            mechanisms(&mut page, &document, output);
        }
        output.page(page.trim_start_matches('\n'))?;
        Ok(Exit::Fine)
    }
}

fn heading(page: &mut String, title: &str, output: &Output) {
    page.push('\n');
    page.push_str(&output.style.paint(Ink::Bold, title));
    page.push('\n');
}

fn paragraph(page: &mut String, text: &str, indent: usize, output: &Output) {
    for line in output.style.wrap(text, indent) {
        page.push_str(&line);
        page.push('\n');
    }
}

fn studies(page: &mut String, document: &ListDocument, output: &Output) {
    heading(page, "Studies: plumb run NAME", output);
    for study in &document.studies {
        paragraph(page, &format!("{}: {}", study.id, study.question), 2, output);
    }
}

fn experiments_in_short(page: &mut String, document: &ListDocument, output: &Output) {
    heading(page, "Experiments: plumb run ID; plumb list experiments tells more", output);
    for experiment in &document.experiments {
        paragraph(page, &format!("{}: {}", experiment.id, experiment.question), 2, output);
    }
}

fn experiments(page: &mut String, document: &ListDocument, output: &Output) {
    for experiment in &document.experiments {
        heading(page, &experiment.id, output);
        paragraph(page, &experiment.question, 2, output);
        paragraph(page, &format!("Hypothesis: {}", experiment.hypothesis), 2, output);
        for factor in &experiment.factors {
            let levels = factor.levels.get(Preset::Default.name()).cloned().unwrap_or_default();
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

fn mechanisms(page: &mut String, document: &ListDocument, output: &Output) {
    heading(page, "Mechanisms: --set mechanism=NAME", output);
    let mut table = Table::with_heads(&["name", "what it is", "carries?", "receivers wait by??"]);
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
    page.push_str(&text::render(&table, output.style));
}

fn document() -> ListDocument {
    ListDocument {
        schema: SCHEMA.to_owned(),
        studies: Study::ALL.into_iter().map(study).collect(),
        experiments: Experiment::ALL.into_iter().map(experiment).collect(),
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
        claims: claim::catalogue()
            .filter(|claim| claim.experiment == experiment.id)
            .map(|claim| (claim.id.to_owned(), claim.claim.to_owned()))
            .collect(),
    }
}

fn factor(factor: &Factor) -> FactorEntry {
    let levels: BTreeMap<String, Vec<String>> = Preset::ALL
        .into_iter()
        .map(|preset| {
            let levels = (factor.levels)(preset);
            let spelt = levels.iter().map(|level| factor.domain.spell(level)).collect();
            (preset.name().to_owned(), spelt)
        })
        .collect();
    FactorEntry { name: factor.name.to_owned(), meaning: factor.meaning.to_owned(), levels }
}

fn mechanism(mechanism: Mechanism) -> MechanismEntry {
    let (carries, size) = match mechanism.carries() {
        Carries::Stream => ("stream", None),
        Carries::Messages => ("messages", None),
        Carries::Fixed(bytes) => ("fixed", Some(bytes)),
    };
    MechanismEntry {
        name: mechanism.name().to_owned(),
        summary: mechanism.summary().to_owned(),
        carries: carries.to_owned(),
        size,
        wakes: mechanism.wakes().iter().map(|wake| wake.name().to_owned()).collect(),
    }
}
