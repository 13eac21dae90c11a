//! Addresses: where an agent binds, which ones a host has, their zones and their source prefixes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_sys::socket;

/// An address, as far as one is known, and a port; 0 is any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindAddress {
    address: Option<IpAddr>,
    /// Whether it may be no other address.
    is_required: bool,
    port: u16,
}

impl BindAddress {
    /// Every address, and a port.
    pub const fn anywhere(port: u16) -> Self {
        Self { address: None, is_required: false, port }
    }

    /// This address and no other.
    pub const fn only(address: IpAddr, port: u16) -> Self {
        Self { address: Some(address), is_required: true, port }
    }

    /// The address that a client goes to, where it is this host's own. One of the loopback may be another host's, whose
    /// port is forwarded.
    pub fn requested(address: Option<IpAddr>, port: u16) -> Self {
        let address = address.map(|address| address.to_canonical());
        Self { address: address.filter(|address| !address.is_loopback()), is_required: false, port }
    }

    /// The same so many ports further, where it names one.
    #[must_use]
    pub const fn with_port_offset(self, ports: u16) -> Self {
        let port = if self.port == 0 { 0 } else { self.port.saturating_add(ports) };
        Self { port, ..self }
    }

    /// Binds a socket there. At every address it takes both versions of IP, where the host has them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open<S>(self, bind: impl Fn(SocketAddr) -> io::Result<S>) -> io::Result<S> {
        if let Some(address) = self.address {
            match bind(SocketAddr::new(address, self.port)) {
                // It is translated on the way, or one of a single link.
                Err(error) if !self.is_required && is_elsewhere(&error) => {}
                outcome => return outcome,
            }
        }
        bind((Ipv6Addr::UNSPECIFIED, self.port).into())
            .or_else(|_| bind((Ipv4Addr::UNSPECIFIED, self.port).into()))
    }
}

fn is_elsewhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::InvalidInput)
}

/// `address` with another port; a zone stays.
pub const fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    let mut address = address;
    address.set_port(port);
    address
}

/// Most addresses that are told.
const ADDRESSES_MAX: usize = 32;

/// All of them as text, IPv4 first.
pub fn host_addresses() -> Vec<String> {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
    };
    let addresses =
        parse_fib_trie(&read("fib_trie")).into_iter().chain(parse_if_inet6(&read("if_inet6")));
    addresses.take(ADDRESSES_MAX).map(|address| address.to_string()).collect()
}

/// `|-- 10.0.0.2` and below it `/32 host LOCAL`.
fn parse_fib_trie(text: &str) -> BTreeSet<IpAddr> {
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
fn parse_if_inet6(text: &str) -> BTreeSet<IpAddr> {
    const GLOBAL: &str = "00";
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let bits = u128::from_str_radix(words.first()?, 16).ok()?;
            (words.get(3) == Some(&GLOBAL)).then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
        })
        .collect()
}

/// An address without its port: with its zone, where it has one, by the name of the interface, as it is asked for.
pub fn with_zone(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            let index = v6.scope_id();
            let zone = socket::interface_name(index).unwrap_or_else(|_| index.to_string());
            format!("{}%{zone}", v6.ip())
        }
        _ => address.ip().to_string(),
    }
}

/// The address of an IPv4 host, however it is written, or the network that a host of IPv6 has: any of 64 bits of
/// addresses is its own.
pub fn source_prefix(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddrV6, UdpSocket};

    use super::*;

    fn bound(at: BindAddress) -> IpAddr {
        at.open(UdpSocket::bind).unwrap().local_addr().unwrap().ip()
    }

    #[test]
    fn an_address_that_is_this_hosts_is_taken_and_one_that_is_translated_is_not() {
        let own: IpAddr = "127.0.0.9".parse().unwrap();
        assert_eq!(bound(BindAddress::only(own, 0)), own);
        for own in host_addresses() {
            let own = own.parse().unwrap();
            assert_eq!(bound(BindAddress::requested(Some(own), 0)), own);
        }
        for elsewhere in ["192.0.2.77", "fe80::77", "::ffff:192.0.2.77", "127.0.0.1", "::1"] {
            let address = elsewhere.parse().unwrap();
            assert!(
                bound(BindAddress::requested(Some(address), 0)).is_unspecified(),
                "{elsewhere}"
            );
        }
        assert!(bound(BindAddress::requested(None, 0)).is_unspecified());
        assert!(BindAddress::only("192.0.2.77".parse().unwrap(), 0).open(UdpSocket::bind).is_err());
    }

    #[test]
    fn addresses_that_others_can_reach_are_found_in_the_kernels_lists() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.77.0.2\n        /32 host LOCAL\n     |-- 127.0.0.1\n        \
                    /32 host LOCAL\n     |-- 10.77.0.255\n        /32 link BROADCAST\n";
        assert_eq!(parse_fib_trie(trie), BTreeSet::from(["10.77.0.2".parse().unwrap()]));
        let list = "fe80000000000000000000000000abcd 02 40 20 80 eth0\n\
                    fd770000000000000000000000000001 02 40 00 80 eth0\n\
                    00000000000000000000000000000001 01 80 10 80 lo\n";
        assert_eq!(parse_if_inet6(list), BTreeSet::from(["fd77::1".parse().unwrap()]));
    }

    #[test]
    fn an_address_keeps_its_zone_by_name_and_by_number_where_it_has_none() {
        let of = |index| with_zone(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 0, index).into());
        assert_eq!((of(0).as_str(), of(1).as_str()), ("::1", "::1%lo"));
        assert_eq!(of(4_000_000_000), "::1%4000000000");
        assert_eq!(with_zone(([192, 0, 2, 1], 7).into()), "192.0.2.1");
    }

    #[test]
    fn a_host_of_ipv6_is_one_at_all_of_its_addresses_and_ipv4_is_itself_in_both_spellings() {
        let of = |text: &str| source_prefix(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:7::1"), of("2001:db8:0:7:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:0:7::1"), of("2001:db8:0:8::1"));
        assert_eq!(of("192.0.2.9"), of("::ffff:192.0.2.9"));
        assert_ne!(of("192.0.2.9"), of("192.0.2.10"));
    }
}
