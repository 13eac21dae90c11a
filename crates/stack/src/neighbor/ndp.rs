//! Neighbor discovery (RFC 4861): solicitations and advertisements.
//!
//! Router advertisements, redirects and address autoconfiguration (RFC 4862) are counted and ignored;
//! addresses are not probed for conflicts before use.

use std::net::{IpAddr, Ipv6Addr};

use plumb_wire::checksum::PseudoHeader;
use plumb_wire::ethernet::{self, EtherType, EthernetTags, MacAddr};
use plumb_wire::icmp::IcmpPacket;
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv6;
use plumb_wire::machine::Medium;
use plumb_wire::ndp::{HOP_LIMIT, NdpMessage, solicited_node};

use super::{ControlFrame, NeighborAdvertisement, NeighborCache, NeighborUpdate, Reaction};
use crate::context::{HostContext, HostEvent};
use crate::counters::{CounterId, ProtocolLayer};
use crate::interface::{ALL_NODES, HostInterface, Interfaces};
use crate::ip::{FragmentKind, IpIngress, Rejection};

/// Bytes of a link-layer address option.
pub(super) const OPTION_LEN: usize = 8;

/// Reads a message whose checksum was verified, and makes the checks of RFC 4861 §7.1.
///
/// # Errors
/// Why it is dropped.
pub(crate) fn read_message(
    ingress: &IpIngress,
    packet: IcmpPacket<'_>,
) -> Result<NdpMessage, Rejection> {
    let message = NdpMessage::parse(packet)
        .map_err(|error| Rejection::Malformed(ProtocolLayer::Ndp, error))?;
    if ingress.hop_limit != HOP_LIMIT {
        return Err(Rejection::Drop(CounterId::NdpHopLimit));
    }
    // RFC 6980 §5: "Nodes MUST silently ignore" those that employ fragmentation.
    if ingress.fragment != FragmentKind::Whole {
        return Err(Rejection::Drop(CounterId::NdpFragmented));
    }
    let (is_probe, to_group) =
        (ingress.source.is_unspecified(), ingress.destination.is_multicast());
    let (target, mac, fits) = match message {
        // §7.1.1: a probe goes to the group of the address, and names no link address.
        NdpMessage::NeighborSolicitation { target, source_mac } => {
            let fits_probe = ingress.destination == solicited_node(target) && source_mac.is_none();
            (target, source_mac, !is_probe || fits_probe)
        }
        // §7.1.2: a multicast advertisement is unsolicited.
        NdpMessage::NeighborAdvertisement { target, target_mac, is_solicited, .. } => {
            (target, target_mac, !(is_probe || (to_group && is_solicited)))
        }
        NdpMessage::Router(_) => return Err(Rejection::Drop(CounterId::NdpIgnored)),
    };
    if target.is_multicast() || !fits || !mac.is_none_or(MacAddr::is_unicast) {
        return Err(Rejection::Drop(CounterId::NdpAddress));
    }
    Ok(message)
}

impl NeighborCache {
    /// Handles a message of neighbor discovery from `ingress.source`.
    pub(crate) fn handle_ndp(
        &mut self,
        cx: &mut HostContext<'_>,
        interfaces: &Interfaces,
        ingress: &IpIngress,
        message: NdpMessage,
    ) -> Reaction {
        let port = ingress.port;
        let interface = &interfaces[port];
        match message {
            NdpMessage::NeighborSolicitation { target, .. } if !interface.owns_v6(target) => {
                Reaction::only(CounterId::NdpNotForUs)
            }
            NdpMessage::NeighborSolicitation { target, source_mac } => {
                self.handle_solicitation(cx, interface, ingress, target, source_mac)
            }
            NdpMessage::NeighborAdvertisement { target, target_mac, .. }
                if interface.owns_v6(target) =>
            {
                if target_mac.is_some_and(|mac| interfaces.owns_mac(mac)) {
                    return Reaction::only(CounterId::RxOwn);
                }
                let (address, mac) = (IpAddr::V6(target), target_mac.unwrap_or_default());
                cx.core.push_event(HostEvent::AddressConflict { port, address, mac });
                Reaction::only(CounterId::AddressConflict)
            }
            NdpMessage::NeighborAdvertisement { target, target_mac, is_solicited, overrides } => {
                let said =
                    NeighborAdvertisement { mac: target_mac, solicited: is_solicited, overrides };
                match self.on_advertisement(port, target.into(), said, cx) {
                    NeighborUpdate::Accepted(released, mac) => {
                        Reaction { released, mac, ..Reaction::only(CounterId::NdpAccepted) }
                    }
                    NeighborUpdate::Unknown => Reaction::only(CounterId::NdpUnknown),
                    NeighborUpdate::Ignored => Reaction::only(CounterId::NdpUnsolicited),
                }
            }
            NdpMessage::Router(_) => Reaction::only(CounterId::NdpIgnored),
        }
    }

    /// RFC 4861 §7.2.4; a probe for one of our addresses (RFC 4862 §5.4.3) is answered to all nodes.
    fn handle_solicitation(
        &mut self,
        cx: &mut HostContext<'_>,
        interface: &HostInterface,
        ingress: &IpIngress,
        target: Ipv6Addr,
        source_mac: Option<MacAddr>,
    ) -> Reaction {
        let IpAddr::V6(asker) = ingress.source else {
            return Reaction::only(CounterId::NdpAddress);
        };
        let mut reaction = Reaction::only(CounterId::NdpAccepted);
        if asker.is_unspecified() {
            cx.count(CounterId::AddressDefended);
            let mac = Some(MacAddr::multicast_v6(ALL_NODES));
            reaction.reply = advertisement(interface, target, (ALL_NODES, mac), false);
            return reaction;
        }
        if let Some(mac) = source_mac {
            let update = self.on_sender_address(ingress.port, asker.into(), mac, true, cx);
            if let NeighborUpdate::Accepted(packets, mac) = update {
                (reaction.released, reaction.mac) = (packets, mac);
            }
        }
        // The reply goes to the address in the solicitation: no flood of askers fills the cache.
        let known = || self.lookup(ingress.port, asker.into()).and_then(|(_, mac)| mac);
        let mac = source_mac.or_else(known);
        if mac.is_none() && interface.capabilities.medium != Medium::Ip {
            // A unicast solicitation may omit its address where we should know it.
            return Reaction::only(CounterId::NdpUnknown);
        }
        reaction.reply = advertisement(interface, target, (asker, mac), true);
        reaction
    }
}

fn advertisement(
    interface: &HostInterface,
    target: Ipv6Addr,
    to: (Ipv6Addr, Option<MacAddr>),
    is_solicited: bool,
) -> Option<ControlFrame> {
    let (target_mac, overrides) = (link_address(interface), true);
    let message = NdpMessage::NeighborAdvertisement { target, target_mac, is_solicited, overrides };
    frame(interface, target, to, message)
}

/// A solicitation of the link address of `target`, to `mac` or to its solicited-node group.
pub(super) fn solicitation(
    interface: &HostInterface,
    target: Ipv6Addr,
    mac: Option<MacAddr>,
    source: Option<IpAddr>,
) -> Option<ControlFrame> {
    let Some(IpAddr::V6(source)) = source.or_else(|| interface.source_for(target.into())) else {
        return None;
    };
    let group = solicited_node(target);
    let to = match mac {
        Some(mac) => (target, Some(mac)),
        None => (group, Some(MacAddr::multicast_v6(group))),
    };
    let source_mac = link_address(interface);
    frame(interface, source, to, NdpMessage::NeighborSolicitation { target, source_mac })
}

/// Only Ethernet has link addresses.
fn link_address(interface: &HostInterface) -> Option<MacAddr> {
    (interface.capabilities.medium == Medium::Ethernet).then_some(interface.mac)
}

fn frame(
    interface: &HostInterface,
    source: Ipv6Addr,
    (destination, mac): (Ipv6Addr, Option<MacAddr>),
    message: NdpMessage,
) -> Option<ControlFrame> {
    let len = u16::try_from(message.emitted_len()).expect("a message of one option");
    let mut header = ipv6::Ipv6Header::new(source, destination, IpProtocol::ICMPV6, len);
    header.hop_limit = HOP_LIMIT;
    let mut bytes = [0; ControlFrame::LEN_MAX];
    let ip_at = match interface.capabilities.medium {
        Medium::Ip => 0,
        Medium::Ethernet => {
            let header = ethernet::EthernetHeader {
                destination: mac?,
                source: interface.mac,
                tags: EthernetTags::Untagged,
                ether_type: EtherType::IPV6,
            };
            header.emit(&mut bytes);
            ethernet::HEADER_LEN
        }
    };
    header.emit(&mut bytes[ip_at..]);
    let message_at = ip_at + ipv6::HEADER_LEN;
    let pseudo = PseudoHeader::v6(source, destination, IpProtocol::ICMPV6);
    message.emit(pseudo, &mut bytes[message_at..]);
    Some(ControlFrame { bytes, len: message_at + usize::from(len) })
}
