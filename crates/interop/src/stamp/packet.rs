//! The packets of either side in either mode (RFC 8762 §4.2 and §4.3, with RFC 8972 §3's session id), big-endian.
//!
//! ```text
//!                      open                     authenticated
//!              asks       answers          asks          answers
//! sequence      0          0                0             0
//! time          4          4                16            16
//! error         12         12               24            24
//! session id    14         14               26            26
//! received                 16                             32
//! its sequence             24                             48
//! its time                 28                             64
//! its error                36                             72
//! its TTL                  40                             80
//! seal                                      96            96
//! length        44         44               112           112
//! ```
//!
//! Everything between is zero. It is looked at only to tell an answer from a question (`is_answer`): a sender of
//! TWAMP Light has padding from byte 14 on, which may be anything. Left out: what follows the packet
//! ([`super::tlv`]).

use super::hmac::{self, StampKey};

/// Bytes of a packet without a seal.
pub const UNAUTHENTICATED_LEN: usize = 44;
/// Bytes of a packet with one.
pub const AUTHENTICATED_LEN: usize = 112;

/// Where everything is, in one mode.
#[derive(Debug)]
struct StampPacketLayout {
    time: usize,
    error: usize,
    session: usize,
    received: usize,
    sender_sequence: usize,
    sender_time: usize,
    sender_error: usize,
    sender_ttl: usize,
}

const UNAUTHENTICATED: StampPacketLayout = StampPacketLayout {
    time: 4,
    error: 12,
    session: 14,
    received: 16,
    sender_sequence: 24,
    sender_time: 28,
    sender_error: 36,
    sender_ttl: 40,
};

const AUTHENTICATED: StampPacketLayout = StampPacketLayout {
    time: 16,
    error: 24,
    session: 26,
    received: 32,
    sender_sequence: 48,
    sender_time: 64,
    sender_error: 72,
    sender_ttl: 80,
};

const fn layout(key: Option<&StampKey>) -> &'static StampPacketLayout {
    if key.is_some() { &AUTHENTICATED } else { &UNAUTHENTICATED }
}

/// Bytes of a packet with or without a key.
pub const fn len(key: Option<&StampKey>) -> usize {
    if key.is_some() { AUTHENTICATED_LEN } else { UNAUTHENTICATED_LEN }
}

/// A packet that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StampPacketError {
    /// Shorter than the mode's packets are.
    #[error(
        "{bytes} bytes are too few for a packet of this mode: the other side is in another mode"
    )]
    Short {
        /// How many came.
        bytes: usize,
    },
    /// Not sealed with this key.
    #[error("the packet has an invalid HMAC: give both sides the same key")]
    BadHmac,
}

/// What a session-sender asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampQuestion {
    /// Its number.
    pub sequence: u32,
    /// T1 as written.
    pub time: u64,
    /// The error of T1 as written.
    pub error: u16,
    /// Which session, of those between the same two ports.
    pub session: u16,
}

impl StampQuestion {
    /// Writes the packet at the start of `buffer`, and seals it where there is a key.
    ///
    /// # Panics
    /// Where the buffer is shorter than [`len`], which only a bug makes it.
    pub fn write(&self, key: Option<&StampKey>, buffer: &mut [u8]) {
        let at = layout(key);
        let packet = &mut buffer[..len(key)];
        packet.fill(0);
        self.write_common(at, packet);
        append_hmac(packet, key);
    }

    /// What either side's packet begins with.
    fn write_common(&self, at: &StampPacketLayout, packet: &mut [u8]) {
        put(packet, 0, self.sequence.to_be_bytes());
        put(packet, at.time, self.time.to_be_bytes());
        put(packet, at.error, self.error.to_be_bytes());
        put(packet, at.session, self.session.to_be_bytes());
    }

    fn read_common(at: &StampPacketLayout, packet: &[u8]) -> Self {
        Self {
            sequence: u32::from_be_bytes(take(packet, 0)),
            time: u64::from_be_bytes(take(packet, at.time)),
            error: u16::from_be_bytes(take(packet, at.error)),
            session: u16::from_be_bytes(take(packet, at.session)),
        }
    }

    /// Reads a packet, and whatever follows it.
    pub fn read<'a>(
        key: Option<&StampKey>,
        bytes: &'a [u8],
    ) -> Result<(Self, &'a [u8]), StampPacketError> {
        let (packet, rest) = split_authenticated(key, bytes)?;
        Ok((Self::read_common(layout(key), packet), rest))
    }
}

/// What a session-reflector answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampAnswer {
    /// The reflector's own number, or the question's.
    pub sequence: u32,
    /// T3 as written.
    pub time: u64,
    /// The error of T2 and T3 as written.
    pub error: u16,
    /// T2 as written.
    pub received: u64,
    /// The question as it came, with its session.
    pub sender: StampQuestion,
    /// The question's time to live, or hop limit, when it came.
    pub ttl: u8,
}

impl StampAnswer {
    /// Writes the packet at the start of `buffer`, and seals it where there is a key.
    ///
    /// # Panics
    /// Where the buffer is shorter than [`len`], which only a bug makes it.
    pub fn write(&self, key: Option<&StampKey>, buffer: &mut [u8]) {
        let at = layout(key);
        let packet = &mut buffer[..len(key)];
        packet.fill(0);
        let Self { sequence, time, error, .. } = *self;
        StampQuestion { sequence, time, error, session: self.sender.session }
            .write_common(at, packet);
        put(packet, at.received, self.received.to_be_bytes());
        put(packet, at.sender_sequence, self.sender.sequence.to_be_bytes());
        put(packet, at.sender_time, self.sender.time.to_be_bytes());
        put(packet, at.sender_error, self.sender.error.to_be_bytes());
        put(packet, at.sender_ttl, [self.ttl]);
        append_hmac(packet, key);
    }

    /// Reads a packet, and whatever follows it.
    pub fn read<'a>(
        key: Option<&StampKey>,
        bytes: &'a [u8],
    ) -> Result<(Self, &'a [u8]), StampPacketError> {
        let (packet, rest) = split_authenticated(key, bytes)?;
        let at = layout(key);
        let [ttl] = take(packet, at.sender_ttl);
        let StampQuestion { sequence, time, error, session } =
            StampQuestion::read_common(at, packet);
        let answer = Self {
            sequence,
            time,
            error,
            received: u64::from_be_bytes(take(packet, at.received)),
            sender: StampQuestion {
                sequence: u32::from_be_bytes(take(packet, at.sender_sequence)),
                time: u64::from_be_bytes(take(packet, at.sender_time)),
                error: u16::from_be_bytes(take(packet, at.sender_error)),
                session,
            },
            ttl,
        };
        Ok((answer, rest))
    }
}

/// Whether a packet is what a reflector writes, and no question: it has a time of reception where a question has
/// nothing, and zeros where the padding of a sender that has any would go on.
///
/// Whoever answers those talks without end to another who does.
pub fn is_reflected(key: Option<&StampKey>, packet: &[u8]) -> bool {
    let at = layout(key);
    let end = if key.is_some() { AUTHENTICATED_LEN - hmac::LEN } else { UNAUTHENTICATED_LEN };
    let is_zero = |from: usize, to: usize| {
        packet.get(from..to).is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0))
    };
    let between = [
        (at.session + 2, at.received),
        (at.received + 8, at.sender_sequence),
        (at.sender_sequence + 4, at.sender_time),
        (at.sender_time + 8, at.sender_error),
        (at.sender_error + 2, at.sender_ttl),
        (at.sender_ttl + 1, end),
    ];
    !is_zero(at.received, at.received + 8) && between.iter().all(|&(from, to)| is_zero(from, to))
}

fn put<const N: usize>(packet: &mut [u8], at: usize, bytes: [u8; N]) {
    packet[at..at + N].copy_from_slice(&bytes);
}

fn take<const N: usize>(packet: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&packet[at..at + N]);
    bytes
}

fn append_hmac(packet: &mut [u8], key: Option<&StampKey>) {
    if let Some(key) = key {
        let (body, end) = packet.split_at_mut(AUTHENTICATED_LEN - hmac::LEN);
        end.copy_from_slice(&key.authenticate(&[body]));
    }
}

/// Divides bytes into a packet, whose seal is right, and the rest.
fn split_authenticated<'a>(
    key: Option<&StampKey>,
    bytes: &'a [u8],
) -> Result<(&'a [u8], &'a [u8]), StampPacketError> {
    let short = StampPacketError::Short { bytes: bytes.len() };
    let (packet, rest) = bytes.split_at_checked(len(key)).ok_or(short)?;
    if let Some(key) = key {
        let (body, end) = packet.split_at(AUTHENTICATED_LEN - hmac::LEN);
        if !key.verify(&[body], end) {
            return Err(StampPacketError::BadHmac);
        }
    }
    Ok((packet, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn questions() -> impl Strategy<Value = StampQuestion> {
        any::<(u32, u64, u16, u16)>().prop_map(|(sequence, time, error, session)| StampQuestion {
            sequence,
            time,
            error,
            session,
        })
    }

    proptest! {
        #[test]
        fn packets_are_read_as_written_in_both_modes(
            sender in questions(), own in any::<(u32, u64, u16, u64, u8)>(), rest: Vec<u8>,
        ) {
            let (sequence, time, error, received, ttl) = own;
            let answer = StampAnswer { sequence, time, error, received, sender, ttl };
            let key = StampKey::new(b"secret");
            for key in [None, Some(&key)] {
                let mut bytes = vec![0xff; len(key)];
                bytes.extend(&rest);
                sender.write(key, &mut bytes);
                prop_assert_eq!(StampQuestion::read(key, &bytes), Ok((sender, &rest[..])));
                answer.write(key, &mut bytes);
                prop_assert_eq!(StampAnswer::read(key, &bytes), Ok((answer, &rest[..])));
            }
        }

        #[test]
        fn a_sealed_packet_with_any_bit_changed_is_refused(
            sender in questions(), bit in 0..AUTHENTICATED_LEN * 8,
        ) {
            let key = StampKey::new(b"secret");
            let mut bytes = [0; AUTHENTICATED_LEN];
            sender.write(Some(&key), &mut bytes);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(StampQuestion::read(Some(&key), &bytes), Err(StampPacketError::BadHmac));
        }

        #[test]
        fn any_bytes_are_a_packet_or_a_reason(bytes: Vec<u8>) {
            for key in [None, Some(&StampKey::new(b"x"))] {
                let short = bytes.len() < len(key);
                prop_assert_eq!(StampQuestion::read(key, &bytes).is_err(), short || key.is_some());
                prop_assert_eq!(StampAnswer::read(key, &bytes).is_err(), short || key.is_some());
            }
        }
    }

    #[test]
    fn an_answer_is_told_from_a_question_whatever_its_padding() {
        let question = StampQuestion { sequence: 1, time: u64::MAX, error: 3, session: u16::MAX };
        let answer = StampAnswer { received: 1, sender: question, ..StampAnswer::default() };
        for key in [None, Some(&StampKey::new(b"x"))] {
            let mut bytes = vec![0; len(key)];
            question.write(key, &mut bytes);
            assert!(!is_reflected(key, &bytes));
            answer.write(key, &mut bytes);
            assert!(is_reflected(key, &bytes));
            // As TWAMP Light pads: the same byte throughout, or any.
            for padding in [0x55, 0xff] {
                bytes[layout(key).session..].fill(padding);
                assert!(!is_reflected(key, &bytes));
            }
        }
        assert!(!is_reflected(None, &[1; 20]), "nor is half a packet one");
    }

    #[test]
    fn every_field_is_where_the_document_draws_it() {
        let question = StampQuestion { sequence: 1, time: 2, error: 3, session: 4 };
        let answer =
            StampAnswer { sequence: 5, time: 6, error: 7, received: 8, sender: question, ttl: 9 };
        let ends = |bytes: &[u8]| -> Vec<(usize, u8)> {
            let present = bytes.iter().copied().enumerate();
            present.filter(|&(_, byte)| byte != 0).collect()
        };
        let mut bytes = [0; UNAUTHENTICATED_LEN];
        question.write(None, &mut bytes);
        assert_eq!(ends(&bytes), [(3, 1), (11, 2), (13, 3), (15, 4)]);
        answer.write(None, &mut bytes);
        let open = [(3, 5), (11, 6), (13, 7), (15, 4), (23, 8), (27, 1), (35, 2), (37, 3), (40, 9)];
        assert_eq!(ends(&bytes), open);
        let mut bytes = [0; AUTHENTICATED_LEN];
        answer.write(Some(&StampKey::new(b"x")), &mut bytes);
        let sealed =
            [(3, 5), (23, 6), (25, 7), (27, 4), (39, 8), (51, 1), (71, 2), (73, 3), (80, 9)];
        assert_eq!(ends(&bytes[..96]), sealed);
    }
}
