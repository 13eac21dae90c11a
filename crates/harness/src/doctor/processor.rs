//! Whether the processor holds still (placements, frequency, idling, hypervisor, quota) and its clocks are cheap.

use plumb_base::cpu_list;

use super::{CheckFinding, HostCheck, limited, ok};
use crate::environment::KernelFiles;
use crate::environment::process::control_group;
use crate::environment::processor::{frequency_settings, hypervisor, turbo};
use crate::topology::{CpuPlacement, CpuTopology};

/// Leaving a deeper idle state than this shows in the latency of a blocked receiver.
const IDLE_EXIT_US: u64 = 20;

pub(super) fn examine(tree: &KernelFiles, topology: &CpuTopology) -> Vec<HostCheck> {
    let hypervisor = hypervisor(tree);
    let guest = hypervisor != "none";
    vec![
        placements(topology).of("cpu.placements", "CPUs and placements"),
        smt(tree).of("cpu.smt", "simultaneous multithreading"),
        virtual_machine(&hypervisor, guest).of("cpu.hypervisor", "virtual machine"),
        frequency(tree, guest).of("cpu.frequency", "frequency governor"),
        boost(tree, guest).of("cpu.turbo", "turbo frequencies"),
        idle(tree).of("cpu.idle", "idle states"),
        quota(tree).of("cpu.quota", "CPU quota of the control group"),
    ]
}

fn placements(topology: &CpuTopology) -> CheckFinding {
    let names: Vec<_> = topology.placements().into_iter().map(CpuPlacement::name).collect();
    let allowed = topology.allowed();
    let of = if allowed.len() < topology.online().len() {
        format!(" of {} online", topology.online().len())
    } else {
        String::new()
    };
    let finding = format!("CPUs {}{of}: {}", cpu_list::format(&allowed), names.join(", "));
    let Err(unavailable) = topology.pair(CpuPlacement::OtherCpu) else {
        return ok(finding);
    };
    let fix = if topology.online().len() > 1 {
        "taskset -a -c -p 0-1023 $$   (or start the container with more CPUs)"
    } else {
        "nothing can, short of a machine with two CPUs"
    };
    limited(finding, format!("two processes can only take turns: {}", unavailable.reason), fix)
}

fn smt(tree: &KernelFiles) -> CheckFinding {
    ok(match tree.text("sys/devices/system/cpu/smt/active").as_deref() {
        Ok("1") => "on: measured as a placement of its own, avoided otherwise",
        Ok("0") => "off, or not visible to this machine",
        _ => "not reported; taken from the topology",
    })
}

fn virtual_machine(name: &str, guest: bool) -> CheckFinding {
    if !guest {
        return ok(name.to_owned());
    }
    limited(
        name.to_owned(),
        "waking an idle CPU leaves the machine and costs microseconds; other guests steal time; the \
         topology shown may not be real",
        "nothing can inside a guest: measure on the host as well, and compare placements",
    )
}

fn frequency(tree: &KernelFiles, guest: bool) -> CheckFinding {
    let governors = frequency_settings(tree, "scaling_governor");
    let why =
        "the processor's speed may change while it is measured; plumb watches it with a canary";
    if governors.is_empty() {
        let (finding, fix) = if guest {
            ("no cpufreq: the hypervisor decides", "nothing can inside a guest")
        } else {
            (
                "no cpufreq: the firmware decides",
                "set the firmware's power profile to performance, or load a cpufreq driver",
            )
        };
        return limited(finding, why, fix);
    }
    let shown = governors.iter().cloned().collect::<Vec<_>>().join(", ");
    if shown == "performance" {
        return ok(shown);
    }
    let fix =
        "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor";
    limited(shown, why, fix)
}

fn boost(tree: &KernelFiles, guest: bool) -> CheckFinding {
    let why = "one busy core runs faster than two, so the same work differs between placements";
    let fix = match turbo(tree) {
        Some(false) => return ok("off"),
        Some(true) if tree.exists("sys/devices/system/cpu/intel_pstate/no_turbo") => {
            "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo"
        }
        Some(true) => "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost",
        None if guest => "nothing can inside a guest",
        None => "switch it off in the firmware, where there is one",
    };
    limited(if turbo(tree).is_some() { "on" } else { "not visible" }, why, fix)
}

fn idle(tree: &KernelFiles) -> CheckFinding {
    let base = "sys/devices/system/cpu/cpu0/cpuidle";
    let states = tree.names(base).into_iter().filter_map(|state| {
        let enabled = tree.text(&format!("{base}/{state}/disable")).is_ok_and(|text| text == "0");
        let latency: u64 = tree.number(&format!("{base}/{state}/latency"))?;
        enabled.then_some((latency, tree.text(&format!("{base}/{state}/name")).ok()?))
    });
    let Some((latency, name)) = states.max() else { return ok("none listed") };
    let finding = format!("down to {name}, {latency} µs to leave");
    if latency < IDLE_EXIT_US {
        return ok(finding);
    }
    limited(
        finding,
        "a receiver that blocks pays for waking its CPU: spin and block differ by more than a \
         context switch",
        format!("sudo cpupower idle-set -D {}", IDLE_EXIT_US - 1),
    )
}

fn quota(tree: &KernelFiles) -> CheckFinding {
    let group = control_group(tree);
    let Some(cpus) = group.cpu_quota else { return ok("none") };
    let period = group.cpu_period_us.unwrap_or(100_000) / 1000;
    let throttled = group.throttled.map_or(String::new(), |n| format!(", throttled {n} times"));
    limited(
        format!("{cpus:.2} CPUs in every {period} ms{throttled}"),
        "with the quota spent, everything stops until the next period: tails of that length appear",
        "start the container without --cpus or a CPU limit",
    )
}

const SOURCES: &str = "sys/devices/system/clocksource/clocksource0";

pub(super) fn clocks(tree: &KernelFiles) -> Vec<HostCheck> {
    let is_usable = plumb_sys::clock::ticks_usable();
    vec![
        counter(tree, is_usable).of("clock.tsc", "time-stamp counter"),
        source(tree).of("clock.source", "kernel clock source"),
    ]
}

/// The processor's counter: constant, never stopping, and not rejected by the kernel.
fn counter(tree: &KernelFiles, usable: bool) -> CheckFinding {
    let why = "samples are timed with CLOCK_MONOTONIC_RAW instead, whose read costs more, so short \
               operations are batched more";
    if !usable {
        return limited(
            "not constant, not non-stop, or without rdtscp",
            why,
            "nothing can on this processor; in a virtual machine, its owner can pass the counter \
             through (QEMU: -cpu host,+invtsc)",
        );
    }
    let available = tree.text(&format!("{SOURCES}/available_clocksource")).unwrap_or_default();
    let name = if cfg!(target_arch = "aarch64") { "arch_sys_counter" } else { "tsc" };
    if !available.is_empty() && !available.split_whitespace().any(|source| source == name) {
        return limited(
            format!("the kernel rejected it as a clock source (it offers {available})"),
            "it was found to drift or to differ between CPUs: figures taken with it can be wrong",
            "sudo dmesg | grep -i -e tsc -e clocksource   (says why; a firmware update may fix it)",
        );
    }
    ok("constant and non-stop")
}

/// The kernel's clock: whether clock_gettime stays in user space.
fn source(tree: &KernelFiles) -> CheckFinding {
    // These have a vDSO reader: x86 tsc, kvm-clock and Hyper-V pages; Arm's and RISC-V's counters.
    let fast = [
        "tsc",
        "kvm-clock",
        "hyperv_clocksource_tsc_page",
        "arch_sys_counter",
        "riscv_clocksource",
    ];
    match tree.text(&format!("{SOURCES}/current_clocksource")) {
        Ok(source) if fast.contains(&source.as_str()) => ok(source),
        Ok(source) => {
            let available = tree.text(&format!("{SOURCES}/available_clocksource"));
            let better = available.unwrap_or_default();
            let better = better.split_whitespace().find(|source| fast.contains(source));
            let fix = better.map_or_else(
                || "nothing can: the kernel offers no better one".to_owned(),
                |better| format!("echo {better} | sudo tee /{SOURCES}/current_clocksource"),
            );
            limited(
                source,
                "every clock_gettime is a system call, in plumb and in what it is compared with",
                fix,
            )
        }
        Err(missing) => limited(
            missing.to_string(),
            "how the kernel reads its clock is not known",
            "nothing can, unless /sys is hidden on purpose: mount it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckStatus;
    use crate::environment::tests::MachineFixture;

    #[test]
    fn one_cpu_is_a_limit_and_a_cpuset_names_its_remedy() {
        let single = CpuTopology::read(&MachineFixture::new().online(&[0]), &[0]);
        let check = placements(&single);
        assert_eq!(check.status, CheckStatus::Limited);
        assert!(check.fix.starts_with("nothing can"));
        let penned = CpuTopology::read(&MachineFixture::new().online(&[0, 1, 2]), &[2]);
        let check = placements(&penned);
        assert!(check.fix.starts_with("taskset"), "{}", check.fix);
        assert!(check.finding.contains("of 3 online"), "{}", check.finding);
        let pair = CpuTopology::read(&MachineFixture::virtual_machine(), &[0, 1]);
        assert_eq!(placements(&pair).status, CheckStatus::Ok);
    }

    #[test]
    fn every_governor_but_performance_is_a_limit() {
        let policy = |n: u32| format!("sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor");
        let mixed = MachineFixture::with(&policy(0), "performance").file(&policy(1), "powersave");
        let check = frequency(&mixed, false);
        assert_eq!(check.finding, "performance, powersave");
        assert_eq!(check.status, CheckStatus::Limited);
        let fixed = MachineFixture::with(&policy(0), "performance");
        assert_eq!(frequency(&fixed, false).status, CheckStatus::Ok);
        assert_eq!(frequency(&MachineFixture::new(), true).fix, "nothing can inside a guest");
    }

    #[test]
    fn turbo_is_switched_off_where_its_driver_listens() {
        let intel = MachineFixture::with("sys/devices/system/cpu/intel_pstate/no_turbo", "0");
        assert!(boost(&intel, false).fix.contains("no_turbo"));
        let amd = MachineFixture::with("sys/devices/system/cpu/cpufreq/boost", "1");
        assert!(boost(&amd, false).fix.contains("cpufreq/boost"));
        let off = MachineFixture::with("sys/devices/system/cpu/cpufreq/boost", "0");
        assert_eq!(boost(&off, false).status, CheckStatus::Ok);
    }

    #[test]
    fn only_enabled_deep_idle_states_count() {
        let state = |n: u32, name: &str, latency: &str, disable: &str| {
            let base = format!("sys/devices/system/cpu/cpu0/cpuidle/state{n}");
            [
                (format!("{base}/name"), name.to_owned()),
                (format!("{base}/latency"), latency.to_owned()),
                (format!("{base}/disable"), disable.to_owned()),
            ]
        };
        let mut fixture = MachineFixture::new();
        for (path, text) in state(0, "C1", "2", "0").into_iter().chain(state(1, "C6", "133", "0")) {
            fixture = fixture.file(&path, &text);
        }
        let check = idle(&fixture);
        assert_eq!(
            (check.status, check.finding.as_str()),
            (CheckStatus::Limited, "down to C6, 133 µs to leave")
        );
        let fixture = fixture.file("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1");
        assert_eq!(idle(&fixture).status, CheckStatus::Ok);
    }

    #[test]
    fn a_quota_is_a_limit() {
        let fixture = MachineFixture::with("proc/self/cgroup", "0::/\n")
            .file("sys/fs/cgroup/cgroup.controllers", "cpu")
            .file("sys/fs/cgroup/cpu.max", "150000 100000");
        let check = quota(&fixture);
        assert_eq!(check.finding, "1.50 CPUs in every 100 ms");
        assert_eq!(quota(&MachineFixture::new()).status, CheckStatus::Ok);
    }

    #[test]
    fn a_slow_clock_source_names_the_faster() {
        let fixture = MachineFixture::with(&format!("{SOURCES}/current_clocksource"), "hpet\n")
            .file(&format!("{SOURCES}/available_clocksource"), "hpet tsc acpi_pm\n");
        let check = source(&fixture);
        assert_eq!(check.status, CheckStatus::Limited);
        assert!(check.fix.starts_with("echo tsc | sudo tee /sys/"), "{}", check.fix);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_counter_that_the_kernel_rejected_is_not_trusted() {
        let fixture =
            MachineFixture::with(&format!("{SOURCES}/available_clocksource"), "hpet acpi_pm");
        assert_eq!(counter(&fixture, true).status, CheckStatus::Limited);
        assert_eq!(counter(&fixture, false).status, CheckStatus::Limited);
        assert_eq!(counter(&MachineFixture::new(), true).status, CheckStatus::Ok);
    }
}
