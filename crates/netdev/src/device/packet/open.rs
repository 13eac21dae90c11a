//! Opening a packet socket, and what can stand in the way.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;

use plumb_base::time::Span;
use plumb_sys::interface;
use plumb_sys::packet_socket::{self, PacketMembership, PacketOption, ReceiveRing, RingShape};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Medium};
use plumb_wire::packet::LARGE_FRAME;

use super::{DeviceCounters, DeviceInfo, DeviceWait, PacketDevice, vnet};
use crate::device::{DeviceOpenError, DeviceOpenFailure};

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

impl PacketDevice {
    /// A packet socket on an interface of this thread's network namespace.
    ///
    /// # Errors
    /// See [`DeviceOpenError`].
    pub fn open(interface: &str, options: &PacketOptions) -> Result<Self, DeviceOpenError> {
        let fd = packet_socket::open().map_err(|error| not_opened(interface, error))?;
        let socket = fd.as_fd();
        let name = interface.to_owned();
        let index =
            interface::index(socket, &name).map_err(|_| DeviceOpenError::no_interface(&name))?;
        let failed = |what| {
            let name = &name;
            move |source| io_error(what, name, &source)
        };
        if !interface::is_up(socket, &name).map_err(failed("inspect"))? {
            return Err(DeviceOpenError::interface_down(&name));
        }
        let mtu = interface::mtu(socket, &name).map_err(failed("inspect"))?;
        let hardware = interface::hardware_address(socket, &name).map_err(failed("inspect"))?;
        let medium = match hardware.kind {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => Medium::Ethernet,
            ARPHRD_NONE => Medium::Ip,
            kind => {
                return Err(DeviceOpenError::request(format!(
                    "the interface {name} carries neither Ethernet nor bare IP (its ARPHRD type is \
                     {kind}); choose another"
                )));
            }
        };
        packet_socket::set_option(socket, PacketOption::IgnoreOutgoing, 1)
            .map_err(failed("keep outgoing frames out of"))?;
        packet_socket::set_option(socket, PacketOption::VnetHeader, 1)
            .map_err(failed("enable virtio headers on"))?;
        packet_socket::set_auxiliary_data(socket).map_err(failed("enable VLAN tags on"))?;
        packet_socket::set_option(socket, PacketOption::QdiscBypass, options.bypass.into())
            .map_err(failed("configure"))?;
        let ring = match options.receive.unwrap_or(by_wait(options.wait)) {
            PacketReceiveMode::Calls => None,
            PacketReceiveMode::Ring => {
                packet_socket::set_option(socket, PacketOption::CopyThreshold, 1)
                    .map_err(failed("configure"))?;
                let ring = ReceiveRing::new(socket, ring_shape(options.slots, mtu));
                Some(ring.map_err(failed("make a ring for"))?)
            }
        };
        packet_socket::join(socket, index, PacketMembership::AllMulticast)
            .map_err(failed("enable multicast on"))?;
        if options.promiscuous {
            packet_socket::join(socket, index, PacketMembership::Promiscuous)
                .map_err(failed("enable promiscuous mode on"))?;
        }
        packet_socket::bind(socket, index).map_err(failed("bind"))?;
        let mac = (hardware.kind == ARPHRD_ETHER).then_some(MacAddr(hardware.address));
        let capabilities = DeviceCapabilities {
            checksum_tx: true,
            segments_tcp: true,
            segments_udp: kernel_cuts_udp(),
            coalesces: true,
            ..DeviceCapabilities::plain(medium, mtu)
        };
        Ok(Self {
            info: DeviceInfo { name, capabilities, mac },
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

fn io_error(what: &str, name: &str, source: &io::Error) -> DeviceOpenError {
    DeviceOpenError::refused(format!("cannot {what} the packet socket on {name}: {source}"))
}

fn not_opened(name: &str, source: io::Error) -> DeviceOpenError {
    const EAFNOSUPPORT: i32 = 97;
    let message = match source.raw_os_error() {
        Some(EAFNOSUPPORT) => {
            "this kernel has no packet sockets (CONFIG_PACKET); use a TAP device instead"
        }
        _ if source.kind() == io::ErrorKind::PermissionDenied => {
            "a packet socket needs the capability CAP_NET_RAW; run as root, or inside `plumb stack lab`"
        }
        _ => return io_error("open", name, &source),
    };
    DeviceOpenError::new(DeviceOpenFailure::Lacking, message, Some(source))
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
        let error = PacketDevice::open("nosuch0", &PacketOptions::default()).unwrap_err();
        let text = error.to_string();
        let is_named = text.contains("nosuch0") && text.contains("ip link");
        assert!(is_named || error.failure == DeviceOpenFailure::Lacking, "{text}");
    }
}
