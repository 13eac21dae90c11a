//! Neighbor discovery: what RFC 4861 §7.1 and §7.2 demand of a receiver, and poisoning.

use std::net::Ipv6Addr;

use plumb_wire::compose::neighbor_solicitation;
use plumb_wire::icmp::IcmpMessage;
use plumb_wire::ip::IpProtocol;
use plumb_wire::ndp::{self, NdpMessage, solicited_node};

use super::*;
use crate::neighbor::NeighborState;

const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const EVIL_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);

fn known(bench: &HostFixture) -> Option<(NeighborState, Option<MacAddr>)> {
    bench.host.neighbors.lookup(PORT, PEER.into())
}

fn to_us() -> PacketTemplate {
    PacketTemplate::new(PEER, OURS).over(LinkTemplate::new(PEER_MAC, OUR_MAC))
}

/// An advertisement, by default one that answers a solicitation for the peer.
#[derive(Clone, Copy)]
struct AdvertisementCase {
    target: Ipv6Addr,
    mac: Option<MacAddr>,
    solicited: bool,
    overrides: bool,
}

fn advertisement(path: PacketTemplate, said: &AdvertisementCase) -> Vec<u8> {
    path.ndp(NdpMessage::NeighborAdvertisement {
        target: said.target,
        target_mac: said.mac,
        is_solicited: said.solicited,
        overrides: said.overrides,
    })
}

const ANSWER: AdvertisementCase =
    AdvertisementCase { target: PEER, mac: Some(PEER_MAC), solicited: true, overrides: true };

fn asked() -> HostFixture {
    let mut bench = HostFixture::new();
    bench.ping(PEER.into());
    let [question] = bench.take().try_into().unwrap();
    assert_eq!(question, neighbor_solicitation(OUR_MAC, OURS, PEER));
    bench
}

fn resolved() -> HostFixture {
    let mut bench = asked();
    assert_eq!(bench.exchange(&advertisement(to_us(), &ANSWER)).len(), 1, "what waited is sent");
    assert!(matches!(known(&bench), Some((NeighborState::Reachable(_), Some(PEER_MAC)))));
    bench
}

#[test]
fn solicitation_is_answered_and_its_sender_cached() {
    let mut bench = HostFixture::new();
    let [answer] = bench.exchange(&neighbor_solicitation(PEER_MAC, PEER, OURS)).try_into().unwrap();
    let said =
        AdvertisementCase { target: OURS, mac: Some(OUR_MAC), solicited: true, overrides: true };
    assert_eq!(answer, advertisement(to_us().reversed(), &said));
    assert_eq!(known(&bench), Some((NeighborState::Stale, Some(PEER_MAC))));
    bench.finish();
}

#[test]
fn duplicate_address_probe_is_answered_to_all_nodes() {
    let mut bench = HostFixture::new();
    let group = solicited_node(OURS);
    let link = LinkTemplate::new(PEER_MAC, MacAddr::multicast_v6(group));
    let path = PacketTemplate::new(Ipv6Addr::UNSPECIFIED, group).over(link);
    let probe =
        |source_mac| path.ndp(NdpMessage::NeighborSolicitation { target: OURS, source_mac });
    let [answer] = bench.exchange(&probe(None)).try_into().unwrap();
    let said =
        AdvertisementCase { target: OURS, mac: Some(OUR_MAC), solicited: false, overrides: true };
    let everybody = PacketTemplate::new(OURS, ALL_NODES)
        .over(LinkTemplate::new(OUR_MAC, MacAddr::multicast_v6(ALL_NODES)));
    assert_eq!(answer, advertisement(everybody, &said));
    assert_eq!(bench.host.neighbors.counts(), (0, 0));
    bench.drops(&probe(Some(PEER_MAC)), CounterId::NdpAddress);
    bench.finish();
}

#[test]
fn invalid_ndp_messages_are_dropped() {
    let mut bench = asked();
    let mut forwarded = advertisement(to_us(), &ANSWER);
    forwarded[14 + 7] = 254;
    let everybody = PacketTemplate::new(PEER, ALL_NODES)
        .over(LinkTemplate::new(PEER_MAC, MacAddr::multicast_v6(ALL_NODES)));
    let not_ours = NdpMessage::NeighborSolicitation { target: PEER, source_mac: None };
    let redirect = IcmpMessage::Other { kind: 137, code: 0, rest: [0; 4] };
    let from_router = PacketTemplate { hop_limit: ndp::HOP_LIMIT, ..to_us() };
    let like = |target, mac| advertisement(to_us(), &AdvertisementCase { target, mac, ..ANSWER });
    let absent = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x77);
    for (frame, reason) in [
        (forwarded, CounterId::NdpHopLimit),
        (advertisement(everybody, &ANSWER), CounterId::NdpAddress),
        (like(ALL_NODES, Some(PEER_MAC)), CounterId::NdpAddress),
        (like(PEER, Some(MacAddr::BROADCAST)), CounterId::NdpAddress),
        (like(absent, Some(PEER_MAC)), CounterId::NdpUnknown),
        // Without an address it resolves nothing.
        (like(PEER, None), CounterId::NdpUnsolicited),
        // Our own, which the link brought back, is no conflict.
        (like(OURS, Some(OUR_MAC)), CounterId::RxOwn),
        (to_us().ndp(not_ours), CounterId::NdpNotForUs),
        (from_router.icmp(redirect, &[0; 32]), CounterId::NdpIgnored),
    ] {
        bench.drops(&frame, reason);
    }
    assert_eq!(bench.host.poll_event(), None);
    assert!(
        matches!(known(&bench), Some((NeighborState::Incomplete, None))),
        "nothing was believed"
    );
    bench.finish();
}

#[test]
fn malformed_ndp_is_counted_by_error() {
    let mut bench = asked();
    let good = advertisement(to_us(), &ANSWER);
    let icmp_at = 14 + 40;
    let resum = |mut frame: Vec<u8>| {
        frame[icmp_at + 2..icmp_at + 4].fill(0);
        let sum = plumb_copy::Sum16::of(&frame[icmp_at..]);
        let checksum =
            to_us().pseudo(IpProtocol::ICMPV6).checksum(frame.len() - icmp_at, sum).to_be_bytes();
        frame[icmp_at + 2..icmp_at + 4].copy_from_slice(&checksum);
        frame
    };
    let mut code = good.clone();
    code[icmp_at + 1] = 1;
    let mut option = good.clone();
    option[icmp_at + 25] = 0;
    let mut checksum = good.clone();
    checksum[icmp_at + 3] ^= 1;
    for (frame, layer, malformed) in [
        (resum(code), ProtocolLayer::Ndp, FormatError::Code),
        (resum(option), ProtocolLayer::Ndp, FormatError::OptionLength),
        (checksum, ProtocolLayer::Icmpv6, FormatError::Checksum),
    ] {
        assert!(bench.exchange(&frame).is_empty());
        assert_eq!(bench.malformed(layer, malformed), 1, "{malformed}");
    }
    bench.finish();
}

#[test]
fn fragmented_ndp_is_ignored() {
    let mut bench = asked();
    let frame = advertisement(to_us(), &ANSWER);
    let atomic: (_, &[u8]) = (IpProtocol::FRAGMENT, &[0, 0, 0, 0, 0, 0, 1]);
    let message = &frame[14 + 40..];
    let mut path = to_us();
    path.hop_limit = 255;
    bench.drops(&path.extended(&[atomic], IpProtocol::ICMPV6, message), CounterId::NdpFragmented);
    let fragments = path.fragments(2, IpProtocol::ICMPV6, message, 16);
    assert_eq!(fragments.len(), 2);
    for fragment in fragments {
        assert!(bench.exchange(&fragment).is_empty());
    }
    assert_eq!(bench.count(CounterId::NdpFragmented), 2);
    assert!(matches!(known(&bench), Some((NeighborState::Incomplete, None))));
    bench.finish();
}

#[test]
fn advertisement_without_override_changes_no_address() {
    let mut bench = resolved();
    let other = AdvertisementCase { mac: Some(EVIL_MAC), overrides: false, ..ANSWER };
    bench.drops(&advertisement(to_us(), &other), CounterId::NdpUnsolicited);
    assert_eq!(known(&bench), Some((NeighborState::Stale, Some(PEER_MAC))));
    bench.finish();
}

#[test]
fn unsolicited_override_is_never_reachable() {
    let mut bench = resolved();
    // It lies: nobody solicited it.
    let other = AdvertisementCase { mac: Some(EVIL_MAC), ..ANSWER };
    bench.drops(&advertisement(to_us(), &other), CounterId::NdpUnsolicited);
    assert!(matches!(known(&bench), Some((NeighborState::Reachable(_), Some(PEER_MAC)))));
    bench.pass(Span::from_secs(1));
    // RFC 4861 §7.2.5 lets it replace the address, but not count as confirmed.
    assert!(bench.exchange(&advertisement(to_us(), &other)).is_empty());
    assert_eq!(known(&bench), Some((NeighborState::Stale, Some(EVIL_MAC))));
    bench.finish();
}

#[test]
fn advertisement_of_our_address_is_a_conflict() {
    let mut bench = HostFixture::new();
    let claim =
        AdvertisementCase { target: OURS, mac: Some(EVIL_MAC), solicited: false, overrides: true };
    bench.drops(&advertisement(to_us(), &claim), CounterId::AddressConflict);
    let expected = HostEvent::AddressConflict { port: PORT, address: OURS.into(), mac: EVIL_MAC };
    assert_eq!(bench.host.poll_event(), Some(expected));
    bench.finish();
}
