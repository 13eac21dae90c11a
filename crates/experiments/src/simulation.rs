//! Simulated cells: an experiment's model at one setting, run in a worker as any other block.
//!
//! A model is a function of its experiment's file. It makes a scenario of the levels, has it simulated with the seed of the block, and gives
//! one value for each response; launches differ by their seeds.

use std::fmt::Display;
use std::str::FromStr;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_rate, parse_span};
use plumb_harness::mirror::mirror_process::NamedSamples;
use plumb_harness::program_task::ProgramRun;
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{BlockTask, SimulationSpec};
use plumb_link::text::NoFiles;
use plumb_sim::report::SimulationReport;
use plumb_sim::scenario::{Scenario, SweepPoint};
use plumb_sim::simulation::Simulation;
use plumb_store::record::Factors;

use crate::definition::{DesignPoint, Experiment, LaunchGroup};
use crate::factor::{Factor, always};
use crate::{distributed, gigabit, ipc};

/// The models, by the experiments that they are of, and about how many milliseconds one setting takes.
const MODELS: &[(&Experiment, SimulationModel, u64)] = &[
    (&ipc::path_length::EXPERIMENT, ipc::path_length::simulate, 20),
    (&ipc::fec_vs_arq::EXPERIMENT, ipc::fec_vs_arq::simulate, 100),
    (&gigabit::window_bdp::EXPERIMENT, gigabit::window_bdp::simulate, 40),
    (&gigabit::cc_utilisation::EXPERIMENT, gigabit::cc_utilisation::simulate, 150),
    (&gigabit::mtu_path::EXPERIMENT, gigabit::mtu_path::simulate, 20),
    (&gigabit::host_coalescing::EXPERIMENT, gigabit::host_coalescing::simulate, 10),
    (&gigabit::host_interrupt::EXPERIMENT, gigabit::host_interrupt::simulate, 10),
    (&gigabit::host_model::EXPERIMENT, gigabit::host_model::simulate, 10),
    (&gigabit::nic_memory::EXPERIMENT, gigabit::nic_memory::simulate, 100),
    (&gigabit::flood_host::EXPERIMENT, gigabit::flood_host::simulate, 60),
    (&gigabit::unresponsive::EXPERIMENT, gigabit::unresponsive::simulate, 60),
    (&gigabit::punish::EXPERIMENT, gigabit::punish::simulate, 60),
    (&distributed::stack_pollution::EXPERIMENT, distributed::stack_pollution::simulate, 30),
    (&distributed::stack_nic::EXPERIMENT, distributed::stack_nic::simulate, 10),
    (&distributed::stack_remote::EXPERIMENT, distributed::stack_remote::simulate, 30),
    (&distributed::link_users::EXPERIMENT, distributed::link_users::simulate, 10),
];

/// About how long a block of an experiment's simulated cells takes.
pub(crate) fn block_time(experiment: &str) -> Span {
    let model = MODELS.iter().find(|(known, ..)| known.id == experiment);
    Span::from_ms(model.map_or(0, |(.., ms)| *ms))
}

/// What an experiment simulates at one setting: one value for each response.
pub(crate) type SimulationModel = fn(&SimulatedCell<'_>) -> Result<ResponseValues, LaunchFault>;

/// Responses with their values.
pub(crate) type ResponseValues = Vec<(&'static str, f64)>;

/// Memory for the packets of a simulation, at most.
const MEMORY_MAX: u64 = 1 << 30;

/// Whose hosts a cell is about: the first factor of an experiment that has both.
pub(crate) const HOSTS: Factor = Factor::of_words(
    "hosts",
    "Linux's TCP in real time, or plumb's in a simulation",
    &["real", SIMULATED],
)
.labelled(&[("real", "Linux, real time"), (SIMULATED, "simulated")]);

/// The level of [`HOSTS`] whose cells are simulated.
pub(crate) const SIMULATED: &str = "simulated";

/// For [`Factor::applies`]: what says something of real hosts only.
pub(crate) fn are_real(first: &Factors) -> bool {
    !are_simulated(first)
}

/// For [`Factor::applies`]: what says something of simulated hosts only.
pub(crate) fn are_simulated(first: &Factors) -> bool {
    first.text(HOSTS.name) == Some(SIMULATED)
}

/// The same factor, of real hosts only.
pub(crate) const fn of_real(factor: Factor) -> Factor {
    Factor { applies: are_real, ..factor }
}

/// The same factor, of simulated hosts only.
pub(crate) const fn of_simulated(factor: Factor) -> Factor {
    Factor { applies: are_simulated, ..factor }
}

/// The same factor at every level of the first.
pub(crate) const fn of_all(factor: Factor) -> Factor {
    Factor { applies: always, ..factor }
}

/// A cell that is simulated as its experiment's model says.
pub(crate) fn cell(experiment: &str, point: &DesignPoint<'_>) -> (LaunchGroup, BlockTask) {
    let levels =
        point.factors.0.iter().map(|(name, level)| (name.clone(), level.to_string())).collect();
    let spec = SimulationSpec { experiment: experiment.to_owned(), levels };
    (LaunchGroup::virtual_time(), BlockTask::Simulation(spec))
}

/// Simulates a cell, in the worker.
///
/// # Errors
/// When its experiment has no model, or the model cannot be run at these levels.
pub fn simulate(spec: &SimulationSpec, run: &ProgramRun) -> Result<NamedSamples, LaunchFault> {
    let model = MODELS.iter().find(|(experiment, ..)| experiment.id == spec.experiment);
    let (_, model, _) = model.ok_or_else(|| failed(format!("{} has no model", spec.experiment)))?;
    let values = model(&SimulatedCell { spec, run: *run })?;
    Ok(values.into_iter().map(|(name, value)| (name.to_owned(), vec![value])).collect())
}

/// One setting of an experiment that is to be simulated.
pub(crate) struct SimulatedCell<'a> {
    spec: &'a SimulationSpec,
    /// What the block is given.
    pub(crate) run: ProgramRun,
}

impl SimulatedCell<'_> {
    /// The level of a factor; empty where it has none.
    pub(crate) fn level(&self, factor: &str) -> &str {
        self.spec.level(factor)
    }

    /// The level of a factor as a number.
    pub(crate) fn number<T: FromStr>(&self, factor: &str) -> Result<T, LaunchFault> {
        self.read(factor, |level| {
            level.parse().map_err(|_| "it is not a value that is possible here")
        })
    }

    /// The level of a factor as bits a second.
    pub(crate) fn rate(&self, factor: &str) -> Result<f64, LaunchFault> {
        self.read(factor, |level| parse_rate(level).map(|rate| rate.bits_per_second() as f64))
    }

    /// The level of a factor as a length of time.
    pub(crate) fn span(&self, factor: &str) -> Result<Span, LaunchFault> {
        self.read(factor, parse_span)
    }

    fn read<T, E: Display>(
        &self,
        factor: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, LaunchFault> {
        let level = self.level(factor);
        read(level).map_err(|error| failed(format!("{factor} of '{level}': {error}")))
    }

    /// What a scenario gives with the seed of this block.
    pub(crate) fn simulate(&self, text: &str) -> Result<SimulationReport, LaunchFault> {
        finish(start(self.scenario(text, "")?)?)
    }

    /// The scenario of a text, with a seed of this name that comes from the block's.
    pub(crate) fn scenario(&self, text: &str, seed: &str) -> Result<Scenario, LaunchFault> {
        // Starts are drawn while the text is read. A whole number of TOML has 63 bits.
        let text = format!("seed = {}\n{text}", Seed(self.run.seed).derive(seed).0 >> 1);
        Scenario::from_toml(&text, &self.spec.experiment, &SweepPoint::default(), &NoFiles)
            .map_err(|error| failed(format!("{error}, of\n{text}")))
    }
}

/// Two links in a row, from `left` by a router to `right`, for a scenario.
pub(crate) fn chain(first: &str, second: &str) -> String {
    link("left", "router", first) + &link("router", "right", second)
}

/// A link between two nodes, for a scenario.
pub(crate) fn link(a: &str, b: &str, text: &str) -> String {
    format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\nlink = \"{text}\"\n")
}

/// A processor of some hosts, for a scenario: microseconds of a packet and nanoseconds of each of its bytes.
pub(crate) fn processor(hosts: &str, packet_us: f64, byte_ns: f64) -> String {
    format!(
        "[[processor]]\nhosts = \"{hosts}\"\nper_packet = \"{packet_us:.0}us\"\nper_byte = \"{byte_ns:.0}ns\"\n"
    )
}

/// A connection that has more to send than it can, with what else is said about it.
pub(crate) fn flow(from: &str, to: &str, congestion: &str, options: &str) -> String {
    format!(
        "[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\ncongestion = \"{congestion}\"\n{options}\n"
    )
}

/// A source of packets of so many bytes at so many bits a second, with what else is said about it.
pub(crate) fn source(
    (from, to): (&str, &str),
    pattern: &str,
    rate: f64,
    size: u64,
    options: &str,
) -> String {
    format!(
        "[[source]]\nfrom = \"{from}\"\nto = \"{to}\"\npattern = \"{pattern}\"\nrate = \"{rate:.0}bit\"\nsize = {size}\n{options}\n"
    )
}

/// A scenario at its beginning.
///
/// # Errors
/// When it needs too much memory.
pub(crate) fn start(scenario: Scenario) -> Result<Simulation, LaunchFault> {
    Simulation::new(scenario, MEMORY_MAX).map_err(|error| failed(error.to_string()))
}

/// Runs a simulation to its end.
///
/// # Errors
/// When a law does not hold.
pub(crate) fn finish(mut simulation: Simulation) -> Result<SimulationReport, LaunchFault> {
    simulation.run();
    let seed = simulation.scenario().seed.0;
    let report = simulation.finish();
    if report.violations.is_empty() {
        Ok(report)
    } else {
        Err(failed(format!("seed {seed}: {}", report.violations.join("; "))))
    }
}

/// What a model cannot do.
pub(crate) fn failed(reason: impl Into<String>) -> LaunchFault {
    LaunchFault::Failed(reason.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plumb_clock::Stopwatch;
    use plumb_harness::environment::KernelFiles;
    use plumb_harness::topology::CpuTopology;

    use super::*;
    use crate::definition::CellAction;
    use crate::plan::expand::expand;
    use crate::plan::{ChosenLevels, RunPlan};
    use crate::preset::RunPreset;
    use crate::surroundings::Surroundings;

    /// The simulated settings of a quick run, each with the responses that it is to give.
    fn settings(experiment: &Experiment) -> Vec<(SimulationSpec, BTreeSet<String>)> {
        let chosen = ChosenLevels::parse(&[] as &[&str]).unwrap();
        let plan =
            RunPlan::named(experiment.id, Some(RunPreset::Quick), &chosen, &Surroundings::NONE);
        let topology = CpuTopology::read(&KernelFiles::at("/nonexistent"), &[0, 1]);
        let mut settings: Vec<(SimulationSpec, BTreeSet<String>)> = Vec::new();
        for cell in expand(&plan.unwrap(), &topology, &Surroundings::NONE).unwrap() {
            let CellAction::Measure { task: BlockTask::Simulation(spec), .. } = cell.action else {
                continue;
            };
            match settings.iter_mut().find(|(known, _)| *known == spec) {
                Some((_, responses)) => drop(responses.insert(cell.response)),
                None => settings.push((spec, BTreeSet::from([cell.response]))),
            }
        }
        settings
    }

    /// What is wrong with what a setting gives.
    fn fault(spec: &SimulationSpec, promised: &BTreeSet<String>) -> Option<String> {
        let run =
            ProgramRun { seed: 7, watch: Stopwatch::new(None), duration_ticks: 0, cpu_peer: None };
        let values = match simulate(spec, &run) {
            Ok(values) => values,
            Err(fault) => return Some(format!("{fault:?}")),
        };
        println!("{} {:?}: {values:?}", spec.experiment, spec.levels.values());
        let given: BTreeSet<String> = values.iter().map(|(name, _)| name.clone()).collect();
        let is_finite = values.iter().flat_map(|(_, values)| values).all(|value| value.is_finite());
        (!promised.is_subset(&given) || !is_finite)
            .then(|| format!("{values:?}, and not {promised:?}"))
    }

    #[test]
    fn models_give_what_their_experiments_promise() {
        let mut faults = Vec::new();
        for (experiment, ..) in MODELS {
            let settings = settings(experiment);
            assert!(!settings.is_empty(), "{} has no simulated cell", experiment.id);
            // Some of them: all take a minute.
            for (spec, promised) in settings.into_iter().step_by(5) {
                faults.extend(fault(&spec, &promised).map(|fault| format!("{spec:?}: {fault}")));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
