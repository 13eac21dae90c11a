//! The door of a launch on another host: who shows its token is let in, and nothing is sent to anybody else.
//!
//! Left out: what is done with a connection.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use plumb_base::time::Span;
use plumb_sys::{fd, timer};

use super::protocol::AdmissionToken;
use crate::mechanisms::{IoResultExt as _, OpenError};
use plumb_clock::monotonic_ns;

/// Bytes that are shown: the token, and which of several connections this is.
const PREAMBLE_LEN: usize = 18;
/// How long who connects may take to show them.
const PREAMBLE_TIMEOUT: Span = Span::from_secs(3);
/// Connections that may be about to show them.
const PENDING_MAX: usize = 64;
/// How often is looked around.
const POLL_MS: i32 = 5;
/// How long the other side is waited for.
pub(super) const ADMISSION_TIMEOUT: Span = Span::from_secs(15);

/// What is shown for one of several connections.
pub(super) fn preamble(token: &AdmissionToken, number: u16) -> [u8; PREAMBLE_LEN] {
    let mut bytes = [0; PREAMBLE_LEN];
    let (front, back) = bytes.split_at_mut(token.len());
    front.copy_from_slice(token);
    back.copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of a connection whose token is this one.
fn parse_preamble(bytes: &[u8], token: &AdmissionToken) -> Option<u16> {
    let (front, back) = bytes.split_at_checked(token.len())?;
    let differ = front.iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b));
    (differ == 0).then(|| u16::from_le_bytes([back[0], back[1]]))
}

/// Shows the token on a connection.
pub(super) fn send_preamble(
    mut stream: &TcpStream,
    token: &AdmissionToken,
    number: u16,
) -> io::Result<()> {
    stream.write_all(&preamble(token, number))
}

/// A socket at this address and a port that the kernel chooses; at any address, where this one is not the host's own
/// but is translated on the way.
pub(super) fn bind<S>(
    at: IpAddr,
    bind: impl Fn(SocketAddr) -> io::Result<S>,
) -> Result<S, OpenError> {
    let any: IpAddr = match at {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let is_elsewhere = TcpListener::bind(SocketAddr::new(at, 0))
        .is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable);
    let at = if is_elsewhere { any } else { at };
    bind(SocketAddr::new(at, 0)).attempt("open a socket for the other host")
}

/// Who has connected and not shown everything yet.
struct PendingAdmission {
    stream: TcpStream,
    bytes: [u8; PREAMBLE_LEN],
    len: usize,
    until_ns: u64,
}

impl PendingAdmission {
    /// Whether all is there; an error where there never will be.
    fn read_preamble(&mut self) -> io::Result<bool> {
        match self.stream.read(&mut self.bytes[self.len..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => self.len += len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if self.len < PREAMBLE_LEN && monotonic_ns() >= self.until_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(self.len == PREAMBLE_LEN)
    }
}

/// Lets in so many connections, each with the token and a number of its own, in the order of these.
///
/// # Errors
/// They did not come in time, or nobody waits for them any more.
pub(super) fn admit(
    listener: &TcpListener,
    token: &AdmissionToken,
    count: u16,
    is_left: &AtomicBool,
) -> Result<Vec<TcpStream>, OpenError> {
    listener.set_nonblocking(true).attempt("listen")?;
    let until_ns = monotonic_ns() + ADMISSION_TIMEOUT.as_ns();
    let mut admitted: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
    let mut callers: Vec<PendingAdmission> = Vec::new();
    while admitted.iter().any(Option::is_none) {
        check_wait(is_left, until_ns)?;
        // Whatever it is that failed: nobody came.
        drop(fd::poll_readable(listener.as_fd(), POLL_MS));
        // The others wait in the listener's queue.
        while callers.len() < PENDING_MAX {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // No descriptor is left, for now.
                Err(_) => {
                    timer::sleep_ns(u64::from(POLL_MS.unsigned_abs()) * 1_000_000);
                    break;
                }
            };
            if stream.set_nonblocking(true).is_ok() {
                let until_ns = monotonic_ns() + PREAMBLE_TIMEOUT.as_ns();
                callers.push(PendingAdmission {
                    stream,
                    bytes: [0; PREAMBLE_LEN],
                    len: 0,
                    until_ns,
                });
            }
        }
        let mut waiting = Vec::new();
        for mut caller in callers {
            match caller.read_preamble() {
                Ok(false) => waiting.push(caller),
                Ok(true) => {
                    let number = parse_preamble(&caller.bytes, token).map(usize::from);
                    if let Some(place) = number.and_then(|number| admitted.get_mut(number)) {
                        caller.stream.set_nonblocking(false).attempt("let a connection in")?;
                        place.get_or_insert(caller.stream);
                    }
                }
                // Without the token nothing is answered.
                Err(_) => {}
            }
        }
        callers = waiting;
    }
    Ok(admitted.into_iter().flatten().collect())
}

/// Waits for a datagram with the token, and has the socket know no other address than the one that it came from.
///
/// # Errors
/// None came in time, or nobody waits for it any more.
pub(super) fn admit_datagram(
    socket: &UdpSocket,
    token: &AdmissionToken,
    is_left: &AtomicBool,
) -> Result<SocketAddr, OpenError> {
    let until_ns = monotonic_ns() + ADMISSION_TIMEOUT.as_ns();
    let mut bytes = [0; PREAMBLE_LEN + 1];
    loop {
        check_wait(is_left, until_ns)?;
        if !matches!(fd::poll_readable(socket.as_fd(), POLL_MS), Ok(true)) {
            continue;
        }
        // A datagram that cannot be read is none with the token.
        if let Ok((PREAMBLE_LEN, from)) = socket.recv_from(&mut bytes)
            && parse_preamble(&bytes[..PREAMBLE_LEN], token).is_some()
        {
            socket.connect(from).attempt("connect the far UDP socket")?;
            return Ok(from);
        }
    }
}

fn check_wait(is_left: &AtomicBool, until_ns: u64) -> Result<(), OpenError> {
    if !is_left.load(Relaxed) && monotonic_ns() < until_ns {
        return Ok(());
    }
    Err(OpenError::Unavailable(format!(
        "nothing with the launch's token arrived at the other host within {ADMISSION_TIMEOUT}: let through what its firewall, \
         or one on the way, keeps from the ports in net.ipv4.ip_local_port_range"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: AdmissionToken = *b"0123456789abcdef";

    #[test]
    fn who_shows_no_token_or_another_is_neither_let_in_nor_sent_a_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let unknown_client = TcpStream::connect(at).unwrap();
        send_preamble(&unknown_client, b"0123456789abcdeX", 0).unwrap();
        let silent = TcpStream::connect(at).unwrap();
        let [first, second] = [(); 2].map(|()| TcpStream::connect(at).unwrap());
        send_preamble(&second, &TOKEN, 1).unwrap();
        send_preamble(&first, &TOKEN, 0).unwrap();
        let is_left = AtomicBool::new(false);
        let admitted = admit(&listener, &TOKEN, 2, &is_left).unwrap();
        let from: Vec<SocketAddr> = admitted.iter().map(|s| s.peer_addr().unwrap()).collect();
        assert_eq!(from, [first.local_addr().unwrap(), second.local_addr().unwrap()]);
        for mut other in [unknown_client, silent] {
            // Closed, or reset for what was never read.
            assert!(!matches!(other.read(&mut [0; 1]), Ok(1..)));
        }
    }

    #[test]
    fn a_datagram_is_answered_to_nobody_but_who_has_shown_the_token() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let [unknown_client, own] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for junk in [&b"hello"[..], &preamble(b"0123456789abcdeX", 0), &[0; PREAMBLE_LEN + 1]] {
            unknown_client.send_to(junk, at).unwrap();
        }
        own.send_to(&preamble(&TOKEN, 0), at).unwrap();
        let is_left = AtomicBool::new(false);
        assert_eq!(admit_datagram(&socket, &TOKEN, &is_left).unwrap(), own.local_addr().unwrap());
        assert_eq!(socket.peer_addr().unwrap(), own.local_addr().unwrap());
        unknown_client.set_nonblocking(true).unwrap();
        assert_eq!(unknown_client.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_door_is_closed_when_nobody_waits_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let is_left = AtomicBool::new(true);
        assert!(admit(&listener, &TOKEN, 1, &is_left).is_err());
    }

    #[test]
    fn an_address_that_is_translated_on_the_way_is_no_obstacle() {
        let foreign: IpAddr = "192.0.2.77".parse().unwrap();
        let listener = bind(foreign, TcpListener::bind).unwrap();
        assert!(listener.local_addr().unwrap().ip().is_unspecified());
    }
}
