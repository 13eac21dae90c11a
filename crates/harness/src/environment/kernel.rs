//! Facts about the kernel: version, ticks, preemption, mitigations, clocks, limits on tracing, memory, and its network
//! stack, of whose devices only the loopback is recorded.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use plumb_sys::interface::{self, EthtoolOffload};

use super::EnvironmentFacts;

/// Settings of the kernel that change what a call, a switch or a wake-up costs, or who may see it.
const SYSCTLS: &str = "kernel.io_uring_disabled kernel.msgmax kernel.msgmnb kernel.msgmni kernel.nmi_watchdog \
    kernel.numa_balancing kernel.perf_event_paranoid kernel.pid_max kernel.randomize_va_space \
    kernel.sched_autogroup_enabled kernel.sched_rt_runtime_us kernel.sched_schedstats \
    kernel.soft_watchdog kernel.split_lock_mitigate kernel.tainted kernel.task_delayacct \
    kernel.timer_migration kernel.unprivileged_bpf_disabled kernel.yama.ptrace_scope \
    fs.mqueue.msg_max fs.mqueue.msgsize_max fs.mqueue.queues_max fs.pipe-max-size \
    fs.pipe-user-pages-soft fs.nr_open user.max_user_namespaces";

/// Parameters of the kernel command line whose values are recorded, by the start of their names;
/// of all others only the name is, since values can hold addresses, hosts and disk identities.
const PARAMETERS: &str = "amd_iommu amd_pstate apparmor audit cgroup clocksource clearcpuid cpufreq cpuidle \
    default_hugepagesz gather_data_sampling haltpoll hpet hugepages idle init_on_alloc \
    init_on_free intel_idle intel_iommu intel_pstate iommu irqaffinity isolcpus kpti \
    kthread_cpus kvm l1tf lockdown lsm maxcpus mce mds mitigations mmio_stale_data nested \
    nmi_watchdog no_timer_check nohz nohz_full nosmt nosoftlockup nospectre nowatchdog nox2apic \
    nr_cpus numa page_poison page_reporting pci pcie_aspm preempt processor psi pti random.trust \
    randomize_kstack_offset rcu rcutree reg_file_data_sampling retbleed sched security selinux \
    skew_tick slab slub spec spectre split_lock_detect srbds swiotlb threadirqs \
    transparent_hugepage tsa tsc tsx vsyscall workqueue x2apic";

pub(super) fn read(facts: &mut EnvironmentFacts) {
    facts.files(&[
        ("kernel.name", "proc/sys/kernel/ostype"),
        ("kernel.release", "proc/sys/kernel/osrelease"),
        ("kernel.version", "proc/sys/kernel/version"),
        ("kernel.lsm", "sys/kernel/security/lsm"),
        ("kernel.clocksource", "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        (
            "kernel.clocksource.available",
            "sys/devices/system/clocksource/clocksource0/available_clocksource",
        ),
        ("kernel.rcu_expedited", "sys/kernel/rcu_expedited"),
    ]);
    facts.choice("kernel.lockdown", "sys/kernel/security/lockdown");
    facts.sysctls(SYSCTLS);
    // A directory: only whether it holds patches matters.
    let patches = facts.tree.names("sys/kernel/livepatch").len();
    facts.put("kernel.livepatch", patches.to_string());
    preemption(facts);
    cpu_accounting(facts);
    mitigations(facts);
    distribution(facts);
    let line = facts.tree.text("proc/cmdline");
    let line = line.map_or_else(|missing| missing.to_string(), |text| redact(&text));
    facts.put("kernel.command_line", line);
    let uptime = facts.tree.line_or_reason("proc/uptime");
    facts.put("kernel.uptime_s", uptime.split([' ', '.']).next().unwrap_or_default());
}

/// Facts that only calls can tell.
pub(super) fn probe(facts: &mut EnvironmentFacts) {
    // CLOCK_MONOTONIC_COARSE moves once a tick, so its resolution is one over HZ.
    let hz = (1e9 / plumb_sys::probe::tick_ns().max(1) as f64).round();
    facts.put("kernel.hz", hz.to_string());
    facts.put("kernel.user_hz", plumb_sys::probe::user_ticks_per_second().to_string());
    match plumb_sys::probe::clock_discipline() {
        Ok(clock) => {
            // adjtimex(2): TIME_OK … TIME_WAIT are 0–4, TIME_ERROR is 5.
            let word = if clock.state < 5 { "synchronised" } else { "not synchronised" };
            facts.put("kernel.clock.discipline", word);
            let ppm = clock.frequency as f64 / 65_536.0;
            facts.put("kernel.clock.correction_ppm", format!("{ppm:.3}"));
        }
        Err(error) => facts.put("kernel.clock.discipline", format!("unreadable: {error}")),
    }
    probe_network(facts);
}

/// How much memory there is, and how the kernel pages it.
pub(super) fn memory(facts: &mut EnvironmentFacts) {
    let text = facts.tree.text("proc/meminfo");
    facts.fields(
        &text,
        &[
            ("memory.total", "MemTotal"),
            ("memory.available", "MemAvailable"),
            ("memory.swap.total", "SwapTotal"),
            ("memory.swap.free", "SwapFree"),
            ("memory.hugepages.total", "HugePages_Total"),
            ("memory.hugepages.size", "Hugepagesize"),
        ],
    );
    let thp = "sys/kernel/mm/transparent_hugepage";
    facts.choice("memory.thp", &format!("{thp}/enabled"));
    facts.choice("memory.thp.defrag", &format!("{thp}/defrag"));
    facts.choice("memory.thp.shmem", &format!("{thp}/shmem_enabled"));
    facts.file("memory.ksm", "sys/kernel/mm/ksm/run");
    facts.sysctls(
        "vm.compaction_proactiveness vm.nr_hugepages vm.overcommit_memory vm.stat_interval \
         vm.swappiness vm.zone_reclaim_mode",
    );
}

/// The preemption model: what was chosen at run time where that can be read, else what was built.
fn preemption(facts: &mut EnvironmentFacts) {
    let chosen = facts.tree.text("sys/kernel/debug/sched/preempt").ok();
    let chosen = chosen.as_deref().and_then(|text| {
        let (_, rest) = text.split_once('(')?;
        rest.split_once(')').map(|(word, _)| word)
    });
    let version = facts.tree.text("proc/sys/kernel/version").unwrap_or_default();
    let built = ["PREEMPT_DYNAMIC", "PREEMPT_RT", "PREEMPT_LAZY", "PREEMPT"]
        .into_iter()
        .find(|word| version.split_whitespace().any(|part| part == *word))
        .unwrap_or(if version.is_empty() { "unknown" } else { "none or voluntary" });
    let text = chosen.map_or_else(|| built.to_owned(), |chosen| format!("{built}, {chosen}"));
    facts.put("kernel.preemption", text);
}

/// Options that decide whether CPU time is sampled at the tick, and what of it interrupts get.
const CPU_ACCOUNTING: [&str; 4] = [
    "TICK_CPU_ACCOUNTING",
    "VIRT_CPU_ACCOUNTING_NATIVE",
    "VIRT_CPU_ACCOUNTING_GEN",
    "IRQ_TIME_ACCOUNTING",
];

/// Which of [`CPU_ACCOUNTING`] the kernel was built with, where its configuration is kept.
fn cpu_accounting(facts: &mut EnvironmentFacts) {
    let release = facts.tree.text("proc/sys/kernel/osrelease").unwrap_or_default();
    let beside = || facts.tree.text(&format!("boot/config-{release}")).ok();
    let text = match facts.tree.compressed_text("proc/config.gz").ok().or_else(beside) {
        Some(text) => {
            let is_set = |name: &&str| text.lines().any(|line| line == format!("CONFIG_{name}=y"));
            CPU_ACCOUNTING.into_iter().filter(is_set).collect::<Vec<_>>().join(" ")
        }
        None => "unknown: no /proc/config.gz and no /boot/config of this kernel".to_owned(),
    };
    facts.put("kernel.cpu_accounting", text);
}

fn mitigations(facts: &mut EnvironmentFacts) {
    let base = "sys/devices/system/cpu/vulnerabilities";
    let names = facts.tree.names(base);
    if names.is_empty() {
        facts.put("mitigation", "absent");
    }
    for name in names {
        facts.file(&format!("mitigation.{name}"), &format!("{base}/{name}"));
    }
}

/// The distribution by its own short name and version (os-release(5)).
fn distribution(facts: &mut EnvironmentFacts) {
    let text = facts.tree.text("etc/os-release").or_else(|_| facts.tree.text("usr/lib/os-release"));
    let name = text.map_or_else(
        |missing| missing.to_string(),
        |text| {
            let value = |key: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                    .map(|value| value.trim_matches('"').to_owned())
            };
            let id = value("ID").unwrap_or_else(|| "unnamed".to_owned());
            format!("{id} {}", value("VERSION_ID").unwrap_or_default()).trim().to_owned()
        },
    );
    facts.put("os.distribution", name);
}

/// The command line with only the values that matter here; what follows `--` is for init.
fn redact(line: &str) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut quoted = false;
    for word in line.split_whitespace() {
        let inside = quoted;
        quoted ^= word.matches('"').count() % 2 == 1;
        if inside {
            // The rest of a quoted value, withheld with its beginning.
            continue;
        }
        if word == "--" {
            kept.push("-- …".to_owned());
            break;
        }
        match word.split_once('=') {
            Some((name, _)) if quoted || !is_recordable(name) => kept.push(format!("{name}=…")),
            _ => kept.push(word.to_owned()),
        }
    }
    kept.join(" ")
}

fn is_recordable(name: &str) -> bool {
    PARAMETERS.split(' ').any(|known| {
        name.strip_prefix(known)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_lowercase()))
    })
}

/// The loopback device: the only one whose settings are recorded.
const LOOPBACK: &str = "lo";

const NETWORK_SYSCTLS: &str = "net.core.busy_poll net.core.busy_read net.core.default_qdisc net.core.dev_weight \
    net.core.gro_normal_batch net.core.high_order_alloc_disable net.core.max_skb_frags \
    net.core.netdev_budget net.core.netdev_budget_usecs net.core.netdev_max_backlog \
    net.core.netdev_tstamp_prequeue net.core.optmem_max net.core.rmem_default net.core.rmem_max \
    net.core.rps_sock_flow_entries net.core.skb_defer_max net.core.somaxconn \
    net.core.wmem_default net.core.wmem_max net.ipv4.ip_early_demux net.ipv4.ip_local_port_range \
    net.ipv4.ipfrag_high_thresh net.ipv4.ipfrag_time net.ipv4.tcp_allowed_congestion_control \
    net.ipv4.tcp_autocorking net.ipv4.tcp_available_congestion_control \
    net.ipv4.tcp_backlog_ack_defer net.ipv4.tcp_comp_sack_delay_ns \
    net.ipv4.tcp_congestion_control net.ipv4.tcp_early_demux net.ipv4.tcp_ecn \
    net.ipv4.tcp_fastopen net.ipv4.tcp_limit_output_bytes net.ipv4.tcp_mem \
    net.ipv4.tcp_min_tso_segs net.ipv4.tcp_moderate_rcvbuf net.ipv4.tcp_mtu_probing \
    net.ipv4.tcp_no_metrics_save net.ipv4.tcp_notsent_lowat net.ipv4.tcp_pacing_ca_ratio \
    net.ipv4.tcp_pacing_ss_ratio net.ipv4.tcp_rmem net.ipv4.tcp_rto_min_us net.ipv4.tcp_sack \
    net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_timestamps net.ipv4.tcp_tso_win_divisor \
    net.ipv4.tcp_window_scaling net.ipv4.tcp_wmem net.ipv4.udp_early_demux net.ipv4.udp_mem \
    net.ipv4.udp_rmem_min net.ipv4.udp_wmem_min net.unix.max_dgram_qlen";

pub(super) fn network(facts: &mut EnvironmentFacts) {
    facts.sysctls(NETWORK_SYSCTLS);
    facts.files(&[
        ("net.lo.mtu", "sys/class/net/lo/mtu"),
        ("net.lo.tx_queue_len", "sys/class/net/lo/tx_queue_len"),
        ("net.lo.threaded", "sys/class/net/lo/threaded"),
        ("net.lo.gro_flush_timeout", "sys/class/net/lo/gro_flush_timeout"),
        ("net.lo.rps_cpus", "sys/class/net/lo/queues/rx-0/rps_cpus"),
        ("net.lo.ipv6_disabled", "proc/sys/net/ipv6/conf/lo/disable_ipv6"),
        ("net.conntrack.max", "proc/sys/net/netfilter/nf_conntrack_max"),
    ]);
    let loopback = facts.tree.text("proc/net/if_inet6").is_ok_and(|text| has_loopback6(&text));
    facts.put("net.ipv6.loopback", if loopback { "present" } else { "absent" });
}

/// Facts that only calls can tell: the offloads of the loopback.
fn probe_network(facts: &mut EnvironmentFacts) {
    // Any socket will do to ask; binding gives one without unsafe code.
    let socket = UdpSocket::bind(("127.0.0.1", 0));
    for (name, which) in [
        ("rx_checksum", EthtoolOffload::RxChecksum),
        ("tx_checksum", EthtoolOffload::TxChecksum),
        ("scatter_gather", EthtoolOffload::ScatterGather),
        ("tso", EthtoolOffload::Tso),
        ("gso", EthtoolOffload::Gso),
        ("gro", EthtoolOffload::Gro),
    ] {
        let answer = match &socket {
            Ok(socket) => interface::offload(socket.as_fd(), LOOPBACK, which)
                .map(|on| if on { "on" } else { "off" }),
            Err(error) => Err(error.kind().into()),
        };
        facts.put_answer(&format!("net.lo.{name}"), answer);
    }
}

/// Whether ::1 is in a /proc/net/if_inet6.
pub(crate) fn has_loopback6(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("00000000000000000000000000000001 "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_could_identify_a_machine_are_withheld() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1234-abcd ip=10.1.2.3::10.1.2.1 mitigations=auto \
                    isolcpus=2-3 nohz_full=2-3 psi=1 systemd.hostname=secret quiet \
                    dyndbg=\"file host secret +p\" spec_store_bypass_disable=on -- --addr 10.9.9.9";
        let kept = redact(line);
        for secret in ["10.", "secret", "1234", "vmlinuz"] {
            assert!(!kept.contains(secret), "{kept}");
        }
        for wanted in ["mitigations=auto", "isolcpus=2-3", "root=…", "quiet", "nohz_full=2-3"] {
            assert!(kept.split(' ').any(|word| word == wanted), "{wanted}: {kept}");
        }
        assert!(kept.contains("spec_store_bypass_disable=on"), "{kept}");
        assert!(kept.ends_with("-- …"), "{kept}");
    }
}
