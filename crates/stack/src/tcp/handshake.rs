//! What both ends agree on while a connection opens: options of SYN and SYN-ACK, and what happened to them.

use plumb_base::time::{Instant, Span};
use plumb_wire::option::OptionArea;
use plumb_wire::tcp::TcpFlags;

use super::config::{EcnPolicy, OptionOrder, TcpConfig};
use super::segment::{InboundSegment, SegmentOptions, WINDOW_SCALE_MAX};

/// MSS of a peer that names none, over IPv4 (RFC 9293 §3.7.1).
pub const MSS_DEFAULT_V4: u16 = 536;
/// The same over IPv6 (RFC 9293 §3.7.1).
pub const MSS_DEFAULT_V6: u16 = 1_220;

/// Milliseconds of the timestamp clock, offset by a number of the connection's own so that they tell nothing of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimestampClock {
    offset: u32,
}

impl TimestampClock {
    /// A clock with this offset.
    pub const fn new(offset: u32) -> Self {
        Self { offset }
    }

    /// Its value at `now`: a tick a millisecond (RFC 7323 §5.4).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it wraps")]
    pub const fn value(self, now: Instant) -> u32 {
        self.offset.wrapping_add((now.since_origin().as_ps() / 1_000_000_000) as u32)
    }

    /// Time from the value `echoed` to `now`, to the millisecond.
    #[inline]
    pub const fn since(self, now: Instant, echoed: u32) -> Span {
        Span::from_ms(self.value(now).wrapping_sub(echoed) as u64)
    }
}

/// What our SYN or SYN-ACK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynOffer {
    /// Largest payload that we take.
    pub mss: u16,
    /// Shift of our window, if we scale.
    pub window_scale: Option<u8>,
    /// Whether we take and send SACK.
    pub sack: bool,
    /// Timestamps: value and echo.
    pub timestamps: Option<(u32, u32)>,
}

impl SynOffer {
    /// What a SYN of ours offers; `mss` is what our MTU allows.
    pub fn active(config: &TcpConfig, mss: u16, timestamp: u32) -> Self {
        Self {
            mss,
            window_scale: config.window_scaling.then(|| window_scale(config.receive_buffer.max)),
            sack: config.sack,
            timestamps: config.timestamps.then_some((timestamp, 0)),
        }
    }

    /// What our SYN-ACK says to a SYN with these options: nothing that the peer did not offer.
    pub fn passive(
        config: &TcpConfig,
        mss: u16,
        timestamp: u32,
        peer: &SegmentOptions<'_>,
    ) -> Self {
        let offer = Self::active(config, mss, timestamp);
        Self {
            mss,
            window_scale: offer.window_scale.filter(|_| peer.window_scale.is_some()),
            sack: offer.sack && peer.sack_permitted,
            timestamps: offer
                .timestamps
                .zip(peer.timestamps)
                .map(|((ours, _), (theirs, _))| (ours, theirs)),
        }
    }

    /// The options, in the order of the system that is imitated.
    pub fn options(&self, order: OptionOrder) -> OptionArea {
        let mut area = OptionWriter::new();
        let [a, b] = self.mss.to_be_bytes();
        area.put(&[2, 4, a, b]);
        match order {
            OptionOrder::Linux => {
                self.put_sack_and_timestamps(&mut area, true);
                if let Some(shift) = self.window_scale {
                    area.put(&[1, 3, 3, shift]);
                }
            }
            OptionOrder::FreeBsd => {
                if let Some(shift) = self.window_scale {
                    area.put(&[1, 3, 3, shift]);
                }
                self.put_sack_and_timestamps(&mut area, false);
            }
        }
        area.finish()
    }

    fn put_sack_and_timestamps(&self, area: &mut OptionWriter, sack_aligns: bool) {
        match (self.sack, self.timestamps) {
            (sack, Some((value, echo))) => {
                area.put(if sack { &[4, 2] } else { &[1, 1] });
                area.put(&[8, 10]);
                area.put(&value.to_be_bytes());
                area.put(&echo.to_be_bytes());
            }
            (true, None) if sack_aligns => area.put(&[1, 1, 4, 2]),
            (true, None) => area.put(&[4, 2, 0, 0]),
            (false, None) => {}
        }
    }
}

/// Options that are being written, at most 40 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionWriter {
    bytes: [u8; 40],
    len: usize,
}

impl OptionWriter {
    pub const fn new() -> Self {
        Self { bytes: [0; 40], len: 0 }
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Timestamps as they stand in every segment but SYNs (RFC 7323 appendix A).
    pub fn put_timestamps(&mut self, value: u32, echo: u32) {
        self.put(&[1, 1, 8, 10]);
        self.put(&value.to_be_bytes());
        self.put(&echo.to_be_bytes());
    }

    pub fn finish(self) -> OptionArea {
        OptionArea::new(&self.bytes[..self.len]).expect("written within 40 bytes")
    }
}

/// The shift with which a window of `bytes` fits into 16 bits.
pub fn window_scale(bytes: u32) -> u8 {
    (0..WINDOW_SCALE_MAX).find(|shift| bytes >> shift <= 0xffff).unwrap_or(WINDOW_SCALE_MAX)
}

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Our initial sequence number.
    pub iss: u32,
    /// The peer's.
    pub irs: u32,
    /// Largest payload that the peer takes.
    pub peer_mss: u16,
    /// Shifts of our and of the peer's window, if both scale.
    pub window_scale: Option<(u8, u8)>,
    /// Whether both use SACK.
    pub sack: bool,
    /// The peer's latest timestamp, if both use them.
    pub timestamps: Option<u32>,
    /// Our timestamp clock.
    pub clock: TimestampClock,
    /// Whether both use ECN.
    pub ecn: bool,
    /// The peer's window, unscaled as in every SYN.
    pub window: u16,
    /// Round-trip time of the handshake, if it was not repeated.
    pub rtt: Option<Span>,
    /// Receive window that our SYN or SYN-ACK advertised, in bytes.
    pub advertised: u16,
}

impl Handshake {
    /// What `offer` of ours and the SYN or SYN-ACK of the peer amount to; the caller adds what only it knows.
    pub fn agreed(offer: &SynOffer, segment: &InboundSegment<'_>, iss: u32, is_v6: bool) -> Self {
        let options = &segment.options;
        Self {
            iss,
            irs: segment.seq,
            peer_mss: peer_mss(options.mss, is_v6),
            window_scale: offer.window_scale.zip(options.window_scale),
            sack: offer.sack && options.sack_permitted,
            timestamps: offer.timestamps.and(options.timestamps).map(|(value, _)| value),
            clock: TimestampClock::default(),
            ecn: false,
            window: segment.window,
            rtt: None,
            advertised: 0,
        }
    }
}

/// The peer's MSS, or the family's default; one below 64 is not believed (RFC 9293 §3.7.1 sets no least).
pub fn peer_mss(option: Option<u16>, is_v6: bool) -> u16 {
    let default = if is_v6 { MSS_DEFAULT_V6 } else { MSS_DEFAULT_V4 };
    option.filter(|mss| *mss > 0).unwrap_or(default).max(64)
}

/// ECN flags of our SYN (RFC 3168 §6.1.1).
pub const fn ecn_of_syn(policy: EcnPolicy) -> TcpFlags {
    match policy {
        EcnPolicy::Offer => TcpFlags::from_bits(TcpFlags::ECE.bits() | TcpFlags::CWR.bits()),
        EcnPolicy::Off | EcnPolicy::Accept => TcpFlags::NONE,
    }
}

/// Whether a SYN asks for ECN and we agree: its SYN-ACK has ECE alone.
pub const fn accepts_ecn(policy: EcnPolicy, syn: TcpFlags) -> bool {
    let asks =
        syn.contains(TcpFlags::ECE) && syn.contains(TcpFlags::CWR) && !syn.contains(TcpFlags::AE);
    asks && !matches!(policy, EcnPolicy::Off)
}
