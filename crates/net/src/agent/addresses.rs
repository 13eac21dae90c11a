//! The addresses of this host in its network namespace, for a client that was told none.
//!
//! From /proc/thread-self/net. Left out: loopback, and IPv6 addresses that need a zone.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most addresses that are told.
const ADDRESSES_MAX: usize = 32;

/// All of them as text, IPv4 first.
pub fn of_this_host() -> Vec<String> {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
    };
    let addresses = of_trie(&read("fib_trie")).into_iter().chain(of_list(&read("if_inet6")));
    addresses.take(ADDRESSES_MAX).map(|address| address.to_string()).collect()
}

/// `|-- 10.0.0.2` and below it `/32 host LOCAL`.
fn of_trie(text: &str) -> BTreeSet<IpAddr> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines
        .windows(2)
        .filter(|pair| pair[1] == "/32 host LOCAL")
        .filter_map(|pair| pair[0].strip_prefix("|-- ")?.parse::<Ipv4Addr>().ok())
        .filter(|address| !address.is_loopback())
        .map(IpAddr::V4)
        .collect()
}

/// `fd770000000000000000000000000001 05 40 00 80 eth0`: address, index, prefix, scope, flags, name.
fn of_list(text: &str) -> BTreeSet<IpAddr> {
    const GLOBAL: &str = "00";
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let bits = u128::from_str_radix(words.first()?, 16).ok()?;
            (words.get(3) == Some(&GLOBAL)).then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_can_reach_are_found_in_the_kernels_lists() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.77.0.2\n        /32 host LOCAL\n     |-- 127.0.0.1\n        \
                    /32 host LOCAL\n     |-- 10.77.0.255\n        /32 link BROADCAST\n";
        assert_eq!(of_trie(trie), BTreeSet::from(["10.77.0.2".parse().unwrap()]));
        let list = "fe80000000000000000000000000abcd 02 40 20 80 eth0\n\
                    fd770000000000000000000000000001 02 40 00 80 eth0\n\
                    00000000000000000000000000000001 01 80 10 80 lo\n";
        assert_eq!(of_list(list), BTreeSet::from(["fd77::1".parse().unwrap()]));
    }
}
