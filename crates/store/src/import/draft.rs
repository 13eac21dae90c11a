//! A run while it is being read from another tool's file.
//!
//! Left out: what the tool's figures mean.

use std::collections::BTreeMap;

use plumb_base::units::Unit;

use super::{Format, excerpt};
use crate::record::{
    Better, Block, Cell, CellStatus, Factors, ImportedSummary, Launch, Run, RunData, RunStatus,
};

/// What a figure is a measurement of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    experiment: String,
    factors: Factors,
    response: &'static str,
    unit: Unit,
}

impl Target {
    pub(super) fn new(
        experiment: impl Into<String>,
        response: &'static str,
        unit: Unit,
        factors: Factors,
    ) -> Self {
        Self { experiment: experiment.into(), factors, response, unit }
    }

    fn cell(self, id: i64, imported: Option<ImportedSummary>) -> Cell {
        let lower = self.unit == Unit::Nanoseconds;
        Cell {
            id,
            experiment: self.experiment,
            factors: self.factors,
            response: self.response.to_owned(),
            unit: self.unit.name().to_owned(),
            better: if lower { Better::Lower } else { Better::Higher },
            status: CellStatus::Done("imported".to_owned()),
            imported,
        }
    }
}

/// What is known about one target.
#[derive(Debug)]
enum Finding {
    /// Bare figures; several when the tool was run several times.
    Figures { values: Vec<f64>, statistic: &'static str },
    /// A summary as printed.
    Summary(ImportedSummary),
    /// Every sample.
    Samples(Box<Block>),
}

/// A run in the making.
#[derive(Debug)]
pub(super) struct Draft {
    /// The tool and its version.
    pub tool: String,
    /// When it was measured, where the file says so.
    pub created_unix_ms: i64,
    /// Facts about the machine.
    pub provenance: BTreeMap<String, String>,
    /// Facts about the measurement and the import.
    pub notes: BTreeMap<String, String>,
    format: Format,
    findings: Vec<(Target, Finding)>,
    skipped: Vec<String>,
    unread: Vec<String>,
    unread_lines: usize,
}

/// Lines that were not understood and are quoted: enough to see what they are.
const UNREAD_QUOTED: usize = 5;

impl Draft {
    pub(super) fn new(format: Format) -> Self {
        Self {
            tool: format.name().to_owned(),
            created_unix_ms: 0,
            provenance: BTreeMap::new(),
            notes: BTreeMap::new(),
            format,
            findings: Vec::new(),
            skipped: Vec::new(),
            unread: Vec::new(),
            unread_lines: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// Adds a figure; another one of the same target makes a repetition.
    pub(super) fn figure(&mut self, target: Target, value: f64, statistic: &'static str) {
        if !value.is_finite() {
            self.skip(&target.experiment);
            return;
        }
        let value = as_printed(value);
        for (known, finding) in &mut self.findings {
            if let Finding::Figures { values, .. } = finding
                && *known == target
            {
                values.push(value);
                return;
            }
        }
        self.findings.push((target, Finding::Figures { values: vec![value], statistic }));
    }

    /// Adds a summary as printed.
    pub(super) fn summary(&mut self, target: Target, summary: ImportedSummary) {
        self.findings.push((target, Finding::Summary(summary)));
    }

    /// Adds samples: the block's cell and launch are filled in.
    pub(super) fn samples(&mut self, target: Target, block: Block) {
        self.findings.push((target, Finding::Samples(Box::new(block))));
    }

    /// Notes a figure that stands for "not measured".
    pub(super) fn skip(&mut self, what: &str) {
        if !self.skipped.iter().any(|known| known == what) {
            self.skipped.push(what.to_owned());
        }
    }

    /// Notes a line, counted from 1, that is not understood and was passed over.
    pub(super) fn unread(&mut self, line: usize, text: &str) {
        self.unread_lines += 1;
        if self.unread.len() < UNREAD_QUOTED {
            self.unread.push(format!("line {line}: {}", excerpt(text)));
        }
    }

    /// Notes a fact; the same fact of another result in the file is put behind it.
    pub(super) fn note(&mut self, name: &str, fact: &str) {
        match self.notes.get_mut(name) {
            Some(known) if known.split("; ").any(|known| known == fact) => {}
            Some(known) => {
                known.push_str("; ");
                known.push_str(fact);
            }
            None => {
                self.notes.insert(name.to_owned(), fact.to_owned());
            }
        }
    }

    /// The run; its id is empty.
    pub(super) fn finish(mut self) -> RunData {
        self.notes.insert("import.tool".to_owned(), self.tool.clone());
        if self.unread_lines > 0 {
            let more = if self.unread_lines > self.unread.len() { "; …" } else { "" };
            let unread = format!(
                "lines not understood and passed over: {} ({}{more})",
                self.unread_lines,
                self.unread.join("; ")
            );
            self.notes.insert("import.unread".to_owned(), unread);
        }
        if !self.skipped.is_empty() {
            self.notes.insert("import.skipped".to_owned(), self.skipped.join(", "));
        }
        let mut data = RunData {
            run: Run {
                id: String::new(),
                title: self.format.name().to_owned(),
                created_unix_ms: self.created_unix_ms,
                status: RunStatus::Imported,
                plan_toml: String::new(),
                seed: 0,
                code_version: String::new(),
                provenance: self.provenance,
                notes: self.notes,
            },
            cells: Vec::new(),
            launches: Vec::new(),
            blocks: Vec::new(),
        };
        for (id, (target, finding)) in (1..).zip(self.findings) {
            let imported = match finding {
                Finding::Figures { values, statistic } => {
                    Some(repeated(&self.tool, values, statistic))
                }
                Finding::Summary(summary) => Some(summary),
                Finding::Samples(block) => {
                    let group = target.factors.to_string();
                    data.launches.push(Launch { id, round: 1, group, started_ns: 0 });
                    data.blocks.push(Block { cell: id, launch: id, ..*block });
                    None
                }
            };
            data.cells.push(target.cell(id, imported));
        }
        data
    }
}

/// A figure without the noise of changing its unit: no tool prints twelve digits.
fn as_printed(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

/// The summary of a figure, or of the same figure from several runs of the tool: their median.
fn repeated(tool: &str, mut values: Vec<f64>, statistic: &str) -> ImportedSummary {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let summary = ImportedSummary { tool: tool.to_owned(), ..ImportedSummary::default() };
    match values.as_slice() {
        [] => summary,
        [only] => ImportedSummary { value: *only, statistic: statistic.to_owned(), ..summary },
        [min, .., max] => ImportedSummary {
            value: if values.len() % 2 == 1 {
                values[middle]
            } else {
                f64::midpoint(values[middle - 1], values[middle])
            },
            statistic: "median of repeated runs".to_owned(),
            n: Some(values.len() as u64),
            min: Some(*min),
            max: Some(*max),
            ..summary
        },
    }
}
