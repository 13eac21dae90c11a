//! Opening and adopting a TAP or TUN, and saying what to do where that fails.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use plumb_sys::{fd, interface, tun};
use plumb_wire::machine::{DeviceCapabilities, Medium};

use super::TapDevice;
use crate::device::{DeviceCounters, DeviceWait, MTU_MIN_IPV4, vnet};

/// Longest name of an interface, in bytes: the kernel's IFNAMSIZ and its final zero.
const NAME_MAX: usize = 15;

/// How a TAP or TUN is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// Ethernet makes it a TAP, IP a TUN.
    pub medium: Medium,
    /// How it waits.
    pub wait: DeviceWait,
    /// What is left to the kernel's side, and by it.
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

/// Why a TAP cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The kernel has no such driver, or this container no such file.
    #[error(
        "there is no /dev/net/tun here ({0}): load the driver with `modprobe tun`, or give the \
         container the device (`--device /dev/net/tun`)"
    )]
    NoDriver(io::Error),
    /// The file's mode forbids it.
    #[error("/dev/net/tun may not be opened by this user ({0}): `chmod 666 /dev/net/tun` as root")]
    Forbidden(io::Error),
    /// CAP_NET_ADMIN is missing.
    #[error(
        "attaching to {0} needs CAP_NET_ADMIN: try it in a test bed with `plumb stack lab`, or let \
         root give you the interface with `ip tuntap add dev {0} mode tap user $USER`"
    )]
    NoPermission(String),
    /// Another process has it.
    #[error("{0} is in use by another process: end that one, or choose another name")]
    Busy(String),
    /// It exists, and is something else.
    #[error(
        "{0} exists and is not {1}: choose another name, or remove it with `ip link delete {0}`"
    )]
    WrongKind(String, &'static str),
    /// No interface can have this name.
    #[error("{0:?} is no name of an interface: those have 1 to 15 bytes and neither / nor space")]
    Name(String),
    /// An inherited descriptor is not attached to a TAP or TUN.
    #[error("the inherited descriptor is not attached to a TAP or TUN: {0}")]
    NotATap(io::Error),
    /// The interface is not in this namespace, and nobody said.
    #[error("the largest packet of {name} cannot be asked for here ({source}): say it")]
    MtuUnknown {
        /// Its name.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Too small for any IP.
    #[error(
        "the MTU of {name} is {mtu} bytes, and IPv4 needs {MTU_MIN_IPV4} (RFC 791): `ip link set \
         {name} mtu 1500`"
    )]
    MtuTooSmall {
        /// Its name.
        name: String,
        /// Its MTU.
        mtu: u32,
    },
    /// The kernel refused.
    #[error("cannot {what} {name}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The interface.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl TapDevice {
    /// Attaches to the interface of this name, which is made if there is none and then vanishes
    /// with the device; a `%d` in the name becomes a number.
    ///
    /// # Errors
    /// Without the driver or the permission, when the interface is taken or of another kind, or
    /// when its MTU is too small.
    pub fn open(name: &str, settings: TapOptions) -> Result<Self, TapError> {
        let bad = |c: char| c == '/' || c.is_whitespace() || c == '\0';
        if name.is_empty() || name.len() > NAME_MAX || name.contains(bad) {
            return Err(TapError::Name(name.to_owned()));
        }
        let file = tun::open().map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => TapError::Forbidden(source),
            _ => TapError::NoDriver(source),
        })?;
        let ethernet = settings.medium == Medium::Ethernet;
        let vnet_header = settings.offload != TapOffload::None;
        let kind = tun::TunMode { ethernet, vnet_header, multi_queue: false };
        let given = tun::attach(file.as_fd(), name, kind)
            .map_err(|source| refused(name, settings.medium, source))?;
        Self::begin(file, given, vnet_header, settings)
    }

    /// Takes over a descriptor that another process has attached, and its kind with it: the
    /// settings' medium does not count, and what is left to the kernel only where the descriptor
    /// has a virtio header.
    ///
    /// # Errors
    /// When it is no TAP or TUN, or its MTU is neither given nor to be found in this namespace.
    pub fn adopt(file: OwnedFd, settings: TapOptions) -> Result<Self, TapError> {
        let (name, kind) = tun::attached(file.as_fd()).map_err(TapError::NotATap)?;
        let medium = if kind.ethernet { Medium::Ethernet } else { Medium::Ip };
        Self::begin(file, name, kind.vnet_header, TapOptions { medium, ..settings })
    }

    fn begin(
        file: OwnedFd,
        name: String,
        vnet_header: bool,
        settings: TapOptions,
    ) -> Result<Self, TapError> {
        let failed =
            |what| move |name: &str, source| TapError::Io { what, name: name.to_owned(), source };
        let mtu = match settings.mtu {
            Some(mtu) => mtu,
            None => {
                mtu(&name).map_err(|source| TapError::MtuUnknown { name: name.clone(), source })?
            }
        };
        if mtu < MTU_MIN_IPV4 {
            return Err(TapError::MtuTooSmall { name, mtu });
        }
        let mut accepted = 0;
        if vnet_header {
            let size = i32::try_from(vnet::HEADER_LEN).expect("ten");
            tun::set_vnet_header_size(file.as_fd(), size)
                .map_err(|e| failed("set the virtio header of")(&name, e))?;
            accepted = accept(file.as_fd(), settings.offload)
                .map_err(|e| failed("set what may be left to")(&name, e))?;
        }
        fd::set_nonblocking(file.as_fd(), settings.wait == DeviceWait::Spin)
            .map_err(|e| failed("set the mode of")(&name, e))?;
        let has = |all: u32| accepted & all == all;
        let capabilities = DeviceCapabilities {
            checksum_tx: vnet_header,
            segments_tcp: has(tun::OFFLOAD_TSO4 | tun::OFFLOAD_TSO6),
            segments_udp: has(tun::OFFLOAD_USO4 | tun::OFFLOAD_USO6),
            coalesces: accepted != 0,
            ..DeviceCapabilities::plain(settings.medium, mtu)
        };
        let counters = DeviceCounters::default();
        Ok(Self {
            fd: file,
            name,
            capabilities,
            wait: settings.wait,
            vnet_header,
            large: has(tun::OFFLOAD_TSO4),
            held: None,
            counters,
        })
    }

    /// Whether the interface outlives this device.
    ///
    /// # Errors
    /// The kernel's: it needs CAP_NET_ADMIN.
    pub fn set_persistent(&self, persistent: bool) -> io::Result<()> {
        tun::set_persistent(self.fd.as_fd(), persistent)
    }

    /// Lets a user attach to it without any capability.
    ///
    /// # Errors
    /// The kernel's: it needs CAP_NET_ADMIN.
    pub fn set_owner(&self, uid: u32) -> io::Result<()> {
        tun::set_owner(self.fd.as_fd(), uid)
    }
}

fn refused(name: &str, medium: Medium, source: io::Error) -> TapError {
    let name = name.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => TapError::NoPermission(name),
        io::ErrorKind::ResourceBusy => TapError::Busy(name),
        io::ErrorKind::InvalidInput if medium == Medium::Ethernet => {
            TapError::WrongKind(name, "a TAP of this form")
        }
        io::ErrorKind::InvalidInput => TapError::WrongKind(name, "a TUN of this form"),
        _ => TapError::Io { what: "attach to", name, source },
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
