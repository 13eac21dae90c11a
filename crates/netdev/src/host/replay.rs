//! A replay: frames from memory through the stack as fast as possible, on a device that answers its address resolution.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use plumb_base::time::{Instant, Span};
use plumb_clock::InstantClock;
use plumb_stack::service::HostNode;
use plumb_sys::signal;
use plumb_wire::compose;
use plumb_wire::ethernet::{self, EtherType, MacAddr};
use plumb_wire::icmp::IcmpPacket;
use plumb_wire::ip::IpProtocol;
use plumb_wire::machine::{DeviceCapabilities, Machine, Medium, PortId};
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::{arp, ipv4, ipv6, ndp, udp};

use super::services::OfferedServices;
use super::{AttachedDevice, StackEndReason, pool_for};
use crate::device::driver::{Driver, DriverExit, DriverOptions};
use crate::device::replay::{ReplayCount, ReplaySource};
use crate::device::{Device, DeviceError, DeviceLayer, DeviceWait};

/// Most ports to mirror, the most frequent ones.
const PORTS_MAX: usize = 64;

/// The most frequent destination of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureDestination {
    /// Most frequent link address.
    pub mac: Option<MacAddr>,
    /// Most frequent address of each family in UDP datagrams to that link address.
    pub addresses: Vec<IpAddr>,
    /// UDP ports of those datagrams.
    pub ports: Vec<u16>,
}

/// Number of occurrences of each value.
type OccurrenceCounts<T> = BTreeMap<T, u64>;

/// The most frequent destination of the frames that can be parsed.
pub fn destination<'a>(
    medium: Medium,
    frames: impl Iterator<Item = &'a [u8]> + Clone,
) -> CaptureDestination {
    let mut macs: OccurrenceCounts<[u8; 6]> = OccurrenceCounts::new();
    if medium == Medium::Ethernet {
        for frame in frames.clone() {
            let mac = frame.first_chunk().copied().map(MacAddr).filter(|mac| mac.is_unicast());
            if let Some(mac) = mac {
                *macs.entry(mac.0).or_default() += 1;
            }
        }
    }
    let mac = most_frequent(&macs).map(MacAddr);
    let mut remotes: [OccurrenceCounts<IpAddr>; 2] = Default::default();
    let mut sockets: OccurrenceCounts<SocketAddr> = OccurrenceCounts::new();
    for frame in frames {
        let is_ours = mac.is_none_or(|mac| frame.starts_with(&mac.0));
        let Some(socket) = udp_destination(medium, frame).filter(|_| is_ours) else { continue };
        *remotes[usize::from(socket.is_ipv6())].entry(socket.ip()).or_default() += 1;
        *sockets.entry(socket).or_default() += 1;
    }
    let addresses: Vec<IpAddr> = remotes.iter().filter_map(most_frequent).collect();
    let mut ports: Vec<(u64, u16)> = sockets
        .iter()
        .filter(|(socket, _)| addresses.contains(&socket.ip()) && socket.port() != 0)
        .map(|(socket, &votes)| (votes, socket.port()))
        .collect();
    ports.sort_unstable_by(|a, b| b.cmp(a));
    let mut chosen: Vec<u16> = Vec::new();
    for (_, port) in ports {
        if !chosen.contains(&port) && chosen.len() < PORTS_MAX {
            chosen.push(port);
        }
    }
    CaptureDestination { mac, addresses, ports: chosen }
}

fn most_frequent<T: Copy>(votes: &OccurrenceCounts<T>) -> Option<T> {
    votes.iter().max_by_key(|(_, votes)| **votes).map(|(value, _)| *value)
}

/// The destination of a frame's UDP datagram, if it has one.
fn udp_destination(medium: Medium, frame: &[u8]) -> Option<SocketAddr> {
    let packet = match medium {
        Medium::Ip => frame,
        Medium::Ethernet => ethernet::EthernetFrame::parse(frame).ok()?.payload(),
    };
    let (address, protocol, payload): (IpAddr, IpProtocol, &[u8]) = match packet.first()? >> 4 {
        4 => {
            let packet = ipv4::Ipv4Packet::parse(packet).ok()?;
            (packet.destination().into(), packet.protocol(), packet.payload())
        }
        6 => {
            let packet = ipv6::Ipv6Packet::parse(packet).ok()?;
            (packet.destination().into(), packet.next_header(), packet.payload())
        }
        _ => return None,
    };
    if protocol != IpProtocol::UDP {
        return None;
    }
    let port = payload.get(2..4).map(|port| u16::from_be_bytes([port[0], port[1]]))?;
    (payload.len() >= udp::HEADER_LEN).then(|| SocketAddr::new(address, port))
}

/// A device that answers every request for a link address, so that the stack can send.
#[derive(Debug)]
struct NeighborResponder<D> {
    device: D,
    answers: Vec<Vec<u8>>,
}

/// The link address in all answers.
const RESPONDER_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x01]);

impl<D: Device> NeighborResponder<D> {
    fn new(device: D) -> Self {
        Self { device, answers: Vec::new() }
    }
}

/// The answer to a request for a link address.
fn neighbor_reply(frame: &[u8]) -> Option<Vec<u8>> {
    let frame = ethernet::EthernetFrame::parse(frame).ok()?;
    match frame.ether_type() {
        EtherType::ARP => {
            let question = arp::ArpPacket::parse(frame.payload()).ok()?;
            let arp::ArpPacket { operation, source_mac, source, target, .. } = question;
            let is_question = operation == arp::ArpOperation::Request;
            is_question.then(|| compose::arp_reply(RESPONDER_MAC, target, source_mac, source))
        }
        EtherType::IPV6 => {
            let packet = ipv6::Ipv6Packet::parse(frame.payload()).ok()?;
            let pseudo = Some(packet.pseudo(packet.next_header()));
            let message = IcmpPacket::parse(packet.payload(), pseudo).ok()?;
            let ndp::NdpMessage::NeighborSolicitation { target, .. } =
                ndp::NdpMessage::parse(message).ok()?
            else {
                return None;
            };
            Some(compose::neighbor_advertisement(
                RESPONDER_MAC,
                target,
                frame.source(),
                packet.source(),
            ))
        }
        _ => None,
    }
}

/// A cheap check, since it runs for every frame.
#[inline]
fn may_be_neighbor_query(frame: &[u8]) -> bool {
    match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x06, ..] => true,
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..] => frame.get(20) == Some(&58),
        _ => false,
    }
}

impl<D: Device> DeviceLayer for NeighborResponder<D> {
    type Below = D;

    #[inline]
    fn below(&self) -> &D {
        &self.device
    }

    #[inline]
    fn below_mut(&mut self) -> &mut D {
        &mut self.device
    }

    #[inline]
    fn receive_through(
        &mut self,
        now: Instant,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        let before = batch.len();
        for answer in self.answers.drain(..) {
            batch.extend(pool.packet_of(&answer));
        }
        let left = max.saturating_sub(batch.len() - before);
        match self.device.receive(now, batch, left, pool) {
            Err(DeviceError::Finished) if batch.len() > before => Ok(batch.len() - before),
            result => result.map(|_| batch.len() - before),
        }
    }

    #[inline]
    fn transmit_through(
        &mut self,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) -> Result<(), DeviceError> {
        for packet in batch.iter() {
            let frame = pool.bytes(packet);
            if may_be_neighbor_query(frame) {
                self.answers.extend(neighbor_reply(frame));
            }
        }
        self.device.transmit(batch, pool)
    }

    fn wait_through(
        &mut self,
        timeout: Option<Span>,
        pool: &mut Pool,
    ) -> Result<bool, DeviceError> {
        if self.answers.is_empty() { self.device.wait(timeout, pool) } else { Ok(true) }
    }

    fn fd_through(&self) -> Option<BorrowedFd<'_>> {
        // Answers are not in the descriptor.
        if self.answers.is_empty() { self.device.fd() } else { None }
    }
}

/// Receives every frame of a source but those that no packet holds, which its counters tell.
///
/// # Errors
/// As the device.
pub fn frames_of(source: &mut ReplaySource) -> Result<Vec<Vec<u8>>, DeviceError> {
    const BATCH: usize = 64;
    let mut pool = pool_for(u32::MAX);
    let (mut frames, mut batch) = (Vec::new(), Vec::new());
    loop {
        let received = source.receive(Instant::ORIGIN, &mut batch, BATCH, &mut pool);
        frames.extend(batch.iter().map(|packet| pool.bytes(packet).to_vec()));
        pool.free_all(&mut batch);
        match received {
            Err(DeviceError::Finished) => return Ok(frames),
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A machine that drops all packets, to measure the device alone.
#[derive(Clone, Copy, Debug, Default)]
struct PacketSink;

impl Machine for PacketSink {
    #[inline]
    fn handle_packets(&mut self, _: Instant, _: PortId, batch: &mut Vec<Packet>, pool: &mut Pool) {
        pool.free_all(batch);
    }

    #[inline]
    fn poll_packets(&mut self, _: Instant, _: PortId, _: &mut Vec<Packet>, _: usize, _: &mut Pool) {
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn handle_deadline(&mut self, _: Instant, _: &mut Pool) {}
}

/// Duration of the measurement of the device alone.
const DEVICE_ALONE: Span = Span::from_ms(200);

/// MTU of the memory device, enough for any capture.
pub const REPLAY_MTU: u32 = 65_535;

/// Frames to replay, and how often.
#[derive(Clone, Debug)]
pub struct ReplayLoad {
    /// What the frames begin with.
    pub medium: Medium,
    /// The frames.
    pub frames: Vec<Vec<u8>>,
    /// Passes over all frames.
    pub repeat: ReplayCount,
    /// Ends the replay after this time.
    pub duration: Option<Span>,
    /// Most packets per batch.
    pub batch: usize,
}

/// A replay that has ended.
#[derive(Debug)]
pub struct ReplayRun<D> {
    /// Duration.
    pub seconds: f64,
    /// Why it ended.
    pub ended: StackEndReason,
    /// The device.
    pub device: D,
}

impl ReplayLoad {
    /// A device that gives the frames.
    pub fn device(&self) -> Box<dyn Device> {
        let capabilities = DeviceCapabilities::plain(self.medium, REPLAY_MTU);
        let frames = self.frames.iter().map(Vec::as_slice);
        Box::new(NeighborResponder::new(ReplaySource::new(capabilities, frames, self.repeat)))
    }

    /// Passes the frames of a device through the stack.
    ///
    /// # Errors
    /// The device's.
    pub fn run(
        &self,
        node: &mut HostNode<OfferedServices>,
        device: AttachedDevice,
        timeline: InstantClock,
    ) -> Result<ReplayRun<AttachedDevice>, DeviceError> {
        self.drive(node, device, timeline)
    }

    /// Nanoseconds per packet of the device alone.
    ///
    /// # Errors
    /// The device's.
    pub fn device_alone_ns(&self, timeline: InstantClock) -> Result<f64, DeviceError> {
        let duration = Some(DEVICE_ALONE);
        let alone = Self { repeat: ReplayCount::Forever, duration, ..self.clone() };
        let run = alone.drive(&mut PacketSink, alone.device(), timeline)?;
        Ok(run.seconds * 1e9 / run.device.counters().rx_packets.max(1) as f64)
    }

    fn drive<M: Machine, D: Device>(
        &self,
        machine: &mut M,
        device: D,
        timeline: InstantClock,
    ) -> Result<ReplayRun<D>, DeviceError> {
        let options =
            DriverOptions { batch: self.batch, wait: DeviceWait::Spin, ..DriverOptions::default() };
        let mut driver = Driver::new(vec![device], pool_for(REPLAY_MTU), timeline, options);
        let begun = driver.read_clock();
        let mut ended = StackEndReason::Complete;
        let exit = driver.run(machine, |_, now, _| {
            if signal::stop_requests() > 0 {
                ended = StackEndReason::Interrupted;
            } else if self.duration.is_some_and(|span| now.saturating_since(begun) >= span) {
                ended = StackEndReason::Duration;
            } else {
                return false;
            }
            true
        })?;
        if exit == DriverExit::Finished {
            ended = StackEndReason::Complete;
        }
        let seconds = driver.read_clock().saturating_since(begun).as_secs_f64();
        let mut devices = driver.devices;
        Ok(ReplayRun { seconds, ended, device: devices.pop().expect("one device") })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use plumb_wire::compose::{LinkTemplate, PacketTemplate};

    use super::*;

    #[test]
    fn destination_is_the_most_frequent_one() {
        let path = PacketTemplate::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let frame = |port| {
            let link = LinkTemplate::new(RESPONDER_MAC, MacAddr([2, 0, 0, 0, 0, 2]));
            link.frame(EtherType::IPV4, &path.udp(5_000, port, b"payload"))
        };
        let other = compose::arp_request(
            MacAddr([2, 0, 0, 0, 0, 9]),
            Ipv4Addr::new(192, 0, 2, 1),
            Ipv4Addr::new(192, 0, 2, 7),
        );
        let frames = [frame(7), frame(9), frame(7), other];
        let found = destination(Medium::Ethernet, frames.iter().map(Vec::as_slice));
        assert_eq!(found.mac, Some(MacAddr([2, 0, 0, 0, 0, 2])));
        assert_eq!(found.addresses, [IpAddr::from([192, 0, 2, 2])]);
        assert_eq!(found.ports, [7, 9]);
        let nothing = destination(Medium::Ip, [b"?".as_slice(), b""].into_iter());
        assert_eq!(nothing, CaptureDestination::default());
    }

    #[test]
    fn only_address_resolution_is_answered() {
        let mac = MacAddr([2, 0, 0, 0, 0, 5]);
        let (one, two) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let question = compose::arp_request(mac, one, two);
        assert!(may_be_neighbor_query(&question));
        assert_eq!(
            neighbor_reply(&question),
            Some(compose::arp_reply(RESPONDER_MAC, two, mac, one))
        );
        let (one, two): (Ipv6Addr, Ipv6Addr) =
            ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let question = compose::neighbor_solicitation(mac, one, two);
        assert!(may_be_neighbor_query(&question) && neighbor_reply(&question).is_some());
        let reply =
            compose::arp_reply(mac, Ipv4Addr::LOCALHOST, RESPONDER_MAC, Ipv4Addr::LOCALHOST);
        assert_eq!(neighbor_reply(&reply), None);
        assert_eq!(neighbor_reply(b"nonsense"), None);
    }
}
