//! TCP segments (RFC 9293): their format, and nothing that a connection does.

use std::fmt;
use std::ops::BitOr;

use plumb_copy::Sum16;

use crate::checksum::PseudoHeader;
use crate::malformed::FormatError;
use crate::option::OptionArea;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Where in the header the checksum is.
pub const CHECKSUM_OFFSET: u16 = 16;

/// The control bits, and the three that are reserved.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpFlags(u16);

impl TcpFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// The sender has sent everything.
    pub const FIN: Self = Self(0x001);
    /// Sequence numbers begin here.
    pub const SYN: Self = Self(0x002);
    /// The connection is gone.
    pub const RST: Self = Self(0x004);
    /// The receiver should have the data now.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x020);
    /// A mark of congestion was seen (RFC 3168 §6.1).
    pub const ECE: Self = Self(0x040);
    /// The congestion window was reduced (RFC 3168 §6.1).
    pub const CWR: Self = Self(0x080);
    /// Accurate ECN (RFC 9768; once the nonce sum).
    pub const AE: Self = Self(0x100);

    const ALL: u16 = 0x0fff;

    /// Of the low twelve bits of the header's fourth half-word: three reserved ones, nine flags.
    #[inline]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL)
    }

    /// The twelve bits.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// These without `flags`.
    #[inline]
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for TcpFlags {
    /// The letters that tcpdump uses, and the reserved bits' number where it is not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in "FSRP.UEWe".chars().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{letter}")?;
            }
        }
        match self.0 >> 9 {
            0 if self.0 == 0 => f.write_str("none"),
            0 => Ok(()),
            reserved => write!(f, "+{reserved}"),
        }
    }
}

/// A segment whose header has been read.
#[derive(Clone, Copy, Debug)]
pub struct TcpSegment<'a> {
    fixed: &'a [u8; HEADER_LEN],
    /// All of it, options included.
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> TcpSegment<'a> {
    /// Reads the header; `bytes` end where the packet does.
    ///
    /// The checksum is not looked at: see [`TcpSegment::verify`].
    ///
    /// # Errors
    /// [`FormatError::HeaderLength`] or [`FormatError::Truncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let fixed = bytes.first_chunk::<HEADER_LEN>().ok_or(FormatError::Truncated)?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < HEADER_LEN {
            return Err(FormatError::HeaderLength);
        }
        let (header, payload) = bytes.split_at_checked(header_len).ok_or(FormatError::Truncated)?;
        Ok(Self { fixed, header, payload })
    }

    /// The segment, if its checksum is right.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    #[inline]
    pub fn verify(self, pseudo: PseudoHeader) -> Result<Self, FormatError> {
        if self.verifies(pseudo, Sum16::of(self.payload)) {
            Ok(self)
        } else {
            Err(FormatError::Checksum)
        }
    }

    /// Whether the checksum is right for a payload with this sum: for whoever summed it while
    /// copying it.
    #[inline]
    pub fn verifies(&self, pseudo: PseudoHeader, payload: Sum16) -> bool {
        let sum = Sum16::of(self.header) + payload;
        pseudo.checksum(self.header_len() + self.payload.len(), sum) == 0
    }

    /// The header, options included.
    #[inline]
    pub fn header_bytes(&self) -> &'a [u8] {
        self.header
    }

    /// The sender's port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[0], self.fixed[1]])
    }

    /// The receiver's port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// The number of the first byte of payload, or of the SYN.
    #[inline]
    pub fn seq(&self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The number of the byte expected next; counts with [`TcpFlags::ACK`] only.
    #[inline]
    pub fn ack(&self) -> u32 {
        let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *self.fixed;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags::from_bits(u16::from_be_bytes([self.fixed[12], self.fixed[13]]))
    }

    /// How many bytes the sender will take, not yet scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.fixed[14], self.fixed[15]])
    }

    /// How far behind [`TcpSegment::seq`] urgent data end; counts with [`TcpFlags::URG`] only.
    #[inline]
    pub fn urgent(&self) -> u16 {
        u16::from_be_bytes([self.fixed[18], self.fixed[19]])
    }

    /// Its options, as they came: see [`crate::option::items`].
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        &self.header[HEADER_LEN..]
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Bytes of header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.header.len()
    }

    /// The header by itself.
    #[inline]
    pub fn header(&self) -> TcpHeader {
        TcpHeader {
            source_port: self.source_port(),
            destination_port: self.destination_port(),
            seq: self.seq(),
            ack: self.ack(),
            flags: self.flags(),
            window: self.window(),
            checksum: u16::from_be_bytes([self.fixed[16], self.fixed[17]]),
            urgent: self.urgent(),
            options: OptionArea::new(self.options()).expect("a header has room for 40 bytes"),
        }
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpHeader {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The number of the first byte of payload, or of the SYN.
    pub seq: u32,
    /// The number of the byte expected next.
    pub ack: u32,
    /// The control bits.
    pub flags: TcpFlags,
    /// How many bytes the sender will take, scaled.
    pub window: u16,
    /// The checksum.
    pub checksum: u16,
    /// How far behind `seq` urgent data end.
    pub urgent: u16,
    /// Options.
    pub options: OptionArea,
}

impl TcpHeader {
    /// Bytes of it, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// The same with its checksum over a payload of `payload_len` bytes and this sum.
    #[inline]
    #[must_use]
    pub fn with_checksum(self, pseudo: PseudoHeader, payload_len: usize, payload: Sum16) -> Self {
        // The words are summed as they are: bytes that have just been written one by one cannot be read as words at once.
        let word = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let words = [
            word(self.source_port, self.destination_port),
            self.seq,
            self.ack,
            word(self.length_and_flags(), self.window),
            word(0, self.urgent),
        ];
        let sum = pseudo.sum_with(self.header_len() + payload_len, words);
        let sum = sum + Sum16::of(self.options.as_bytes()) + payload;
        Self { checksum: sum.finish(), ..self }
    }

    /// Writes it to the first [`TcpHeader::header_len`] bytes of `out`. Panics when `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (fixed, rest) = out.split_first_chunk_mut().expect("room for the header");
        *fixed = self.fixed();
        let options = self.options.as_bytes();
        rest[..options.len()].copy_from_slice(options);
    }

    #[inline]
    fn length_and_flags(&self) -> u16 {
        let words = u16::try_from(self.header_len() / 4).expect("at most 15");
        words << 12 | self.flags.bits()
    }

    #[inline]
    fn fixed(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..2].copy_from_slice(&self.source_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        out[4..8].copy_from_slice(&self.seq.to_be_bytes());
        out[8..12].copy_from_slice(&self.ack.to_be_bytes());
        out[12..14].copy_from_slice(&self.length_and_flags().to_be_bytes());
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        out[16..18].copy_from_slice(&self.checksum.to_be_bytes());
        out[18..].copy_from_slice(&self.urgent.to_be_bytes());
        out
    }
}

/// The header of nearly every segment of an open connection: no options, or timestamps alone (RFC 7323 appendix A). It is summed and
/// written word by word, where [`TcpHeader`] sums bytes that it has just written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainTcpHeader {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The number of the first byte of payload.
    pub seq: u32,
    /// The number of the byte expected next.
    pub ack: u32,
    /// The control bits.
    pub flags: TcpFlags,
    /// How many bytes the sender will take, scaled.
    pub window: u16,
    /// Value and echo reply of the timestamps.
    pub timestamps: Option<(u32, u32)>,
}

/// Two no-operations and the head of the timestamps option.
const TIMESTAMPS_HEAD: u32 = 0x0101_080a;

impl PlainTcpHeader {
    /// Bytes of it.
    #[inline]
    pub const fn header_len(&self) -> usize {
        if self.timestamps.is_some() { HEADER_LEN + 12 } else { HEADER_LEN }
    }

    #[inline]
    fn ports(&self) -> u32 {
        u32::from(self.source_port) << 16 | u32::from(self.destination_port)
    }

    /// Data offset, flags and window.
    #[inline]
    fn control(&self) -> u32 {
        let words = if self.timestamps.is_some() { 8 } else { 5 };
        words << 28 | u32::from(self.flags.bits()) << 16 | u32::from(self.window)
    }

    /// Its checksum over a payload of `payload_len` bytes and this sum.
    #[inline]
    pub fn checksum(&self, pseudo: PseudoHeader, payload_len: usize, payload: Sum16) -> u16 {
        let len = self.header_len() + payload_len;
        let (head, value, echo) = match self.timestamps {
            Some((value, echo)) => (TIMESTAMPS_HEAD, value, echo),
            None => (0, 0, 0),
        };
        let words = [self.ports(), self.seq, self.ack, self.control(), head, value, echo];
        (pseudo.sum_with(len, words) + payload).finish()
    }

    /// Writes it with a checksum to the front of `out`. Panics when that is shorter.
    #[inline]
    pub fn emit(&self, checksum: u16, out: &mut [u8]) {
        let mut put = |at: usize, word: u32| out[at..at + 4].copy_from_slice(&word.to_be_bytes());
        if let Some((value, echo)) = self.timestamps {
            put(28, echo);
            put(24, value);
            put(20, TIMESTAMPS_HEAD);
        }
        put(16, u32::from(checksum) << 16);
        put(12, self.control());
        put(8, self.ack);
        put(4, self.seq);
        put(0, self.ports());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::IpProtocol;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn pseudo() -> PseudoHeader {
        PseudoHeader::v4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2), IpProtocol::TCP)
    }

    prop_compose! {
        fn header()(
            ports in any::<(u16, u16)>(), numbers in any::<(u32, u32)>(), flags in any::<u16>(),
            window in any::<u16>(), urgent in any::<u16>(),
            options in proptest::collection::vec(any::<u8>(), 0..=40),
        ) -> TcpHeader {
            TcpHeader {
                source_port: ports.0, destination_port: ports.1, seq: numbers.0,
                ack: numbers.1, flags: TcpFlags::from_bits(flags), window, checksum: 0,
                urgent, options: OptionArea::new(&options).unwrap(),
            }
        }
    }

    #[test]
    fn flags_are_named_as_tcpdump_names_them() {
        let text = |flags: TcpFlags| format!("{flags:?}");
        assert_eq!(text(TcpFlags::SYN | TcpFlags::ACK), "S.");
        assert_eq!(text(TcpFlags::SYN | TcpFlags::ECE | TcpFlags::CWR | TcpFlags::AE), "SEWe");
        assert_eq!(text(TcpFlags::NONE), "none");
        assert_eq!(text(TcpFlags::from_bits(0x0a01)), "F+5");
        assert!((TcpFlags::FIN | TcpFlags::ACK).contains(TcpFlags::FIN));
        assert!(!(TcpFlags::FIN | TcpFlags::ACK).contains(TcpFlags::FIN | TcpFlags::RST));
    }

    #[test]
    fn a_data_offset_that_cannot_be_is_named() {
        let mut bytes = [0; 24];
        bytes[12] = 0x40;
        assert_eq!(TcpSegment::parse(&bytes).err(), Some(FormatError::HeaderLength));
        bytes[12] = 0x70;
        assert_eq!(TcpSegment::parse(&bytes).err(), Some(FormatError::Truncated));
        bytes[12] = 0x60;
        assert_eq!(TcpSegment::parse(&bytes).unwrap().options(), &[0; 4]);
        assert_eq!(TcpSegment::parse(&bytes[..19]).err(), Some(FormatError::Truncated));
    }

    proptest! {
        #[test]
        fn plain_header_is_the_same_bytes(
            header in header(), timestamps in any::<Option<(u32, u32)>>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let options = timestamps.map_or(OptionArea::EMPTY, |(value, echo)| {
                let numbers = [value.to_be_bytes(), echo.to_be_bytes()].concat();
                OptionArea::new(&[&[1, 1, 8, 10], &numbers[..]].concat()).unwrap()
            });
            let header = TcpHeader { options, urgent: 0, ..header };
            let header = header.with_checksum(pseudo(), payload.len(), Sum16::of(&payload));
            let plain = PlainTcpHeader {
                source_port: header.source_port, destination_port: header.destination_port,
                seq: header.seq, ack: header.ack, flags: header.flags, window: header.window, timestamps,
            };
            prop_assert_eq!(plain.header_len(), header.header_len());
            let (mut expected, mut written) = (vec![0; header.header_len()], vec![0; header.header_len()]);
            header.emit(&mut expected);
            let checksum = plain.checksum(pseudo(), payload.len(), Sum16::of(&payload));
            prop_assert_eq!(checksum, header.checksum);
            plain.emit(checksum, &mut written);
            prop_assert_eq!(written, expected);
        }

        // MUST-2, MUST-69.
        #[test]
        fn a_segment_emitted_is_read_back_and_verifies(
            header in header(), payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let header = header.with_checksum(pseudo(), payload.len(), Sum16::of(&payload));
            let mut bytes = vec![0xee; header.header_len()];
            header.emit(&mut bytes);
            bytes.extend(&payload);
            let segment = TcpSegment::parse(&bytes).unwrap().verify(pseudo()).unwrap();
            prop_assert_eq!(segment.header(), header);
            prop_assert_eq!(segment.payload(), &payload);
            bytes[0] ^= 1;
            let verified = TcpSegment::parse(&bytes).unwrap().verify(pseudo());
            prop_assert_eq!(verified.err(), Some(FormatError::Checksum));
        }
    }
}
