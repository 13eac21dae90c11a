//! What several machines say: the archive that comes with plumb, and the published claims that machines decide.

use plumb_analysis::claim_table::{self, FoundVerdicts};
use plumb_analysis::document::scale::{SCALE_SCHEMA, ScaleDocument, ScaleMachine};
use plumb_analysis::index::KernelReference;
use plumb_analysis::scale::{
    self, KnownMachine, METRICS, MachineSet, SpeedKind, archive, growth, points, two_terms,
};
use plumb_index::IndexKernel;
use plumb_store::record::RunData;

use crate::list;

pub mod claims;
mod run_machine;

/// Published lmbench results of machines from 1995 to 2026; each row names its source.
const HISTORY: &str = include_str!("../data/lmbench-history.csv");

/// The name of the archive that comes with plumb.
pub const HISTORY_NAME: &str = "lmbench-history";

/// The machines of that archive.
pub fn history() -> MachineSet {
    archive::read(HISTORY, HISTORY_NAME).expect("a test reads the archive")
}

/// The kernels of the processor index with their times on the reference machine.
pub fn kernel_references() -> Vec<KernelReference> {
    let of = |kernel: IndexKernel| KernelReference {
        name: kernel.name(),
        time_ns: kernel.reference_ns(),
    };
    IndexKernel::ALL.into_iter().map(of).collect()
}

/// The machine of a run, if it says anything of one.
pub fn machine_of(data: &RunData) -> Option<KnownMachine> {
    run_machine::machine(data, &kernel_references())
}

/// How the lines are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassFactor {
    /// One line over all machines.
    None,
    /// One more for each architecture.
    Architecture,
}

/// The document of these machines.
pub fn scale_document(set: &MachineSet, speed: SpeedKind, by: ClassFactor) -> ScaleDocument {
    let machines = &set.machines;
    let mut lines = Vec::new();
    let mut models = Vec::new();
    let all: Vec<&KnownMachine> = machines.iter().collect();
    let classes = scale::classes(machines);
    for metric in &METRICS {
        let of_all = points(machines, metric, speed);
        if of_all.is_empty() {
            continue;
        }
        lines.push(scale::line("", metric, &of_all, machines.len()));
        models.extend(two_terms(&all, metric, speed));
        if by == ClassFactor::None {
            continue;
        }
        for (class, members) in &classes {
            let found = points(members.iter().copied(), metric, speed);
            if !found.is_empty() {
                lines.push(scale::line(class, metric, &found, members.len()));
            }
        }
    }
    let mut found = FoundVerdicts::default();
    claims::judge(set, speed, &mut found);
    let rows = claim_table::rows(&list::registry(), &found).into_iter();
    ScaleDocument {
        schema: SCALE_SCHEMA.to_owned(),
        speed: speed.name().to_owned(),
        speed_label: speed.label().to_owned(),
        machines: machines.iter().map(entry).collect(),
        lines,
        models,
        growth: rates(machines, speed),
        claims: rows.filter(|row| claims::is_known(&row.id)).collect(),
        notes: set.notes.clone(),
    }
}

fn entry(machine: &KnownMachine) -> ScaleMachine {
    ScaleMachine {
        name: machine.name.clone(),
        class: machine.class.clone(),
        basis: machine.basis.clone(),
        year: machine.year,
        speed: machine.speed.iter().map(|(kind, it)| (kind.name().to_owned(), *it)).collect(),
        values: machine.values.iter().map(|(name, it)| ((*name).to_owned(), it.value)).collect(),
    }
}

/// Growth over the years of the speed and of every quantity.
fn rates(
    machines: &[KnownMachine],
    speed: SpeedKind,
) -> Vec<plumb_analysis::document::scale::GrowthRate> {
    let dated = |value: &dyn Fn(&KnownMachine) -> Option<f64>| -> Vec<(f64, f64)> {
        machines.iter().filter_map(|machine| Some((machine.year?, value(machine)?))).collect()
    };
    let mut rates: Vec<_> =
        growth(speed.label(), &dated(&|it| it.speed.get(&speed).copied())).into_iter().collect();
    for metric in &METRICS {
        let value = |it: &KnownMachine| Some(metric.goodness(it.values.get(metric.name)?.value));
        rates.extend(growth(metric.label, &dated(&value)));
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_gives_slopes_with_intervals() {
        let set = history();
        assert!(set.machines.len() > 60, "{}", set.machines.len());
        let document = scale_document(&set, SpeedKind::Clock, ClassFactor::Architecture);
        for metric in ["entry", "pipe", "tcp", "tcp-bandwidth"] {
            let line = document.lines.iter().find(|line| line.metric == metric).unwrap();
            assert!(line.machines >= 30 && line.class.is_empty(), "{line:?}");
            let [lo, hi] = line.slope_ci95.unwrap();
            assert!(lo < line.slope.unwrap() && line.slope.unwrap() < hi);
        }
        assert!(document.models.iter().any(|model| model.metric == "tcp-bandwidth"));
        let of_few = document.lines.iter().filter(|line| line.machines < 4);
        assert!(of_few.clone().count() > 0 && of_few.clone().all(|line| line.slope.is_none()));
    }
}
