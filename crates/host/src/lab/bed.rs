//! Two sides of a wire in one call: `A`, where clients are, and `B`, where somebody answers.
//!
//! The wire is a virtual Ethernet between two namespaces, or a TAP device whose other side a user
//! stack holds. Left out: opening sockets and devices, which whoever needs them does inside.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use plumb_sys::tun;
use plumb_wire::mac::MacAddr;

use super::{LabError, LinkChange, Namespace, Offload, VethEnd, set_sysctl, sysctl};

/// Whether Linux answers at the far end of a virtual Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far {
    /// It has the far addresses and answers as any host does.
    Answers,
    /// It has no address there and says nothing, so that a user stack on a packet socket or an
    /// AF_XDP socket can have them without being contradicted.
    Silent,
}

/// How a bed's wire shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Largest packet, in bytes, without the link header.
    pub mtu: u32,
    /// Whether the kernel leaves checksums open and hands on super-segments, as it does when both
    /// ends are its own. Without, every frame is one that could be on a wire.
    pub offloads: bool,
    /// Whether both sides know each other's link address from the start, and never ask.
    pub neighbours: bool,
}

impl Default for LinkOptions {
    /// MTU 1500, offloads as the kernel has them, neighbours to be asked for.
    fn default() -> Self {
        Self { mtu: 1500, offloads: true, neighbours: false }
    }
}

/// Side `A` with its device, and side `B` where that is Linux's too.
#[derive(Debug)]
pub struct TestBed {
    a: Namespace,
    b: Option<Namespace>,
    options: LinkOptions,
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
    /// The names of the other ends of [`TestBed::veths`]: of the near and of the far device.
    pub const MIDDLE_DEVICES: [&'static str; 2] = ["plumb2", "plumb3"];
    /// The link address of side `A`: locally administered.
    pub const NEAR_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0x77, 1]);
    /// The link address of side `B`: what a user stack there shall use on a TAP.
    pub const FAR_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0x77, 2]);

    /// Two namespaces and a virtual Ethernet between them, up and with addresses.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] without the right to make namespaces: see [`super::become_root`].
    pub fn veth(far: Far, options: LinkOptions) -> Result<Self, LabError> {
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
        let has_v6 = has_v6(&a) && options.mtu >= MTU_MIN_V6;
        let bed = Self { a, b: Some(b), options, has_v6 };
        bed.bring_up_far(far)?;
        bed.bring_up_near()?;
        // The near device was brought up with its other end there, and is ready at once; the far one
        // learns of it.
        if let Some(b) = &bed.b {
            b.netlink()?.wait_until_running(Self::FAR_DEVICE)?;
        }
        Ok(bed)
    }

    /// Side `A` alone, for a TAP device that is still to be opened:
    /// `bed.in_a(|| open(TestBed::NEAR_DEVICE))`, then [`TestBed::bring_up_near`].
    ///
    /// # Errors
    /// As [`TestBed::veth`].
    pub fn tap(options: LinkOptions) -> Result<Self, LabError> {
        let a = quiet_namespace()?;
        let has_v6 = has_v6(&a) && options.mtu >= MTU_MIN_V6;
        Ok(Self { a, b: None, options, has_v6 })
    }

    /// Two namespaces without a wire, for a TAP device in each that are still to be opened, as
    /// [`TestBed::NEAR_DEVICE`] inside `A` and [`TestBed::FAR_DEVICE`] inside `B`; then
    /// [`TestBed::bring_up_taps`]. Whoever holds both is the wire.
    ///
    /// # Errors
    /// As [`TestBed::veth`].
    pub fn taps(options: LinkOptions) -> Result<Self, LabError> {
        let (a, b) = (quiet_namespace()?, quiet_namespace()?);
        let has_v6 = has_v6(&a) && options.mtu >= MTU_MIN_V6;
        Ok(Self { a, b: Some(b), options, has_v6 })
    }

    /// Two namespaces, each with a virtual Ethernet into a third, where whoever holds both other
    /// ends, [`TestBed::MIDDLE_DEVICES`], is the wire between them. Linux says nothing there.
    ///
    /// # Errors
    /// As [`TestBed::veth`].
    pub fn veths(options: LinkOptions) -> Result<(Self, Namespace), LabError> {
        let bed = Self::taps(options)?;
        let middle = quiet_namespace()?;
        let sides = [
            (&bed.a, Self::NEAR_DEVICE, Self::NEAR_MAC),
            (bed.b.as_ref().unwrap_or(&bed.a), Self::FAR_DEVICE, Self::FAR_MAC),
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
        bed.bring_up_far(Far::Answers)?;
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
            (Some(&self.a), Self::NEAR_DEVICE, None),
            (self.b.as_ref(), Self::FAR_DEVICE, Some(Self::FAR_MAC)),
        ];
        for (namespace, name, mac) in sides {
            let Some(namespace) = namespace else { continue };
            let mut netlink = namespace.netlink()?;
            let index = netlink.link(name)?.index;
            let change = LinkChange {
                tx_queue_len: Some(TAP_QUEUE_LEN),
                mtu: Some(self.options.mtu),
                mac,
                ..LinkChange::default()
            };
            netlink.change_link(index, &change)?;
        }
        // Both come up with their carrier there, and are ready at once.
        self.bring_up_far(Far::Answers)?;
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
            let kind = tun::Kind { ethernet: true, ..tun::Kind::default() };
            tun::attach(tap.as_fd(), Self::NEAR_DEVICE, kind)?;
            tun::set_persistent(tap.as_fd(), true)
        };
        self.in_a(make)?.map_err(|error| {
            LabError::refused("make a TAP device ('plumb doctor' says what is missing)", error)
        })
    }

    /// Gives the device of side `A` its link address, MTU, addresses and neighbours, and brings it
    /// up.
    ///
    /// # Errors
    /// [`LabError::NoDevice`] before the TAP is opened; the kernel refuses a value.
    pub fn bring_up_near(&self) -> Result<(), LabError> {
        let mut netlink = self.a.netlink()?;
        let index = netlink.link(Self::NEAR_DEVICE)?.index;
        let change = LinkChange {
            up: Some(true),
            mtu: Some(self.options.mtu),
            mac: Some(Self::NEAR_MAC),
            ..LinkChange::default()
        };
        netlink.change_link(index, &change)?;
        for (near, far, prefix_len) in self.addresses() {
            netlink.add_address(index, near, prefix_len)?;
            if self.options.neighbours {
                netlink.add_neighbour(index, far, Self::FAR_MAC)?;
            }
        }
        Ok(())
    }

    fn bring_up_far(&self, far: Far) -> Result<(), LabError> {
        let Some(b) = &self.b else { return Ok(()) };
        if far == Far::Silent {
            return bring_up_silent(b, Self::FAR_DEVICE, self.has_v6);
        }
        let mut netlink = b.netlink()?;
        let index = netlink.link(Self::FAR_DEVICE)?.index;
        let change = LinkChange { up: Some(true), arp: Some(true), ..LinkChange::default() };
        netlink.change_link(index, &change)?;
        for (near, far, prefix_len) in self.addresses() {
            netlink.add_address(index, far, prefix_len)?;
            if self.options.neighbours {
                netlink.add_neighbour(index, near, Self::NEAR_MAC)?;
            }
        }
        Ok(())
    }

    /// The pairs of addresses of the families that this kernel has: near, far, bits of the prefix.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, IpAddr, u8)> {
        let (bits_v4, bits_v6) = Self::PREFIX_LEN;
        let v4 = (Self::NEAR_V4.into(), Self::FAR_V4.into(), bits_v4);
        let v6 = (Self::NEAR_V6.into(), Self::FAR_V6.into(), bits_v6);
        std::iter::once(v4).chain(self.has_v6.then_some(v6))
    }

    /// Side `A`.
    pub const fn a(&self) -> &Namespace {
        &self.a
    }

    /// Side `B`, where it is a namespace: not of a TAP.
    pub const fn b(&self) -> Option<&Namespace> {
        self.b.as_ref()
    }

    /// Runs `work` on this thread inside side `A`: sockets and devices opened there stay there.
    ///
    /// # Errors
    /// As [`Namespace::enter`].
    pub fn in_a<R>(&self, work: impl FnOnce() -> R) -> Result<R, LabError> {
        self.a.enter(work)
    }

    /// The same inside side `B`; of a TAP bed, whose far side is no namespace, inside `A`, where the
    /// TAP is.
    ///
    /// # Errors
    /// As [`Namespace::enter`].
    pub fn in_b<R>(&self, work: impl FnOnce() -> R) -> Result<R, LabError> {
        self.b.as_ref().unwrap_or(&self.a).enter(work)
    }
}

/// Brings up a device at which Linux has no address and says nothing.
fn bring_up_silent(namespace: &Namespace, device: &str, has_v6: bool) -> Result<(), LabError> {
    if has_v6 {
        set_sysctl(namespace, &format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
    }
    let mut netlink = namespace.netlink()?;
    let index = netlink.link(device)?.index;
    let change = LinkChange { up: Some(true), arp: Some(false), ..LinkChange::default() };
    netlink.change_link(index, &change)
}

/// A namespace whose devices say nothing of their own accord: no router solicitations, no duplicate
/// address detection, no link-local addresses; and which takes packets whatever their way back.
pub(super) fn quiet_namespace() -> Result<Namespace, LabError> {
    let namespace = Namespace::new()?;
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
pub(super) const TAP_QUEUE_LEN: u32 = 10_000;

/// A link of less carries no IPv6 (RFC 8200 §5), and Linux switches it off there.
pub(super) const MTU_MIN_V6: u32 = 1280;

/// Whether this kernel has IPv6 at all.
pub(super) fn has_v6(namespace: &Namespace) -> bool {
    sysctl(namespace, "ipv6/conf/default/disable_ipv6").is_ok()
}

fn switch_offloads_off(namespace: &Namespace, device: &str) -> Result<(), LabError> {
    // Segmentation before what it needs, so that the kernel never has to say no.
    let all = [
        Offload::Gro,
        Offload::Tso,
        Offload::Gso,
        Offload::ScatterGather,
        Offload::TxChecksum,
        Offload::RxChecksum,
    ];
    namespace.set_offloads(device, &all.map(|which| (which, false)))
}
