//! Accepted connections that have not yet sent a test's token.
//!
//! One thread polls them all, so that none blocks the others: a connection without a complete preamble is closed after
//! a timeout, or earlier when a new one needs its place.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Duration;

use plumb_base::time::Span;
use plumb_sys::fd::{Epoll, EpollInterest};

use crate::datagram_header::{TOKEN_BYTES, TestToken};
use crate::task_control::TestControl;
use plumb_clock::{monotonic_ns, sleep_until};

/// What a connection sends first: the token and its number.
const PREAMBLE_BYTES: usize = TOKEN_BYTES + 2;
/// What it is answered with.
const ACCEPTED: u8 = 0x06;
/// How long making a connection and its preamble may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take to send its preamble.
const PATIENCE: Span = Span::from_secs(5);
/// Pending connections at once; one more evicts the oldest.
const PENDING_MAX: usize = 64;
/// Longest wait for connections or bytes, so that a halt is noticed.
const POLL_MS: i32 = 20;
/// How long to wait when the kernel has no descriptor for a connection.
const PAUSE_NS: u64 = 5_000_000;
const READABLE: EpollInterest = EpollInterest { read: true, write: false };

/// The first bytes of a connection, the connection, and the address of its peer.
pub type ReceivedPreamble<const N: usize> = ([u8; N], TcpStream, SocketAddr);

/// Accepted connections whose first `N` bytes have not all arrived, oldest first.
#[derive(Debug)]
pub struct PreambleListener<'a, const N: usize> {
    listeners: &'a [TcpListener],
    epoll: Epoll,
    pending: VecDeque<PendingConnection<N>>,
    pending_max: usize,
    /// How long a connection may take for its first bytes.
    patience_ns: u64,
    accepted: u64,
}

/// An accepted connection.
#[derive(Debug)]
struct PendingConnection<const N: usize> {
    stream: TcpStream,
    from: SocketAddr,
    until_ns: u64,
    preamble: [u8; N],
    filled: usize,
}

impl<'a, const N: usize> PreambleListener<'a, N> {
    /// On nonblocking listening sockets. Of more than `pending_max` pending connections the oldest is closed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(
        listeners: &'a [TcpListener],
        pending_max: usize,
        patience: Span,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        for (token, listener) in (0..).zip(listeners) {
            epoll.add(listener.as_fd(), token, READABLE)?;
        }
        let (patience_ns, accepted) = (patience.as_ns(), listeners.len() as u64);
        let pending = VecDeque::new();
        Ok(Self { listeners, epoll, pending, pending_max, patience_ns, accepted })
    }

    /// Waits for `wait_ms` at most; the connections whose first bytes have arrived, in the order in which they were
    /// accepted, as blocking sockets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn poll(&mut self, wait_ms: i32) -> io::Result<Vec<ReceivedPreamble<N>>> {
        let now = monotonic_ns();
        while self.pending.front().is_some_and(|first| first.until_ns <= now) {
            self.pending.pop_front();
        }
        let mut events = Vec::with_capacity(self.pending_max);
        match self.epoll.wait(&mut events, wait_ms) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut opened = Vec::new();
        for event in &events {
            let listener = usize::try_from(event.token).ok().and_then(|at| self.listeners.get(at));
            if let Some(listener) = listener {
                self.accept_pending(listener, &mut opened);
            }
        }
        if !events.is_empty() {
            for mut connection in std::mem::take(&mut self.pending) {
                if connection.is_read() {
                    opened.extend(self.open(connection));
                } else {
                    self.pending.push_back(connection);
                }
            }
        }
        Ok(opened)
    }

    /// Accepts all connections in a listener's queue.
    fn accept_pending(&mut self, listener: &TcpListener, opened: &mut Vec<ReceivedPreamble<N>>) {
        for _ in 0..self.pending_max {
            let (stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error)
                    if is_retryable(&error) || error.kind() == io::ErrorKind::ConnectionAborted =>
                {
                    return;
                }
                // No descriptor is left until a connection is closed.
                Err(_) => {
                    self.pending.pop_front();
                    return sleep_until(monotonic_ns() + PAUSE_NS);
                }
            };
            let (id, until_ns) = (self.accepted, monotonic_ns() + self.patience_ns);
            self.accepted += 1;
            let connection =
                PendingConnection { stream, from, until_ns, preamble: [0; N], filled: 0 };
            if connection.stream.set_nonblocking(true).is_err()
                || self.epoll.add(connection.stream.as_fd(), id, READABLE).is_err()
            {
                continue;
            }
            if self.pending.len() >= self.pending_max
                && let Some(mut oldest) = self.pending.pop_front()
                && oldest.is_read()
            {
                opened.extend(self.open(oldest));
            }
            self.pending.push_back(connection);
        }
    }

    /// A connection whose preamble is complete; closes any other.
    fn open(&self, connection: PendingConnection<N>) -> Option<ReceivedPreamble<N>> {
        let PendingConnection { stream, from, preamble, filled, .. } = connection;
        self.epoll.remove(stream.as_fd()).ok()?;
        stream.set_nonblocking(false).ok()?;
        (filled == N).then_some((preamble, stream, from))
    }
}

impl<const N: usize> PendingConnection<N> {
    /// Whether the preamble is complete or the connection has ended.
    fn is_read(&mut self) -> bool {
        while self.filled < N {
            match self.stream.read(&mut self.preamble[self.filled..]) {
                Ok(0) => return true,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return !is_retryable(&error),
            }
        }
        true
    }
}

/// Connects within [`CONNECT_TIMEOUT`].
pub fn connect_with_timeout(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
}

/// Sends the token on connection `index`, and waits until it is accepted.
pub fn send_preamble(stream: &TcpStream, index: u16, token: TestToken) -> io::Result<()> {
    show_token(stream, index, token)?;
    wait_accepted(stream)
}

/// Sends the token on connection `index`.
pub fn show_token(mut stream: &TcpStream, index: u16, token: TestToken) -> io::Result<()> {
    let mut preamble = [0; PREAMBLE_BYTES];
    preamble[..TOKEN_BYTES].copy_from_slice(&token.0);
    preamble[TOKEN_BYTES..].copy_from_slice(&index.to_le_bytes());
    stream.write_all(&preamble)
}

/// Waits until the token is accepted.
pub fn wait_accepted(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer == [ACCEPTED] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Accepts `wanted` connections with the token, and converts each by `take`.
pub fn accept_all<T>(
    listener: &TcpListener,
    wanted: usize,
    token: TestToken,
    until_ns: u64,
    control: &TestControl,
    take: impl Fn(u16, TcpStream) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let mut places: Vec<Option<T>> = (0..wanted).map(|_| None).collect();
    let listeners = std::slice::from_ref(listener);
    let mut pending = PreambleListener::<PREAMBLE_BYTES>::new(listeners, PENDING_MAX, PATIENCE)?;
    while places.iter().any(Option::is_none) {
        if control.is_halted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if monotonic_ns() >= until_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for (preamble, stream, _) in pending.poll(POLL_MS)? {
            let index = u16::from_le_bytes([preamble[TOKEN_BYTES], preamble[TOKEN_BYTES + 1]]);
            let Some(place) = places.get_mut(usize::from(index)) else { continue };
            if place.is_some() || !token.matches_prefix(&preamble) {
                continue;
            }
            // The client must not begin unless its connection could be set up as asked.
            let mut accepted = stream.try_clone()?;
            *place = Some(take(index, stream)?);
            accepted.write_all(&[ACCEPTED])?;
        }
    }
    Ok(places.into_iter().flatten().collect())
}

/// Whether the call may be repeated: it was interrupted or timed out.
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

    fn listening(listener: &TcpListener) -> PreambleListener<'_, PREAMBLE_BYTES> {
        PreambleListener::new(std::slice::from_ref(listener), PENDING_MAX, PATIENCE).unwrap()
    }

    #[test]
    fn a_client_is_accepted_beside_a_thousand_silent_ones() {
        let listener = port();
        let mut waiting = listening(&listener);
        let mut silent = Vec::new();
        for _ in 0..1_000 {
            silent.push(come(&listener, &TOKEN.0[..3]));
            assert!(waiting.poll(POLL_MS).unwrap().is_empty());
            assert!(waiting.pending.len() <= PENDING_MAX);
        }
        let preamble = [&TOKEN.0[..], &[7, 0]].concat();
        let client = come(&listener, &preamble);
        let mut opened = Vec::new();
        while opened.is_empty() {
            opened = waiting.poll(POLL_MS).unwrap();
        }
        assert_eq!((&opened[0].0[..], opened[0].2), (&preamble[..], client.local_addr().unwrap()));
        let mut first = &silent[0];
        assert_eq!(first.read(&mut [0]).unwrap_or(0), 0, "sent away without a word");
    }

    #[test]
    fn a_preamble_in_pieces_is_accepted_and_a_short_one_is_not() {
        let listener = port();
        let mut waiting = listening(&listener);
        let preamble = [&TOKEN.0[..], &[1, 2]].concat();
        let mut short = come(&listener, &preamble[..17]);
        short.shutdown(Shutdown::Write).unwrap();
        let mut slow = come(&listener, b"");
        let mut opened = Vec::new();
        for byte in &preamble {
            assert!(opened.is_empty());
            slow.write_all(&[*byte]).unwrap();
            opened.extend(waiting.poll(POLL_MS).unwrap());
        }
        while opened.is_empty() {
            opened.extend(waiting.poll(POLL_MS).unwrap());
        }
        assert_eq!((opened.len(), &opened[0].0[..]), (1, &preamble[..]));
        assert_eq!(short.read(&mut [0]).unwrap_or(0), 0, "closed without a word");
        assert!(waiting.pending.is_empty());
    }

    #[test]
    fn only_connections_with_the_token_are_taken_each_once() {
        let listener = port();
        let mut wrong = TOKEN.0;
        wrong[15] ^= 1;
        let others = [[&wrong[..], &[0, 0]].concat(), [&TOKEN.0[..], &[2, 0]].concat()];
        let mut others = others.map(|says| come(&listener, &says));
        let clients = [1, 0].map(|index| come(&listener, &[&TOKEN.0[..], &[index, 0]].concat()));
        let until_ns = monotonic_ns() + 60_000_000_000;
        let take = |index, stream: TcpStream| Ok((index, stream.peer_addr()?));
        let taken = accept_all(&listener, 2, TOKEN, until_ns, &TestControl::default(), take);
        let [one, zero] = clients.map(|client| {
            wait_accepted(&client).unwrap();
            client.local_addr().unwrap()
        });
        assert_eq!(taken.unwrap(), [(0, zero), (1, one)]);
        for other in &mut others {
            assert_eq!(other.read(&mut [0]).unwrap_or(0), 0, "closed without a word");
        }
    }
}
