//! One connection that is two: bytes, ends and resets carried between a socket inside and one
//! outside.
//!
//! At most one buffer waits in each direction; the sockets' own flow control does the rest.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use plumb_sys::fd::EpollInterest;
use plumb_sys::socket;

/// Reads of one turn, so that no connection keeps the others waiting.
const READS: usize = 4;

/// Which of the two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RelaySide {
    Inside,
    Outside,
}

/// Both.
pub(super) const SIDES: [RelaySide; 2] = [RelaySide::Inside, RelaySide::Outside];

/// One direction.
#[derive(Debug, Default)]
struct RelayDirection {
    /// Read and not written yet.
    pending: Vec<u8>,
    /// Nothing more will be read.
    ended: bool,
    /// The receiver has been told so.
    is_shut_down: bool,
    bytes: u64,
}

/// Two sockets and what is between them, each by its [`RelaySide`].
#[derive(Debug)]
pub(super) struct TcpRelay {
    streams: [TcpStream; 2],
    /// What is carried from each side.
    from: [RelayDirection; 2],
    /// Sides that have ended both ways, which they report for as long as they are waited for.
    hung_up: [bool; 2],
}

impl TcpRelay {
    /// Of two connected sockets that do not wait.
    pub fn new(inside: TcpStream, outside: TcpStream) -> Self {
        // Small segments are forwarded at once, without Nagle's delay.
        inside.set_nodelay(true).ok();
        outside.set_nodelay(true).ok();
        Self { streams: [inside, outside], from: Default::default(), hung_up: [false; 2] }
    }

    pub fn fd(&self, side: RelaySide) -> BorrowedFd<'_> {
        self.streams[side as usize].as_fd()
    }

    /// Carries what can be carried now; the bytes of each side that were.
    ///
    /// # Errors
    /// Either side's, after which both shall be reset.
    pub fn pump(&mut self, scratch: &mut [u8]) -> io::Result<[u64; 2]> {
        let mut carried = [0; 2];
        for (side, direction) in self.from.iter_mut().enumerate() {
            let before = direction.bytes;
            direction.pump(&self.streams[side], &self.streams[1 - side], scratch)?;
            carried[side] = direction.bytes - before;
        }
        Ok(carried)
    }

    /// A side reports an error, or that it has ended both ways.
    ///
    /// # Errors
    /// The error, after which both sides shall be reset.
    pub fn on_failed(&mut self, side: RelaySide) -> io::Result<()> {
        self.hung_up[side as usize] = true;
        self.streams[side as usize].take_error()?.map_or(Ok(()), Err)
    }

    /// Whether both directions have ended.
    pub fn is_over(&self) -> bool {
        self.from.iter().all(|direction| direction.is_shut_down)
    }

    /// In how many directions nothing more will be read.
    pub fn ends(&self) -> usize {
        self.from.iter().filter(|direction| direction.ended).count()
    }

    /// What a side is waited for: where for nothing else, for its failure; `None` where that is known.
    pub fn interest(&self, side: RelaySide) -> Option<EpollInterest> {
        let side = side as usize;
        let (from, to) = (&self.from[side], &self.from[1 - side]);
        let read = !from.ended && from.pending.is_empty();
        let write = !to.pending.is_empty();
        // It has ended both ways, as it says itself or as both ends have been carried.
        let is_over = self.hung_up[side] || (from.ended && to.is_shut_down);
        (read || write || !is_over).then_some(EpollInterest { read, write })
    }

    /// Ends both sides by a reset.
    pub fn reset(self) {
        for stream in &self.streams {
            socket::reset_on_close(stream.as_fd()).ok();
        }
    }
}

#[cfg(test)]
impl TcpRelay {
    /// Whether bytes wait for room in either direction.
    pub fn is_held_up(&self) -> bool {
        self.from.iter().any(|direction| !direction.pending.is_empty())
    }
}

impl RelayDirection {
    fn pump(&mut self, from: &TcpStream, to: &TcpStream, scratch: &mut [u8]) -> io::Result<()> {
        if !self.flush(to)? {
            return Ok(());
        }
        for _ in 0..READS {
            if self.ended {
                break;
            }
            match socket::receive(from.as_fd(), scratch, false) {
                Ok(0) => self.ended = true,
                Ok(len) => {
                    let sent = send(to, &scratch[..len])?;
                    self.bytes += sent as u64;
                    if sent < len {
                        self.pending.extend_from_slice(&scratch[sent..len]);
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.ended && !self.is_shut_down {
            self.is_shut_down = true;
            match to.shutdown(Shutdown::Write) {
                // It has gone meanwhile: there is nobody to be told.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Writes what waits; whether nothing waits any more.
    fn flush(&mut self, to: &TcpStream) -> io::Result<bool> {
        if !self.pending.is_empty() {
            let sent = send(to, &self.pending)?;
            self.bytes += sent as u64;
            self.pending.drain(..sent);
            if self.pending.is_empty() {
                self.pending = Vec::new();
            }
        }
        Ok(self.pending.is_empty())
    }
}

/// Sends what there is room for.
fn send(to: &TcpStream, mut bytes: &[u8]) -> io::Result<usize> {
    let all = bytes.len();
    while !bytes.is_empty() {
        match socket::send(to.as_fd(), bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all - bytes.len())
}
