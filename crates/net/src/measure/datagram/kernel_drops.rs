//! What this host's kernel says that it dropped: read before and after a test, of the calling thread's network
//! namespace.
//!
//! The counts are of everybody's datagrams, not of one test's: they bound what happened here, and say where to
//! look. Left out: the queueing disciplines of devices (`super::qdisc`), and what routers drop.

use std::fs;

use serde::{Deserialize, Serialize};

/// Counts since the system started, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelDrops {
    /// Datagrams that found no room in their socket's receive buffer: RcvbufErrors, Udp6RcvbufErrors.
    pub receive_buffer: u64,
    /// Datagrams that could not leave for want of room on their way to the device: SndbufErrors, Udp6SndbufErrors.
    pub send_buffer: u64,
    /// Datagrams with a wrong checksum: InCsumErrors, Udp6InCsumErrors.
    pub checksum: u64,
    /// Datagrams for a port that nobody listens on: NoPorts, Udp6NoPorts.
    pub no_port: u64,
    /// Packets that devices dropped on reception: /proc/net/dev.
    pub device_receive: u64,
    /// Packets that devices dropped on transmission.
    pub device_transmit: u64,
    /// Packets that found a processor's input queue full, of the whole machine: /proc/net/softnet_stat.
    pub backlog: u64,
}

impl KernelDrops {
    /// Reads the counts now; those that this host does not tell are zero.
    pub fn read() -> Self {
        let of = |name: &str| {
            let path = format!("/proc/thread-self/net/{name}");
            fs::read_to_string(path).unwrap_or_default()
        };
        Self::parse(&of("snmp"), &of("snmp6"), &of("dev"), &of("softnet_stat"))
    }

    /// What was added since an earlier reading.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            receive_buffer: self.receive_buffer.saturating_sub(earlier.receive_buffer),
            send_buffer: self.send_buffer.saturating_sub(earlier.send_buffer),
            checksum: self.checksum.saturating_sub(earlier.checksum),
            no_port: self.no_port.saturating_sub(earlier.no_port),
            device_receive: self.device_receive.saturating_sub(earlier.device_receive),
            device_transmit: self.device_transmit.saturating_sub(earlier.device_transmit),
            backlog: self.backlog.saturating_sub(earlier.backlog),
        }
    }

    fn parse(snmp: &str, snmp6: &str, dev: &str, softnet: &str) -> Self {
        let udp = |v4: &str, v6: &str| named(snmp, v4) + listed(snmp6, v6);
        let (device_receive, device_transmit) = devices(dev);
        Self {
            receive_buffer: udp("RcvbufErrors", "Udp6RcvbufErrors"),
            send_buffer: udp("SndbufErrors", "Udp6SndbufErrors"),
            checksum: udp("InCsumErrors", "Udp6InCsumErrors"),
            no_port: udp("NoPorts", "Udp6NoPorts"),
            device_receive,
            device_transmit,
            backlog: softnet.lines().filter_map(backlog).sum(),
        }
    }
}

/// A column of the two lines `Udp:` of /proc/net/snmp, of which the first names the columns.
fn named(snmp: &str, column: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut columns = names.split_whitespace().zip(values.split_whitespace());
    columns.find(|(name, _)| *name == column).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// A line of /proc/net/snmp6: a name and a value.
fn listed(snmp6: &str, name: &str) -> u64 {
    let mut lines = snmp6.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let value = lines.find(|(first, _)| *first == name).map(|(_, value)| value.trim());
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Received and transmitted packets dropped, over all lines of /proc/net/dev.
fn devices(dev: &str) -> (u64, u64) {
    let rows = dev.lines().filter_map(|line| line.split_once(':')).map(|(_, row)| {
        let column = |index| row.split_whitespace().nth(index).and_then(|text| text.parse().ok());
        // bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop …
        (column(3).unwrap_or(0_u64), column(11).unwrap_or(0_u64))
    });
    rows.fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1))
}

/// The second, hexadecimal, column of a line of /proc/net/softnet_stat.
fn backlog(line: &str) -> Option<u64> {
    u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Tcp: RtoAlgorithm RtoMin\nTcp: 1 200\n\
        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n\
        Udp: 1000 3 12 900 10 5 2\n\
        UdpLite: InDatagrams NoPorts\nUdpLite: 7 7\n";
    const SNMP6: &str = "Ip6InReceives                   \t4\nUdp6NoPorts   \t1\n\
        Udp6RcvbufErrors                \t30\nUdp6SndbufErrors \t6\n";
    const DEV: &str = "Inter-|   Receive      |  Transmit\n face |bytes packets errs drop|...\n\
          lo: 100 2 0 4 0 0 0 0 100 2 0 0 0 0 0 0\n\
        eth0:1000 9 0 1 0 0 0 0 800 7 0 8 0 0 0 0\n";
    const SOFTNET: &str = "00000010 0000000a 00000000\n00000020 00000001 00000000\n";

    #[test]
    fn every_count_is_found_in_its_file_and_of_both_families() {
        let drops = KernelDrops::parse(SNMP, SNMP6, DEV, SOFTNET);
        let expected = KernelDrops {
            receive_buffer: 40,
            send_buffer: 11,
            checksum: 2,
            no_port: 4,
            device_receive: 5,
            device_transmit: 8,
            backlog: 11,
        };
        assert_eq!(drops, expected);
        assert_eq!(drops.since(drops), KernelDrops::default());
    }

    #[test]
    fn files_that_are_missing_or_odd_count_nothing() {
        assert_eq!(KernelDrops::parse("", "", "", ""), KernelDrops::default());
        assert_eq!(KernelDrops::parse("Udp: a\n", "x", "a: b", "zz zz"), KernelDrops::default());
    }

    #[test]
    fn this_host_counts_upwards() {
        let first = KernelDrops::read();
        assert_eq!(KernelDrops::default().since(first), KernelDrops::default());
        let second = KernelDrops::read();
        assert!(second.backlog >= first.backlog && second.no_port >= first.no_port);
    }
}
