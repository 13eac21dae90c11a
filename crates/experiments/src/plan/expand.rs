//! From a plan to its cells: every combination of levels, and what can be done about each here.
//!
//! Left out: the order in which cells are measured, which is drawn anew for each round.

use std::collections::BTreeSet;

use plumb_base::time::Span;
use plumb_harness::topology::{CpuPlacement, CpuTopology};
use plumb_store::record::{FactorLevel, Factors};

use super::resolve::RESPONSE;
use super::{PlannedExperiment, RunPlan};
use crate::definition::{
    CellAction, CellPlan, DesignPoint, Exclusion, Experiment, ResponseVariable,
};
use crate::error::ExperimentError;
use crate::factor::link::{self, HOST, LINK, OUTER};
use crate::factor::{Factor, FactorDomain};
use crate::ipc::clock_resolution;
use crate::list;
use crate::surroundings::Surroundings;

/// Most cells in one plan: beyond it a run would last for days and its report hold nothing clear.
const CELLS_MAX: usize = 20_000;

/// Every cell of a plan, in the plan's order, each once.
///
/// Cells that cannot be measured here come with the reason.
///
/// # Errors
/// Unknown ids, more than 20,000 cells, or a plan of which no cell could be measured on any host.
pub fn expand(
    plan: &RunPlan,
    topology: &CpuTopology,
    surroundings: &Surroundings,
) -> Result<Vec<CellPlan>, ExperimentError> {
    let mut cells = Vec::new();
    let mut seen = BTreeSet::new();
    let mut impossible = None;
    let mut possible = false;
    for planned in &plan.experiments {
        let experiment = list::find(&planned.id)?;
        let responses = responses(experiment, planned);
        check_count(planned, responses.len())?;
        let settings = product(experiment, planned, topology, surroundings);
        for (factors, response) in
            settings.iter().flat_map(|f| responses.iter().map(move |r| (f, r)))
        {
            let point = DesignPoint { factors, response: response.name, topology, surroundings };
            let action = match (experiment.plan_cell)(&point) {
                Ok((group, task)) => {
                    possible = true;
                    CellAction::Measure { group, task, injected: Span::ZERO }
                }
                Err(Exclusion::Unavailable(why)) => {
                    possible = true;
                    CellAction::Unavailable(why)
                }
                Err(Exclusion::Impossible(why)) => {
                    impossible.get_or_insert_with(|| why.clone());
                    CellAction::Unavailable(why)
                }
                Err(Exclusion::NotApplicable) => continue,
            };
            if seen.insert((experiment.id, factors.clone(), response.name)) {
                cells.push(CellPlan {
                    experiment: experiment.id.to_owned(),
                    factors: factors.clone(),
                    response: response.name.to_owned(),
                    unit: response.unit,
                    better: response.better,
                    action,
                });
            }
        }
    }
    if cells.len() > CELLS_MAX {
        return Err(too_many(cells.len()));
    }
    match (possible, impossible) {
        (true, _) => Ok(cells),
        (false, Some(why)) => Err(ExperimentError::usage("nothing of this plan can be measured")
            .because(why)
            .fix("choose other levels; plumb list experiments shows what each factor takes")),
        (false, None) => Err(ExperimentError::usage("this plan has no cells")
            .because("no response means anything at the levels it chooses")
            .fix("add an experiment or a level; plumb list experiments shows them")),
    }
}

/// Refuses a product that would not fit into memory, before it is made.
fn check_count(planned: &PlannedExperiment, responses: usize) -> Result<(), ExperimentError> {
    let count = planned
        .factors
        .values()
        .fold(responses, |product, levels| product.saturating_mul(levels.len().max(1)));
    if count > 10 * CELLS_MAX { Err(too_many(count)) } else { Ok(()) }
}

fn too_many(count: usize) -> ExperimentError {
    ExperimentError::usage(format!("the plan makes {count} cells"))
        .because(format!("at most {CELLS_MAX} fit one run: each is measured many times"))
        .fix("fix some factors to one level with --set factor=level, or split the plan")
}

/// The responses that a plan selects, or all.
fn responses(
    experiment: &Experiment,
    planned: &PlannedExperiment,
) -> Vec<&'static ResponseVariable> {
    let selected = planned.factors.get(RESPONSE);
    experiment
        .responses
        .iter()
        .filter(|response| selected.is_none_or(|names| names.contains(&response.name.into())))
        .collect()
}

/// Every combination of levels; the last factor varies fastest.
fn product(
    experiment: &Experiment,
    planned: &PlannedExperiment,
    topology: &CpuTopology,
    surroundings: &Surroundings,
) -> Vec<Factors> {
    let mut settings = vec![Factors::default()];
    for factor in experiment.factors {
        let Some(levels) = planned.factors.get(factor.name) else { continue };
        let levels: Vec<FactorLevel> = levels
            .iter()
            .flat_map(|level| resolved_levels(factor, level, topology, surroundings))
            .collect();
        settings = settings
            .into_iter()
            .flat_map(|setting| {
                levels.iter().map(move |level| setting.clone().with(factor.name, level.clone()))
            })
            .collect();
    }
    settings
}

/// The levels that a level stands for on this host: `other-cpu` and `each` are not levels of cells.
fn resolved_levels(
    factor: &Factor,
    level: &FactorLevel,
    topology: &CpuTopology,
    surroundings: &Surroundings,
) -> Vec<FactorLevel> {
    match (factor.domain, level) {
        (FactorDomain::Cpus, level) => clock_resolution::cpus_of(level, topology),
        (_, FactorLevel::Text(word)) if factor.name == "placement" && word == "other-cpu" => {
            let best = topology.resolve(CpuPlacement::OtherCpu).unwrap_or(CpuPlacement::OtherCpu);
            vec![best.name().into()]
        }
        (_, FactorLevel::Text(word)) if factor.name == LINK.name && word == OUTER => {
            vec![link::outer_level(surroundings)]
        }
        (_, FactorLevel::Text(word)) if factor.name == LINK.name && word == HOST => {
            vec![link::host_level(surroundings)]
        }
        _ => vec![level.clone()],
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::time::Span;
    use plumb_harness::environment::KernelFiles;

    use super::*;
    use crate::plan::{ChosenLevels, RunEstimate};
    use crate::preset::RunPreset;

    const NONE: &Surroundings = &Surroundings::NONE;

    /// A machine that tells nothing about itself: one socket, no caches listed.
    fn cpus(allowed: &[u32]) -> CpuTopology {
        CpuTopology::read(&KernelFiles::at("/nonexistent"), allowed)
    }

    fn planned(id: &str, words: &[&str]) -> Result<RunPlan, ExperimentError> {
        RunPlan::named(id, Some(RunPreset::Quick), &ChosenLevels::parse(words).unwrap(), NONE)
    }

    fn cells(id: &str, words: &[&str], allowed: &[u32]) -> Vec<CellPlan> {
        expand(&planned(id, words).unwrap(), &cpus(allowed), NONE).unwrap()
    }

    fn measured(cells: &[CellPlan]) -> usize {
        cells.iter().filter(|cell| matches!(cell.action, CellAction::Measure { .. })).count()
    }

    fn estimate(id: &str, words: &[&str]) -> RunEstimate {
        RunEstimate::of(&cells(id, words, &[0, 1]), &planned(id, words).unwrap().limits)
    }

    #[test]
    fn the_full_latency_table_has_every_mechanism_size_and_placement() {
        let cells = cells("latency.local", &[], &[0, 1]);
        // 31 mechanisms × 6 sizes × 2 placements, and three of one size each.
        assert_eq!(cells.len(), 31 * 6 * 2 + 3 * 2);
        // Two processes that spin cannot share a CPU.
        assert_eq!(measured(&cells), cells.len() - 6);
    }

    #[test]
    fn other_cpu_stands_for_the_best_placement_here_and_is_no_placement_of_its_own() {
        let words = ["mechanism=pipe", "size=64", "placement=other-cpu,same-socket"];
        let cells = cells("latency.local", &words, &[0, 1]);
        assert_eq!(cells.len(), 1);
        assert_eq!(cells[0].factors.text("placement"), Some("same-socket"));
    }

    #[test]
    fn what_the_cpus_here_cannot_do_is_a_result_with_its_reason() {
        for (id, words, possible, reason) in [
            ("latency.local", ["mechanism=pipe", "size=64"], 1, "one CPU"),
            ("scaling.smp", ["cpus=2", "streams=1"], 0, "1 CPUs here, not 2"),
        ] {
            let cells = cells(id, &words, &[3]);
            assert_eq!(measured(&cells), possible);
            let Some(CellAction::Unavailable(why)) = cells.last().map(|cell| &cell.action) else {
                panic!("{cells:?}")
            };
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn impossible_levels_are_refused_and_mixed_ones_are_measured_where_they_can_be() {
        let sizes: Vec<String> = (1..3000).map(|n| n.to_string()).collect();
        let cases: [(&str, &[&str], &str); 12] = [
            ("latency.local", &["mechanism=eventfd", "size=64"], "exactly 8 bytes"),
            ("latency.local", &["mechanism=pipe", "wake=spin", "placement=same-cpu"], "spin"),
            ("latency.local", &["mechanism=futex", "wake=poll"], "no wake mode"),
            ("latency.local", &[&format!("size={}", sizes.join(","))], "cells"),
            ("host.peak", &["cpu-share=5"], "from 10 to 100"),
            ("host.mtu", &["mtu=575"], "from 576 to 65535"),
            ("host.tweaks", &["tweak=nice"], "real-time"),
            ("host.coalescing", &["receive=gro"], "joined"),
            ("scaling.smp", &["streams=0"], "from 1 to 64"),
            ("scaling.http", &["way=http9"], "keep-alive"),
            ("host.buffers", &["buffer=1Ki"], "4 KiB"),
            ("tcp.options", &["buffer=sent:16Ki"], "send:16Ki"),
        ];
        for (id, words, what) in cases {
            let expanded = planned(id, words).and_then(|plan| expand(&plan, &cpus(&[0, 1]), NONE));
            let problem = expanded.unwrap_err().to_string();
            assert!(problem.contains(what), "{id} {what}: {problem}");
        }
        let words = ["mechanism=eventfd,pipe", "size=64", "placement=same-cpu"];
        let mixed = cells("latency.local", &words, &[0, 1]);
        assert_eq!((mixed.len(), measured(&mixed)), (2, 1));
    }

    #[test]
    fn quick_experiments_end_soon() {
        for (ids, seconds) in [
            ("latency.remote throughput.remote path.length mtu.path", None),
            ("fec.vs.arq host.model nic.memory flood.host unresponsive punish", Some(60)),
            ("stack.pollution stack.nic", Some(60)),
            ("scaling.entry scaling.loopback scaling.lan scaling.wan scaling.http", Some(60)),
            ("scaling.smp host.peak host.buffers host.coalescing host.tweaks", Some(60)),
            ("host.mtu host.interrupt", Some(60)),
            ("cc.utilisation", Some(100)),
            ("window.bdp", Some(80)),
            ("ladder", Some(20)),
        ] {
            for id in ids.split(' ') {
                let estimate = estimate(id, &[]);
                // Without a bound they may need more, and take a minute when soon precise; whole studies end with
                // their budget.
                let time = if seconds.is_some() { estimate.most } else { estimate.least };
                let bound = Span::from_secs(seconds.unwrap_or(65));
                assert!(estimate.cells > 0 && time < bound, "{id}: {estimate:?}");
                assert!(estimate.least > Span::ZERO, "{id}");
            }
        }
    }

    #[test]
    fn cells_share_a_launch_by_channel_and_a_block_by_setting() {
        let streams = estimate("host.mtu", &[]);
        assert_eq!((streams.cells, streams.blocks, streams.groups), (40, 8, 8));
        let channels = estimate("latency.local", &["mechanism=pipe,tcp4", "placement=same-cpu"]);
        assert_eq!((channels.cells, channels.groups), (12, 2));
    }

    #[test]
    fn clocks_are_read_on_each_cpu_and_compared_with_the_first() {
        let cells = cells("clock.resolution", &[], &[0, 1]);
        let of = |response: &str| cells.iter().filter(|c| c.response == response).count();
        assert_eq!((of("resolution"), of("read-cost"), of("offset")), (16, 16, 2));
    }
}
