//! Sockets towards the other side of a test, and why there are none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::{io, thread};

use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_remote::token_listener::CONNECT_TIMEOUT;
use plumb_remote::udp_handshake::UdpHandshakeError;
use plumb_sys::{errno, fd, socket};

/// How often it is looked whether a connection is still wanted.
const STOP_POLL_NS: u64 = 100_000_000;

/// Connects a TCP socket whose options are set.
///
/// # Errors
/// TimedOut when nobody answers within `timeout`, Interrupted when `stop` says so, and the kernel's.
pub fn connect_tcp(
    socket: OwnedFd,
    address: SocketAddr,
    timeout: Span,
    stop: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    let until_ns = monotonic_ns().saturating_add(timeout.as_ns());
    match socket::connect(socket.as_fd(), address) {
        Err(error) if errno::is_in_progress(&error) => loop {
            if stop() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let left_ns = until_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let wait_ms = left_ns.min(STOP_POLL_NS).div_ceil(1_000_000);
            match fd::poll_writable(socket.as_fd(), i32::try_from(wait_ms).unwrap_or(i32::MAX)) {
                Ok(true) => break,
                Err(error) if !errno::is_transient(&error) => return Err(error),
                Ok(false) | Err(_) => {}
            }
        },
        other => other?,
    }
    fd::set_nonblocking(socket.as_fd(), false)?;
    let stream = TcpStream::from(socket);
    stream.take_error()?.map_or(Ok(stream), Err)
}

/// A UDP socket of any port that is connected to an address.
///
/// # Errors
/// The kernel's: no route to the address, for one.
pub fn connect_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    Ok(socket)
}

/// Does the same with each at the same time, as each waits for round trips; an error where a thread could not run.
pub(super) fn in_parallel<I: Send, T: Send>(
    all: impl ExactSizeIterator<Item = I>,
    one: &(impl Fn(I) -> T + Sync),
) -> Vec<io::Result<T>> {
    if all.len() == 1 {
        return all.map(|only| Ok(one(only))).collect();
    }
    let in_thread = || thread::Builder::new().name("connect".to_owned());
    thread::scope(|scope| {
        let begun: Vec<_> =
            all.map(|each| in_thread().spawn_scoped(scope, move || one(each))).collect();
        let ended = |thread: thread::ScopedJoinHandle<'_, T>| {
            thread.join().map_err(|_| io::Error::other("the thread that connects ended"))
        };
        begun.into_iter().map(|begun| begun.and_then(ended)).collect()
    })
}

/// Why the connections of a test could not be made, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DataConnectError(String);

impl From<UdpHandshakeError> for DataConnectError {
    fn from(error: UdpHandshakeError) -> Self {
        Self(error.to_string())
    }
}

impl DataConnectError {
    /// What the kernel's error means at this address.
    pub fn of(address: SocketAddr, source: &io::Error) -> Self {
        use io::ErrorKind;
        let needs_zone = match address {
            SocketAddr::V6(v6) => v6.ip().is_unicast_link_local() && v6.scope_id() == 0,
            SocketAddr::V4(_) => false,
        };
        Self(match source.kind() {
            _ if needs_zone => format!(
                "{address} is link-local, and on which link is not said; add its zone, as in fe80::1%eth0"
            ),
            ErrorKind::ConnectionRefused => format!(
                "{address} refuses the test's data connection although the control connection stands; a firewall over \
                 there rejects it: open that port, or give the agent one with --data-port; or the address is another \
                 host's: name the agent's own with --to"
            ),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => format!(
                "the test's data connection to {address} was not answered in {} s although the control connection \
                 stands; a firewall or a NAT on the way drops it: open that port, give the agent one with --data-port, \
                 or name another address with --to",
                CONNECT_TIMEOUT.as_secs()
            ),
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                format!(
                    "what takes connections at {address} is not the agent of this test; the address leads to another host \
                 than the control connection: name the agent's own with --to"
                )
            }
            ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable => format!(
                "{address} cannot be reached from this host ({source}); check the address and the route to it, or name \
                 another address of the agent with --to"
            ),
            _ => format!(
                "cannot connect to {address}: {source}; check this host's network, or name another address with --to"
            ),
        })
    }
}
