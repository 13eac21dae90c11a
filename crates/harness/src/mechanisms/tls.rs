//! TLS 1.3 through rustls. The handshake is part of the first message, which no sample holds.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use plumb_net::measure::tls;
use plumb_remote::secure::HostIdentity;
use rustls::Connection;

use super::stream::{SocketCalls, StreamEnd};
use super::stream_protocol::StreamProtocol;
use crate::channel::{ChannelEnd, ChannelError, ChannelSetup};
use crate::report::LaunchFault;

/// Whoever serves holds a key of its own, made for the launch.
pub(crate) struct Tls;

impl StreamProtocol for Tls {
    type Client = TlsEnd;
    type Server = TlsEnd;

    fn client(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<TlsEnd, LaunchFault> {
        let client = tls::client_configuration(None).and_then(tls::client_connection);
        let client = client.map_err(|error| LaunchFault::failed("set up TLS", error))?;
        TlsEnd::new(setup, socket, client.into())
    }

    fn server(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<TlsEnd, LaunchFault> {
        let identity = HostIdentity::generate();
        let identity = identity.map_err(|error| LaunchFault::failed("make a key", error))?;
        let server = tls::server_configuration(&identity).and_then(tls::server_connection);
        let server = server.map_err(|error| LaunchFault::failed("set up TLS", error))?;
        TlsEnd::new(setup, socket, server.into())
    }
}

/// One end.
pub(crate) struct TlsEnd {
    stream: StreamEnd<SocketCalls>,
    connection: Connection,
}

impl TlsEnd {
    fn new(
        setup: &ChannelSetup<'_>,
        socket: OwnedFd,
        connection: Connection,
    ) -> Result<Self, LaunchFault> {
        Ok(Self { stream: StreamEnd::new(setup, socket, None)?, connection })
    }

    #[cold]
    fn shake_hands(&mut self) -> Result<(), ChannelError> {
        while self.connection.is_handshaking() {
            self.connection.complete_io(&mut self.stream).map_err(ChannelError::of_io)?;
        }
        Ok(())
    }
}

impl ChannelEnd for TlsEnd {
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        if self.connection.is_handshaking() {
            self.shake_hands()?;
        }
        let mut sent = 0;
        while sent < message.len() {
            sent += self.connection.writer().write(&message[sent..])?;
            while self.connection.wants_write() {
                self.connection.write_tls(&mut self.stream).map_err(ChannelError::of_io)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        if self.connection.is_handshaking() {
            self.shake_hands()?;
        }
        self.stream.watch.begin();
        let mut filled = 0;
        while filled < len {
            match self.connection.reader().read(&mut buffer[filled..len]) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.connection.read_tls(&mut self.stream).map_err(ChannelError::of_io)?;
                    self.connection.process_new_packets().map_err(ChannelError::protocol)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
