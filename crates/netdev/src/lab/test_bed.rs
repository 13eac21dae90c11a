//! Two sides of a wire in one call: `A`, where clients are, and `B`, where somebody answers.
//!
//! The wire is a virtual Ethernet between two namespaces, or a TAP device whose other side a user
//! stack holds.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use plumb_sys::tun;
use plumb_wire::ethernet::MacAddr;

use crate::lab::{
    EthtoolOffload, InterfaceChange, LabError, NetNamespace, VethEnd, set_forwarding, set_sysctl,
    sysctl,
};

/// Whether Linux answers at the far end of a virtual Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarEndMode {
    /// It has the far addresses and answers as any host does.
    Answers,
    /// It has no address there and says nothing, so that a user stack on a packet socket or an
    /// AF_XDP socket can have them without being contradicted.
    Silent,
}

/// How a bed's wire shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestBedOptions {
    /// Largest packet, in bytes, without the link header.
    pub mtu: u32,
    /// Whether the kernel leaves checksums open and hands on super-segments, as it does when both
    /// ends are its own. Without, every frame is one that could be on a wire.
    pub offloads: bool,
    /// Whether both sides know each other's link address from the start, and never ask.
    pub neighbors: bool,
}

impl Default for TestBedOptions {
    /// MTU 1500, offloads as the kernel has them, neighbours to be asked for.
    fn default() -> Self {
        Self { mtu: 1500, offloads: true, neighbors: false }
    }
}

/// Side `A` with its device, and side `B` where that is Linux's too.
#[derive(Debug)]
pub struct TestBed {
    near: NetNamespace,
    far: Option<NetNamespace>,
    options: TestBedOptions,
    has_v6: bool,
}

impl TestBed {
    /// The addresses of side `A`.
    pub const NEAR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
    /// The same, version 6.
    pub const NEAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
    /// The addresses of side `B`, whoever has them.
    pub const FAR_V4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
    /// The same, version 6.
    pub const FAR_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
    /// The prefixes that both sides share: bits of version 4 and of version 6.
    pub const PREFIX_LEN: (u8, u8) = (24, 64);
    /// The name of the device of side `A`, whatever it is.
    pub const NEAR_DEVICE: &'static str = "plumb0";
    /// The name of the device of side `B` of a virtual Ethernet.
    pub const FAR_DEVICE: &'static str = "plumb1";
    /// The names of the other ends of [`TestBed::veths_via_middle`]: of the near and of the far device.
    pub const MIDDLE_DEVICES: [&'static str; 2] = ["plumb2", "plumb3"];
    /// The link address of side `A`: locally administered.
    pub const NEAR_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0x77, 1]);
    /// The link address of side `B`: what a user stack there shall use on a TAP.
    pub const FAR_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0x77, 2]);

    /// Two namespaces and a virtual Ethernet between them, up and with addresses.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] without the right to make namespaces: see [`crate::lab::become_root`].
    pub fn veth(far: FarEndMode, options: TestBedOptions) -> Result<Self, LabError> {
        let (a, b) = (quiet_namespace()?, quiet_namespace()?);
        let end =
            |name: &str, mac| VethEnd { name: name.to_owned(), mac: Some(mac), mtu: options.mtu };
        let (near_end, far_end) =
            (end(Self::NEAR_DEVICE, Self::NEAR_MAC), end(Self::FAR_DEVICE, Self::FAR_MAC));
        a.netlink()?.add_veth(&near_end, &far_end, &b)?;
        if !options.offloads {
            switch_offloads_off(&a, Self::NEAR_DEVICE)?;
            switch_offloads_off(&b, Self::FAR_DEVICE)?;
        }
        let has_v6 = carries_v6(&a, options);
        let bed = Self { near: a, far: Some(b), options, has_v6 };
        bed.bring_up_far(far)?;
        bed.bring_up_near()?;
        // The near device was brought up with its other end there, and is ready at once; the far one
        // learns of it.
        if let Some(b) = &bed.far {
            b.netlink()?.wait_until_running(Self::FAR_DEVICE)?;
        }
        Ok(bed)
    }

    /// Side `A` alone, for a TAP device that is still to be opened:
    /// `bed.in_a(|| open(TestBed::NEAR_DEVICE))`, then [`TestBed::bring_up_near`].
    ///
    /// # Errors
    /// As [`TestBed::veth`].
    pub fn tap(options: TestBedOptions) -> Result<Self, LabError> {
        let a = quiet_namespace()?;
        let has_v6 = carries_v6(&a, options);
        Ok(Self { near: a, far: None, options, has_v6 })
    }

    /// Two namespaces without a wire, for a TAP device in each that are still to be opened, as
    /// [`TestBed::NEAR_DEVICE`] inside `A` and [`TestBed::FAR_DEVICE`] inside `B`; then
    /// [`TestBed::bring_up_taps`]. Whoever holds both is the wire.
    ///
    /// # Errors
    /// As [`TestBed::veth`].
    pub fn taps(options: TestBedOptions) -> Result<Self, LabError> {
        let (a, b) = (quiet_namespace()?, quiet_namespace()?);
        let has_v6 = carries_v6(&a, options);
        Ok(Self { near: a, far: Some(b), options, has_v6 })
    }

    /// Two namespaces, each with a virtual Ethernet into a third, where whoever holds both other
    /// ends, [`TestBed::MIDDLE_DEVICES`], is the wire between them. Linux says nothing there.
    ///
    /// # Errors
    /// As [`TestBed::veth`].
    pub fn veths_via_middle(options: TestBedOptions) -> Result<(Self, NetNamespace), LabError> {
        let bed = Self::taps(options)?;
        let middle = quiet_namespace()?;
        let sides = [
            (&bed.near, Self::NEAR_DEVICE, Self::NEAR_MAC),
            (bed.far.as_ref().unwrap_or(&bed.near), Self::FAR_DEVICE, Self::FAR_MAC),
        ];
        for ((namespace, name, mac), other) in sides.into_iter().zip(Self::MIDDLE_DEVICES) {
            let end = |name: &str, mac| VethEnd { name: name.to_owned(), mac, mtu: options.mtu };
            namespace.netlink()?.add_veth(&end(name, Some(mac)), &end(other, None), &middle)?;
            if !options.offloads {
                switch_offloads_off(namespace, name)?;
                switch_offloads_off(&middle, other)?;
            }
            bring_up_silent(&middle, other, bed.has_v6)?;
        }
        bed.bring_up_far(FarEndMode::Answers)?;
        bed.bring_up_near()?;
        for name in Self::MIDDLE_DEVICES {
            middle.netlink()?.wait_until_running(name)?;
        }
        Ok((bed, middle))
    }

    /// Gives both devices of [`TestBed::taps`] room for bursts, link address, MTU, addresses and
    /// neighbours, and brings them up.
    ///
    /// # Errors
    /// As [`TestBed::bring_up_near`].
    pub fn bring_up_taps(&self) -> Result<(), LabError> {
        let sides = [
            (Some(&self.near), Self::NEAR_DEVICE, None),
            (self.far.as_ref(), Self::FAR_DEVICE, Some(Self::FAR_MAC)),
        ];
        for (namespace, name, mac) in sides {
            let Some(namespace) = namespace else { continue };
            let mut netlink = namespace.netlink()?;
            let index = netlink.interface(name)?.index;
            let change = InterfaceChange {
                tx_queue_len: Some(TAP_QUEUE_LEN),
                mtu: Some(self.options.mtu),
                mac,
                ..InterfaceChange::default()
            };
            netlink.change_interface(index, &change)?;
        }
        // Both come up with their carrier there, and are ready at once.
        self.bring_up_far(FarEndMode::Answers)?;
        self.bring_up_near()
    }

    /// Makes the TAP device of side `A` with nobody at its other side: whoever opens
    /// [`TestBed::NEAR_DEVICE`] inside, with one queue, is that. It lasts as long as the namespace.
    ///
    /// # Errors
    /// There is no TUN driver, or its file may not be opened.
    pub fn add_tap(&self) -> Result<(), LabError> {
        let make = || -> io::Result<()> {
            let tap = tun::open()?;
            let kind = tun::TunMode { ethernet: true, ..tun::TunMode::default() };
            tun::attach(tap.as_fd(), Self::NEAR_DEVICE, kind)?;
            tun::set_persistent(tap.as_fd(), true)
        };
        self.in_near(make)?.map_err(|error| {
            LabError::refused("make a TAP device ('plumb doctor' says what is missing)", error)
        })?;
        // A child forked meanwhile has a copy of the descriptor until its execve(2): until then the device is busy.
        self.near.netlink()?.wait_until(Self::NEAR_DEVICE, |link| !link.has_carrier)?;
        Ok(())
    }

    /// Gives the device of side `A` its link address, MTU, addresses and neighbours, and brings it
    /// up.
    ///
    /// # Errors
    /// [`LabError::NoDevice`] before the TAP is opened; the kernel refuses a value.
    pub fn bring_up_near(&self) -> Result<(), LabError> {
        let (mtu, mac) = (Some(self.options.mtu), Some(Self::NEAR_MAC));
        let change = InterfaceChange { mtu, mac, ..InterfaceChange::default() };
        let own = self.addresses().map(|(near, _, prefix_len)| (near, prefix_len));
        let others = self.addresses().filter(|_| self.options.neighbors);
        let others = others.map(|(_, far, _)| (far, Self::FAR_MAC));
        bring_up(&self.near, Self::NEAR_DEVICE, &change, own, others)
    }

    fn bring_up_far(&self, far: FarEndMode) -> Result<(), LabError> {
        let Some(b) = &self.far else { return Ok(()) };
        if far == FarEndMode::Silent {
            return bring_up_silent(b, Self::FAR_DEVICE, self.has_v6);
        }
        let change = InterfaceChange { arp: Some(true), ..InterfaceChange::default() };
        let own = self.addresses().map(|(_, far, prefix_len)| (far, prefix_len));
        let others = self.addresses().filter(|_| self.options.neighbors);
        let others = others.map(|(near, ..)| (near, Self::NEAR_MAC));
        bring_up(b, Self::FAR_DEVICE, &change, own, others)
    }

    /// The pairs of addresses of the families that this kernel has: near, far, bits of the prefix.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, IpAddr, u8)> {
        let (bits_v4, bits_v6) = Self::PREFIX_LEN;
        let v4 = (Self::NEAR_V4.into(), Self::FAR_V4.into(), bits_v4);
        let v6 = (Self::NEAR_V6.into(), Self::FAR_V6.into(), bits_v6);
        std::iter::once(v4).chain(self.has_v6.then_some(v6))
    }

    /// Side `A`.
    pub const fn near(&self) -> &NetNamespace {
        &self.near
    }

    /// Side `B`, where it is a namespace: not of a TAP.
    pub const fn far(&self) -> Option<&NetNamespace> {
        self.far.as_ref()
    }

    /// Runs `work` on this thread inside side `A`: sockets and devices opened there stay there.
    ///
    /// # Errors
    /// As [`NetNamespace::enter`].
    pub fn in_near<R>(&self, work: impl FnOnce() -> R) -> Result<R, LabError> {
        self.near.enter(work)
    }

    /// The same inside side `B`; of a TAP bed, whose far side is no namespace, inside `A`, where the
    /// TAP is.
    ///
    /// # Errors
    /// As [`NetNamespace::enter`].
    pub fn in_far<R>(&self, work: impl FnOnce() -> R) -> Result<R, LabError> {
        self.far.as_ref().unwrap_or(&self.near).enter(work)
    }
}

/// Brings up a device at which Linux has no address and says nothing.
fn bring_up_silent(namespace: &NetNamespace, device: &str, has_v6: bool) -> Result<(), LabError> {
    if has_v6 {
        set_sysctl(namespace, &format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
    }
    let change = InterfaceChange { arp: Some(false), ..InterfaceChange::default() };
    bring_up(namespace, device, &change, [], [])
}

/// Changes a device and brings it up, with addresses of its own and neighbours that it need not ask for.
fn bring_up(
    namespace: &NetNamespace,
    device: &str,
    change: &InterfaceChange,
    own: impl IntoIterator<Item = (IpAddr, u8)>,
    neighbors: impl IntoIterator<Item = (IpAddr, MacAddr)>,
) -> Result<(), LabError> {
    let mut netlink = namespace.netlink()?;
    let index = netlink.interface(device)?.index;
    netlink.change_interface(index, &InterfaceChange { up: Some(true), ..change.clone() })?;
    for (address, prefix_len) in own {
        netlink.add_address(index, address, prefix_len)?;
    }
    for (address, mac) in neighbors {
        netlink.add_neighbor(index, address, mac)?;
    }
    Ok(())
}

/// A namespace whose devices say nothing of their own accord: no router solicitations, no duplicate
/// address detection, no link-local addresses; and which takes packets whatever their way back.
fn quiet_namespace() -> Result<NetNamespace, LabError> {
    let namespace = NetNamespace::new()?;
    for name in ["all", "default"] {
        set_sysctl(&namespace, &format!("ipv4/conf/{name}/rp_filter"), "0")?;
    }
    if !has_v6(&namespace) {
        return Ok(namespace);
    }
    for (name, value) in [
        ("accept_dad", "0"),
        ("dad_transmits", "0"),
        ("router_solicitations", "0"),
        ("accept_ra", "0"),
        ("autoconf", "0"),
        // Linux's Documentation/networking/ip-sysctl.rst: 1 makes no link-local address.
        ("addr_gen_mode", "1"),
        ("disable_ipv6", "0"),
    ] {
        set_sysctl(&namespace, &format!("ipv6/conf/default/{name}"), value)?;
    }
    Ok(namespace)
}

/// Frames that a TAP keeps for whoever reads it: the kernel's 500 are fewer than one burst of TCP.
const TAP_QUEUE_LEN: u32 = 10_000;

/// A link of less carries no IPv6 (RFC 8200 §5), and Linux switches it off there.
const MTU_MIN_V6: u32 = 1280;

/// Whether wires of a bed carry IPv6.
fn carries_v6(namespace: &NetNamespace, options: TestBedOptions) -> bool {
    has_v6(namespace) && options.mtu >= MTU_MIN_V6
}

/// Whether this kernel has IPv6 at all.
fn has_v6(namespace: &NetNamespace) -> bool {
    sysctl(namespace, "ipv6/conf/default/disable_ipv6").is_ok()
}

fn switch_offloads_off(namespace: &NetNamespace, device: &str) -> Result<(), LabError> {
    // Segmentation before what it needs, so that the kernel never has to say no.
    let all = [
        EthtoolOffload::Gro,
        EthtoolOffload::Tso,
        EthtoolOffload::Gso,
        EthtoolOffload::ScatterGather,
        EthtoolOffload::TxChecksum,
        EthtoolOffload::RxChecksum,
    ];
    namespace.set_offloads(device, &all.map(|which| (which, false)))
}

/// Prefixes besides the bed's own that the far side sends through the link: routers in between have
/// addresses there (RFC 5737 and RFC 3849, both for documentation).
const ROUTERS: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 0)), 24),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0x77, 0, 0, 0, 0)), 64),
];

impl TestBed {
    /// Makes the far side stand for everything that is not the near one: side `A` sends all of it there,
    /// and sockets of side `B` may be bound to any address, and hear what is sent to it.
    ///
    /// # Errors
    /// The kernel refuses a route; the bed has no namespace at its far side.
    pub fn route_all_to_far(&self) -> Result<(), LabError> {
        let missing = || LabError::NoDevice { name: Self::FAR_DEVICE.to_owned() };
        let far = self.far().ok_or_else(missing)?;
        let mut near_routes = self.near().netlink()?;
        let mut far_routes = far.netlink()?;
        let near_index = near_routes.interface(Self::NEAR_DEVICE)?.index;
        let far_index = far_routes.interface(Self::FAR_DEVICE)?.index;
        let loopback = far_routes.interface("lo")?.index;
        for (near, far_address, prefix_len) in self.addresses() {
            let (family, everything): (_, IpAddr) = match near {
                IpAddr::V4(_) => ("ipv4", Ipv4Addr::UNSPECIFIED.into()),
                IpAddr::V6(_) => ("ipv6", Ipv6Addr::UNSPECIFIED.into()),
            };
            near_routes.add_route((everything, 0), Some(far_address), near_index)?;
            set_sysctl(far, &format!("{family}/ip_nonlocal_bind"), "1")?;
            let own = (network(near, prefix_len), prefix_len);
            let routers = ROUTERS.into_iter().filter(|(net, _)| net.is_ipv6() == near.is_ipv6());
            for through in std::iter::once(own).chain(routers) {
                far_routes.add_route_before_local(through, far_index)?;
            }
            far_routes.add_local_route((everything, 0), loopback)?;
        }
        Ok(())
    }
}

/// The first address of a network.
fn network(address: IpAddr, prefix_len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// Two hosts and the routers between them.
#[derive(Debug)]
pub struct RouterChain {
    /// From the near end to the far one; two at least.
    hosts: Vec<NetNamespace>,
    has_v6: bool,
}

impl RouterChain {
    /// Routers between two ends at most: each has a network of its own to either side.
    pub const ROUTERS_MAX: u8 = 64;

    /// Makes two hosts with so many routers between them, up, with addresses and routes.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] without the right to make namespaces, [`LabError::TooMany`] where there
    /// are too many: see [`crate::lab::become_root`].
    pub fn new(routers: u8, options: TestBedOptions) -> Result<Self, LabError> {
        let routers = routers.min(Self::ROUTERS_MAX);
        let hosts: Vec<NetNamespace> =
            (0..u16::from(routers) + 2).map(|_| quiet_namespace()).collect::<Result<_, _>>()?;
        let has_v6 = carries_v6(&hosts[0], options);
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
    pub fn near(&self) -> &NetNamespace {
        &self.hosts[0]
    }

    /// The far end.
    pub fn far(&self) -> &NetNamespace {
        self.hosts.last().expect("a chain has two ends")
    }

    /// Those between the ends.
    pub fn routers(&self) -> &[NetNamespace] {
        &self.hosts[1..self.hosts.len() - 1]
    }

    /// Has the wires between routers take packets of no more than so many bytes, while both ends keep their MTU.
    ///
    /// # Errors
    /// The kernel's.
    pub fn narrow_middle(&self, mtu: u32) -> Result<(), LabError> {
        let change = InterfaceChange { mtu: Some(mtu), ..InterfaceChange::default() };
        for pair in self.routers().windows(2) {
            for (router, device) in [(&pair[0], ONWARD), (&pair[1], BACK)] {
                let mut netlink = router.netlink()?;
                let index = netlink.interface(device)?.index;
                netlink.change_interface(index, &change)?;
            }
        }
        Ok(())
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
        first: &NetNamespace,
        second: &NetNamespace,
        wire: u8,
        options: TestBedOptions,
    ) -> Result<(), LabError> {
        let end = |name: &str, side| VethEnd {
            name: name.to_owned(),
            mac: Some(mac(wire, side)),
            mtu: options.mtu,
        };
        let ends = [(first, ONWARD, NEAR, FAR), (second, BACK, FAR, NEAR)];
        first.netlink()?.add_veth(&end(ONWARD, NEAR), &end(BACK, FAR), second)?;
        for (host, device, side, other) in ends {
            // A router asks for a neighbour of version 6 from its link-local address, and it has none.
            let neighbors = addresses(wire, other, self.has_v6).into_iter();
            let neighbors = neighbors.map(|(address, _)| (address, mac(wire, other)));
            let own = addresses(wire, side, self.has_v6);
            bring_up(host, device, &InterfaceChange::default(), own, neighbors)?;
        }
        for (host, device, ..) in ends {
            host.netlink()?.wait_until_running(device)?;
        }
        Ok(())
    }

    /// Everybody knows the way to the networks of both ends; nobody asks for those between.
    fn add_routes(&self, routers: u8) -> Result<(), LabError> {
        let (first, last) = (addresses(0, 0, self.has_v6), addresses(routers, 0, self.has_v6));
        for (host, position) in self.hosts.iter().zip(0u8..) {
            let mut netlink = host.netlink()?;
            // The last wire is its own network to the last router and to the far end.
            if position < routers {
                let index = netlink.interface(ONWARD)?.index;
                let next = addresses(position, FAR, self.has_v6);
                for ((to, bits), (via, _)) in last.iter().copied().zip(next) {
                    netlink.add_route((to, bits), Some(via), index)?;
                }
            }
            if position > 1 {
                let index = netlink.interface(BACK)?.index;
                let previous = addresses(position - 1, NEAR, self.has_v6);
                for ((to, bits), (via, _)) in first.iter().copied().zip(previous) {
                    netlink.add_route((to, bits), Some(via), index)?;
                }
            }
        }
        Ok(())
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

/// The addresses of one side of a wire in the families that it carries, with the bits of their networks.
fn addresses(wire: u8, side: u8, has_v6: bool) -> Vec<(IpAddr, u8)> {
    let (bits_v4, bits_v6) = TestBed::PREFIX_LEN;
    let v6 = has_v6.then(|| (v6(wire, side).into(), bits_v6));
    std::iter::once((v4(wire, side).into(), bits_v4)).chain(v6).collect()
}

/// One host.
#[derive(Debug)]
pub struct LabHost {
    /// Its name.
    pub name: String,
    /// Its number, from 0: its device is at that port of the network.
    pub number: u8,
    /// Where it is.
    pub namespace: NetNamespace,
    has_v6: bool,
}

impl LabHost {
    /// The name of the device of every host.
    pub const DEVICE: &'static str = TestBed::NEAR_DEVICE;
    /// Hosts of one network at most: a byte of their addresses, 0 and 255 excepted.
    pub const COUNT_MAX: usize = 254;

    /// A host of this number, whose device is still to be opened as [`LabHost::DEVICE`] inside; then
    /// [`LabHost::bring_up`].
    ///
    /// # Errors
    /// As [`NetNamespace::new`].
    pub fn new(name: &str, number: u8, options: TestBedOptions) -> Result<Self, LabError> {
        let namespace = quiet_namespace()?;
        let has_v6 = carries_v6(&namespace, options);
        Ok(Self { name: name.to_owned(), number, namespace, has_v6 })
    }

    /// Its addresses, with the bits of their networks: 10.77.0.1 and fd77::1 of the first.
    pub fn addresses(&self) -> Vec<(IpAddr, u8)> {
        addresses(0, self.number + 1, self.has_v6)
    }

    fn mac(&self) -> MacAddr {
        MacAddr([0x02, 0, 0, 0, 0x77, self.number + 1])
    }

    /// Gives its device room for bursts, link address, MTU, addresses, and the others as neighbours, and
    /// brings it up.
    ///
    /// # Errors
    /// [`LabError::NoDevice`] before the device is opened; the kernel refuses a value.
    pub fn bring_up(&self, all: &[Self], options: TestBedOptions) -> Result<(), LabError> {
        let change = InterfaceChange {
            tx_queue_len: Some(TAP_QUEUE_LEN),
            mtu: Some(options.mtu),
            mac: Some(self.mac()),
            ..InterfaceChange::default()
        };
        let others = all.iter().filter(|other| options.neighbors && other.number != self.number);
        let neighbors = others.flat_map(|other| {
            other.addresses().into_iter().map(|(address, _)| (address, other.mac()))
        });
        bring_up(&self.namespace, Self::DEVICE, &change, self.addresses(), neighbors)
    }
}
