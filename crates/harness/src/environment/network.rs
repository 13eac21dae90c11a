//! Facts about the network stack: what TCP, UDP and Unix sockets over this host are governed by.
//!
//! Left out: addresses and devices other than the loopback.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use plumb_sys::interface::EthtoolOffload;

use super::EnvironmentFacts;

/// The loopback device: the only one whose settings are recorded.
const LOOPBACK: &str = "lo";

const SYSCTLS: &[&str] = &[
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.gro_normal_batch",
    "net.core.high_order_alloc_disable",
    "net.core.max_skb_frags",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.netdev_tstamp_prequeue",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.skb_defer_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_early_demux",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ipfrag_high_thresh",
    "net.ipv4.ipfrag_time",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_backlog_ack_defer",
    "net.ipv4.tcp_comp_sack_delay_ns",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_early_demux",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_rto_min_us",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_early_demux",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.udp_wmem_min",
    "net.unix.max_dgram_qlen",
];

pub(super) fn read(facts: &mut EnvironmentFacts) {
    facts.sysctls(SYSCTLS);
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
pub(super) fn probe(facts: &mut EnvironmentFacts) {
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
            Ok(socket) => plumb_sys::interface::offload(socket.as_fd(), LOOPBACK, which)
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
