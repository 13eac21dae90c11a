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
//!
//! Times are NTP's or PTP's 64 bits with an estimate of their error (RFC 4656 §4.1.2, RFC 8186); the seconds are those of the
//! real-time clock in either format. The seal is HMAC-SHA-256 of what precedes it, cut to sixteen bytes (RFC 8762 §4.4).

use plumb_result::stamp::TimestampFormat;
use plumb_sys::probe;
use ring::hmac;

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
/// Two responders that answered those would never stop answering each other.
pub fn is_reflected(key: Option<&StampKey>, packet: &[u8]) -> bool {
    let at = layout(key);
    let end = if key.is_some() { AUTHENTICATED_LEN - SEAL_BYTES } else { UNAUTHENTICATED_LEN };
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
        let (body, end) = packet.split_at_mut(AUTHENTICATED_LEN - SEAL_BYTES);
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
        let (body, end) = packet.split_at(AUTHENTICATED_LEN - SEAL_BYTES);
        if !key.verify(&[body], end) {
            return Err(StampPacketError::BadHmac);
        }
    }
    Ok((packet, rest))
}

const NS: u64 = 1_000_000_000;

/// How wrong a time may be, in sixteen bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    /// Whether the clock is synchronised to UTC by an outside source.
    pub synchronised: bool,
    /// How the times beside it are written.
    pub format: TimestampFormat,
    /// The error is `multiplier` × 2^(`scale` − 32) seconds.
    pub scale: u8,
    /// Never zero.
    pub multiplier: u8,
}

impl ErrorEstimate {
    /// What the kernel says about this host's real-time clock now.
    pub fn here(format: TimestampFormat) -> Self {
        match probe::clock_discipline() {
            Ok(error) => {
                let ns = error.maximum_us.saturating_mul(1000);
                Self::of(error.is_synchronized, format, ns)
            }
            Err(_) => Self::of(false, format, u64::MAX),
        }
    }

    /// An error of so many nanoseconds, rounded up to what can be written.
    pub fn of(synchronised: bool, format: TimestampFormat, error_ns: u64) -> Self {
        let units = (u128::from(error_ns) << 32).div_ceil(u128::from(NS)).max(1);
        let mut scale = 0_u8;
        while units.div_ceil(1 << scale) > 255 && scale < 63 {
            scale += 1;
        }
        let multiplier = u8::try_from(units.div_ceil(1 << scale)).unwrap_or(255);
        Self { synchronised, format, scale, multiplier }
    }

    /// The error in nanoseconds, rounded.
    pub fn ns(self) -> f64 {
        f64::from(self.multiplier) * 2f64.powi(i32::from(self.scale) - 32) * 1e9
    }

    /// The sixteen bits.
    pub fn write(self) -> u16 {
        let s = u16::from(self.synchronised) << 15;
        let z = u16::from(self.format == TimestampFormat::Ptp) << 14;
        s | z | u16::from(self.scale & 0x3f) << 8 | u16::from(self.multiplier)
    }

    /// Reads sixteen bits; a multiplier of zero, which is not allowed, is kept as it is.
    pub fn read(bits: u16) -> Self {
        let [high, multiplier] = bits.to_be_bytes();
        let format = if high & 0x40 == 0 { TimestampFormat::Ntp } else { TimestampFormat::Ptp };
        Self { synchronised: high & 0x80 != 0, format, scale: high & 0x3f, multiplier }
    }
}

/// Bytes of a seal.
pub const SEAL_BYTES: usize = 16;

/// What both sides know.
#[derive(Clone)]
pub struct StampKey(hmac::Key);

impl StampKey {
    /// Of any bytes.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The seal of the parts, one after the other.
    pub fn authenticate(&self, parts: &[&[u8]]) -> [u8; SEAL_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&context.sign().as_ref()[..SEAL_BYTES]);
        seal
    }

    /// Whether `seal` is that of the parts; takes as long whether it nearly is or not at all.
    pub fn verify(&self, parts: &[&[u8]], seal: &[u8]) -> bool {
        let right = self.authenticate(parts);
        let differing = right.iter().zip(seal).fold(0, |differing, (a, b)| differing | (a ^ b));
        seal.len() == SEAL_BYTES && differing == 0
    }
}

impl std::fmt::Debug for StampKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
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

    #[test]
    fn moments_are_written_as_the_formats_say() {
        // 1970 is 2,208,988,800 s after 1900; half a second is 2^31.
        assert_eq!(TimestampFormat::Ntp.write(500_000_000), 2_208_988_800 << 32 | 1 << 31);
        assert_eq!(TimestampFormat::Ptp.write(1_500_000_000), (1 << 32) + 500_000_000);
        // The era of 2036: 7 February, 06:28:16.
        assert_eq!(TimestampFormat::Ntp.write(2_085_978_496 * NS) >> 32, 0);
        assert_eq!(TimestampFormat::Ntp.read(0), 2_085_978_496 * NS);
    }

    #[test]
    fn an_unsynchronised_clock_says_so_and_an_error_is_never_zero() {
        let none = ErrorEstimate::of(false, TimestampFormat::Ntp, 0);
        assert_eq!((none.write() >> 8, none.multiplier), (0, 1));
        let synchronised = ErrorEstimate::of(true, TimestampFormat::Ptp, 1_000_000).write();
        assert_eq!(synchronised >> 14, 0b11);
        assert!(ErrorEstimate::here(TimestampFormat::Ntp).multiplier > 0);
    }

    proptest! {
        #[test]
        fn every_nanosecond_comes_back(unix_ns in 0..4_294_967_295_000_000_000_u64) {
            for format in [TimestampFormat::Ntp, TimestampFormat::Ptp] {
                prop_assert_eq!(format.read(format.write(unix_ns)), unix_ns);
            }
        }

        #[test]
        fn an_error_is_written_as_itself_or_a_little_more(error_ns in 1..16_000_000_000_u64) {
            let written = ErrorEstimate::of(true, TimestampFormat::Ntp, error_ns);
            prop_assert!(written.ns() >= error_ns as f64 * 0.999_999);
            prop_assert!(written.ns() <= error_ns as f64 * 1.01 + 1.0, "{written:?}");
            prop_assert_eq!(ErrorEstimate::read(written.write()), written);
        }

        #[test]
        fn any_bits_are_a_time_and_an_estimate(bits: u64, estimate: u16) {
            let _ = (TimestampFormat::Ntp.read(bits), TimestampFormat::Ptp.read(bits));
            prop_assert_eq!(ErrorEstimate::read(estimate).write(), estimate);
        }
    }

    #[test]
    fn a_seal_is_the_first_half_of_the_published_digest() {
        // RFC 4231 §4.3, test case 2.
        let key = StampKey::new(b"Jefe");
        let seal = key.authenticate(&[b"what do ya want ", b"for nothing?"]);
        let expected = [
            0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95,
            0x75, 0xc7,
        ];
        assert_eq!(seal, expected);
        assert!(key.verify(&[b"what do ya want for nothing?"], &seal));
        assert!(!key.verify(&[b"what do ya want for nothing"], &seal));
        assert!(!key.verify(&[b"what do ya want for nothing?"], &seal[..15]));
        assert!(!format!("{key:?}").contains("Jefe"));
    }
}
