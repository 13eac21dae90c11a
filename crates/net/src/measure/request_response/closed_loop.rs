//! The requests of one thread, each after the one before: when each begins, what counts, and what came of all.
//!
//! Left out: what carries them, and requests at times of their own ([`super::open_loop_schedule`]).

use std::io;

use plumb_sys::clock::{ClockId, read_ns};

use super::buffered_histogram::BufferedHistogram;
use super::{RequestResponseError, RequestResponseSpec, RequesterReport};
use crate::measure::bulk::Counter;
use plumb_clock::monotonic_ns;

/// The requests of one thread.
#[derive(Debug)]
pub struct ClosedLoop<'a> {
    counted_from: u64,
    end: u64,
    latency: BufferedHistogram,
    connect: BufferedHistogram,
    /// Processor time of this thread when what counts began.
    cpu_from: Option<u64>,
    due: u64,
    answered: u64,
    lost: u64,
    all: u64,
    progress: &'a Counter,
}

impl<'a> ClosedLoop<'a> {
    /// Those of a spec, from now on.
    pub fn new(spec: &RequestResponseSpec, progress: &'a Counter) -> Self {
        let (latency, connect) = (BufferedHistogram::new(), BufferedHistogram::new());
        let start_ns = monotonic_ns();
        Self {
            counted_from: start_ns + spec.warm_up_ns,
            end: start_ns + spec.end_ns(),
            latency,
            connect,
            cpu_from: None,
            due: 0,
            answered: 0,
            lost: 0,
            all: 0,
            progress,
        }
    }

    /// When the next request begins, which is now; none when the time is over.
    #[inline]
    pub fn next_request(&mut self) -> Option<u64> {
        let mut due = monotonic_ns();
        if due >= self.end {
            return None;
        }
        if due >= self.counted_from {
            if self.cpu_from.is_none() {
                self.cpu_from = Some(read_ns(ClockId::ThreadCpu));
                due = monotonic_ns();
            }
            self.due += 1;
        }
        Some(due)
    }

    /// The whole response has been read; how long that took since the request began.
    #[inline]
    pub fn on_response(&mut self, due: u64) -> u64 {
        let took_ns = monotonic_ns().saturating_sub(due);
        self.all += 1;
        self.progress.set(self.all);
        if due >= self.counted_from {
            self.answered += 1;
            self.latency.record(took_ns);
        }
        took_ns
    }

    /// The connection of a request stood so long after it was begun.
    pub fn on_connected(&mut self, due: u64, connect_ns: u64) {
        if due >= self.counted_from {
            self.connect.record(connect_ns);
        }
    }

    /// Nothing came back.
    pub const fn on_lost(&mut self, due: u64) {
        if due >= self.counted_from {
            self.lost += 1;
        }
    }

    /// The response to one that was taken for lost has come after all; how long that took.
    pub fn on_late_response(&mut self, due: u64) -> u64 {
        if due >= self.counted_from {
            self.lost = self.lost.saturating_sub(1);
        }
        self.on_response(due)
    }

    /// What came of them.
    pub fn into_report(self) -> RequesterReport {
        let counted_ns = monotonic_ns().saturating_sub(self.counted_from);
        let cpu_ns = self.cpu_from.map_or(0, |from| read_ns(ClockId::ThreadCpu) - from);
        RequesterReport {
            due: self.due,
            answered: self.answered,
            lost: self.lost,
            latency: self.latency.encode(),
            lateness: Vec::new(),
            connect: self.connect.encode(),
            counted_ns,
            cpu_ns,
            cpu_requests: self.answered,
            error: None,
        }
    }

    /// The error of a connection that broke, with what came of them until then.
    pub fn into_error(self, error: io::Error) -> RequestResponseError {
        RequestResponseError::Connection {
            after: self.all,
            error,
            partial: Box::new(self.into_report()),
        }
    }
}
