//! The first forty bytes of every datagram of a session, big-endian.
//!
//! ```text
//!  0  token of the session (16)      20  sequence number (4)
//! 16  kind (1)                       24  intended time of sending, or final count (8)
//! 17  zero (1)                       32  actual time of sending (8)
//! 18  stream (2)
//! ```
//!
//! The token shows that a datagram, or a connection that begins with it, belongs to a test.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Bytes of a header, and so of the smallest datagram of a session.
pub const HEADER_BYTES: usize = 40;

/// What a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestDatagramKind {
    /// One of the numbered ones that are measured.
    Data,
    /// The sender has sent its last; carries how many there were.
    End,
    /// The end was heard: it need not be said again.
    EndAck,
    /// Shows the token, so that this address may be sent to.
    Hello,
    /// The token was right.
    HelloReply,
    /// Asks whether a datagram of this size arrives.
    Probe,
    /// A probe arrived; carries its size.
    ProbeAck,
    /// The receiver is there: it may be sent more.
    Presence,
}

const KINDS: [(TestDatagramKind, u8); 8] = [
    (TestDatagramKind::Data, 1),
    (TestDatagramKind::End, 2),
    (TestDatagramKind::EndAck, 3),
    (TestDatagramKind::Hello, 4),
    (TestDatagramKind::HelloReply, 5),
    (TestDatagramKind::Probe, 6),
    (TestDatagramKind::ProbeAck, 7),
    (TestDatagramKind::Presence, 8),
];

/// What a header says besides its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestDatagramHeader {
    /// What the datagram is for.
    pub kind: TestDatagramKind,
    /// Which of the streams of its session.
    pub stream: u16,
    /// Its number, which wraps.
    pub sequence: u32,
    /// When it was to leave, by the sender's clock; of an end, how many there were in all; of a heard
    /// probe, its bytes.
    pub intended_ns: u64,
    /// When it left, by the sender's clock.
    pub sent_ns: u64,
}

impl TestDatagramHeader {
    /// A header that carries one number and no time.
    pub const fn of(kind: TestDatagramKind, stream: u16, sequence: u32, number: u64) -> Self {
        Self { kind, stream, sequence, intended_ns: number, sent_ns: 0 }
    }

    /// Writes token and header at the start of a datagram.
    ///
    /// # Panics
    /// Where the buffer is shorter than [`HEADER_BYTES`], which only a bug makes it.
    #[inline]
    pub fn write(&self, token: &TestToken, buffer: &mut [u8]) {
        let code = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or(0, |(_, code)| *code);
        buffer[TOKEN].copy_from_slice(&token.0);
        buffer[16] = code;
        buffer[17] = 0;
        buffer[STREAM].copy_from_slice(&self.stream.to_be_bytes());
        buffer[SEQUENCE].copy_from_slice(&self.sequence.to_be_bytes());
        buffer[INTENDED].copy_from_slice(&self.intended_ns.to_be_bytes());
        buffer[SENT].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// A datagram of a token and a header alone.
    pub fn to_bytes(&self, token: &TestToken) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        self.write(token, &mut bytes);
        bytes
    }

    /// Reads a datagram of the session that `token` belongs to; `None` where it is not one.
    #[inline]
    pub fn read(token: &TestToken, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEADER_BYTES || !token.matches_prefix(bytes) {
            return None;
        }
        let kind = KINDS.iter().find(|(_, code)| *code == bytes[16])?.0;
        Some(Self {
            kind,
            stream: u16::from_be_bytes(bytes[STREAM].try_into().ok()?),
            sequence: u32::from_be_bytes(bytes[SEQUENCE].try_into().ok()?),
            intended_ns: u64::from_be_bytes(bytes[INTENDED].try_into().ok()?),
            sent_ns: u64::from_be_bytes(bytes[SENT].try_into().ok()?),
        })
    }
}

const TOKEN: Range<usize> = 0..16;
const STREAM: Range<usize> = 18..20;
const SEQUENCE: Range<usize> = 20..24;
const INTENDED: Range<usize> = 24..32;
const SENT: Range<usize> = 32..40;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 16;

/// Names a test to those who were told; 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TestToken(pub [u8; TOKEN_BYTES]);

impl TestToken {
    /// Whether `bytes` begin with this token; looks at all of it, whatever differs first.
    #[inline]
    pub fn matches_prefix(&self, bytes: &[u8]) -> bool {
        bytes.first_chunk::<TOKEN_BYTES>().is_some_and(|head| {
            self.0.iter().zip(head).fold(0, |differs, (ours, theirs)| differs | (ours ^ theirs))
                == 0
        })
    }
}

impl fmt::Debug for TestToken {
    /// Its first two bytes: enough to tell tests apart in a message, too little to join one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_header_is_read_as_written_and_by_nobody_with_another_token(
            token: [u8; 16], stream: u16, sequence: u32, intended_ns: u64, sent_ns: u64,
            kind in 0..KINDS.len(), flipped in 0..128_usize,
        ) {
            let (token, kind) = (TestToken(token), KINDS[kind].0);
            let header = TestDatagramHeader { kind, stream, sequence, intended_ns, sent_ns };
            let bytes = header.to_bytes(&token);
            prop_assert_eq!(TestDatagramHeader::read(&token, &bytes), Some(header));
            let mut other = token;
            other.0[flipped / 8] ^= 1 << (flipped % 8);
            prop_assert_eq!(TestDatagramHeader::read(&other, &bytes), None);
            prop_assert_eq!(TestDatagramHeader::read(&token, &bytes[..HEADER_BYTES - 1]), None);
        }

        #[test]
        fn any_bytes_are_a_header_or_nothing(token: [u8; 16], bytes: Vec<u8>) {
            let token = TestToken(token);
            let _ = TestDatagramHeader::read(&token, &bytes);
            let mut right = bytes;
            right.splice(..right.len().min(16), token.0);
            if let Some(header) = TestDatagramHeader::read(&token, &right) {
                prop_assert_eq!(TestDatagramHeader::read(&token, &header.to_bytes(&token)), Some(header));
            }
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        assert_eq!(format!("{:?}", TestToken([9; TOKEN_BYTES])), "0909…");
    }
}
