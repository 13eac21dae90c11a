//! Hosts in a row, those between the ends being routers: Linux's own, a namespace each, with a virtual
//! Ethernet from each to the next.
//!
//! Left out: rates and delays, which a virtual Ethernet has not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_wire::mac::MacAddr;

use super::bed::{MTU_MIN_V6, has_v6, quiet_namespace};
use super::{LabError, LinkChange, LinkOptions, Namespace, TestBed, VethEnd, set_forwarding};

/// Two hosts and the routers between them.
#[derive(Debug)]
pub struct Chain {
    /// From the near end to the far one; two at least.
    hosts: Vec<Namespace>,
    has_v6: bool,
}

impl Chain {
    /// Routers between two ends at most: each has a network of its own to either side.
    pub const ROUTERS_MAX: u8 = 64;

    /// Makes two hosts with so many routers between them, up, with addresses and routes.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] without the right to make namespaces, [`LabError::TooMany`] where there
    /// are too many: see [`super::become_root`].
    pub fn new(routers: u8, options: LinkOptions) -> Result<Self, LabError> {
        let routers = routers.min(Self::ROUTERS_MAX);
        let hosts: Vec<Namespace> =
            (0..u16::from(routers) + 2).map(|_| quiet_namespace()).collect::<Result<_, _>>()?;
        let has_v6 = has_v6(&hosts[0]) && options.mtu >= MTU_MIN_V6;
        let chain = Self { hosts, has_v6 };
        for router in chain.routers() {
            set_forwarding(router, true)?;
        }
        for (pair, wire) in chain.hosts.windows(2).zip(0u8..) {
            chain.join(&pair[0], &pair[1], wire, options)?;
        }
        chain.add_routes(routers)?;
        Ok(chain)
    }

    /// The near end.
    pub fn near(&self) -> &Namespace {
        &self.hosts[0]
    }

    /// The far end.
    pub fn far(&self) -> &Namespace {
        self.hosts.last().expect("a chain has two ends")
    }

    /// Those between the ends.
    pub fn routers(&self) -> &[Namespace] {
        &self.hosts[1..self.hosts.len() - 1]
    }

    /// The far end's addresses, of version 4 and, where this kernel has it, of version 6.
    pub fn far_addresses(&self) -> (Ipv4Addr, Option<Ipv6Addr>) {
        let wire = u8::try_from(self.hosts.len() - 2).unwrap_or(u8::MAX);
        (v4(wire, FAR), self.has_v6.then(|| v6(wire, FAR)))
    }

    /// A virtual Ethernet between neighbours: the first's device towards the far end, the second's
    /// towards the near one.
    fn join(
        &self,
        first: &Namespace,
        second: &Namespace,
        wire: u8,
        options: LinkOptions,
    ) -> Result<(), LabError> {
        let end = |name: &str, side| VethEnd {
            name: name.to_owned(),
            mac: Some(mac(wire, side)),
            mtu: options.mtu,
        };
        let ends = [(first, ONWARD, NEAR, FAR), (second, BACK, FAR, NEAR)];
        first.netlink()?.add_veth(&end(ONWARD, NEAR), &end(BACK, FAR), second)?;
        for (host, device, side, other) in ends {
            let mut netlink = host.netlink()?;
            let index = netlink.link(device)?.index;
            let change = LinkChange { up: Some(true), ..LinkChange::default() };
            netlink.change_link(index, &change)?;
            for (address, bits) in self.both(wire, side) {
                netlink.add_address(index, address, bits)?;
            }
            // A router asks for a neighbour of version 6 from its link-local address, and it has none.
            for (neighbour, _) in self.both(wire, other) {
                netlink.add_neighbour(index, neighbour, mac(wire, other))?;
            }
        }
        for (host, device, ..) in ends {
            host.netlink()?.wait_until_running(device)?;
        }
        Ok(())
    }

    /// Everybody knows the way to the networks of both ends; nobody asks for those between.
    fn add_routes(&self, routers: u8) -> Result<(), LabError> {
        for (host, position) in self.hosts.iter().zip(0u8..) {
            let mut netlink = host.netlink()?;
            // The last wire is its own network to the last router and to the far end.
            if position < routers {
                let index = netlink.link(ONWARD)?.index;
                let next = self.both(position, FAR);
                for ((to, bits), (via, _)) in self.both(routers, 0).into_iter().zip(next) {
                    netlink.add_route((to, bits), Some(via), index)?;
                }
            }
            if position > 1 {
                let index = netlink.link(BACK)?.index;
                let previous = self.both(position - 1, NEAR);
                for ((to, bits), (via, _)) in self.both(0, 0).into_iter().zip(previous) {
                    netlink.add_route((to, bits), Some(via), index)?;
                }
            }
        }
        Ok(())
    }

    /// The address of one side of a wire in the families that this kernel has, with its prefix.
    fn both(&self, wire: u8, side: u8) -> Vec<(IpAddr, u8)> {
        let (bits_v4, bits_v6) = TestBed::PREFIX_LEN;
        let mut all = vec![(v4(wire, side).into(), bits_v4)];
        if self.has_v6 {
            all.push((v6(wire, side).into(), bits_v6));
        }
        all
    }
}

/// The device towards the far end.
const ONWARD: &str = TestBed::NEAR_DEVICE;
/// The device towards the near end.
const BACK: &str = TestBed::FAR_DEVICE;
/// The side of a wire towards the near end.
const NEAR: u8 = 1;
/// The side of a wire towards the far end.
const FAR: u8 = 2;

/// A link address: locally administered.
const fn mac(wire: u8, side: u8) -> MacAddr {
    MacAddr([0x02, 0, 0, 0x77, wire, side])
}

const fn v4(wire: u8, side: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, wire, side)
}

fn v6(wire: u8, side: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, u16::from(wire), 0, 0, 0, u16::from(side))
}
