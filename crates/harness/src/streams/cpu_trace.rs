//! The tracepoints of a stream that is under way: which share of both processes' CPU time is the protocol stack's.

use std::fs;

use plumb_base::time::Span;
use plumb_clock::{Stopwatch, monotonic_ns, sleep_until};
use plumb_sys::sched;

use crate::report::{BlockError, BlockPartReport};
use crate::trace::{CpuTimeShares, ProbeCost, TraceRecorder, TraceUnavailable, TracepointSet};

/// For how long a stream is watched: thousands of messages.
const WATCHED: Span = Span::from_ms(20);

/// Watches the threads of two processes on some CPUs.
pub(super) struct CpuTimeTrace {
    sender: u32,
    cpus: Vec<u32>,
    watch: Stopwatch,
    hit_ns: f64,
}

impl CpuTimeTrace {
    /// Finds out what a hit costs, before anything else wants the CPU.
    ///
    /// # Errors
    /// Where this host does not let anybody look, or the threads may run anywhere.
    pub(super) fn new(
        sender: Option<u32>,
        cpus: &[u32],
        watch: Stopwatch,
    ) -> Result<Self, BlockError> {
        let (Some(sender), false, Ok(cpu)) = (sender, cpus.is_empty(), sched::current_cpu()) else {
            let why =
                "only threads of this host that are bound to CPUs are traced: choose a placement";
            return Err(BlockError::Unavailable(why.to_owned()));
        };
        let hit_ns = ProbeCost::measure_hit_ns(cpu, watch).map_err(|error| unavailable(&error))?;
        Ok(Self { sender, cpus: cpus.to_vec(), watch, hit_ns })
    }

    /// Watches the stream for a while: the shares of the stack and of what is unexplained.
    pub(super) fn record(&self) -> Result<Vec<BlockPartReport>, BlockError> {
        let mut threads = thread_ids(std::process::id())?;
        threads.extend(thread_ids(self.sender)?);
        let set = TracepointSet::network();
        let mut recorder = TraceRecorder::open(&threads, &self.cpus, set, self.watch)
            .map_err(|error| unavailable(&error))?;
        let failed = |error| BlockError::Unavailable(format!("cannot record: {error}"));
        recorder.enable().map_err(failed)?;
        let until = monotonic_ns() + WATCHED.as_ns();
        // A tick ends a sleep early.
        while monotonic_ns() < until {
            sleep_until(until);
        }
        recorder.disable().map_err(failed)?;
        let shares = CpuTimeShares::of(&recorder.drain(), &threads, self.hit_ns);
        let part = |(response, share): (&str, Option<f64>)| BlockPartReport {
            response: response.to_owned(),
            n: u64::from(share.is_some()),
            samples: share.into_iter().collect(),
            histogram: Vec::new(),
            histogram_scale: 1.0,
            n_eff: None,
        };
        Ok([("in-stack", shares.stack()), ("unexplained", shares.unexplained())].map(part).to_vec())
    }
}

fn unavailable(error: &TraceUnavailable) -> BlockError {
    BlockError::Unavailable(error.to_string())
}

/// The threads of a process.
fn thread_ids(process: u32) -> Result<Vec<u32>, BlockError> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .map_err(|error| BlockError::Failed(format!("cannot list threads: {error}")))?;
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Ok(tasks.filter_map(Result::ok).filter_map(number).collect())
}
