//! A whole host under arbitrary frames.
//!
//! Asserts that nothing panics, that every packet and every frame of memory is accounted for, that what the
//! host sends is valid, and that it still answers echo requests afterwards.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::{Arbitrary, Unstructured};
use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use plumb_stack::host::{HostConfig, IpHost};
use plumb_stack::interface::InterfaceConfig;
use plumb_stack::tcp::TcpCounts;
use plumb_stack::udp::{CopyPolicy, UdpId, UdpOptions};
use plumb_wire::compose::{self, LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::{EtherType, EthernetFrame, MacAddr};
use plumb_wire::icmp::IcmpPacket;
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv6::extension::Ipv6Extension;
use plumb_wire::machine::{DeviceCapabilities, Machine, Medium, PortId};
use plumb_wire::packet::{ChecksumState, Packet, Pool, PoolConfig, SegmentKind, SegmentationInfo};
use plumb_wire::{arp, ipv4, ipv6, ndp};
use rand::{Rng, RngExt};

use crate::streams::{self, EchoStreams};

/// The host's link address: the one that the mutator's frames are for.
const HERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// The link address of the final pings.
const ASKER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x77]);
const HERE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const HERE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const THERE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const ASKER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
const ASKER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x77);

/// Answers of the peer that have not been given to the host, at most.
const ANSWERS_MAX: usize = 16;
const PORT: PortId = PortId(0);
const BATCH: usize = 32;
/// The longest frame that fits the pool's.
const FRAME_MAX: usize = 1_920;

/// The device of a host under test.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuzzDevice {
    /// A plain Ethernet device.
    Ethernet,
    /// A plain device for bare IP packets.
    Ip,
    /// An Ethernet device with offloads, and arbitrary packet metadata.
    Offloading,
}

/// What a device may claim of a packet, true or false.
#[derive(Arbitrary, Clone, Copy, Debug, Default)]
pub struct FuzzMeta {
    checksum: FuzzChecksum,
    /// Kind, size and header length of a super-segment.
    segments: Option<(u8, u16, u16)>,
}

#[derive(Arbitrary, Clone, Copy, Debug, Default)]
enum FuzzChecksum {
    #[default]
    Plain,
    Verified,
    Partial(u8, u8),
}

impl FuzzMeta {
    fn apply(self, packet: &mut Packet) {
        packet.meta.checksum = match self.checksum {
            FuzzChecksum::Plain => ChecksumState::Plain,
            FuzzChecksum::Verified => ChecksumState::Verified,
            FuzzChecksum::Partial(start, offset) => ChecksumState::Partial {
                start: u16::from(start) % 100,
                offset: u16::from(offset) % 20,
            },
        };
        packet.meta.segments = self.segments.map(|(kind, size, header_len)| SegmentationInfo {
            kind: [SegmentKind::Udp4, SegmentKind::Udp6, SegmentKind::Tcp4, SegmentKind::Tcp6]
                [usize::from(kind % 4)],
            size: size % 300,
            header_len: header_len % 200,
        });
    }
}

/// A host with sockets, and all that it needs to run.
#[derive(Debug)]
pub struct FuzzHost {
    host: IpHost,
    pool: Pool,
    frames: PoolConfig,
    now: Instant,
    kind: FuzzDevice,
    stream: RandomStream,
    batch: Vec<Packet>,
    out: Vec<Packet>,
    sockets: Vec<UdpId>,
    unread: Vec<UdpId>,
    streams: EchoStreams,
    answers: Vec<Vec<u8>>,
    fed: u64,
    sent: u64,
}

impl FuzzHost {
    /// A host with an address of each family, and sockets of every kind: some answer, one is never read, one is
    /// connected to the peer that the mutator's frames come from.
    pub fn new(kind: FuzzDevice, frames: PoolConfig, seed: Seed) -> Self {
        let mut host = IpHost::new(HostConfig::default(), seed);
        let plain = match kind {
            FuzzDevice::Ip => InterfaceConfig::ip(1_500),
            FuzzDevice::Ethernet | FuzzDevice::Offloading => InterfaceConfig::ethernet(HERE, 1_500),
        };
        let mut config = plain.with_address(HERE_V4, 24).with_address(HERE_V6, 64);
        if kind == FuzzDevice::Offloading {
            config.capabilities = DeviceCapabilities {
                checksum_tx: true,
                segments_tcp: true,
                segments_udp: true,
                coalesces: true,
                ..config.capabilities
            };
        }
        host.add_interface(&config).expect("an interface with two addresses");
        let mut subject = Self {
            host,
            pool: Pool::new(frames),
            frames,
            now: Instant::ORIGIN + Span::from_secs(1),
            kind,
            stream: seed.stream("subject"),
            batch: Vec::with_capacity(BATCH),
            out: Vec::with_capacity(BATCH),
            sockets: Vec::new(),
            unread: Vec::new(),
            streams: EchoStreams::default(),
            answers: Vec::new(),
            fed: 0,
            sent: 0,
        };
        subject.open_sockets();
        subject
    }

    fn open_sockets(&mut self) {
        for local in [HERE_V4.into(), HERE_V6.into()] {
            self.streams.listen(&mut self.host, SocketAddr::new(local, 80));
        }
        let (v4, v6) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let few = UdpOptions { receive_packets: 16, ..UdpOptions::default() };
        let whole = UdpOptions { super_segments: true, ..few };
        for (local, options) in [(v4, few), (v6, few), (HERE_V4.into(), whole)] {
            let id = self.host.udp_bind(SocketAddr::new(local, 7), options);
            self.sockets.push(id.expect("nobody else is at port 7"));
        }
        for (local, remote) in
            [(HERE_V4.into(), THERE_V4.into()), (HERE_V6.into(), THERE_V6.into())]
        {
            // Connected, and then a port that nobody ever reads.
            let (local, remote): (IpAddr, IpAddr) = (local, remote);
            let id = self.host.udp_bind(SocketAddr::new(local, 1_000), few);
            let id = id.expect("nobody else is at port 1000");
            let connected = self.host.udp_connect(self.now, id, SocketAddr::new(remote, 7));
            connected.expect("the peer is on the link");
            self.sockets.push(id);
            let id = self.host.udp_bind(SocketAddr::new(local, 2), few);
            self.unread.push(id.expect("nobody else is at port 2"));
        }
    }

    /// Lets a frame arrive, with random metadata over a device with offloads; the host gets it when a batch is
    /// full.
    pub fn feed(&mut self, frame: &[u8]) {
        let mut meta = FuzzMeta::default();
        if self.kind == FuzzDevice::Offloading && self.stream.random_bool(0.25) {
            let mut bytes = [0; 16];
            self.stream.fill_bytes(&mut bytes);
            meta = FuzzMeta::arbitrary(&mut Unstructured::new(&bytes)).unwrap_or_default();
        }
        self.feed_with(frame, meta);
    }

    fn feed_with(&mut self, frame: &[u8], meta: FuzzMeta) {
        let frame = match self.kind {
            FuzzDevice::Ip => frame.get(14..).unwrap_or_default(),
            FuzzDevice::Ethernet | FuzzDevice::Offloading => frame,
        };
        self.fed += 1;
        let Some(mut packet) = self.pool.packet_of(frame) else {
            self.flush();
            return;
        };
        packet.meta.received = self.now;
        if self.kind == FuzzDevice::Offloading {
            meta.apply(&mut packet);
        }
        self.batch.push(packet);
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    /// Gives the host what arrived, lets sockets answer and time pass, and takes what it sends.
    pub fn flush(&mut self) {
        for answer in std::mem::take(&mut self.answers) {
            self.batch.extend(self.pool.packet_of(&answer));
        }
        self.host.handle_packets(self.now, PORT, &mut self.batch, &mut self.pool);
        assert!(self.batch.is_empty(), "a host takes every packet");
        while let Some(id) = self.host.poll_readable() {
            if self.sockets.contains(&id) {
                while let Some(datagram) = self.host.udp_receive(id, &self.pool) {
                    // A reply may fail for want of a route.
                    let _ = self.host.udp_reply(self.now, datagram, &mut self.pool);
                }
            }
        }
        while self.host.poll_event().is_some() {}
        self.streams.handle(&mut self.host, self.now, &mut self.stream);
        let span = self.stream.random_range(0..100);
        match self.stream.random_range(0..64) {
            0 => self.pass(Span::from_ms(span * 200)),
            1 => self.send_unsolicited(),
            _ => self.pass(Span::from_us(span)),
        }
        self.take();
    }

    /// Sends to the peer, or to an absent host.
    fn send_unsolicited(&mut self) {
        let host = u8::try_from(self.stream.random_range(1..=254_u16)).expect("below 256");
        let id = self.sockets[self.stream.random_range(0..self.sockets.len())];
        let remote = SocketAddr::new(Ipv4Addr::new(192, 0, 2, host).into(), 7);
        let (now, pool) = (self.now, &mut self.pool);
        let _ = self.host.udp_send(now, id, &[host; 100], Some(remote), CopyPolicy::Fused, pool);
        let _ = self.host.ping(now, remote.ip(), (1, 2), b"abcdefgh", pool);
        for (local, remote) in
            [(HERE_V4.into(), THERE_V4.into()), (HERE_V6.into(), THERE_V6.into())]
        {
            let ends = [(local, 0), (remote, 7)].map(|(ip, port)| SocketAddr::new(ip, port));
            self.streams.connect(&mut self.host, now, ends, &self.pool);
        }
    }

    fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(due) = self.host.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.host.handle_deadline(self.now, &mut self.pool);
            assert!(
                self.host.deadline().is_none_or(|due| due > self.now),
                "what was due has been done"
            );
            self.take();
        }
        self.now = until;
    }

    /// Takes and frees what the host sends, after a look at some of it.
    fn take(&mut self) {
        loop {
            self.host.poll_packets(self.now, PORT, &mut self.out, BATCH, &mut self.pool);
            if self.out.is_empty() {
                break;
            }
            for packet in std::mem::take(&mut self.out) {
                self.sent += 1;
                if self.sent.is_multiple_of(16) && self.kind != FuzzDevice::Offloading {
                    assert_sound(self.pool.bytes(&packet), self.kind);
                }
                self.answer(&packet);
                self.pool.free(packet);
            }
        }
    }

    /// Lets the peer answer a segment, later.
    fn answer(&mut self, packet: &Packet) {
        if self.answers.len() == ANSWERS_MAX || self.stream.random_bool(0.1) {
            return;
        }
        let (medium, link) = match self.kind {
            FuzzDevice::Ip => (Medium::Ip, None),
            _ => (Medium::Ethernet, Some(LinkTemplate::new(ASKER, HERE))),
        };
        let bytes = self.pool.bytes(packet);
        let answer = streams::answer(bytes, medium, link, self.now, &mut self.stream);
        self.answers.extend(answer);
    }

    /// Frames that were fed, and that the host sent.
    pub fn counts(&self) -> (u64, u64) {
        (self.fed, self.sent)
    }

    /// The host.
    pub fn host(&self) -> &IpHost {
        &self.host
    }

    /// Asserts that every packet is accounted for, that no more memory is held than may be, and that
    /// the host answers an echo request of each family.
    ///
    /// Panics when any of that does not hold.
    pub fn check(&mut self) {
        self.flush();
        let queued = u64::try_from(self.host.queued()).expect("fits");
        if let Err(unbalanced) = self.host.counters().check(queued) {
            panic!("{unbalanced}");
        }
        streams::check(&self.host);
        for v6 in [false, true] {
            assert!(self.answers(v6), "the host answers an echo request, IPv6: {v6}");
        }
    }

    /// Closes everything, lets every timer go off, and asserts that all memory is free again.
    ///
    /// Panics when it is not.
    pub fn finish(mut self) {
        self.check();
        for id in self.sockets.drain(..).chain(self.unread.drain(..)) {
            self.host.udp_close(id, &mut self.pool);
        }
        std::mem::take(&mut self.streams).finish(&mut self.host, self.now);
        self.take();
        self.pass(Span::from_secs(3_600));
        assert_eq!(self.host.deadline(), None, "an idle host waits for nothing");
        assert_eq!(self.host.tcp_counts(), TcpCounts::default(), "no connection is left");
        let PoolConfig { count, large, .. } = self.frames;
        assert_eq!(self.pool.available(), (count as usize, large as usize), "no frame is lost");
    }

    fn answers(&mut self, v6: bool) -> bool {
        let (here, asker) = if v6 {
            (IpAddr::V6(HERE_V6), IpAddr::V6(ASKER_V6))
        } else {
            (IpAddr::V4(HERE_V4), IpAddr::V4(ASKER_V4))
        };
        let path = PacketTemplate::new(asker, here).over(LinkTemplate::new(ASKER, HERE));
        for attempt in 0..5 {
            let mut frames = vec![path.echo_request(77, attempt, b"still there?")];
            while let Some(frame) = frames.pop() {
                let bytes = if self.kind == FuzzDevice::Ip { &frame[14..] } else { &frame[..] };
                let Some(packet) = self.pool.packet_of(bytes) else { return false };
                self.batch.push(packet);
                self.host.handle_packets(self.now, PORT, &mut self.batch, &mut self.pool);
                self.host.poll_packets(self.now, PORT, &mut self.out, usize::MAX, &mut self.pool);
                let mut answered = false;
                for packet in self.out.drain(..) {
                    let bytes = self.pool.bytes(&packet);
                    frames.extend(resolution(bytes));
                    answered |= is_reply(bytes, self.kind, asker);
                    self.pool.free(packet);
                }
                if answered {
                    return true;
                }
            }
            self.pass(Span::from_secs(2));
        }
        false
    }
}

/// The answer to a question for the asker's link address.
fn resolution(bytes: &[u8]) -> Option<Vec<u8>> {
    let frame = EthernetFrame::parse(bytes).ok()?;
    match frame.ether_type() {
        EtherType::ARP => {
            let asked = arp::ArpPacket::parse(frame.payload()).ok()?;
            let wanted = asked.operation == arp::ArpOperation::Request && asked.target == ASKER_V4;
            wanted.then(|| compose::arp_reply(ASKER, ASKER_V4, HERE, HERE_V4))
        }
        EtherType::IPV6 => {
            let packet = ipv6::Ipv6Packet::parse(frame.payload()).ok()?;
            if packet.next_header() != IpProtocol::ICMPV6 {
                return None;
            }
            let pseudo = Some(packet.pseudo(packet.next_header()));
            let wanted = matches!(
                ndp::NdpMessage::parse(IcmpPacket::parse(packet.payload(), pseudo).ok()?).ok()?,
                ndp::NdpMessage::NeighborSolicitation { target, .. } if target == ASKER_V6
            );
            wanted.then(|| compose::neighbor_advertisement(ASKER, ASKER_V6, HERE, packet.source()))
        }
        _ => None,
    }
}

fn is_reply(bytes: &[u8], kind: FuzzDevice, asker: IpAddr) -> bool {
    let Some(packet) = ip_packet(bytes, kind) else { return false };
    match asker {
        IpAddr::V4(asker) => ipv4::Ipv4Packet::parse(packet).is_ok_and(|packet| {
            packet.destination() == asker && packet.payload().ends_with(b"still there?")
        }),
        IpAddr::V6(asker) => ipv6::Ipv6Packet::parse(packet).is_ok_and(|packet| {
            packet.destination() == asker && packet.payload().ends_with(b"still there?")
        }),
    }
}

fn ip_packet(bytes: &[u8], kind: FuzzDevice) -> Option<&[u8]> {
    if kind == FuzzDevice::Ip {
        return Some(bytes);
    }
    let frame = EthernetFrame::parse(bytes).ok()?;
    matches!(frame.ether_type(), EtherType::IPV4 | EtherType::IPV6).then(|| frame.payload())
}

/// Asserts that a frame which the host made can be read and has the checksums that it should have.
fn assert_sound(bytes: &[u8], kind: FuzzDevice) {
    assert!(bytes.len() <= 1_514, "no longer than the link takes");
    if kind != FuzzDevice::Ip {
        let frame = EthernetFrame::parse(bytes).expect("a host sends whole frames");
        assert_eq!(frame.source(), HERE);
        if frame.ether_type() == EtherType::ARP {
            arp::ArpPacket::parse(frame.payload()).expect("a host sends whole ARP packets");
            return;
        }
    }
    let packet = ip_packet(bytes, kind).expect("a host sends ARP and IP");
    let is_right = if packet[0] >> 4 == 4 {
        let read = ipv4::Ipv4Packet::parse(packet).expect("a host sends whole packets");
        read.verify().expect("with their checksums");
        read.fragment_field().is_fragment()
            || match read.protocol() {
                IpProtocol::ICMPV4 => plumb_copy::sum(read.payload()).finish() == 0,
                _ => read.pseudo().verifies(read.payload()),
            }
    } else {
        let read = ipv6::Ipv6Packet::parse(packet).expect("a host sends whole packets");
        let mut extensions = read.extensions();
        let is_cut = extensions
            .by_ref()
            .any(|extension| matches!(extension, Ok(Ipv6Extension::Fragment(_))));
        is_cut || read.pseudo(extensions.protocol()).verifies(extensions.payload())
    };
    assert!(is_right, "a host sends right checksums: {packet:02x?}");
}

/// Frames for a small host: the input of a fuzz target.
#[derive(Arbitrary, Debug)]
pub struct HostInput {
    device: FuzzDevice,
    frames: Vec<(Vec<u8>, FuzzMeta)>,
}

impl HostInput {
    /// Lets the frames arrive at a host.
    pub fn feed(self) {
        let frames = PoolConfig { count: 256, size: 2_048, large: 4 };
        let mut subject = FuzzHost::new(self.device, frames, Seed(0));
        for (frame, meta) in self.frames {
            subject.feed_with(&frame[..frame.len().min(FRAME_MAX)], meta);
        }
        subject.finish();
    }
}
