//! Whether the processor holds still: placements, frequency, idling, hypervisor, quota.
//!
//! Left out: what else runs on it (`super::noise`).

use plumb_base::cpu_list;

use super::{Check, Question};
use crate::environment::cgroup::control_group;
use crate::environment::processor::{frequency_settings, hypervisor, turbo};
use crate::environment::tree::Tree;
use crate::topology::{Placement, Topology};

/// Leaving a deeper idle state than this shows in the latency of a blocked receiver.
const IDLE_EXIT_US: u64 = 20;

pub(super) fn examine(tree: &Tree, topology: &Topology) -> Vec<Check> {
    let hypervisor = hypervisor(tree);
    let guest = hypervisor != "none";
    vec![
        placements(topology),
        smt(tree),
        virtualisation(&hypervisor, guest),
        frequency(tree, guest),
        boost(tree, guest),
        idle(tree),
        quota(tree),
    ]
}

fn placements(topology: &Topology) -> Check {
    let question = Question { id: "cpu.placements", what: "CPUs and placements" };
    let names: Vec<_> = topology.placements().into_iter().map(Placement::name).collect();
    let allowed = topology.allowed();
    let of = if allowed.len() < topology.online().len() {
        format!(" of {} online", topology.online().len())
    } else {
        String::new()
    };
    let finding = format!("CPUs {}{of}: {}", cpu_list::format(&allowed), names.join(", "));
    let Err(unavailable) = topology.pair(Placement::OtherCpu) else {
        return Check::ok(question, finding);
    };
    let fix = if topology.online().len() > 1 {
        "taskset -a -c -p 0-1023 $$   (or start the container with more CPUs)"
    } else {
        "nothing can, short of a machine with two CPUs"
    };
    Check::limited(
        question,
        finding,
        format!("two processes can only take turns: {}", unavailable.reason),
        fix,
    )
}

fn smt(tree: &Tree) -> Check {
    let question = Question { id: "cpu.smt", what: "simultaneous multithreading" };
    match tree.text("sys/devices/system/cpu/smt/active").as_deref() {
        Ok("1") => Check::ok(question, "on: measured as a placement of its own, avoided otherwise"),
        Ok("0") => Check::ok(question, "off, or not visible to this machine"),
        _ => Check::ok(question, "the kernel does not tell; topology decides"),
    }
}

fn virtualisation(name: &str, guest: bool) -> Check {
    let question = Question { id: "cpu.hypervisor", what: "virtual machine" };
    if !guest {
        return Check::ok(question, name.to_owned());
    }
    Check::limited(
        question,
        name.to_owned(),
        "waking an idle CPU leaves the machine and costs microseconds; other guests steal time; the \
         topology shown may not be real",
        "nothing can inside a guest: measure on the host as well, and compare placements",
    )
}

fn frequency(tree: &Tree, guest: bool) -> Check {
    let question = Question { id: "cpu.frequency", what: "frequency governor" };
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
        return Check::limited(question, finding, why, fix);
    }
    let shown = governors.iter().cloned().collect::<Vec<_>>().join(", ");
    if shown == "performance" {
        return Check::ok(question, shown);
    }
    let fix =
        "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor";
    Check::limited(question, shown, why, fix)
}

fn boost(tree: &Tree, guest: bool) -> Check {
    let question = Question { id: "cpu.turbo", what: "turbo frequencies" };
    let why = "one busy core runs faster than two, so the same work differs between placements";
    match turbo(tree) {
        Some(false) => Check::ok(question, "off"),
        Some(true) if tree.exists("sys/devices/system/cpu/intel_pstate/no_turbo") => {
            Check::limited(
                question,
                "on",
                why,
                "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo",
            )
        }
        Some(true) => Check::limited(
            question,
            "on",
            why,
            "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost",
        ),
        None if guest => Check::limited(question, "not visible", why, "nothing can inside a guest"),
        None => Check::limited(
            question,
            "not visible",
            why,
            "switch it off in the firmware, where there is one",
        ),
    }
}

fn idle(tree: &Tree) -> Check {
    let question = Question { id: "cpu.idle", what: "idle states" };
    let base = "sys/devices/system/cpu/cpu0/cpuidle";
    let states = tree.names(base).into_iter().filter_map(|state| {
        let enabled = tree.text(&format!("{base}/{state}/disable")).is_ok_and(|text| text == "0");
        let latency: u64 = tree.number(&format!("{base}/{state}/latency"))?;
        enabled.then_some((latency, tree.text(&format!("{base}/{state}/name")).ok()?))
    });
    match states.max() {
        Some((latency, name)) if latency >= IDLE_EXIT_US => Check::limited(
            question,
            format!("down to {name}, {latency} µs to leave"),
            "a receiver that blocks pays for waking its CPU: spin and block differ by more than a \
             context switch",
            format!("sudo cpupower idle-set -D {}", IDLE_EXIT_US - 1),
        ),
        Some((latency, name)) => {
            Check::ok(question, format!("down to {name}, {latency} µs to leave"))
        }
        None => Check::ok(question, "none listed"),
    }
}

fn quota(tree: &Tree) -> Check {
    let question = Question { id: "cpu.quota", what: "CPU quota of the control group" };
    let group = control_group(tree);
    let Some(cpus) = group.cpu_quota else { return Check::ok(question, "none") };
    let period = group.cpu_period_us.unwrap_or(100_000) / 1000;
    let throttled = group.throttled.map_or(String::new(), |n| format!(", throttled {n} times"));
    Check::limited(
        question,
        format!("{cpus:.2} CPUs in every {period} ms{throttled}"),
        "with the quota spent, everything stops until the next period: tails of that length appear",
        "start the container without --cpus or a CPU limit",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;
    use crate::environment::fixture::Fixture;

    #[test]
    fn one_cpu_is_a_limit_and_a_cpuset_names_its_remedy() {
        let single = Topology::read(&Fixture::new().online(&[0]).tree(), &[0]);
        let check = placements(&single);
        assert_eq!(check.status, Status::Limited);
        assert!(check.fix.starts_with("nothing can"));
        let penned = Topology::read(&Fixture::new().online(&[0, 1, 2]).tree(), &[2]);
        let check = placements(&penned);
        assert!(check.fix.starts_with("taskset"), "{}", check.fix);
        assert!(check.finding.contains("of 3 online"), "{}", check.finding);
        let pair = Topology::read(&Fixture::virtual_machine().tree(), &[0, 1]);
        assert_eq!(placements(&pair).status, Status::Ok);
    }

    #[test]
    fn every_governor_but_performance_is_a_limit() {
        let policy = |n: u32| format!("sys/devices/system/cpu/cpufreq/policy{n}/scaling_governor");
        let mixed = Fixture::new().file(&policy(0), "performance").file(&policy(1), "powersave");
        let check = frequency(&mixed.tree(), false);
        assert_eq!(check.finding, "performance, powersave");
        assert_eq!(check.status, Status::Limited);
        let fixed = Fixture::new().file(&policy(0), "performance");
        assert_eq!(frequency(&fixed.tree(), false).status, Status::Ok);
        assert_eq!(frequency(&Fixture::new().tree(), true).fix, "nothing can inside a guest");
    }

    #[test]
    fn turbo_is_switched_off_where_its_driver_listens() {
        let intel = Fixture::new().file("sys/devices/system/cpu/intel_pstate/no_turbo", "0");
        assert!(boost(&intel.tree(), false).fix.contains("no_turbo"));
        let amd = Fixture::new().file("sys/devices/system/cpu/cpufreq/boost", "1");
        assert!(boost(&amd.tree(), false).fix.contains("cpufreq/boost"));
        let off = Fixture::new().file("sys/devices/system/cpu/cpufreq/boost", "0");
        assert_eq!(boost(&off.tree(), false).status, Status::Ok);
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
        let mut fixture = Fixture::new();
        for (path, text) in state(0, "C1", "2", "0").into_iter().chain(state(1, "C6", "133", "0")) {
            fixture = fixture.file(&path, &text);
        }
        let check = idle(&fixture.tree());
        assert_eq!(
            (check.status, check.finding.as_str()),
            (Status::Limited, "down to C6, 133 µs to leave")
        );
        let fixture = fixture.file("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1");
        assert_eq!(idle(&fixture.tree()).status, Status::Ok);
    }

    #[test]
    fn a_quota_is_a_limit() {
        let fixture = Fixture::new()
            .file("proc/self/cgroup", "0::/\n")
            .file("sys/fs/cgroup/cgroup.controllers", "cpu")
            .file("sys/fs/cgroup/cpu.max", "150000 100000");
        let check = quota(&fixture.tree());
        assert_eq!(check.finding, "1.50 CPUs in every 100 ms");
        assert_eq!(quota(&Fixture::new().tree()).status, Status::Ok);
    }
}
