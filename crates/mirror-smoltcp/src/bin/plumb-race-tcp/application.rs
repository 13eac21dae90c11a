//! The application at both ends of a bulk transfer: one stream of bytes, and how it gets into and out of a stack.

use plumb_base::seed::Seed;
use rand::Rng as _;

/// How bytes pass between the application and a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketApi {
    /// The application's memory is the stack's buffer: it writes and reads there.
    InPlace,
    /// From and into memory of the application's own.
    Slices,
}

/// A stream that repeats the application's memory, at the end that sends.
#[derive(Debug)]
pub struct BulkSource {
    memory: Vec<u8>,
    at: usize,
}

/// The same stream at the end that receives.
#[derive(Debug)]
pub struct BulkSink {
    memory: Vec<u8>,
    expected: Vec<u8>,
    at: usize,
    /// Bytes received.
    pub received: u64,
    /// Compare what arrives.
    checks: bool,
}

/// Both ends of a stream with so much memory each. While it `checks`, bytes are written and compared; else bytes in a stack's buffer
/// are left as they are.
pub fn stream(memory: usize, checks: bool) -> (BulkSource, BulkSink) {
    let mut bytes = vec![0; memory];
    Seed(16).stream("bulk").fill_bytes(&mut bytes);
    let sink =
        BulkSink { memory: vec![1; memory], expected: bytes.clone(), at: 0, received: 0, checks };
    (BulkSource { memory: bytes, at: 0 }, sink)
}

impl BulkSource {
    /// What comes next and lies in one piece.
    #[inline]
    pub fn next(&self) -> &[u8] {
        &self.memory[self.at..]
    }

    /// So many bytes of it were taken.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        self.at += len;
        if self.at >= self.memory.len() {
            self.at -= self.memory.len();
        }
    }

    /// Fills all of `room`.
    pub fn fill(&mut self, room: &mut [u8]) -> usize {
        let mut done = 0;
        while done < room.len() {
            let piece = self.next();
            let len = piece.len().min(room.len() - done);
            room[done..done + len].copy_from_slice(&piece[..len]);
            self.advance(len);
            done += len;
        }
        room.len()
    }
}

impl BulkSink {
    /// Whether bytes are written and compared.
    pub const fn checks(&self) -> bool {
        self.checks
    }

    /// From now on bytes in a stack's buffer are left as they are.
    pub fn stop_checking(&mut self) {
        self.checks = false;
    }

    /// Memory to receive into, in one piece.
    #[inline]
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.at..]
    }

    /// So many bytes have been received into [`BulkSink::room`].
    #[inline]
    pub fn filled(&mut self, len: usize) {
        if self.checks {
            let range = self.at..self.at + len;
            assert!(self.memory[range.clone()] == self.expected[range], "the bytes that were sent");
        }
        self.advance(len);
    }

    /// Takes bytes where they are.
    #[inline]
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        if self.checks {
            let (mut at, mut rest) = (self.at, bytes);
            while !rest.is_empty() {
                let len = rest.len().min(self.expected.len() - at);
                assert!(rest[..len] == self.expected[at..at + len], "the bytes that were sent");
                rest = &rest[len..];
                at = (at + len) % self.expected.len();
            }
        }
        self.advance(bytes.len());
        bytes.len()
    }

    #[inline]
    fn advance(&mut self, len: usize) {
        self.at = (self.at + len) % self.expected.len();
        self.received += len as u64;
    }
}
