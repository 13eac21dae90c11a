//! Neighbour discovery: what RFC 4861 §7.1 and §7.2 demand of a receiver, and poisoning.

use std::net::Ipv6Addr;

use plumb_wire::compose::neighbour_solicitation;
use plumb_wire::fragment::Fragment;
use plumb_wire::ipv6::extension::Extension;
use plumb_wire::malformed::Malformed;
use plumb_wire::ndp::option::Item;
use plumb_wire::ndp::{Message, Options, solicited_node};
use plumb_wire::protocol::Protocol;

use super::*;
use crate::counters::Layer;
use crate::neighbour::State;

const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const EVIL_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);

fn known(bench: &Bench) -> Option<(State, Option<MacAddr>)> {
    bench.host.neighbours.lookup(PORT, PEER.into())
}

fn to_us() -> Path {
    Path::new(PEER, OURS).over(Link::new(PEER_MAC, OUR_MAC))
}

fn target_link(mac: MacAddr) -> [u8; 8] {
    let mut option = [0; 8];
    Item::TargetLink(mac).emit(&mut option);
    option
}

struct Said {
    target: Ipv6Addr,
    mac: Option<MacAddr>,
    solicited: bool,
    overrides: bool,
}

fn advertisement(path: Path, said: &Said) -> Vec<u8> {
    let option = said.mac.map(target_link);
    let options = option.as_ref().map_or(Options::default(), |o| Options::new(o).unwrap());
    path.ndp(Message::NeighbourAdvertisement {
        target: said.target,
        is_router: false,
        is_solicited: said.solicited,
        overrides: said.overrides,
        options,
    })
}

const ANSWER: Said = Said { target: PEER, mac: Some(PEER_MAC), solicited: true, overrides: true };

fn asked() -> Bench {
    let mut bench = Bench::new();
    bench.host.ping(bench.now, PEER.into(), (1, 1), b"", &mut bench.pool).unwrap();
    let [question] = bench.take().try_into().unwrap();
    assert_eq!(question, neighbour_solicitation(OUR_MAC, OURS, PEER));
    bench
}

fn resolved() -> Bench {
    let mut bench = asked();
    assert_eq!(bench.exchange(&advertisement(to_us(), &ANSWER)).len(), 1, "what waited is sent");
    assert!(matches!(known(&bench), Some((State::Reachable(_), Some(PEER_MAC)))));
    bench
}

#[test]
fn a_solicitation_is_answered_with_the_flags_it_deserves_and_its_sender_known() {
    let mut bench = Bench::new();
    let [answer] =
        bench.exchange(&neighbour_solicitation(PEER_MAC, PEER, OURS)).try_into().unwrap();
    let said = Said { target: OURS, mac: Some(OUR_MAC), solicited: true, overrides: true };
    assert_eq!(answer, advertisement(to_us().reversed(), &said));
    assert_eq!(known(&bench), Some((State::Stale, Some(PEER_MAC))));
    bench.finish();
}

#[test]
fn a_probe_for_our_address_is_answered_to_everybody_and_leaves_no_entry() {
    let mut bench = Bench::new();
    let group = solicited_node(OURS);
    let link = Link::new(PEER_MAC, MacAddr::multicast_v6(group));
    let path = Path::new(Ipv6Addr::UNSPECIFIED, group).over(link);
    let probe = |options| path.ndp(Message::NeighbourSolicitation { target: OURS, options });
    let [answer] = bench.exchange(&probe(Options::default())).try_into().unwrap();
    let said = Said { target: OURS, mac: Some(OUR_MAC), solicited: false, overrides: true };
    let everybody =
        Path::new(OURS, ALL_NODES).over(Link::new(OUR_MAC, MacAddr::multicast_v6(ALL_NODES)));
    assert_eq!(answer, advertisement(everybody, &said));
    assert_eq!(bench.host.neighbours.counts(), (0, 0));
    let mut option = [0; 8];
    Item::SourceLink(PEER_MAC).emit(&mut option);
    bench.drops(&probe(Options::new(&option).unwrap()), Count::NdpAddress);
    bench.finish();
}

#[test]
fn what_the_validity_rules_forbid_is_dropped() {
    let mut bench = asked();
    let mut forwarded = advertisement(to_us(), &ANSWER);
    forwarded[14 + 7] = 254;
    bench.drops(&forwarded, Count::NdpHopLimit);
    let group = Said { target: ALL_NODES, ..ANSWER };
    bench.drops(&advertisement(to_us(), &group), Count::NdpAddress);
    let everybody =
        Path::new(PEER, ALL_NODES).over(Link::new(PEER_MAC, MacAddr::multicast_v6(ALL_NODES)));
    bench.drops(&advertisement(everybody, &ANSWER), Count::NdpAddress);
    let broadcast = Said { mac: Some(MacAddr::BROADCAST), ..ANSWER };
    bench.drops(&advertisement(to_us(), &broadcast), Count::NdpAddress);
    let stranger = Said { target: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x77), ..ANSWER };
    bench.drops(&advertisement(to_us(), &stranger), Count::NdpUnknown);
    let not_ours = Message::NeighbourSolicitation { target: PEER, options: Options::default() };
    bench.drops(&to_us().ndp(not_ours), Count::NdpNotForUs);
    let redirect =
        Message::Redirect { target: PEER, destination: PEER, options: Options::default() };
    bench.drops(&to_us().ndp(redirect), Count::NdpIgnored);
    assert!(matches!(known(&bench), Some((State::Incomplete, None))), "nothing was believed");
    bench.finish();
}

#[test]
fn broken_formats_are_counted_by_what_is_wrong() {
    let mut bench = asked();
    let good = advertisement(to_us(), &ANSWER);
    let icmp_at = 14 + 40;
    let resum = |mut frame: Vec<u8>| {
        frame[icmp_at + 2..icmp_at + 4].fill(0);
        let sum = plumb_copy::Sum::of(&frame[icmp_at..]);
        let checksum =
            to_us().pseudo(Protocol::ICMPV6).checksum(frame.len() - icmp_at, sum).to_be_bytes();
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
        (resum(code), Layer::Ndp, Malformed::Code),
        (resum(option), Layer::Ndp, Malformed::OptionLength),
        (checksum, Layer::Icmpv6, Malformed::Checksum),
    ] {
        assert!(bench.exchange(&frame).is_empty());
        assert_eq!(bench.host.counters.of_malformed(layer, malformed), 1, "{malformed}");
    }
    bench.finish();
}

#[test]
fn discovery_in_fragments_is_ignored() {
    let mut bench = asked();
    let frame = advertisement(to_us(), &ANSWER);
    let atomic = Fragment { identification: 1, offset: 0, more: false };
    let message = &frame[14 + 40..];
    let mut path = to_us();
    path.hop_limit = 255;
    bench.drops(
        &path.extended(&[Extension::Fragment(atomic)], Protocol::ICMPV6, message),
        Count::NdpFragmented,
    );
    let fragments = path.fragments(2, Protocol::ICMPV6, message, 16);
    assert_eq!(fragments.len(), 2);
    for fragment in fragments {
        assert!(bench.exchange(&fragment).is_empty());
    }
    assert_eq!(bench.host.counters.of(Count::NdpFragmented), 2);
    assert!(matches!(known(&bench), Some((State::Incomplete, None))));
    bench.finish();
}

#[test]
fn an_answer_without_an_address_resolves_nothing() {
    let mut bench = asked();
    bench.drops(&advertisement(to_us(), &Said { mac: None, ..ANSWER }), Count::NdpUnsolicited);
    assert!(matches!(known(&bench), Some((State::Incomplete, None))));
    bench.finish();
}

#[test]
fn an_advertisement_without_override_makes_us_doubt_but_changes_no_address() {
    let mut bench = resolved();
    let other = Said { mac: Some(EVIL_MAC), overrides: false, ..ANSWER };
    bench.drops(&advertisement(to_us(), &other), Count::NdpUnsolicited);
    assert_eq!(known(&bench), Some((State::Stale, Some(PEER_MAC))));
    bench.finish();
}

#[test]
fn an_override_that_nobody_asked_for_is_refused_at_first_and_never_trusted() {
    let mut bench = resolved();
    // It lies: nobody solicited it.
    let other = Said { mac: Some(EVIL_MAC), ..ANSWER };
    bench.drops(&advertisement(to_us(), &other), Count::NdpUnsolicited);
    assert!(matches!(known(&bench), Some((State::Reachable(_), Some(PEER_MAC)))));
    bench.pass(Span::from_secs(1));
    // RFC 4861 §7.2.5 lets it replace the address, but not count as confirmed.
    assert!(bench.exchange(&advertisement(to_us(), &other)).is_empty());
    assert_eq!(known(&bench), Some((State::Stale, Some(EVIL_MAC))));
    bench.finish();
}

#[test]
fn a_claim_to_our_address_is_a_conflict() {
    let mut bench = Bench::new();
    let claim = Said { target: OURS, mac: Some(EVIL_MAC), solicited: false, overrides: true };
    bench.drops(&advertisement(to_us(), &claim), Count::AddressConflict);
    let expected = Event::AddressConflict { port: PORT, address: OURS.into(), mac: EVIL_MAC };
    assert_eq!(bench.host.poll_event(), Some(expected));
    bench.finish();
}

#[test]
fn our_own_advertisement_that_comes_back_is_no_claim() {
    let mut bench = Bench::new();
    let own = Said { target: OURS, mac: Some(OUR_MAC), solicited: false, overrides: true };
    bench.drops(&advertisement(to_us(), &own), Count::RxOwn);
    assert_eq!(bench.host.poll_event(), None);
    bench.finish();
}
