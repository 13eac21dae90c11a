//! Threads that run logical processes beside the thread that drives the simulation.

use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle, yield_now};
use std::time::Duration;

use plumb_base::time::Instant;

use super::logical_process::LogicalProcess;
use super::world::World;

/// Polls of a channel before a thread sleeps: some milliseconds, as waking one up takes long.
const POLLS_MAX: u32 = 100_000;

/// Events by which it is tried out whether one thread or several are faster.
const EVENTS_TRIED: u64 = 1_000;
/// Events for which the faster is used then, at first and at most.
const EVENTS_USED: [u64; 2] = [50_000, 1_000_000];

/// Whether one thread or several were faster lately: windows may be short, and CPUs busy with something else. The only use of a clock in a
/// simulation, and it changes no result.
#[derive(Debug)]
pub(super) struct ThreadTrial {
    phase: TrialPhase,
    /// Nanoseconds an event, of several threads when they were tried.
    several: f64,
    /// Of this phase.
    events: u64,
    took: Duration,
    /// Events of the next phase of use.
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialPhase {
    TrySeveral,
    TryOne,
    Use { several: bool },
}

impl ThreadTrial {
    pub fn new() -> Self {
        let (phase, used) = (TrialPhase::TrySeveral, EVENTS_USED[0]);
        Self { phase, several: 0.0, events: 0, took: Duration::ZERO, used }
    }

    /// Whether several threads shall run the next window.
    pub fn uses_several(&self) -> bool {
        matches!(self.phase, TrialPhase::TrySeveral | TrialPhase::Use { several: true })
    }

    /// Runs a window, which returns how many events it had.
    #[expect(clippy::disallowed_methods, reason = "how fast threads are is a matter of real time")]
    pub fn time(&mut self, window: impl FnOnce() -> u64) {
        let begun = std::time::Instant::now();
        self.events += window();
        self.took += begun.elapsed();
        let each = self.took.as_secs_f64() * 1e9 / self.events.max(1) as f64;
        let next = match self.phase {
            TrialPhase::TrySeveral if self.events >= EVENTS_TRIED => {
                self.several = each;
                TrialPhase::TryOne
            }
            TrialPhase::TryOne if self.events >= EVENTS_TRIED => {
                let several = self.several < each;
                let longer = (self.used * 2).min(EVENTS_USED[1]);
                self.used = if several { longer } else { EVENTS_USED[0] };
                TrialPhase::Use { several }
            }
            TrialPhase::Use { .. } if self.events >= self.used => TrialPhase::TrySeveral,
            _ => return,
        };
        (self.phase, self.events, self.took) = (next, 0, Duration::ZERO);
    }
}

/// A process that is to be run.
struct Turn {
    process: Box<LogicalProcess>,
    world: Arc<World>,
    until: Instant,
}

/// One thread.
#[derive(Debug)]
pub(super) struct Worker {
    turns: Option<SyncSender<Turn>>,
    done: Receiver<Box<LogicalProcess>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// A thread that waits for its first turn.
    ///
    /// # Errors
    /// The system allows no more threads.
    pub fn new() -> io::Result<Self> {
        let (turns, of_worker) = sync_channel::<Turn>(1);
        let (to_caller, done) = sync_channel(1);
        let thread = Builder::new().name("simulation".to_owned()).spawn(move || {
            while let Ok(Turn { mut process, world, until }) = receive(&of_worker) {
                process.run_until(&world, until, u64::MAX, false);
                drop(world);
                if to_caller.send(process).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { turns: Some(turns), done, thread: Some(thread) })
    }

    /// Begins to run a process up to a moment.
    pub fn start(&self, process: Box<LogicalProcess>, world: &Arc<World>, until: Instant) {
        let turn = Turn { process, world: Arc::clone(world), until };
        if let Some(turns) = &self.turns {
            // A thread that has panicked takes nothing, which `wait` finds.
            turns.send(turn).ok();
        }
    }

    /// The process, once it has been run. Panics as the thread did.
    pub fn wait(&mut self) -> Box<LogicalProcess> {
        receive(&self.done).unwrap_or_else(|RecvError| {
            let thread = self.thread.take().expect("a thread that has not been waited for");
            match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("it ends when it is told to"),
            }
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.turns = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, that has been said.
            thread.join().ok();
        }
    }
}

fn receive<T>(from: &Receiver<T>) -> Result<T, RecvError> {
    for poll in 1..=POLLS_MAX {
        match from.try_recv() {
            Ok(value) => return Ok(value),
            // The other may wait for this CPU.
            Err(TryRecvError::Empty) if poll % 64 == 0 => yield_now(),
            Err(TryRecvError::Empty) => spin_loop(),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
        }
    }
    from.recv()
}
