//! The thread of a connection or of a stream of datagrams, whose processor time another thread reads, so that the measured loop does not.
//!
//! Where a thread serves several connections, each has an equal part of its time: the sum is what counts. Left out: softirqs, which belong to no thread, and what they cost is the host's (`crate::evidence::host`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use plumb_sys::clock::{ClockId, read_ns, thread_cpu_ns};
use plumb_sys::process;

/// One thread that works, or none yet.
#[derive(Debug, Default)]
pub(super) struct ThreadCpuClock {
    /// Its number; 0 before it runs.
    thread: AtomicU32,
    /// Connections that it serves; 0 before it runs.
    connections: AtomicU64,
    /// What it had used at its end; 0 before.
    used_ns: AtomicU64,
}

impl ThreadCpuClock {
    /// Called by the thread itself, first, with how many connections it serves.
    pub(super) fn begin(&self, served: usize) {
        self.connections.store(served as u64, Ordering::Relaxed);
        self.thread.store(process::thread_id(), Ordering::Release);
    }

    /// Called by the thread itself, last.
    pub(super) fn end(&self) {
        self.used_ns.store(self.share(read_ns(ClockId::ThreadCpu)).max(1), Ordering::Release);
    }

    /// How many connections its thread serves; 0 before it runs.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    fn share(&self, thread_ns: u64) -> u64 {
        thread_ns / self.connections().max(1)
    }

    /// What it has used so far.
    pub(super) fn cpu_ns(&self) -> u64 {
        let at_end = || Some(self.used_ns.load(Ordering::Acquire)).filter(|&ns| ns > 0);
        let now = || match self.thread.load(Ordering::Acquire) {
            0 => 0,
            thread => self.share(thread_cpu_ns(thread).unwrap_or(0)),
        };
        // It may end, and its number become another's, while its clock is read.
        at_end().unwrap_or_else(|| {
            let now = now();
            at_end().unwrap_or(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn another_thread_reads_what_this_one_uses_while_it_works_and_after() {
        let worker = ThreadCpuClock::default();
        assert_eq!(worker.cpu_ns(), 0);
        let (go, wait) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let working = &worker;
            scope.spawn(move || {
                working.begin(1);
                while read_ns(ClockId::ThreadCpu) < 20_000_000 {
                    std::hint::black_box(0);
                }
                wait.recv().unwrap();
                working.end();
            });
            while worker.cpu_ns() < 20_000_000 {
                std::thread::yield_now();
            }
            // This thread's own time is in none of it.
            let (before, own) = (worker.cpu_ns(), read_ns(ClockId::ThreadCpu));
            while read_ns(ClockId::ThreadCpu) < own + 100_000_000 {
                std::hint::black_box(0);
            }
            assert!(worker.cpu_ns() < before + 50_000_000, "{before} {}", worker.cpu_ns());
            go.send(()).unwrap();
        });
        let used = worker.cpu_ns();
        assert!(used >= 20_000_000, "{used}");
        assert_eq!(worker.cpu_ns(), used, "it has ended");
    }
    #[test]
    fn connections_of_one_thread_have_equal_parts_of_its_time() {
        let workers =
            [ThreadCpuClock::default(), ThreadCpuClock::default(), ThreadCpuClock::default()];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for worker in &workers {
                    worker.begin(3);
                }
                while read_ns(ClockId::ThreadCpu) < 30_000_000 {
                    std::hint::black_box(0);
                }
                workers.iter().for_each(ThreadCpuClock::end);
            });
        });
        let used = workers.each_ref().map(ThreadCpuClock::cpu_ns);
        let sum: u64 = used.iter().sum();
        assert!((30_000_000..60_000_000).contains(&sum), "{used:?}");
    }
}
