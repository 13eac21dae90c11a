//! Segments as a connection sees them: received ones read, with their options; those to be sent described.

use plumb_base::time::Instant;
use plumb_copy::Sum16;
use plumb_wire::checksum::PseudoHeader;
use plumb_wire::ip::Ecn;
use plumb_wire::option::{self, OptionArea};
use plumb_wire::tcp::{TcpFlags, TcpSegment};

use super::config::IpMarks;
use super::seq::SeqNum;

/// Most blocks that fit into an option area.
pub const SACK_BLOCKS_MAX: usize = 4;

/// A received segment.
#[derive(Clone, Copy, Debug)]
pub struct InboundSegment<'a> {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Acknowledgement number; counts with ACK only.
    pub ack: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Window as it stands in the header.
    pub window: u16,
    /// Its options.
    pub options: SegmentOptions<'a>,
    /// Its payload.
    pub payload: &'a [u8],
    /// Congestion notification of its packet.
    pub ecn: Ecn,
    /// Segments that a device or the host joined to this one, itself included.
    pub count: u16,
    /// When its device received it.
    pub received: Instant,
    /// Its header, whose checksum is of all.
    header: &'a [u8],
    /// What the checksum is to be verified with; none where that is done.
    unverified: Option<PseudoHeader>,
}

impl<'a> InboundSegment<'a> {
    /// A segment whose header has been read, with its options. Its checksum is verified later ([`InboundSegment::verify`]), with
    /// `pseudo`; `None`: the device did. Malformed options end where they go wrong, as in Linux.
    ///
    /// It cannot fail, and fills in options where they are: a `Result` of it, or options that are moved, are copied by loads
    /// that no store forwards, for 13 ns a segment on an AMD EPYC.
    #[expect(clippy::inline_always, reason = "out of line it is copied in the same way")]
    #[inline(always)]
    pub fn new(
        segment: TcpSegment<'a>,
        pseudo: Option<PseudoHeader>,
        (received, ecn, count): (Instant, Ecn, u16),
    ) -> Self {
        let mut inbound = Self {
            seq: segment.seq(),
            ack: segment.ack(),
            flags: segment.flags(),
            window: segment.window(),
            options: SegmentOptions::default(),
            payload: segment.payload(),
            ecn,
            count,
            received,
            header: segment.header_bytes(),
            unverified: pseudo,
        };
        inbound.options.read(segment.options());
        inbound
    }

    /// Whether its checksum is right.
    #[inline]
    pub fn verify(&mut self) -> bool {
        self.is_verified() || self.verify_with(Sum16::of(self.payload))
    }

    /// Whether nothing is left to be verified.
    #[inline]
    pub fn is_verified(&self) -> bool {
        self.unverified.is_none()
    }

    /// Whether its checksum is right, its payload summing to `payload`: for whoever summed it while copying.
    #[inline]
    pub fn verify_with(&mut self, payload: Sum16) -> bool {
        let Some(pseudo) = self.unverified else { return true };
        let sum = Sum16::of(self.header) + payload;
        let right = pseudo.checksum(self.header.len() + self.payload.len(), sum) == 0;
        if right {
            self.unverified = None;
        }
        right
    }

    /// Sequence numbers that it takes: its payload, SYN and FIN (RFC 9293 §3.4).
    #[inline]
    pub fn seq_len(&self) -> u64 {
        let controls = u64::from(self.flags.contains(TcpFlags::SYN))
            + u64::from(self.flags.contains(TcpFlags::FIN));
        self.payload.len() as u64 + controls
    }
}

/// The options of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOptions<'a> {
    /// Maximum segment size (RFC 9293 §3.7.1).
    pub mss: Option<u16>,
    /// Window scale, at most 14 (RFC 7323 §2.3).
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018 §2).
    pub sack_permitted: bool,
    /// Value and echo reply of the timestamps (RFC 7323 §3.2).
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks as they came: see [`SegmentOptions::sack_blocks`].
    pub sack: &'a [u8],
}

/// SACK blocks to be sent, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(u32, u32); SACK_BLOCKS_MAX],
    count: u8,
}

impl SackBlocks {
    /// The blocks.
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Appends a block, while there is room.
    pub fn push(&mut self, block: (u32, u32)) {
        if let Some(free) = self.blocks.get_mut(usize::from(self.count)) {
            *free = block;
            self.count += 1;
        }
    }
}

const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// Largest shift of a window (RFC 7323 §2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

impl<'a> SegmentOptions<'a> {
    /// Reads options up to where they end or go wrong; unknown ones are passed over.
    #[inline]
    pub(crate) fn read(&mut self, area: &'a [u8]) {
        // The layout that nearly every segment of an established connection has (RFC 7323 appendix A).
        if let [1, 1, TIMESTAMPS, 10, both @ ..] = area
            && area.len() == 12
        {
            self.timestamps = both.first_chunk().copied().map(pair);
        } else {
            self.read_any(area);
        }
    }

    /// Left and right edges of its SACK blocks (RFC 2018 §3).
    #[inline]
    pub fn sack_blocks(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        self.sack.as_chunks().0.iter().copied().map(pair).take(SACK_BLOCKS_MAX)
    }

    fn read_any(&mut self, area: &'a [u8]) {
        for item in option::items(area).map_while(Result::ok) {
            match *item {
                [MSS, 4, a, b] => self.mss = Some(u16::from_be_bytes([a, b])),
                [WINDOW_SCALE, 3, shift] => {
                    self.window_scale = Some(shift.min(WINDOW_SCALE_MAX));
                }
                [SACK_PERMITTED, 2] => self.sack_permitted = true,
                [TIMESTAMPS, 10, ref both @ ..] => {
                    self.timestamps = both.first_chunk().copied().map(pair);
                }
                [SACK, _, ref blocks @ ..] => self.sack = blocks,
                _ => {}
            }
        }
    }
}

/// Two numbers as they are in an option.
#[inline]
fn pair(bytes: [u8; 8]) -> (u32, u32) {
    let (numbers, _) = bytes.as_chunks();
    (u32::from_be_bytes(numbers[0]), u32::from_be_bytes(numbers[1]))
}

/// A segment that a connection wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundSegment {
    /// Sequence number of its first byte.
    pub seq: SeqNum,
    /// Acknowledgement number; written as 0 without ACK.
    pub ack: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Window, scaled.
    pub window: u16,
    /// Options, where there are others than timestamps.
    pub options: OptionArea,
    /// Value and echo reply of the timestamps, where they are the only option.
    pub timestamps: Option<(u32, u32)>,
    /// Bytes of payload, which `Connection::copy_payload` writes.
    pub len: usize,
    /// Most payload of one frame: a longer segment is a super-segment.
    pub size: u16,
    /// Congestion notification that its packet gets.
    pub ecn: Ecn,
    /// What else its IP header says.
    pub marks: IpMarks,
}

impl OutboundSegment {
    /// All of its options.
    pub fn option_area(&self) -> OptionArea {
        match self.timestamps {
            Some((value, echo)) => OptionArea::timestamps(value, echo),
            None => self.options,
        }
    }
}
