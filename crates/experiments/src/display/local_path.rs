//! Transports to a display on this host, each with a display of its own at the other end.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use plumb_display::server::DisplayLimits;
use plumb_display::transport::{DirectTransport, DisplayTransport};

use super::byte_stream::ByteStream;
use super::connection::{DisplayStream, SocketTransport, display_thread, serve};
use super::process_tcp::ProcessTcp;
use super::transactions::{MessageTransactions, ReplyTime};
use super::websocket::WebSocketStream;

/// Between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalPath {
    /// Nothing: a call.
    Direct,
    /// A unix socket.
    Unix,
    /// TCP over loopback.
    Tcp,
    /// Message transactions over UDP, with a reply at this time.
    Messages(ReplyTime),
    /// A byte stream over UDP.
    Bytes,
    /// A WebSocket over loopback.
    WebSocket,
}

impl LocalPath {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Direct,
        Self::Unix,
        Self::Tcp,
        Self::Messages(ReplyTime::Late),
        Self::Messages(ReplyTime::Early),
        Self::Bytes,
        Self::WebSocket,
    ];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
            Self::Messages(ReplyTime::Late) => "messages",
            Self::Messages(ReplyTime::Early) => "messages-early",
            Self::Bytes => "byte-stream",
            Self::WebSocket => "websocket",
        }
    }

    /// The path of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.name() == name)
    }

    /// A display of its own at the other end, in a thread on that CPU, if one is named; it ends with the connection.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open(self, limits: DisplayLimits, cpu: Option<u32>) -> io::Result<AnyTransport> {
        let (near, far) = match self {
            Self::Direct => {
                return Ok(AnyTransport::Direct(Box::new(DirectTransport::new(limits))));
            }
            Self::Messages(reply) => {
                let messages = MessageTransactions::open(limits, reply, cpu)?;
                return Ok(AnyTransport::Messages(messages));
            }
            Self::Bytes => return Ok(AnyTransport::Bytes(ByteStream::open(limits, cpu)?)),
            Self::WebSocket => {
                let socket = WebSocketStream::open(limits, cpu)?;
                return Ok(AnyTransport::WebSocket(Box::new(socket)));
            }
            Self::Unix => {
                let (near, far) = UnixStream::pair()?;
                (DisplayStream::of_unix(near)?, DisplayStream::of_unix(far)?)
            }
            Self::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let near = TcpStream::connect(listener.local_addr()?)?;
                (DisplayStream::of_tcp(near)?, DisplayStream::of_tcp(listener.accept()?.0)?)
            }
        };
        // Its end is seen by this one, which no longer hears anything.
        display_thread(cpu, move || serve(far, limits, None).1)?;
        Ok(AnyTransport::socket(near))
    }
}

/// Any transport to a display.
#[derive(Debug)]
pub enum AnyTransport {
    /// In the same thread.
    Direct(Box<DirectTransport>),
    /// Over a socket.
    Socket(SocketTransport),
    /// By message transactions.
    Messages(MessageTransactions),
    /// By a byte stream over UDP.
    Bytes(ByteStream),
    /// Over a WebSocket.
    WebSocket(Box<WebSocketStream>),
    /// By plumb's TCP, in this process.
    Process(Box<ProcessTcp>),
}

impl AnyTransport {
    /// Over a socket. A display that is silent for long is given up.
    pub fn socket(stream: DisplayStream) -> Self {
        Self::Socket(SocketTransport::new(stream))
    }
}

impl DisplayTransport for AnyTransport {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Direct(direct) => direct.send(bytes),
            Self::Socket(socket) => socket.send(bytes),
            Self::Messages(messages) => messages.send(bytes),
            Self::Bytes(stream) => stream.send(bytes),
            Self::WebSocket(socket) => socket.send(bytes),
            Self::Process(process) => process.send(bytes),
        }
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Direct(direct) => direct.receive(bytes),
            Self::Messages(messages) => messages.receive(bytes),
            Self::Bytes(stream) => stream.receive(bytes),
            Self::WebSocket(socket) => socket.receive(bytes),
            Self::Process(process) => process.receive(bytes),
            Self::Socket(socket) => socket.receive(bytes),
        }
    }
}
