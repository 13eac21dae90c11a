//! The account of a run under way: which cells are open, what they have, what they still need.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::compare::factors_without;
use plumb_base::seed::RandomStream;
use plumb_base::stats::hierarchy::SampleHierarchy;
use plumb_base::stats::histogram::Histogram;
use plumb_base::stats::{quantile, stopping};
use plumb_base::time::Span;
use plumb_harness::report::LaunchFacts;
use plumb_harness::spec::LaunchSubject;
use plumb_store::record::{CellStatus, RunData, SampleBlock};
use rand::seq::SliceRandom as _;

use crate::definition::{CellAction, CellPlan, LaunchGroup};
use crate::plan::estimate::RoundEstimate;
use crate::preset::RunLimits;

/// Order statistics of a block that the stopping rule keeps.
const KEPT: usize = 64;

/// Blocks without a single sample after which a cell has none to give: one lost datagram can be all
/// that a short block had time for.
const SILENT_BLOCKS: usize = 3;

/// Why a cell needs no more launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellCompletion {
    /// Its interval is narrow enough.
    Precise,
    /// It has had as many launches as the plan allows.
    LaunchesSpent,
}

/// Groups that are launched together, each with its open cells.
pub(super) type OpenUnit = BTreeMap<usize, Vec<usize>>;

/// One cell's account.
pub(super) struct CellState {
    pub(super) plan: CellPlan,
    group: Option<usize>,
    /// The cells that this one takes turns with have the same; of most, nobody.
    turn: usize,
    /// Whether it wants more.
    pub(super) open: bool,
    /// Launch → blocks → a few order statistics.
    pub(super) launches: BTreeMap<i64, Vec<Vec<f64>>>,
    /// Rounds that visited it to the end.
    pub(super) visits: u32,
}

/// The account of all cells.
pub(super) struct RunState {
    pub(super) cells: Vec<CellState>,
    /// The unit of each group: groups of one unit are launched together.
    units: Vec<usize>,
    failures: BTreeMap<usize, u32>,
    /// Launches made so far.
    pub(super) launches: i64,
    /// Rounds begun.
    pub(super) rounds: u32,
    pub(super) blocks_done: u64,
    blocks_before: u64,
    /// Facts about channels.
    pub(super) facts: BTreeMap<String, String>,
}

impl RunState {
    /// An account of cells that have nothing yet; cell ids count from 1 in this order. Cells that differ in the
    /// interleaved factor alone take turns.
    pub(super) fn new(plans: Vec<CellPlan>, interleave: Option<&str>) -> Self {
        let mut groups: BTreeMap<LaunchGroup, usize> = BTreeMap::new();
        let mut turns: BTreeMap<String, usize> = BTreeMap::new();
        let mut entries = Vec::with_capacity(plans.len());
        for plan in plans {
            let group = match &plan.action {
                CellAction::Measure { group, .. } => {
                    let next = groups.len();
                    Some(*groups.entry(group.clone()).or_insert(next))
                }
                CellAction::Unavailable(_) => None,
            };
            let open = group.is_some();
            let next = turns.len();
            let turn = *turns.entry(turn_key(&plan, interleave)).or_insert(next);
            let launches = BTreeMap::new();
            entries.push(CellState { plan, group, turn, open, launches, visits: 0 });
        }
        Self {
            units: units(groups.len(), &entries),
            cells: entries,
            failures: BTreeMap::new(),
            launches: 0,
            rounds: 0,
            blocks_done: 0,
            blocks_before: 0,
            facts: BTreeMap::new(),
        }
    }

    /// Adds what a stored run already has.
    pub(super) fn restore(&mut self, data: &RunData) {
        for cell in &data.cells {
            if let CellStatus::Done(_) | CellStatus::Unavailable(_) = cell.status
                && let Some(entry) = self.entry_of(cell.id)
            {
                entry.open = false;
            }
        }
        for block in &data.blocks {
            if let Some(entry) = self.entry_of(block.cell) {
                let blocks = entry.launches.entry(block.launch).or_default();
                blocks.push(order_statistics(block));
            }
        }
        for entry in &mut self.cells {
            entry.visits = u32::try_from(entry.launches.len()).unwrap_or(u32::MAX);
        }
        self.launches = data.launches.iter().map(|launch| launch.id).max().unwrap_or(0);
        self.rounds = data.launches.iter().map(|launch| launch.round + 1).max().unwrap_or(0);
        self.blocks_done = data.blocks.len() as u64;
        self.blocks_before = self.blocks_done;
    }

    fn entry_of(&mut self, id: i64) -> Option<&mut CellState> {
        usize::try_from(id - 1).ok().and_then(|index| self.cells.get_mut(index))
    }

    /// Open cells that may have another launch, by unit and group.
    pub(super) fn open_units(&self, limits: &RunLimits) -> Vec<OpenUnit> {
        let mut units: BTreeMap<usize, OpenUnit> = BTreeMap::new();
        for (cell, entry) in self.cells.iter().enumerate() {
            if let Some(group) = entry.group
                && entry.open
                && entry.visits < limits.launches_max
            {
                units.entry(self.units[group]).or_default().entry(group).or_default().push(cell);
            }
        }
        units.into_values().collect()
    }

    /// How many launches of each of a unit's groups are made at once: several of a simulated one, as long as its cells need as many.
    pub(super) fn launches_at_once(&self, unit: &OpenUnit, limits: &RunLimits) -> u32 {
        let cells = || unit.values().flatten().map(|cell| &self.cells[*cell]);
        let wanted = cells().map(|entry| limits.launches_max.saturating_sub(entry.visits)).min();
        let at_once = cells().map(|entry| entry.plan.group().launches_at_once()).min();
        at_once.unwrap_or(1).min(wanted.unwrap_or(1)).max(1)
    }

    /// These cells in the order in which one pass visits them: at random, but that those which take turns follow
    /// each other, in the opposite order in every other pass (A, B, B, A).
    pub(super) fn visiting_order(
        &self,
        cells: &[usize],
        is_reversed: bool,
        stream: &mut RandomStream,
    ) -> Vec<usize> {
        let mut turns: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &cell in cells {
            turns.entry(self.cells[cell].turn).or_default().push(cell);
        }
        let mut turns: Vec<Vec<usize>> = turns.into_values().collect();
        turns.shuffle(stream);
        if is_reversed {
            for turn in &mut turns {
                turn.reverse();
            }
        }
        turns.concat()
    }

    /// Of these cells, those that one block serves with this one when it gives several responses
    /// at once: the same task in the same launch.
    pub(super) fn served_by_one_block(&self, cell: usize, of: &[usize]) -> Vec<usize> {
        let action = &self.cells[cell].plan.action;
        let is_kin = |&other: &usize| {
            let entry = &self.cells[other];
            other == cell || (entry.open && entry.plan.action == *action)
        };
        of.iter().copied().filter(is_kin).collect()
    }

    /// The cell's id in the store.
    pub(super) fn id(&self, cell: usize) -> i64 {
        debug_assert!(cell < self.cells.len(), "a cell of this run");
        i64::try_from(cell).unwrap_or(i64::MAX - 1) + 1
    }

    /// Cells that want more.
    pub(super) fn open(&self) -> Vec<usize> {
        (0..self.cells.len()).filter(|&cell| self.cells[cell].open).collect()
    }

    /// Whether nothing ever got through in any of the cell's blocks, and they are enough to say so.
    pub(super) fn has_no_samples(&self, cell: usize) -> bool {
        let blocks = || self.cells[cell].launches.values().flatten();
        blocks().count() >= SILENT_BLOCKS && blocks().all(Vec::is_empty)
    }

    /// Adds a block.
    pub(super) fn add(&mut self, cell: usize, block: &SampleBlock) {
        let blocks = self.cells[cell].launches.entry(block.launch).or_default();
        blocks.push(order_statistics(block));
    }

    /// Failed launches of a group, with one more.
    pub(super) fn count_failure(&mut self, group: usize) -> u32 {
        let failures = self.failures.entry(group).or_default();
        *failures += 1;
        *failures
    }

    /// Open cells that need no more launches, and why.
    pub(super) fn newly_finished(&self, limits: &RunLimits) -> Vec<(usize, CellCompletion)> {
        let settled = |cell: usize| {
            let entry = &self.cells[cell];
            if !entry.open || entry.visits < limits.launches_min {
                return None;
            }
            if entry.is_precise(limits.precision) {
                return Some((cell, CellCompletion::Precise));
            }
            (entry.visits >= limits.launches_max).then_some((cell, CellCompletion::LaunchesSpent))
        };
        (0..self.cells.len()).filter_map(settled).collect()
    }

    /// Keeps what a launch found out about its channel, once for each mechanism.
    pub(super) fn record_facts(&mut self, subject: &LaunchSubject, facts: &LaunchFacts) {
        let name = match subject {
            LaunchSubject::Alone | LaunchSubject::VirtualTime => return,
            LaunchSubject::Channel(channel) => channel.mechanism.name().to_owned(),
            LaunchSubject::Mirror(mirror) => mirror.name(),
            LaunchSubject::Remote(remote) => remote.name(),
            LaunchSubject::Streams(streams) => streams.name(),
            LaunchSubject::PageLoads(visits) => visits.name(),
        };
        for (fact, value) in facts {
            let key = format!("channel.{name}.{fact}");
            self.facts.entry(key).or_insert_with(|| value.clone());
        }
    }

    /// Blocks that open cells will have if they need all their launches.
    pub(super) fn blocks_open(&self, limits: &RunLimits) -> u64 {
        let rounds =
            |entry: &CellState| u64::from(limits.launches_max.saturating_sub(entry.visits));
        self.cells
            .iter()
            .filter(|entry| entry.open)
            .map(|entry| rounds(entry) * u64::from(limits.passes))
            .sum()
    }

    /// Time that these will take, by the blocks measured so far, or as the plan was estimated.
    pub(super) fn time_open(&self, limits: &RunLimits, elapsed: Span) -> Span {
        let done = self.blocks_done - self.blocks_before;
        if done < 20 {
            return self.time_estimated(limits);
        }
        Span::from_secs_f64(elapsed.as_secs_f64() / done as f64 * self.blocks_open(limits) as f64)
    }

    /// Rounds of the cells that still want as many, one estimate for each set of them.
    fn time_estimated(&self, limits: &RunLimits) -> Span {
        let wanted = |entry: &CellState| limits.launches_max.saturating_sub(entry.visits);
        let open: Vec<&CellState> = self.cells.iter().filter(|entry| entry.open).collect();
        let rounds: BTreeSet<u32> = open.iter().map(|entry| wanted(entry)).collect();
        let (mut sum, mut before) = (Span::ZERO, 0);
        for rounds in rounds {
            let cells = open.iter().filter(|entry| wanted(entry) >= rounds);
            let round = RoundEstimate::of(cells.map(|entry| &entry.plan), limits);
            sum += round.time * u64::from(rounds - before);
            before = rounds;
        }
        sum
    }
}

/// What a cell shares with those that it takes turns with, and with no other.
fn turn_key(plan: &CellPlan, interleave: Option<&str>) -> String {
    let factors = match interleave {
        Some(factor) => factors_without(&plan.factors, factor),
        None => plan.factors.clone(),
    };
    format!("{} {factors} [{}]", plan.experiment, plan.response)
}

/// The unit of each group: groups whose cells take turns with each other are of one.
fn units(groups: usize, cells: &[CellState]) -> Vec<usize> {
    let mut units: Vec<usize> = (0..groups).collect();
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    for cell in cells {
        let Some(group) = cell.group else { continue };
        let partner = *first.entry(cell.turn).or_insert(group);
        let (from, to) = (units[group], units[partner]);
        units.iter_mut().filter(|unit| **unit == from).for_each(|unit| *unit = to);
    }
    units
}

impl CellState {
    fn is_precise(&self, target: f64) -> bool {
        let hierarchy = SampleHierarchy::new(self.launches.values().cloned().collect());
        stopping::interval(&hierarchy)
            .is_some_and(|interval| stopping::is_precise(&interval, hierarchy.median(), target))
    }
}

/// Evenly spaced order statistics of a block: all that the stopping rule needs of it.
///
/// Of all its samples, which are in the histogram when they are too many to be kept raw: a rule
/// that looked at the first ones alone would stop at an interval that the summary does not have.
fn order_statistics(block: &SampleBlock) -> Vec<f64> {
    let at = |index: usize| (index as f64 + 0.5) / KEPT as f64;
    let histogram = Some(&block.histogram).filter(|bytes| !bytes.is_empty());
    if let Some(Ok(histogram)) = histogram.map(|bytes| Histogram::decode(bytes)) {
        let value = |index| histogram.quantile(at(index)) as f64 * block.histogram_scale;
        return (0..KEPT).map(value).collect();
    }
    let sorted = quantile::sorted(&block.samples);
    if sorted.len() <= KEPT {
        return sorted;
    }
    (0..KEPT).map(|index| quantile::of_sorted(&sorted, at(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(samples: Vec<f64>, histogram: Vec<u8>) -> SampleBlock {
        SampleBlock {
            cell: 1,
            launch: 1,
            pass: 0,
            batch: 1,
            n: 1_000,
            warmup: 0,
            samples,
            histogram,
            histogram_scale: 0.5,
            n_eff: None,
            effort: plumb_store::record::BlockUsage::default(),
            counters: BTreeMap::new(),
            flags: Vec::new(),
        }
    }

    #[test]
    fn the_stopping_rule_sees_all_samples_and_not_the_first_ones_alone() {
        let mut histogram = Histogram::new();
        for value in 300..=500 {
            histogram.record(value);
        }
        let seen = order_statistics(&block(vec![1.0; 100], histogram.encode()));
        let median = quantile::of_sorted(&seen, 0.5);
        assert!((median - 200.0).abs() < 2.0, "{median}");
    }

    fn cell(size: u64) -> CellPlan {
        let group = LaunchGroup {
            subject: LaunchSubject::Alone,
            placement: plumb_harness::topology::CpuPlacement::SameCpu,
            cpu: None,
        };
        let task = plumb_harness::spec::BlockTask::Latency { size };
        CellPlan {
            experiment: "latency.local".to_owned(),
            factors: plumb_store::record::Factors::default().with("size", size),
            response: "latency".to_owned(),
            unit: plumb_base::units::Unit::Nanoseconds,
            better: plumb_store::record::Better::Lower,
            action: CellAction::Measure { group, task, injected: Span::ZERO },
        }
    }

    #[test]
    fn the_time_left_begins_as_the_plan_was_estimated_and_shrinks_with_each_launch() {
        let cells = vec![cell(1), cell(2), cell(4)];
        let limits = RunLimits { budget: None, ..crate::preset::RunPreset::Quick.limits() };
        let estimate = crate::plan::RunEstimate::of(&cells, &limits);
        let mut state = RunState::new(cells, None);
        assert_eq!(state.time_open(&limits, Span::ZERO), estimate.most);
        let mut before = estimate.most;
        for cell in 0..3 {
            state.cells[cell].visits += 1;
            let left = state.time_open(&limits, Span::ZERO);
            assert!(left < before, "{left} {before}");
            before = left;
        }
        let round = RoundEstimate::of(state.cells.iter().map(|entry| &entry.plan), &limits).time;
        assert_eq!(before + round, estimate.most);
    }

    #[test]
    fn launches_in_virtual_time_are_made_at_once_but_no_more_than_cells_need() {
        let at_once = |group: &LaunchGroup, visits: u32| {
            let mut plan = cell(1);
            if let CellAction::Measure { group: own, .. } = &mut plan.action {
                own.clone_from(group);
            }
            let limits = RunLimits { launches_max: 3, ..crate::preset::RunPreset::Quick.limits() };
            let mut state = RunState::new(vec![plan], None);
            state.cells[0].visits = visits;
            state.launches_at_once(&state.open_units(&limits)[0], &limits)
        };
        let simulated = LaunchGroup::virtual_time();
        assert_eq!(at_once(&simulated, 0), simulated.launches_at_once().min(3));
        assert_eq!(at_once(&simulated, 2), 1, "the last of three");
        assert_eq!(at_once(&LaunchGroup::alone(), 0), 1, "what is real has the machine for itself");
    }

    #[test]
    fn levels_of_the_interleaved_factor_take_turns() {
        let of = |wake: &str, size: u64| {
            let mut plan = cell(size);
            plan.factors = plan.factors.with("wake", wake);
            if let CellAction::Measure { group, .. } = &mut plan.action {
                // Each level needs processes of its own.
                group.cpu = Some(u32::from(wake == "spin"));
            }
            plan
        };
        let cells = || vec![of("block", 1), of("block", 2), of("spin", 1), of("spin", 2)];
        let limits = crate::preset::RunPreset::Quick.limits();
        assert_eq!(RunState::new(cells(), None).open_units(&limits).len(), 2);
        let state = RunState::new(cells(), Some("wake"));
        let units = state.open_units(&limits);
        assert_eq!(units.len(), 1);
        assert_eq!(units[0].values().collect::<Vec<_>>(), [&vec![0, 1], &vec![2, 3]]);
        let mut stream = plumb_base::seed::Seed(1).stream("order");
        for is_reversed in [false, true] {
            let order = state.visiting_order(&[0, 1, 2, 3], is_reversed, &mut stream);
            for turn in order.chunks(2) {
                let expected =
                    if is_reversed { turn[0] == turn[1] + 2 } else { turn[1] == turn[0] + 2 };
                assert!(expected, "{order:?}");
            }
        }
    }

    #[test]
    fn a_cell_is_silent_only_after_several_blocks_without_a_sample() {
        let mut state = RunState::new(vec![cell(1)], None);
        for seen in [false, false, true, true] {
            state.add(0, &block(Vec::new(), Vec::new()));
            assert_eq!(state.has_no_samples(0), seen);
        }
        state.add(0, &block(vec![1.0], Vec::new()));
        assert!(!state.has_no_samples(0));
    }
}
