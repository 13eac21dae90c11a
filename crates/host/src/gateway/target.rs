//! Which address outside stands for one inside.
//!
//! Left out: asking resolvers anything: their datagrams are carried as any others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The port of the Domain Name System.
pub(super) const DNS_PORT: u16 = 53;

/// What addresses inside mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The addresses of the far side: they stand for this machine itself.
    pub far: Vec<IpAddr>,
    /// Who answers questions about names that are put to the far side.
    pub resolvers: Vec<IpAddr>,
}

impl Targets {
    /// Whether it is an address of the far side.
    pub fn is_far(&self, address: IpAddr) -> bool {
        self.far.contains(&address)
    }

    /// Where what is sent to `inside` goes: the far side's own address is this machine's loopback, and
    /// names are asked of resolver number `turn`, counted round.
    pub fn outside(&self, inside: SocketAddr, turn: usize) -> SocketAddr {
        if !self.is_far(inside.ip()) {
            return inside;
        }
        if inside.port() == DNS_PORT && !self.resolvers.is_empty() {
            return (self.resolvers[turn % self.resolvers.len()], DNS_PORT).into();
        }
        let loopback: IpAddr = match inside {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        (loopback, inside.port()).into()
    }
}

/// The resolvers that a resolv.conf(5) names, in its order; this machine's own where it names none.
pub fn resolvers(conf: &str) -> Vec<IpAddr> {
    let named: Vec<IpAddr> = conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        // An address with a zone is of one interface, and cannot be given on.
        .filter_map(|rest| rest.trim().parse().ok())
        .collect();
    if named.is_empty() { vec![Ipv4Addr::LOCALHOST.into()] } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_side_is_this_machine_its_names_are_the_resolvers_and_all_else_is_itself() {
        let targets = Targets {
            far: vec!["10.77.0.2".parse().unwrap(), "fd77::2".parse().unwrap()],
            resolvers: resolvers(
                "search example\nnameserver 192.0.2.53\n nameserver fe80::1%eth0\n",
            ),
        };
        let outside = |inside: &str| targets.outside(inside.parse().unwrap(), 0).to_string();
        assert_eq!(outside("10.77.0.2:80"), "127.0.0.1:80");
        assert_eq!(outside("[fd77::2]:80"), "[::1]:80");
        assert_eq!(outside("10.77.0.2:53"), "192.0.2.53:53");
        assert_eq!(outside("[fd77::2]:53"), "192.0.2.53:53");
        assert_eq!(outside("198.51.100.1:53"), "198.51.100.1:53");
        assert_eq!(resolvers("# nothing\n"), [IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    }
}
