//! ICMP of both families: echo, errors received and errors sent.
//!
//! Redirects are not followed; of the queries only echo is answered.

use std::collections::BTreeMap;
use std::net::IpAddr;

use plumb_base::time::Instant;
use plumb_copy::Sum16;
use plumb_wire::checksum::PseudoHeader;
use plumb_wire::ip::{Ecn, IpProtocol};
use plumb_wire::malformed::FormatError;
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::{icmpv4, icmpv6, ndp};

use crate::context::{HostContext, HostEvent};
use crate::counters::{CounterId, ProtocolLayer};
use crate::ip::{IpEgress, IpIngress, Rejection};
use crate::timers::TokenBucket;

mod error;

pub(crate) use error::{QuotedPacket, may_send_error};

/// Bytes of a message before its data, of either family.
const HEADER_LEN: usize = icmpv4::HEADER_LEN;

/// Echo requests whose replies are awaited, at most; beyond it the oldest are given up.
pub const PENDING_MAX: usize = 1_024;

/// Remote address, identifier and sequence number of an echo request.
pub(crate) type EchoKey = (IpAddr, u16, u16);

/// Echo requests that were sent and not answered.
#[derive(Debug, Default)]
struct PendingEchoes {
    /// When each was sent, and its place in the order.
    sent: BTreeMap<EchoKey, (Instant, u64)>,
    order: BTreeMap<u64, EchoKey>,
    places: u64,
}

impl PendingEchoes {
    fn insert(&mut self, now: Instant, key: EchoKey) {
        self.remove(key);
        if self.order.len() == PENDING_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.sent.remove(&oldest);
        }
        self.places += 1;
        self.order.insert(self.places, key);
        self.sent.insert(key, (now, self.places));
    }

    fn remove(&mut self, key: EchoKey) -> Option<Instant> {
        let (sent, place) = self.sent.remove(&key)?;
        self.order.remove(&place);
        Some(sent)
    }
}

/// What the host has to do with an ICMP message.
#[derive(Debug)]
pub(crate) enum IcmpAction {
    Done,
    Reject(Packet, Rejection),
    /// Answer an echo request.
    Echo(Packet),
    /// Handle a message of neighbor discovery.
    Neighbor(Packet),
    /// Handle an error, if it quotes enough of a packet.
    Error(Option<QuotedPacket>, Packet),
}

/// A message, as far as a host distinguishes them.
enum Received {
    EchoRequest,
    EchoReply(u16, u16),
    Neighbor,
    Error(Option<QuotedPacket>),
    Drop(CounterId),
}

/// The state of ICMP: echo requests sent, and the rate limit of errors.
#[derive(Debug)]
pub(crate) struct Icmp {
    pending: PendingEchoes,
    error_bucket: TokenBucket,
}

impl Icmp {
    /// Sends at most `errors` a second, and `burst` at once.
    pub fn new(errors: u32, burst: u32) -> Self {
        Self { pending: PendingEchoes::default(), error_bucket: TokenBucket::new(errors, burst) }
    }

    /// Handles a message (RFC 1122 §3.2.2, RFC 4443), whose packet is trimmed to IP.
    pub fn handle(
        &mut self,
        cx: &mut HostContext<'_>,
        ingress: &IpIngress,
        packet: Packet,
    ) -> IcmpAction {
        let bytes = &cx.pool.bytes(&packet)[usize::from(ingress.header_len)..];
        let is_verified = packet.meta.checksum == ChecksumState::Verified;
        let (received, layer) = match ingress.source {
            IpAddr::V4(_) => (read_v4(bytes, is_verified), ProtocolLayer::Icmpv4),
            IpAddr::V6(_) => (read_v6(ingress, bytes, is_verified), ProtocolLayer::Icmpv6),
        };
        match received {
            Err(error) => IcmpAction::Reject(packet, Rejection::Malformed(layer, error)),
            Ok(Received::Drop(counter)) => IcmpAction::Reject(packet, Rejection::Drop(counter)),
            Ok(Received::Neighbor) => IcmpAction::Neighbor(packet),
            Ok(Received::Error(quoted)) => IcmpAction::Error(quoted, packet),
            // RFC 1122 §3.2.2.6 lets a host ignore these; RFC 4443 §4.2 wants them answered.
            Ok(Received::EchoRequest) if ingress.group && ingress.source.is_ipv4() => {
                IcmpAction::Reject(packet, Rejection::Drop(CounterId::EchoBroadcast))
            }
            Ok(Received::EchoRequest) => IcmpAction::Echo(packet),
            Ok(Received::EchoReply(identifier, sequence)) => {
                self.handle_echo_reply(cx, ingress, (identifier, sequence), packet);
                IcmpAction::Done
            }
        }
    }

    fn handle_echo_reply(
        &mut self,
        cx: &mut HostContext<'_>,
        ingress: &IpIngress,
        (identifier, sequence): (u16, u16),
        packet: Packet,
    ) {
        let Some(sent) = self.pending.remove((ingress.source, identifier, sequence)) else {
            return cx.drop_packet(CounterId::EchoUnexpected, packet);
        };
        cx.count(CounterId::EchoReplies);
        cx.core.push_event(HostEvent::EchoReply {
            remote: ingress.source,
            identifier,
            sequence,
            hop_limit: ingress.hop_limit,
            len: packet.len() - usize::from(ingress.header_len) - HEADER_LEN,
            sent,
            received: packet.meta.received,
        });
        cx.pool.free(packet);
    }

    /// An echo request was sent.
    pub fn on_request_sent(&mut self, now: Instant, key: EchoKey) {
        self.pending.insert(now, key);
    }

    /// Whether the reply to an echo request is awaited.
    pub fn awaits(&self, key: EchoKey) -> bool {
        self.pending.sent.contains_key(&key)
    }
}

fn read_v4(bytes: &[u8], is_verified: bool) -> Result<Received, FormatError> {
    let message = icmpv4::Icmpv4Packet::parse(bytes)?;
    let message = if is_verified { message } else { message.verify()? };
    Ok(match message.message() {
        icmpv4::Icmpv4Message::EchoRequest { .. } => Received::EchoRequest,
        icmpv4::Icmpv4Message::EchoReply { identifier, sequence } => {
            Received::EchoReply(identifier, sequence)
        }
        icmpv4::Icmpv4Message::Redirect { .. } => Received::Drop(CounterId::IcmpRedirect),
        // RFC 6633: "MUST silently discard".
        icmpv4::Icmpv4Message::Other { kind: 4, .. } => Received::Drop(CounterId::IcmpSourceQuench),
        icmpv4::Icmpv4Message::Other { .. } => Received::Drop(CounterId::IcmpKind),
        error => Received::Error(error::parse_error_v4(error, message.body())),
    })
}

fn read_v6(ingress: &IpIngress, bytes: &[u8], is_verified: bool) -> Result<Received, FormatError> {
    let pseudo = PseudoHeader::between(ingress.source, ingress.destination, IpProtocol::ICMPV6)
        .expect("both of IPv6");
    let message = icmpv6::Icmpv6Packet::parse(bytes)?;
    let message = if is_verified { message } else { message.verify(pseudo)? };
    Ok(match message.message() {
        _ if ndp::is_ndp(message.kind()) => Received::Neighbor,
        // Only duplicate address detection has an unspecified source (RFC 4291 §2.5.2).
        _ if ingress.source.is_unspecified() => Received::Drop(CounterId::RxMartianSource),
        icmpv6::Icmpv6Message::EchoRequest { .. } => Received::EchoRequest,
        icmpv6::Icmpv6Message::EchoReply { identifier, sequence } => {
            Received::EchoReply(identifier, sequence)
        }
        icmpv6::Icmpv6Message::Other { kind, .. } if kind >= 128 => {
            Received::Drop(CounterId::IcmpKind)
        }
        error => Received::Error(error::parse_error_v6(error, message.body())),
    })
}

/// Makes an echo request, from its IP header on, the reply that `source` sends.
pub(crate) fn make_reply(
    ingress: &IpIngress,
    source: IpAddr,
    packet: &mut Packet,
    pool: &mut Pool,
) -> IpEgress {
    pool.trim_front(packet, usize::from(ingress.header_len));
    packet.meta.checksum = ChecksumState::Plain;
    packet.meta.segments = None;
    let bytes = pool.bytes_mut(packet);
    let protocol = match (source, ingress.source) {
        (IpAddr::V6(source), IpAddr::V6(remote)) if ingress.group => {
            // Another source than the request's destination: the checksum is computed anew.
            let (header, body) = bytes.split_at_mut(HEADER_LEN);
            let pair = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
            let reply = icmpv6::Icmpv6Message::EchoReply { identifier: pair(4), sequence: pair(6) };
            let pseudo = PseudoHeader::v6(source, remote, IpProtocol::ICMPV6);
            reply.emit(pseudo, body.len(), Sum16::of(body), header);
            IpProtocol::ICMPV6
        }
        (IpAddr::V6(_), _) => {
            icmpv6::answer_echo(bytes);
            IpProtocol::ICMPV6
        }
        (IpAddr::V4(_), _) => {
            icmpv4::answer_echo(bytes);
            IpProtocol::ICMPV4
        }
    };
    IpEgress::new(protocol, Ecn::NotCapable)
}

/// An echo request with a copy of `data`; `None` when no frame is free.
pub(crate) fn echo_request(
    source: IpAddr,
    remote: IpAddr,
    (identifier, sequence): (u16, u16),
    data: &[u8],
    pool: &mut Pool,
) -> Option<(Packet, IpEgress)> {
    let mut packet = pool.packet_of(data)?;
    let body = Sum16::of(data);
    let header = pool.prepend(&mut packet, HEADER_LEN);
    let protocol = if let (IpAddr::V6(source), IpAddr::V6(remote)) = (source, remote) {
        let pseudo = PseudoHeader::v6(source, remote, IpProtocol::ICMPV6);
        let message = icmpv6::Icmpv6Message::EchoRequest { identifier, sequence };
        message.emit(pseudo, data.len(), body, header);
        IpProtocol::ICMPV6
    } else {
        icmpv4::Icmpv4Message::EchoRequest { identifier, sequence }.emit(body, header);
        IpProtocol::ICMPV4
    };
    Some((packet, IpEgress::new(protocol, Ecn::NotCapable)))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn only_unanswered_requests_count_against_the_bound() {
        let key = |n: u16| (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1, n);
        let mut pending = PendingEchoes::default();
        pending.insert(Instant::ORIGIN, key(0));
        for n in 1..=3_000 {
            pending.insert(Instant::ORIGIN, key(n));
            assert!(pending.remove(key(n)).is_some(), "{n}");
        }
        assert!(pending.sent.contains_key(&key(0)), "those after it were answered");
        let most = u16::try_from(PENDING_MAX).unwrap();
        for n in 1..most {
            pending.insert(Instant::ORIGIN, key(n));
            pending.insert(Instant::ORIGIN, key(n));
        }
        assert!(pending.sent.contains_key(&key(0)), "a repeated request takes no second place");
        pending.insert(Instant::ORIGIN, key(most));
        assert!(!pending.sent.contains_key(&key(0)) && pending.sent.contains_key(&key(1)));
    }
}
