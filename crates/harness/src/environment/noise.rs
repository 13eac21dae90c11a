//! What disturbs a measurement from outside: stolen, interrupt and softirq time, other tasks.
//!
//! The readers keep their files open and their buffers between readings, so that a reading costs
//! a `read` and no allocation.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::KernelFiles;

/// CPU time since boot of one CPU, in nanoseconds, to the kernel's ticks of 10 ms (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// The CPU.
    pub(crate) cpu: u32,
    /// User time, nice or not; includes the time of guests.
    pub(crate) user_ns: u64,
    /// Time in the kernel that is neither interrupt nor softirq.
    pub(crate) system_ns: u64,
    /// Idle time, waiting for disks included.
    pub(crate) idle_ns: u64,
    /// Hard interrupts.
    pub(crate) irq_ns: u64,
    /// Softirqs: most of the network stack's receiving side.
    pub(crate) softirq_ns: u64,
    /// Time in which this virtual CPU wanted to run and the hypervisor ran something else.
    pub(crate) steal_ns: u64,
}

impl CpuTime {
    /// All of it together.
    pub(crate) fn total_ns(&self) -> u64 {
        [self.user_ns, self.system_ns, self.idle_ns, self.irq_ns, self.softirq_ns, self.steal_ns]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// One reading of /proc/stat: every CPU's time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTimes {
    times: Vec<CpuTime>,
}

impl CpuTimes {
    /// The time of one CPU, if the kernel listed it.
    pub(crate) fn of(&self, cpu: u32) -> Option<&CpuTime> {
        self.times.iter().find(|time| time.cpu == cpu)
    }

    /// A reading of the same CPUs at boot, when nothing had gone by.
    #[must_use]
    pub(crate) fn zero_like(&self) -> Self {
        let zero = |time: &CpuTime| CpuTime { cpu: time.cpu, ..CpuTime::default() };
        Self { times: self.times.iter().map(zero).collect() }
    }

    /// Time gone by since an earlier reading, summed over `cpus`, each counted once; over all of
    /// them when `cpus` is empty. Counters that went back (CPU hot-plugging, /proc/stat's known
    /// wobble) count as zero.
    pub(crate) fn since(&self, earlier: &Self, cpus: &[u32]) -> CpuTime {
        let add = |sum: &mut u64, now: u64, then: u64| {
            *sum = sum.saturating_add(now.saturating_sub(then));
        };
        let mut sum = CpuTime::default();
        for now in &self.times {
            let Some(then) = earlier.of(now.cpu) else { continue };
            if !cpus.is_empty() && !cpus.contains(&now.cpu) {
                continue;
            }
            add(&mut sum.user_ns, now.user_ns, then.user_ns);
            add(&mut sum.system_ns, now.system_ns, then.system_ns);
            add(&mut sum.idle_ns, now.idle_ns, then.idle_ns);
            add(&mut sum.irq_ns, now.irq_ns, then.irq_ns);
            add(&mut sum.softirq_ns, now.softirq_ns, then.softirq_ns);
            add(&mut sum.steal_ns, now.steal_ns, then.steal_ns);
        }
        sum
    }

    /// Replaces the reading by what `text`, the start of a /proc/stat, says.
    ///
    /// Lines that are not understood are skipped. `tick_ns` is what one tick is worth.
    fn fill(&mut self, text: &[u8], tick_ns: u64) {
        self.times.clear();
        for line in text.split(|byte| *byte == b'\n') {
            let Some(rest) = line.strip_prefix(b"cpu") else { continue };
            let mut fields = rest.split(|byte| *byte == b' ').map(number);
            // The first line, `cpu  …`, is the sum of the others and has no number.
            let Some(cpu) = fields.next().flatten().and_then(|cpu| u32::try_from(cpu).ok()) else {
                continue;
            };
            let mut next = || fields.next().flatten().unwrap_or(0).saturating_mul(tick_ns);
            let (user, nice, system, idle) = (next(), next(), next(), next());
            let (iowait, irq, softirq, steal) = (next(), next(), next(), next());
            self.times.push(CpuTime {
                cpu,
                user_ns: user.saturating_add(nice),
                system_ns: system,
                idle_ns: idle.saturating_add(iowait),
                irq_ns: irq,
                softirq_ns: softirq,
                steal_ns: steal,
            });
        }
    }
}

/// Reads /proc/stat and /proc/loadavg again and again.
#[derive(Debug)]
pub(crate) struct NoiseReader {
    stat: File,
    load: Option<File>,
    buffer: Vec<u8>,
    tick_ns: u64,
}

impl NoiseReader {
    /// Opens the machine's own files.
    ///
    /// # Errors
    /// When /proc/stat cannot be opened: /proc is not mounted, or hidden.
    pub(crate) fn open() -> io::Result<Self> {
        Self::at(&KernelFiles::machine())
    }

    /// Opens the files below a root.
    ///
    /// # Errors
    /// When proc/stat cannot be opened.
    pub(crate) fn at(tree: &KernelFiles) -> io::Result<Self> {
        Ok(Self {
            stat: File::open(tree.path("proc/stat"))?,
            load: File::open(tree.path("proc/loadavg")).ok(),
            buffer: vec![0; 4096],
            tick_ns: 1_000_000_000 / plumb_sys::probe::user_ticks_per_second(),
        })
    }

    /// Puts the present times of all CPUs into `times`.
    ///
    /// Allocates only when there are more CPUs than in any reading before.
    ///
    /// # Errors
    /// What reading /proc/stat gives.
    pub(crate) fn cpu_times(&mut self, times: &mut CpuTimes) -> io::Result<()> {
        let len = loop {
            let len = read_start(&self.stat, &mut self.buffer)?;
            // The CPUs come first: with another line begun after them, they are all there.
            if len < self.buffer.len() || holds_all_cpus(&self.buffer[..len]) {
                break len;
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        };
        times.fill(&self.buffer[..len], self.tick_ns);
        Ok(())
    }

    /// How many tasks are running or ready to run now besides the one that asks.
    ///
    /// `None` where /proc/loadavg cannot be read. In a container it counts the whole machine.
    pub(crate) fn others_running(&mut self) -> Option<u32> {
        let len = read_start(self.load.as_ref()?, &mut self.buffer).ok()?;
        Some(runnable(&self.buffer[..len])?.saturating_sub(1))
    }
}

/// How long tasks waited for something in the last ten seconds, as shares of wall time (PSI).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PressureStall {
    /// Share of the time in which at least one task waited, 0–1.
    pub(crate) some: f64,
    /// Microseconds of such waiting since boot.
    pub(crate) total_us: u64,
}

/// Reads the pressure of `cpu`, `memory` or `io`; `None` where the kernel does not keep it.
///
/// Linux's Documentation/accounting/psi.rst.
pub(crate) fn pressure(tree: &KernelFiles, resource: &str) -> Option<PressureStall> {
    let text = tree.text(&format!("proc/pressure/{resource}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
    let percent: f64 = field("avg10=")?.parse().ok()?;
    let total_us = field("total=")?.parse().ok()?;
    percent
        .is_finite()
        .then_some(PressureStall { some: (percent / 100.0).clamp(0.0, 1.0), total_us })
}

/// Reads a file from its start until the buffer is full or the file ends.
fn read_start(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read_at(&mut buffer[len..], len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // Reading on costs the kernel a whole new text; the CPUs are all that is wanted.
        if holds_all_cpus(&buffer[..len]) {
            break;
        }
    }
    Ok(len)
}

/// Whether a line that is not a CPU's has begun in the start of a /proc/stat.
fn holds_all_cpus(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| {
        let known = line.len().min(3);
        known > 0 && line[..known] != b"cpu"[..known]
    })
}

/// The running tasks of a /proc/loadavg: the number before the slash.
fn runnable(text: &[u8]) -> Option<u32> {
    let field = text.split(|byte| *byte == b' ').nth(3)?;
    let count = field.split(|byte| *byte == b'/').next()?;
    u32::try_from(number(count)?).ok()
}

/// The number that decimal digits and nothing else stand for.
fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::{MachineFixture, stat};
    use proptest::prelude::*;

    #[test]
    fn ticks_become_nanoseconds_by_cpu() {
        let fixture = MachineFixture::virtual_machine();
        let mut reader = NoiseReader::at(&fixture).unwrap();
        let mut times = CpuTimes::default();
        reader.cpu_times(&mut times).unwrap();
        let tick = reader.tick_ns;
        let first = times.of(0).unwrap();
        assert_eq!(
            (first.user_ns, first.softirq_ns, first.steal_ns),
            (100 * tick, 20 * tick, 3 * tick)
        );
        assert_eq!(
            (first.system_ns, first.idle_ns, first.irq_ns),
            (50 * tick, 1000 * tick, 7 * tick)
        );
        assert_eq!(times.of(1).unwrap().user_ns, 200 * tick);
        assert_eq!(times.of(2), None);
        assert_eq!(reader.others_running(), None);
    }

    #[test]
    fn differences_count_the_cpus_asked_for_and_never_wrap() {
        let (mut before, mut after) = (CpuTimes::default(), CpuTimes::default());
        before.fill(stat(&[(100, 5, 1), (300, 9, 4)]).as_bytes(), 10);
        after.fill(stat(&[(130, 7, 1), (250, 10, 9)]).as_bytes(), 10);
        assert_eq!(after.since(&before, &[0]).softirq_ns, 20);
        assert_eq!(after.since(&before, &[0]).steal_ns, 0);
        let both = after.since(&before, &[0, 1, 1]);
        assert_eq!((both.user_ns, both.softirq_ns, both.steal_ns), (300, 30, 50));
        assert_eq!(after.since(&before, &[]), both);
    }

    #[test]
    fn more_cpus_than_the_buffer_holds_are_all_read() {
        let text = stat(&vec![(123_456_789, 4, 5); 500]);
        let fixture = MachineFixture::with("proc/stat", &text);
        let mut reader = NoiseReader::at(&fixture).unwrap();
        let mut times = CpuTimes::default();
        reader.cpu_times(&mut times).unwrap();
        assert_eq!(times.times.len(), 500);
        assert_eq!(times.of(499).unwrap().user_ns, 123_456_789 * reader.tick_ns);
    }

    #[test]
    fn pressure_is_read_as_a_share() {
        let text = "some avg10=12.50 avg60=1.25 avg300=0.70 total=18233201\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        let fixture = MachineFixture::with("proc/pressure/cpu", text);
        let read = pressure(&fixture, "cpu");
        assert_eq!(read, Some(PressureStall { some: 0.125, total_us: 18_233_201 }));
        assert_eq!(pressure(&fixture, "memory"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            near in "(cpu[0-9 ]{0,30}\n?){0,6}[a-z ]{0,4}",
        ) {
            runnable(&bytes);
            holds_all_cpus(&bytes);
            for bytes in [&bytes[..], near.as_bytes()] {
                let mut times = CpuTimes::default();
                times.fill(bytes, u64::MAX);
                times.clone().since(&times, &[]);
            }
        }
    }
}
