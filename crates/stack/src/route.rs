//! Routes: which interface and which next hop a destination is reached by, longest prefix first.
//!
//! Both families in one table. A look-up costs one search for each prefix length in use, whatever
//! the number of routes. Left out: link addresses (`neighbor`), and learning routes from the net.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_wire::machine::PortId;

/// A network: the addresses that agree with one in their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpPrefix {
    address: IpAddr,
    len: u8,
}

impl IpPrefix {
    /// The network of `address` with `len` bits; `None` for more bits than its family has.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        (len <= bits(address)).then(|| Self { address: masked(address, len), len })
    }

    /// Every address of a family.
    pub const fn default_route(ipv6: bool) -> Self {
        let address = if ipv6 {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        Self { address, len: 0 }
    }

    /// Its first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Bits that its addresses share.
    #[expect(clippy::len_without_is_empty, reason = "a prefix length, not a container's")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether an address lies in it.
    #[inline]
    pub fn contains(self, address: IpAddr) -> bool {
        masked(address, self.len) == self.address
    }

    /// The directed broadcast address, where there is one: IPv4, and shorter than 31 bits (RFC 3021).
    pub fn broadcast(self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(network) if self.len < 31 => {
                Some(Ipv4Addr::from_bits(network.to_bits() | (u32::MAX >> self.len)))
            }
            _ => None,
        }
    }
}

/// A way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which destinations it is for.
    pub prefix: IpPrefix,
    /// The interface.
    pub port: PortId,
    /// The router; absent where the destinations are on the link itself.
    pub gateway: Option<IpAddr>,
}

/// The routing table of a host.
#[derive(Debug, Default)]
pub struct RouteTable {
    table: BTreeMap<(u8, IpAddr), Route>,
    lengths4: u64,
    lengths6: [u128; 2],
}

impl RouteTable {
    /// Adds a route; one for the same prefix is replaced and returned.
    pub fn insert(&mut self, route: Route) -> Option<Route> {
        let IpPrefix { address, len } = route.prefix;
        match address {
            IpAddr::V4(_) => self.lengths4 |= 1 << len,
            IpAddr::V6(_) => self.lengths6[usize::from(len >> 7)] |= 1 << (len & 127),
        }
        self.table.insert((len, address), route)
    }

    /// The route with the longest prefix that `destination` lies in.
    pub fn lookup(&self, destination: IpAddr) -> Option<&Route> {
        let (mut low, mut high) = match destination {
            IpAddr::V4(_) => (u128::from(self.lengths4), 0),
            IpAddr::V6(_) => (self.lengths6[0], self.lengths6[1]),
        };
        loop {
            let len = if high != 0 {
                high = 0;
                128
            } else if low != 0 {
                let len = low.ilog2();
                low &= !(1 << len);
                u8::try_from(len).expect("a bit of 128")
            } else {
                return None;
            };
            if let Some(route) = self.table.get(&(len, masked(destination, len))) {
                return Some(route);
            }
        }
    }

    /// Every route, shortest prefix first.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.table.values()
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(prefix: &str, len: u8, port: u16) -> Route {
        Route {
            prefix: IpPrefix::new(prefix.parse().unwrap(), len).unwrap(),
            port: PortId(port),
            gateway: None,
        }
    }

    fn port_of(routes: &RouteTable, destination: &str) -> Option<u16> {
        routes.lookup(destination.parse().unwrap()).map(|route| route.port.0)
    }

    #[test]
    fn longest_prefix_wins_within_its_family() {
        let mut routes = RouteTable::default();
        for made in [
            route("0.0.0.0", 0, 0),
            route("10.1.0.0", 16, 1),
            route("10.1.2.3", 32, 2),
            route("fe80::", 64, 3),
            route("2001:db8::7", 128, 4),
            route("2001:db8::", 127, 5),
        ] {
            assert_eq!(routes.insert(made), None);
        }
        assert_eq!(port_of(&routes, "192.0.2.1"), Some(0));
        assert_eq!(port_of(&routes, "10.1.2.4"), Some(1));
        assert_eq!(port_of(&routes, "10.1.2.3"), Some(2));
        assert_eq!(port_of(&routes, "fe80::9"), Some(3));
        assert_eq!(port_of(&routes, "2001:db8::7"), Some(4));
        assert_eq!(port_of(&routes, "2001:db8::1"), Some(5));
        assert_eq!(port_of(&routes, "2001:db8::2"), None);
    }

    #[test]
    fn only_ipv4_below_31_bits_has_a_broadcast_address() {
        let broadcast =
            |text: &str, len| IpPrefix::new(text.parse().unwrap(), len).unwrap().broadcast();
        assert_eq!(broadcast("192.0.2.9", 24), Some(Ipv4Addr::new(192, 0, 2, 255)));
        assert_eq!(broadcast("192.0.2.9", 31), None);
        assert_eq!(broadcast("fe80::", 64), None);
        assert!(IpPrefix::new("10.0.0.0".parse().unwrap(), 33).is_none());
    }
}
