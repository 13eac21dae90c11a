//! A run while it is being read from another tool's file.
//!
//! Left out: what the tool's figures mean.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::units::Unit;

use super::{ImportError, ImportFormat, excerpt, median};
use crate::record::{
    Better, Cell, CellStatus, Factors, ImportedSummary, LaunchRecord, RunData, RunRecord,
    RunStatus, SampleBlock,
};

/// What a figure is a measurement of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ImportedMetric {
    experiment: String,
    factors: Factors,
    response: &'static str,
}

impl ImportedMetric {
    /// Throughputs and bandwidths are in bytes a second, shares delivered are shares, all else is in nanoseconds.
    pub(super) fn new(
        experiment: impl Into<String>,
        response: &'static str,
        factors: Factors,
    ) -> Self {
        Self { experiment: experiment.into(), factors, response }
    }

    fn cell(self, id: i64, imported: Option<ImportedSummary>) -> Cell {
        let unit = match self.response {
            "throughput" | "bandwidth" => Unit::BytesPerSecond,
            "delivered" => Unit::Share,
            _ => Unit::Nanoseconds,
        };
        let lower = unit == Unit::Nanoseconds;
        Cell {
            id,
            experiment: self.experiment,
            factors: self.factors,
            response: self.response.to_owned(),
            unit: unit.name().to_owned(),
            better: if lower { Better::Lower } else { Better::Higher },
            status: CellStatus::Done("imported".to_owned()),
            imported,
        }
    }
}

/// What is known about one target.
#[derive(Debug)]
enum ImportedValue {
    /// Bare figures; several when the tool was run several times.
    Numbers { values: Vec<f64>, statistic: &'static str },
    /// A summary as printed.
    Summary(ImportedSummary),
    /// Every sample.
    Samples(Box<SampleBlock>),
}

/// A run in the making.
#[derive(Debug)]
pub(super) struct ImportBuilder {
    /// The tool and its version.
    pub tool: String,
    /// When it was measured, where the file says so.
    pub created_unix_ms: i64,
    /// Facts about the machine.
    pub provenance: BTreeMap<String, String>,
    /// Facts about the measurement and the import.
    pub notes: BTreeMap<String, String>,
    format: ImportFormat,
    values: Vec<(ImportedMetric, ImportedValue)>,
    /// Where the numbers of a target are among the values.
    numbers: BTreeMap<ImportedMetric, usize>,
    /// Names of notes with their facts.
    noted: BTreeSet<(String, String)>,
    unmeasured: Vec<String>,
    /// The same, to find one.
    known_unmeasured: BTreeSet<String>,
    unparsed: Vec<String>,
    unparsed_lines: usize,
}

/// Lines that were not understood and are quoted: enough to see what they are.
const UNPARSED_QUOTED: usize = 5;

impl ImportBuilder {
    pub(super) fn new(format: ImportFormat) -> Self {
        Self {
            tool: format.name().to_owned(),
            created_unix_ms: 0,
            provenance: BTreeMap::new(),
            notes: BTreeMap::new(),
            format,
            values: Vec::new(),
            numbers: BTreeMap::new(),
            noted: BTreeSet::new(),
            unmeasured: Vec::new(),
            known_unmeasured: BTreeSet::new(),
            unparsed: Vec::new(),
            unparsed_lines: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds a figure; another one of the same target makes a repetition.
    pub(super) fn add_number(
        &mut self,
        target: ImportedMetric,
        value: f64,
        statistic: &'static str,
    ) {
        if !value.is_finite() {
            self.add_unmeasured(&target.experiment);
            return;
        }
        let value = round_to_printed(value);
        let known = self.numbers.get(&target).and_then(|&index| self.values.get_mut(index));
        if let Some((_, ImportedValue::Numbers { values, .. })) = known {
            values.push(value);
            return;
        }
        self.numbers.insert(target.clone(), self.values.len());
        self.values.push((target, ImportedValue::Numbers { values: vec![value], statistic }));
    }

    /// Adds a summary as printed.
    pub(super) fn add_summary(&mut self, target: ImportedMetric, summary: ImportedSummary) {
        self.values.push((target, ImportedValue::Summary(summary)));
    }

    /// Adds samples: the block's cell and launch are filled in.
    pub(super) fn add_samples(&mut self, target: ImportedMetric, block: SampleBlock) {
        self.values.push((target, ImportedValue::Samples(Box::new(block))));
    }

    /// Notes a figure that stands for "not measured".
    pub(super) fn add_unmeasured(&mut self, what: &str) {
        if self.known_unmeasured.insert(what.to_owned()) {
            self.unmeasured.push(what.to_owned());
        }
    }

    /// Notes a line, counted from 1, that is not understood and was passed over.
    pub(super) fn add_unparsed_line(&mut self, line: usize, text: &str) {
        self.unparsed_lines += 1;
        if self.unparsed.len() < UNPARSED_QUOTED {
            self.unparsed.push(format!("line {line}: {}", excerpt(text)));
        }
    }

    /// A fact about the machine, where the file has it.
    pub(super) fn add_provenance(&mut self, name: &str, fact: Option<&str>) {
        if let Some(fact) = fact {
            self.provenance.insert(name.to_owned(), fact.to_owned());
        }
    }

    /// Notes a fact; the same fact of another result in the file is put behind it.
    pub(super) fn add_note(&mut self, name: &str, fact: &str) {
        if !self.noted.insert((name.to_owned(), fact.to_owned())) {
            return;
        }
        let known = self.notes.entry(name.to_owned()).or_default();
        if !known.is_empty() {
            known.push_str("; ");
        }
        known.push_str(fact);
    }

    /// The run of a text; without a result, what the tool complained of, or what would have been a result.
    pub(super) fn finish_text(
        self,
        text: &str,
        complaint: Option<String>,
        expected: &'static str,
    ) -> Result<RunData, ImportError> {
        let format = self.format;
        if self.is_empty() {
            let none = ImportError::NoResults { format, expected };
            return Err(complaint.map_or(none, |reason| format.failed(reason)));
        }
        format.require_final_newline(text)?;
        Ok(self.finish())
    }

    /// The run; its id is empty.
    pub(super) fn finish(mut self) -> RunData {
        self.notes.insert("import.tool".to_owned(), self.tool.clone());
        if self.unparsed_lines > 0 {
            let more = if self.unparsed_lines > self.unparsed.len() { "; …" } else { "" };
            let unread = format!(
                "lines not understood and passed over: {} ({}{more})",
                self.unparsed_lines,
                self.unparsed.join("; ")
            );
            self.notes.insert("import.unread".to_owned(), unread);
        }
        if !self.unmeasured.is_empty() {
            self.notes.insert("import.skipped".to_owned(), self.unmeasured.join(", "));
        }
        let mut data = RunData {
            run: RunRecord {
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
        for (id, (target, finding)) in (1..).zip(self.values) {
            let imported = match finding {
                ImportedValue::Numbers { values, statistic } => {
                    Some(summarize_repeats(&self.tool, values, statistic))
                }
                ImportedValue::Summary(summary) => Some(summary),
                ImportedValue::Samples(block) => {
                    let group = target.factors.to_string();
                    data.launches.push(LaunchRecord { id, round: 1, group, started_ns: 0 });
                    data.blocks.push(SampleBlock { cell: id, launch: id, ..*block });
                    None
                }
            };
            data.cells.push(target.cell(id, imported));
        }
        data
    }
}

/// A figure without the noise of changing its unit: no tool prints twelve digits.
fn round_to_printed(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

/// The summary of a figure, or of the same figure from several runs of the tool: their median.
fn summarize_repeats(tool: &str, mut values: Vec<f64>, statistic: &str) -> ImportedSummary {
    values.sort_by(f64::total_cmp);
    let summary = ImportedSummary { tool: tool.to_owned(), ..ImportedSummary::default() };
    match values.as_slice() {
        [] => summary,
        [only] => ImportedSummary { value: *only, statistic: statistic.to_owned(), ..summary },
        [min, .., max] => ImportedSummary {
            value: median(&values).unwrap_or_default(),
            statistic: "median of repeated runs".to_owned(),
            n: Some(values.len() as u64),
            min: Some(*min),
            max: Some(*max),
            ..summary
        },
    }
}
