//! Launches of the built program, a subject a file, and runs that are killed: what is delivered, and that nothing is left.
//!
//! What needs namespaces or real-time priority says `skipped:` without, and fails for that under CI=true.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails; so do its helpers")]

use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use plumb_base::time::Span;
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::report::BlockReport;
use plumb_harness::spec::{BlockSpec, BlockTask, LaunchSpec, LaunchSubject};
use support::{PLUMB, plumb_processes, skip, wait_for};

#[path = "../support/program.rs"]
mod support;

mod channels;
mod http_pages;
mod remote;
mod run_kills;
mod streams;

/// Longest time that a block is waited for.
const WAIT_MAX: Span = Span::from_secs(60);

static LAUNCHES: RwLock<()> = RwLock::new(());

/// For a test that looks for all processes or queues, or needs the CPUs for itself; waits for the end of those of other tests.
fn alone() -> RwLockWriteGuard<'static, ()> {
    let guard = LAUNCHES.write().unwrap_or_else(PoisonError::into_inner);
    wait_for_the_end();
    guard
}

/// For a test that looks at its own launches only.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    LAUNCHES.read().unwrap_or_else(PoisonError::into_inner)
}

fn launch(subject: LaunchSubject) -> Result<RunningLaunch, LaunchError> {
    let spec = LaunchSpec {
        subject,
        cpu_local: None,
        cpu_peer: None,
        ticks_per_ns: None,
        seed: 42,
        deadline_ns: WAIT_MAX.as_ns(),
    };
    RunningLaunch::start(Path::new(PLUMB), &spec, &mut || false)
}

/// A launch; none, with a word about it, where this host does not allow it.
fn start(subject: LaunchSubject) -> Option<RunningLaunch> {
    match launch(subject) {
        Ok(launch) => Some(launch),
        Err(LaunchError::Unavailable(reason)) => {
            skip(&reason);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A block, or why there is none.
fn block(
    launch: &mut RunningLaunch,
    task: BlockTask,
    duration: Span,
) -> Result<BlockReport, LaunchError> {
    let spec = BlockSpec {
        task,
        duration_ns: duration.as_ns(),
        samples_max: 1_000,
        samples_kept: 1_000,
        injected_ns: 0,
    };
    launch.measure(&spec, WAIT_MAX, &mut || false)
}

/// Waits until no process that serves a launch is left.
fn wait_for_the_end() {
    wait_for("the processes of a launch to end", || {
        plumb_processes(&["__worker", "__peer", "__source", "__share", "__web", "__link"])
            .is_empty()
    });
}
