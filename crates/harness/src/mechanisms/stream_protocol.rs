//! Protocols over a stream socket, TCP over loopback or a Unix socket: a client in the worker and a server in the peer.

use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;

use super::stream::{SocketCalls, StreamEnd};
use super::tcp::connected_pair;
use super::unix;
use crate::channel::{ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, PeerHandover};
use crate::report::LaunchFault;
use crate::spec::Mechanism;

/// Both ends of a protocol; either may speak to the other only once both exist.
pub(crate) trait StreamProtocol {
    /// The worker's end.
    type Client: ChannelEnd;
    /// The peer's end.
    type Server: ChannelEnd;

    /// The client over a connected socket.
    fn client(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<Self::Client, LaunchFault>;

    /// The server over a connected socket.
    fn server(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<Self::Server, LaunchFault>;
}

/// A protocol over the kind of socket that the mechanism names.
pub(crate) struct ProtocolChannel<P>(PhantomData<P>);

impl<P: StreamProtocol> ChannelMechanism for ProtocolChannel<P> {
    type Local = P::Client;
    type Peer = P::Server;

    fn open(setup: &ChannelSetup<'_>) -> Result<(Self::Local, PeerHandover), LaunchFault> {
        let (here, handover) = match setup.channel.mechanism {
            Mechanism::TlsUnix | Mechanism::Http1Unix | Mechanism::Http2Unix => {
                let (here, there) = unix::connect(setup)?;
                unix::set_buffers(&setup.channel.options, [&here, &there])?;
                (here, PeerHandover::of([there]))
            }
            _ => connected_pair(setup, false)?,
        };
        Ok((P::client(setup, here)?, handover))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<Self::Peer, LaunchFault> {
        let [socket] = handover.take()?;
        P::server(setup, socket)
    }
}

/// What a protocol's library reads and writes; what goes wrong is found by [`ChannelError::of_io`].
impl io::Read for StreamEnd<SocketCalls> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.receive_some(buffer)?)
    }
}

impl io::Write for StreamEnd<SocketCalls> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message of another length than the one that is waited for.
pub(super) fn wrong_length(found: usize, expected: usize) -> ChannelError {
    ChannelError::protocol(format!("a message of {found} bytes came instead of {expected}"))
}

/// Requests that wait for a response before the oldest must have come: a client that only sends would otherwise fill
/// the socket with responses that it does not read.
pub(super) const UNANSWERED_MAX: usize = 64;
