//! Network devices: making, changing, listing and removing them.
//!
//! Left out: their addresses (`super::address`), and kinds other than virtual Ethernet.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use plumb_sys::ethtool;
pub use plumb_sys::ethtool::Offload;
use plumb_wire::mac::MacAddr;

use crate::clock::monotonic_ns;

use super::message::{Message, Request, attributes, number32, number64, text};
use super::netlink::{ACKNOWLEDGE, CREATE, DUMP, EXCLUSIVE, Netlink, REQUEST};
use super::{LabError, Namespace};

/// Kinds of message (linux/rtnetlink.h).
const NEW: u16 = 16;
const DELETE: u16 = 17;
const ASK: u16 = 18;

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
pub(super) const PATIENCE_NS: u64 = 10_000_000_000;

/// A network device, as it was when it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
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
    pub stats: LinkStats,
}

/// What the kernel counted at a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets received with errors.
    pub rx_errors: u64,
    /// Packets not sent because of errors.
    pub tx_errors: u64,
    /// Packets received and dropped.
    pub rx_dropped: u64,
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
pub struct LinkChange {
    /// Up or down.
    pub up: Option<bool>,
    /// Whether the kernel asks and answers ARP at it.
    pub arp: Option<bool>,
    /// In bytes, without the link header.
    pub mtu: Option<u32>,
    /// Its link address.
    pub mac: Option<MacAddr>,
    /// Its name; most devices must be down for that.
    pub name: Option<String>,
    /// Frames that may wait at it to be sent; at a TAP, to be read.
    pub tx_queue_len: Option<u32>,
}

/// In the words of ip-link(8), a space before each.
impl fmt::Display for LinkChange {
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
        if let Some(name) = &self.name {
            write!(f, " name {name}")?;
        }
        if let Some(len) = self.tx_queue_len {
            write!(f, " txqueuelen {len}")?;
        }
        Ok(())
    }
}

impl Netlink {
    /// Makes a virtual Ethernet from this namespace into `far_namespace`; both ends are down.
    ///
    /// # Errors
    /// A name is taken (EEXIST) or too long, or the kernel has no veth.
    pub fn add_veth(
        &mut self,
        near: &VethEnd,
        far: &VethEnd,
        far_namespace: &Namespace,
    ) -> Result<(), LabError> {
        let mut request =
            Request::new(NEW, REQUEST | ACKNOWLEDGE | CREATE | EXCLUSIVE, &fixed(0, 0, 0));
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
    pub fn remove_link(&mut self, index: u32) -> Result<(), LabError> {
        let request = Request::new(DELETE, REQUEST | ACKNOWLEDGE, &fixed(index, 0, 0));
        self.change(format!("remove network device {index}"), request)
    }

    /// Brings a device up or down.
    ///
    /// # Errors
    /// As [`Netlink::change_link`].
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), LabError> {
        self.change_link(index, &LinkChange { up: Some(up), ..LinkChange::default() })
    }

    /// Changes a device.
    ///
    /// # Errors
    /// There is no such device, or it does not take the value.
    pub fn change_link(&mut self, index: u32, change: &LinkChange) -> Result<(), LabError> {
        let bits = [(change.up, FLAG_UP), (change.arp.map(|arp| !arp), FLAG_NO_ARP)];
        let (mut flags, mut mask) = (0, 0);
        for (wanted, bit) in bits {
            mask |= wanted.map_or(0, |_| bit);
            flags |= if wanted == Some(true) { bit } else { 0 };
        }
        let mut request = Request::new(NEW, REQUEST | ACKNOWLEDGE, &fixed(index, flags, mask));
        if let Some(name) = &change.name {
            request.text(NAME, name);
        }
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
            LabError::Refused { source, said, .. } => {
                let what = format!("set network device {index}{change}");
                LabError::NotTaken { what, source, said }
            }
            error => error,
        })
    }

    /// Moves a device to another namespace, where it is down and has no addresses.
    ///
    /// # Errors
    /// There is no such device, it must not move (the loopback), or its name is taken there.
    pub fn move_link(&mut self, index: u32, to: &Namespace) -> Result<(), LabError> {
        let mut request = Request::new(NEW, REQUEST | ACKNOWLEDGE, &fixed(index, 0, 0));
        request.attribute(NAMESPACE_FD, &to.as_fd().as_raw_fd().to_ne_bytes());
        self.change(format!("move network device {index} to another namespace"), request)
    }

    /// Every device of this namespace, with its statistics.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn links(&mut self) -> Result<Vec<Link>, LabError> {
        let request = Request::new(ASK, REQUEST | DUMP, &fixed(0, 0, 0));
        let links = self.exchange("list the network devices", request, read_link)?;
        Ok(links.into_iter().flatten().collect())
    }

    /// The device of a name.
    ///
    /// # Errors
    /// [`LabError::NoDevice`] where there is none.
    pub fn link(&mut self, name: &str) -> Result<Link, LabError> {
        let missing = || LabError::NoDevice { name: name.to_owned() };
        self.links()?.into_iter().find(|link| link.name == name).ok_or_else(missing)
    }

    /// Waits until the kernel has noticed a device's carrier, at most a few seconds; how it was at the
    /// end. A TAP that was opened before it was brought up sends at once and never counts as running.
    ///
    /// # Errors
    /// There is no such device.
    pub fn wait_until_running(&mut self, name: &str) -> Result<Link, LabError> {
        let end = monotonic_ns() + PATIENCE_NS;
        loop {
            let link = self.link(name)?;
            if link.is_running || monotonic_ns() > end {
                return Ok(link);
            }
            std::thread::yield_now();
        }
    }
}

impl Namespace {
    /// Switches what a device does by itself on or off, each as `offloads` says. One that the device
    /// does not know is off anyhow, and switching it off is no error.
    ///
    /// # Errors
    /// There is no such device, or it refuses.
    pub fn set_offloads(&self, device: &str, offloads: &[(Offload, bool)]) -> Result<(), LabError> {
        let refused =
            |error| LabError::refused(format!("change what {device} does by itself"), error);
        let name = CString::new(device).map_err(|error| refused(error.into()))?;
        let socket = self.control_socket().map_err(refused)?;
        for &(which, on) in offloads {
            match ethtool::set_offload(socket.as_fd(), &name, which, on) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported && !on => {}
                outcome => outcome.map_err(refused)?,
            }
        }
        Ok(())
    }

    /// Whether a device does something by itself; one that cannot be asked does not.
    ///
    /// # Errors
    /// There is no such device.
    pub fn offload(&self, device: &str, which: Offload) -> Result<bool, LabError> {
        let refused = |error| LabError::refused(format!("ask what {device} does by itself"), error);
        let name = CString::new(device).map_err(|error| refused(error.into()))?;
        let socket = self.control_socket().map_err(refused)?;
        match ethtool::offload(socket.as_fd(), &name, which) {
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

fn write_end(request: &mut Request, end: &VethEnd) {
    request.text(NAME, &end.name).attribute(MTU, &end.mtu.to_ne_bytes());
    if let Some(mac) = end.mac {
        request.attribute(ADDRESS, &mac.0);
    }
}

/// A device out of the message that describes it; none where it is not such a message.
fn read_link(message: Message<'_>) -> Option<Link> {
    if message.kind != NEW {
        return None;
    }
    let flags = number32(message.body, 8)?;
    let mut link = Link {
        index: number32(message.body, 4)?,
        name: String::new(),
        mac: None,
        mtu: 0,
        is_up: flags & FLAG_UP != 0,
        has_carrier: false,
        is_running: false,
        stats: LinkStats::default(),
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
fn read_stats(bytes: &[u8]) -> LinkStats {
    let word = |index: usize| number64(bytes, index * 8).unwrap_or(0);
    LinkStats {
        rx_packets: word(0),
        tx_packets: word(1),
        rx_bytes: word(2),
        tx_bytes: word(3),
        rx_errors: word(4),
        tx_errors: word(5),
        rx_dropped: word(6),
        tx_dropped: word(7),
    }
}
