//! What disturbs this host at this moment: stolen time, other tasks, gaps in a busy loop, swapping.

use std::time::{Duration, Instant};

use super::{CheckFinding, HostCheck, limited, ok};
use crate::environment::KernelFiles;
use crate::environment::noise::{CpuTime, CpuTimes, NoiseReader, pressure};

/// How long the loop is watched, in so many parts.
const WATCH: Duration = Duration::from_millis(20);
const PARTS: u32 = 10;

/// A pause of the loop longer than this is an interruption; a timer tick takes less.
const GAP: Duration = Duration::from_micros(20);

pub(super) fn examine(tree: &KernelFiles) -> Vec<HostCheck> {
    let swapped = || swap_pages(&tree.text("proc/vmstat").unwrap_or_default());
    let swapped_before = swapped();
    let watched = sample_noise(tree);
    let pages = swapped().saturating_sub(swapped_before);
    let swap = swap(pages, pressure(tree, "memory").map(|p| p.some)).of("noise.swap", "swapping");
    match watched {
        Ok(seen) => vec![
            steal(seen.since_boot, seen.during).of("noise.steal", "stolen time"),
            load(seen.others, pressure(tree, "cpu").map(|p| p.some))
                .of("noise.load", "other tasks running"),
            gaps(&seen.gaps).of("noise.gaps", "interruptions of a busy loop"),
            swap,
        ],
        Err(error) => vec![
            limited(
                format!("/proc/stat is unreadable: {error}"),
                "blocks disturbed by the hypervisor cannot be told from quiet ones, and softirq \
                 time cannot be counted",
                "sudo mount -t proc proc /proc",
            )
            .of("noise.steal", "stolen time"),
            swap,
        ],
    }
}

/// What was seen while a loop kept one CPU busy.
struct NoiseSample {
    since_boot: CpuTime,
    during: CpuTime,
    /// Mean number of other tasks running or ready; none where it cannot be read.
    others: Option<f64>,
    gaps: LoopGaps,
}

/// Interruptions of a busy loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LoopGaps {
    watched: Duration,
    lost: Duration,
    longest: Duration,
    count: u32,
}

fn sample_noise(tree: &KernelFiles) -> std::io::Result<NoiseSample> {
    let mut reader = NoiseReader::at(tree)?;
    let (mut first, mut last) = (CpuTimes::default(), CpuTimes::default());
    reader.cpu_times(&mut first)?;
    let mut gaps = LoopGaps::default();
    let mut others = Some(0.0);
    for _ in 0..PARTS {
        spin(WATCH, &mut gaps);
        let now = reader.others_running();
        others = others.zip(now).map(|(sum, now)| sum + f64::from(now) / f64::from(PARTS));
    }
    reader.cpu_times(&mut last)?;
    let since_boot = last.since(&last.zero_like(), &[]);
    Ok(NoiseSample { since_boot, during: last.since(&first, &[]), others, gaps })
}

/// Reads the clock over and over; when two readings lie far apart, something else ran.
#[expect(clippy::disallowed_methods, reason = "noise is measured in wall-clock time")]
fn spin(length: Duration, gaps: &mut LoopGaps) {
    let start = Instant::now();
    let mut before = start;
    loop {
        let now = Instant::now();
        let step = now.duration_since(before);
        if step > GAP {
            gaps.count += 1;
            gaps.lost += step;
            gaps.longest = gaps.longest.max(step);
        }
        before = now;
        if now.duration_since(start) >= length {
            gaps.watched += now.duration_since(start);
            return;
        }
    }
}

fn steal(since_boot: CpuTime, during: CpuTime) -> CheckFinding {
    let share = |time: CpuTime| {
        let total = time.total_ns();
        if total == 0 { 0.0 } else { 100.0 * time.steal_ns as f64 / total as f64 }
    };
    let (boot, now) = (share(since_boot), share(during));
    let finding = format!("{boot:.2} % since boot, {now:.1} % now");
    if now == 0.0 && boot < 1.0 {
        return ok(finding);
    }
    limited(
        finding,
        "the hypervisor runs other machines on these CPUs: tails grow, blocks are flagged",
        "nothing can inside a guest: ask for dedicated CPUs, or measure at a quieter hour",
    )
}

fn load(others: Option<f64>, waiting: Option<f64>) -> CheckFinding {
    let pressure = waiting.map_or(String::new(), |some| {
        format!("; tasks waited for a CPU {:.0} % of the last 10 s", some * 100.0)
    });
    let (mean, finding) = match others {
        Some(mean) => (mean, format!("{mean:.1} on average{pressure}")),
        None => (0.0, format!("/proc/loadavg is unreadable{pressure}")),
    };
    if others.is_some() && mean < 0.5 {
        return ok(finding);
    }
    limited(
        finding,
        "they share caches, cores and the scheduler with what is measured",
        "ps -eo pcpu,pid,comm --sort=-pcpu | head   (shows what to stop)",
    )
}

fn gaps(seen: &LoopGaps) -> CheckFinding {
    let share = 100.0 * seen.lost.as_secs_f64() / seen.watched.as_secs_f64().max(1e-9);
    let finding = format!(
        "{} over {} µs in {} ms, the longest {} µs ({share:.1} % of the time)",
        seen.count,
        GAP.as_micros(),
        seen.watched.as_millis(),
        seen.longest.as_micros()
    );
    if share < 1.0 {
        return ok(finding);
    }
    limited(
        finding,
        "a sample that is interrupted measures the interruption: medians hold, tails do not",
        "stop other work, or boot with isolcpus=… nohz_full=… for the CPUs that measure",
    )
}

fn swap(pages: u64, waiting: Option<f64>) -> CheckFinding {
    let waiting = waiting.unwrap_or(0.0);
    if pages == 0 && waiting < 0.01 {
        return ok("none now");
    }
    limited(
        format!("{pages} pages now; tasks waited for memory {:.0} % of 10 s", waiting * 100.0),
        "page faults of milliseconds end up in the samples",
        "ps -eo rss,pid,comm --sort=-rss | head   (shows what to stop), then sudo swapoff -a",
    )
}

/// Pages moved in and out of swap since boot, of a /proc/vmstat.
fn swap_pages(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix("pswpin ").or_else(|| line.strip_prefix("pswpout ")))
        .filter_map(|count| count.trim().parse().ok())
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus::{Limited, Ok as Well};
    use crate::doctor::tests::each_says;
    use crate::environment::tests::MachineFixture;

    #[test]
    fn each_noise_counts_from_its_threshold() {
        let time = |user_ns, steal_ns| CpuTime { user_ns, steal_ns, ..CpuTime::default() };
        let lost = |us| LoopGaps {
            watched: Duration::from_millis(200),
            lost: Duration::from_micros(us),
            longest: Duration::from_micros(us),
            count: 1,
        };
        each_says([
            // Recent steal matters more than old.
            (steal(time(1_000_000, 10), time(1000, 0)), Well, ""),
            (steal(time(1_000_000, 10), time(1000, 10)), Limited, ""),
            (steal(time(900, 100), time(1000, 0)), Limited, ""),
            (steal(CpuTime::default(), CpuTime::default()), Well, ""),
            (load(Some(0.4), Some(0.0)), Well, ""),
            (load(Some(0.6), None), Limited, ""),
            (load(None, None), Limited, ""),
            (gaps(&lost(1_900)), Well, ""),
            (gaps(&lost(2_100)), Limited, ""),
            (swap(0, None), Well, ""),
            (swap(2, None), Limited, ""),
            (swap(0, Some(0.2)), Limited, ""),
        ]);
        assert_eq!(swap_pages("nr_free 5\npswpin 3\npswpout 4\n"), 7);
        assert_eq!(examine(&MachineFixture::new())[0].status, Limited);
    }
}
