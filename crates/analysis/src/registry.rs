//! What an experiment tells the analysis: its claims, ratios, ranks and rung of the ladder.

use std::collections::BTreeMap;

use crate::claim::{Expectation, PublishedClaim};
use crate::document::CellResult;

/// What is known about one experiment.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentAnalysis {
    /// Published claims that it tests again.
    pub claims: &'static [PublishedClaim],
    /// Statements of our own.
    pub expectations: &'static [Expectation],
    /// Groups of cells whose costs are set against each other.
    pub ratios: &'static [RatioPair],
    /// Whether its mechanisms are ranked, and the published orders.
    pub ranking: Option<PublishedRanking>,
    /// The rung that a result is, if it is one.
    pub rung: Option<fn(&CellResult) -> Option<RungLabel>>,
}

/// Published orders of mechanisms, and where they stand.
#[derive(Clone, Copy, Debug)]
pub struct PublishedRanking {
    /// Where they were published.
    pub source: &'static str,
    /// The orders, by response and size.
    pub orders: &'static [MechanismOrder],
}

/// The order of the local mechanisms for one response and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MechanismOrder {
    /// The response that is ranked.
    pub response: &'static str,
    /// Message size in bytes.
    pub size: i64,
    /// Best first.
    pub mechanisms: [&'static str; 3],
}

/// Levels that pick cells.
pub type RatioLevels = &'static [(&'static str, &'static str)];

/// Two groups of cells that are set against each other.
#[derive(Clone, Copy, Debug)]
pub struct RatioPair {
    /// The response whose costs are compared.
    pub response: &'static str,
    /// Cells above the fraction line.
    pub of: RatioLevels,
    /// Cells below it.
    pub to: RatioLevels,
    /// Factors in which partners may differ besides those that pick them.
    pub free: &'static [&'static str],
}

/// A boundary that a result crosses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RungLabel {
    /// What is crossed: `pipe`, `getpid, system call`.
    pub text: String,
    /// Order of preference as the empty call that other rungs are a multiple of.
    pub empty_call: Option<u8>,
    /// Whether a network lies between the two sides.
    pub is_remote: bool,
}

impl RungLabel {
    /// A boundary within this machine.
    pub const fn local(text: String) -> Self {
        Self { text, empty_call: None, is_remote: false }
    }
}

impl ExperimentAnalysis {
    /// Nothing beside the summaries of its cells.
    pub const PLAIN: Self =
        Self { claims: &[], expectations: &[], ratios: &[], ranking: None, rung: None };
}

/// A statement of a document that a measurement or a simulation could decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TestableStatement {
    /// Stable id, which is also that of its claim.
    pub id: String,
    /// The document that makes it: `ipc`.
    pub document: String,
    /// Who says so.
    pub author: String,
    /// Section, table or figure.
    pub place: String,
    /// The statement, in one sentence.
    pub statement: String,
    /// Its numbers.
    pub figures: Vec<StatementFigure>,
    /// The experiment that decides it, or is to decide it.
    pub experiment: String,
    /// Whether an experiment judges it.
    pub is_encoded: bool,
    /// What is missing before it can be judged; empty where nothing is.
    pub needs: String,
    /// Where its judge tests something else than the author states; empty where it does not.
    pub flaw: String,
}

/// A number of a statement, in the unit of the document: `percent`, `bit/s`, `ratio`.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementFigure {
    /// What it is of.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

/// The experiments that the analysis knows, in their order.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    order: Vec<&'static str>,
    statements: &'static [TestableStatement],
    experiments: BTreeMap<&'static str, &'static ExperimentAnalysis>,
}

impl Registry {
    /// A registry of these experiments.
    pub fn new(
        experiments: impl IntoIterator<Item = (&'static str, &'static ExperimentAnalysis)>,
    ) -> Self {
        let mut registry = Self::default();
        for (id, analysis) in experiments {
            registry.order.push(id);
            registry.experiments.insert(id, analysis);
        }
        registry
    }

    /// The same with every testable statement of the documents.
    #[must_use]
    pub fn with_statements(mut self, statements: &'static [TestableStatement]) -> Self {
        self.statements = statements;
        self
    }

    /// Every testable statement of the documents.
    pub const fn statements(&self) -> &'static [TestableStatement] {
        self.statements
    }

    /// What is known about an experiment.
    pub fn find(&self, id: &str) -> Option<&'static ExperimentAnalysis> {
        self.experiments.get(id).copied()
    }

    /// Every experiment, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static ExperimentAnalysis)> {
        self.order.iter().map(|id| (*id, self.experiments[id]))
    }
}
