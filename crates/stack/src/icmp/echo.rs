//! Echo: requests answered in place, and requests of this host with the replies to them.
//!
//! Left out: when to ask, and statistics.

use std::collections::BTreeMap;
use std::net::IpAddr;

use plumb_base::time::Instant;
use plumb_copy::Sum;
use plumb_wire::checksum::Pseudo;
use plumb_wire::ecn::Ecn;
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::{icmpv4, icmpv6};

use crate::counters::Count;
use crate::host::{Event, Host, unspecified_like};
use crate::ip::{Egress, Ingress, OutputError};
use crate::path::PathError;

/// Bytes of an echo message before its data, of either family.
const HEADER_LEN: usize = icmpv4::HEADER_LEN;

/// Requests whose replies are waited for, at most; beyond it the oldest are given up.
pub const WAITING_MAX: usize = 1_024;

/// Why an echo request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PingError {
    /// There is no way there.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It does not fit.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// No frame is free that could hold it.
    #[error("no free frame for {0} bytes: send less at once, or give the pool more frames")]
    NoMemory(usize),
}

/// Whose request: whom it asked, its identifier and its sequence number.
type Key = (IpAddr, u16, u16);

/// Requests that were sent and not answered.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// When each was sent, and its place in the order.
    sent: BTreeMap<Key, (Instant, u64)>,
    order: BTreeMap<u64, Key>,
    /// Places given so far.
    places: u64,
}

impl Pings {
    fn insert(&mut self, now: Instant, key: Key) {
        self.remove(key);
        if self.order.len() == WAITING_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.sent.remove(&oldest);
        }
        self.places += 1;
        self.order.insert(self.places, key);
        self.sent.insert(key, (now, self.places));
    }

    fn remove(&mut self, key: Key) -> Option<Instant> {
        let (sent, place) = self.sent.remove(&key)?;
        self.order.remove(&place);
        Some(sent)
    }

    /// Whether a request is waited for.
    pub(crate) fn contains(&self, key: Key) -> bool {
        self.sent.contains_key(&key)
    }
}

impl Host {
    /// Sends an echo request; the reply, if one comes, is an [`Event::EchoReply`].
    ///
    /// # Errors
    /// [`PingError`].
    pub fn ping(
        &mut self,
        now: Instant,
        remote: IpAddr,
        (identifier, sequence): (u16, u16),
        data: &[u8],
        pool: &mut Pool,
    ) -> Result<(), PingError> {
        let path = self.path(now, unspecified_like(remote), remote)?;
        let mut packet = pool.packet_of(data).ok_or(PingError::NoMemory(data.len()))?;
        let body = Sum::of(data);
        let header = pool.prepend(&mut packet, HEADER_LEN);
        let protocol = if let (IpAddr::V6(source), IpAddr::V6(remote)) = (path.source, remote) {
            let pseudo = Pseudo::v6(source, remote, Protocol::ICMPV6);
            let message = icmpv6::Message::EchoRequest { identifier, sequence };
            message.emit(pseudo, data.len(), body, header);
            Protocol::ICMPV6
        } else {
            icmpv4::Message::EchoRequest { identifier, sequence }.emit(body, header);
            Protocol::ICMPV4
        };
        let egress = Egress::new(protocol, Ecn::NotCapable);
        self.transmit(now, &path, remote, egress, packet, pool)?;
        self.pings.insert(now, (remote, identifier, sequence));
        Ok(())
    }

    pub(super) fn answer_echo(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        // RFC 1122 §3.2.2.6 lets a host ignore these; RFC 4443 §4.2 wants them answered.
        if ingress.group && ingress.source.is_ipv4() {
            return self.drop_packet(Count::EchoBroadcast, packet, pool);
        }
        self.counters.add(Count::EchoAnswered);
        let any = unspecified_like(ingress.source);
        let local = if ingress.group { any } else { ingress.destination };
        pool.trim_front(&mut packet, usize::from(ingress.header_len));
        packet.meta.checksum = ChecksumState::Plain;
        packet.meta.segments = None;
        let Ok(path) = self.path(now, local, ingress.source) else {
            self.counters.add(Count::Originated);
            return self.drop_packet(Count::TxNoRoute, packet, pool);
        };
        let bytes = pool.bytes_mut(&mut packet);
        let protocol =
            if let (IpAddr::V6(source), IpAddr::V6(remote)) = (path.source, ingress.source) {
                if ingress.group {
                    answer_afresh(Pseudo::v6(source, remote, Protocol::ICMPV6), bytes);
                } else {
                    icmpv6::answer_echo(bytes);
                }
                Protocol::ICMPV6
            } else {
                icmpv4::answer_echo(bytes);
                Protocol::ICMPV4
            };
        let egress = Egress::new(protocol, Ecn::NotCapable);
        // What does not fit is counted where that is found.
        let _ = self.transmit(now, &path, ingress.source, egress, packet, pool);
    }

    pub(super) fn handle_echo_reply(
        &mut self,
        ingress: &Ingress,
        (identifier, sequence): (u16, u16),
        packet: Packet,
        pool: &mut Pool,
    ) {
        let key = (ingress.source, identifier, sequence);
        let Some(sent) = self.pings.remove(key) else {
            return self.drop_packet(Count::EchoUnexpected, packet, pool);
        };
        self.counters.add(Count::EchoReplies);
        let len = packet.len() - usize::from(ingress.header_len) - HEADER_LEN;
        self.push_event(Event::EchoReply {
            remote: ingress.source,
            identifier,
            sequence,
            hop_limit: ingress.hop_limit,
            len,
            sent,
            received: packet.meta.received,
        });
        pool.free(packet);
    }
}

/// Makes a request that was sent to a group the reply from one address.
fn answer_afresh(pseudo: Pseudo, message: &mut [u8]) {
    let (header, body) = message.split_at_mut(HEADER_LEN);
    let pair = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let reply = icmpv6::Message::EchoReply { identifier: pair(4), sequence: pair(6) };
    reply.emit(pseudo, body.len(), Sum::of(body), header);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn only_requests_that_wait_make_others_be_given_up() {
        let key = |n: u16| (IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1, n);
        let mut pings = Pings::default();
        pings.insert(Instant::ORIGIN, key(0));
        for n in 1..=3_000 {
            pings.insert(Instant::ORIGIN, key(n));
            assert!(pings.remove(key(n)).is_some(), "{n}");
        }
        assert!(pings.contains(key(0)), "those behind it were answered");
        let most = u16::try_from(WAITING_MAX).unwrap();
        for n in 1..most {
            pings.insert(Instant::ORIGIN, key(n));
            pings.insert(Instant::ORIGIN, key(n));
        }
        assert!(pings.contains(key(0)), "asking again takes no second place");
        pings.insert(Instant::ORIGIN, key(most));
        assert!(!pings.contains(key(0)) && pings.contains(key(1)));
    }
}
