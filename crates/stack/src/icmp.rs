//! ICMP of both families: echo, errors received and errors sent.
//!
//! Redirects are not followed; of the queries only echo is answered.

use std::collections::BTreeMap;
use std::net::IpAddr;

use plumb_base::time::Instant;
use plumb_copy::Sum16;
use plumb_wire::icmp::{self, IcmpMessage, IcmpPacket};
use plumb_wire::ip::Ecn;
use plumb_wire::ndp::{self, NdpMessage};
use plumb_wire::packet::{ChecksumState, Packet, Pool};

use crate::context::{DeliveryFailureKind, HostContext, HostEvent};
use crate::counters::{CounterId, ProtocolLayer};
use crate::ip::{IpEgress, IpIngress, Rejection};
use crate::neighbor;
use crate::timers::TokenBucket;

mod error;

pub(crate) use error::{QuotedPacket, may_send_error};

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

/// What an ICMP message asks the host to do.
#[derive(Debug)]
pub(crate) enum IcmpAction {
    /// Answer an echo request.
    Echo,
    /// Take the reply to an echo request of this identifier and sequence number.
    EchoReply(u16, u16),
    /// Handle a message of neighbor discovery.
    Neighbor(NdpMessage),
    /// Handle an error, if it quotes enough of a packet.
    Error(Option<(DeliveryFailureKind, QuotedPacket)>),
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

    /// Takes an echo reply, whose packet is trimmed to IP.
    pub fn handle_echo_reply(
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
            len: packet.len() - usize::from(ingress.header_len) - icmp::HEADER_LEN,
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

/// Reads a message (RFC 1122 §3.2.2, RFC 4443) whose packet is trimmed to IP.
///
/// # Errors
/// Why it is dropped.
pub(crate) fn read_message(
    ingress: &IpIngress,
    packet: &Packet,
    pool: &Pool,
) -> Result<IcmpAction, Rejection> {
    let (_, pseudo) = icmp::protocol_between(ingress.source, ingress.destination);
    let is_v6 = pseudo.is_some();
    let layer = if is_v6 { ProtocolLayer::Icmpv6 } else { ProtocolLayer::Icmpv4 };
    let malformed = |error| Rejection::Malformed(layer, error);
    let bytes = &pool.bytes(packet)[usize::from(ingress.header_len)..];
    let mut message = IcmpPacket::parse(bytes, pseudo).map_err(malformed)?;
    if packet.meta.checksum != ChecksumState::Verified {
        message = message.verify().map_err(malformed)?;
    }
    if is_v6 && ndp::is_ndp(message.kind()) {
        return neighbor::read_message(ingress, message).map(IcmpAction::Neighbor);
    }
    let dropped = match message.message() {
        // Only duplicate address detection has an unspecified source (RFC 4291 §2.5.2).
        _ if ingress.source.is_unspecified() => CounterId::RxMartianSource,
        // RFC 1122 §3.2.2.6 lets a host ignore these; RFC 4443 §4.2 wants them answered.
        IcmpMessage::EchoRequest { .. } if ingress.group && !is_v6 => CounterId::EchoBroadcast,
        IcmpMessage::EchoRequest { .. } => return Ok(IcmpAction::Echo),
        IcmpMessage::EchoReply { identifier, sequence } => {
            return Ok(IcmpAction::EchoReply(identifier, sequence));
        }
        // RFC 6633: "MUST silently discard".
        IcmpMessage::Other { kind: 4, .. } if !is_v6 => CounterId::IcmpSourceQuench,
        IcmpMessage::Other { kind: 5, .. } if !is_v6 => CounterId::IcmpRedirect,
        IcmpMessage::Other { kind, .. } if !is_v6 || kind >= 128 => CounterId::IcmpKind,
        _ => return Ok(IcmpAction::Error(error::parse_error(&message))),
    };
    Err(Rejection::Drop(dropped))
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
    let (protocol, pseudo) = icmp::protocol_between(source, ingress.source);
    if ingress.group && pseudo.is_some() {
        // Another source than the request's destination: the checksum is computed anew.
        let (header, body) = bytes.split_at_mut(icmp::HEADER_LEN);
        let pair = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let reply = IcmpMessage::EchoReply { identifier: pair(4), sequence: pair(6) };
        reply.emit(pseudo, body.len(), Sum16::of(body), header);
    } else {
        icmp::answer_echo(bytes, pseudo.is_some());
    }
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
    let packet = pool.packet_of(data)?;
    let request = IcmpMessage::EchoRequest { identifier, sequence };
    Some(with_header(request, source, remote, packet, pool))
}

/// The message whose body `packet` holds, from `source` to `remote`.
fn with_header(
    message: IcmpMessage,
    source: IpAddr,
    remote: IpAddr,
    mut packet: Packet,
    pool: &mut Pool,
) -> (Packet, IpEgress) {
    let (protocol, pseudo) = icmp::protocol_between(source, remote);
    let body = Sum16::of(pool.bytes(&packet));
    let body_len = packet.len();
    message.emit(pseudo, body_len, body, pool.prepend(&mut packet, icmp::HEADER_LEN));
    (packet, IpEgress::new(protocol, Ecn::NotCapable))
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
