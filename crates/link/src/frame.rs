//! A frame on its way through a link: the packet and what the link knows about it.

use std::fmt;
use std::iter::Sum;

use plumb_base::time::Instant;
use plumb_wire::ethernet::{self, EtherType};
use plumb_wire::flow::{FiveTuple, SipKey};
use plumb_wire::ip::{Ecn, TrafficClass};
use plumb_wire::machine::Medium;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::{ipv4, ipv6};

/// One frame in a link.
///
/// Its moments are *logical*: when things happen by the model, however late the driver comes to see
/// to them, so that lateness never accumulates.
#[derive(Debug)]
#[must_use = "a frame holds a packet: pass it on, or give it to Context::discard"]
pub struct LinkFrame {
    /// The bytes and their description.
    pub packet: Packet,
    /// Bytes that the rate is spent on: the frame's, and the overhead of each frame it stands for.
    pub wire_len: u32,
    /// Frames on the wire it stands for: more than one for a super-segment that is carried whole.
    pub count: u32,
    /// Keyed hash of its flow; the same for every frame that is no IP.
    pub flow: u64,
    /// When it entered the link.
    pub entered: Instant,
    /// When it reached the element it is in: the queue, while it waits there.
    pub arrived: Instant,
}

/// What the account of a hop takes of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedFrame {
    /// [`LinkFrame::count`].
    pub count: u32,
    /// [`LinkFrame::wire_len`].
    pub wire_len: u32,
    /// [`LinkFrame::arrived`].
    pub arrived: Instant,
}

impl From<&LinkFrame> for CountedFrame {
    #[inline]
    fn from(frame: &LinkFrame) -> Self {
        Self { count: frame.count, wire_len: frame.wire_len, arrived: frame.arrived }
    }
}

/// Why a frame went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiscardReason {
    /// The queue was full.
    Full,
    /// Active queue management chose it to keep the queue short.
    Early,
    /// The policer found it beyond its rate.
    Policed,
    /// The loss model took it.
    Lost,
    /// Bit errors made it a frame that no receiver takes.
    BitError,
    /// The link was dark: a blackout or a partition.
    Outage,
    /// It was longer than the hop's MTU.
    TooLong,
    /// Its hops were used up at a router.
    Expired,
    /// It was to be cut, and is no packet that can be.
    Malformed,
    /// There was no memory for it: no frame of the pool was free.
    NoMemory,
}

impl DiscardReason {
    /// Every reason, in the order of a report.
    pub const ALL: [Self; 10] = [
        Self::Full,
        Self::Early,
        Self::Policed,
        Self::Lost,
        Self::BitError,
        Self::Outage,
        Self::TooLong,
        Self::Expired,
        Self::Malformed,
        Self::NoMemory,
    ];

    /// Its name in a report: `full`, `early`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Early => "early",
            Self::Policed => "policed",
            Self::Lost => "lost",
            Self::BitError => "bit_error",
            Self::Outage => "dark",
            Self::TooLong => "too_long",
            Self::Expired => "expired",
            Self::Malformed => "malformed",
            Self::NoMemory => "no_memory",
        }
    }
}

/// Frames, and bytes as the rate counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTotals {
    /// Frames on the wire: a super-segment counts as the segments that it holds.
    pub frames: u64,
    /// Bytes, overhead included.
    pub bytes: u64,
}

impl FrameTotals {
    #[inline]
    pub(crate) fn add(&mut self, frame: impl Into<CountedFrame>) {
        let frame = frame.into();
        self.frames += u64::from(frame.count);
        self.bytes += u64::from(frame.wire_len);
    }

    #[inline]
    pub(crate) fn remove(&mut self, frame: impl Into<CountedFrame>) {
        let frame = frame.into();
        self.frames -= u64::from(frame.count);
        self.bytes -= u64::from(frame.wire_len);
    }
}

impl Sum for FrameTotals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            frames: sum.frames + one.frames,
            bytes: sum.bytes + one.bytes,
        })
    }
}

impl fmt::Display for FrameTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames of {} bytes", self.frames, self.bytes)
    }
}

/// What went no further, by reason: frames and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardCounts {
    frames: [u64; DiscardReason::ALL.len()],
    bytes: [u64; DiscardReason::ALL.len()],
    all: FrameSums,
}

/// Frames, their bytes, and when they reached the element: its account needs the sums of all three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameSums {
    pub frames: u64,
    pub bytes: u64,
    /// The sum of [`LinkFrame::arrived`] over frames, in picoseconds.
    pub arrived: u128,
}

impl FrameSums {
    #[inline]
    pub fn add(&mut self, frame: CountedFrame) {
        self.frames += u64::from(frame.count);
        self.bytes += u64::from(frame.wire_len);
        let arrived = frame.arrived.since_origin().as_ps();
        self.arrived += u128::from(arrived) * u128::from(frame.count);
    }
}

impl DiscardCounts {
    /// Frames and bytes of one reason.
    pub fn of(&self, reason: DiscardReason) -> (u64, u64) {
        (self.frames[reason as usize], self.bytes[reason as usize])
    }

    /// Frames and bytes in all.
    pub fn total(&self) -> (u64, u64) {
        (self.all.frames, self.all.bytes)
    }

    pub(crate) fn all(&self) -> FrameSums {
        self.all
    }

    fn add(&mut self, frame: &LinkFrame, reason: DiscardReason) {
        self.frames[reason as usize] += u64::from(frame.count);
        self.bytes[reason as usize] += u64::from(frame.wire_len);
        self.all.add(frame.into());
    }
}

/// What the wire did to frames that it delivered: frames and bytes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImpairmentCounts {
    /// Frames that arrived a second time: these come on top of what came in.
    pub duplicated: u64,
    /// Bytes of these, as the rate counts them.
    pub duplicated_bytes: u64,
    /// Frames sent later than others behind them.
    pub reordered: u64,
    /// Frames with a bit changed.
    pub corrupted: u64,
    /// Frames cut short.
    pub truncated: u64,
    /// Frames held while the wire was clogged.
    pub held: u64,
}

/// Where the elements of one direction of one hop put what ends in them.
#[derive(Debug)]
pub struct HopContext<'a> {
    /// The frames' memory.
    pub pool: &'a mut Pool,
    /// What a frame's first byte belongs to.
    pub medium: Medium,
    /// What was discarded so far.
    pub discards: &'a mut DiscardCounts,
    /// Frames marked "congestion experienced" so far.
    pub marked: &'a mut u64,
    /// What the wire did so far.
    pub changes: &'a mut ImpairmentCounts,
}

impl HopContext<'_> {
    /// Ends a frame.
    pub fn discard(&mut self, frame: LinkFrame, reason: DiscardReason) {
        self.discards.add(&frame, reason);
        self.pool.free(frame.packet);
    }

    /// Marks a frame "congestion experienced" (RFC 3168 §5) where its sender is capable of ECN;
    /// whether it was. The IP header's bytes and checksum are changed in place.
    pub fn mark(&mut self, frame: &mut LinkFrame) -> bool {
        if !mark(self.medium, self.pool.bytes_mut(&mut frame.packet)) {
            return false;
        }
        frame.packet.meta.ecn = Ecn::Congestion;
        *self.marked += u64::from(frame.count);
        true
    }

    /// A second frame with the same bytes; `None` when no memory is left for it, which is counted.
    pub fn duplicate(&mut self, frame: &LinkFrame) -> Option<LinkFrame> {
        self.changes.duplicated += u64::from(frame.count);
        self.changes.duplicated_bytes += u64::from(frame.wire_len);
        let Some(packet) = copy_packet(&frame.packet, self.pool) else {
            self.discards.add(frame, DiscardReason::NoMemory);
            return None;
        };
        Some(LinkFrame { packet, ..*frame })
    }
}

/// A second packet with the same bytes; `None` when no memory is left for it.
pub(crate) fn copy_packet(packet: &Packet, pool: &mut Pool) -> Option<Packet> {
    let mut copy = pool.allocate_for(packet.len())?;
    copy.meta = packet.meta;
    pool.append_from(&mut copy, packet, 0..packet.len(), |from, to| to.copy_from_slice(from));
    Some(copy)
}

/// Tells flows apart by the five-tuple of either family.
///
/// All fragments of a datagram share a hash (they have no ports, RFC 8290 §5.5 leaves it open), and so does
/// everything that is no IP or is malformed: [`FlowClassifier::NO_FLOW`].
#[derive(Clone, Copy, Debug)]
pub struct FlowClassifier {
    key: SipKey,
    medium: Medium,
}

impl FlowClassifier {
    /// The hash of what belongs to no flow.
    pub const NO_FLOW: u64 = 0;

    /// A classifier of frames of this medium.
    pub fn new(key: SipKey, medium: Medium) -> Self {
        Self { key, medium }
    }

    /// The hash of a frame's flow.
    #[inline]
    pub fn flow(&self, bytes: &[u8]) -> u64 {
        let tuple = match self.medium {
            Medium::Ethernet => FiveTuple::of_frame(bytes),
            Medium::Ip => FiveTuple::of_packet(bytes),
        };
        tuple.map_or(Self::NO_FLOW, |tuple| self.key.hash(tuple.words()))
    }
}

/// Where the IP packet begins in a frame of this medium; `None` when it holds none.
#[inline]
pub(crate) fn ip_offset(medium: Medium, bytes: &[u8]) -> Option<usize> {
    match medium {
        Medium::Ip => Some(0),
        Medium::Ethernet => {
            let frame = ethernet::EthernetFrame::parse(bytes).ok()?;
            let is_ip = matches!(frame.ether_type(), EtherType::IPV4 | EtherType::IPV6);
            is_ip.then(|| frame.header_len())
        }
    }
}

/// The octet of class and ECN; `None` when the frame holds no IP packet with a whole header.
#[inline]
pub(crate) fn traffic_class(medium: Medium, bytes: &[u8]) -> Option<TrafficClass> {
    let packet = &bytes[ip_offset(medium, bytes)?..];
    match packet.first()? >> 4 {
        4 => Some(ipv4::Ipv4Packet::parse_quoted(packet).ok()?.traffic_class()),
        6 => Some(ipv6::Ipv6Packet::parse_quoted(packet).ok()?.traffic_class()),
        _ => None,
    }
}

/// Marks the IP packet in a frame "congestion experienced" where its sender is capable of ECN;
/// whether it is. IPv4's checksum is kept right.
#[inline]
pub(crate) fn mark(medium: Medium, bytes: &mut [u8]) -> bool {
    let Some(class) = traffic_class(medium, bytes) else { return false };
    let class = match class.ecn() {
        Ecn::NotCapable => return false,
        Ecn::Congestion => return true,
        Ecn::Capable0 | Ecn::Capable1 => class.with_ecn(Ecn::Congestion),
    };
    let at = ip_offset(medium, bytes).expect("a class was read there");
    let packet = &mut bytes[at..];
    if packet[0] >> 4 == 4 {
        ipv4::set_traffic_class(packet, class);
    } else {
        ipv6::set_traffic_class(packet, class);
    }
    true
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;

    use super::*;
    use crate::fixture;

    #[test]
    fn a_flow_has_one_hash_and_others_have_others_in_both_families() {
        let class = TrafficClass::default();
        let ethernet = FlowClassifier::new(SipKey::new(Seed(1), "flow"), Medium::Ethernet);
        let other = FlowClassifier::new(SipKey::new(Seed(2), "flow"), Medium::Ethernet);
        let bare = FlowClassifier::new(SipKey::new(Seed(1), "flow"), Medium::Ip);
        for v6 in [false, true] {
            let frame = fixture::udp(v6, class, (1_000, 2_000), 64);
            let hash = ethernet.flow(&frame);
            assert_eq!(hash, ethernet.flow(&fixture::udp(v6, class, (1_000, 2_000), 900)));
            assert_eq!(hash, bare.flow(&frame[14..]));
            assert_ne!(hash, ethernet.flow(&fixture::udp(v6, class, (1_001, 2_000), 64)));
            assert_ne!(hash, ethernet.flow(&fixture::udp(!v6, class, (1_000, 2_000), 64)));
            assert_ne!(hash, other.flow(&frame));
        }
    }

    #[test]
    fn a_mark_reaches_capable_senders_of_both_families_and_keeps_the_checksum_right() {
        for v6 in [false, true] {
            for ecn in [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congestion] {
                let class = TrafficClass::new(46, ecn);
                let mut bytes = fixture::udp(v6, class, (1, 2), 100);
                let before = bytes.clone();
                let capable = ecn != Ecn::NotCapable;
                assert_eq!(mark(Medium::Ethernet, &mut bytes), capable);
                let after = traffic_class(Medium::Ethernet, &bytes).unwrap();
                assert_eq!(after.dscp(), 46);
                assert_eq!(after.ecn(), if capable { Ecn::Congestion } else { ecn });
                if !v6 {
                    ipv4::Ipv4Packet::parse(&bytes[14..]).unwrap().verify().unwrap();
                }
                let mut bare = before[14..].to_vec();
                assert_eq!(mark(Medium::Ip, &mut bare), capable);
                assert_eq!(bare, bytes[14..]);
            }
        }
    }

    #[test]
    fn what_is_no_ip_is_not_marked_and_shares_one_hash() {
        let classifier = FlowClassifier::new(SipKey::new(Seed(1), "flow"), Medium::Ethernet);
        let mut arp = vec![0xff; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        for mut bytes in [arp, vec![], vec![0xff; 60], vec![8; 14], vec![0x45; 33]] {
            let before = bytes.clone();
            assert!(!mark(Medium::Ethernet, &mut bytes));
            assert_eq!(bytes, before);
            assert_eq!(classifier.flow(&bytes), FlowClassifier::NO_FLOW);
        }
    }
}
