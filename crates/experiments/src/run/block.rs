//! Where the blocks of a run come from, processes and this machine's clock or simulated ones in the self-test; what disturbed
//! each (rule 10: steal, migrations, a slow canary, page faults); and its record.

use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::program_task::SIMULATED;
use plumb_harness::report::{BlockReport, EffortReport, LaunchFacts, NOTHING_DELIVERED};
use plumb_harness::spec::{BlockSpec, LaunchSpec};
use plumb_harness::stop_signals;
use plumb_store::record::{BlockUsage, SampleBlock};

use crate::definition::LaunchGroup;
use crate::run::CalibratedClock;

/// A canary this much slower than the median of the run so far flags its block.
const CANARY_DRIFT: f64 = 0.05;

/// Canaries before their median means something.
const CANARIES_MIN: usize = 5;

/// Page faults that the end of a block itself may cause: reports and control messages.
const FAULTS_ALLOWED: u64 = 64;

/// The canaries of a run so far; those of a run that is taken up are remembered.
#[derive(Debug, Default)]
pub(super) struct DisturbanceDetector {
    canaries: Vec<f64>,
}

impl DisturbanceDetector {
    /// After blocks with these canaries, in nanoseconds.
    pub(super) fn after(canaries: Vec<f64>) -> Self {
        Self { canaries }
    }

    /// A block's own flags and those of its disturbances. `pinned` says whether its processes
    /// were bound to CPUs, where a migration is a disturbance and not the scheduler's business.
    pub(super) fn of(&mut self, report: &BlockReport, pinned: bool) -> Vec<String> {
        let effort = &report.effort;
        let mut flags = report.flags.clone();
        if flags.iter().any(|flag| flag == SIMULATED) {
            return flags;
        }
        let mut flag = |name: &str, when: bool| {
            if when {
                flags.push(name.to_owned());
            }
        };
        flag("steal", effort.steal_ns > 0);
        flag("migration", pinned && effort.local.migrations + effort.peer.migrations > 0);
        let faults = effort.local.page_faults.max(effort.peer.page_faults);
        flag("page-faults", faults > FAULTS_ALLOWED + effort.operations / 100);
        flag("canary", self.is_slow(effort.canary_ns));
        flags
    }

    /// Whether a canary is slow beside those before it; it is remembered either way.
    fn is_slow(&mut self, canary_ns: f64) -> bool {
        self.canaries.push(canary_ns);
        if self.canaries.len() < CANARIES_MIN {
            return false;
        }
        let median = quantile::of_sorted(&quantile::sorted(&self.canaries), 0.5);
        canary_ns > median * (1.0 + CANARY_DRIFT)
    }
}

/// Flags a block over the link that plumb runs behind once that one is another than at the beginning,
/// which the cell is named by.
pub(super) const LINK_CHANGED: &str = "link-changed";

/// What was lost, of a block in which nothing got through.
pub(super) fn loss_reason(flags: &[String]) -> Option<String> {
    let reason = |flag: &String| {
        let (name, reason) = flag.split_once(": ")?;
        (name == NOTHING_DELIVERED).then(|| reason.to_owned())
    };
    flags.iter().find_map(reason)
}

/// A block as it is stored.
pub(crate) fn record(
    cell: i64,
    launch: i64,
    pass: u32,
    report: BlockReport,
    flags: Vec<String>,
    started: Span,
) -> SampleBlock {
    SampleBlock {
        cell,
        launch,
        pass,
        batch: report.batch,
        n: report.n,
        warmup: report.warmup,
        samples: report.samples,
        histogram: report.histogram,
        histogram_scale: report.histogram_scale,
        n_eff: report.n_eff,
        effort: BlockUsage { started_ns: Some(started.as_ns()), ..effort(&report.effort) },
        counters: report.counters,
        flags,
    }
}

/// The report of one of several responses that a block gives at once, if it gives it. One without a value is given
/// where another block may have one: nothing changes from block to block in a simulated one.
pub(super) fn part(report: &BlockReport, response: &str) -> Option<BlockReport> {
    let is_simulated = report.flags.iter().any(|flag| flag == SIMULATED);
    let part = report.parts.iter().find(|part| part.response == response)?;
    if part.n == 0 && is_simulated {
        return None;
    }
    Some(BlockReport {
        n: part.n,
        samples: part.samples.clone(),
        histogram: part.histogram.clone(),
        histogram_scale: part.histogram_scale,
        n_eff: part.n_eff,
        parts: Vec::new(),
        ..report.clone()
    })
}

fn effort(report: &EffortReport) -> BlockUsage {
    BlockUsage {
        started_ns: None,
        local: report.local,
        peer: report.peer,
        softirq_ns: report.softirq_ns,
        steal_ns: report.steal_ns,
        canary_ns: report.canary_ns,
        wall_ns: report.wall_ns,
        operations: report.operations,
    }
}

/// A source of launches with a clock.
pub(crate) trait LaunchSource {
    /// Time since the run began.
    fn elapsed(&self) -> Span;

    /// Starts a launch.
    ///
    /// # Errors
    /// As [`RunningLaunch::start`].
    fn start(
        &mut self,
        group: &LaunchGroup,
        seed: u64,
        deadline: Span,
    ) -> Result<Box<dyn OpenLaunch>, LaunchError>;
}

/// A launch under way.
pub(crate) trait OpenLaunch {
    /// What is known about its channel.
    fn facts(&self) -> &LaunchFacts;

    /// Asks for a block.
    ///
    /// # Errors
    /// As [`RunningLaunch::request`].
    fn request(&mut self, spec: &BlockSpec) -> Result<(), LaunchError>;

    /// Waits for the block that was asked for.
    ///
    /// # Errors
    /// As [`RunningLaunch::answer`].
    fn answer(&mut self, spec: &BlockSpec, deadline: Span) -> Result<BlockReport, LaunchError>;

    /// Ends it.
    fn finish(self: Box<Self>);
}

/// Launches of processes on this machine.
pub(crate) struct ProcessLaunches<'a> {
    clock: &'a CalibratedClock,
    began_ns: u64,
}

impl<'a> ProcessLaunches<'a> {
    /// A source whose run begins now.
    pub(crate) fn new(clock: &'a CalibratedClock) -> Self {
        Self { clock, began_ns: monotonic_ns() }
    }

    fn spec(&self, group: &LaunchGroup, seed: u64, deadline: Span) -> Result<LaunchSpec, String> {
        let mut pair = self.clock.pair(group)?;
        if let Some(host) = group.subject.other_host()
            && pair.local.is_some()
        {
            // A CPU of that host, which knows its own by numbers of its own.
            pair.peer = host.cpus.first().copied();
        }
        Ok(LaunchSpec {
            subject: group.subject.clone(),
            cpu_local: pair.local,
            cpu_peer: pair.peer,
            ticks_per_ns: self.clock.ticks_per_ns(),
            seed,
            deadline_ns: deadline.as_ns(),
        })
    }
}

impl LaunchSource for ProcessLaunches<'_> {
    fn elapsed(&self) -> Span {
        Span::from_ns(monotonic_ns().saturating_sub(self.began_ns))
    }

    fn start(
        &mut self,
        group: &LaunchGroup,
        seed: u64,
        deadline: Span,
    ) -> Result<Box<dyn OpenLaunch>, LaunchError> {
        let spec = self.spec(group, seed, deadline).map_err(LaunchError::Unavailable)?;
        Ok(Box::new(RunningLaunch::start(&std::env::current_exe()?, &spec, &mut is_aborted)?))
    }
}

impl OpenLaunch for RunningLaunch {
    fn facts(&self) -> &LaunchFacts {
        &self.facts
    }

    fn request(&mut self, spec: &BlockSpec) -> Result<(), LaunchError> {
        Self::request(self, spec)
    }

    fn answer(&mut self, _spec: &BlockSpec, deadline: Span) -> Result<BlockReport, LaunchError> {
        Self::answer(self, deadline, &mut is_aborted)
    }

    fn finish(self: Box<Self>) {
        // Every block of it is stored; how the processes end changes nothing.
        drop((*self).finish());
    }
}

/// Whether the user asked twice to stop: a block under way is not waited for.
fn is_aborted() -> bool {
    stop_signals::stop_requests() >= 2
}

#[cfg(test)]
mod tests {
    use plumb_harness::report::BlockPartReport;

    use super::*;

    fn report(canary_ns: f64, steal_ns: u64) -> BlockReport {
        let mut report = BlockReport::default();
        report.effort.canary_ns = canary_ns;
        report.effort.steal_ns = steal_ns;
        report
    }

    #[test]
    fn a_slow_canary_and_stolen_time_are_flagged_and_a_quiet_block_is_not() {
        let mut flags = DisturbanceDetector::default();
        for _ in 0..10 {
            assert!(flags.of(&report(1000.0, 0), true).is_empty());
        }
        // A run that is taken up remembers its canaries.
        for flags in [&mut flags, &mut DisturbanceDetector::after(vec![1000.0; 10])] {
            assert_eq!(flags.of(&report(1100.0, 0), true), ["canary"]);
        }
        assert_eq!(flags.of(&report(1010.0, 10_000_000), true), ["steal"]);
    }

    #[test]
    fn nothing_outside_disturbs_a_simulated_block() {
        let mut simulated = report(1000.0, 10_000_000);
        simulated.flags = vec![SIMULATED.to_owned()];
        assert_eq!(DisturbanceDetector::default().of(&simulated, true), [SIMULATED]);
    }

    #[test]
    fn a_measured_response_without_a_value_is_absent_from_its_block_alone() {
        let mut measured = report(1000.0, 0);
        measured.parts = vec![BlockPartReport { response: "cost".into(), ..Default::default() }];
        assert_eq!(part(&measured, "cost").map(|part| part.n), Some(0));
        assert!(part(&measured, "rate").is_none());
        measured.flags = vec![SIMULATED.to_owned()];
        assert!(part(&measured, "cost").is_none());
    }

    #[test]
    fn the_flag_of_a_block_in_which_nothing_got_through_says_what_was_lost() {
        let flags = ["canary", "nothing-delivered: none of 1 messages of 64 B came back"];
        let reason = loss_reason(&flags.map(str::to_owned));
        assert_eq!(reason.as_deref(), Some("none of 1 messages of 64 B came back"));
        assert_eq!(loss_reason(&["canary".to_owned(), "empty-transfers: 3".to_owned()]), None);
    }

    #[test]
    fn migrations_count_only_where_processes_were_bound() {
        let mut moved = report(1000.0, 0);
        moved.effort.peer.migrations = 1;
        assert_eq!(DisturbanceDetector::default().of(&moved, true), ["migration"]);
        assert!(DisturbanceDetector::default().of(&moved, false).is_empty());
    }
}
