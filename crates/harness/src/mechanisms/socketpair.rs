//! socketpair(2): unnamed Unix sockets, as stream, datagrams and sequenced packets.

use std::os::fd::{AsFd, OwnedFd};

use plumb_sys::socket;
use plumb_sys::socket::{IntOption, UnixSocketKind};

use super::message_queue::{MessageEnd, UnixQueue};
use super::stream::{SocketCalls, StreamEnd};
use crate::channel::{ChannelMechanism, ChannelSetup, IoResultExt, OpenError, PeerHandover};
use crate::spec::SocketOptions;

/// SOCK_STREAM.
#[derive(Debug)]
pub(crate) struct SocketpairStream;

impl ChannelMechanism for SocketpairStream {
    type Local = StreamEnd<SocketCalls>;
    type Peer = StreamEnd<SocketCalls>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let (here, there) = socket::pair(UnixSocketKind::Stream).attempt("make a socket pair")?;
        for fd in [&here, &there] {
            set_buffers(&setup.channel.options, fd)?;
        }
        Ok((StreamEnd::new(setup, here, None)?, PeerHandover::of([there])))
    }

    fn attach(
        setup: &ChannelSetup<'_>,
        mut handover: PeerHandover,
    ) -> Result<Self::Peer, OpenError> {
        let [fd] = handover.take()?;
        StreamEnd::new(setup, fd, None)
    }
}

/// SOCK_DGRAM.
#[derive(Debug)]
pub(crate) struct SocketpairDgram;

impl ChannelMechanism for SocketpairDgram {
    type Local = MessageEnd<UnixQueue>;
    type Peer = MessageEnd<UnixQueue>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let pair = socket::pair(UnixSocketKind::Datagram).attempt("make a socket pair")?;
        open_messages(setup, pair)
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, OpenError> {
        attach_messages(setup, handover)
    }
}

/// SOCK_SEQPACKET.
#[derive(Debug)]
pub(crate) struct SocketpairSeqpacket;

impl ChannelMechanism for SocketpairSeqpacket {
    type Local = MessageEnd<UnixQueue>;
    type Peer = MessageEnd<UnixQueue>;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), OpenError> {
        let pair = socket::pair(UnixSocketKind::SeqPacket).attempt("make a socket pair")?;
        open_messages(setup, pair)
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, OpenError> {
        attach_messages(setup, handover)
    }
}

/// Sets the buffers asked for on a socket.
pub(crate) fn set_buffers(options: &SocketOptions, fd: &OwnedFd) -> Result<(), OpenError> {
    let Some(bytes) = options.buffer else { return Ok(()) };
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    for option in [IntOption::SendBuffer, IntOption::ReceiveBuffer] {
        socket::set_option(fd.as_fd(), option, bytes).attempt("set a socket buffer")?;
    }
    Ok(())
}

/// The two ends of a pair of message sockets.
pub(crate) fn open_messages(
    setup: &ChannelSetup<'_>,
    (here, there): (OwnedFd, OwnedFd),
) -> Result<(MessageEnd<UnixQueue>, PeerHandover), OpenError> {
    for fd in [&here, &there] {
        set_buffers(&setup.channel.options, fd)?;
    }
    let part_max = part_max(&here)?;
    let local = MessageEnd::new(setup, UnixQueue(here), part_max)?;
    let mut handover = PeerHandover::of([there]);
    handover.facts.push(("part_max", part_max.to_string()));
    Ok((local, handover))
}

/// The peer's end of a pair of message sockets.
pub(crate) fn attach_messages(
    setup: &ChannelSetup<'_>,
    mut handover: PeerHandover,
) -> Result<MessageEnd<UnixQueue>, OpenError> {
    let [fd] = handover.take()?;
    let part_max = part_max(&fd)?;
    MessageEnd::new(setup, UnixQueue(fd), part_max)
}

/// The longest datagram the kernel takes: net/unix/af_unix.c refuses more than SO_SNDBUF − 32.
/// Half of that, so that one part can be under way while the next is made.
fn part_max(fd: &OwnedFd) -> Result<usize, OpenError> {
    let buffer = socket::option(fd.as_fd(), IntOption::SendBuffer).attempt("read SO_SNDBUF")?;
    Ok(usize::try_from(buffer / 2 - 64).unwrap_or(0).max(1))
}
