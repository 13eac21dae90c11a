//! IPv6 on its way in (RFC 8200), along its extension headers.
//!
//! Left out: forwarding; IPsec, whose headers are as good as unknown here.

use std::net::{IpAddr, Ipv6Addr};

use plumb_base::time::Instant;
use plumb_wire::fragment::Fragment;
use plumb_wire::icmpv6::parameter_problem;
use plumb_wire::ipv6;
use plumb_wire::ipv6::extension::Extension;
use plumb_wire::ipv6::option::{Action, Options};
use plumb_wire::machine::Port;
use plumb_wire::malformed::Malformed;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::protocol::Protocol;

use crate::counters::{Count, Layer};
use crate::host::Host;
use crate::icmp::Fault;
use crate::interface::{Cast, Interface, never_on_a_link6};
use crate::ip::{Ingress, Origin};
use crate::udp;

/// What a walk along the extension headers found behind the last that can be read.
struct Walk {
    protocol: Protocol,
    protocol_at: usize,
    payload_at: usize,
    /// Of a fragment header, if there is one.
    fragment: Option<Fragment>,
    /// What is wrong with the first header that is not as it should be.
    refusal: Option<Refusal>,
}

#[derive(Clone, Copy)]
enum Refusal {
    Malformed(Malformed),
    Drop(Count),
    Report(Count, Fault),
}

impl Host {
    /// Takes an IPv6 packet.
    #[inline]
    pub(crate) fn handle_ipv6(
        &mut self,
        now: Instant,
        port: Port,
        origin: Origin,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        let ip = match ipv6::Packet::parse(&pool.bytes(&packet)[origin.at..]) {
            Ok(ip) => ip,
            Err(malformed) => {
                self.counters.add_malformed(Layer::Ipv6, malformed);
                return pool.free(packet);
            }
        };
        let (source, destination) = (ip.source(), ip.destination());
        let interface = &self.interfaces[usize::from(port.0)];
        let cast = match admit(interface, source, destination, origin.group) {
            Ok(cast) => cast,
            Err(count) => return self.drop_packet(count, packet, pool),
        };
        // A source is unspecified only while an address is being probed (RFC 4291 §2.5.2).
        if source.is_unspecified() && ip.next_header() != Protocol::ICMPV6 {
            return self.drop_packet(Count::RxMartianSource, packet, pool);
        }
        let mut ingress = Ingress {
            port,
            source: IpAddr::V6(source),
            destination: IpAddr::V6(destination),
            protocol: ip.next_header(),
            protocol_at: 6,
            header_len: 40,
            hop_limit: ip.hop_limit(),
            group: origin.group || cast == Cast::Group,
            fragmented: origin.reassembled,
            is_later: false,
        };
        let ecn = ip.traffic_class().ecn();
        let len = ipv6::HEADER_LEN + ip.payload().len();
        let walk = match ip.next_header() {
            Protocol::UDP | Protocol::ICMPV6 => None,
            _ => Some(walk(&ip)),
        };
        if ingress.protocol == Protocol::UDP {
            let arrival = udp::Arrival {
                source: IpAddr::V6(source),
                destination: IpAddr::V6(destination),
                port,
                at: origin.at + ipv6::HEADER_LEN,
                end: origin.at + len,
                ecn,
            };
            return self.handle_udp(now, &ingress, &arrival, packet, pool);
        }
        pool.truncate(&mut packet, origin.at + len);
        pool.trim_front(&mut packet, origin.at);
        packet.meta.ecn = ecn;
        if let Some(walk) = walk {
            let narrow = |at| u16::try_from(at).expect("inside of a packet");
            ingress.protocol = walk.protocol;
            ingress.protocol_at = narrow(walk.protocol_at);
            ingress.header_len = narrow(walk.payload_at);
            ingress.fragmented |= walk.fragment.is_some();
            ingress.is_later = walk.fragment.is_some_and(|fragment| fragment.offset > 0);
            if let Some(refusal) = walk.refusal {
                return self.refuse6(now, &ingress, refusal, packet, pool);
            }
            // RFC 6946: an atomic fragment is a whole datagram, whatever else has its identification.
            if walk.fragment.is_some_and(|fragment| !fragment.is_atomic()) {
                return self.handle_fragment(now, &ingress, packet, pool);
            }
        }
        self.handle_datagram(now, &ingress, packet, pool);
    }

    #[cold]
    fn refuse6(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        refusal: Refusal,
        packet: Packet,
        pool: &mut Pool,
    ) {
        match refusal {
            Refusal::Malformed(malformed) => {
                self.counters.add_malformed(Layer::Ipv6, malformed);
                pool.free(packet);
            }
            Refusal::Drop(count) => self.drop_packet(count, packet, pool),
            Refusal::Report(count, fault) => {
                self.counters.add(count);
                self.report(now, ingress, fault, packet, pool);
            }
        }
    }
}

#[inline]
fn admit(
    interface: &Interface,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    group: bool,
) -> Result<Cast, Count> {
    // The unspecified address is a source while one is being probed: `icmp` looks at it.
    if !interface.admits6(source) && !source.is_unspecified() {
        return Err(Count::RxMartianSource);
    }
    match interface.cast6(destination) {
        Cast::Other if never_on_a_link6(destination) => Err(Count::RxMartianDestination),
        Cast::Other => Err(Count::RxNotForUs),
        Cast::Own if group => Err(Count::RxLinkBroadcast),
        cast => Ok(cast),
    }
}

/// Walks to the end even behind a header that is refused: whether that may be reported depends on what
/// the packet carries.
fn walk(ip: &ipv6::Packet<'_>) -> Walk {
    let mut extensions = ip.extensions();
    let (mut fragment, mut refusal) = (None, None);
    loop {
        let at = extensions.payload_at();
        let protocol_at = extensions.protocol_at();
        let Some(extension) = extensions.next() else { break };
        if let Ok(Extension::Fragment(place)) = extension {
            fragment = Some(place);
        }
        let heeded =
            extension.map_err(Refusal::Malformed).and_then(|it| heed(&it, at, protocol_at));
        refusal = refusal.or(heeded.err());
    }
    let is_whole = fragment.is_none_or(|fragment: Fragment| fragment.is_atomic());
    if extensions.protocol() == Protocol::HOP_BY_HOP && is_whole {
        let at = pointer(extensions.protocol_at());
        let fault = Fault::Parameter(parameter_problem::NEXT_HEADER, at);
        refusal = refusal.or(Some(Refusal::Report(Count::RxExtension, fault)));
    }
    Walk {
        protocol: extensions.protocol(),
        protocol_at: extensions.protocol_at(),
        payload_at: extensions.payload_at(),
        fragment,
        refusal,
    }
}

/// Does what an extension header at `at` asks for, whose number stands at `protocol_at`.
fn heed(extension: &Extension<'_>, at: usize, protocol_at: usize) -> Result<(), Refusal> {
    match *extension {
        Extension::HopByHop(options) | Extension::Destination(options) => check(options),
        Extension::Routing { segments_left: 0, .. } | Extension::Fragment(_) => Ok(()),
        Extension::Routing { .. } => {
            // RFC 8200 §4.4: unknown (and type 0 is, by RFC 5095): report the type's octet.
            let fault = Fault::Parameter(parameter_problem::FIELD, pointer(at + 2));
            Err(Refusal::Report(Count::RxSourceRoute, fault))
        }
        Extension::Authentication(_) => {
            let fault = Fault::Parameter(parameter_problem::NEXT_HEADER, pointer(protocol_at));
            Err(Refusal::Report(Count::RxExtension, fault))
        }
    }
}

/// RFC 8200 §4.2: what the high bits of an unknown option's type say.
fn check(options: Options<'_>) -> Result<(), Refusal> {
    for item in options.items() {
        let item = item.map_err(Refusal::Malformed)?;
        if item.is_padding() {
            continue;
        }
        let code = parameter_problem::OPTION;
        let fault = match item.action() {
            Action::Skip => continue,
            Action::Drop => return Err(Refusal::Drop(Count::RxUnknownOption)),
            Action::Report => Fault::ParameterToGroups(code, pointer(item.at)),
            Action::ReportUnlessMulticast => Fault::Parameter(code, pointer(item.at)),
        };
        return Err(Refusal::Report(Count::RxUnknownOption, fault));
    }
    Ok(())
}

fn pointer(at: usize) -> u32 {
    u32::try_from(at).expect("inside of a packet")
}
