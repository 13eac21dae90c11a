//! Threads that run logical processes beside the thread that drives the simulation.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, sync_channel};
use std::thread::{JoinHandle, yield_now};

use plumb_base::time::Instant;

use super::logical_process::LogicalProcess;
use super::world::World;

/// Times that a thread looks for what it waits for before it sleeps: some hundred microseconds, as waking one up takes tens.
const LOOKS: u32 = 20_000;

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
    pub fn new() -> Self {
        let (turns, of_worker) = sync_channel::<Turn>(1);
        let (to_caller, done) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            while let Ok(Turn { mut process, world, until }) = receive(&of_worker) {
                process.run_until(&world, until, u64::MAX, false);
                drop(world);
                if to_caller.send(process).is_err() {
                    return;
                }
            }
        });
        Self { turns: Some(turns), done, thread: Some(thread) }
    }

    /// Begins to run a process up to a moment.
    pub fn start(&self, process: Box<LogicalProcess>, world: &Arc<World>, until: Instant) {
        let turn = Turn { process, world: Arc::clone(world), until };
        // What a thread that panicked does not take is missed when it is waited for.
        self.turns.as_ref().map(|turns| turns.send(turn));
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
    for look in 1..=LOOKS {
        match from.try_recv() {
            Ok(value) => return Ok(value),
            // The other may wait for this CPU.
            Err(TryRecvError::Empty) if look % 64 == 0 => yield_now(),
            Err(TryRecvError::Empty) => spin_loop(),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
        }
    }
    from.recv()
}
