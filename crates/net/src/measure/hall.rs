//! Where those wait who have connected to a test's port and have not shown its token yet.
//!
//! One thread hears all of them, none of which can hold the others up: who says nothing is sent away after a while,
//! and at once for somebody new when there are many. Nobody is answered here. Left out: what becomes of those with
//! the token (`super::stream`).

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;

use plumb_sys::epoll::{Epoll, Interest};

use super::stream::{PREAMBLE_BYTES, is_pause};
use crate::clock::{sleep_until, steady_ns};
use crate::protocol::token::{TOKEN_BYTES, Token};

/// How long a stranger may say nothing, or not enough.
const PATIENCE_NS: u64 = 5_000_000_000;
/// Strangers that are listened to at once; one more sends the first of them away.
const STRANGERS_MAX: usize = 64;
/// How long one look waits for somebody at most, so that a halt is seen.
const LOOK_MS: i32 = 20;
/// How long to wait when the kernel has no descriptor for a connection.
const PAUSE_NS: u64 = 5_000_000;
/// What the listening socket is called among the strangers.
const DOOR: u64 = 0;
const READABLE: Interest = Interest { read: true, write: false };

/// Strangers at the port of one test, the first to come in front.
#[derive(Debug)]
pub(super) struct Hall<'a> {
    listener: &'a TcpListener,
    epoll: Epoll,
    strangers: VecDeque<Stranger>,
    came: u64,
}

/// Somebody who has connected.
#[derive(Debug)]
struct Stranger {
    name: u64,
    stream: TcpStream,
    until_ns: u64,
    preamble: [u8; PREAMBLE_BYTES],
    filled: usize,
}

/// What a look at a stranger gives.
enum Said {
    /// Not all yet.
    Little,
    /// Everything, or the end.
    Enough,
}

impl<'a> Hall<'a> {
    /// With the doors open: at a listening socket that does not block.
    pub(super) fn open(listener: &'a TcpListener) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(listener.as_fd(), DOOR, READABLE)?;
        Ok(Self { listener, epoll, strangers: VecDeque::new(), came: DOOR })
    }

    /// Waits a moment; those who have shown the token meanwhile, with the numbers of their connections.
    pub(super) fn greet(&mut self, token: Token) -> io::Result<Vec<(u16, TcpStream)>> {
        let now = steady_ns();
        while self.strangers.front().is_some_and(|first| first.until_ns <= now) {
            self.strangers.pop_front();
        }
        let mut events = Vec::with_capacity(STRANGERS_MAX);
        match self.epoll.wait(&mut events, LOOK_MS) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut known = Vec::new();
        for event in events {
            if event.token == DOOR {
                self.let_in(token, &mut known);
            } else if let Some(place) = self.strangers.iter().position(|s| s.name == event.token)
                && matches!(self.strangers[place].listen(), Said::Enough)
                && let Some(stranger) = self.strangers.remove(place)
            {
                known.extend(self.judge(stranger, token));
            }
        }
        Ok(known)
    }

    /// Everybody who waits outside. Most have said what they have to say by then.
    fn let_in(&mut self, token: Token, known: &mut Vec<(u16, TcpStream)>) {
        for _ in 0..STRANGERS_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_pause(&error) => return,
                // The connection's own end; or no descriptor is left, until somebody goes.
                Err(_) => {
                    self.strangers.pop_front();
                    return sleep_until(steady_ns() + PAUSE_NS);
                }
            };
            self.came += 1;
            let (name, until_ns) = (self.came, steady_ns() + PATIENCE_NS);
            let preamble = [0; PREAMBLE_BYTES];
            let mut stranger = Stranger { name, stream, until_ns, preamble, filled: 0 };
            if stranger.stream.set_nonblocking(true).is_err()
                || self.epoll.add(stranger.stream.as_fd(), name, READABLE).is_err()
            {
                continue;
            }
            if matches!(stranger.listen(), Said::Enough) {
                known.extend(self.judge(stranger, token));
                continue;
            }
            if self.strangers.len() >= STRANGERS_MAX {
                self.strangers.pop_front();
            }
            self.strangers.push_back(stranger);
        }
    }

    /// The connection of somebody who has the token; closes any other.
    fn judge(&self, stranger: Stranger, token: Token) -> Option<(u16, TcpStream)> {
        let Stranger { stream, preamble, filled, .. } = stranger;
        if filled < PREAMBLE_BYTES || !token.opens(&preamble) {
            return None;
        }
        self.epoll.remove(stream.as_fd()).ok()?;
        stream.set_nonblocking(false).ok()?;
        Some((u16::from_le_bytes([preamble[TOKEN_BYTES], preamble[TOKEN_BYTES + 1]]), stream))
    }
}

impl Stranger {
    fn listen(&mut self) -> Said {
        while self.filled < PREAMBLE_BYTES {
            match self.stream.read(&mut self.preamble[self.filled..]) {
                Ok(0) => return Said::Enough,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_pause(&error) => return Said::Little,
                Err(_) => return Said::Enough,
            }
        }
        Said::Enough
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, Shutdown};

    use super::*;

    const TOKEN: Token = Token([5; TOKEN_BYTES]);

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
        let mut hall = Hall::open(&listener).unwrap();
        let mut silent = Vec::new();
        for _ in 0..1_000 {
            silent.push(come(&listener, &TOKEN.0[..3]));
            assert!(hall.greet(TOKEN).unwrap().is_empty());
            assert!(hall.strangers.len() <= STRANGERS_MAX);
        }
        let _client = come(&listener, &[&TOKEN.0[..], &[7, 0]].concat());
        let mut known = Vec::new();
        while known.is_empty() {
            known = hall.greet(TOKEN).unwrap();
        }
        assert_eq!(known[0].0, 7);
        let mut first = &silent[0];
        assert_eq!(first.read(&mut [0]).unwrap_or(0), 0, "sent away without a word");
    }

    #[test]
    fn a_preamble_in_pieces_is_heard_and_a_wrong_or_short_one_is_not() {
        let listener = port();
        let mut hall = Hall::open(&listener).unwrap();
        let preamble = [&TOKEN.0[..], &[1, 2]].concat();
        let mut wrong = preamble.clone();
        wrong[15] ^= 1;
        let strangers = [come(&listener, &wrong), come(&listener, &preamble[..17])];
        strangers[1].shutdown(Shutdown::Write).unwrap();
        let mut slow = come(&listener, b"");
        let mut known = Vec::new();
        for byte in &preamble {
            assert!(known.is_empty());
            slow.write_all(&[*byte]).unwrap();
            known.extend(hall.greet(TOKEN).unwrap());
        }
        while known.is_empty() {
            known.extend(hall.greet(TOKEN).unwrap());
        }
        assert_eq!((known.len(), known[0].0), (1, 0x0201));
        for mut stranger in strangers {
            assert_eq!(stranger.read(&mut [0]).unwrap_or(0), 0, "closed without a word");
        }
        assert!(hall.strangers.is_empty());
    }
}
