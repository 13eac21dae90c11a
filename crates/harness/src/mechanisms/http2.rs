//! HTTP/2 in the clear, through h2: each message of the worker is the body of a request, each of the peer the body of its
//! response. A request whose message nobody answers has an empty response, sent once the next request is there.
//!
//! No runtime stands between the library and the socket: it is polled until nothing is left to do, and then its socket is
//! waited for. What is sent is sent at once, so that a call returns when its message has left.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{RecvStream, client, server};
use http::{Request, Response, StatusCode};
use plumb_sys::socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream_protocol::{StreamProtocol, UNANSWERED_MAX, wrong_length};
use crate::channel::{ChannelEnd, ChannelError, ChannelSetup, PeerWatchdog, ReadinessWaiter};
use crate::report::LaunchFault;
use crate::spec::WakeMode;

/// As large as it can be (RFC 9113 §6.9.1), so that nobody waits for more of it.
const WINDOW: u32 = (1 << 31) - 1;

pub(crate) struct Http2;

impl StreamProtocol for Http2 {
    type Client = Http2Client;
    type Server = Http2Server;

    fn client(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<Http2Client, LaunchFault> {
        let (socket, mut turns) = PolledSocket::new(setup, socket);
        let mut builder = client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let mut begin = Box::pin(builder.handshake(socket));
        let begun = turns.run(|context| begin.as_mut().poll(context).map_err(fault));
        let (requests, connection) =
            begun.map_err(|error| LaunchFault::failed("begin HTTP/2", error))?;
        let unanswered = VecDeque::with_capacity(UNANSWERED_MAX);
        Ok(Http2Client { turns, requests, connection, unanswered })
    }

    fn server(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<Http2Server, LaunchFault> {
        let (socket, mut turns) = PolledSocket::new(setup, socket);
        let mut builder = server::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        // The client has begun already: its preface waits in the socket.
        let mut begin = Box::pin(builder.handshake(socket));
        let begun = turns.run(|context| begin.as_mut().poll(context).map_err(fault));
        let connection = begun.map_err(|error| LaunchFault::failed("begin HTTP/2", error))?;
        Ok(Http2Server { turns, connection, accepted: VecDeque::new(), unanswered: None })
    }
}

/// The worker's end.
pub(crate) struct Http2Client {
    turns: PollLoop,
    requests: SendRequest<Bytes>,
    connection: client::Connection<PolledSocket, Bytes>,
    /// Requests whose response was not read yet, the oldest first.
    unanswered: VecDeque<ResponseFuture>,
}

impl Http2Client {
    /// Reads the oldest response into a buffer; whether it had a message.
    fn read_response(&mut self, buffer: &mut [u8]) -> Result<bool, ChannelError> {
        let Some(mut answer) = self.unanswered.pop_front() else {
            return Err(ChannelError::protocol("there is no request that a message would answer"));
        };
        let connection = &mut self.connection;
        let response = self.turns.run(|context| {
            turn_client(connection, context)?;
            Pin::new(&mut answer).poll(context).map_err(fault)
        })?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(false);
        }
        let mut body = response.into_body();
        let mut filled = 0;
        self.turns.run(|context| {
            turn_client(connection, context)?;
            poll_body(&mut body, buffer, &mut filled, context)
        })?;
        if filled == buffer.len() { Ok(true) } else { Err(wrong_length(filled, buffer.len())) }
    }
}

impl ChannelEnd for Http2Client {
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        if self.unanswered.len() >= UNANSWERED_MAX && self.read_response(&mut [])? {
            return Err(ChannelError::protocol("a message came that nobody waits for"));
        }
        let (requests, connection) = (&mut self.requests, &mut self.connection);
        self.turns.run(|context| {
            turn_client(connection, context)?;
            requests.poll_ready(context).map_err(fault)
        })?;
        let request =
            Request::post("http://localhost/").body(()).map_err(ChannelError::protocol)?;
        let (answer, mut body) = self.requests.send_request(request, false).map_err(fault)?;
        body.send_data(Bytes::copy_from_slice(message), true).map_err(fault)?;
        self.unanswered.push_back(answer);
        turn_client(&mut self.connection, &mut Context::from_waker(Waker::noop()))
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        while !self.read_response(&mut buffer[..len])? {}
        Ok(())
    }
}

/// Moves whatever can be moved.
fn turn_client(
    connection: &mut client::Connection<PolledSocket, Bytes>,
    context: &mut Context<'_>,
) -> Result<(), ChannelError> {
    match Pin::new(connection).poll(context) {
        Poll::Ready(Ok(())) => Err(ChannelError::Closed),
        Poll::Ready(Err(error)) => Err(fault(error)),
        Poll::Pending => Ok(()),
    }
}

/// A request, and what its response is sent by.
type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// The peer's end.
pub(crate) struct Http2Server {
    turns: PollLoop,
    connection: server::Connection<PolledSocket, Bytes>,
    /// Requests that came while something else was waited for.
    accepted: VecDeque<Accepted>,
    /// The last request, while it has no response.
    unanswered: Option<SendResponse<Bytes>>,
}

impl Http2Server {
    /// Answers the request that has no response yet.
    fn respond(&mut self, status: StatusCode, message: &[u8]) -> Result<(), ChannelError> {
        let Some(mut respond) = self.unanswered.take() else {
            return Err(ChannelError::protocol("there is no request that a message would answer"));
        };
        let mut response = Response::new(());
        *response.status_mut() = status;
        let is_empty = status == StatusCode::NO_CONTENT;
        let mut body = respond.send_response(response, is_empty).map_err(fault)?;
        if !is_empty {
            body.send_data(Bytes::copy_from_slice(message), true).map_err(fault)?;
        }
        let mut context = Context::from_waker(Waker::noop());
        turn_server(&mut self.connection, &mut self.accepted, &mut context)
    }
}

impl ChannelEnd for Http2Server {
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        self.respond(StatusCode::OK, message)
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        let (connection, accepted) = (&mut self.connection, &mut self.accepted);
        let (request, respond) = self.turns.run(|context| {
            if accepted.is_empty() {
                turn_server(connection, accepted, context)?;
            }
            accepted.pop_front().map_or(Poll::Pending, |next| Poll::Ready(Ok(next)))
        })?;
        let mut body = request.into_body();
        let mut filled = 0;
        self.turns.run(|context| {
            turn_server(connection, accepted, context)?;
            poll_body(&mut body, &mut buffer[..len], &mut filled, context)
        })?;
        if self.unanswered.is_some() {
            self.respond(StatusCode::NO_CONTENT, &[])?;
        }
        self.unanswered = Some(respond);
        if filled == len { Ok(()) } else { Err(wrong_length(filled, len)) }
    }
}

/// Moves whatever can be moved, and takes the requests that have begun.
fn turn_server(
    connection: &mut server::Connection<PolledSocket, Bytes>,
    accepted: &mut VecDeque<Accepted>,
    context: &mut Context<'_>,
) -> Result<(), ChannelError> {
    loop {
        match connection.poll_accept(context) {
            Poll::Ready(Some(next)) => accepted.push_back(next.map_err(fault)?),
            Poll::Ready(None) => return Err(ChannelError::Closed),
            Poll::Pending => return Ok(()),
        }
    }
}

/// Copies a body until its end; bytes that a buffer has no room for are only counted.
fn poll_body(
    body: &mut RecvStream,
    buffer: &mut [u8],
    filled: &mut usize,
    context: &mut Context<'_>,
) -> Poll<Result<(), ChannelError>> {
    loop {
        match body.poll_data(context) {
            Poll::Ready(Some(data)) => {
                let data = data.map_err(fault)?;
                if let Some(room) = buffer.get_mut(*filled..*filled + data.len()) {
                    room.copy_from_slice(&data);
                }
                *filled += data.len();
                body.flow_control().release_capacity(data.len()).map_err(fault)?;
            }
            Poll::Ready(None) => return Poll::Ready(Ok(())),
            Poll::Pending => return Poll::Pending,
        }
    }
}

fn fault(error: h2::Error) -> ChannelError {
    if error.is_io() {
        return error.into_io().map_or(ChannelError::Closed, |error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ChannelError::Closed,
            _ => ChannelError::of_io(error),
        });
    }
    ChannelError::protocol(error)
}

/// Polls something until it is ready, and waits for the socket in between.
struct PollLoop {
    socket: Arc<OwnedFd>,
    waiter: ReadinessWaiter,
    watch: PeerWatchdog,
}

impl PollLoop {
    fn run<T>(
        &mut self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<T, ChannelError>>,
    ) -> Result<T, ChannelError> {
        let mut context = Context::from_waker(Waker::noop());
        self.watch.begin();
        loop {
            if let Poll::Ready(ready) = poll(&mut context) {
                return ready;
            }
            match self.waiter {
                ReadinessWaiter::Spin => self.watch.on_spin()?,
                _ => self.waiter.ready(self.socket.as_fd(), &mut self.watch)?,
            }
        }
    }
}

/// A socket that the library reads without waiting, and writes to until all is written.
struct PolledSocket {
    socket: Arc<OwnedFd>,
    watch: PeerWatchdog,
}

impl PolledSocket {
    fn new(setup: &ChannelSetup<'_>, socket: OwnedFd) -> (Self, PollLoop) {
        let waiter = match setup.wake() {
            WakeMode::Spin => ReadinessWaiter::Spin,
            _ => ReadinessWaiter::Poll,
        };
        let (socket, watch) = (Arc::new(socket), setup.watchdog.clone());
        let turns = PollLoop { socket: Arc::clone(&socket), waiter, watch: watch.clone() };
        (Self { socket, watch }, turns)
    }
}

impl AsyncRead for PolledSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match socket::receive(self.socket.as_fd(), buffer.initialize_unfilled(), false) {
            Ok(n) => {
                buffer.advance(n);
                Poll::Ready(Ok(()))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Poll::Pending,
                _ => Poll::Ready(Err(error)),
            },
        }
    }
}

impl AsyncWrite for PolledSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.watch.begin();
        let fd = this.socket.as_fd();
        Poll::Ready(this.watch.retry(|| socket::send(fd, bytes)).map_err(Into::into))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
