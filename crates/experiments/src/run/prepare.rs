//! How a run begins: a new one, or where an interrupted one left off.

use std::collections::BTreeMap;

use plumb_analysis::compare;
use plumb_base::seed::Seed;
use plumb_harness::effort::CANARY_COMPUTATION;
use plumb_harness::environment;
use plumb_store::record::{Cell, CellStatus, RunData, RunRecord, RunStatus};
use plumb_store::sqlite::Store;

use super::MachineFacts;
use super::block::DisturbanceDetector;
use super::state::RunState;
use crate::definition::{CellAction, CellPlan};
use crate::error::ExperimentError;
use crate::plan::RunPlan;
use crate::surroundings::Surroundings;

/// A run that is ready for its next round.
pub(super) struct PreparedRun {
    pub(super) id: String,
    pub(super) seed: Seed,
    pub(super) state: RunState,
    pub(super) disturbances: DisturbanceDetector,
}

/// Settings that differ and are named; of more, the number is told.
const DIFFERENCES_NAMED: usize = 3;

/// What a run is measured by and in; a resumed run must have the same.
#[derive(Clone, Copy)]
pub(super) struct BegunIn<'a> {
    pub(super) code_version: &'static str,
    pub(super) surroundings: &'a Surroundings,
    pub(super) machine: &'a MachineFacts,
}

/// Stores a new run with all its cells.
pub(super) fn new(
    store: &mut Store,
    plan: &RunPlan,
    title: &str,
    plans: Vec<CellPlan>,
    begun_in: BegunIn<'_>,
) -> Result<PreparedRun, ExperimentError> {
    let entropy = || {
        plumb_clock::entropy().map_err(|error| {
            ExperimentError::failure("cannot read random bits from /dev/urandom").because(error)
        })
    };
    let seed = match plan.seed {
        Some(seed) => seed,
        None => entropy()?,
    };
    let now = plumb_clock::unix_ms();
    let id = store.new_run_id(title, now, entropy()?)?;
    let plan = RunPlan { seed: Some(seed), ..plan.clone() };
    let run = RunRecord {
        id: id.clone(),
        title: title.to_owned(),
        created_unix_ms: now,
        status: RunStatus::Running,
        plan_toml: plan.to_toml(),
        seed,
        code_version: begun_in.code_version.to_owned(),
        provenance: begun_in.machine.provenance.clone(),
        notes: begun_in
            .surroundings
            .notes()
            .into_iter()
            .chain(begun_in.machine.clock.clone())
            .collect(),
    };
    let cells: Vec<Cell> = (1..).zip(&plans).map(|(id, plan)| cell_of(id, plan)).collect();
    // One transaction: a run without its cells could not be resumed.
    store.insert(&RunData { run, cells, launches: Vec::new(), blocks: Vec::new() })?;
    Ok(PreparedRun {
        id,
        seed: Seed(seed),
        state: RunState::new(plans, plan.interleave.as_deref()),
        disturbances: DisturbanceDetector::default(),
    })
}

/// The machine, and which canary watches it.
pub(super) fn provenance() -> BTreeMap<String, String> {
    let mut facts = environment::capture();
    facts.insert("plumb.canary".to_owned(), CANARY_COMPUTATION.to_owned());
    facts
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
            CellAction::Measure { .. } => CellStatus::Open,
            CellAction::Unavailable(reason) => CellStatus::Unavailable(reason.clone()),
        },
        imported: None,
    }
}

/// A run has one provenance, so all of it is measured by one program on one machine as it was set.
fn refuse_other_settings(run: &RunRecord, begun_in: BegunIn<'_>) -> Result<(), ExperimentError> {
    let now = RunRecord {
        code_version: begun_in.code_version.to_owned(),
        provenance: begun_in.machine.provenance.clone(),
        notes: begun_in.surroundings.notes(),
        ..run.clone()
    };
    let differences = compare::setting_differences(&[run], &[&now]);
    if differences.is_empty() {
        return Ok(());
    }
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
    let named: Vec<String> = differences
        .iter()
        .take(DIFFERENCES_NAMED)
        .map(|found| format!("{} was {}, is {}", found.key, told(&found.a), told(&found.b)))
        .collect();
    let more = match differences.len().saturating_sub(DIFFERENCES_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Err(ExperimentError::failure(format!("run {} cannot be resumed here", run.id))
        .because(format!("the program or the machine is another one: {}{more}", named.join("; ")))
        .fix(format!("measure it anew with: plumb rerun {}", run.id)))
}

/// Takes up a stored run: its open cells, with the blocks they already have.
pub(super) fn resumed(
    store: &mut Store,
    id: &str,
    plan: &RunPlan,
    plans: Vec<CellPlan>,
    begun_in: BegunIn<'_>,
) -> Result<PreparedRun, ExperimentError> {
    let data = store.load(id)?;
    let stored: BTreeMap<String, &Cell> =
        data.cells.iter().map(|cell| (cell.key(), cell)).collect();
    let same = plans.len() == stored.len()
        && (1..).zip(&plans).all(|(id, plan)| {
            stored.get(&cell_of(id, plan).key()).is_some_and(|cell| cell.id == id)
        });
    if !same {
        return Err(ExperimentError::failure(format!("run {id} cannot be resumed here"))
            .because("its plan makes other cells on this host or with this version of plumb")
            .fix(format!("measure it anew with: plumb rerun {id}")));
    }
    refuse_other_settings(&data.run, begun_in)?;
    let mut state = RunState::new(plans, plan.interleave.as_deref());
    state.restore(&data);
    // Cells that broke are tried again; those that were done or impossible stay as they are.
    store.update_run(id, RunStatus::Running, &BTreeMap::new())?;
    let canaries = data.blocks.iter().map(|block| block.effort.canary_ns).collect();
    let (id, seed) = (data.run.id, Seed(data.run.seed));
    Ok(PreparedRun { id, seed, state, disturbances: DisturbanceDetector::after(canaries) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_taken_up_only_by_the_program_and_the_machine_that_began_it() {
        let machine = MachineFacts { provenance: provenance(), clock: BTreeMap::new() };
        let begun_in =
            BegunIn { code_version: "0.0.2", surroundings: &Surroundings::NONE, machine: &machine };
        let mut run = RunRecord {
            id: "before".to_owned(),
            title: "before".to_owned(),
            created_unix_ms: 0,
            status: RunStatus::Interrupted,
            plan_toml: String::new(),
            seed: 1,
            code_version: begun_in.code_version.to_owned(),
            provenance: provenance(),
            notes: BTreeMap::new(),
        };
        run.provenance.insert("load.average".to_owned(), "9.00 9.00 9.00".to_owned());
        refuse_other_settings(&run, begun_in).unwrap();
        run.code_version = "0.0.1 (another)".to_owned();
        for key in ["kernel.release", "cpu.model", "net.ipv4.tcp_timestamps"] {
            run.provenance.insert(key.to_owned(), "another".to_owned());
        }
        let told = format!("{:?}", refuse_other_settings(&run, begun_in).unwrap_err());
        for part in ["cpu.model was another", "and 1 more", "plumb rerun before"] {
            assert!(told.contains(part), "{told}");
        }
    }
}
