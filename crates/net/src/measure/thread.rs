//! The thread of a connection or of a stream of datagrams: on which CPUs it runs, and what processor time it has used,
//! which another thread reads so that the measured loop does not.
//!
//! It runs beside the CPU on which the flow's receive queue is served (SO_INCOMING_CPU, socket(7)): where the interrupt
//! of the device's queue goes, or where packet steering sends it. Taking packets in and copying them out are about as
//! much work, so a thread on the same CPU halves the rate; on another one that shares a cache it finds the data there.
//! A flow between two namespaces or over a loopback has no such queue: it is taken in wherever its sender runs, and
//! binding threads by that costs a third of the rate of four connections on two CPUs (23 of 37 Gb/s over a veth), so it
//! is left to the scheduler. Whoever restricts the process, as `taskset` does, restricts this too.

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use plumb_base::cpu_list;
use plumb_result::net::ThreadPlacement;
use plumb_sys::clock::{ClockId, read_ns, thread_cpu_ns};
use plumb_sys::process;
use plumb_sys::sched;
use plumb_sys::socket;
use plumb_sys::socket::IntOption;
use serde::{Deserialize, Serialize};

/// Who chooses the CPU of a connection's thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThreadPlacementPolicy {
    /// The receive queue of its flow, if it has one: the thread runs beside the CPU that serves it.
    #[default]
    Queue,
    /// The scheduler.
    Free,
}

/// Places the calling thread by where this connection is served.
pub(super) fn place_by_queue(
    socket: BorrowedFd<'_>,
    seating: ThreadPlacementPolicy,
) -> ThreadPlacement {
    let told = |option| u32::try_from(socket::option(socket, option).ok()?).ok();
    let served_by = told(IntOption::IncomingCpu);
    let queue = told(IntOption::IncomingQueue).filter(|&queue| queue > 0);
    let mut placement = ThreadPlacement { served_by, queue, ..ThreadPlacement::default() };
    if let (ThreadPlacementPolicy::Queue, Some(_), Some(served)) = (seating, queue, served_by) {
        let allowed = sched::allowed_cpus().unwrap_or_default();
        let bound_to = neighboring_cpus(served, &allowed, &sharers_of_last_cache(served));
        if !bound_to.is_empty() && sched::bind(&bound_to).is_ok() {
            placement.bound_to = bound_to;
        }
    }
    placement
}

/// The allowed CPUs that share a cache with the one that serves, and if there is none, the allowed ones; never that one
/// itself. None where nothing is left, or nothing would be excluded.
fn neighboring_cpus(served: u32, allowed: &[u32], sharers: &[u32]) -> Vec<u32> {
    let others = || allowed.iter().copied().filter(|&cpu| cpu != served);
    let near: Vec<u32> = others().filter(|cpu| sharers.contains(cpu)).collect();
    let bound = if near.is_empty() { others().collect() } else { near };
    if bound.len() == allowed.len() { Vec::new() } else { bound }
}

/// The CPUs that share this one's cache of the highest level; none where the kernel lists no caches.
///
/// Linux's Documentation/ABI/stable/sysfs-devices-system-cpu.
fn sharers_of_last_cache(cpu: u32) -> Vec<u32> {
    let caches = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let caches = fs::read_dir(caches).into_iter().flatten().flatten().map(|entry| entry.path());
    let levels = caches.filter_map(|cache| {
        let level = fs::read_to_string(cache.join("level")).ok()?.trim().parse::<u32>().ok()?;
        let sharers = fs::read_to_string(cache.join("shared_cpu_list")).ok()?;
        Some((level, cpu_list::parse(&sharers)))
    });
    levels.max_by_key(|(level, _)| *level).map(|(_, sharers)| sharers).unwrap_or_default()
}

/// One thread that works, or none yet. Of a thread that serves several connections each has an equal part of its
/// time; softirqs belong to no thread, and what they cost is the host's (`crate::evidence`).
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
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_sits_beside_the_cpu_that_serves_its_flow_and_in_the_same_cache_if_it_may() {
        let all: Vec<u32> = (0..8).collect();
        assert_eq!(neighboring_cpus(5, &all, &[4, 5, 6, 7]), [4, 6, 7]);
        assert_eq!(neighboring_cpus(5, &[0, 1, 5], &[4, 5, 6, 7]), [0, 1], "no sharer is allowed");
        assert_eq!(neighboring_cpus(5, &all, &[]), [0, 1, 2, 3, 4, 6, 7], "no caches are listed");
    }

    #[test]
    fn who_may_use_one_cpu_only_or_other_ones_anyway_is_left_alone() {
        assert!(neighboring_cpus(1, &[1], &[0, 1]).is_empty());
        assert!(neighboring_cpus(1, &[0], &[0, 1]).is_empty());
        assert!(neighboring_cpus(1, &[2, 3], &[2, 3]).is_empty());
    }

    #[test]
    fn a_flow_over_a_loopback_tells_its_cpu_and_has_no_queue_that_its_thread_were_bound_by() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 64]).unwrap();
        far.read_exact(&mut [0; 64]).unwrap();
        let (placement, allowed) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let placement = place_by_queue(far.as_fd(), ThreadPlacementPolicy::Queue);
                (placement, sched::allowed_cpus().unwrap())
            });
            thread.join().unwrap()
        });
        assert!(placement.served_by.is_some(), "{placement:?}");
        assert_eq!((placement.queue, placement.bound_to), (None, Vec::new()));
        assert_eq!(allowed, sched::allowed_cpus().unwrap());
    }

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
