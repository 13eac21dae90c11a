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
    use crate::doctor::CheckStatus::{Limited, Ok as Well};
    use crate::doctor::tests::each_says;
    use crate::environment::tests::MachineFixture;

    fn cpu(path: &str, value: &str) -> MachineFixture {
        MachineFixture::with(&format!("sys/devices/system/cpu/{path}"), value)
    }

    #[test]
    fn few_cpus_and_a_quota_are_limits() {
        let placed = |online: &[u32], allowed: &[u32]| {
            placements(&CpuTopology::read(&MachineFixture::new().online(online), allowed))
        };
        let pair = CpuTopology::read(&MachineFixture::virtual_machine(), &[0, 1]);
        let group = MachineFixture::with("proc/self/cgroup", "0::/\n")
            .file("sys/fs/cgroup/cgroup.controllers", "cpu")
            .file("sys/fs/cgroup/cpu.max", "150000 100000");
        each_says([
            (placed(&[0], &[0]), Limited, "; nothing can"),
            (placed(&[0, 1, 2], &[2]), Limited, "; taskset"),
            (placed(&[0, 1, 2], &[2]), Limited, "of 3 online"),
            (placements(&pair), Well, ""),
            (quota(&group), Limited, "1.50 CPUs in every 100 ms"),
            (quota(&MachineFixture::new()), Well, ""),
        ]);
    }

    #[test]
    fn changing_speeds_are_limits_where_their_driver_listens() {
        let governor = "cpufreq/policy0/scaling_governor";
        let mixed = cpu(governor, "performance")
            .file("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave");
        let state = "sys/devices/system/cpu/cpu0/cpuidle/state1";
        let states = cpu("cpu0/cpuidle/state0/name", "C1")
            .file("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "2")
            .file("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0")
            .file(&format!("{state}/name"), "C6")
            .file(&format!("{state}/latency"), "133")
            .file(&format!("{state}/disable"), "0");
        let deep = idle(&states);
        let shallow = idle(&states.file(&format!("{state}/disable"), "1"));
        each_says([
            (frequency(&mixed, false), Limited, "performance, powersave"),
            (frequency(&cpu(governor, "performance"), false), Well, ""),
            (frequency(&MachineFixture::new(), true), Limited, "; nothing can inside a guest"),
            (boost(&cpu("intel_pstate/no_turbo", "0"), false), Limited, "no_turbo"),
            (boost(&cpu("cpufreq/boost", "1"), false), Limited, "cpufreq/boost"),
            (boost(&cpu("cpufreq/boost", "0"), false), Well, ""),
            (deep, Limited, "down to C6, 133 µs to leave"),
            (shallow, Well, ""),
        ]);
    }

    #[test]
    fn a_slow_clock_source_names_the_faster() {
        let fixture = MachineFixture::with(&format!("{SOURCES}/current_clocksource"), "hpet\n")
            .file(&format!("{SOURCES}/available_clocksource"), "hpet tsc acpi_pm\n");
        each_says([(source(&fixture), Limited, "; echo tsc | sudo tee /sys/")]);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_counter_that_the_kernel_rejected_is_not_trusted() {
        let slow =
            MachineFixture::with(&format!("{SOURCES}/available_clocksource"), "hpet acpi_pm");
        each_says([
            (counter(&slow, true), Limited, ""),
            (counter(&slow, false), Limited, ""),
            (counter(&MachineFixture::new(), true), Well, ""),
        ]);
    }
}
