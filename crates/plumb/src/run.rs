//! The run loop: rounds of interleaved launches, one stored block after another, until every cell
//! is precise enough or the budget is spent.
//!
//! Left out: what a block times (`plumb_host::harness`), what to measure (`crate::experiment`)
//! and what it means (`plumb_analysis`).

use std::collections::BTreeSet;

use plumb_analysis::document::{OUTER_LINK_AFTER, host};
use plumb_base::time::Span;
use plumb_host::clock::monotonic_ns;
use plumb_host::harness::launcher::{Launch, LaunchError};
use plumb_host::harness::spec::{BlockReport, BlockSpec, LaunchSpec, Subject, Task};
use plumb_host::{local, stop};
use plumb_store::lock::MeasureLock;
use plumb_store::record::{self, CellStatus, RunStatus};
use plumb_store::sqlite::Store;
use rand::seq::SliceRandom;

use crate::experiment::path::{is_host, is_outer};
use crate::experiment::{CellPlan, LaunchGroup};
use crate::link::outer;
use crate::net::far;
use crate::plan::Plan;
use crate::problem::{Exit, Problem};

mod begin;
mod calibration;
mod convert;
mod flags;
mod ledger;

use begin::Beginning;
pub use begin::CODE_VERSION;
use calibration::Clock;
use flags::Flags;
use ledger::{Ledger, Tally};

/// What to carry out, and where to store it.
#[derive(Debug)]
pub struct Request<'a> {
    /// The plan, as it will be stored.
    pub plan: Plan,
    /// Its cells on this host.
    pub cells: Vec<CellPlan>,
    /// Where blocks go.
    pub store: &'a mut Store,
    /// The run to finish instead of beginning a new one.
    pub resume: Option<String>,
    /// What the run is called.
    pub title: String,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The run.
    pub run_id: String,
    /// Complete, or interrupted.
    pub status: RunStatus,
    /// What stopped it, in a few words.
    pub stopped_by: String,
}

/// Whoever watches a run; called only while nothing is being measured.
pub trait Watcher {
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
/// Trouble with single cells is stored with them and is no error.
pub fn execute(request: Request<'_>, watcher: &mut dyn Watcher) -> Result<Outcome, Problem> {
    stop::listen().map_err(|error| Problem::trouble("cannot listen for Ctrl-C").because(error))?;
    let mut lock = MeasureLock::acquire(request.store.path(), std::process::id(), "starting")
        .map_err(|error| Problem::from_message(&error.to_string(), Exit::Trouble))?;
    let swept = local::sweep_leftovers();
    if swept > 0 {
        watcher.note(&format!("removed {swept} leftovers of a run that was killed"));
    }
    let clock = Clock::calibrate(&request.cells)?;
    let Request { plan, cells, store, resume, title } = request;
    let Beginning { id, seed, ledger, flags } = match resume {
        Some(id) => begin::resumed(store, &id, cells)?,
        None => begin::new(store, &plan, &title, cells, &clock)?,
    };
    // The lock names its holder for others to read; measuring does not depend on it.
    drop(lock.rename(std::process::id(), &id));
    let mut run = Execution {
        store,
        watcher,
        plan,
        id,
        seed,
        clock,
        ledger,
        flags,
        began_ns: monotonic_ns(),
        lost: None,
    };
    run.watcher.started(&run.id, run.time_left(), run.blocks_planned());
    let stopped_by = run.rounds()?;
    run.conclude(stopped_by)
}

/// Why the rounds ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// Every cell has its result.
    Done,
    /// The budget is spent.
    Budget,
    /// The user asked.
    User,
    /// The other host is no longer reached.
    HostLost,
}

/// One visit of a launch to a cell.
#[derive(Clone, Copy)]
struct Visit<'a> {
    launch: i64,
    cell: usize,
    pass: u32,
    /// The cells that the launch visits.
    open: &'a [usize],
}

/// A run under way.
struct Execution<'a> {
    store: &'a mut Store,
    watcher: &'a mut dyn Watcher,
    plan: Plan,
    id: String,
    seed: plumb_base::seed::Seed,
    clock: Clock,
    ledger: Ledger,
    flags: Flags,
    began_ns: u64,
    /// Why the other host is no longer reached.
    lost: Option<String>,
}

impl Execution<'_> {
    /// Rounds of one launch for every group that has an open cell, in random order.
    fn rounds(&mut self) -> Result<Stopped, Problem> {
        // A run that was killed between its last block and the end of its round has blocks enough in
        // its store, and no round left that would settle them.
        self.settle_precise()?;
        loop {
            let round = self.ledger.next_round();
            let mut groups = self.ledger.open_groups(&self.plan.limits);
            if groups.is_empty() {
                return Ok(Stopped::Done);
            }
            groups.shuffle(&mut self.seed.stream(&format!("round {round}")));
            let began = self.elapsed();
            for group in groups {
                if let Some(stopped) = self.launch(round, group)? {
                    return Ok(stopped);
                }
            }
            self.settle_precise()?;
            if self.next_round_exceeds_budget(self.elapsed().saturating_sub(began)) {
                return Ok(Stopped::Budget);
            }
        }
    }

    /// One launch: a fresh pair of processes that visits every open cell of its group.
    fn launch(&mut self, round: u32, group: usize) -> Result<Option<Stopped>, Problem> {
        let open = self.ledger.open_cells(group, &self.plan.limits);
        let Some(&first) = open.first() else { return Ok(None) };
        let spec = match self.launch_spec(first) {
            Ok(spec) => spec,
            Err(reason) => return self.give_up(&open, &CellStatus::Unavailable(reason)),
        };
        let program = program()?;
        let mut abort = || stop::requests() >= 2;
        let mut launch = match Launch::start(&program, &spec, &mut abort) {
            Ok(launch) => launch,
            Err(error) => return self.launch_failed(group, &open, &error),
        };
        self.ledger.remember_facts(&spec, &launch.facts);
        let id = self.ledger.next_launch();
        self.store.add_launch(
            &self.id,
            &record::Launch {
                id,
                round,
                group: describe(&self.ledger.plan(first).group()),
                started_ns: i64::try_from(self.elapsed().as_ns()).unwrap_or(i64::MAX),
            },
        )?;
        let mut order = self.seed.stream(&format!("launch {id}"));
        for pass in 0..self.plan.limits.passes {
            let mut cells = open.clone();
            cells.shuffle(&mut order);
            let mut visited = BTreeSet::new();
            for cell in cells {
                if let Some(stopped) = self.interruption() {
                    return Ok(Some(stopped));
                }
                if !self.ledger.is_open(cell) || visited.contains(&cell) {
                    continue;
                }
                let visit = Visit { launch: id, cell, pass, open: &open };
                match self.block(&mut launch, visit)? {
                    Ok(served) => visited.extend(served),
                    Err(error) => return self.launch_failed(group, &[cell], &error),
                }
            }
        }
        for cell in open {
            self.ledger.count_launch(cell);
        }
        // Every block of it is stored; how the processes end changes nothing.
        drop(launch.finish());
        Ok(self.interruption())
    }

    /// Measures one block and stores it for every cell that it serves, which are returned. The
    /// inner error ends the launch; the outer one the run.
    fn block(
        &mut self,
        launch: &mut Launch,
        visit: Visit<'_>,
    ) -> Result<Result<Vec<usize>, LaunchError>, Problem> {
        let cell = visit.cell;
        let plan = self.ledger.plan(cell);
        let duration = plan.block_time(&self.plan.limits);
        let spec = BlockSpec {
            task: plan.task(),
            duration_ns: duration.as_ns(),
            samples_max: self.plan.limits.samples_max,
            samples_kept: SAMPLES_KEPT,
            injected_ns: plan.injected().as_ns(),
        };
        let mut abort = || stop::requests() >= 2;
        let report = match launch.measure(&spec, deadline(duration), &mut abort) {
            Ok(report) => report,
            Err(LaunchError::Unavailable(reason)) => {
                let kin = self.ledger.kin(cell, visit.open);
                self.give_up(&kin, &CellStatus::Unavailable(reason))?;
                return Ok(Ok(kin));
            }
            Err(error) => return Ok(Err(error)),
        };
        let pinned = plan.is_pinned();
        let mut flags = self.flags.of(&report, pinned);
        if is_outer(&self.ledger.plan(cell).factors) && outer::changed().is_some() {
            flags.push(flags::LINK_CHANGED.to_owned());
        }
        if report.parts.is_empty() {
            let silence = flags::silence(&flags);
            self.keep(visit, cell, report, flags)?;
            if let Some(reason) = silence
                && self.ledger.is_silent(cell)
            {
                self.give_up(&[cell], &CellStatus::Unavailable(reason))?;
            }
            return Ok(Ok(vec![cell]));
        }
        let kin = self.ledger.kin(cell, visit.open);
        for &cell in &kin {
            if let Some(part) = convert::part(&report, &self.ledger.plan(cell).response) {
                self.keep(visit, cell, part, flags.clone())?;
            } else {
                let reason = "nothing of this kind happened in a round trip here".to_owned();
                self.give_up(&[cell], &CellStatus::Unavailable(reason))?;
            }
        }
        Ok(Ok(kin))
    }

    /// Stores a block for one cell.
    fn keep(
        &mut self,
        visit: Visit<'_>,
        cell: usize,
        report: BlockReport,
        flags: Vec<String>,
    ) -> Result<(), Problem> {
        let id = self.ledger.id(cell);
        let block = convert::block(id, visit.launch, visit.pass, report, flags);
        self.ledger.add(cell, &block);
        self.store.add_block(&self.id, &block)?;
        self.ledger.blocks_done += 1;
        let (done, planned, left) =
            (self.ledger.blocks_done, self.blocks_planned(), self.time_left());
        self.watcher.block(done, planned, self.ledger.plan(cell), left);
        Ok(())
    }

    /// What a failed launch means for its cells: absence is a result, breakage is tried again.
    fn launch_failed(
        &mut self,
        group: usize,
        cells: &[usize],
        error: &LaunchError,
    ) -> Result<Option<Stopped>, Problem> {
        match error {
            LaunchError::Interrupted => Ok(Some(Stopped::User)),
            LaunchError::Unavailable(reason) => {
                self.give_up(cells, &CellStatus::Unavailable(reason.clone()))
            }
            LaunchError::Io(source) => Err(Problem::trouble("cannot start a measuring process")
                .because(source)
                .fix("see the limits on processes and open files: ulimit -a")),
            other if self.is_host_lost(cells) => {
                let why = self.lost.clone().unwrap_or_default();
                self.watcher.note(&format!("{other}; {why}"));
                Ok(Some(Stopped::HostLost))
            }
            other if self.ledger.count_failure(group) < FAILURES_MAX => {
                self.watcher.note(&format!("a launch failed and will be tried again: {other}"));
                Ok(None)
            }
            other => {
                self.watcher
                    .note(&format!("{}: given up: {other}", self.ledger.plan(cells[0]).label()));
                self.give_up(cells, &CellStatus::Failed(other.to_string()))
            }
        }
    }

    /// Whether these cells go to another host, and that is no longer reached.
    fn is_host_lost(&mut self, cells: &[usize]) -> bool {
        let goes = |cell: &usize| is_host(&self.ledger.plan(*cell).factors);
        if !cells.iter().any(goes) {
            return false;
        }
        let found = far::find_again();
        self.lost = found.err().map(|problem| problem.what);
        self.lost.is_some()
    }

    /// Closes cells without (further) numbers.
    fn give_up(
        &mut self,
        cells: &[usize],
        status: &CellStatus,
    ) -> Result<Option<Stopped>, Problem> {
        for &cell in cells {
            self.ledger.close(cell);
            self.store.set_cell_status(&self.id, self.ledger.id(cell), status)?;
        }
        Ok(None)
    }

    /// Closes the cells whose interval is narrow enough.
    fn settle_precise(&mut self) -> Result<(), Problem> {
        for cell in self.ledger.newly_settled(&self.plan.limits, self.seed) {
            let (cell, tally) = cell;
            let reason = match tally {
                Tally::Precise => "precise",
                Tally::LaunchesSpent => "launches",
            };
            self.ledger.close(cell);
            let status = CellStatus::Done(reason.to_owned());
            self.store.set_cell_status(&self.id, self.ledger.id(cell), &status)?;
        }
        Ok(())
    }

    /// Stores how the run ended.
    fn conclude(self, stopped: Stopped) -> Result<Outcome, Problem> {
        let mut is_whole = true;
        if stopped == Stopped::Budget {
            for cell in self.ledger.open() {
                // Cells that the budget did not reach stay open: they have no result, good or bad.
                if !self.ledger.has_blocks(cell) {
                    is_whole = false;
                    continue;
                }
                let status = CellStatus::Done("budget".to_owned());
                self.store.set_cell_status(&self.id, self.ledger.id(cell), &status)?;
            }
        }
        let (status, stopped_by) = match stopped {
            Stopped::Done => (RunStatus::Complete, "every cell has its result"),
            Stopped::Budget if is_whole => (RunStatus::Complete, "the budget is spent"),
            Stopped::Budget => {
                (RunStatus::Interrupted, "the budget was spent before every cell had its turn")
            }
            Stopped::User => (RunStatus::Interrupted, "the user asked to stop"),
            Stopped::HostLost => (RunStatus::Interrupted, "the other host is no longer reached"),
        };
        let mut notes = self.ledger.facts();
        notes.extend(self.lost.clone().map(|why| (host::LOST.to_owned(), why)));
        notes.insert("stopped_by".to_owned(), stopped_by.to_owned());
        notes.insert("elapsed".to_owned(), self.elapsed().to_string());
        if let Some(link) = outer::changed() {
            self.watcher.note(&format!(
                "the link that this was measured behind changed meanwhile; it is now {link}"
            ));
            notes.insert(OUTER_LINK_AFTER.to_owned(), link);
        }
        self.store.update_run(&self.id, status, &notes)?;
        Ok(Outcome { run_id: self.id, status, stopped_by: stopped_by.to_owned() })
    }

    fn launch_spec(&mut self, cell: usize) -> Result<LaunchSpec, String> {
        let group = self.ledger.plan(cell).group();
        let mut pair = self.clock.pair(&group)?;
        if let Some(host) = group.subject.other_host()
            && pair.local.is_some()
        {
            // A CPU of that host, which knows its own by numbers of its own.
            pair.peer = host.cpus.first().copied();
        }
        let seed = self.seed.derive(&format!("launch {}", self.ledger.launches)).0;
        Ok(LaunchSpec {
            subject: group.subject,
            cpu_local: pair.local,
            cpu_peer: pair.peer,
            ticks_per_ns: self.clock.ticks_per_ns(),
            seed,
            deadline_ns: deadline(self.plan.limits.block).as_ns(),
        })
    }

    fn interruption(&self) -> Option<Stopped> {
        if stop::requests() > 0 {
            return Some(Stopped::User);
        }
        let spent = self.plan.limits.budget.is_some_and(|budget| self.elapsed() >= budget);
        spent.then_some(Stopped::Budget)
    }

    /// Whether another round like the last would end after the budget, and every cell has had its
    /// fewest launches.
    fn next_round_exceeds_budget(&self, last_round: Span) -> bool {
        let enough = self.ledger.rounds_done() >= self.plan.limits.launches_min;
        let budget = self.plan.limits.budget;
        enough && budget.is_some_and(|budget| self.elapsed() + last_round > budget)
    }

    fn elapsed(&self) -> Span {
        Span::from_ns(monotonic_ns().saturating_sub(self.began_ns))
    }

    /// Blocks done and those that the open cells may still need, within the budget.
    fn blocks_planned(&self) -> u64 {
        self.ledger.blocks_done + self.ledger.blocks_open(&self.plan.limits)
    }

    fn time_left(&self) -> Span {
        let left = self.ledger.time_open(&self.plan.limits);
        match self.plan.limits.budget {
            Some(budget) => left.min(budget.saturating_sub(self.elapsed())),
            None => left,
        }
    }
}

/// The program to start as a worker: this one.
fn program() -> Result<std::path::PathBuf, Problem> {
    std::env::current_exe()
        .map_err(|error| Problem::trouble("cannot find plumb's own binary").because(error))
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
        Subject::Channel(channel) => {
            format!("{} {placement} {}", channel.mechanism.name(), channel.wake.name())
        }
        Subject::Mirror(mirror) => {
            format!("{} {placement} {}", mirror.name(), mirror.wake.name())
        }
        Subject::Remote(remote) => {
            format!("{} {placement} {}", remote.name(), remote.channel.wake.name())
        }
        Subject::Streams(streams) => format!("{} {placement}", streams.name()),
        Subject::Visits(visits) => format!("{} {placement}", visits.name()),
        Subject::Alone => placement.to_owned(),
    }
}

impl CellPlan {
    fn measured(&self) -> (&LaunchGroup, &Task, Span) {
        match &self.action {
            crate::experiment::Action::Measure { group, task, injected } => {
                (group, task, *injected)
            }
            crate::experiment::Action::Unavailable(reason) => {
                unreachable!("cells that cannot be measured are never open: {reason}")
            }
        }
    }

    fn group(&self) -> LaunchGroup {
        self.measured().0.clone()
    }

    fn task(&self) -> Task {
        self.measured().1.clone()
    }

    fn injected(&self) -> Span {
        self.measured().2
    }

    /// Whether worker and peer are bound to CPUs.
    fn is_pinned(&self) -> bool {
        self.measured().0.placement != plumb_host::topology::Placement::Scheduler
    }
}
