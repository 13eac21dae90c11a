//! Where the sockets of an agent's half are: at the address that its client goes to, if that is this host's.
//!
//! A socket of every address answers datagrams from whichever the kernel likes, and a client hears no other than the
//! one it asked. Left out: what the sockets are.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address, as far as one is known, and a port; 0 is any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    address: Option<IpAddr>,
    /// Whether it may be no other address.
    is_firm: bool,
    port: u16,
}

impl Bind {
    /// Every address, and a port.
    pub const fn anywhere(port: u16) -> Self {
        Self { address: None, is_firm: false, port }
    }

    /// This address and no other.
    pub const fn only(address: IpAddr, port: u16) -> Self {
        Self { address: Some(address), is_firm: true, port }
    }

    /// The address that a client goes to, where it is this host's own. One of the loopback may be another host's, whose
    /// port is forwarded.
    pub fn asked(address: Option<IpAddr>, port: u16) -> Self {
        let address = address.map(|address| address.to_canonical());
        Self { address: address.filter(|address| !address.is_loopback()), is_firm: false, port }
    }

    /// The same so many ports further, where it names one.
    #[must_use]
    pub const fn after(self, ports: u16) -> Self {
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
                Err(error) if !self.is_firm && is_elsewhere(&error) => {}
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn bound(at: Bind) -> IpAddr {
        at.open(UdpSocket::bind).unwrap().local_addr().unwrap().ip()
    }

    #[test]
    fn an_address_that_is_this_hosts_is_taken_and_one_that_is_translated_is_not() {
        let own: IpAddr = "127.0.0.9".parse().unwrap();
        assert_eq!(bound(Bind::only(own, 0)), own);
        for elsewhere in ["192.0.2.77", "fe80::77", "::ffff:192.0.2.77", "127.0.0.1", "::1"] {
            let address = elsewhere.parse().unwrap();
            assert!(bound(Bind::asked(Some(address), 0)).is_unspecified(), "{elsewhere}");
        }
        assert!(bound(Bind::asked(None, 0)).is_unspecified());
        assert!(Bind::only("192.0.2.77".parse().unwrap(), 0).open(UdpSocket::bind).is_err());
    }
}
