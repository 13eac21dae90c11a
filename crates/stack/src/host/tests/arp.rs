//! ARP: who is answered, who is believed, and what an attempt at poisoning gets.

use std::net::Ipv4Addr;

use plumb_wire::arp::{self, Operation};
use plumb_wire::compose::{arp_frame, arp_reply, arp_request};
use plumb_wire::ethernet::Frame;

use super::*;
use crate::neighbour::State;

const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const EVIL_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);

fn known(bench: &Bench, ip: Ipv4Addr) -> Option<(State, Option<MacAddr>)> {
    bench.host.neighbours.lookup(PORT, ip.into())
}

fn ping(bench: &mut Bench, ip: Ipv4Addr) {
    bench.host.ping(bench.now, ip.into(), (1, 1), b"", &mut bench.pool).unwrap();
}

/// A host that asked for the peer and was answered.
fn resolved() -> Bench {
    let mut bench = Bench::new();
    ping(&mut bench, PEER);
    assert_eq!(bench.take().len(), 1);
    let answers = bench.exchange(&arp_reply(PEER_MAC, PEER, OUR_MAC, OURS));
    assert_eq!(answers.len(), 1, "what waited is sent");
    assert!(matches!(known(&bench, PEER), Some((State::Reachable(_), Some(PEER_MAC)))));
    bench
}

fn message(frame: &[u8]) -> arp::Packet {
    arp::Packet::parse(Frame::parse(frame).unwrap().payload()).unwrap()
}

#[test]
fn a_request_for_our_address_is_answered_and_its_sender_known() {
    let mut bench = Bench::new();
    let answers = bench.exchange(&arp_request(PEER_MAC, PEER, OURS));
    assert_eq!(answers, [arp_reply(OUR_MAC, OURS, PEER_MAC, PEER)]);
    assert_eq!(known(&bench, PEER), Some((State::Stale, Some(PEER_MAC))));
    bench.finish();
}

#[test]
fn requests_for_others_teach_nothing_about_strangers() {
    let mut bench = Bench::new();
    bench.drops(&arp_request(PEER_MAC, PEER, Ipv4Addr::new(192, 0, 2, 3)), Count::ArpNotForUs);
    assert_eq!(known(&bench, PEER), None);
    bench.finish();
}

#[test]
fn replies_that_nobody_asked_for_create_nothing_and_change_nothing() {
    let mut bench = Bench::new();
    bench.drops(&arp_reply(EVIL_MAC, PEER, OUR_MAC, OURS), Count::ArpNotForUs);
    assert_eq!(known(&bench, PEER), None);
    let mut bench = resolved();
    bench.drops(&arp_reply(EVIL_MAC, PEER, OUR_MAC, OURS), Count::ArpUnsolicited);
    // No longer trusted, so that it will be probed at its old address; but not replaced.
    assert_eq!(known(&bench, PEER), Some((State::Stale, Some(PEER_MAC))));
    bench.drops(&arp_reply(EVIL_MAC, PEER, OUR_MAC, OURS), Count::ArpUnsolicited);
    assert_eq!(known(&bench, PEER), Some((State::Stale, Some(PEER_MAC))));
    bench.finish();
}

#[test]
fn a_gratuitous_announcement_updates_who_is_known_but_not_right_after_an_answer() {
    let announcement = |mac| arp_request(mac, PEER, PEER);
    let mut bench = Bench::new();
    bench.drops(&announcement(PEER_MAC), Count::ArpNotForUs);
    let mut bench = resolved();
    bench.drops(&announcement(EVIL_MAC), Count::ArpUnsolicited);
    assert!(matches!(known(&bench, PEER), Some((State::Reachable(_), Some(PEER_MAC)))));
    bench.pass(Span::from_secs(1));
    assert!(bench.exchange(&announcement(EVIL_MAC)).is_empty());
    assert_eq!(known(&bench, PEER), Some((State::Stale, Some(EVIL_MAC))), "to be verified in use");
    bench.finish();
}

#[test]
fn addresses_from_outside_the_network_are_ignored() {
    let mut bench = Bench::new();
    for source in ["198.51.100.7", "192.0.2.255", "224.0.0.1", "255.255.255.255"] {
        bench.drops(&arp_request(PEER_MAC, source.parse().unwrap(), OURS), Count::ArpForeign);
    }
    assert_eq!(bench.host.neighbours.counts(), (0, 0));
    bench.finish();
}

#[test]
fn a_probe_is_answered_and_leaves_no_entry() {
    let mut bench = Bench::new();
    let answers = bench.exchange(&arp_request(PEER_MAC, Ipv4Addr::UNSPECIFIED, OURS));
    assert_eq!(answers.len(), 1);
    assert_eq!(message(&answers[0]).operation, Operation::Reply);
    assert_eq!(bench.host.neighbours.counts(), (0, 0));
    assert_eq!(bench.host.counters.of(Count::AddressDefended), 1);
    bench.finish();
}

#[test]
fn a_claim_to_our_address_is_reported_and_answered_at_most_every_ten_seconds() {
    let mut bench = Bench::new();
    let claim = arp_request(EVIL_MAC, OURS, OURS);
    let mut defences = 0;
    for _ in 0..21 {
        defences += bench.exchange(&claim).len();
        let event = bench.host.poll_event();
        let expected = Event::AddressConflict { port: PORT, address: OURS.into(), mac: EVIL_MAC };
        assert_eq!(event, Some(expected));
        bench.pass(Span::from_secs(1));
    }
    assert_eq!(defences, 3);
    assert_eq!(known(&bench, OURS), None);
    bench.finish();
}

/// RFC 5227 §2.4: a bridge that sends our own announcement back makes no conflict.
#[test]
fn our_own_announcement_that_comes_back_is_no_claim() {
    let mut bench = Bench::new();
    bench.drops(&arp_request(OUR_MAC, OURS, OURS), Count::RxOwn);
    assert_eq!(bench.host.poll_event(), None);
    bench.finish();
}

#[test]
fn impossible_hardware_addresses_and_operations_are_dropped() {
    let mut bench = Bench::new();
    let frame = |mac, operation| {
        let target_mac = MacAddr::UNSPECIFIED;
        let packet =
            arp::Packet { operation, source_mac: mac, source: PEER, target_mac, target: OURS };
        let mut frame = arp_frame(packet, OUR_MAC);
        frame[6..12].copy_from_slice(&PEER_MAC.0);
        frame
    };
    bench.drops(&frame(MacAddr::BROADCAST, Operation::Request), Count::ArpMac);
    bench.drops(&frame(MacAddr::UNSPECIFIED, Operation::Reply), Count::ArpMac);
    bench.drops(&frame(PEER_MAC, Operation::Other(3)), Count::ArpOperation);
    let truncated = frame(PEER_MAC, Operation::Request)[..30].to_vec();
    assert!(bench.exchange(&truncated).is_empty());
    assert_eq!(bench.host.counters.malformed(), 1);
    bench.finish();
}

#[test]
fn an_address_is_asked_for_three_times_a_second_apart_and_then_given_up() {
    let mut bench = Bench::new();
    ping(&mut bench, PEER);
    let [first] = bench.take().try_into().unwrap();
    assert_eq!(first, arp_request(OUR_MAC, OURS, PEER));
    for _ in 0..2 {
        bench.pass(Span::from_ms(999));
        assert!(bench.take().is_empty());
        bench.pass(Span::from_ms(1));
        assert_eq!(bench.take(), std::slice::from_ref(&first));
    }
    bench.pass(Span::from_secs(1));
    assert!(bench.take().is_empty());
    let failed = Event::NeighbourFailed { port: PORT, address: PEER.into() };
    assert_eq!(bench.host.poll_event(), Some(failed));
    assert_eq!(bench.host.counters.of(Count::TxNeighbourUnreachable), 1);
    assert_eq!(bench.host.deadline(), None);
    bench.finish();
}

#[test]
fn a_stale_neighbour_is_used_then_probed_alone_and_believed_when_it_answers() {
    let mut bench = Bench::new();
    bench.exchange(&arp_request(PEER_MAC, PEER, OURS));
    ping(&mut bench, PEER);
    assert_eq!(bench.take().len(), 1, "sent without asking");
    assert_eq!(known(&bench, PEER), Some((State::Delay, Some(PEER_MAC))));
    bench.pass(Span::from_secs(5));
    let [probe] = bench.take().try_into().unwrap();
    assert_eq!(Frame::parse(&probe).unwrap().destination(), PEER_MAC);
    assert_eq!(message(&probe).target, PEER);
    bench.exchange(&arp_reply(PEER_MAC, PEER, OUR_MAC, OURS));
    assert!(matches!(known(&bench, PEER), Some((State::Reachable(_), _))));
    assert_eq!(bench.host.deadline(), None, "a confirmed neighbour needs no timer");
    bench.pass(Span::from_secs(46));
    ping(&mut bench, PEER);
    assert_eq!(known(&bench, PEER), Some((State::Delay, Some(PEER_MAC))), "it aged unseen");
    bench.pass(Span::from_secs(8));
    assert_eq!(known(&bench, PEER), None, "three probes were not answered");
    assert_eq!(bench.take().len(), 4);
    bench.finish();
}
