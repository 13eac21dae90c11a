//! unix(7) sockets: unnamed by socketpair(2), bound to a path, or with an abstract name.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use plumb_sys::socket::{self, IntOption, UnixSocketKind};

use super::message_queue::{MessageEnd, MessageQueue};
use super::scratch_directory::ScratchDirectory;
use super::stream::{SocketCalls, StreamEnd};
use crate::channel::{ChannelMechanism, ChannelSetup, IoResultExt, PeerHandover};
use crate::report::LaunchFault;
use crate::spec::{Mechanism, SocketOptions};

/// The worker's and the peer's socket, connected to each other.
pub(super) fn connect(setup: &ChannelSetup<'_>) -> Result<(OwnedFd, OwnedFd), LaunchFault> {
    let pair = |kind| socket::pair(kind).attempt("make a socket pair");
    let scratch = || ScratchDirectory::new(setup.seed).attempt("make a directory for a socket");
    match setup.channel.mechanism {
        Mechanism::SocketpairDgram => pair(UnixSocketKind::Datagram),
        Mechanism::SocketpairSeqpacket => pair(UnixSocketKind::SeqPacket),
        Mechanism::UnixStream
        | Mechanism::TlsUnix
        | Mechanism::Http1Unix
        | Mechanism::Http2Unix => {
            let scratch = scratch()?;
            connect_stream(SocketAddr::from_pathname(scratch.path("listen")))
        }
        Mechanism::UnixStreamAbstract => connect_stream(abstract_name(setup, "listen")),
        Mechanism::UnixDgram => {
            let scratch = scratch()?;
            connect_datagrams(|end| SocketAddr::from_pathname(scratch.path(end)))
        }
        Mechanism::UnixDgramAbstract => connect_datagrams(|end| abstract_name(setup, end)),
        _ => pair(UnixSocketKind::Stream),
    }
}

fn abstract_name(setup: &ChannelSetup<'_>, end: &str) -> io::Result<SocketAddr> {
    let name = format!("plumb-{}-{:016x}-{end}", std::process::id(), setup.seed);
    SocketAddr::from_abstract_name(name)
}

/// Connects and accepts in one process: a connection to a listener's backlog completes at once.
fn connect_stream(name: io::Result<SocketAddr>) -> Result<(OwnedFd, OwnedFd), LaunchFault> {
    let name = name.attempt("name a socket")?;
    let listener = UnixListener::bind_addr(&name).attempt("listen on a Unix socket")?;
    let there = UnixStream::connect_addr(&name).attempt("connect to a Unix socket")?;
    let (here, _) = listener.accept().attempt("accept on a Unix socket")?;
    Ok((here.into(), there.into()))
}

/// Two bound datagram sockets, each connected to the other.
fn connect_datagrams(
    name: impl Fn(&str) -> io::Result<SocketAddr>,
) -> Result<(OwnedFd, OwnedFd), LaunchFault> {
    let here = name("here").attempt("name a socket")?;
    let there = name("there").attempt("name a socket")?;
    let connect = || {
        let first = UnixDatagram::bind_addr(&here)?;
        let second = UnixDatagram::bind_addr(&there)?;
        first.connect_addr(&there)?;
        second.connect_addr(&here)?;
        Ok((first.into(), second.into()))
    };
    connect().attempt("connect two sockets")
}

/// A byte stream over a pair of sockets.
pub(crate) struct UnixStreamChannel;

impl ChannelMechanism for UnixStreamChannel {
    type Local = StreamEnd<SocketCalls>;
    type Peer = StreamEnd<SocketCalls>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (here, there) = connect(setup)?;
        set_buffers(&setup.channel.options, [&here, &there])?;
        Ok((StreamEnd::new(setup, here, None)?, PeerHandover::of([there])))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [fd] = handover.take()?;
        StreamEnd::new(setup, fd, None)
    }
}

/// Messages over a pair of sockets, of datagrams or sequenced packets.
pub(crate) struct UnixMessageChannel;

impl ChannelMechanism for UnixMessageChannel {
    type Local = MessageEnd<UnixQueue>;
    type Peer = MessageEnd<UnixQueue>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (here, there) = connect(setup)?;
        set_buffers(&setup.channel.options, [&here, &there])?;
        let part_max = part_max(&here)?;
        let local = MessageEnd::new(setup, UnixQueue(here), part_max)?;
        let mut handover = PeerHandover::of([there]);
        handover.facts.push(("part_max", part_max.to_string()));
        Ok((local, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [fd] = handover.take()?;
        let part_max = part_max(&fd)?;
        MessageEnd::new(setup, UnixQueue(fd), part_max)
    }
}

/// The calls of a socket that keeps messages apart.
#[derive(Debug)]
pub(crate) struct UnixQueue(OwnedFd);

impl MessageQueue for UnixQueue {
    #[inline]
    fn send(&mut self, part: &[u8]) -> io::Result<()> {
        socket::send(self.0.as_fd(), part).map(drop)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8], sleep: bool) -> io::Result<usize> {
        socket::receive(self.0.as_fd(), buffer, sleep)
    }

    fn rx(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Sets the buffers asked for on sockets.
pub(crate) fn set_buffers<'a>(
    options: &SocketOptions,
    sockets: impl IntoIterator<Item = &'a OwnedFd>,
) -> Result<(), LaunchFault> {
    let asked = [
        (IntOption::SendBuffer, options.send_buffer),
        (IntOption::ReceiveBuffer, options.receive_buffer),
    ];
    for fd in sockets {
        for (option, bytes) in asked {
            let Some(bytes) = bytes else { continue };
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            socket::set_option(fd.as_fd(), option, bytes).attempt("set a socket buffer")?;
        }
    }
    Ok(())
}

/// The longest datagram the kernel takes: net/unix/af_unix.c refuses more than SO_SNDBUF − 32.
/// Half of that, so that one part can be under way while the next is made.
fn part_max(fd: &OwnedFd) -> Result<usize, LaunchFault> {
    let buffer = socket::option(fd.as_fd(), IntOption::SendBuffer).attempt("read SO_SNDBUF")?;
    Ok(usize::try_from(buffer / 2 - 64).unwrap_or(0).max(1))
}
