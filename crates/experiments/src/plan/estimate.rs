//! How long a plan will take.
//!
//! The one estimate: a run that is under way asks it too, until it has seen enough of itself.

use std::collections::BTreeSet;

use plumb_base::time::Span;
use plumb_harness::spec::{BlockTask, LaunchSubject, PathKind};

use crate::definition::{CellAction, CellPlan, LaunchGroup};
use crate::factor::{remote, streams};
use crate::preset::RunLimits;
use crate::scaling::scaling_http;
use crate::simulation;

/// Time to start and stop a pair of processes and open their channel.
const LAUNCH: Span = Span::from_ms(15);

/// Time that an emulated link takes more: a process of its own, which first tries for some 60 ms how
/// precisely it can wait here.
const LINK: Span = Span::from_ms(100);

/// What the pilot, the verification and the warm-up add to a block.
const AROUND_BLOCK: (u64, u64) = (5, 4);

/// How long a plan will take, and how much it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEstimate {
    /// If every cell is precise after the fewest launches.
    pub least: Span,
    /// If none ever is; the budget counted.
    pub most: Span,
    /// Cells that can be measured here.
    pub cells: u64,
    /// Launches in one round: one for each group.
    pub groups: u64,
    /// Blocks in one round.
    pub blocks: u64,
}

impl RunEstimate {
    /// Estimates the cells of a plan, round by round.
    pub fn of(cells: &[CellPlan], limits: &RunLimits) -> Self {
        let round = RoundEstimate::of(cells, limits);
        let most = round.time * u64::from(limits.launches_max);
        // The budget stops new rounds, not the one under way.
        let stopped = limits.budget.map_or(most, |budget| most.min(budget + round.time));
        let least = round.time * u64::from(limits.launches_min);
        Self {
            least: least.min(stopped),
            most: stopped,
            cells: round.cells,
            groups: round.groups,
            blocks: round.blocks,
        }
    }
}

/// What one round of some cells is: a launch of each of their groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundEstimate {
    /// How long it takes.
    pub time: Span,
    /// Cells that can be measured here.
    pub cells: u64,
    /// Launches: one for each group.
    pub groups: u64,
    /// Blocks.
    pub blocks: u64,
}

impl RoundEstimate {
    /// The launches of these cells' groups (15 ms each, 115 ms over an emulated link), and their blocks
    /// (a quarter longer than what they time).
    pub fn of<'a>(cells: impl IntoIterator<Item = &'a CellPlan>, limits: &RunLimits) -> Self {
        let mut round = Self::default();
        let mut groups: BTreeSet<&LaunchGroup> = BTreeSet::new();
        let mut served = Vec::new();
        for cell in cells {
            let CellAction::Measure { group, task, .. } = &cell.action else { continue };
            groups.insert(group);
            round.cells += 1;
            if task.has_parts() {
                // One block serves all its responses.
                if served.contains(&(group, task)) {
                    continue;
                }
                served.push((group, task));
            }
            round.blocks += u64::from(limits.passes);
            let block = block_time(cell, limits) * AROUND_BLOCK.0 / AROUND_BLOCK.1
                + loss_wait(&cell.action);
            round.time += block * u64::from(limits.passes) / u64::from(group.launches_at_once());
        }
        let linked = groups.iter().filter(|group| has_link(group)).count() as u64;
        round.groups = groups.len() as u64;
        round.time += LAUNCH * round.groups + LINK * linked;
        round
    }
}

/// Wall time of one block: the plan's, but long enough for a few dozen operations where a
/// single one is known to wait for a kernel timer or to cross a slow network.
pub fn block_time(cell: &CellPlan, limits: &RunLimits) -> Span {
    // Nagle's rule against a delayed acknowledgement costs 40 ms an operation on Linux.
    let waits = matches!(
        &cell.action,
        CellAction::Measure { group, task: BlockTask::WriteWriteRead { .. }, .. }
            if group.subject.channel().is_some_and(|channel| !channel.options.nodelay)
    );
    if waits {
        return limits.block.max(Span::from_ms(500));
    }
    let CellAction::Measure { group, task, .. } = &cell.action else { return limits.block };
    if let BlockTask::Simulation(_) = task {
        return simulation::block_time(&cell.experiment);
    }
    match &group.subject {
        LaunchSubject::Remote(remote) => limits.block.max(remote::block_time(remote, task)),
        LaunchSubject::Streams(streams) => streams::block_time(streams, limits.block),
        LaunchSubject::PageLoads(visits) => scaling_http::block_time(visits, limits.block),
        _ => limits.block,
    }
}

fn has_link(group: &LaunchGroup) -> bool {
    group
        .subject
        .path()
        .is_some_and(|path| matches!(path.kind, PathKind::Link(_) | PathKind::Host(_)))
}

/// Time that a block spends waiting for datagrams that were lost.
///
/// Messages of several datagrams are lost often, and each loss is known only by a timeout.
fn loss_wait(action: &CellAction) -> Span {
    match action {
        CellAction::Measure { group, task: BlockTask::Reliability { size, .. }, .. }
            if *size > DATAGRAM && is_lossy(group) =>
        {
            Span::from_ms(400)
        }
        CellAction::Measure { task: BlockTask::Breakdown { .. }, .. } => TRACEPOINTS,
        _ => Span::ZERO,
    }
}

/// Time to open and to close a set of tracepoints: some 45 ms each.
const TRACEPOINTS: Span = Span::from_ms(500);

fn is_lossy(group: &LaunchGroup) -> bool {
    group.subject.channel().is_some_and(|channel| channel.mechanism.is_lossy())
}

/// Messages up to this size are one datagram, or few.
const DATAGRAM: u64 = 8 << 10;
