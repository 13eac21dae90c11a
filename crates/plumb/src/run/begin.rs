//! How a run begins: a new one, or where an interrupted one left off.

use std::collections::BTreeMap;

use plumb_analysis::document::OUTER_LINK;
use plumb_base::seed::Seed;
use plumb_host::harness::canary;
use plumb_host::harness::remote::outer_link;
use plumb_host::{clock, environment};
use plumb_store::record::{Cell, CellStatus, Run, RunData, RunStatus};
use plumb_store::sqlite::Store;

use super::calibration::Clock;
use super::ledger::Ledger;
use crate::experiment::{Action, CellPlan};
use crate::plan::Plan;
use crate::problem::Problem;

/// A run that is ready for its next round.
pub(super) struct Beginning {
    pub(super) id: String,
    pub(super) seed: Seed,
    pub(super) ledger: Ledger,
}

/// The version and commit of this program.
pub const CODE_VERSION: &str = env!("PLUMB_CODE_VERSION");

/// Stores a new run with all its cells.
pub(super) fn new(
    store: &mut Store,
    plan: &Plan,
    title: &str,
    plans: Vec<CellPlan>,
    clock: &Clock,
) -> Result<Beginning, Problem> {
    let entropy = || {
        clock::entropy().map_err(|error| {
            Problem::trouble("cannot read random bits from /dev/urandom").because(error)
        })
    };
    let seed = match plan.seed {
        Some(seed) => seed,
        None => entropy()?,
    };
    let now = clock::unix_ms();
    let id = store.new_run_id(title, now, entropy()?)?;
    let plan = Plan { seed: Some(seed), ..plan.clone() };
    let run = Run {
        id: id.clone(),
        title: title.to_owned(),
        created_unix_ms: now,
        status: RunStatus::Running,
        plan_toml: plan.to_toml(),
        seed,
        code_version: CODE_VERSION.to_owned(),
        provenance: provenance(),
        notes: notes(clock),
    };
    let cells: Vec<Cell> = (1..).zip(&plans).map(|(id, plan)| cell_of(id, plan)).collect();
    // One transaction: a run without its cells could not be resumed.
    store.insert(&RunData { run, cells, launches: Vec::new(), blocks: Vec::new() })?;
    Ok(Beginning { id, seed: Seed(seed), ledger: Ledger::new(plans) })
}

/// The machine, and which canary watches it.
fn provenance() -> BTreeMap<String, String> {
    let mut facts = environment::capture();
    facts.insert("plumb.canary".to_owned(), canary::KIND.to_owned());
    facts
}

/// What is known before anything is measured: the clock, and the link that all of this runs behind.
fn notes(clock: &Clock) -> BTreeMap<String, String> {
    let mut notes = clock.notes();
    if let Some(link) = outer_link() {
        notes.insert(OUTER_LINK.to_owned(), link);
    }
    notes
}

fn cell_of(id: i64, plan: &CellPlan) -> Cell {
    Cell {
        id,
        experiment: plan.experiment.clone(),
        factors: plan.factors.clone(),
        response: plan.response.clone(),
        unit: plan.unit.name().to_owned(),
        better: plan.better,
        status: match &plan.action {
            Action::Measure { .. } => CellStatus::Open,
            Action::Unavailable(reason) => CellStatus::Unavailable(reason.clone()),
        },
        imported: None,
    }
}

/// Takes up a stored run: its open cells, with the blocks they already have.
pub(super) fn resumed(
    store: &mut Store,
    id: &str,
    plans: Vec<CellPlan>,
) -> Result<Beginning, Problem> {
    let data = store.load(id)?;
    let stored: BTreeMap<String, &Cell> =
        data.cells.iter().map(|cell| (cell.key(), cell)).collect();
    let same = plans.len() == stored.len()
        && (1..).zip(&plans).all(|(id, plan)| {
            stored.get(&cell_of(id, plan).key()).is_some_and(|cell| cell.id == id)
        });
    if !same {
        return Err(Problem::trouble(format!("run {id} cannot be resumed here"))
            .because("its plan makes other cells on this host or with this version of plumb")
            .fix(format!("measure it anew with: plumb rerun {id}")));
    }
    let mut ledger = Ledger::new(plans);
    ledger.restore(&data);
    // Cells that broke are tried again; those that were done or impossible stay as they are.
    store.update_run(id, RunStatus::Running, &BTreeMap::new())?;
    Ok(Beginning { id: data.run.id, seed: Seed(data.run.seed), ledger })
}
