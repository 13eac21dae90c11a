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
//! Everything between is zero. It is looked at only to tell an answer from a question ([`is_answer`]): a sender of
//! TWAMP Light has padding from byte 14 on, which may be anything. Left out: what follows the packet
//! ([`super::tlv`]).

use super::seal::{self, Key};

/// Bytes of a packet without a seal.
pub const OPEN_LEN: usize = 44;
/// Bytes of a packet with one.
pub const SEALED_LEN: usize = 112;

/// Where everything is, in one mode.
#[derive(Debug)]
struct Layout {
    time: usize,
    error: usize,
    session: usize,
    received: usize,
    its_sequence: usize,
    its_time: usize,
    its_error: usize,
    its_ttl: usize,
}

const OPEN: Layout = Layout {
    time: 4,
    error: 12,
    session: 14,
    received: 16,
    its_sequence: 24,
    its_time: 28,
    its_error: 36,
    its_ttl: 40,
};

const SEALED: Layout = Layout {
    time: 16,
    error: 24,
    session: 26,
    received: 32,
    its_sequence: 48,
    its_time: 64,
    its_error: 72,
    its_ttl: 80,
};

const fn layout(key: Option<&Key>) -> &'static Layout {
    if key.is_some() { &SEALED } else { &OPEN }
}

/// Bytes of a packet with or without a key.
pub const fn len(key: Option<&Key>) -> usize {
    if key.is_some() { SEALED_LEN } else { OPEN_LEN }
}

/// A packet that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the mode's packets are.
    #[error(
        "{bytes} bytes are too few for a packet of this mode: the other side is in another mode"
    )]
    Short {
        /// How many came.
        bytes: usize,
    },
    /// Not sealed with this key.
    #[error("the packet is not sealed with this key: give both sides the same")]
    Unsealed,
}

/// What a session-sender asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Its number.
    pub sequence: u32,
    /// T1 as written.
    pub time: u64,
    /// The error of T1 as written.
    pub error: u16,
    /// Which session, of those between the same two ports.
    pub session: u16,
}

impl Question {
    /// Writes the packet at the start of `buffer`, and seals it where there is a key.
    ///
    /// # Panics
    /// Where the buffer is shorter than [`len`], which only a bug makes it.
    pub fn write(&self, key: Option<&Key>, buffer: &mut [u8]) {
        let at = layout(key);
        let packet = &mut buffer[..len(key)];
        packet.fill(0);
        self.put_head(at, packet);
        seal(packet, key);
    }

    /// What either side's packet begins with.
    fn put_head(&self, at: &Layout, packet: &mut [u8]) {
        put(packet, 0, self.sequence.to_be_bytes());
        put(packet, at.time, self.time.to_be_bytes());
        put(packet, at.error, self.error.to_be_bytes());
        put(packet, at.session, self.session.to_be_bytes());
    }

    fn take_head(at: &Layout, packet: &[u8]) -> Self {
        Self {
            sequence: u32::from_be_bytes(take(packet, 0)),
            time: u64::from_be_bytes(take(packet, at.time)),
            error: u16::from_be_bytes(take(packet, at.error)),
            session: u16::from_be_bytes(take(packet, at.session)),
        }
    }

    /// Reads a packet, and whatever follows it.
    pub fn read<'a>(key: Option<&Key>, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let (packet, rest) = open(key, bytes)?;
        Ok((Self::take_head(layout(key), packet), rest))
    }
}

/// What a session-reflector answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The reflector's own number, or the question's.
    pub sequence: u32,
    /// T3 as written.
    pub time: u64,
    /// The error of T2 and T3 as written.
    pub error: u16,
    /// T2 as written.
    pub received: u64,
    /// The question as it came, with its session.
    pub question: Question,
    /// The question's time to live, or hop limit, when it came.
    pub ttl: u8,
}

impl Answer {
    /// Writes the packet at the start of `buffer`, and seals it where there is a key.
    ///
    /// # Panics
    /// Where the buffer is shorter than [`len`], which only a bug makes it.
    pub fn write(&self, key: Option<&Key>, buffer: &mut [u8]) {
        let at = layout(key);
        let packet = &mut buffer[..len(key)];
        packet.fill(0);
        let Self { sequence, time, error, .. } = *self;
        Question { sequence, time, error, session: self.question.session }.put_head(at, packet);
        put(packet, at.received, self.received.to_be_bytes());
        put(packet, at.its_sequence, self.question.sequence.to_be_bytes());
        put(packet, at.its_time, self.question.time.to_be_bytes());
        put(packet, at.its_error, self.question.error.to_be_bytes());
        put(packet, at.its_ttl, [self.ttl]);
        seal(packet, key);
    }

    /// Reads a packet, and whatever follows it.
    pub fn read<'a>(key: Option<&Key>, bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let (packet, rest) = open(key, bytes)?;
        let at = layout(key);
        let [ttl] = take(packet, at.its_ttl);
        let Question { sequence, time, error, session } = Question::take_head(at, packet);
        let answer = Self {
            sequence,
            time,
            error,
            received: u64::from_be_bytes(take(packet, at.received)),
            question: Question {
                sequence: u32::from_be_bytes(take(packet, at.its_sequence)),
                time: u64::from_be_bytes(take(packet, at.its_time)),
                error: u16::from_be_bytes(take(packet, at.its_error)),
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
pub fn is_answer(key: Option<&Key>, packet: &[u8]) -> bool {
    let at = layout(key);
    let end = if key.is_some() { SEALED_LEN - seal::LEN } else { OPEN_LEN };
    let is_zero = |from: usize, to: usize| {
        packet.get(from..to).is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0))
    };
    let between = [
        (at.session + 2, at.received),
        (at.received + 8, at.its_sequence),
        (at.its_sequence + 4, at.its_time),
        (at.its_time + 8, at.its_error),
        (at.its_error + 2, at.its_ttl),
        (at.its_ttl + 1, end),
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

fn seal(packet: &mut [u8], key: Option<&Key>) {
    if let Some(key) = key {
        let (body, end) = packet.split_at_mut(SEALED_LEN - seal::LEN);
        end.copy_from_slice(&key.seal(&[body]));
    }
}

/// Divides bytes into a packet, whose seal is right, and the rest.
fn open<'a>(key: Option<&Key>, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    let short = Malformed::Short { bytes: bytes.len() };
    let (packet, rest) = bytes.split_at_checked(len(key)).ok_or(short)?;
    if let Some(key) = key {
        let (body, end) = packet.split_at(SEALED_LEN - seal::LEN);
        if !key.is_sealed(&[body], end) {
            return Err(Malformed::Unsealed);
        }
    }
    Ok((packet, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn questions() -> impl Strategy<Value = Question> {
        any::<(u32, u64, u16, u16)>().prop_map(|(sequence, time, error, session)| Question {
            sequence,
            time,
            error,
            session,
        })
    }

    proptest! {
        #[test]
        fn packets_are_read_as_written_in_both_modes(
            question in questions(), own in any::<(u32, u64, u16, u64, u8)>(), rest: Vec<u8>,
        ) {
            let (sequence, time, error, received, ttl) = own;
            let answer = Answer { sequence, time, error, received, question, ttl };
            let key = Key::new(b"secret");
            for key in [None, Some(&key)] {
                let mut bytes = vec![0xff; len(key)];
                bytes.extend(&rest);
                question.write(key, &mut bytes);
                prop_assert_eq!(Question::read(key, &bytes), Ok((question, &rest[..])));
                answer.write(key, &mut bytes);
                prop_assert_eq!(Answer::read(key, &bytes), Ok((answer, &rest[..])));
            }
        }

        #[test]
        fn a_sealed_packet_with_any_bit_changed_is_refused(
            question in questions(), bit in 0..SEALED_LEN * 8,
        ) {
            let key = Key::new(b"secret");
            let mut bytes = [0; SEALED_LEN];
            question.write(Some(&key), &mut bytes);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Question::read(Some(&key), &bytes), Err(Malformed::Unsealed));
        }

        #[test]
        fn any_bytes_are_a_packet_or_a_reason(bytes: Vec<u8>) {
            for key in [None, Some(&Key::new(b"x"))] {
                let short = bytes.len() < len(key);
                prop_assert_eq!(Question::read(key, &bytes).is_err(), short || key.is_some());
                prop_assert_eq!(Answer::read(key, &bytes).is_err(), short || key.is_some());
            }
        }
    }

    #[test]
    fn an_answer_is_told_from_a_question_whatever_its_padding() {
        let question = Question { sequence: 1, time: u64::MAX, error: 3, session: u16::MAX };
        let answer = Answer { received: 1, question, ..Answer::default() };
        for key in [None, Some(&Key::new(b"x"))] {
            let mut bytes = vec![0; len(key)];
            question.write(key, &mut bytes);
            assert!(!is_answer(key, &bytes));
            answer.write(key, &mut bytes);
            assert!(is_answer(key, &bytes));
            // As TWAMP Light pads: the same byte throughout, or any.
            for padding in [0x55, 0xff] {
                bytes[layout(key).session..].fill(padding);
                assert!(!is_answer(key, &bytes));
            }
        }
        assert!(!is_answer(None, &[1; 20]), "nor is half a packet one");
    }

    #[test]
    fn every_field_is_where_the_document_draws_it() {
        let question = Question { sequence: 1, time: 2, error: 3, session: 4 };
        let answer = Answer { sequence: 5, time: 6, error: 7, received: 8, question, ttl: 9 };
        let ends = |bytes: &[u8]| -> Vec<(usize, u8)> {
            let present = bytes.iter().copied().enumerate();
            present.filter(|&(_, byte)| byte != 0).collect()
        };
        let mut bytes = [0; OPEN_LEN];
        question.write(None, &mut bytes);
        assert_eq!(ends(&bytes), [(3, 1), (11, 2), (13, 3), (15, 4)]);
        answer.write(None, &mut bytes);
        let open = [(3, 5), (11, 6), (13, 7), (15, 4), (23, 8), (27, 1), (35, 2), (37, 3), (40, 9)];
        assert_eq!(ends(&bytes), open);
        let mut bytes = [0; SEALED_LEN];
        answer.write(Some(&Key::new(b"x")), &mut bytes);
        let sealed =
            [(3, 5), (23, 6), (25, 7), (27, 4), (39, 8), (51, 1), (71, 2), (73, 3), (80, 9)];
        assert_eq!(ends(&bytes[..96]), sealed);
    }
}
