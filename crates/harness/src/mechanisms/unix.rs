//! unix(7) sockets with names: bound to a path, or abstract.

use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use super::message_queue::{MessageEnd, UnixQueue};
use super::scratch_directory::ScratchDirectory;
use super::socketpair::{attach_messages, open_messages, set_buffers};
use super::stream::{SocketCalls, StreamEnd};
use crate::channel::{ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover};

/// Stream socket bound to a path.
#[derive(Debug)]
pub(crate) struct UnixStreamPath;

impl ChannelMechanism for UnixStreamPath {
    type Local = StreamEnd<SocketCalls>;
    type Peer = StreamEnd<SocketCalls>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let scratch = ScratchDirectory::new(setup.seed).attempt("make a directory for a socket")?;
        let address = SocketAddr::from_pathname(scratch.path("listen")).attempt("name a socket")?;
        open_stream(setup, &address)
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, OpenError> {
        attach_stream(setup, handover)
    }
}

/// Stream socket with an abstract name.
#[derive(Debug)]
pub(crate) struct UnixStreamAbstract;

impl ChannelMechanism for UnixStreamAbstract {
    type Local = StreamEnd<SocketCalls>;
    type Peer = StreamEnd<SocketCalls>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        open_stream(setup, &abstract_name(setup, "listen").attempt("name a socket")?)
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, OpenError> {
        attach_stream(setup, handover)
    }
}

/// Datagram sockets bound to paths.
#[derive(Debug)]
pub(crate) struct UnixDgramPath;

impl ChannelMechanism for UnixDgramPath {
    type Local = MessageEnd<UnixQueue>;
    type Peer = MessageEnd<UnixQueue>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let scratch = ScratchDirectory::new(setup.seed).attempt("make a directory for a socket")?;
        let name = |end| SocketAddr::from_pathname(scratch.path(end));
        let (here, there) =
            name("here").and_then(|here| Ok((here, name("there")?))).attempt("name a socket")?;
        open_messages(setup, datagram_pair(&here, &there).attempt("connect two sockets")?)
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, OpenError> {
        attach_messages(setup, handover)
    }
}

/// Datagram sockets with abstract names.
#[derive(Debug)]
pub(crate) struct UnixDgramAbstract;

impl ChannelMechanism for UnixDgramAbstract {
    type Local = MessageEnd<UnixQueue>;
    type Peer = MessageEnd<UnixQueue>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let here = abstract_name(setup, "here").attempt("name a socket")?;
        let there = abstract_name(setup, "there").attempt("name a socket")?;
        open_messages(setup, datagram_pair(&here, &there).attempt("connect two sockets")?)
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, OpenError> {
        attach_messages(setup, handover)
    }
}

fn abstract_name(setup: &ChannelSetup<'_>, end: &str) -> io::Result<SocketAddr> {
    let name = format!("plumb-{}-{:016x}-{end}", std::process::id(), setup.seed);
    SocketAddr::from_abstract_name(name)
}

/// Connects and accepts in one process: a connection to a listener's backlog completes at once.
fn open_stream(
    setup: &ChannelSetup<'_>,
    address: &SocketAddr,
) -> Result<(StreamEnd<SocketCalls>, PeerHandover), OpenError> {
    let listener = UnixListener::bind_addr(address).attempt("listen on a Unix socket")?;
    let there = UnixStream::connect_addr(address).attempt("connect to a Unix socket")?;
    let (here, _) = listener.accept().attempt("accept on a Unix socket")?;
    let (here, there) = (OwnedFd::from(here), OwnedFd::from(there));
    for fd in [&here, &there] {
        set_buffers(&setup.channel.options, fd)?;
    }
    Ok((StreamEnd::new(setup, here, None)?, PeerHandover::of([there])))
}

fn attach_stream(
    setup: &ChannelSetup<'_>,
    mut handover: PeerHandover,
) -> Result<StreamEnd<SocketCalls>, OpenError> {
    let [fd] = handover.take()?;
    StreamEnd::new(setup, fd, None)
}

/// Two bound datagram sockets, each connected to the other.
fn datagram_pair(here: &SocketAddr, there: &SocketAddr) -> io::Result<(OwnedFd, OwnedFd)> {
    let first = UnixDatagram::bind_addr(here)?;
    let second = UnixDatagram::bind_addr(there)?;
    first.connect_addr(there)?;
    second.connect_addr(here)?;
    Ok((first.into(), second.into()))
}
