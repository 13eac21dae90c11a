//! Which address outside stands for one inside.
//!
//! Left out: which of several resolvers is asked (`super::resolver`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::resolver::Resolvers;

/// The port of the Domain Name System.
pub(super) const DNS_PORT: u16 = 53;

/// What addresses inside mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The addresses of the far side: they stand for this machine itself.
    pub far: Vec<IpAddr>,
    /// Who answers questions about names that are put to the far side.
    pub resolvers: Resolvers,
}

impl Targets {
    /// Whether it is an address of the far side.
    pub fn is_far(&self, address: IpAddr) -> bool {
        self.far.contains(&address)
    }

    /// Whether what is sent there are questions for resolvers.
    pub(super) fn is_resolver(&self, inside: SocketAddr) -> bool {
        inside.port() == DNS_PORT && self.is_far(inside.ip())
    }

    /// Where what is sent to `inside` goes: the far side's own address is this machine's loopback, and
    /// names are asked of the resolver of this number.
    pub fn outside(&self, inside: SocketAddr, resolver: usize) -> SocketAddr {
        if !self.is_far(inside.ip()) {
            return inside;
        }
        let resolver = self.resolvers.addresses.get(resolver).filter(|_| self.is_resolver(inside));
        if let Some(&resolver) = resolver {
            return (resolver, DNS_PORT).into();
        }
        let loopback: IpAddr = match inside {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        (loopback, inside.port()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_side_is_this_machine_its_names_are_the_resolvers_and_all_else_is_itself() {
        let targets = Targets {
            far: vec!["10.77.0.2".parse().unwrap(), "fd77::2".parse().unwrap()],
            resolvers: Resolvers::of("nameserver 192.0.2.53\nnameserver 192.0.2.54\n"),
        };
        let outside = |inside: &str| targets.outside(inside.parse().unwrap(), 0).to_string();
        assert_eq!(outside("10.77.0.2:80"), "127.0.0.1:80");
        assert_eq!(outside("[fd77::2]:80"), "[::1]:80");
        assert_eq!(outside("10.77.0.2:53"), "192.0.2.53:53");
        assert_eq!(outside("[fd77::2]:53"), "192.0.2.53:53");
        assert_eq!(outside("198.51.100.1:53"), "198.51.100.1:53");
        let second = targets.outside("10.77.0.2:53".parse().unwrap(), 1);
        assert_eq!(second.to_string(), "192.0.2.54:53");
    }
}
