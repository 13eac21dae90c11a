//! Where the launches of a run come from, and by which clock it goes: processes and this machine's clock, or simulated
//! ones in the self-test.

use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::report::{BlockReport, LaunchFacts};
use plumb_harness::spec::{BlockSpec, LaunchSpec};
use plumb_harness::stop_signals;

use super::CalibratedClock;
use crate::definition::LaunchGroup;

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
    /// What is known of its channel.
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
