//! The two sides of a mirror's test bed, made by the worker: the client's socket here, and what the mirror's
//! process takes over there.
//!
//! Left out: namespaces and devices as such (`plumb_netdev::lab`).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};

use plumb_netdev::device::tap::TapDevice;
use plumb_netdev::lab::{FarEndMode, LabError, TestBed, TestBedOptions, become_root};
use plumb_wire::ethernet::MacAddr;

use crate::channel::{IoResultExt as _, OpenError};
use crate::spec::{MirrorDevice, MirrorSpec};

/// UDP port of the echo service (RFC 862), where every mirror answers.
const PORT: u16 = 7;

/// A user stack's own link address, where it must not be the device's: the kernel drops frames to
/// another host's address at its first look.
const STACK_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0x77, 3]);

/// A test bed with a client in it. Its namespaces last as long as the client's socket or what the
/// mirror took over.
#[derive(Debug)]
pub(super) struct MirrorTestBed {
    /// What the mirror takes over.
    pub(super) handover: Vec<OwnedFd>,
    pub(super) interface: String,
    pub(super) mac: MacAddr,
    pub(super) client_mac: MacAddr,
    pub(super) mirror_address: SocketAddr,
    pub(super) client_address: SocketAddr,
    pub(super) client: Option<UdpSocket>,
    pub(super) facts: BTreeMap<String, String>,
}

/// Makes the bed that a mirror needs.
pub(super) fn make(mirror: &MirrorSpec) -> Result<MirrorTestBed, OpenError> {
    if mirror.device == MirrorDevice::Memory {
        return Ok(memory());
    }
    become_root().map_err(unavailable)?;
    let options = TestBedOptions { offloads: mirror.offloads, ..TestBedOptions::default() };
    let kernel_mac = TestBed::FAR_MAC;
    let (bed, mac) = match mirror.device {
        MirrorDevice::Tap => (TestBed::tap(options).map_err(unavailable)?, kernel_mac),
        MirrorDevice::Veth => {
            (TestBed::veth(FarEndMode::Answers, options).map_err(unavailable)?, kernel_mac)
        }
        _ => {
            let mac = if mirror.contended { kernel_mac } else { STACK_MAC };
            (TestBed::veth(FarEndMode::Silent, options).map_err(unavailable)?, mac)
        }
    };
    let (near, far): (IpAddr, IpAddr) = if mirror.ipv6 {
        (TestBed::NEAR_V6.into(), TestBed::FAR_V6.into())
    } else {
        (TestBed::NEAR_V4.into(), TestBed::FAR_V4.into())
    };
    let mirror_address = SocketAddr::new(far, PORT);
    let handover = handover(&bed, mirror, mirror_address)?;
    if mirror.device == MirrorDevice::Tap {
        bed.bring_up_near().map_err(unavailable)?;
    }
    let client = bed.in_near(|| UdpSocket::bind(SocketAddr::new(near, 0))).map_err(unavailable)?;
    let client = client.attempt("bind the client's socket")?;
    client.connect(mirror_address).attempt("connect the client to the mirror")?;
    let client_address = client.local_addr().attempt("ask for the client's address")?;
    let facts = BTreeMap::from([
        ("mtu".to_owned(), options.mtu.to_string()),
        ("offloads".to_owned(), if options.offloads { "on" } else { "off" }.to_owned()),
    ]);
    Ok(MirrorTestBed {
        handover,
        interface: TestBed::FAR_DEVICE.to_owned(),
        mac,
        client_mac: TestBed::NEAR_MAC,
        mirror_address,
        client_address,
        client: Some(client),
        facts,
    })
}

/// Nothing but addresses, which the frames in memory bear.
fn memory() -> MirrorTestBed {
    let at = |address: Ipv4Addr, port| SocketAddr::new(address.into(), port);
    MirrorTestBed {
        handover: Vec::new(),
        interface: String::new(),
        mac: TestBed::FAR_MAC,
        client_mac: TestBed::NEAR_MAC,
        mirror_address: at(TestBed::FAR_V4, PORT),
        client_address: at(TestBed::NEAR_V4, 40_000),
        client: None,
        facts: BTreeMap::new(),
    }
}

/// What the mirror's process gets: a TAP, a bound socket, or the namespace to open its own in.
fn handover(
    bed: &TestBed,
    mirror: &MirrorSpec,
    address: SocketAddr,
) -> Result<Vec<OwnedFd>, OpenError> {
    let duplicate = |fd: std::os::fd::BorrowedFd<'_>| {
        fd.try_clone_to_owned().attempt("duplicate a descriptor for the mirror")
    };
    match mirror.device {
        MirrorDevice::Veth => {
            let socket = bed.in_far(|| UdpSocket::bind(address)).map_err(unavailable)?;
            Ok(vec![socket.attempt("bind the mirror's socket")?.into()])
        }
        MirrorDevice::Tap => {
            let settings = mirror.tap_settings();
            let tap = bed
                .in_near(|| TapDevice::open(TestBed::NEAR_DEVICE, settings))
                .map_err(unavailable)?;
            let tap = tap.map_err(|error| OpenError::Unavailable(error.to_string()))?;
            Ok(vec![duplicate(tap.as_fd())?])
        }
        MirrorDevice::Packet | MirrorDevice::Xdp => {
            let namespace = bed.far().ok_or_else(|| OpenError::Io {
                what: "find the mirror's namespace",
                source: io::Error::from(io::ErrorKind::NotFound),
            })?;
            Ok(vec![duplicate(namespace.as_fd())?])
        }
        MirrorDevice::Memory => Ok(Vec::new()),
    }
}

/// A bed that cannot be made is a result with its reason.
#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
fn unavailable(error: LabError) -> OpenError {
    OpenError::Unavailable(error.to_string())
}
