//! A host on a bench: frames in, frames out, every packet accounted for afterwards.

use std::net::{IpAddr, SocketAddr};

use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::{EthernetFrame, MacAddr};
use plumb_wire::machine::{DeviceCapabilities, Machine, Medium};
use plumb_wire::malformed::FormatError;
use plumb_wire::packet::{Packet, Pool, PoolConfig};

use super::*;
use crate::counters::ProtocolLayer;
use crate::route::IpPrefix;
use crate::udp::{CopyPolicy, UdpId, UdpOptions};

pub(crate) const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub(crate) const PORT: PortId = PortId(0);
pub(crate) const ETHERNET: DeviceCapabilities = DeviceCapabilities::plain(Medium::Ethernet, 1_500);

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
    pub fn both() -> [Self; 2] {
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
    /// Where the transport header begins in a plain frame.
    pub fn transport_at(self) -> usize {
        if self.ours.is_ipv4() { 34 } else { 54 }
    }

    pub fn inward(self) -> PacketTemplate {
        PacketTemplate::new(self.peer, self.ours).over(LinkTemplate::new(PEER_MAC, OUR_MAC))
    }
}

/// A host with one Ethernet interface, and what stands around it.
pub(crate) struct HostFixture {
    pub(crate) host: IpHost,
    pub(crate) pool: Pool,
    pub(crate) now: Instant,
    frames: PoolConfig,
}

impl HostFixture {
    pub fn new() -> Self {
        Self::with(HostConfig::default())
    }

    pub fn with(config: HostConfig) -> Self {
        Self::of(config, ETHERNET)
    }

    pub fn of(config: HostConfig, capabilities: DeviceCapabilities) -> Self {
        let mut host = IpHost::new(config, Seed(1));
        let mut interface = InterfaceConfig::ethernet(OUR_MAC, capabilities.mtu);
        interface.capabilities = capabilities;
        for family in Family::both() {
            let len = if family.ours.is_ipv4() { 24 } else { 64 };
            interface = interface.with_address(family.ours, len);
        }
        assert_eq!(host.add_interface(&interface), Ok(PORT));
        let frames = PoolConfig { count: 2_048, size: 2_048, large: 16 };
        let now = Instant::ORIGIN + Span::from_secs(1);
        Self { host, pool: Pool::new(frames), now, frames }
    }

    /// A host that knows its peer already, with a socket at port 7.
    pub fn acquainted() -> (Self, UdpId) {
        let mut bench = Self::new();
        let mut socket = None;
        for family in Family::both() {
            bench.introduce(family.peer, PEER_MAC);
            socket = Some(bench.bind(unspecified_like(family.ours), 7));
        }
        bench.take();
        (bench, socket.unwrap())
    }

    /// Lets the host learn a neighbor by being asked.
    pub fn introduce(&mut self, ip: IpAddr, mac: MacAddr) {
        let answers = self.exchange(&Self::question(ip, mac));
        assert_eq!(answers.len(), 1, "an answer to the question");
    }

    /// The frame with which a neighbor asks for our address.
    pub fn question(ip: IpAddr, mac: MacAddr) -> Vec<u8> {
        match (ip, Family::both()) {
            (IpAddr::V4(ip), [Family { ours: IpAddr::V4(ours), .. }, _]) => {
                plumb_wire::compose::arp_request(mac, ip, ours)
            }
            (IpAddr::V6(ip), [_, Family { ours: IpAddr::V6(ours), .. }]) => {
                plumb_wire::compose::neighbor_solicitation(mac, ip, ours)
            }
            _ => unreachable!("families in order"),
        }
    }

    pub fn count(&self, counter: CounterId) -> u64 {
        self.host.counters().value(counter)
    }

    pub fn malformed(&self, layer: ProtocolLayer, error: FormatError) -> u64 {
        self.host.counters().malformed_value(layer, error)
    }

    pub fn bind(&mut self, ip: IpAddr, port: u16) -> UdpId {
        self.host.udp_bind(SocketAddr::new(ip, port), UdpOptions::default()).unwrap()
    }

    /// Sends a datagram to port 9 of an address.
    pub fn send(&mut self, id: UdpId, payload: &[u8], remote: IpAddr) {
        let (remote, policy) = (Some(SocketAddr::new(remote, 9)), CopyPolicy::Fused);
        self.host.udp_send(self.now, id, payload, remote, policy, &mut self.pool).unwrap();
    }

    pub fn ping(&mut self, remote: IpAddr) {
        self.host.ping(self.now, remote, (1, 1), b"", &mut self.pool).unwrap();
    }

    pub fn give(&mut self, frame: &[u8]) {
        let mut packet = self.pool.packet_of(frame).unwrap();
        packet.meta.received = self.now;
        self.host.handle_packets(self.now, PORT, &mut vec![packet], &mut self.pool);
    }

    pub fn take(&mut self) -> Vec<Vec<u8>> {
        let mut batch: Vec<Packet> = Vec::new();
        self.host.poll_packets(self.now, PORT, &mut batch, usize::MAX, &mut self.pool);
        let frames = batch.iter().map(|packet| self.pool.bytes(packet).to_vec()).collect();
        self.pool.free_all(&mut batch);
        frames
    }

    pub fn exchange(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.give(frame);
        self.take()
    }

    /// Gives a frame that must be dropped, unanswered, for this reason.
    pub fn drops(&mut self, frame: &[u8], reason: CounterId) {
        let before = self.count(reason);
        let answers = self.exchange(frame);
        assert_eq!(self.count(reason), before + 1, "{reason:?} counted");
        assert!(answers.is_empty(), "{reason:?} answered: {answers:02x?}");
        self.account();
    }

    /// Lets time pass, deadlines included.
    pub fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(at) = self.host.deadline().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.host.handle_deadline(self.now, &mut self.pool);
            assert!(self.host.deadline().is_none_or(|next| next > self.now), "time moves on");
        }
        self.now = until;
    }

    /// Every packet is accounted for.
    pub fn account(&self) {
        self.host.counters().check(self.host.queued() as u64).unwrap();
    }

    /// Every packet is accounted for, and every frame is back in the pool.
    pub fn finish(mut self) {
        self.account();
        self.take();
        for id in std::iter::from_fn(|| self.host.poll_readable()).collect::<Vec<_>>() {
            self.host.udp_close(id, &mut self.pool);
        }
        let held = self.host.neighbors.queued() + self.host.reassembly.len();
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
mod prediction;
mod tcp;

#[test]
fn idle_host_has_no_deadline() {
    let (bench, _) = HostFixture::acquainted();
    assert_eq!(bench.host.deadline(), None);
}

#[test]
fn reply_leaves_by_the_link_of_the_request() {
    for family in Family::both() {
        let (mut bench, _) = HostFixture::acquainted();
        let answers = bench.exchange(&family.inward().echo_request(1, 2, b"data"));
        let [answer] = answers.try_into().unwrap();
        let frame = EthernetFrame::parse(&answer).unwrap();
        assert_eq!((frame.source(), frame.destination()), (OUR_MAC, PEER_MAC));
        let expected = family.inward().reversed().echo_reply(1, 2, b"data");
        assert_eq!(answer, expected);
        bench.finish();
    }
}
