//! The kernel's counters of this network namespace: protocols, interfaces, and backlogs.
//!
//! From /proc/thread-self/net: `snmp`, `snmp6`, `netstat` and `dev`; and `softnet_stat`, which is the host's. Left out: which
//! of them matter for a result.

use std::collections::BTreeMap;
use std::fs;

/// All counters by name: `Tcp.RetransSegs`, `TcpExt.TCPTimeouts`, `dev.eth0.rx_drop`, `softnet.dropped`.
pub type KernelCounters = BTreeMap<String, u64>;

/// Reads them; files that cannot be read give nothing.
pub fn read() -> KernelCounters {
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
pub fn growth(now: &KernelCounters, before: &KernelCounters) -> KernelCounters {
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
        assert_eq!(growth(&counters(5, 2), &counters(3, 2)), BTreeMap::from([("a".to_owned(), 2)]));
        assert!(read().contains_key("Tcp.RetransSegs"));
    }
}
