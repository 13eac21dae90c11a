//! Streams of bytes between a display and a client: TCP and unix sockets.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plumb_display::agent::AgentSession;
use plumb_display::client::ClientError;
use plumb_display::server::{DisplayCounts, DisplayLimits, DisplayServer};
use plumb_display::transport::{DisplayConnection, DisplayTransport, DriveError};
use plumb_harness::program_task::bind_thread;

/// Bytes read at once: a batch over loopback arrives in a few reads.
pub(super) const READ: usize = 256 << 10;
/// For how long an end that does not read is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a client that does nothing.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(250);
/// Where a display listens by default.
pub const PORT: u16 = 1_985;

/// Where a display listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisplayAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl FromStr for DisplayAddress {
    type Err = String;

    /// `unix:PATH`, `ADDRESS`, `ADDRESS:PORT` or `:PORT`, which is on loopback.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("a unix socket needs a path: write unix:/tmp/display".to_owned())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let on_loopback = text.strip_prefix(':').and_then(|port| port.parse().ok());
        let with_port = || text.parse().ok().map(|address| SocketAddr::new(address, PORT));
        on_loopback
            .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
            .or_else(|| text.parse().ok())
            .or_else(with_port)
            .map(Self::Tcp)
            .ok_or_else(|| {
                format!(
                    "'{text}' is not an address: write 127.0.0.1:{PORT}, :{PORT} or unix:/tmp/display"
                )
            })
    }
}

impl fmt::Display for DisplayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection between a display and a client.
#[derive(Debug)]
pub enum DisplayStream {
    /// TCP, without Nagle's algorithm: each end says when it has something to send.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
    /// A terminal, of which this is the program's side.
    Terminal(File),
}

impl DisplayStream {
    /// To a display.
    ///
    /// # Errors
    /// None listens there.
    pub fn connect(address: &DisplayAddress) -> io::Result<Self> {
        match address {
            DisplayAddress::Tcp(address) => Self::of_tcp(TcpStream::connect(address)?),
            DisplayAddress::Unix(path) => Self::of_unix(UnixStream::connect(path)?),
        }
    }

    pub(super) fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::Tcp(stream))
    }

    pub(super) fn of_unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::Unix(stream))
    }

    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(stream) => stream.read(bytes),
                Self::Unix(stream) => stream.read(bytes),
                Self::Terminal(terminal) => terminal.read(bytes),
            };
            // A signal that concerns another part of the process.
            if !read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
                return read;
            }
        }
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Terminal(terminal) => terminal.write_all(bytes),
        }
    }

    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            // It has none; its end is that of the other side.
            Self::Terminal(_) => Ok(()),
        }
    }

    /// The carrier's name, for people.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "TCP",
            Self::Unix(_) => "unix socket",
            Self::Terminal(_) => "terminal",
        }
    }

    /// Ends the connection, also for a thread that waits for it.
    pub fn shut_down(&self) {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both).ok(),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both).ok(),
            Self::Terminal(_) => None,
        };
    }
}

/// A client's end of a connection. A display that is silent for long is given up.
#[derive(Debug)]
pub struct SocketTransport {
    stream: DisplayStream,
    buffer: Vec<u8>,
}

impl SocketTransport {
    /// Over this connection.
    pub fn new(stream: DisplayStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).ok();
        Self { stream, buffer: vec![0; READ] }
    }
}

impl DisplayTransport for SocketTransport {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn receive(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let len = self.stream.read(&mut self.buffer)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&self.buffer[..len]);
        Ok(())
    }
}

/// Serves a client until it goes, or is to be closed: what it did, and how it ended. `observe` is told whenever something was
/// carried out, and some times a second while nothing is.
pub fn serve(
    stream: DisplayStream,
    limits: DisplayLimits,
    observe: Option<&mut dyn FnMut(&DisplayServer)>,
) -> (DisplayCounts, io::Result<()>) {
    let mut server = DisplayServer::new(limits);
    let ended = serve_until_end(stream, &mut server, observe);
    (server.counts().clone(), ended)
}

/// The same; fails where the connection breaks, or the client does not read its replies.
fn serve_until_end(
    mut stream: DisplayStream,
    server: &mut DisplayServer,
    mut observe: Option<&mut dyn FnMut(&DisplayServer)>,
) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    stream.set_read_timeout(observe.is_some().then_some(OBSERVE_INTERVAL))?;
    let mut tell = |server: &DisplayServer| {
        if let Some(observe) = &mut observe {
            observe(server);
        }
    };
    while !server.is_closed() {
        let len = match stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tell(server);
                continue;
            }
            read => read?,
        };
        if len == 0 {
            break;
        }
        let mut input = &buffer[..len];
        while !input.is_empty() {
            input = server.handle_some(input);
            tell(server);
            if !server.output().is_empty() {
                stream.write_all(server.output())?;
                server.clear_output();
            }
        }
    }
    Ok(())
}

/// Forwards what an application draws until it goes, or is to be closed; in the end nothing of it is left at the display.
///
/// # Errors
/// The display is gone.
pub fn serve_application<T: DisplayTransport>(
    mut stream: DisplayStream,
    mut session: AgentSession,
    display: &Mutex<DisplayConnection<T>>,
) -> Result<(), DriveError> {
    let lock = || display.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = vec![0; READ];
    // An application that breaks off has gone as well.
    'application: while !session.is_closed()
        && let Ok(len @ 1..) = stream.read(&mut buffer)
    {
        let mut input = &buffer[..len];
        while !input.is_empty() {
            input = session.handle(input, &mut |steps| lock().forward(steps))?;
            if stream.write_all(session.output()).is_err() {
                break 'application;
            }
            session.clear_output();
        }
    }
    match lock().forward(&session.leave()) {
        // Of a symbol that the display had no room for.
        Ok(_) | Err(DriveError::Client(ClientError::Refused(_))) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What accepts connections of clients.
#[derive(Debug)]
pub enum DisplayListener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket, whose path is removed at the end.
    Unix(UnixListener, PathBuf),
}

impl DisplayListener {
    /// Listens. A path that nobody listens at any more is taken over.
    ///
    /// # Errors
    /// The address is taken, or not this host's.
    pub fn bind(address: &DisplayAddress) -> io::Result<Self> {
        let listener = match address {
            DisplayAddress::Tcp(address) => Self::Tcp(TcpListener::bind(address)?),
            DisplayAddress::Unix(path) => Self::Unix(bind_unix(path)?, path.clone()),
        };
        match &listener {
            Self::Tcp(tcp) => tcp.set_nonblocking(true)?,
            Self::Unix(unix, _) => unix.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    /// Where it listens, with the port that it has.
    pub fn address(&self) -> io::Result<DisplayAddress> {
        match self {
            Self::Tcp(listener) => Ok(DisplayAddress::Tcp(listener.local_addr()?)),
            Self::Unix(_, path) => Ok(DisplayAddress::Unix(path.clone())),
        }
    }

    /// A client that has connected, if there is one.
    ///
    /// # Errors
    /// The kernel has no more descriptors, or memory.
    pub fn accept(&self) -> io::Result<Option<DisplayStream>> {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().and_then(|it| DisplayStream::of_tcp(it.0)),
            Self::Unix(listener, _) => {
                listener.accept().and_then(|it| DisplayStream::of_unix(it.0))
            }
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for DisplayListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for DisplayListener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            std::fs::remove_file(path).ok();
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error)
            if error.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(path).is_err() =>
        {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

/// Two UDP sockets over loopback, each connected to the other.
pub(super) fn datagram_pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let [near, far] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
    let (near, far) = (near?, far?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    Ok((near, far))
}

/// Starts a display, on that CPU if one is named.
pub(super) fn display_thread<T>(
    cpu: Option<u32>,
    serve: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<()> {
    let run = move || {
        if let Some(cpu) = cpu {
            bind_thread(cpu)?;
        }
        serve().map(drop)
    };
    thread::Builder::new().name("display".to_owned()).spawn(move || run().ok())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_bad_ones_refused() {
        let read = |text: &str| text.parse::<DisplayAddress>().map(|it| it.to_string());
        assert_eq!(read(":7").unwrap(), "127.0.0.1:7");
        assert_eq!(read("127.0.0.2").unwrap(), format!("127.0.0.2:{PORT}"));
        assert_eq!(read("[::1]:9").unwrap(), "[::1]:9");
        assert_eq!(read("unix:/tmp/d").unwrap(), "unix:/tmp/d");
        for bad in ["", "unix:", "here", ":99999", "1.2.3.4:"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_is_taken_over_once_nobody_listens_at_it() {
        let folder = tempfile::tempdir().unwrap();
        let address = DisplayAddress::Unix(folder.path().join("display"));
        let first = DisplayListener::bind(&address).unwrap();
        assert!(DisplayListener::bind(&address).is_err(), "it is in use");
        // As after a kill: the path stays, without a listener.
        let DisplayListener::Unix(listener, path) = &first else { panic!("a unix socket") };
        let again = listener.try_clone().unwrap();
        std::fs::rename(path, folder.path().join("kept")).unwrap();
        drop(first);
        drop(again);
        std::fs::rename(folder.path().join("kept"), folder.path().join("display")).unwrap();
        let second = DisplayListener::bind(&address).unwrap();
        drop(second);
        assert!(!folder.path().join("display").exists(), "nothing is left behind");
    }
}
