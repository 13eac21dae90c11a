//! Facts about memory: how much there is, and how the kernel pages it.
//!
//! Left out: this process's own limits (`super::process`).

use super::{Facts, field};

pub(super) fn read(facts: &mut Facts) {
    let text = facts.tree.text("proc/meminfo");
    for (key, name) in [
        ("memory.total", "MemTotal"),
        ("memory.available", "MemAvailable"),
        ("memory.swap.total", "SwapTotal"),
        ("memory.swap.free", "SwapFree"),
        ("memory.hugepages.total", "HugePages_Total"),
        ("memory.hugepages.size", "Hugepagesize"),
    ] {
        let value = match &text {
            Ok(text) => field(text, name).unwrap_or("absent").to_owned(),
            Err(missing) => missing.to_string(),
        };
        facts.put(key, value);
    }
    let thp = "sys/kernel/mm/transparent_hugepage";
    facts.choice("memory.thp", &format!("{thp}/enabled"));
    facts.choice("memory.thp.defrag", &format!("{thp}/defrag"));
    facts.choice("memory.thp.shmem", &format!("{thp}/shmem_enabled"));
    facts.file("memory.ksm", "sys/kernel/mm/ksm/run");
    facts.sysctls(&[
        "vm.compaction_proactiveness",
        "vm.nr_hugepages",
        "vm.overcommit_memory",
        "vm.stat_interval",
        "vm.swappiness",
        "vm.zone_reclaim_mode",
    ]);
}
