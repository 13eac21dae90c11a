//! The run loop: rounds of interleaved launches, one stored block after another, until every cell
//! is precise enough or the budget is spent.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::{OUTER_LINK_AFTER, host_notes};
use plumb_base::time::Span;
use plumb_harness::launcher::LaunchError;
use plumb_harness::program_task::SIMULATED;
use plumb_harness::report::BlockReport;
use plumb_harness::spec::{BlockSpec, BlockTask, LaunchSubject};
use plumb_harness::{mechanisms, stop_signals};
use plumb_store::lock::MeasureLock;
use plumb_store::record::{self, CellStatus, RunStatus};
use plumb_store::sqlite::Store;
use rand::RngExt as _;
use rand::seq::SliceRandom;

use crate::definition::{CellPlan, LaunchGroup};
use crate::error::{ErrorKind, ExperimentError};
use crate::factor::link::{is_host, is_outer};
use crate::plan::RunPlan;
use crate::plan::estimate::block_time;
use crate::surroundings::RunSurroundings;

pub(crate) mod block;
mod calibration;
mod prepare;
mod state;

use block::{DisturbanceDetector, LaunchSource, OpenLaunch, ProcessLaunches};
pub(crate) use calibration::CalibratedClock;
use prepare::{BegunIn, PreparedRun};
use state::{CellCompletion, OpenUnit, RunState};

/// What to carry out, and where to store it.
#[derive(Debug)]
pub struct RunRequest<'a> {
    /// The plan, as it will be stored.
    pub plan: RunPlan,
    /// Its cells on this host.
    pub cells: Vec<CellPlan>,
    /// Where blocks go.
    pub store: &'a mut Store,
    /// The run to finish instead of beginning a new one.
    pub resume: Option<String>,
    /// What the run is called.
    pub title: String,
    /// Version and commit of this program.
    pub code_version: &'static str,
    /// What it depends on outside its processes.
    pub surroundings: RunSurroundings,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// The run.
    pub run_id: String,
    /// Complete, or interrupted.
    pub status: RunStatus,
    /// What stopped it, in a few words.
    pub stopped_by: String,
}

/// Observes a run; called only while nothing is being measured.
pub trait RunObserver {
    /// The run has an id, and an estimate of its time and its blocks.
    fn started(&mut self, id: &str, estimate: Span, blocks_planned: u64);
    /// A block is stored.
    fn block(&mut self, done: u64, planned: u64, what: &CellPlan, left: Span);
    /// Something deserves a line of its own.
    fn note(&mut self, text: &str);
}

/// Samples of a block that are stored raw; its histogram holds the rest.
const SAMPLES_KEPT: u32 = 1_000;

/// Times that a group's launch may fail before its cells are given up.
const FAILURES_MAX: u32 = 2;

/// Carries out a request: measures until done, out of budget, or told to stop.
///
/// # Errors
/// When the store is locked or cannot be written, or no measuring process can be started at all.
/// Failures of single cells are stored with them and are not errors.
pub fn execute(
    request: RunRequest<'_>,
    watcher: &mut dyn RunObserver,
) -> Result<RunOutcome, ExperimentError> {
    stop_signals::count_stop_requests()
        .map_err(|error| ExperimentError::failure("cannot listen for Ctrl-C").because(error))?;
    let mut lock = MeasureLock::acquire(request.store.path(), std::process::id(), "starting")
        .map_err(|error| ExperimentError::from_message(ErrorKind::Failure, &error.to_string()))?;
    let swept = mechanisms::sweep_leftovers();
    if swept > 0 {
        watcher.note(&format!("removed {swept} leftovers of a run that was killed"));
    }
    let clock = CalibratedClock::calibrate(&request.cells)?;
    let machine = MachineFacts { provenance: prepare::provenance(), clock: clock.notes() };
    carry_out(request, &machine, &mut ProcessLaunches::new(&clock), watcher, Some(&mut lock))
}

/// What is recorded of the machine before a run.
#[derive(Debug, Default)]
pub(crate) struct MachineFacts {
    /// Hardware, kernel and settings.
    pub(crate) provenance: BTreeMap<String, String>,
    /// The clock on every CPU used.
    pub(crate) clock: BTreeMap<String, String>,
}

/// Carries out a request with launches of this source.
pub(crate) fn carry_out(
    request: RunRequest<'_>,
    machine: &MachineFacts,
    source: &mut dyn LaunchSource,
    observer: &mut dyn RunObserver,
    lock: Option<&mut MeasureLock>,
) -> Result<RunOutcome, ExperimentError> {
    let RunRequest { plan, cells, store, resume, title, code_version, surroundings } = request;
    let begun_in = BegunIn { code_version, surroundings: &surroundings.at_start, machine };
    let PreparedRun { id, seed, state, disturbances } = match resume {
        Some(id) => prepare::resumed(store, &id, &plan, cells, begun_in)?,
        None => prepare::new(store, &plan, &title, cells, begun_in)?,
    };
    if let Some(lock) = lock {
        // The lock names its holder for others to read; measuring does not depend on it.
        drop(lock.rename(std::process::id(), &id));
    }
    let mut run = RunExecution {
        store,
        observer,
        plan,
        id,
        seed,
        source,
        state,
        disturbances,
        surroundings,
        lost: None,
    };
    run.observer.started(&run.id, run.time_left(), run.blocks_planned());
    let stopped_by = run.rounds()?;
    run.conclude(stopped_by)
}

/// Why the rounds ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopReason {
    /// Every cell has its result.
    Done,
    /// The budget is spent.
    Budget,
    /// The user asked.
    User,
    /// The other host is no longer reached.
    HostLost,
}

/// One visit of a launch, or of several at once, to a cell.
#[derive(Clone, Copy)]
struct CellVisit<'a> {
    cell: usize,
    pass: u32,
    /// The cells that the launch visits.
    open: &'a [usize],
    /// When it began, since the run began.
    started: Span,
}

/// A launch under way, with the id by which it is stored.
type StoredLaunch = (i64, Box<dyn OpenLaunch>);

/// A run under way.
struct RunExecution<'a> {
    store: &'a mut Store,
    observer: &'a mut dyn RunObserver,
    plan: RunPlan,
    id: String,
    seed: plumb_base::seed::Seed,
    source: &'a mut dyn LaunchSource,
    state: RunState,
    disturbances: DisturbanceDetector,
    surroundings: RunSurroundings,
    /// Why the other host is no longer reached.
    lost: Option<String>,
}

impl RunExecution<'_> {
    /// Rounds of one launch for every group that has an open cell, in random order; groups whose cells take turns are
    /// launched together.
    fn rounds(&mut self) -> Result<StopReason, ExperimentError> {
        // A run that was killed between its last block and the end of its round has blocks enough in
        // its store, and no round left that would settle them.
        self.close_finished()?;
        loop {
            let round = self.state.rounds;
            self.state.rounds += 1;
            let mut units = self.state.open_units(&self.plan.limits);
            if units.is_empty() {
                return Ok(StopReason::Done);
            }
            units.shuffle(&mut self.seed.stream(&format!("round {round}")));
            let began = self.elapsed();
            for unit in units {
                if let Some(stopped) = self.launch(round, &unit)? {
                    return Ok(stopped);
                }
            }
            self.close_finished()?;
            if self.next_round_exceeds_budget(self.elapsed().saturating_sub(began)) {
                return Ok(StopReason::Budget);
            }
        }
    }

    /// Launches the groups of a unit, a fresh pair of processes each, and visits every open cell of theirs. Of a simulated group several
    /// launches visit them at once.
    fn launch(
        &mut self,
        round: u32,
        unit: &OpenUnit,
    ) -> Result<Option<StopReason>, ExperimentError> {
        let mut order = self.seed.stream(&format!("launch {}", self.state.launches + 1));
        let mut groups: Vec<usize> = unit.keys().copied().collect();
        groups.shuffle(&mut order);
        let mut launches: BTreeMap<usize, Vec<StoredLaunch>> = BTreeMap::new();
        let at_once = self.state.launches_at_once(unit, &self.plan.limits);
        for group in groups {
            let cells = &unit[&group];
            for _ in 0..at_once {
                match self.start(round, cells)? {
                    Ok(launch) => launches.entry(group).or_default().push(launch),
                    Err(LaunchError::Unavailable(reason)) => {
                        self.close_cells(cells, &CellStatus::Unavailable(reason))?;
                        break;
                    }
                    Err(error) => return self.launch_failed(group, cells, &error),
                }
            }
        }
        let open: Vec<usize> = launches.keys().flat_map(|group| &unit[group]).copied().collect();
        let begins_reversed: bool = order.random();
        for pass in 0..self.plan.limits.passes {
            let is_reversed = begins_reversed ^ (pass % 2 == 1);
            let mut visited = BTreeSet::new();
            for cell in self.state.visiting_order(&open, is_reversed, &mut order) {
                if let Some(stopped) = self.interruption() {
                    return Ok(Some(stopped));
                }
                if !self.state.cells[cell].open || visited.contains(&cell) {
                    continue;
                }
                let of = launches.iter_mut().find(|(group, _)| unit[*group].contains(&cell));
                let Some((&group, launches)) = of else { continue };
                let (open, started) = (unit[&group].as_slice(), self.elapsed());
                match self.block(launches, CellVisit { cell, pass, open, started })? {
                    Ok(served) => visited.extend(served),
                    Err(error) => return self.launch_failed(group, &[cell], &error),
                }
            }
        }
        for cell in open {
            self.state.cells[cell].visits += at_once;
        }
        for (_, launch) in launches.into_values().flatten() {
            launch.finish();
        }
        Ok(self.interruption())
    }

    /// Starts a launch for these cells and stores it, by its id.
    fn start(
        &mut self,
        round: u32,
        cells: &[usize],
    ) -> Result<Result<StoredLaunch, LaunchError>, ExperimentError> {
        let group = self.state.cells[cells[0]].plan.group();
        let seed = self.seed.derive(&format!("launch {}", self.state.launches)).0;
        let launch = match self.source.start(&group, seed, deadline(self.plan.limits.block)) {
            Ok(launch) => launch,
            Err(error) => return Ok(Err(error)),
        };
        self.state.record_facts(&group.subject, launch.facts());
        self.state.launches += 1;
        let id = self.state.launches;
        self.store.add_launch(
            &self.id,
            &record::LaunchRecord {
                id,
                round,
                group: describe(&group),
                started_ns: i64::try_from(self.elapsed().as_ns()).unwrap_or(i64::MAX),
            },
        )?;
        Ok(Ok((id, launch)))
    }

    /// Measures one block in each of these launches and stores it for every cell that it serves, which are returned. The
    /// inner error ends the launches; the outer one the run.
    fn block(
        &mut self,
        launches: &mut [StoredLaunch],
        visit: CellVisit<'_>,
    ) -> Result<Result<Vec<usize>, LaunchError>, ExperimentError> {
        let cell = visit.cell;
        let plan = &self.state.cells[cell].plan;
        let duration = block_time(plan, &self.plan.limits);
        let spec = BlockSpec {
            task: plan.task(),
            duration_ns: duration.as_ns(),
            samples_max: self.plan.limits.samples_max,
            samples_kept: SAMPLES_KEPT,
            injected_ns: plan.injected().as_ns(),
        };
        for (_, launch) in &mut *launches {
            if let Err(error) = launch.request(&spec) {
                return Ok(Err(error));
            }
        }
        let mut served = Vec::new();
        for (id, launch) in launches {
            match launch.answer(&spec, deadline(duration)) {
                Ok(report) => served = self.keep(report, *id, visit)?,
                Err(LaunchError::Unavailable(reason)) => {
                    served = self.state.served_by_one_block(cell, visit.open);
                    self.close_cells(&served, &CellStatus::Unavailable(reason))?;
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(served))
    }

    /// Stores what a launch measured for every cell that it serves, which are returned.
    fn keep(
        &mut self,
        report: BlockReport,
        launch: i64,
        visit: CellVisit<'_>,
    ) -> Result<Vec<usize>, ExperimentError> {
        let cell = visit.cell;
        let pinned = self.state.cells[cell].plan.is_pinned();
        let mut flags = self.disturbances.of(&report, pinned);
        if is_outer(&self.state.cells[cell].plan.factors)
            && (self.surroundings.changed_link)().is_some()
        {
            flags.push(block::LINK_CHANGED.to_owned());
        }
        if report.parts.is_empty() {
            let silence = block::loss_reason(&flags);
            self.store_block(launch, visit, cell, report, flags)?;
            if let Some(reason) = silence
                && self.state.has_no_samples(cell)
            {
                self.close_cells(&[cell], &CellStatus::Unavailable(reason))?;
            }
            return Ok(vec![cell]);
        }
        let kin = self.state.served_by_one_block(cell, visit.open);
        for &cell in &kin {
            if let Some(part) = block::part(&report, &self.state.cells[cell].plan.response) {
                let is_empty = part.n == 0;
                self.store_block(launch, visit, cell, part, flags.clone())?;
                if is_empty && self.state.has_no_samples(cell) {
                    let reason = "no block had a value of this response".to_owned();
                    self.close_cells(&[cell], &CellStatus::Unavailable(reason))?;
                }
            } else {
                let reason = if flags.iter().any(|flag| flag == SIMULATED) {
                    "the model gives no such figure at these levels"
                } else {
                    "no tracepoint shows this in a round trip here"
                };
                self.close_cells(&[cell], &CellStatus::Unavailable(reason.to_owned()))?;
            }
        }
        Ok(kin)
    }

    /// Stores a block for one cell.
    fn store_block(
        &mut self,
        launch: i64,
        visit: CellVisit<'_>,
        cell: usize,
        report: BlockReport,
        flags: Vec<String>,
    ) -> Result<(), ExperimentError> {
        let id = self.state.id(cell);
        let block = block::record(id, launch, visit.pass, report, flags, visit.started);
        self.state.add(cell, &block);
        self.store.add_block(&self.id, &block)?;
        self.state.blocks_done += 1;
        let (done, planned, left) =
            (self.state.blocks_done, self.blocks_planned(), self.time_left());
        self.observer.block(done, planned, &self.state.cells[cell].plan, left);
        Ok(())
    }

    /// What a failed launch means for its cells: absence is a result, breakage is tried again.
    fn launch_failed(
        &mut self,
        group: usize,
        cells: &[usize],
        error: &LaunchError,
    ) -> Result<Option<StopReason>, ExperimentError> {
        match error {
            LaunchError::Interrupted => Ok(Some(StopReason::User)),
            LaunchError::Unavailable(reason) => {
                self.close_cells(cells, &CellStatus::Unavailable(reason.clone()))
            }
            LaunchError::Io(source) => {
                Err(ExperimentError::failure("cannot start a measuring process")
                    .because(source)
                    .fix("see the limits on processes and open files: ulimit -a"))
            }
            other if self.is_host_lost(cells) => {
                let why = self.lost.clone().unwrap_or_default();
                self.observer.note(&format!("{other}; {why}"));
                Ok(Some(StopReason::HostLost))
            }
            other if self.state.count_failure(group) < FAILURES_MAX => {
                self.observer.note(&format!("a launch failed and will be tried again: {other}"));
                Ok(None)
            }
            other => {
                self.observer.note(&format!(
                    "{}: given up: {other}",
                    self.state.cells[cells[0]].plan.label()
                ));
                self.close_cells(cells, &CellStatus::Failed(other.to_string()))
            }
        }
    }

    /// Whether these cells go to another host, and that is no longer reached.
    fn is_host_lost(&mut self, cells: &[usize]) -> bool {
        let goes = |cell: &usize| is_host(&self.state.cells[*cell].plan.factors);
        if !cells.iter().any(goes) {
            return false;
        }
        self.lost = (self.surroundings.host_lost)();
        self.lost.is_some()
    }

    /// Closes cells without (further) numbers.
    fn close_cells(
        &mut self,
        cells: &[usize],
        status: &CellStatus,
    ) -> Result<Option<StopReason>, ExperimentError> {
        for &cell in cells {
            self.state.cells[cell].open = false;
            self.store.set_cell_status(&self.id, self.state.id(cell), status)?;
        }
        Ok(None)
    }

    /// Closes the cells whose interval is narrow enough.
    fn close_finished(&mut self) -> Result<(), ExperimentError> {
        for cell in self.state.newly_finished(&self.plan.limits) {
            let (cell, tally) = cell;
            let reason = match tally {
                CellCompletion::Precise => "precise",
                CellCompletion::LaunchesSpent => "launches",
            };
            self.state.cells[cell].open = false;
            let status = CellStatus::Done(reason.to_owned());
            self.store.set_cell_status(&self.id, self.state.id(cell), &status)?;
        }
        Ok(())
    }

    /// Stores how the run ended.
    fn conclude(self, stopped: StopReason) -> Result<RunOutcome, ExperimentError> {
        let mut is_whole = true;
        if stopped == StopReason::Budget {
            for cell in self.state.open() {
                // Cells that the budget did not reach stay open: they have no result, good or bad.
                if self.state.cells[cell].launches.is_empty() {
                    is_whole = false;
                    continue;
                }
                let status = CellStatus::Done("budget".to_owned());
                self.store.set_cell_status(&self.id, self.state.id(cell), &status)?;
            }
        }
        let (status, stopped_by) = match stopped {
            StopReason::Done => (RunStatus::Complete, "every cell has its result"),
            StopReason::Budget if is_whole => (RunStatus::Complete, "the budget is spent"),
            StopReason::Budget => {
                (RunStatus::Interrupted, "the budget was spent before every cell had its turn")
            }
            StopReason::User => (RunStatus::Interrupted, "the user asked to stop"),
            StopReason::HostLost => (RunStatus::Interrupted, "the other host is no longer reached"),
        };
        let mut notes = self.state.facts.clone();
        notes.extend(self.lost.clone().map(|why| (host_notes::LOST.to_owned(), why)));
        notes.insert("stopped_by".to_owned(), stopped_by.to_owned());
        notes.insert("elapsed".to_owned(), self.elapsed().to_string());
        if let Some(link) = (self.surroundings.changed_link)() {
            self.observer.note(&format!(
                "the link that this was measured behind changed meanwhile; it is now {link}"
            ));
            notes.insert(OUTER_LINK_AFTER.to_owned(), link);
        }
        self.store.update_run(&self.id, status, &notes)?;
        Ok(RunOutcome { run_id: self.id, status, stopped_by: stopped_by.to_owned() })
    }

    fn interruption(&self) -> Option<StopReason> {
        if stop_signals::stop_requests() > 0 {
            return Some(StopReason::User);
        }
        let spent = self.plan.limits.budget.is_some_and(|budget| self.elapsed() >= budget);
        spent.then_some(StopReason::Budget)
    }

    /// Whether another round like the last would end after the budget, and every cell has had its
    /// fewest launches.
    fn next_round_exceeds_budget(&self, last_round: Span) -> bool {
        let has_fewest =
            |cell: &usize| self.state.cells[*cell].visits >= self.plan.limits.launches_min;
        let enough = self.state.open().iter().all(has_fewest);
        let budget = self.plan.limits.budget;
        enough && budget.is_some_and(|budget| self.elapsed() + last_round > budget)
    }

    fn elapsed(&self) -> Span {
        self.source.elapsed()
    }

    /// Blocks done and those that the open cells may still need, within the budget.
    fn blocks_planned(&self) -> u64 {
        self.state.blocks_done + self.state.blocks_open(&self.plan.limits)
    }

    fn time_left(&self) -> Span {
        let left = self.state.time_open(&self.plan.limits, self.elapsed());
        match self.plan.limits.budget {
            Some(budget) => left.min(budget.saturating_sub(self.elapsed())),
            None => left,
        }
    }
}

/// Longest time a block may take before its processes are killed: its pilot, its own time and its
/// last message, many times over.
fn deadline(block: Span) -> Span {
    (block * 50).max(Span::from_secs(20))
}

/// One line about what a launch holds constant.
fn describe(group: &LaunchGroup) -> String {
    let placement = group.placement.name();
    match &group.subject {
        LaunchSubject::Channel(channel) => {
            format!("{} {placement} {}", channel.mechanism.name(), channel.wake.name())
        }
        LaunchSubject::Mirror(mirror) => {
            format!("{} {placement} {}", mirror.name(), mirror.wake.name())
        }
        LaunchSubject::Remote(remote) => {
            format!("{} {placement} {}", remote.name(), remote.channel.wake.name())
        }
        LaunchSubject::Streams(streams) => format!("{} {placement}", streams.name()),
        LaunchSubject::PageLoads(visits) => format!("{} {placement}", visits.name()),
        LaunchSubject::Alone => placement.to_owned(),
        LaunchSubject::VirtualTime => "virtual time".to_owned(),
    }
}

impl CellPlan {
    fn measured(&self) -> (&LaunchGroup, &BlockTask, Span) {
        match &self.action {
            crate::definition::CellAction::Measure { group, task, injected } => {
                (group, task, *injected)
            }
            crate::definition::CellAction::Unavailable(reason) => {
                unreachable!("cells that cannot be measured are never open: {reason}")
            }
        }
    }

    fn group(&self) -> LaunchGroup {
        self.measured().0.clone()
    }

    fn task(&self) -> BlockTask {
        self.measured().1.clone()
    }

    fn injected(&self) -> Span {
        self.measured().2
    }

    /// Whether worker and peer are bound to CPUs.
    fn is_pinned(&self) -> bool {
        self.measured().0.placement != plumb_harness::topology::CpuPlacement::Scheduler
    }
}
