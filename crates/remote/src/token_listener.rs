//! Where those wait who have connected to a test's port and have not shown its token yet.
//!
//! One thread hears all of them, none of which can hold the others up: who says nothing is sent away after a while,
//! and at once for somebody new when there are many. Nobody is answered here. Left out: what becomes of those with
//! the token (`super::stream`).

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Duration;

use plumb_sys::fd::{Epoll, EpollInterest};

use crate::task_control::TestControl;
use crate::token::{TOKEN_BYTES, TestToken};
use plumb_clock::{monotonic_ns, sleep_until};

/// What a connection sends first: the token and its number.
const PREAMBLE_BYTES: usize = TOKEN_BYTES + 2;
/// What it is answered with.
const ACCEPTED: u8 = 0x06;
/// How long making a connection and its preamble may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take to send its preamble.
const PREAMBLE_TIMEOUT_NS: u64 = 5_000_000_000;
/// Pending connections at once; one more evicts the oldest.
const PENDING_MAX: usize = 64;
/// How long one look waits for somebody at most, so that a halt is seen.
const POLL_MS: i32 = 20;
/// How long to wait when the kernel has no descriptor for a connection.
const PAUSE_NS: u64 = 5_000_000;
/// What the listening socket is called in the epoll set.
const LISTENER: u64 = 0;
const READABLE: EpollInterest = EpollInterest { read: true, write: false };

/// Accepted connections not yet authenticated, oldest first.
#[derive(Debug)]
struct TokenListener<'a> {
    listener: &'a TcpListener,
    epoll: Epoll,
    pending: VecDeque<PendingConnection>,
    accepted: u64,
}

/// Somebody who has connected.
#[derive(Debug)]
struct PendingConnection {
    id: u64,
    stream: TcpStream,
    until_ns: u64,
    preamble: [u8; PREAMBLE_BYTES],
    filled: usize,
}

/// How much of a preamble has been read.
enum PreambleStatus {
    /// Not all yet.
    Incomplete,
    /// Everything, or the end.
    Complete,
}

impl<'a> TokenListener<'a> {
    /// With the doors open: at a listening socket that does not block.
    fn new(listener: &'a TcpListener) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(listener.as_fd(), LISTENER, READABLE)?;
        Ok(Self { listener, epoll, pending: VecDeque::new(), accepted: LISTENER })
    }

    /// Waits a moment; those who have shown the token meanwhile, with the numbers of their connections.
    fn poll_authenticated(&mut self, token: TestToken) -> io::Result<Vec<(u16, TcpStream)>> {
        let now = monotonic_ns();
        while self.pending.front().is_some_and(|first| first.until_ns <= now) {
            self.pending.pop_front();
        }
        let mut events = Vec::with_capacity(PENDING_MAX);
        match self.epoll.wait(&mut events, POLL_MS) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut known = Vec::new();
        for event in events {
            if event.token == LISTENER {
                self.accept_pending(token, &mut known);
            } else if let Some(place) = self.pending.iter().position(|s| s.id == event.token)
                && matches!(self.pending[place].read_preamble(), PreambleStatus::Complete)
                && let Some(connection) = self.pending.remove(place)
            {
                known.extend(self.authenticate(connection, token));
            }
        }
        Ok(known)
    }

    /// Everybody who waits outside. Most have said what they have to say by then.
    fn accept_pending(&mut self, token: TestToken, known: &mut Vec<(u16, TcpStream)>) {
        for _ in 0..PENDING_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_retryable(&error) => return,
                // The connection's own end; or no descriptor is left, until somebody goes.
                Err(_) => {
                    self.pending.pop_front();
                    return sleep_until(monotonic_ns() + PAUSE_NS);
                }
            };
            self.accepted += 1;
            let (name, until_ns) = (self.accepted, monotonic_ns() + PREAMBLE_TIMEOUT_NS);
            let preamble = [0; PREAMBLE_BYTES];
            let mut connection =
                PendingConnection { id: name, stream, until_ns, preamble, filled: 0 };
            if connection.stream.set_nonblocking(true).is_err()
                || self.epoll.add(connection.stream.as_fd(), name, READABLE).is_err()
            {
                continue;
            }
            if matches!(connection.read_preamble(), PreambleStatus::Complete) {
                known.extend(self.authenticate(connection, token));
                continue;
            }
            if self.pending.len() >= PENDING_MAX {
                self.pending.pop_front();
            }
            self.pending.push_back(connection);
        }
    }

    /// The connection of somebody who has the token; closes any other.
    fn authenticate(
        &self,
        connection: PendingConnection,
        token: TestToken,
    ) -> Option<(u16, TcpStream)> {
        let PendingConnection { stream, preamble, filled, .. } = connection;
        if filled < PREAMBLE_BYTES || !token.matches_prefix(&preamble) {
            return None;
        }
        self.epoll.remove(stream.as_fd()).ok()?;
        stream.set_nonblocking(false).ok()?;
        Some((u16::from_le_bytes([preamble[TOKEN_BYTES], preamble[TOKEN_BYTES + 1]]), stream))
    }
}

impl PendingConnection {
    fn read_preamble(&mut self) -> PreambleStatus {
        while self.filled < PREAMBLE_BYTES {
            match self.stream.read(&mut self.preamble[self.filled..]) {
                Ok(0) => return PreambleStatus::Complete,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_retryable(&error) => return PreambleStatus::Incomplete,
                Err(_) => return PreambleStatus::Complete,
            }
        }
        PreambleStatus::Complete
    }
}

/// Connects within the time that there is for it.
pub fn connect_with_timeout(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
}

/// Shows the token on connection `index`, and waits until it is taken.
pub fn send_preamble(stream: &TcpStream, index: u16, token: TestToken) -> io::Result<()> {
    show_token(stream, index, token)?;
    wait_accepted(stream)
}

/// Shows the token on connection `index`.
pub fn show_token(mut stream: &TcpStream, index: u16, token: TestToken) -> io::Result<()> {
    let mut preamble = [0; PREAMBLE_BYTES];
    preamble[..TOKEN_BYTES].copy_from_slice(&token.0);
    preamble[TOKEN_BYTES..].copy_from_slice(&index.to_le_bytes());
    stream.write_all(&preamble)
}

/// Waits until the token that was shown is taken.
pub fn wait_accepted(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer == [ACCEPTED] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Takes as many connections as are wanted, each made into what is wanted of it.
pub fn accept_all<T>(
    listener: &TcpListener,
    wanted: usize,
    token: TestToken,
    until_ns: u64,
    control: &TestControl,
    take: impl Fn(u16, TcpStream) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let mut places: Vec<Option<T>> = (0..wanted).map(|_| None).collect();
    let mut pending_connections = TokenListener::new(listener)?;
    while places.iter().any(Option::is_none) {
        if control.is_halted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if monotonic_ns() >= until_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for (index, stream) in pending_connections.poll_authenticated(token)? {
            let Some(place) = places.get_mut(usize::from(index)) else { continue };
            if place.is_some() {
                continue;
            }
            // An end that cannot be as asked is no end: the client must not begin.
            let mut accepted = stream.try_clone()?;
            *place = Some(take(index, stream)?);
            accepted.write_all(&[ACCEPTED])?;
        }
    }
    Ok(places.into_iter().flatten().collect())
}

/// A call that may be made again: interrupted, or the time to look around has come.
pub fn is_retryable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, Shutdown};

    use super::*;

    const TOKEN: TestToken = TestToken([5; TOKEN_BYTES]);

    fn port() -> TcpListener {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    }

    fn come(listener: &TcpListener, says: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.write_all(says).unwrap();
        stream
    }

    #[test]
    fn whoever_has_the_token_is_let_in_though_a_thousand_wait_in_silence() {
        let listener = port();
        let mut pending_connections = TokenListener::new(&listener).unwrap();
        let mut silent = Vec::new();
        for _ in 0..1_000 {
            silent.push(come(&listener, &TOKEN.0[..3]));
            assert!(pending_connections.poll_authenticated(TOKEN).unwrap().is_empty());
            assert!(pending_connections.pending.len() <= PENDING_MAX);
        }
        let _client = come(&listener, &[&TOKEN.0[..], &[7, 0]].concat());
        let mut known = Vec::new();
        while known.is_empty() {
            known = pending_connections.poll_authenticated(TOKEN).unwrap();
        }
        assert_eq!(known[0].0, 7);
        let mut first = &silent[0];
        assert_eq!(first.read(&mut [0]).unwrap_or(0), 0, "sent away without a word");
    }

    #[test]
    fn a_preamble_in_pieces_is_heard_and_a_wrong_or_short_one_is_not() {
        let listener = port();
        let mut pending_connections = TokenListener::new(&listener).unwrap();
        let preamble = [&TOKEN.0[..], &[1, 2]].concat();
        let mut wrong = preamble.clone();
        wrong[15] ^= 1;
        let unknown_clients = [come(&listener, &wrong), come(&listener, &preamble[..17])];
        unknown_clients[1].shutdown(Shutdown::Write).unwrap();
        let mut slow = come(&listener, b"");
        let mut known = Vec::new();
        for byte in &preamble {
            assert!(known.is_empty());
            slow.write_all(&[*byte]).unwrap();
            known.extend(pending_connections.poll_authenticated(TOKEN).unwrap());
        }
        while known.is_empty() {
            known.extend(pending_connections.poll_authenticated(TOKEN).unwrap());
        }
        assert_eq!((known.len(), known[0].0), (1, 0x0201));
        for mut connection in unknown_clients {
            assert_eq!(connection.read(&mut [0]).unwrap_or(0), 0, "closed without a word");
        }
        assert!(pending_connections.pending.is_empty());
    }
}
