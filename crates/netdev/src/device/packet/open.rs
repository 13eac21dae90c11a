//! Opening a packet socket, and what can stand in the way.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use plumb_base::time::Span;
use plumb_sys::interface;
use plumb_sys::packet_socket::{self, PacketMembership, PacketOption, ReceiveRing, RingShape};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::packet::LARGE_FRAME;

use super::{DeviceCounters, DeviceWait, PacketDevice, vnet};

/// How frames come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketReceiveMode {
    /// The kernel copies them into a mapped ring; spinning on it takes no call.
    Ring,
    /// One call each, which also waits.
    Calls,
}

/// How to open a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// How it waits.
    pub wait: DeviceWait,
    /// How frames come in; by calls when it blocks and from a ring when it spins, when absent.
    pub receive: Option<PacketReceiveMode>,
    /// Slots of the ring.
    pub slots: u32,
    /// Whether to accept frames to other stations' addresses: needed where the stack has an
    /// address of its own.
    pub promiscuous: bool,
    /// Whether to send past the queueing discipline, straight to the driver.
    pub bypass: bool,
}

impl Default for PacketOptions {
    /// Blocking, 1,024 slots, its own address only, past the queueing discipline.
    fn default() -> Self {
        Self {
            wait: DeviceWait::Block,
            receive: None,
            slots: 1_024,
            promiscuous: false,
            bypass: true,
        }
    }
}

/// Why a packet socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketOpenError {
    /// There is no such interface in this namespace.
    #[error(
        "there is no network interface `{0}` here; `ip link` lists those there are, and `plumb stack lab` makes a pair to try"
    )]
    NoInterface(String),
    /// The interface is down.
    #[error("the interface {0} is down; bring it up: ip link set {0} up")]
    Down(String),
    /// It carries neither Ethernet frames nor bare IP packets.
    #[error(
        "the interface {name} carries neither Ethernet nor bare IP (its ARPHRD type is {kind}); choose another"
    )]
    UnsupportedLinkType {
        /// The interface.
        name: String,
        /// ARPHRD_….
        kind: u16,
    },
    /// Not allowed.
    #[error(
        "a packet socket needs the capability CAP_NET_RAW; run as root, or inside `plumb stack lab`"
    )]
    Permission(#[source] io::Error),
    /// The kernel has none.
    #[error("this kernel has no packet sockets (CONFIG_PACKET); use a TAP device instead")]
    Unsupported(#[source] io::Error),
    /// A descriptor that was handed over is not a bound packet socket.
    #[error("the descriptor handed over is not a packet socket bound to an interface")]
    NotASocket,
    /// Something else.
    #[error("cannot {what} the packet socket on {name}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The interface.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl PacketDevice {
    /// A packet socket on an interface of this thread's network namespace.
    ///
    /// # Errors
    /// See [`PacketOpenError`].
    pub fn open(interface: &str, options: &PacketOptions) -> Result<Self, PacketOpenError> {
        let fd = packet_socket::open().map_err(|error| match error.raw_os_error() {
            // EAFNOSUPPORT
            Some(97) => PacketOpenError::Unsupported(error),
            _ if error.kind() == io::ErrorKind::PermissionDenied => {
                PacketOpenError::Permission(error)
            }
            _ => io_error("open", interface, error),
        })?;
        let index = interface::index(fd.as_fd(), interface)
            .map_err(|_| PacketOpenError::NoInterface(interface.to_owned()))?;
        Self::configure(fd, index, interface.to_owned(), options)
    }

    /// The same of a packet socket that was opened and bound by another process, perhaps in another
    /// namespace.
    ///
    /// # Errors
    /// See [`PacketOpenError`].
    pub fn adopt(fd: OwnedFd, options: &PacketOptions) -> Result<Self, PacketOpenError> {
        let index = packet_socket::bound(fd.as_fd()).map_err(|_| PacketOpenError::NotASocket)?;
        let name = interface::name(fd.as_fd(), index).map_err(|_| PacketOpenError::NotASocket)?;
        Self::configure(fd, index, name, options)
    }

    fn configure(
        fd: OwnedFd,
        index: u32,
        name: String,
        options: &PacketOptions,
    ) -> Result<Self, PacketOpenError> {
        let socket = fd.as_fd();
        let ask = |source| io_error("inspect", &name, source);
        if !interface::is_up(socket, &name).map_err(ask)? {
            return Err(PacketOpenError::Down(name));
        }
        let mtu = interface::mtu(socket, &name).map_err(ask)?;
        let hardware = interface::hardware_address(socket, &name).map_err(ask)?;
        let medium = match hardware.kind {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => Medium::Ethernet,
            ARPHRD_NONE => Medium::Ip,
            kind => return Err(PacketOpenError::UnsupportedLinkType { name, kind }),
        };
        let set = |what| {
            let name = name.clone();
            move |source| PacketOpenError::Io { what, name, source }
        };
        packet_socket::set_option(socket, PacketOption::IgnoreOutgoing, 1)
            .map_err(set("make deaf to its own machine"))?;
        packet_socket::set_option(socket, PacketOption::VnetHeader, 1)
            .map_err(set("ask for virtio headers on"))?;
        packet_socket::set_auxiliary_data(socket).map_err(set("ask for VLAN tags on"))?;
        packet_socket::set_option(socket, PacketOption::QdiscBypass, options.bypass.into())
            .map_err(set("configure"))?;
        let ring = match options.receive.unwrap_or(by_wait(options.wait)) {
            PacketReceiveMode::Calls => None,
            PacketReceiveMode::Ring => {
                packet_socket::set_option(socket, PacketOption::CopyThreshold, 1)
                    .map_err(set("configure"))?;
                let ring = ReceiveRing::new(socket, ring_shape(options.slots, mtu));
                Some(ring.map_err(set("make a ring for"))?)
            }
        };
        packet_socket::join(socket, index, PacketMembership::AllMulticast)
            .map_err(set("ask for multicast on"))?;
        if options.promiscuous {
            packet_socket::join(socket, index, PacketMembership::Promiscuous)
                .map_err(set("ask for every frame on"))?;
        }
        packet_socket::bind(socket, index).map_err(set("bind"))?;
        let mac = (hardware.kind == ARPHRD_ETHER).then_some(MacAddr(hardware.address));
        Ok(Self {
            name,
            capabilities: DeviceCapabilities {
                checksum_tx: true,
                segments_tcp: true,
                segments_udp: kernel_cuts_udp(),
                coalesces: true,
                ..DeviceCapabilities::plain(medium, mtu)
            },
            mac,
            wait: options.wait,
            ring,
            overflow: vec![0; LARGE_FRAME + vnet::HEADER_LEN].into_boxed_slice(),
            kept: None,
            skip_next_call: false,
            receive_timeout: Span::ZERO,
            bypass: (options.bypass, options.bypass),
            counters: DeviceCounters::default(),
            kernel_drops: Cell::new(0),
            fd,
        })
    }
}

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
const ARPHRD_NONE: u16 = 0xfffe;

fn io_error(what: &'static str, name: &str, source: io::Error) -> PacketOpenError {
    PacketOpenError::Io { what, name: name.to_owned(), source }
}

/// What makes the fewest calls.
fn by_wait(wait: DeviceWait) -> PacketReceiveMode {
    match wait {
        DeviceWait::Block => PacketReceiveMode::Calls,
        DeviceWait::Poll(_) | DeviceWait::Spin => PacketReceiveMode::Ring,
    }
}

/// Slots for a frame of the MTU with its headers, up to jumbo frames; what is longer is queued.
fn ring_shape(slots: u32, mtu: u32) -> RingShape {
    /// The kernel's header, its address, alignment, a virtio header, Ethernet with two tags.
    const OVERHEAD: u32 = 128;
    const BLOCK: u32 = 65_536;
    let slot_size = (mtu.min(9_216) + OVERHEAD).next_power_of_two().max(2_048);
    let block_slots = BLOCK / slot_size;
    RingShape { slot_size, block_slots, blocks: slots.div_ceil(block_slots).max(1) }
}

/// Whether the kernel takes UDP super-segments with a virtio header: since Linux 6.2.
fn kernel_cuts_udp() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release.split('.').map_while(|part| part.trim().parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_the_slots_asked_for_and_each_holds_a_frame_of_the_mtu() {
        for (slots, mtu) in [(1_024, 1_500), (1, 68), (100, 9_000), (64, 65_536)] {
            let shape = ring_shape(slots, mtu);
            assert!(shape.block_slots * shape.blocks >= slots, "{shape:?}");
            assert!(shape.slot_size.is_power_of_two());
            assert!(shape.slot_size >= mtu.min(9_216) + 100, "{shape:?}");
        }
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named_in_the_error_with_the_fix() {
        match PacketDevice::open("nosuch0", &PacketOptions::default()).unwrap_err() {
            error @ PacketOpenError::NoInterface(_) => {
                let text = error.to_string();
                assert!(text.contains("nosuch0") && text.contains("ip link"), "{text}");
            }
            PacketOpenError::Permission(_) => {}
            other => panic!("{other}"),
        }
    }
}
