//! Addresses, routes and permanent neighbours of the kernel's own stack.
//!
//! Left out: removing them one by one: they go with their namespace.

use std::io;
use std::net::IpAddr;

use plumb_wire::mac::MacAddr;

use super::LabError;
use super::link::PATIENCE_NS;
use super::message::Request;
use super::netlink::{ACKNOWLEDGE, CREATE, Netlink, REPLACE, REQUEST};
use crate::clock::monotonic_ns;

/// Kinds of message (linux/rtnetlink.h).
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const ASK_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;

impl Netlink {
    /// Gives a device an address; an IPv6 address is usable at once, without asking whether anybody
    /// else has it.
    ///
    /// The device is up.
    ///
    /// # Errors
    /// It has the address already (EEXIST), or the family is switched off there (EACCES).
    pub fn add_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), LabError> {
        /// IFA_F_NODAD.
        const AT_ONCE: u8 = 2;
        const ADDRESS: u16 = 1;
        const LOCAL: u16 = 2;
        let mut fixed = [0; 8];
        fixed[..4].copy_from_slice(&[family(address), prefix_len, AT_ONCE, 0]);
        fixed[4..].copy_from_slice(&index.to_ne_bytes());
        let mut request = Request::new(NEW_ADDRESS, REQUEST | ACKNOWLEDGE | CREATE, &fixed);
        request.attribute(LOCAL, &octets(address)).attribute(ADDRESS, &octets(address));
        self.change(format!("give device {index} the address {address}/{prefix_len}"), request)?;
        if address.is_ipv6() { self.wait_until_own(address) } else { Ok(()) }
    }

    /// Waits until the kernel takes packets for an address as its own, a few seconds at most.
    ///
    /// An IPv6 address is listed at once, and can be bound to; the route that makes packets for it this
    /// host's comes later, from a work queue (`addrconf_dad_work` in net/ipv6/addrconf.c). What
    /// arrives in between is dropped as an error of the address.
    fn wait_until_own(&mut self, address: IpAddr) -> Result<(), LabError> {
        /// RTN_LOCAL.
        const OWN: u8 = 2;
        const DESTINATION: u16 = 1;
        let what = || format!("take packets for {address} as this host's own");
        let end = monotonic_ns() + PATIENCE_NS;
        loop {
            let mut fixed = [0; 12];
            fixed[..2].copy_from_slice(&[family(address), 128]);
            let mut request = Request::new(ASK_ROUTE, REQUEST | ACKNOWLEDGE, &fixed);
            request.attribute(DESTINATION, &octets(address));
            let answer = self.exchange(what(), request, |message| {
                message.kind == NEW_ROUTE && message.body.get(7) == Some(&OWN)
            });
            // Until then there may be no route at all, which is an error here.
            if matches!(&answer, Ok(routes) if routes.contains(&true)) {
                return Ok(());
            }
            if monotonic_ns() > end {
                let late = || LabError::refused(what(), io::ErrorKind::TimedOut.into());
                return Err(answer.err().unwrap_or_else(late));
            }
            std::thread::yield_now();
        }
    }

    /// Sends what is for `destination` through a device, to the router `via` where there is one; a
    /// prefix of no bits is the default route.
    ///
    /// # Errors
    /// The router is not reachable, or the device is down (ENETDOWN, ENETUNREACH).
    pub fn add_route(
        &mut self,
        (destination, prefix_len): (IpAddr, u8),
        via: Option<IpAddr>,
        index: u32,
    ) -> Result<(), LabError> {
        /// RT_TABLE_MAIN, RTPROT_STATIC, RTN_UNICAST.
        const MAIN: u8 = 254;
        const STATIC: u8 = 4;
        const UNICAST: u8 = 1;
        /// RT_SCOPE_LINK and RT_SCOPE_UNIVERSE.
        const ON_LINK: u8 = 253;
        const ANYWHERE: u8 = 0;
        const DESTINATION: u16 = 1;
        const OUT: u16 = 4;
        const GATEWAY: u16 = 5;
        let scope = if via.is_some() || destination.is_ipv6() { ANYWHERE } else { ON_LINK };
        let mut fixed = [0; 12];
        fixed[..8].copy_from_slice(&[
            family(destination),
            prefix_len,
            0,
            0,
            MAIN,
            STATIC,
            scope,
            UNICAST,
        ]);
        let flags = REQUEST | ACKNOWLEDGE | CREATE | REPLACE;
        let mut request = Request::new(NEW_ROUTE, flags, &fixed);
        if prefix_len > 0 {
            request.attribute(DESTINATION, &octets(destination));
        }
        if let Some(via) = via {
            request.attribute(GATEWAY, &octets(via));
        }
        request.attribute(OUT, &index.to_ne_bytes());
        self.change(format!("route {destination}/{prefix_len} through device {index}"), request)
    }

    /// Makes the kernel take packets for `destination` as its own, whatever addresses its devices have:
    /// with a prefix of no bits, all that no longer prefix of [`Netlink::add_route_before_own`] sends on.
    ///
    /// # Errors
    /// There is no such device; the loopback is what it should be.
    pub fn add_own_route(
        &mut self,
        destination: (IpAddr, u8),
        loopback: u32,
    ) -> Result<(), LabError> {
        /// RTN_LOCAL, RT_SCOPE_HOST.
        const OWN: (u8, u8) = (2, 254);
        self.add_route_to_table_of_own(destination, loopback, OWN)
    }

    /// Sends what is for `destination` through a device before the kernel looks for its own addresses.
    ///
    /// # Errors
    /// There is no such device, or it is down.
    pub fn add_route_before_own(
        &mut self,
        destination: (IpAddr, u8),
        index: u32,
    ) -> Result<(), LabError> {
        /// RTN_UNICAST, RT_SCOPE_LINK.
        const ON_LINK: (u8, u8) = (1, 253);
        self.add_route_to_table_of_own(destination, index, ON_LINK)
    }

    fn add_route_to_table_of_own(
        &mut self,
        (destination, prefix_len): (IpAddr, u8),
        index: u32,
        (kind, scope): (u8, u8),
    ) -> Result<(), LabError> {
        /// RT_TABLE_LOCAL, RTPROT_STATIC.
        const TABLE: u8 = 255;
        const STATIC: u8 = 4;
        const DESTINATION: u16 = 1;
        const OUT: u16 = 4;
        let mut fixed = [0; 12];
        let scope = if destination.is_ipv6() { 0 } else { scope };
        fixed[..8].copy_from_slice(&[
            family(destination),
            prefix_len,
            0,
            0,
            TABLE,
            STATIC,
            scope,
            kind,
        ]);
        let flags = REQUEST | ACKNOWLEDGE | CREATE | REPLACE;
        let mut request = Request::new(NEW_ROUTE, flags, &fixed);
        if prefix_len > 0 {
            request.attribute(DESTINATION, &octets(destination));
        }
        request.attribute(OUT, &index.to_ne_bytes());
        self.change(format!("take {destination}/{prefix_len} at device {index}"), request)
    }

    /// Tells the kernel for good which link address a neighbour has: it neither asks nor forgets.
    ///
    /// # Errors
    /// There is no such device, or it has no neighbours.
    pub fn add_neighbour(
        &mut self,
        index: u32,
        address: IpAddr,
        mac: MacAddr,
    ) -> Result<(), LabError> {
        /// NUD_PERMANENT.
        const PERMANENT: u16 = 0x80;
        const DESTINATION: u16 = 1;
        const LINK_ADDRESS: u16 = 2;
        let mut fixed = [0; 12];
        fixed[0] = family(address);
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        fixed[8..10].copy_from_slice(&PERMANENT.to_ne_bytes());
        let flags = REQUEST | ACKNOWLEDGE | CREATE | REPLACE;
        let mut request = Request::new(NEW_NEIGHBOUR, flags, &fixed);
        request.attribute(DESTINATION, &octets(address)).attribute(LINK_ADDRESS, &mac.0);
        self.change(format!("make {address} a neighbour at device {index}"), request)
    }
}

/// AF_INET or AF_INET6.
const fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 2,
        IpAddr::V6(_) => 10,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
