//! Network devices: making, changing, listing and removing them.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, fs, io};

use plumb_clock::monotonic_ns;
use plumb_sys::netlink::{
    ACKNOWLEDGE, CREATE, DUMP, EXCLUSIVE, NetlinkError, NetlinkMessage, NetlinkRequest, REPLACE,
    REQUEST, RouteSocket, attributes, number32, number64, text,
};
use plumb_sys::{interface, namespace, signal, timer};
use plumb_wire::ethernet::MacAddr;

use crate::lab::{LabError, NetNamespace};

pub use plumb_sys::interface::EthtoolOffload;

/// Kinds of message (linux/rtnetlink.h).
const NEW: u16 = 16;
const DELETE: u16 = 17;
const GET: u16 = 18;

/// Attributes of a device (linux/if_link.h).
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const TX_QUEUE_LEN: u16 = 13;
const OPERATION: u16 = 16;
const INFO: u16 = 18;
const STATS64: u16 = 23;
const NAMESPACE_FD: u16 = 28;
const CARRIER: u16 = 33;
/// Of OPERATION: IF_OPER_UP (RFC 2863's ifOperStatus).
const OPERATION_UP: u8 = 6;
/// Inside INFO.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
/// Inside INFO_DATA of a veth (linux/veth.h).
const VETH_PEER: u16 = 1;

/// Flags of a device (netdevice(7)).
const FLAG_UP: u32 = 0x1;
const FLAG_NO_ARP: u32 = 0x80;

/// How long the kernel may take to notice a carrier: it looks once a second at least
/// (net/core/link_watch.c).
pub(super) const WAIT_MAX_NS: u64 = 10_000_000_000;

/// A network device, as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its link address; none where the medium has none.
    pub mac: Option<MacAddr>,
    /// Largest packet, in bytes, without the link header.
    pub mtu: u32,
    /// Whether it was brought up.
    pub is_up: bool,
    /// Whether somebody is at its other end: a virtual Ethernet's that is up, a TAP's that is open.
    pub has_carrier: bool,
    /// Whether the kernel has noticed the carrier. A device that was up before its carrier came loses
    /// what it sends until then; one that came up with its carrier does not.
    pub is_running: bool,
    /// What the kernel counted at it.
    pub stats: InterfaceStats,
}

/// What the kernel counted at a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped on their way out.
    pub tx_dropped: u64,
}

/// One end of a virtual Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethEnd {
    /// At most 15 bytes.
    pub name: String,
    /// Chosen by the kernel where absent.
    pub mac: Option<MacAddr>,
    /// In bytes, without the link header.
    pub mtu: u32,
}

/// What shall be different of a device; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceChange {
    /// Up or down.
    pub up: Option<bool>,
    /// Whether the kernel asks and answers ARP at it.
    pub arp: Option<bool>,
    /// In bytes, without the link header.
    pub mtu: Option<u32>,
    /// Its link address.
    pub mac: Option<MacAddr>,
    /// Frames that may wait at it to be sent; at a TAP, to be read.
    pub tx_queue_len: Option<u32>,
}

/// In the words of ip-link(8), a space before each.
impl fmt::Display for InterfaceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            f.write_str(if up { " up" } else { " down" })?;
        }
        if let Some(arp) = self.arp {
            f.write_str(if arp { " arp on" } else { " arp off" })?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        if let Some(mac) = self.mac {
            write!(f, " address {mac}")?;
        }
        if let Some(len) = self.tx_queue_len {
            write!(f, " txqueuelen {len}")?;
        }
        Ok(())
    }
}

impl NetlinkSocket {
    /// Makes a virtual Ethernet from this namespace into `far_namespace`; both ends are down.
    ///
    /// # Errors
    /// A name is taken (EEXIST) or too long, or the kernel has no veth.
    pub fn add_veth(
        &mut self,
        near: &VethEnd,
        far: &VethEnd,
        far_namespace: &NetNamespace,
    ) -> Result<(), LabError> {
        let mut request =
            NetlinkRequest::new(NEW, REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE, &fixed(0, 0, 0));
        write_end(&mut request, near);
        request.nest(INFO, |info| {
            info.text(INFO_KIND, "veth");
            info.nest(INFO_DATA, |data| {
                data.nest(VETH_PEER, |peer| {
                    peer.raw(&fixed(0, 0, 0));
                    write_end(peer, far);
                    let fd = far_namespace.as_fd().as_raw_fd();
                    peer.attribute(NAMESPACE_FD, &fd.to_ne_bytes());
                });
            });
        });
        self.change(format!("make the virtual Ethernet {}—{}", near.name, far.name), request)
    }

    /// Removes a device; a virtual Ethernet loses its other end with it.
    ///
    /// # Errors
    /// There is none, or it is of a kind that cannot be removed.
    pub fn remove_interface(&mut self, index: u32) -> Result<(), LabError> {
        let request = NetlinkRequest::new(DELETE, REQUEST | ACKNOWLEDGE, &fixed(index, 0, 0));
        self.change(format!("remove network device {index}"), request)
    }

    /// Brings a device up or down.
    ///
    /// # Errors
    /// As [`NetlinkSocket::change_interface`].
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), LabError> {
        self.change_interface(
            index,
            &InterfaceChange { up: Some(up), ..InterfaceChange::default() },
        )
    }

    /// Changes a device.
    ///
    /// # Errors
    /// There is no such device, or it does not take the value.
    pub fn change_interface(
        &mut self,
        index: u32,
        change: &InterfaceChange,
    ) -> Result<(), LabError> {
        let bits = [(change.up, FLAG_UP), (change.arp.map(|arp| !arp), FLAG_NO_ARP)];
        let (mut flags, mut mask) = (0, 0);
        for (wanted, bit) in bits {
            mask |= wanted.map_or(0, |_| bit);
            flags |= if wanted == Some(true) { bit } else { 0 };
        }
        let mut request =
            NetlinkRequest::new(NEW, REQUEST | ACKNOWLEDGE, &fixed(index, flags, mask));
        if let Some(mac) = change.mac {
            request.attribute(ADDRESS, &mac.0);
        }
        if let Some(mtu) = change.mtu {
            request.attribute(MTU, &mtu.to_ne_bytes());
        }
        if let Some(len) = change.tx_queue_len {
            request.attribute(TX_QUEUE_LEN, &len.to_ne_bytes());
        }
        self.change(String::new(), request).map_err(|error| match error {
            LabError::Refused { source, kernel_message, .. } => {
                let what = format!("set network device {index}{change}");
                LabError::InvalidDeviceSetting { what, source, kernel_message }
            }
            error => error,
        })
    }

    /// Every device of this namespace, with its statistics.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn interfaces(&mut self) -> Result<Vec<NetworkInterface>, LabError> {
        let request = NetlinkRequest::new(GET, REQUEST | DUMP, &fixed(0, 0, 0));
        let links = self.exchange("list the network devices", request, read_link)?;
        Ok(links.into_iter().flatten().collect())
    }

    /// The device of a name.
    ///
    /// # Errors
    /// [`LabError::NoDevice`] where there is none.
    pub fn interface(&mut self, name: &str) -> Result<NetworkInterface, LabError> {
        let missing = || LabError::NoDevice { name: name.to_owned() };
        self.interfaces()?.into_iter().find(|link| link.name == name).ok_or_else(missing)
    }

    /// Waits until the kernel has noticed a device's carrier, at most a few seconds; how it was at the
    /// end. A TAP that was opened before it was brought up sends at once and never counts as running.
    ///
    /// # Errors
    /// There is no such device.
    pub fn wait_until_running(&mut self, name: &str) -> Result<NetworkInterface, LabError> {
        self.wait_until(name, |link| link.is_running)
    }

    /// Waits until a device is in a state, at most a few seconds; how it was at the end.
    pub(super) fn wait_until(
        &mut self,
        name: &str,
        is_so: impl Fn(&NetworkInterface) -> bool,
    ) -> Result<NetworkInterface, LabError> {
        let end = monotonic_ns() + WAIT_MAX_NS;
        loop {
            let link = self.interface(name)?;
            if is_so(&link) || monotonic_ns() > end || signal::stop_requests() > 0 {
                return Ok(link);
            }
            timer::sleep_ns(1_000_000);
        }
    }
}

/// Delays without a packet after which a device interrupts at once again.
const DEFERRALS: u32 = 100;

impl NetNamespace {
    /// Switches what a device does by itself on or off, each as `offloads` says. One that the device
    /// does not know is off anyhow, and switching it off is no error.
    ///
    /// # Errors
    /// There is no such device, or it refuses.
    pub fn set_offloads(
        &self,
        device: &str,
        offloads: &[(EthtoolOffload, bool)],
    ) -> Result<(), LabError> {
        let refused =
            |error| LabError::refused(format!("change what {device} does by itself"), error);
        let socket = self.control_socket().map_err(refused)?;
        for &(which, on) in offloads {
            match interface::set_offload(socket.as_fd(), device, which, on) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported && !on => {}
                outcome => outcome.map_err(refused)?,
            }
        }
        Ok(())
    }

    /// For how long a device lets packets wait, after those that it has received, for others to come with them.
    ///
    /// # Errors
    /// There is no such device, or this process may not see the namespace's sysfs.
    pub fn set_interrupt_delay(&self, device: &str, ns: u32) -> Result<(), LabError> {
        let set = || -> io::Result<()> {
            let sysfs = namespace::detached_mount(c"sysfs")?;
            let directory = format!("/proc/self/fd/{}/class/net/{device}", sysfs.as_raw_fd());
            for (name, value) in [("gro_flush_timeout", ns), ("napi_defer_hard_irqs", DEFERRALS)] {
                fs::write(format!("{directory}/{name}"), value.to_string())?;
            }
            Ok(())
        };
        let refused = |error| {
            LabError::refused(format!("delay the interrupts of {device} through sysfs"), error)
        };
        self.enter(set)?.map_err(refused)
    }

    /// Whether a device does something by itself; one that cannot be asked does not.
    ///
    /// # Errors
    /// There is no such device.
    pub fn offload(&self, device: &str, which: EthtoolOffload) -> Result<bool, LabError> {
        let refused = |error| LabError::refused(format!("ask what {device} does by itself"), error);
        let socket = self.control_socket().map_err(refused)?;
        match interface::offload(socket.as_fd(), device, which) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
            answer => answer.map_err(refused),
        }
    }

    /// Any socket of this namespace.
    fn control_socket(&self) -> io::Result<UdpSocket> {
        self.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).map_err(io::Error::other)?
    }
}

/// A struct ifinfomsg.
fn fixed(index: u32, flags: u32, mask: u32) -> [u8; 16] {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&mask.to_ne_bytes());
    fixed
}

fn write_end(request: &mut NetlinkRequest, end: &VethEnd) {
    request.text(NAME, &end.name).attribute(MTU, &end.mtu.to_ne_bytes());
    if let Some(mac) = end.mac {
        request.attribute(ADDRESS, &mac.0);
    }
}

/// A device out of the message that describes it; none where it is not such a message.
fn read_link(message: NetlinkMessage<'_>) -> Option<NetworkInterface> {
    if message.kind != NEW {
        return None;
    }
    let flags = number32(message.body, 8)?;
    let mut link = NetworkInterface {
        index: number32(message.body, 4)?,
        name: String::new(),
        mac: None,
        mtu: 0,
        is_up: flags & FLAG_UP != 0,
        has_carrier: false,
        is_running: false,
        stats: InterfaceStats::default(),
    };
    for (kind, value) in attributes(message.body.get(16..)?) {
        match kind {
            NAME => link.name = text(value),
            ADDRESS => link.mac = <[u8; 6]>::try_from(value).ok().map(MacAddr),
            MTU => link.mtu = number32(value, 0)?,
            CARRIER => link.has_carrier = value.first() == Some(&1),
            OPERATION => link.is_running = value.first() == Some(&OPERATION_UP),
            STATS64 => link.stats = read_stats(value),
            _ => {}
        }
    }
    Some(link)
}

/// A struct rtnl_link_stats64: numbers that a kernel lacks are 0.
fn read_stats(bytes: &[u8]) -> InterfaceStats {
    let word = |index: usize| number64(bytes, index * 8).unwrap_or(0);
    InterfaceStats {
        rx_packets: word(0),
        tx_packets: word(1),
        rx_bytes: word(2),
        tx_bytes: word(3),
        tx_dropped: word(7),
    }
}

/// Kinds of message (linux/rtnetlink.h).
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOR: u16 = 28;

/// RT_TABLE_…, RT_SCOPE_… and RTN_….
const TABLE_MAIN: u8 = 254;
const TABLE_LOCAL: u8 = 255;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_HOST: u8 = 254;
const ROUTE_UNICAST: u8 = 1;
const ROUTE_LOCAL: u8 = 2;

impl NetlinkSocket {
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
        let mut request = NetlinkRequest::new(NEW_ADDRESS, REQUEST | ACKNOWLEDGE | CREATE, &fixed);
        request.attribute(LOCAL, &octets(address)).attribute(ADDRESS, &octets(address));
        self.change(format!("give device {index} the address {address}/{prefix_len}"), request)?;
        if address.is_ipv6() { self.wait_until_address_usable(address) } else { Ok(()) }
    }

    /// Waits until the kernel takes packets for an address as its own, a few seconds at most.
    ///
    /// An IPv6 address is listed at once, and can be bound to; the route that makes packets for it this
    /// host's comes later, from a work queue (`addrconf_dad_work` in net/ipv6/addrconf.c). What
    /// arrives in between is dropped as an error of the address.
    fn wait_until_address_usable(&mut self, address: IpAddr) -> Result<(), LabError> {
        const DESTINATION: u16 = 1;
        let what = || format!("take packets for {address} as this host's own");
        let end = monotonic_ns() + WAIT_MAX_NS;
        loop {
            let mut fixed = [0; 12];
            fixed[..2].copy_from_slice(&[family(address), 128]);
            let mut request = NetlinkRequest::new(GET_ROUTE, REQUEST | ACKNOWLEDGE, &fixed);
            request.attribute(DESTINATION, &octets(address));
            let answer = self.exchange(what(), request, |message| {
                message.kind == NEW_ROUTE && message.body.get(7) == Some(&ROUTE_LOCAL)
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

    /// Sends what is for `to` through a device, to the router `via` where there is one; a prefix of no
    /// bits is the default route.
    ///
    /// # Errors
    /// The router is not reachable, or the device is down (ENETDOWN, ENETUNREACH).
    pub fn add_route(
        &mut self,
        to: (IpAddr, u8),
        via: Option<IpAddr>,
        index: u32,
    ) -> Result<(), LabError> {
        let scope = if via.is_some() { SCOPE_UNIVERSE } else { SCOPE_LINK };
        self.add_table_route(to, via, index, [TABLE_MAIN, scope, ROUTE_UNICAST])
    }

    /// Makes the kernel take packets for `to` as its own, whatever addresses its devices have: with a
    /// prefix of no bits, all that no longer prefix of [`NetlinkSocket::add_route_before_local`] sends on.
    ///
    /// # Errors
    /// There is no such device; the loopback is what it should be.
    pub fn add_local_route(&mut self, to: (IpAddr, u8), loopback: u32) -> Result<(), LabError> {
        self.add_table_route(to, None, loopback, [TABLE_LOCAL, SCOPE_HOST, ROUTE_LOCAL])
    }

    /// Sends what is for `to` through a device before the kernel looks for its own addresses.
    ///
    /// # Errors
    /// There is no such device, or it is down.
    pub fn add_route_before_local(&mut self, to: (IpAddr, u8), index: u32) -> Result<(), LabError> {
        self.add_table_route(to, None, index, [TABLE_LOCAL, SCOPE_LINK, ROUTE_UNICAST])
    }

    fn add_table_route(
        &mut self,
        (destination, prefix_len): (IpAddr, u8),
        via: Option<IpAddr>,
        index: u32,
        [table, scope, kind]: [u8; 3],
    ) -> Result<(), LabError> {
        /// RTPROT_STATIC.
        const STATIC: u8 = 4;
        const DESTINATION: u16 = 1;
        const OUT: u16 = 4;
        const GATEWAY: u16 = 5;
        let scope = if destination.is_ipv6() { SCOPE_UNIVERSE } else { scope };
        let mut fixed = [0; 12];
        fixed[..2].copy_from_slice(&[family(destination), prefix_len]);
        fixed[4..8].copy_from_slice(&[table, STATIC, scope, kind]);
        let flags = REQUEST | ACKNOWLEDGE | CREATE | REPLACE;
        let mut request = NetlinkRequest::new(NEW_ROUTE, flags, &fixed);
        if prefix_len > 0 {
            request.attribute(DESTINATION, &octets(destination));
        }
        if let Some(via) = via {
            request.attribute(GATEWAY, &octets(via));
        }
        request.attribute(OUT, &index.to_ne_bytes());
        self.change(format!("route {destination}/{prefix_len} through device {index}"), request)
    }

    /// Tells the kernel for good which link address a neighbour has: it neither asks nor forgets.
    ///
    /// # Errors
    /// There is no such device, or it has no neighbours.
    pub fn add_neighbor(
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
        let mut request = NetlinkRequest::new(NEW_NEIGHBOR, flags, &fixed);
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

/// A connection to the routing tables of one network namespace.
#[derive(Debug)]
pub struct NetlinkSocket {
    socket: RouteSocket,
}

impl NetlinkSocket {
    /// In the namespace that this thread is in.
    ///
    /// # Errors
    /// The kernel has no rtnetlink, or a filter refuses it.
    pub fn open() -> Result<Self, LabError> {
        let socket = RouteSocket::open(None);
        Ok(Self {
            socket: socket.map_err(|error| LabError::refused("open a routing socket", error))?,
        })
    }

    /// Requests a change and waits until it is made.
    pub(super) fn change(
        &mut self,
        what: impl Into<String>,
        request: NetlinkRequest,
    ) -> Result<(), LabError> {
        self.exchange(what, request, |_| ()).map(drop)
    }

    /// Sends a request; what `read` makes of each message of the answer.
    pub(super) fn exchange<T>(
        &mut self,
        what: impl Into<String>,
        request: NetlinkRequest,
        mut read: impl FnMut(NetlinkMessage<'_>) -> T,
    ) -> Result<Vec<T>, LabError> {
        let mut answers = Vec::new();
        match self.socket.query(request, |message| answers.push(read(message))) {
            Ok(()) => Ok(answers),
            Err(NetlinkError { source, message }) => {
                Err(LabError::Refused { what: what.into(), source, kernel_message: message })
            }
        }
    }
}
