//! A host on a bench: frames in, frames out, every packet accounted for afterwards.

use std::net::SocketAddr;

use plumb_wire::compose::{Link, Path};
use plumb_wire::ethernet::Frame;
use plumb_wire::machine::Machine;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Frames, Packet, Pool};

use super::*;
use crate::counters::Kind;
use crate::udp::{CopyPolicy, UdpId, UdpOptions};
use crate::world::World;

pub(crate) const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub(crate) const PORT: Port = Port(0);

/// Addresses of one family; every test that both families share runs with each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    pub(crate) ours: IpAddr,
    pub(crate) peer: IpAddr,
    /// On the same network, but nobody is there.
    pub(crate) absent: IpAddr,
    /// Of another network.
    pub(crate) foreign: IpAddr,
}

impl Family {
    pub(crate) fn both() -> [Self; 2] {
        let of = |prefix: &str, foreign: &str| {
            let ip = |n: &str| format!("{prefix}{n}").parse().unwrap();
            Self {
                ours: ip("1"),
                peer: ip("2"),
                absent: ip("9"),
                foreign: foreign.parse().unwrap(),
            }
        };
        [of("192.0.2.", "198.51.100.7"), of("2001:db8::", "2001:db9::7")]
    }

    /// From the peer to us.
    pub(crate) fn inward(self) -> Path {
        Path::new(self.peer, self.ours).over(Link::new(PEER_MAC, OUR_MAC))
    }
}

/// A host with one Ethernet interface, and what stands around it.
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) pool: Pool,
    pub(crate) now: Instant,
    frames: Frames,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(HostConfig::default(), 1_500)
    }

    pub(crate) fn with(config: HostConfig, mtu: u32) -> Self {
        let mut host = Host::new(config, Seed(1));
        let mut interface = InterfaceConfig::ethernet(OUR_MAC, mtu);
        for family in Family::both() {
            let len = if family.ours.is_ipv4() { 24 } else { 64 };
            interface = interface.with_address(family.ours, len);
        }
        assert_eq!(host.add_interface(&interface), Ok(PORT));
        let frames = Frames { count: 2_048, size: 2_048, large: 16 };
        let now = Instant::ORIGIN + Span::from_secs(1);
        Self { host, pool: Pool::new(frames), now, frames }
    }

    /// A host that knows its peer already, with a socket at port 7.
    pub(crate) fn acquainted() -> (Self, UdpId) {
        let mut bench = Self::new();
        let mut socket = None;
        for family in Family::both() {
            bench.introduce(family.peer, PEER_MAC);
            let any = SocketAddr::new(unspecified_like(family.ours), 7);
            socket = Some(bench.host.udp_bind(any, UdpOptions::default()).unwrap());
        }
        bench.take();
        (bench, socket.unwrap())
    }

    /// Lets the host learn a neighbour by being asked.
    pub(crate) fn introduce(&mut self, ip: IpAddr, mac: MacAddr) {
        let answers = self.exchange(&Self::question(ip, mac));
        assert_eq!(answers.len(), 1, "an answer to the question");
    }

    /// The frame with which a neighbour asks for our address.
    pub(crate) fn question(ip: IpAddr, mac: MacAddr) -> Vec<u8> {
        match (ip, Family::both()) {
            (IpAddr::V4(ip), [Family { ours: IpAddr::V4(ours), .. }, _]) => {
                plumb_wire::compose::arp_request(mac, ip, ours)
            }
            (IpAddr::V6(ip), [_, Family { ours: IpAddr::V6(ours), .. }]) => {
                plumb_wire::compose::neighbour_solicitation(mac, ip, ours)
            }
            _ => unreachable!("families in order"),
        }
    }

    pub(crate) fn give(&mut self, frame: &[u8]) {
        let mut packet = self.pool.packet_of(frame).unwrap();
        packet.meta.received = self.now;
        self.host.handle_packets(self.now, PORT, &mut vec![packet], &mut self.pool);
    }

    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        let mut batch: Vec<Packet> = Vec::new();
        self.host.poll_packets(self.now, PORT, &mut batch, usize::MAX, &mut self.pool);
        let frames = batch.iter().map(|packet| self.pool.bytes(packet).to_vec()).collect();
        self.pool.free_all(&mut batch);
        frames
    }

    pub(crate) fn exchange(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.give(frame);
        self.take()
    }

    /// Gives a frame that must be dropped, unanswered, for this reason.
    pub(crate) fn drops(&mut self, frame: &[u8], reason: Count) {
        let before = self.host.counters.of(reason);
        let answers = self.exchange(frame);
        assert_eq!(self.host.counters.of(reason), before + 1, "{reason:?} counted");
        assert!(answers.is_empty(), "{reason:?} answered: {answers:02x?}");
        self.account();
    }

    /// Lets time pass, deadlines included.
    pub(crate) fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(at) = self.host.deadline().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.host.handle_deadline(self.now, &mut self.pool);
            assert!(self.host.deadline().is_none_or(|next| next > self.now), "time moves on");
        }
        self.now = until;
    }

    /// Every packet is accounted for.
    pub(crate) fn account(&self) {
        self.host.counters.check(self.host.queued() as u64).unwrap();
    }

    /// Every packet is accounted for, and every frame is back in the pool.
    pub(crate) fn finish(mut self) {
        self.account();
        self.take();
        for id in std::iter::from_fn(|| self.host.poll_readable()).collect::<Vec<_>>() {
            self.host.udp_close(id, &mut self.pool);
        }
        let held = self.host.neighbours.queued() + self.host.reassembly.len();
        let (small, large) = self.pool.available();
        let made = self.frames;
        assert_eq!(small + large + held, (made.count + made.large) as usize, "frames are back");
    }
}

mod arp;
mod errors;
mod ip;
mod ndp;
mod output;

fn pair(seed: u64, medium: Medium) -> (World<Host>, Vec<Family>) {
    let host = |n: u64| {
        let mut host = Host::new(HostConfig::default(), Seed(seed).derive(&n.to_string()));
        let mac = if n == 0 { OUR_MAC } else { PEER_MAC };
        let mut interface = match medium {
            Medium::Ethernet => InterfaceConfig::ethernet(mac, 1_500),
            Medium::Ip => InterfaceConfig::ip(1_500),
        };
        for family in Family::both() {
            let ip = if n == 0 { family.ours } else { family.peer };
            interface = interface.with_address(ip, if ip.is_ipv4() { 24 } else { 64 });
        }
        host.add_interface(&interface).unwrap();
        host
    };
    let world = World::new(vec![host(0), host(1)], medium, Frames::default(), Seed(seed));
    (world, Family::both().to_vec())
}

#[test]
fn two_hosts_find_each_other_and_exchange_datagrams_of_every_size_that_a_path_takes() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let (mut world, families) = pair(3, medium);
        for family in families {
            let (ours, theirs) = (SocketAddr::new(family.ours, 7), SocketAddr::new(family.peer, 9));
            let a = world.machines[0].udp_bind(ours, UdpOptions::default()).unwrap();
            let b = world.machines[1].udp_bind(theirs, UdpOptions::default()).unwrap();
            for len in [0, 1, 18, 1_400, 1_472, 1_473, 4_000, 20_000] {
                let payload: Vec<u8> = (0..=250).cycle().take(len).collect();
                for policy in [CopyPolicy::Fused, CopyPolicy::Separate, CopyPolicy::NoChecksum] {
                    world
                        .with(0, |host, now, pool| {
                            host.udp_send(now, a, &payload, Some(theirs), policy, pool)
                        })
                        .unwrap();
                    assert!(world.settle(Span::from_secs(90)) || medium == Medium::Ethernet);
                    let datagram = world
                        .with(1, |host, _, pool| host.udp_receive(b, pool))
                        .unwrap_or_else(|| panic!("{family:?} {len} over {medium:?}"));
                    assert_eq!(world.pool.bytes(&datagram.packet), payload);
                    assert_eq!((datagram.remote, datagram.local), (ours, theirs));
                    world.with(1, |host, now, pool| host.udp_reply(now, datagram, pool)).unwrap();
                    assert!(world.settle(Span::from_secs(90)));
                    let back = world.with(0, |host, _, pool| host.udp_receive(a, pool)).unwrap();
                    assert_eq!(world.pool.bytes(&back.packet), payload);
                    world.pool.free(back.packet);
                }
            }
        }
        for host in &world.machines {
            host.counters().check(host.queued() as u64).unwrap();
            assert_eq!(host.counters().sum(Kind::RxDrop), 0, "nothing was dropped");
            assert_eq!(host.counters().sum(Kind::TxDrop), 0, "nothing was dropped");
        }
        assert_eq!(world.pool.available(), (1_024, 16));
    }
}

#[test]
fn an_echo_request_comes_back_as_an_event_whatever_its_size() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let (mut world, families) = pair(4, medium);
        for family in families {
            for (sequence, len) in [(0, 0), (1, 56), (2, 1_452), (3, 9_000)] {
                let data = vec![0xa5; len];
                world
                    .with(0, |host, now, pool| {
                        host.ping(now, family.peer, (77, sequence), &data, pool)
                    })
                    .unwrap();
                assert!(world.settle(Span::from_secs(90)));
                let event = world.machines[0].poll_event();
                let Some(Event::EchoReply {
                    remote, identifier: 77, sequence: got, len: back, ..
                }) = event
                else {
                    panic!("{event:?} for {len} bytes to {}", family.peer);
                };
                assert_eq!((remote, got, back), (family.peer, sequence, len));
            }
        }
        assert_eq!(world.pool.available(), (1_024, 16));
    }
}

#[test]
fn a_quiet_host_has_no_timer_armed() {
    let (bench, _) = Bench::acquainted();
    assert_eq!(bench.host.deadline(), None);
    let (mut world, families) = pair(5, Medium::Ethernet);
    for family in families {
        world.with(0, |host, now, pool| host.ping(now, family.peer, (1, 1), b"", pool)).unwrap();
    }
    world.run(Span::from_ms(1));
    let now = world.now();
    assert!(world.settle(Span::from_secs(60)), "every wait comes to its end");
    assert!(world.now() >= now);
}

#[test]
fn the_answer_to_a_frame_goes_back_over_the_same_link() {
    for family in Family::both() {
        let (mut bench, _) = Bench::acquainted();
        let answers = bench.exchange(&family.inward().echo_request(1, 2, b"data"));
        let [answer] = answers.try_into().unwrap();
        let frame = Frame::parse(&answer).unwrap();
        assert_eq!((frame.source(), frame.destination()), (OUR_MAC, PEER_MAC));
        let expected = family.inward().reversed().echo_reply(1, 2, b"data");
        assert_eq!(answer, expected);
        bench.finish();
    }
}
