//! QUIC over IPv4 loopback, through quinn and its runtime: a stream each way, the handshake part of the first message.
//!
//! The runtime sends and acknowledges only while a call runs it, or while this end waits for the other process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use plumb_net::measure::quic;
use plumb_remote::secure::HostIdentity;
use plumb_remote::secure::identity::NAME;
use plumb_sys::fd;
use quinn::{
    Connection, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime, TransportConfig,
};
use tokio::runtime::Runtime;

use super::unix::set_buffers;
use crate::channel::{
    ChannelEnd, ChannelError, ChannelMechanism, ChannelSetup, IoResultExt as _, PeerHandover,
    PeerWatchdog,
};
use crate::report::LaunchFault;

/// How often a call looks whether the other process is still there, as nothing of its end is seen here.
const LOOK_AROUND: Duration = Duration::from_millis(200);

/// What the client says first, as a stream begins with its first byte.
const GREETING: u8 = 1;

pub(crate) struct QuicChannel;

impl ChannelMechanism for QuicChannel {
    type Local = QuicEnd;
    type Peer = QuicEnd;

    fn open(setup: &ChannelSetup<'_>) -> Result<(QuicEnd, PeerHandover), LaunchFault> {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).attempt("bind a UDP socket");
        let (here, there) = (bind()?, bind()?);
        let server = there.local_addr().attempt("read the socket's address")?;
        let configuration = quic::client_configuration(None, transport()).attempt("set up QUIC")?;
        let end = QuicEnd::new(setup, here, None, |endpoint| {
            endpoint.set_default_client_config(configuration);
            QuicRole::Client(server)
        })?;
        Ok((end, PeerHandover::of([there.into()])))
    }

    fn attach(setup: &ChannelSetup<'_>, handover: PeerHandover) -> Result<QuicEnd, LaunchFault> {
        let [socket] = handover.take()?;
        let identity = HostIdentity::generate();
        let identity = identity.map_err(|error| LaunchFault::failed("make a key", error))?;
        let server = quic::server_configuration(&identity, transport()).attempt("set up QUIC")?;
        QuicEnd::new(setup, socket.into(), Some(server), |_| QuicRole::Server)
    }
}

/// Never over by itself: a launch may be held open for any time.
fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(None);
    transport
}

/// Who begins.
#[derive(Clone, Copy)]
enum QuicRole {
    Client(SocketAddr),
    Server,
}

/// One end.
pub(crate) struct QuicEnd {
    streams: Option<QuicStreams>,
    role: QuicRole,
    watch: PeerWatchdog,
    endpoint: Endpoint,
    runtime: Runtime,
}

/// A connection, as it ends with the last of its handles, and its streams.
struct QuicStreams {
    _connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

impl QuicEnd {
    fn new(
        setup: &ChannelSetup<'_>,
        socket: UdpSocket,
        server: Option<quinn::ServerConfig>,
        role: impl FnOnce(&mut Endpoint) -> QuicRole,
    ) -> Result<Self, LaunchFault> {
        let socket = {
            let fd = socket.into();
            set_buffers(&setup.channel.options, [&fd])?;
            UdpSocket::from(fd)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.attempt("start a runtime")?;
        let entered = runtime.enter();
        let made = Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime));
        drop(entered);
        let mut endpoint = made.attempt("begin QUIC")?;
        let role = role(&mut endpoint);
        Ok(Self { streams: None, role, watch: setup.watchdog.clone(), endpoint, runtime })
    }

    /// Runs a call on the streams, which the first one opens.
    fn run<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &mut self,
        call: impl AsyncFnOnce(&mut QuicStreams) -> Result<(), E>,
    ) -> Result<(), ChannelError> {
        let (streams, endpoint, role) = (&mut self.streams, &self.endpoint, self.role);
        let called = async {
            let opened = match streams {
                Some(opened) => opened,
                None => streams.insert(open(endpoint, role).await?),
            };
            call(opened).await.map_err(ChannelError::protocol)
        };
        self.runtime.block_on(watched(called, &mut self.watch))
    }
}

/// Runs something until it is ready, or the other process is gone.
async fn watched(
    call: impl Future<Output = Result<(), ChannelError>>,
    watch: &mut PeerWatchdog,
) -> Result<(), ChannelError> {
    let mut call = pin!(call);
    watch.begin();
    loop {
        match tokio::time::timeout(LOOK_AROUND, call.as_mut()).await {
            Ok(done) => return done,
            Err(_) => watch.on_interrupt()?,
        }
    }
}

async fn open(endpoint: &Endpoint, role: QuicRole) -> Result<QuicStreams, ChannelError> {
    let (connection, mut send, mut receive);
    match role {
        QuicRole::Client(server) => {
            let connecting = endpoint.connect(server, NAME).map_err(ChannelError::protocol)?;
            connection = connecting.await.map_err(ChannelError::protocol)?;
            (send, receive) = connection.open_bi().await.map_err(ChannelError::protocol)?;
            send.write_all(&[GREETING]).await.map_err(ChannelError::protocol)?;
        }
        QuicRole::Server => {
            let incoming = endpoint.accept().await.ok_or(ChannelError::Closed)?;
            connection = incoming.await.map_err(ChannelError::protocol)?;
            (send, receive) = connection.accept_bi().await.map_err(ChannelError::protocol)?;
            receive.read_exact(&mut [0; 1]).await.map_err(ChannelError::protocol)?;
        }
    }
    Ok(QuicStreams { _connection: connection, send, receive })
}

impl ChannelEnd for QuicEnd {
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.run(async |streams| streams.send.write_all(message).await)
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        self.run(async |streams| streams.receive.read_exact(&mut buffer[..len]).await)
    }

    fn keep_going(&mut self, control: BorrowedFd<'_>) -> Result<(), ChannelError> {
        let control = control.try_clone_to_owned()?;
        let wait = move || loop {
            match fd::poll_readable(control.as_fd(), -1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                waited => return waited.map(drop),
            }
        };
        let waited = self.runtime.block_on(self.runtime.spawn_blocking(wait));
        Ok(waited.map_err(ChannelError::protocol)??)
    }
}
