//! Neighbour discovery (RFC 4861): solicitations answered, advertisements believed or not.
//!
//! Left out: routers, redirects and addresses from router advertisements (RFC 4862), all of which
//! are counted and ignored; probing for conflicts before an address is used; telling switches which
//! groups are listened to (`interface`).

use std::net::{IpAddr, Ipv6Addr};

use plumb_base::time::Instant;
use plumb_wire::checksum::Pseudo;
use plumb_wire::ethernet::{self, EtherType, Tags};
use plumb_wire::mac::MacAddr;
use plumb_wire::machine::Port;
use plumb_wire::medium::Medium;
use plumb_wire::ndp::option::Item;
use plumb_wire::ndp::{HOP_LIMIT, Message, Options, solicited_node};
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::{icmpv6, ipv6};

use super::{Advertisement, Means, Outcome};
use crate::counters::{Count, Layer};
use crate::host::{Event, Host};
use crate::ip::Ingress;

/// All nodes of the link (RFC 4291 §2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Bytes of a link-layer address option.
const OPTION_LEN: usize = 8;

/// A message that passed the checks of RFC 4861 §7.1, without its bytes.
enum Said {
    Solicitation { target: Ipv6Addr, source_mac: Option<MacAddr> },
    Advertisement { target: Ipv6Addr, said: Advertisement },
}

impl Host {
    /// Takes a message of neighbour discovery, whose ICMPv6 checksum is right.
    pub(crate) fn handle_ndp(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let bytes = &pool.bytes(&packet)[usize::from(ingress.header_len)..];
        let message = icmpv6::Packet::parse(bytes).and_then(Message::parse);
        let said = match message {
            Ok(message) => examine(ingress, &message),
            Err(malformed) => {
                self.counters.add_malformed(Layer::Ndp, malformed);
                return pool.free(packet);
            }
        };
        pool.free(packet);
        let count = match said {
            Ok(said) => self.heed_ndp(now, ingress, &said, pool),
            Err(count) => count,
        };
        self.counters.add(count);
    }

    /// Acts upon a message; its fate.
    fn heed_ndp(&mut self, now: Instant, ingress: &Ingress, said: &Said, pool: &mut Pool) -> Count {
        let port = ingress.port;
        let interface = &self.interfaces[usize::from(port.0)];
        match *said {
            Said::Solicitation { target, .. } if !interface.owns6(target) => Count::NdpNotForUs,
            Said::Solicitation { target, source_mac } => {
                self.answer_solicitation(now, ingress, target, source_mac, pool)
            }
            Said::Advertisement { target, said } if interface.owns6(target) => {
                if said.mac.is_some_and(|mac| self.has_mac(mac)) {
                    return Count::RxOwn;
                }
                let mac = said.mac.unwrap_or_default();
                let address = IpAddr::V6(target);
                self.push_event(Event::AddressConflict { port, address, mac });
                Count::AddressConflict
            }
            Said::Advertisement { target, said } => {
                let mut means =
                    Means { timers: &mut self.timers, counters: &mut self.counters, pool };
                let outcome =
                    self.neighbours.on_advertised(now, port, target.into(), said, &mut means);
                match outcome {
                    Outcome::Accepted(packets, mac) => {
                        self.flush(port, mac, false, packets, pool);
                        Count::NdpAccepted
                    }
                    Outcome::Unknown => Count::NdpUnknown,
                    Outcome::Ignored => Count::NdpUnsolicited,
                }
            }
        }
    }

    /// RFC 4861 §7.2.4; a probe for one of our addresses (RFC 4862 §5.4.3) is told to everybody.
    fn answer_solicitation(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        target: Ipv6Addr,
        source_mac: Option<MacAddr>,
        pool: &mut Pool,
    ) -> Count {
        let port = ingress.port;
        let IpAddr::V6(asker) = ingress.source else { return Count::NdpAddress };
        if asker.is_unspecified() {
            self.counters.add(Count::AddressDefended);
            let mac = MacAddr::multicast_v6(ALL_NODES);
            self.advertise(port, target, (ALL_NODES, Some(mac)), false, pool);
            return Count::NdpAccepted;
        }
        if let Some(mac) = source_mac {
            let mut means = Means { timers: &mut self.timers, counters: &mut self.counters, pool };
            let outcome = self.neighbours.on_heard(now, port, asker.into(), mac, true, &mut means);
            if let Outcome::Accepted(packets, mac) = outcome {
                self.flush(port, mac, false, packets, pool);
            }
        }
        // The answer goes to who asked, at the address it gave: no flood of askers fills the cache.
        let known = self.neighbours.lookup(port, asker.into()).and_then(|(_, mac)| mac);
        let mac = source_mac.or(known);
        if mac.is_none() && self.interfaces[usize::from(port.0)].capabilities.medium != Medium::Ip {
            // A unicast solicitation may leave its address out, where we should know it.
            return Count::NdpUnknown;
        }
        self.advertise(port, target, (asker, mac), true, pool);
        Count::NdpAccepted
    }

    fn advertise(
        &mut self,
        port: Port,
        target: Ipv6Addr,
        to: (Ipv6Addr, Option<MacAddr>),
        is_solicited: bool,
        pool: &mut Pool,
    ) {
        let mut option = [0; OPTION_LEN];
        Item::TargetLink(self.interfaces[usize::from(port.0)].mac).emit(&mut option);
        let message = Message::NeighbourAdvertisement {
            target,
            is_router: false,
            is_solicited,
            overrides: true,
            options: self.link_option(port, &option),
        };
        self.send_ndp(port, target, to, &message, pool);
    }

    /// Asks for a neighbour's address: its group, or the neighbour itself.
    pub(crate) fn solicit_ndp(
        &mut self,
        port: Port,
        target: Ipv6Addr,
        mac: Option<MacAddr>,
        source: Option<IpAddr>,
        pool: &mut Pool,
    ) {
        let interface = &self.interfaces[usize::from(port.0)];
        let source = source.or_else(|| interface.source_for(target.into()));
        let Some(IpAddr::V6(source)) = source else { return };
        let group = solicited_node(target);
        let to = match mac {
            Some(mac) => (target, Some(mac)),
            None => (group, Some(MacAddr::multicast_v6(group))),
        };
        let mut option = [0; OPTION_LEN];
        Item::SourceLink(interface.mac).emit(&mut option);
        let options = self.link_option(port, &option);
        let message = Message::NeighbourSolicitation { target, options };
        self.send_ndp(port, source, to, &message, pool);
    }

    /// A link has addresses to tell only if it is Ethernet.
    fn link_option<'a>(&self, port: Port, option: &'a [u8; OPTION_LEN]) -> Options<'a> {
        match self.interfaces[usize::from(port.0)].capabilities.medium {
            Medium::Ethernet => Options::new(option).unwrap_or_default(),
            Medium::Ip => Options::default(),
        }
    }

    fn send_ndp(
        &mut self,
        port: Port,
        source: Ipv6Addr,
        (destination, mac): (Ipv6Addr, Option<MacAddr>),
        message: &Message<'_>,
        pool: &mut Pool,
    ) {
        let interface = &self.interfaces[usize::from(port.0)];
        let len = u16::try_from(message.len()).expect("a message of one option");
        let mut header = ipv6::Header::new(source, destination, Protocol::ICMPV6, len);
        header.hop_limit = HOP_LIMIT;
        let mut bytes = [0; ethernet::HEADER_LEN + ipv6::HEADER_LEN + 24 + OPTION_LEN];
        let ip_at = match (interface.capabilities.medium, mac) {
            (Medium::Ethernet, Some(destination)) => {
                let header = ethernet::Header {
                    destination,
                    source: interface.mac,
                    tags: Tags::Untagged,
                    ether_type: EtherType::IPV6,
                };
                header.emit(&mut bytes);
                ethernet::HEADER_LEN
            }
            (Medium::Ethernet, None) => return,
            (Medium::Ip, _) => 0,
        };
        header.emit(&mut bytes[ip_at..]);
        let message_at = ip_at + ipv6::HEADER_LEN;
        let pseudo = Pseudo::v6(source, destination, Protocol::ICMPV6);
        message.emit(pseudo, &mut bytes[message_at..]);
        match pool.packet_of(&bytes[..message_at + usize::from(len)]) {
            Some(packet) => {
                self.counters.add(Count::Originated);
                self.enqueue(port, packet, pool);
            }
            None => self.counters.add(Count::NoMemory),
        }
    }
}

/// The checks of RFC 4861 §7.1 that the format does not make.
fn examine(ingress: &Ingress, message: &Message<'_>) -> Result<Said, Count> {
    if ingress.hop_limit != HOP_LIMIT {
        return Err(Count::NdpHopLimit);
    }
    // RFC 6980 §5: "Nodes MUST silently ignore" those that employ fragmentation.
    if ingress.fragmented {
        return Err(Count::NdpFragmented);
    }
    let IpAddr::V6(destination) = ingress.destination else { return Err(Count::NdpAddress) };
    match *message {
        Message::NeighbourSolicitation { target, options } => {
            let source_mac = options.source_link();
            let probe = ingress.source.is_unspecified();
            // §7.1.1: a probe goes to the group of the address, and names no link address.
            let probe_fits = destination == solicited_node(target) && source_mac.is_none();
            if target.is_multicast() || (probe && !probe_fits) || !usable(source_mac) {
                return Err(Count::NdpAddress);
            }
            Ok(Said::Solicitation { target, source_mac })
        }
        Message::NeighbourAdvertisement { target, is_solicited, overrides, options, .. } => {
            let mac = options.target_link();
            // §7.1.2: what was sent to a group answers nobody.
            let to_group = destination.is_multicast();
            let from_nobody = ingress.source.is_unspecified();
            if target.is_multicast() || (to_group && is_solicited) || from_nobody || !usable(mac) {
                return Err(Count::NdpAddress);
            }
            let said = Advertisement { mac, solicited: is_solicited, overrides };
            Ok(Said::Advertisement { target, said })
        }
        Message::RouterSolicitation { .. }
        | Message::RouterAdvertisement { .. }
        | Message::Redirect { .. } => Err(Count::NdpIgnored),
    }
}

/// Whether a link address, if one is given, can be that of one station.
fn usable(mac: Option<MacAddr>) -> bool {
    mac.is_none_or(MacAddr::is_unicast)
}
