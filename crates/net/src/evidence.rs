//! What could explain a result, read at every interval, on both sides, while the test runs: processor time by clock and
//! kind, TCP_INFO, what the host is, and the kernel's counters of this network namespace.
//!
//! Process times are the kernel's own of this process; softirq, irq, steal and busy times are the whole host's, from
//! /proc/stat, whose grain is 10 ms: two sides on one host see the same of these. Counters are of
//! /proc/thread-self/net: `snmp`, `snmp6`, `netstat` and `dev`; and `softnet_stat`, which is the host's.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::BorrowedFd;

use plumb_result::net::{HostReading, NetHost};
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::socket::TcpInfo;
use plumb_sys::{probe, process, socket};
use serde::{Deserialize, Serialize};

use crate::measure::clock_offset::ClockIdentity;

/// Reads the processor time so far; what cannot be read is zero.
pub fn read_host() -> HostReading {
    let usage = process::usage().unwrap_or_default();
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let host = parse_proc_stat(&stat, 1_000_000_000 / probe::user_ticks_per_second().max(1));
    HostReading {
        process_ns: read_ns(ClockId::ProcessCpu),
        user_ns: usage.user_ns,
        system_ns: usage.system_ns,
        switches_voluntary: usage.switches_voluntary,
        switches_involuntary: usage.switches_involuntary,
        ..host
    }
}

/// The first line of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal.
fn parse_proc_stat(stat: &str, tick_ns: u64) -> HostReading {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let ns = |at: usize| ticks.get(at).copied().unwrap_or(0).saturating_mul(tick_ns);
    HostReading {
        host_busy_ns: ns(0) + ns(1) + ns(2) + ns(5) + ns(6),
        host_irq_ns: ns(5),
        host_softirq_ns: ns(6),
        host_steal_ns: ns(7),
        ..HostReading::default()
    }
}

/// What a host is, as far as it explains a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// What the document says about it; whose program it is, the caller knows.
    pub host: NetHost,
    /// What tells its clock from another's: the same for two sides on one host.
    pub clock: ClockIdentity,
}

impl HostFacts {
    /// Reads them; what cannot be read is empty.
    pub fn read() -> Self {
        let file = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')));
        let cpus = plumb_sys::sched::allowed_cpus().map_or(0, |cpus| cpus.len());
        let settings = [
            ("tcp.congestion", "/proc/sys/net/ipv4/tcp_congestion_control"),
            ("tcp.rmem", "/proc/sys/net/ipv4/tcp_rmem"),
            ("tcp.wmem", "/proc/sys/net/ipv4/tcp_wmem"),
            ("qdisc", "/proc/sys/net/core/default_qdisc"),
        ];
        let host = NetHost {
            name: file("/proc/sys/kernel/hostname"),
            program: String::new(),
            kernel: file("/proc/sys/kernel/osrelease"),
            processor: model.map_or_else(String::new, |(_, model)| model.trim().to_owned()),
            cpus: u32::try_from(cpus).unwrap_or(0),
            settings: settings.map(|(name, path)| (name.to_owned(), file(path))).into(),
        };
        Self { host, clock: ClockIdentity::here() }
    }
}

/// One reading of a connection; see [`TcpInfo`] for what each field is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSample {
    /// Segments in the congestion window.
    pub cwnd_segments: u32,
    /// Slow start threshold in segments.
    pub ssthresh_segments: u32,
    /// Bytes of the largest segment sent.
    pub mss_bytes: u32,
    /// Bytes of the largest segment received.
    pub mss_received_bytes: u32,
    /// Path MTU.
    pub mtu_bytes: u32,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Its variation.
    pub rttvar_us: u32,
    /// Smallest round trip of the last minutes.
    pub rtt_min_us: u32,
    /// Retransmission timeout.
    pub rto_us: u32,
    /// Segments under way.
    pub unacked_segments: u32,
    /// Segments held to be lost.
    pub lost_segments: u32,
    /// Segments ever sent again.
    pub retransmitted_segments: u32,
    /// Bytes ever sent again.
    pub retransmitted_bytes: u64,
    /// Bytes acknowledged.
    pub acked_bytes: u64,
    /// Bytes received in order.
    pub received_bytes: u64,
    /// Segments sent.
    pub sent_segments: u32,
    /// Segments received.
    pub received_segments: u32,
    /// Bytes in the send buffer that were never sent.
    pub unsent_bytes: u32,
    /// The latest delivery rate in bytes a second.
    pub delivery_rate: u64,
    /// Whether that rate was the application's.
    pub is_delivery_app_limited: bool,
    /// The pacing rate in bytes a second.
    pub pacing_rate: u64,
    /// Time with something to send.
    pub busy_us: u64,
    /// Of it, with the receiver's window full.
    pub receive_window_us: u64,
    /// Of it, with the send buffer full.
    pub send_buffer_us: u64,
    /// Segments that the other side had already.
    pub duplicate_segments: u32,
    /// Times that segments came out of order.
    pub reorderings: u32,
    /// Segments received out of order.
    pub out_of_order_segments: u32,
    /// Segments delivered with a congestion mark.
    pub marked_segments: u32,
    /// The window that the other side offers.
    pub window_bytes: u32,
}

impl TcpSample {
    /// Reads a connection; zeroes where it is gone already.
    pub fn read(fd: BorrowedFd<'_>) -> Self {
        socket::tcp_info(fd).map(|info| Self::of(&info)).unwrap_or_default()
    }

    const fn of(info: &TcpInfo) -> Self {
        Self {
            cwnd_segments: info.snd_cwnd,
            ssthresh_segments: info.snd_ssthresh,
            mss_bytes: info.snd_mss,
            mss_received_bytes: info.rcv_mss,
            mtu_bytes: info.pmtu,
            rtt_us: info.rtt_us,
            rttvar_us: info.rttvar_us,
            rtt_min_us: info.min_rtt_us,
            rto_us: info.rto_us,
            unacked_segments: info.unacked,
            lost_segments: info.lost,
            retransmitted_segments: info.total_retrans,
            retransmitted_bytes: info.bytes_retrans,
            acked_bytes: info.bytes_acked,
            received_bytes: info.bytes_received,
            sent_segments: info.segs_out,
            received_segments: info.segs_in,
            unsent_bytes: info.notsent_bytes,
            delivery_rate: info.delivery_rate,
            is_delivery_app_limited: info.is_rate_app_limited,
            pacing_rate: info.pacing_rate,
            busy_us: info.busy_us,
            receive_window_us: info.rwnd_limited_us,
            send_buffer_us: info.sndbuf_limited_us,
            duplicate_segments: info.dsack_dups,
            reorderings: info.reord_seen,
            out_of_order_segments: info.rcv_ooopack,
            marked_segments: info.delivered_ce,
            window_bytes: info.snd_wnd,
        }
    }
}

/// All counters by name: `Tcp.RetransSegs`, `TcpExt.TCPTimeouts`, `dev.eth0.rx_drop`, `softnet.dropped`.
pub type KernelCounters = BTreeMap<String, u64>;

/// Reads them; files that cannot be read give nothing.
pub fn read_counters() -> KernelCounters {
    let file = |name: &str| {
        fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
    };
    let mut counters = KernelCounters::new();
    pairs_of_lines(&file("snmp"), &mut counters);
    pairs_of_lines(&file("netstat"), &mut counters);
    pairs(&file("snmp6"), &mut counters);
    interfaces(&file("dev"), &mut counters);
    backlogs(&file("softnet_stat"), &mut counters);
    counters
}

/// What grew since an earlier reading, and by how much.
pub fn counter_growth(now: &KernelCounters, before: &KernelCounters) -> KernelCounters {
    now.iter()
        .filter_map(|(name, now)| {
            let grown = now.saturating_sub(before.get(name).copied().unwrap_or(0));
            (grown > 0).then(|| (name.clone(), grown))
        })
        .collect()
}

/// `Tcp: A B` and below it `Tcp: 1 2`.
fn pairs_of_lines(text: &str, counters: &mut KernelCounters) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let (Some((group, names)), Some((same, values))) =
            (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        if group != same {
            continue;
        }
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            // Some are settings, and may be negative: Tcp.MaxConn.
            if let Ok(value) = value.parse() {
                counters.insert(format!("{group}.{name}"), value);
            }
        }
    }
}

/// `Ip6InReceives   12`.
fn pairs(text: &str, counters: &mut KernelCounters) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) {
            counters.insert(format!("v6.{name}"), value);
        }
    }
}

/// Names of the columns of /proc/net/dev that matter here.
const COLUMNS: [(usize, &str); 10] = [
    (0, "rx_bytes"),
    (1, "rx_packets"),
    (2, "rx_errors"),
    (3, "rx_drop"),
    (4, "rx_fifo"),
    (8, "tx_bytes"),
    (9, "tx_packets"),
    (10, "tx_errors"),
    (11, "tx_drop"),
    (12, "tx_fifo"),
];

fn interfaces(text: &str, counters: &mut KernelCounters) {
    for line in text.lines() {
        let Some((name, values)) = line.split_once(':') else { continue };
        let values: Vec<u64> =
            values.split_whitespace().filter_map(|value| value.parse().ok()).collect();
        for (column, what) in COLUMNS {
            if let Some(value) = values.get(column) {
                counters.insert(format!("dev.{}.{what}", name.trim()), *value);
            }
        }
    }
}

/// Hexadecimal columns, a line a processor: packets, dropped, times that it ran out of budget.
fn backlogs(text: &str, counters: &mut KernelCounters) {
    for line in text.lines() {
        let values: Vec<u64> =
            line.split_whitespace().map_while(|word| u64::from_str_radix(word, 16).ok()).collect();
        for (column, what) in [(1, "dropped"), (2, "squeezed")] {
            let value = values.get(column).copied().unwrap_or(0);
            *counters.entry(format!("softnet.{what}")).or_default() += value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_proc_stat_gives_busy_and_softirq_time() {
        let stat = "cpu  100 1 50 9000 7 2 30 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let reading = parse_proc_stat(stat, 10_000_000);
        assert_eq!(reading.host_busy_ns, 183 * 10_000_000);
        assert_eq!(reading.host_softirq_ns, 30 * 10_000_000);
        assert_eq!(reading.host_steal_ns, 4 * 10_000_000);
        assert_eq!(parse_proc_stat("intr 5", 10).host_busy_ns, 0);
    }

    #[test]
    fn time_that_this_process_uses_is_counted() {
        let before = read_host();
        let mut sum = 0_u64;
        while read_ns(ClockId::ProcessCpu) < before.process_ns + 20_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        let used = read_host().since(&before);
        assert!(used.process_ns >= 20_000_000, "{used:?}");
        assert!(used.user_ns + used.system_ns > 0, "{used:?}");
    }

    #[test]
    fn names_and_values_of_every_format_find_each_other() {
        let mut counters = KernelCounters::new();
        pairs_of_lines(
            "Tcp: RetransSegs MaxConn\nTcp: 12 -1\nUdp: InErrors\nUdp: 3\n",
            &mut counters,
        );
        pairs("Ip6InReceives   \t9\n", &mut counters);
        interfaces(" lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nnothing\n", &mut counters);
        backlogs("0000000a 00000002 00000001\n00000001 00000001 00000000\n", &mut counters);
        assert_eq!(counters["Tcp.RetransSegs"], 12);
        assert!(!counters.contains_key("Tcp.MaxConn"));
        assert_eq!(counters["v6.Ip6InReceives"], 9);
        assert_eq!((counters["dev.lo.rx_drop"], counters["dev.lo.tx_drop"]), (4, 12));
        assert_eq!((counters["softnet.dropped"], counters["softnet.squeezed"]), (3, 1));
    }

    #[test]
    fn only_what_grew_is_said() {
        let counters = |a, b| BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        assert_eq!(
            counter_growth(&counters(5, 2), &counters(3, 2)),
            BTreeMap::from([("a".to_owned(), 2)])
        );
        assert!(read_counters().contains_key("Tcp.RetransSegs"));
    }
}
