//! ICMP of both families: messages answered, errors reported, and errors believed or not.
//!
//! Left out: neighbour discovery (`neighbour::ndp`), redirects, which are not followed, and queries
//! other than echo.

use plumb_base::time::Instant;
use plumb_wire::checksum::Pseudo;
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::{icmpv4, icmpv6, ndp};

use crate::counters::{Count, Layer};
use crate::host::Host;
use crate::ip::Ingress;

mod echo;
mod error;
mod report;

pub(crate) use echo::Pings;
pub use echo::{PingError, WAITING_MAX};
pub use error::{Failure, FailureKind};
pub(crate) use report::Fault;

impl Host {
    /// Takes an ICMP message for IPv4 (RFC 1122 §3.2.2).
    pub(crate) fn handle_icmpv4(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let bytes = &pool.bytes(&packet)[usize::from(ingress.header_len)..];
        let parsed = icmpv4::Packet::parse(bytes).and_then(|message| {
            let verified = packet.meta.checksum == ChecksumState::Verified;
            if verified { Ok(message) } else { message.verify() }
        });
        let message = match parsed {
            Ok(message) => message,
            Err(malformed) => {
                self.counters.add_malformed(Layer::Icmpv4, malformed);
                return pool.free(packet);
            }
        };
        match message.message() {
            icmpv4::Message::EchoRequest { .. } => self.answer_echo(now, ingress, packet, pool),
            icmpv4::Message::EchoReply { identifier, sequence } => {
                self.handle_echo_reply(ingress, (identifier, sequence), packet, pool);
            }
            icmpv4::Message::Redirect { .. } => {
                self.drop_packet(Count::IcmpRedirect, packet, pool);
            }
            // RFC 6633: "MUST silently discard".
            icmpv4::Message::Other { kind: 4, .. } => {
                self.drop_packet(Count::IcmpSourceQuench, packet, pool);
            }
            icmpv4::Message::Other { .. } => self.drop_packet(Count::IcmpKind, packet, pool),
            error => {
                let heard = error::of_v4(error, message.body());
                self.handle_error(now, ingress, heard, packet, pool);
            }
        }
    }

    /// Takes an ICMPv6 message (RFC 4443, RFC 4861).
    pub(crate) fn handle_icmpv6(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let bytes = &pool.bytes(&packet)[usize::from(ingress.header_len)..];
        let pseudo = Pseudo::between(ingress.source, ingress.destination, Protocol::ICMPV6)
            .expect("both of IPv6");
        let parsed = icmpv6::Packet::parse(bytes).and_then(|message| {
            let verified = packet.meta.checksum == ChecksumState::Verified;
            if verified { Ok(message) } else { message.verify(pseudo) }
        });
        let message = match parsed {
            Ok(message) => message,
            Err(malformed) => {
                self.counters.add_malformed(Layer::Icmpv6, malformed);
                return pool.free(packet);
            }
        };
        match message.message() {
            _ if ndp::is_ndp(message.kind()) => self.handle_ndp(now, ingress, packet, pool),
            // Only a probe for an address may come from nobody (RFC 4291 §2.5.2).
            _ if ingress.source.is_unspecified() => {
                self.drop_packet(Count::RxMartianSource, packet, pool);
            }
            icmpv6::Message::EchoRequest { .. } => self.answer_echo(now, ingress, packet, pool),
            icmpv6::Message::EchoReply { identifier, sequence } => {
                self.handle_echo_reply(ingress, (identifier, sequence), packet, pool);
            }
            icmpv6::Message::Other { kind, .. } if kind >= 128 => {
                self.drop_packet(Count::IcmpKind, packet, pool);
            }
            error => {
                let heard = error::of_v6(error, message.body());
                self.handle_error(now, ingress, heard, packet, pool);
            }
        }
    }
}
