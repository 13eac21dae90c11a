//! ARP: who is answered, who is believed, and what an attempt at poisoning gets.

use std::net::Ipv4Addr;

use plumb_wire::arp::{self, ArpOperation};
use plumb_wire::compose::{arp_frame, arp_reply, arp_request};
use plumb_wire::ethernet::EthernetFrame;

use super::*;
use crate::neighbor::NeighborState;

const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const EVIL_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x66]);

fn known(bench: &HostFixture, ip: Ipv4Addr) -> Option<(NeighborState, Option<MacAddr>)> {
    bench.host.neighbors.lookup(PORT, ip.into())
}

/// A host that asked for the peer and was answered.
fn resolved() -> HostFixture {
    let mut bench = HostFixture::new();
    bench.ping(PEER.into());
    assert_eq!(bench.take().len(), 1);
    let answers = bench.exchange(&arp_reply(PEER_MAC, PEER, OUR_MAC, OURS));
    assert_eq!(answers.len(), 1, "what waited is sent");
    assert!(matches!(known(&bench, PEER), Some((NeighborState::Reachable(_), Some(PEER_MAC)))));
    bench
}

fn message(frame: &[u8]) -> arp::ArpPacket {
    arp::ArpPacket::parse(EthernetFrame::parse(frame).unwrap().payload()).unwrap()
}

#[test]
fn arp_request_is_answered_and_its_sender_cached() {
    let mut bench = HostFixture::new();
    let answers = bench.exchange(&arp_request(PEER_MAC, PEER, OURS));
    assert_eq!(answers, [arp_reply(OUR_MAC, OURS, PEER_MAC, PEER)]);
    assert_eq!(known(&bench, PEER), Some((NeighborState::Stale, Some(PEER_MAC))));
    bench.finish();
}

#[test]
fn unsolicited_arp_reply_changes_no_address() {
    let mut bench = HostFixture::new();
    bench.drops(&arp_reply(EVIL_MAC, PEER, OUR_MAC, OURS), CounterId::ArpNotForUs);
    assert_eq!(known(&bench, PEER), None);
    let mut bench = resolved();
    bench.drops(&arp_reply(EVIL_MAC, PEER, OUR_MAC, OURS), CounterId::ArpUnsolicited);
    // No longer trusted, so that it will be probed at its old address; but not replaced.
    assert_eq!(known(&bench, PEER), Some((NeighborState::Stale, Some(PEER_MAC))));
    bench.drops(&arp_reply(EVIL_MAC, PEER, OUR_MAC, OURS), CounterId::ArpUnsolicited);
    assert_eq!(known(&bench, PEER), Some((NeighborState::Stale, Some(PEER_MAC))));
    bench.finish();
}

#[test]
fn gratuitous_arp_updates_unless_just_confirmed() {
    let announcement = |mac| arp_request(mac, PEER, PEER);
    let mut bench = HostFixture::new();
    bench.drops(&announcement(PEER_MAC), CounterId::ArpNotForUs);
    let mut bench = resolved();
    bench.drops(&announcement(EVIL_MAC), CounterId::ArpUnsolicited);
    assert!(matches!(known(&bench, PEER), Some((NeighborState::Reachable(_), Some(PEER_MAC)))));
    bench.pass(Span::from_secs(1));
    assert!(bench.exchange(&announcement(EVIL_MAC)).is_empty());
    assert_eq!(
        known(&bench, PEER),
        Some((NeighborState::Stale, Some(EVIL_MAC))),
        "to be verified in use"
    );
    bench.finish();
}

#[test]
fn arp_probe_is_answered_without_an_entry() {
    let mut bench = HostFixture::new();
    let answers = bench.exchange(&arp_request(PEER_MAC, Ipv4Addr::UNSPECIFIED, OURS));
    assert_eq!(answers.len(), 1);
    assert_eq!(message(&answers[0]).operation, ArpOperation::Reply);
    assert_eq!(bench.host.neighbors.counts(), (0, 0));
    assert_eq!(bench.count(CounterId::AddressDefended), 1);
    bench.finish();
}

#[test]
fn address_conflict_is_defended_every_ten_seconds() {
    let mut bench = HostFixture::new();
    let claim = arp_request(EVIL_MAC, OURS, OURS);
    let mut defenses = 0;
    for _ in 0..21 {
        defenses += bench.exchange(&claim).len();
        let event = bench.host.poll_event();
        let expected =
            HostEvent::AddressConflict { port: PORT, address: OURS.into(), mac: EVIL_MAC };
        assert_eq!(event, Some(expected));
        bench.pass(Span::from_secs(1));
    }
    assert_eq!(defenses, 3);
    assert_eq!(known(&bench, OURS), None);
    bench.finish();
}

#[test]
fn what_is_invalid_or_for_others_is_dropped_and_nothing_learned() {
    let mut bench = HostFixture::new();
    let from = |source: &str| arp_request(PEER_MAC, source.parse().unwrap(), OURS);
    let other = |mac, operation| {
        let target_mac = MacAddr::UNSPECIFIED;
        let packet =
            arp::ArpPacket { operation, source_mac: mac, source: PEER, target_mac, target: OURS };
        let mut frame = arp_frame(packet, OUR_MAC);
        frame[6..12].copy_from_slice(&PEER_MAC.0);
        frame
    };
    for (frame, reason) in [
        (arp_request(PEER_MAC, PEER, Ipv4Addr::new(192, 0, 2, 3)), CounterId::ArpNotForUs),
        (from("198.51.100.7"), CounterId::ArpOffLink),
        (from("192.0.2.255"), CounterId::ArpOffLink),
        (from("224.0.0.1"), CounterId::ArpOffLink),
        (from("255.255.255.255"), CounterId::ArpOffLink),
        (other(MacAddr::BROADCAST, ArpOperation::Request), CounterId::ArpMac),
        (other(MacAddr::UNSPECIFIED, ArpOperation::Reply), CounterId::ArpMac),
        (other(PEER_MAC, ArpOperation::Other(3)), CounterId::ArpOperation),
        // RFC 5227 §2.4: a bridge that sends our own announcement back makes no conflict.
        (arp_request(OUR_MAC, OURS, OURS), CounterId::RxOwn),
    ] {
        bench.drops(&frame, reason);
    }
    let truncated = other(PEER_MAC, ArpOperation::Request)[..30].to_vec();
    assert!(bench.exchange(&truncated).is_empty());
    assert_eq!(bench.host.counters().malformed(), 1);
    assert_eq!((bench.host.poll_event(), bench.host.neighbors.counts()), (None, (0, 0)));
    bench.finish();
}

#[test]
fn resolution_fails_after_three_solicitations() {
    let mut bench = HostFixture::new();
    bench.ping(PEER.into());
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
    let failed = HostEvent::NeighborFailed { port: PORT, address: PEER.into() };
    assert_eq!(bench.host.poll_event(), Some(failed));
    assert_eq!(bench.count(CounterId::TxNeighborUnreachable), 1);
    assert_eq!(bench.host.deadline(), None);
    bench.finish();
}

#[test]
fn stale_neighbor_is_used_then_probed() {
    let mut bench = HostFixture::new();
    bench.exchange(&arp_request(PEER_MAC, PEER, OURS));
    bench.ping(PEER.into());
    assert_eq!(bench.take().len(), 1, "sent without asking");
    assert_eq!(known(&bench, PEER), Some((NeighborState::Delay, Some(PEER_MAC))));
    bench.pass(Span::from_secs(5));
    let [probe] = bench.take().try_into().unwrap();
    assert_eq!(EthernetFrame::parse(&probe).unwrap().destination(), PEER_MAC);
    assert_eq!(message(&probe).target, PEER);
    bench.exchange(&arp_reply(PEER_MAC, PEER, OUR_MAC, OURS));
    assert!(matches!(known(&bench, PEER), Some((NeighborState::Reachable(_), _))));
    assert_eq!(bench.host.deadline(), None, "a confirmed neighbor needs no timer");
    bench.pass(Span::from_secs(46));
    bench.ping(PEER.into());
    assert_eq!(known(&bench, PEER), Some((NeighborState::Delay, Some(PEER_MAC))), "it aged unseen");
    bench.pass(Span::from_secs(8));
    assert_eq!(known(&bench, PEER), None, "three probes were not answered");
    assert_eq!(bench.take().len(), 4);
    bench.finish();
}
