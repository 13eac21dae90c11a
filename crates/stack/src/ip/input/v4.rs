//! IPv4 on its way in (RFC 791, RFC 1122 §3.2.1).
//!
//! Left out: forwarding, which a host does not do; acting on options other than refusing source
//! routes, and answering record-route and timestamp.

use std::net::{IpAddr, Ipv4Addr};

use plumb_base::time::Instant;
use plumb_wire::ipv4::{self, option};
use plumb_wire::machine::Port;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::protocol::Protocol;

use crate::counters::{Count, Layer};
use crate::host::Host;
use crate::icmp::Fault;
use crate::interface::{Cast, Interface, never_on_a_link4};
use crate::ip::{Ingress, Origin};
use crate::udp;

impl Host {
    /// Takes an IPv4 packet.
    #[inline]
    pub(crate) fn handle_ipv4(
        &mut self,
        now: Instant,
        port: Port,
        origin: Origin,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        let parsed =
            ipv4::Packet::parse(&pool.bytes(&packet)[origin.at..]).and_then(ipv4::Packet::verify);
        let ip = match parsed {
            Ok(ip) => ip,
            Err(malformed) => {
                self.counters.add_malformed(Layer::Ipv4, malformed);
                return pool.free(packet);
            }
        };
        let (source, destination) = (ip.source(), ip.destination());
        let interface = &self.interfaces[usize::from(port.0)];
        let cast = match admit(interface, source, destination, origin.group) {
            Ok(cast) => cast,
            Err(count) => return self.drop_packet(count, packet, pool),
        };
        let header_len = ip.header_len();
        let ingress = Ingress {
            port,
            source: IpAddr::V4(source),
            destination: IpAddr::V4(destination),
            protocol: ip.protocol(),
            protocol_at: 9,
            header_len: u16::try_from(header_len).expect("at most 60"),
            hop_limit: ip.hop_limit(),
            group: origin.group || cast == Cast::Group,
            fragmented: origin.reassembled,
            is_later: ip.fragment_field().offset() > 0,
        };
        let ecn = ip.traffic_class().ecn();
        let len = header_len + ip.payload().len();
        let is_fragment = ip.fragment_field().is_fragment();
        let options = if header_len > ipv4::HEADER_LEN { check(ip.options()) } else { Ok(()) };
        if ingress.protocol == Protocol::UDP && options.is_ok() && !is_fragment {
            let arrival = udp::Arrival {
                source: IpAddr::V4(source),
                destination: IpAddr::V4(destination),
                port,
                at: origin.at + header_len,
                end: origin.at + len,
                ecn,
            };
            return self.handle_udp(now, &ingress, &arrival, packet, pool);
        }
        pool.truncate(&mut packet, origin.at + len);
        pool.trim_front(&mut packet, origin.at);
        packet.meta.ecn = ecn;
        match options {
            Ok(()) => {}
            Err(Refusal::SourceRoute) => {
                return self.drop_packet(Count::RxSourceRoute, packet, pool);
            }
            Err(Refusal::Malformed(at)) => {
                self.counters.add(Count::RxIpOption);
                return self.report(now, &ingress, Fault::Field(at), packet, pool);
            }
        }
        if is_fragment {
            return self.handle_fragment(now, &ingress, packet, pool);
        }
        self.handle_datagram(now, &ingress, packet, pool);
    }
}

/// Whether a packet between these addresses may come in here, and for whom it is.
#[inline]
fn admit(
    interface: &Interface,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    group: bool,
) -> Result<Cast, Count> {
    if !interface.admits4(source) {
        return Err(Count::RxMartianSource);
    }
    match interface.cast4(destination) {
        Cast::Other if never_on_a_link4(destination) => Err(Count::RxMartianDestination),
        Cast::Other => Err(Count::RxNotForUs),
        // RFC 1122 §3.3.6: sent to all stations, but not to all hosts.
        Cast::Own if group => Err(Count::RxLinkBroadcast),
        cast => Ok(cast),
    }
}

enum Refusal {
    SourceRoute,
    /// An option is impossible; where it is, from the header's first octet.
    Malformed(u32),
}

#[cold]
fn check(options: &[u8]) -> Result<(), Refusal> {
    let mut at = 20;
    for item in option::items(options) {
        let item = item.map_err(|_| Refusal::Malformed(at))?;
        at += match item {
            option::Item::NoOperation => 1,
            // RFC 7126 §4.3, §4.4: refused by default; they are used for nothing good.
            option::Item::LooseRoute(_) | option::Item::StrictRoute(_) => {
                return Err(Refusal::SourceRoute);
            }
            option::Item::RecordRoute(slots) => 3 + len(slots.addresses),
            option::Item::Timestamp { data, .. } => 4 + len(data),
            option::Item::RouterAlert(_) => 4,
            option::Item::Other { data, .. } => 2 + len(data),
        };
    }
    Ok(())
}

fn len(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("options are at most 40 bytes")
}
