//! Facts about the processor: which one, how fast it may run, how it idles, what hides it.

use std::collections::BTreeSet;

use plumb_base::cpu_list;

use super::{EnvironmentFacts, field};
use crate::environment::KernelFiles;

const CPU: &str = "sys/devices/system/cpu";

/// Flags of /proc/cpuinfo that decide how time can be read and how a processor may wait.
const FLAGS_OF_INTEREST: &str = "constant_tsc nonstop_tsc tsc_known_freq tsc_reliable tsc_adjust tsc_scale rdtscp rdpid \
    hypervisor aperfmperf arch_perfmon perfctr_core monitor mwaitx waitpkg ida cpb erms fsrm pti \
    ibrs ibrs_enhanced pcid invpcid avx2 avx512f sysret_ss_attrs";

pub(super) fn read(facts: &mut EnvironmentFacts) {
    facts.put("cpu.arch", std::env::consts::ARCH);
    identity(facts);
    facts.files(&[
        ("cpu.online", "sys/devices/system/cpu/online"),
        ("cpu.possible", "sys/devices/system/cpu/possible"),
        ("cpu.isolated", "sys/devices/system/cpu/isolated"),
        ("cpu.nohz_full", "sys/devices/system/cpu/nohz_full"),
        ("cpu.smt.active", "sys/devices/system/cpu/smt/active"),
        ("cpu.smt.control", "sys/devices/system/cpu/smt/control"),
        ("machine.vendor", "sys/class/dmi/id/sys_vendor"),
        ("machine.product", "sys/class/dmi/id/product_name"),
        ("machine.bios_date", "sys/class/dmi/id/bios_date"),
        ("machine.devicetree", "proc/device-tree/model"),
        ("machine.hypervisor_type", "sys/hypervisor/type"),
        ("numa.nodes", "sys/devices/system/node/online"),
        ("numa.cpus", "sys/devices/system/node/has_cpu"),
    ]);
    caches(facts);
    frequency(facts);
    idle(facts);
}

/// The hypervisor by the name that it gives itself, `none`, or the best sign of one there is.
///
/// On x86-64 the processor tells; elsewhere the firmware may.
pub(crate) fn hypervisor(tree: &KernelFiles) -> String {
    let signature = plumb_sys::probe::hypervisor_signature();
    match signature.as_ref().map(<[u8; 12]>::as_slice) {
        None if cfg!(target_arch = "x86_64") => "none".to_owned(),
        None => firmware_hypervisor(tree).unwrap_or_else(|| "none".to_owned()),
        Some(b"KVMKVMKVM\0\0\0" | b"Linux KVM Hv") => "KVM".to_owned(),
        Some(b"Microsoft Hv") => "Hyper-V".to_owned(),
        Some(b"VMwareVMware") => "VMware".to_owned(),
        Some(b"XenVMMXenVMM") => "Xen".to_owned(),
        Some(b"TCGTCGTCGTCG") => "QEMU without hardware help".to_owned(),
        Some(b"VBoxVBoxVBox") => "VirtualBox".to_owned(),
        Some(b"bhyve bhyve ") => "bhyve".to_owned(),
        Some(other) => {
            let shown: String = other
                .iter()
                .filter(|byte| byte.is_ascii_graphic() || **byte == b' ')
                .map(|byte| char::from(*byte))
                .collect();
            let shown = shown.trim();
            if shown.is_empty() { "present, unnamed".to_owned() } else { shown.to_owned() }
        }
    }
}

/// A hypervisor by what the firmware says: for processors that cannot tell.
fn firmware_hypervisor(tree: &KernelFiles) -> Option<String> {
    if let Ok(kind) = tree.text("sys/hypervisor/type") {
        return Some(kind);
    }
    let compatible = tree.text("proc/device-tree/compatible").unwrap_or_default();
    if compatible.contains("dummy-virt") || tree.exists("proc/device-tree/hypervisor") {
        return Some("present, by its device tree".to_owned());
    }
    let dmi = |name: &str| tree.text(&format!("sys/class/dmi/id/{name}")).unwrap_or_default();
    let (vendor, product) = (dmi("sys_vendor"), dmi("product_name"));
    // A cloud's bare-metal machines say so in their product names.
    let cloud = ["Amazon EC2", "Google", "Alibaba Cloud"].contains(&vendor.as_str())
        && !product.contains("metal");
    let named = ["KVM", "QEMU", "VMware", "VirtualBox", "Virtual Machine", "Firecracker", "Xen"]
        .into_iter()
        .find(|name| product.contains(name) || vendor.contains(name));
    match named {
        Some(name) => Some(format!("{name}, by its firmware")),
        None if cloud => Some(format!("{vendor}, by its firmware")),
        None => None,
    }
}

/// The settings of a cpufreq file over all CPUs that have one, each once; empty without cpufreq.
pub(crate) fn frequency_settings(tree: &KernelFiles, name: &str) -> BTreeSet<String> {
    let policies = tree.names(&format!("{CPU}/cpufreq"));
    policies
        .iter()
        .filter(|policy| policy.starts_with("policy"))
        .filter_map(|policy| tree.text(&format!("{CPU}/cpufreq/{policy}/{name}")).ok())
        .collect()
}

/// Whether the processor may run above its nominal frequency, where the kernel tells.
pub(crate) fn turbo(tree: &KernelFiles) -> Option<bool> {
    let flag = |path: &str| tree.number::<u8>(&format!("{CPU}/{path}"));
    flag("intel_pstate/no_turbo")
        .map(|off| off == 0)
        .or_else(|| flag("cpufreq/boost").map(|on| on != 0))
}

fn identity(facts: &mut EnvironmentFacts) {
    let text = match facts.tree.text("proc/cpuinfo") {
        Ok(text) => text,
        Err(missing) => {
            facts.put("cpu.model", missing.to_string());
            return;
        }
    };
    // x86 first, then what Arm and others call the same.
    let rows: &[(&str, &[&str])] = &[
        ("cpu.model", &["model name", "Model", "cpu model", "cpu", "uarch"]),
        ("cpu.vendor", &["vendor_id", "CPU implementer"]),
        ("cpu.family", &["cpu family", "CPU architecture"]),
        ("cpu.model_number", &["model", "CPU part"]),
        ("cpu.stepping", &["stepping", "CPU revision"]),
        ("cpu.microcode", &["microcode", "CPU variant"]),
        ("cpu.bugs", &["bugs"]),
        ("cpu.bogomips", &["bogomips", "BogoMIPS"]),
        ("cpu.siblings", &["siblings"]),
        ("cpu.cores", &["cpu cores"]),
    ];
    for (key, names) in rows {
        let value = names.iter().find_map(|name| field(&text, name));
        facts.put(key, value.unwrap_or("absent"));
    }
    let flags = field(&text, "flags").or_else(|| field(&text, "Features")).unwrap_or_default();
    let wanted = |flag: &&str| FLAGS_OF_INTEREST.split(' ').any(|known| known == *flag);
    let present: Vec<_> = if flags.split_whitespace().any(|flag| flag == "fpu") {
        flags.split_whitespace().filter(wanted).collect()
    } else {
        // Arm's features are few: keep all of them.
        flags.split_whitespace().collect()
    };
    facts.put("cpu.flags", present.join(" "));
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    facts.put("cpu.count", count.to_string());
    facts.put("cpu.mhz", megahertz(&text).unwrap_or_else(|| "absent".to_owned()));
}

/// The frequencies of all CPUs at this moment: one figure, or the range.
fn megahertz(cpuinfo: &str) -> Option<String> {
    let each = cpuinfo.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "cpu MHz").then(|| value.trim().parse::<f64>().ok()).flatten()
    });
    let (low, high) =
        each.filter(|mhz| mhz.is_finite()).fold(None, |range: Option<(f64, f64)>, mhz| {
            range.map_or(Some((mhz, mhz)), |(low, high)| Some((low.min(mhz), high.max(mhz))))
        })?;
    Some(if high - low < 1.0 { format!("{low:.0}") } else { format!("{low:.0}–{high:.0}") })
}

fn caches(facts: &mut EnvironmentFacts) {
    let first = facts.tree.text(&format!("{CPU}/online")).map(|text| cpu_list::parse(&text));
    let cpu = first.ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
    let base = format!("{CPU}/cpu{cpu}/cache");
    let mut listed = false;
    for index in facts.tree.names(&base).iter().filter(|name| name.starts_with("index")) {
        let read = |name: &str| facts.tree.text(&format!("{base}/{index}/{name}"));
        let (Ok(level), Ok(kind), Ok(size)) = (read("level"), read("type"), read("size")) else {
            continue;
        };
        let shared = read("shared_cpu_list").unwrap_or_else(|missing| missing.to_string());
        let letter = match kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        facts.put(&format!("cpu.cache.l{level}{letter}"), format!("{size}, CPUs {shared}"));
        listed = true;
    }
    if !listed {
        facts.put("cpu.cache", "absent");
    }
}

fn frequency(facts: &mut EnvironmentFacts) {
    for (key, name) in [
        ("cpu.frequency.driver", "scaling_driver"),
        ("cpu.frequency.governor", "scaling_governor"),
        ("cpu.frequency.khz_min", "scaling_min_freq"),
        ("cpu.frequency.khz_max", "scaling_max_freq"),
        ("cpu.frequency.preference", "energy_performance_preference"),
    ] {
        let found = frequency_settings(&facts.tree, name).into_iter().collect::<Vec<_>>();
        let absent = if facts.tree.names(&format!("{CPU}/cpufreq")).is_empty() {
            "absent: no cpufreq"
        } else {
            "absent"
        };
        facts.put(key, if found.is_empty() { absent.to_owned() } else { found.join(", ") });
    }
    let turbo = match turbo(&facts.tree) {
        Some(true) => "on",
        Some(false) => "off",
        None => "absent",
    };
    facts.put("cpu.frequency.turbo", turbo);
}

fn idle(facts: &mut EnvironmentFacts) {
    facts.files(&[
        ("cpu.idle.driver", "sys/devices/system/cpu/cpuidle/current_driver"),
        ("cpu.idle.governor", "sys/devices/system/cpu/cpuidle/current_governor_ro"),
    ]);
    let base = format!("{CPU}/cpu0/cpuidle");
    let states: Vec<String> = facts
        .tree
        .names(&base)
        .iter()
        .filter_map(|state| {
            let read = |name: &str| facts.tree.text(&format!("{base}/{state}/{name}")).ok();
            let off = read("disable").is_some_and(|text| text != "0");
            let latency = read("latency").map_or(String::new(), |us| format!(" {us} us"));
            Some(format!("{}{latency}{}", read("name")?, if off { " (off)" } else { "" }))
        })
        .collect();
    let states = if states.is_empty() { "absent".to_owned() } else { states.join(", ") };
    facts.put("cpu.idle.states", states);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::MachineFixture;

    #[test]
    fn firmware_betrays_a_hypervisor() {
        let dmi = |vendor: &str, product: &str| {
            let fixture = MachineFixture::with("sys/class/dmi/id/sys_vendor", vendor)
                .file("sys/class/dmi/id/product_name", product);
            firmware_hypervisor(&fixture)
        };
        assert_eq!(dmi("QEMU", "KVM Virtual Machine").as_deref(), Some("KVM, by its firmware"));
        assert_eq!(dmi("Amazon EC2", "m7g.large").as_deref(), Some("Amazon EC2, by its firmware"));
        assert_eq!(dmi("Amazon EC2", "m7g.metal"), None);
        assert_eq!(dmi("LENOVO", "20XW"), None);
        let board = MachineFixture::with("proc/device-tree/compatible", "linux,dummy-virt\0");
        assert!(firmware_hypervisor(&board).is_some());
    }
}
