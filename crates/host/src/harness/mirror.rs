//! Mirrors: a stack that returns every datagram, timed from outside by a client of the kernel's.
//!
//! The worker makes the two-namespace test bed, holds the client's socket, and does the timing; the
//! peer, a fresh process, holds the stack. Left out: the stacks, which the programs that serve a mirror bring
//! along (`peer`), except the kernel's own (`linux`).

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use plumb_sys::fd;
use plumb_sys::socket::{self, Kind};
use plumb_wire::medium::Medium;

use super::bench::Bench;
use super::control::{AttachMirror, Control, PeerToWorker, WorkerToPeer};
use super::page::Page;
use super::partner::Peer;
use super::spec::{
    ChannelSpec, LaunchFacts, LaunchSpec, MirrorDevice, MirrorSpec, MirrorStack, SocketOptions,
    WorkerSays,
};
use super::worker::{PATIENCE_LOSSY_TICKS, Talk, start_peer};
use crate::device::{Wait, tap};
use crate::local::mechanism::{Mechanism, Wake};
use crate::local::{Attempt as _, Ground, OpenError, Setup, UdpEnd, Watch};

pub mod frame;
mod linux;
pub mod peer;
mod replay;
mod site;

/// Name of the program beside this one that mirrors with smoltcp.
const SMOLTCP_PROGRAM: &str = "plumb-mirror-smoltcp";

impl MirrorSpec {
    /// A name for messages and records: `plumb over tap`.
    pub fn name(&self) -> String {
        format!("{} over {}", self.stack.name(), self.device.name())
    }
}

impl MirrorSpec {
    /// How the TAP of a mirror is opened, by the worker that makes it and by the mirror that adopts it.
    pub fn tap_settings(&self) -> tap::Settings {
        tap::Settings {
            medium: Medium::Ethernet,
            wait: self.wait(),
            offload: if self.offloads { tap::Offload::Checksum } else { tap::Offload::None },
            mtu: Some(1500),
        }
    }

    /// How its device waits.
    pub fn wait(&self) -> Wait {
        match self.wake {
            Wake::Spin => Wait::Spin,
            _ => Wait::Block,
        }
    }
}

impl MirrorStack {
    /// Every stack.
    pub const ALL: [Self; 3] = [Self::Linux, Self::Plumb, Self::Smoltcp];

    /// The name used in plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Plumb => "plumb",
            Self::Smoltcp => "smoltcp",
        }
    }

    /// The stack of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stack| stack.name() == name)
    }
}

impl MirrorDevice {
    /// Every device.
    pub const ALL: [Self; 5] = [Self::Veth, Self::Tap, Self::Packet, Self::Xdp, Self::Memory];

    /// The name used in plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Tap => "tap",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Memory => "memory",
        }
    }

    /// The device of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|device| device.name() == name)
    }
}

/// A worker's whole launch of a mirror.
pub(super) fn work(spec: &LaunchSpec, mirror: &MirrorSpec, mut talk: Talk) -> io::Result<()> {
    let (client, mut peer) = match open(spec, mirror) {
        Ok(opened) => opened,
        Err(OpenError::Unavailable(reason)) => return talk.say(&WorkerSays::Unavailable(reason)),
        Err(error) => return talk.say(&WorkerSays::Failed(error.to_string())),
    };
    let facts = std::mem::take(&mut peer.facts);
    talk.say(&WorkerSays::Ready(LaunchFacts { facts }))?;
    match client {
        Some((end, channel)) => {
            let mut bench = Bench::new(end, &mut peer, spec, &channel);
            talk.serve(|block| bench.measure(block))?;
        }
        None => talk.serve(|block| replay::measure(&mut peer, spec, block))?,
    }
    // A peer that is gone already has quit.
    drop(peer.say(WorkerToPeer::Quit));
    peer.wait()
}

type Client = Option<(UdpEnd, ChannelSpec)>;

/// Makes the test bed, connects the client through it, and starts the mirror.
fn open(spec: &LaunchSpec, mirror: &MirrorSpec) -> Result<(Client, Peer), OpenError> {
    let (page, page_fd) = Page::create().attempt("share a page with the mirror")?;
    let (own, theirs) = socket::pair(Kind::Stream).attempt("make a socket to the mirror")?;
    let watch_fd = own.try_clone().attempt("duplicate a socket")?;
    let watch = Watch::new(Arc::new(watch_fd), PATIENCE_LOSSY_TICKS, None);
    let bed = site::make(mirror)?;
    let fds: Vec<&OwnedFd> = bed.handover.iter().collect();
    for fd in fds.iter().copied().chain([&page_fd, &theirs]) {
        fd::set_inheritable(fd.as_fd(), true).attempt("hand a descriptor over")?;
    }
    let child = start_peer(&program(mirror.stack)?, "__mirror", &theirs)
        .attempt("start the mirror's process")?;
    let attach = WorkerToPeer::AttachMirror(AttachMirror {
        mirror: mirror.clone(),
        fds: fds.iter().map(|fd| fd.as_raw_fd()).collect(),
        interface: bed.interface.clone(),
        mac: bed.mac.0,
        client_mac: bed.client_mac.0,
        local: bed.mirror_address,
        client: bed.client_address,
        page_fd: page_fd.as_raw_fd(),
        cpu: spec.cpu_peer,
        ticks_per_ns: spec.ticks_per_ns,
        seed: spec.seed,
    });
    drop((page_fd, theirs));
    let mut peer = Peer::new(Control::new(own), page, child);
    let broken = |source| OpenError::Io { what: "hand the test bed to the mirror", source };
    match peer.say(attach).and_then(|()| peer.hear()).map_err(broken)? {
        PeerToWorker::Attached => {}
        PeerToWorker::Unavailable(reason) => return Err(OpenError::Unavailable(reason)),
        PeerToWorker::Failed(reason) => return Err(broken(io::Error::other(reason))),
        PeerToWorker::Armed | PeerToWorker::Done(_) => {
            return Err(broken(io::Error::from(io::ErrorKind::InvalidData)));
        }
    }
    peer.facts = bed.facts.clone();
    let Some(socket) = bed.client else { return Ok((None, peer)) };
    let channel = ChannelSpec {
        mechanism: if mirror.ipv6 { Mechanism::Udp6 } else { Mechanism::Udp4 },
        wake: mirror.wake,
        options: SocketOptions::default(),
    };
    let ground = &Ground::Loopback;
    let setup = Setup { channel: &channel, watch: &watch, ground, seed: spec.seed };
    let end = connected(&setup, socket)?;
    Ok((Some((end, channel)), peer))
}

fn connected(setup: &Setup<'_>, socket: UdpSocket) -> Result<UdpEnd, OpenError> {
    UdpEnd::over(setup, socket.into())
}

/// The program that mirrors with a stack: this one, or one that stands beside it.
fn program(stack: MirrorStack) -> Result<PathBuf, OpenError> {
    if stack != MirrorStack::Smoltcp {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    let own = std::env::current_exe().attempt("find plumb's own binary")?;
    let beside = own.with_file_name(SMOLTCP_PROGRAM);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(OpenError::Unavailable(format!(
        "{SMOLTCP_PROGRAM} does not stand beside plumb: build it with \
         'cargo build --release -p {SMOLTCP_PROGRAM}'"
    )))
}
