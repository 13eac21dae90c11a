//! Frames entering a link and passing from hop to hop: super-segments cut, hops counted, long
//! packets refused or cut, senders told.

use plumb_base::time::{Instant, Span};
use plumb_wire::machine::DuePacket;
use plumb_wire::packet::{Packet, Pool, SegmentationInfo};
use plumb_wire::segmentation::{self, SegmentChecksums, segment_packet};

use super::Link;
use crate::frame::{DiscardReason, LinkFrame};
use crate::hop::HopDirection;
use crate::router::{self, ForwardVerdict, RouterFragmentError, RouterIcmpError};
use crate::spec::{DelayDistribution, DirectionSpec, QueueSpec, RateSpec};

/// How long a super-segment may be on the wire and still be carried whole: what a frame behind it would wait for it
/// is less than any device's interrupt.
const SEGMENT_TIME_MAX: Span = Span::from_us(20);
/// Least limit of a queue in which a super-segment may take a place.
const SEGMENT_QUEUE_MIN: u64 = 4 * 65_550;

/// What a direction of a link knows about itself before it looks at a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IngressLimits {
    /// The most bytes of a super-segment that is carried whole.
    whole_segment_max: u64,
    /// The least MTU.
    mtu: u32,
    /// Whether any queue tells flows apart.
    classifies: bool,
}

impl IngressLimits {
    pub fn of(hops: &[HopDirection]) -> Self {
        let mut entry = Self { whole_segment_max: u64::MAX, mtu: u32::MAX, classifies: false };
        for hop in hops {
            let spec = hop.spec();
            entry.whole_segment_max = entry.whole_segment_max.min(carried_whole(spec, hop.limit()));
            entry.mtu = entry.mtu.min(spec.mtu.map_or(u32::MAX, |mtu| mtu.bytes));
            entry.classifies |= spec.queue.tells_flows_apart();
        }
        entry
    }
}

/// The most bytes of a super-segment that nothing in this direction could tell from its frames.
fn carried_whole(spec: &DirectionSpec, limit: crate::spec::QueueLimit) -> u64 {
    let constant = matches!(spec.delay.distribution, DelayDistribution::Constant(_));
    if !constant || !spec.faults.is_empty() || spec.policer.is_some() {
        return 0;
    }
    match &spec.rate {
        RateSpec::Unlimited => u64::MAX,
        RateSpec::Constant(rate) => {
            let roomy = match limit {
                crate::spec::QueueLimit::Frames(frames) => frames >= SEGMENT_QUEUE_MIN / 1_514,
                crate::spec::QueueLimit::Bytes(bytes) => bytes >= SEGMENT_QUEUE_MIN,
            };
            if !roomy || !matches!(spec.queue, QueueSpec::DropTail { .. }) {
                return 0;
            }
            let bits = u128::from(rate.bits_per_second()) * u128::from(SEGMENT_TIME_MAX.as_ps());
            u64::try_from(bits / 8 / u128::from(crate::rate::SECOND)).unwrap_or(u64::MAX)
        }
        RateSpec::Bucket(_) | RateSpec::OnOff { .. } | RateSpec::Trace(_) => 0,
    }
}

impl Link {
    /// A packet comes to the beginning of a way.
    pub(crate) fn inject(&mut self, now: Instant, way: usize, packet: Packet, pool: &mut Pool) {
        let Some(segments) = packet.meta.segments else {
            let frame = self.frame(now, way, packet, 1, pool);
            self.enter(now, way, 0, frame, pool);
            return;
        };
        let count = segment_count(&packet, segments);
        let entry = self.directions[way].ingress_limits;
        let packet_len = u32::from(segments.header_len) + u32::from(segments.size);
        if packet.len() as u64 <= entry.whole_segment_max && packet_len <= entry.mtu {
            let frame = self.frame(now, way, packet, count, pool);
            self.enter(now, way, 0, frame, pool);
            return;
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        match segment_packet(packet, self.medium, SegmentChecksums::Partial, pool, &mut pieces) {
            Ok(()) => {}
            // It says that it is one and is none: it is what it is.
            Err((mut packet, segmentation::SegmentError::Impossible)) => {
                packet.meta.segments = None;
                pieces.push(packet);
            }
            Err((packet, segmentation::SegmentError::NoMemory)) => {
                let mut frame = self.frame(now, way, packet, count, pool);
                let hop = &mut self.directions[way].hops[0];
                frame.wire_len = wire_len(&frame, hop.spec().overhead);
                hop.discard_on_entry(now, frame, DiscardReason::NoMemory, pool);
            }
        }
        for packet in pieces.drain(..) {
            let frame = self.frame(now, way, packet, 1, pool);
            self.enter(now, way, 0, frame, pool);
        }
        self.pieces = pieces;
    }

    fn frame(
        &self,
        now: Instant,
        way: usize,
        packet: Packet,
        count: u32,
        pool: &Pool,
    ) -> LinkFrame {
        let classifies = self.directions[way].ingress_limits.classifies;
        let flow = if classifies { self.classifier.flow(pool.bytes(&packet)) } else { 0 };
        LinkFrame { packet, wire_len: 0, count, flow, entered: now, arrived: now }
    }

    /// A frame comes to a hop of a way, or to its end.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        way: usize,
        index: usize,
        mut frame: LinkFrame,
        pool: &mut Pool,
    ) {
        let medium = self.medium;
        let Some(hop) = self.directions[way].hops.get_mut(index) else {
            self.directions[way].egress.push_back(DuePacket { at: now, packet: frame.packet });
            return;
        };
        frame.wire_len = wire_len(&frame, hop.spec().overhead);
        let mtu = hop.spec().mtu;
        let router = &self.directions[way].routers[index];
        let verdict = router.inspect(&mut frame.packet, mtu, medium, pool);
        if verdict == ForwardVerdict::Forward {
            self.directions[way].hops[index].arrive(now, frame, pool);
            return;
        }
        let mtu = mtu.map_or(u32::MAX, |mtu| mtu.bytes);
        self.on_not_forwarded(now, (way, index), frame, (verdict, mtu), pool);
    }

    /// What does not simply go on.
    #[cold]
    fn on_not_forwarded(
        &mut self,
        now: Instant,
        (way, index): (usize, usize),
        mut frame: LinkFrame,
        (verdict, mtu): (ForwardVerdict, u32),
        pool: &mut Pool,
    ) {
        let reason = match verdict {
            ForwardVerdict::Expired => {
                self.send_icmp_error(now, (way, index), RouterIcmpError::Expired, &mut frame, pool);
                DiscardReason::Expired
            }
            ForwardVerdict::TooBig => {
                self.send_icmp_error(
                    now,
                    (way, index),
                    RouterIcmpError::TooBig(mtu),
                    &mut frame,
                    pool,
                );
                DiscardReason::TooLong
            }
            ForwardVerdict::Fragment => match self.fragment(now, (way, index), frame, mtu, pool) {
                Ok(()) => return,
                Err((whole, why)) => {
                    frame = whole;
                    match why {
                        RouterFragmentError::Malformed => DiscardReason::Malformed,
                        RouterFragmentError::NoMemory => DiscardReason::NoMemory,
                    }
                }
            },
            ForwardVerdict::Forward | ForwardVerdict::Drop => DiscardReason::TooLong,
        };
        self.directions[way].hops[index].discard_on_entry(now, frame, reason, pool);
    }

    /// Cuts a frame and sends its fragments on.
    fn fragment(
        &mut self,
        now: Instant,
        (way, index): (usize, usize),
        frame: LinkFrame,
        mtu: u32,
        pool: &mut Pool,
    ) -> Result<(), (LinkFrame, RouterFragmentError)> {
        let LinkFrame { packet, wire_len: len, count, flow, entered, arrived } = frame;
        let mut pieces = Vec::new();
        let cut = router::fragment(packet, mtu as usize, self.medium, pool, &mut pieces);
        if let Err((packet, why)) = cut {
            return Err((LinkFrame { packet, wire_len: len, count, flow, entered, arrived }, why));
        }
        self.router_counts.fragmented += 1;
        self.router_counts.fragments += pieces.len() as u64;
        let hop = &mut self.directions[way].hops[index];
        for packet in pieces {
            let mut piece = LinkFrame { packet, wire_len: 0, count: 1, flow, entered, arrived };
            piece.wire_len = wire_len(&piece, hop.spec().overhead);
            hop.arrive(now, piece, pool);
        }
        Ok(())
    }

    /// Tells the sender of a frame, by the way back, what is wrong with it.
    fn send_icmp_error(
        &mut self,
        now: Instant,
        (way, index): (usize, usize),
        error: RouterIcmpError,
        frame: &mut LinkFrame,
        pool: &mut Pool,
    ) {
        let router = &mut self.directions[way].routers[index];
        let told = router::icmp_error(router, error, &mut frame.packet, self.medium, pool)
            .filter(|_| router.may_send(now))
            .and_then(|bytes| pool.packet_of(&bytes));
        let Some(packet) = told else {
            self.router_counts.errors_withheld += 1;
            return;
        };
        self.router_counts.errors_sent += 1;
        let (back, place) = (1 - way, self.spec.hops.len() - index);
        let mut answer = self.frame(now, back, packet, 1, pool);
        // From the router itself, so that nobody counts a hop or an MTU before its first.
        match self.directions[back].hops.get_mut(place) {
            Some(hop) => {
                answer.wire_len = wire_len(&answer, hop.spec().overhead);
                hop.arrive(now, answer, pool);
            }
            None => {
                self.directions[back]
                    .egress
                    .push_back(DuePacket { at: now, packet: answer.packet });
            }
        }
    }
}

fn segment_count(packet: &Packet, segments: SegmentationInfo) -> u32 {
    let payload = packet.len().saturating_sub(segments.header_len.into());
    let count = payload.div_ceil(usize::from(segments.size).max(1)).max(1);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Bytes that the rate is spent on: a super-segment's headers count with each frame it stands for.
#[inline]
fn wire_len(frame: &LinkFrame, overhead: u32) -> u32 {
    let bytes = u32::try_from(frame.packet.len()).unwrap_or(u32::MAX);
    if frame.count == 1 {
        return bytes.saturating_add(overhead);
    }
    let headers = frame.packet.meta.segments.map_or(0, |segments| u32::from(segments.header_len));
    let repeated = headers.saturating_mul(frame.count - 1);
    bytes.saturating_add(repeated).saturating_add(overhead.saturating_mul(frame.count))
}
