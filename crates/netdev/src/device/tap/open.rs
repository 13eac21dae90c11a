//! Opening and adopting a TAP or TUN, and saying what to do where that fails.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use plumb_sys::{fd, interface, tun};
use plumb_wire::machine::{DeviceCapabilities, Medium};

use super::{ReadAhead, TapDevice};
use crate::device::{
    DeviceCounters, DeviceInfo, DeviceOpenError, DeviceOpenFailure, DeviceWait, MTU_MIN_IPV4, vnet,
};
use crate::lab::NetlinkSocket;

/// Longest name of an interface, in bytes: the kernel's IFNAMSIZ and its final zero.
const NAME_MAX: usize = 15;

/// How a TAP or TUN is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// Ethernet makes it a TAP, IP a TUN.
    pub medium: Medium,
    /// How it waits.
    pub wait: DeviceWait,
    /// Checksums and segmentation left to the kernel's side, and by it.
    pub offload: TapOffload,
    /// Largest IP packet; the interface's own where absent, which takes being in its namespace.
    pub mtu: Option<u32>,
}

impl Default for TapOptions {
    fn default() -> Self {
        Self {
            medium: Medium::Ethernet,
            wait: DeviceWait::Block,
            offload: TapOffload::Segments,
            mtu: None,
        }
    }
}

/// What crosses a TAP undone, because both of its sides are memory of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapOffload {
    /// Nothing: no virtio header, each packet complete.
    None,
    /// Checksums.
    Checksum,
    /// Checksums and super-segments, as far as the kernel knows them.
    Segments,
}

impl TapDevice {
    /// Attaches to the interface of this name, which is made if there is none and then vanishes
    /// with the device; a `%d` in the name becomes a number. If the interface is up, this waits until the kernel
    /// has noticed its carrier, a few seconds at most.
    ///
    /// # Errors
    /// Without the driver or the permission, when the interface is taken or of another kind, or
    /// when its MTU is too small.
    pub fn open(name: &str, settings: TapOptions) -> Result<Self, DeviceOpenError> {
        let bad = |c: char| c == '/' || c.is_whitespace() || c == '\0';
        if name.is_empty() || name.len() > NAME_MAX || name.contains(bad) {
            return Err(DeviceOpenError::request(format!(
                "{name:?} is not an interface name; it has 1 to 15 bytes and neither / nor space"
            )));
        }
        let mut netlink = NetlinkSocket::open().ok();
        let found = netlink.as_mut().and_then(|netlink| netlink.interface(name).ok());
        let was_up = found.is_some_and(|link| link.is_up);
        let file = tun::open().map_err(|error| no_driver(&error))?;
        let ethernet = settings.medium == Medium::Ethernet;
        let vnet_header = settings.offload != TapOffload::None;
        let kind = tun::TunMode { ethernet, vnet_header, multi_queue: false };
        let given = tun::attach(file.as_fd(), name, kind)
            .map_err(|source| refused(name, settings.medium, &source))?;
        let device = Self::begin(file, given, vnet_header, settings)?;
        // Opening it gave it a carrier; until the kernel has noticed, it drops what it is to send there.
        if let Some(netlink) = netlink.as_mut().filter(|_| was_up) {
            netlink.wait_until_running(name).ok();
        }
        Ok(device)
    }

    /// Takes over a descriptor that another process has attached, and its kind with it: the
    /// settings' medium does not count, and what is left to the kernel only where the descriptor
    /// has a virtio header.
    ///
    /// # Errors
    /// When it is no TAP or TUN, or its MTU is neither given nor to be found in this namespace.
    pub fn adopt(file: OwnedFd, settings: TapOptions) -> Result<Self, DeviceOpenError> {
        let (name, kind) = tun::attached(file.as_fd()).map_err(|source| {
            DeviceOpenError::refused(format!(
                "the inherited descriptor is not attached to a TAP or TUN: {source}"
            ))
        })?;
        let medium = if kind.ethernet { Medium::Ethernet } else { Medium::Ip };
        Self::begin(file, name, kind.vnet_header, TapOptions { medium, ..settings })
    }

    fn begin(
        file: OwnedFd,
        name: String,
        vnet_header: bool,
        settings: TapOptions,
    ) -> Result<Self, DeviceOpenError> {
        let failed = |what| {
            let name = &name;
            move |source| io_error(what, name, &source)
        };
        let mtu = match settings.mtu {
            Some(mtu) => mtu,
            None => mtu(&name).map_err(|source| {
                DeviceOpenError::refused(format!(
                    "the largest packet of {name} cannot be asked for here ({source}); say it"
                ))
            })?,
        };
        if mtu < MTU_MIN_IPV4 {
            return Err(DeviceOpenError::request(format!(
                "the MTU of {name} is {mtu} bytes, and IPv4 needs {MTU_MIN_IPV4} (RFC 791); \
                 `ip link set {name} mtu 1500`"
            )));
        }
        let mut accepted = 0;
        if vnet_header {
            let size = i32::try_from(vnet::HEADER_LEN).expect("ten");
            tun::set_vnet_header_size(file.as_fd(), size)
                .map_err(failed("set the virtio header of"))?;
            accepted = accept(file.as_fd(), settings.offload)
                .map_err(failed("set what may be left to"))?;
        }
        fd::set_nonblocking(file.as_fd(), settings.wait == DeviceWait::Spin)
            .map_err(failed("set the mode of"))?;
        let has = |all: u32| accepted & all == all;
        let capabilities = DeviceCapabilities {
            checksum_tx: vnet_header,
            segments_tcp: has(tun::OFFLOAD_TSO4 | tun::OFFLOAD_TSO6),
            segments_udp: has(tun::OFFLOAD_USO4 | tun::OFFLOAD_USO6),
            gathers: vnet_header,
            coalesces: accepted != 0,
            ..DeviceCapabilities::plain(settings.medium, mtu)
        };
        Ok(Self {
            fd: file,
            // The interface's own link address is that of the kernel's side.
            info: DeviceInfo { name, capabilities, mac: None },
            wait: settings.wait,
            vnet_header,
            large: has(tun::OFFLOAD_TSO4),
            held: None,
            read_ahead: ReadAhead::default(),
            counters: DeviceCounters::default(),
        })
    }
}

fn no_driver(source: &io::Error) -> DeviceOpenError {
    let message = match source.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "/dev/net/tun may not be opened by this user ({source}); `chmod 666 /dev/net/tun` as root"
        ),
        _ => format!(
            "there is no /dev/net/tun here ({source}); load the driver with `modprobe tun`, or give \
             the container the device (`--device /dev/net/tun`)"
        ),
    };
    DeviceOpenError::new(DeviceOpenFailure::Lacking, message, None)
}

fn io_error(what: &str, name: &str, source: &io::Error) -> DeviceOpenError {
    DeviceOpenError::refused(format!("cannot {what} {name}: {source}"))
}

fn refused(name: &str, medium: Medium, source: &io::Error) -> DeviceOpenError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            let message = format!(
                "attaching to {name} needs CAP_NET_ADMIN; try it in a test bed with `plumb stack lab`, \
                 or let root give you the interface with `ip tuntap add dev {name} mode tap user $USER`"
            );
            DeviceOpenError::new(DeviceOpenFailure::Lacking, message, None)
        }
        io::ErrorKind::ResourceBusy => DeviceOpenError::refused(format!(
            "{name} is in use by another process; end that one, or choose another name"
        )),
        io::ErrorKind::InvalidInput => {
            let kind = if medium == Medium::Ethernet { "TAP" } else { "TUN" };
            DeviceOpenError::request(format!(
                "{name} exists and is not a {kind} of this form; choose another name, or remove it \
                 with `ip link delete {name}`"
            ))
        }
        _ => io_error("attach to", name, source),
    }
}

/// Asks the kernel's side to leave undone as much of what is wanted as it knows; what it took.
fn accept(file: BorrowedFd<'_>, offload: TapOffload) -> io::Result<u32> {
    let tso = tun::OFFLOAD_CHECKSUM | tun::OFFLOAD_TSO4 | tun::OFFLOAD_TSO6;
    let wanted: &[u32] = match offload {
        TapOffload::None => &[0],
        TapOffload::Checksum => &[tun::OFFLOAD_CHECKSUM],
        TapOffload::Segments => &[
            tso | tun::OFFLOAD_TSO_ECN | tun::OFFLOAD_USO4 | tun::OFFLOAD_USO6,
            tso | tun::OFFLOAD_TSO_ECN,
            tso,
            tun::OFFLOAD_CHECKSUM,
        ],
    };
    let mut last = Ok(0);
    for &offloads in wanted {
        match tun::set_offload(file, offloads) {
            Ok(()) => return Ok(offloads),
            Err(error) => last = Err(error),
        }
    }
    last
}

fn mtu(name: &str) -> io::Result<u32> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    interface::mtu(socket.as_fd(), name)
}
