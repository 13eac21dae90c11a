//! ARP (RFC 826) under the rules of RFC 5227.
//!
//! Nothing is learned from unsolicited replies, about addresses off the link, or about addresses of
//! this host. Addresses are not probed for conflicts before use.

use std::net::{IpAddr, Ipv4Addr};

use plumb_base::time::Span;
use plumb_wire::arp::{self, ArpOperation, ArpPacket};
use plumb_wire::ethernet::{self, EtherType, EthernetTags, MacAddr};
use plumb_wire::machine::PortId;

use super::{ControlFrame, NeighborAdvertisement, NeighborCache, NeighborUpdate, Reaction};
use crate::context::{HostContext, HostEvent};
use crate::counters::CounterId;
use crate::interface::{HostInterface, Interfaces};

/// Least time between two defenses of an address (RFC 5227 §1.1, `DEFEND_INTERVAL`).
const DEFEND_INTERVAL: Span = Span::from_secs(10);

impl NeighborCache {
    /// Handles an ARP packet.
    pub(crate) fn handle_arp(
        &mut self,
        cx: &mut HostContext<'_>,
        interfaces: &mut Interfaces,
        port: PortId,
        message: &ArpPacket,
    ) -> Reaction {
        let interface = &interfaces[port];
        let (source, mac) = (message.source, message.source_mac);
        if !mac.is_unicast() {
            return Reaction::only(CounterId::ArpMac);
        }
        let is_request = match message.operation {
            ArpOperation::Request => true,
            ArpOperation::Reply => false,
            ArpOperation::Other(_) => return Reaction::only(CounterId::ArpOperation),
        };
        if interface.owns_v4(source) {
            if interfaces.owns_mac(mac) {
                return Reaction::only(CounterId::RxOwn);
            }
            cx.core.push_event(HostEvent::AddressConflict { port, address: source.into(), mac });
            return defend_address(cx, &mut interfaces[port], source);
        }
        let is_for_us = is_request && interface.owns_v4(message.target);
        let reply = is_for_us.then(|| reply(interface, message));
        // RFC 5227 §2.1.1: a probe says nothing about its sender, but must be answered.
        if source.is_unspecified() {
            if !is_for_us {
                return Reaction::only(CounterId::ArpNotForUs);
            }
            cx.count(CounterId::AddressDefended);
            return Reaction { reply, ..Reaction::only(CounterId::ArpAccepted) };
        }
        let is_host = !source.is_multicast() && !source.is_broadcast();
        if !is_host || !interface.is_on_link(source.into()) || interface.is_broadcast(source) {
            return Reaction::only(CounterId::ArpOffLink);
        }
        let is_gratuitous = source == message.target;
        let update = if is_request || is_gratuitous {
            self.on_sender_address(port, source.into(), mac, is_for_us, cx)
        } else {
            let said = NeighborAdvertisement { mac: Some(mac), solicited: true, overrides: false };
            self.on_advertisement(port, source.into(), said, cx)
        };
        let (fate, released) = match update {
            NeighborUpdate::Accepted(packets, _) => (CounterId::ArpAccepted, packets),
            // The cache is full of entries in use, and the request was answered all the same.
            _ if is_for_us => (CounterId::ArpAccepted, Vec::new()),
            NeighborUpdate::Unknown => (CounterId::ArpNotForUs, Vec::new()),
            NeighborUpdate::Ignored => (CounterId::ArpUnsolicited, Vec::new()),
        };
        Reaction { fate, reply, released, mac }
    }
}

/// Defends an address against a conflicting claim, at most every ten seconds (RFC 5227 §2.4 (b)).
fn defend_address(
    cx: &mut HostContext<'_>,
    interface: &mut HostInterface,
    address: Ipv4Addr,
) -> Reaction {
    let mut reaction = Reaction::only(CounterId::AddressConflict);
    let (now, source_mac) = (cx.now, interface.mac);
    let claimed = interface.addresses.iter_mut().find(|own| own.ip == IpAddr::V4(address));
    if let Some(claimed) = claimed
        && claimed.defended.is_none_or(|at| now.saturating_since(at) >= DEFEND_INTERVAL)
    {
        claimed.defended = Some(now);
        cx.count(CounterId::AddressDefended);
        let announcement = ArpPacket {
            operation: ArpOperation::Request,
            source_mac,
            source: address,
            target_mac: MacAddr::UNSPECIFIED,
            target: address,
        };
        reaction.reply = Some(frame(MacAddr::BROADCAST, &announcement));
    }
    reaction
}

fn reply(interface: &HostInterface, request: &ArpPacket) -> ControlFrame {
    let reply = ArpPacket {
        operation: ArpOperation::Reply,
        source_mac: interface.mac,
        source: request.target,
        target_mac: request.source_mac,
        target: request.source,
    };
    frame(request.source_mac, &reply)
}

/// A request for the link address of `target`, to `mac` or to all.
pub(super) fn solicitation(
    interface: &HostInterface,
    target: Ipv4Addr,
    mac: Option<MacAddr>,
    source: Option<IpAddr>,
) -> Option<ControlFrame> {
    let source = source.filter(|source| interface.is_on_link(target.into()) && source.is_ipv4());
    let Some(IpAddr::V4(source)) = source.or_else(|| interface.source_for(target.into())) else {
        return None;
    };
    let request = ArpPacket {
        operation: ArpOperation::Request,
        source_mac: interface.mac,
        source,
        target_mac: MacAddr::UNSPECIFIED,
        target,
    };
    Some(frame(mac.unwrap_or(MacAddr::BROADCAST), &request))
}

fn frame(destination: MacAddr, message: &ArpPacket) -> ControlFrame {
    let mut bytes = [0; ControlFrame::LEN_MAX];
    let header = ethernet::EthernetHeader {
        destination,
        source: message.source_mac,
        tags: EthernetTags::Untagged,
        ether_type: EtherType::ARP,
    };
    header.emit(&mut bytes);
    message.emit(&mut bytes[ethernet::HEADER_LEN..]);
    ControlFrame { bytes, len: ethernet::HEADER_LEN + arp::LEN }
}
