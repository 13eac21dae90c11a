//! Joining and cutting undo each other, and nothing is joined that cutting would not restore.

use plumb_base::seed::{RandomStream, Seed};
use rand::RngExt;

use super::*;
use crate::compose::{LinkTemplate, PacketTemplate};
use crate::ethernet::MacAddr;
use crate::ip::Ecn;
use crate::packet::{PoolConfig, SegmentKind};
use crate::segmentation::{SegmentChecksums, segment_packet};
use crate::tcp::{self, TcpFlags};
use crate::{checksum, ipv4};

fn pool() -> Pool {
    Pool::new(PoolConfig { count: 512, size: 2_048, large: 8 })
}

fn path(v6: bool, medium: Medium) -> PacketTemplate {
    let path = if v6 {
        let address = |host| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host);
        PacketTemplate::new(address(1), address(2))
    } else {
        PacketTemplate::new([192, 0, 2, 1], [192, 0, 2, 2])
    };
    match medium {
        Medium::Ethernet => {
            path.over(LinkTemplate::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])))
        }
        Medium::Ip => path,
    }
}

/// Gives an IPv4 packet an identification and no "don't fragment".
fn identify(bytes: &mut [u8], medium: Medium, identification: u16) {
    let at = if medium == Medium::Ethernet { 14 } else { 0 };
    if bytes[at] >> 4 == 4 {
        let header = ipv4::Ipv4Header {
            identification,
            fragment: ipv4::FragmentField::WHOLE,
            ..ipv4::Ipv4Packet::parse(&bytes[at..]).unwrap().header()
        };
        header.emit(&mut bytes[at..]);
    }
}

struct Sender {
    path: PacketTemplate,
    medium: Medium,
    counts: bool,
    seq: u32,
    identification: u16,
}

impl Sender {
    fn new(v6: bool, medium: Medium, stream: &mut RandomStream) -> Self {
        Self {
            path: path(v6, medium),
            medium,
            counts: stream.random(),
            seq: u32::MAX - stream.random_range(0..5_000),
            identification: u16::MAX - stream.random_range(0..10),
        }
    }

    fn packet(&mut self, tcp: bool, flags: TcpFlags, payload: &[u8]) -> Vec<u8> {
        let mut bytes = if tcp {
            let header = tcp::TcpHeader {
                source_port: 7,
                destination_port: 9,
                seq: self.seq,
                ack: 77,
                flags,
                window: 1_000,
                ..tcp::TcpHeader::default()
            };
            self.path.tcp(header, payload)
        } else {
            self.path.udp(7, 9, payload)
        };
        if self.counts {
            identify(&mut bytes, self.medium, self.identification);
            self.identification = self.identification.wrapping_add(1).max(1);
        }
        self.seq = self.seq.wrapping_add(u32::try_from(payload.len()).unwrap());
        bytes
    }
}

fn joined(frames: &[Vec<u8>], medium: Medium, pool: &mut Pool) -> Vec<Packet> {
    let mut batch: Vec<Packet> = frames.iter().map(|f| pool.packet_of(f).unwrap()).collect();
    coalesce(&mut batch, medium, pool);
    batch
}

fn cut(
    batch: Vec<Packet>,
    medium: Medium,
    checksums: SegmentChecksums,
    pool: &mut Pool,
) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for packet in batch {
        if packet.meta.segments.is_some() {
            segment_packet(packet, medium, checksums, pool, &mut out).unwrap();
        } else {
            out.push(packet);
        }
    }
    let frames = out.iter().map(|packet| complete(packet, pool)).collect();
    pool.free_all(&mut out);
    frames
}

/// A packet's bytes as they would be on a wire, where no sum is left open.
fn complete(packet: &Packet, pool: &Pool) -> Vec<u8> {
    let mut bytes = pool.bytes(packet).to_vec();
    if let ChecksumState::Partial { start, offset } = packet.meta.checksum {
        assert!(checksum::complete(&mut bytes, start.into(), offset.into()));
    }
    bytes
}

/// A packet as long as several, and what it is cut into.
struct Whole {
    medium: Medium,
    tcp: bool,
    payload_len: usize,
    bytes: Vec<u8>,
    segments: SegmentationInfo,
}

impl Whole {
    /// Of a length in `lens` that is not less than two segments.
    fn any(stream: &mut RandomStream, flags: TcpFlags, lens: std::ops::Range<usize>) -> Self {
        let (v6, tcp) = (stream.random(), stream.random());
        let medium = if stream.random() { Medium::Ethernet } else { Medium::Ip };
        let mut sender = Sender::new(v6, medium, stream);
        let size: u16 = stream.random_range(500..1_400);
        let payload_len = stream.random_range(lens.start.max(2 * usize::from(size))..lens.end);
        let payload: Vec<u8> = (0..payload_len).map(|_| stream.random()).collect();
        let bytes = sender.packet(tcp, flags, &payload);
        let layout = SegmentLayout::of(&bytes, medium).unwrap();
        let header_len = u16::try_from(layout.payload).unwrap();
        let segments = SegmentationInfo { kind: layout.kind, size, header_len };
        Self { medium, tcp, payload_len, bytes, segments }
    }

    fn packet(&self, pool: &mut Pool) -> Packet {
        let mut packet = pool.packet_of(&self.bytes).unwrap();
        packet.meta.segments = Some(self.segments);
        packet
    }

    /// How many packets it is cut into.
    fn count(&self) -> usize {
        self.payload_len.div_ceil(self.segments.size.into())
    }
}

#[test]
fn whatever_arrives_is_restored_to_the_byte_by_cutting_what_was_joined() {
    let (mut arrived, mut left) = (0, 0);
    for seed in 0..1_500 {
        let mut stream = Seed(seed).stream("arrivals");
        let medium = if stream.random() { Medium::Ethernet } else { Medium::Ip };
        let mut senders =
            [Sender::new(false, medium, &mut stream), Sender::new(true, medium, &mut stream)];
        let size = stream.random_range(1..1_448);
        let mut frames = Vec::new();
        let (mut who, mut tcp) = (0, false);
        for _ in 0..stream.random_range(1..60) {
            if stream.random_bool(0.1) {
                (who, tcp) = (stream.random_range(0..2), stream.random());
            }
            let short = stream.random_bool(0.05);
            let len = if short { stream.random_range(0..1_448) } else { size };
            let payload: Vec<u8> = (0..len).map(|_| stream.random()).collect();
            let odd = [
                TcpFlags::FIN,
                TcpFlags::PSH,
                TcpFlags::CWR,
                TcpFlags::ECE,
                TcpFlags::SYN,
                TcpFlags::URG,
            ];
            let flags = match stream.random_range(0..40) {
                n @ 0..6 => TcpFlags::from_bits(TcpFlags::ACK.bits() | odd[n].bits()),
                _ => TcpFlags::ACK,
            };
            let sender = &mut senders[who];
            match stream.random_range(0..100) {
                0 => sender.seq = sender.seq.wrapping_add(1),
                1 => sender.identification = stream.random_range(1..u16::MAX),
                2 => sender.path.hop_limit ^= 1,
                3 => {
                    sender.path.traffic_class = sender.path.traffic_class.with_ecn(Ecn::Congestion);
                }
                _ => {}
            }
            let mut frame = sender.packet(tcp, flags, &payload);
            if stream.random_bool(0.02) {
                let at = stream.random_range(0..frame.len());
                frame[at] ^= 1 << stream.random_range(0..8);
            }
            if stream.random_bool(0.02) {
                frame.extend([0; 3]);
            }
            frames.push(frame);
        }
        let mut pool = pool();
        let batch = joined(&frames, medium, &mut pool);
        (arrived, left) = (arrived + frames.len(), left + batch.len());
        let checksums =
            if seed % 2 == 0 { SegmentChecksums::Complete } else { SegmentChecksums::Partial };
        assert_eq!(cut(batch, medium, checksums, &mut pool), frames, "seed {seed}");
        assert_eq!(pool.available(), (512, 8), "seed {seed}");
    }
    println!("{arrived} packets were joined to {left}");
    assert!(left < arrived / 2, "joining happens: {left} of {arrived}");
}

#[test]
fn a_super_segment_cut_is_sound_packets_which_are_joined_to_it_again() {
    for seed in 0..400 {
        let mut stream = Seed(seed).stream("super");
        let flags =
            TcpFlags::from_bits(TcpFlags::ACK.bits() | TcpFlags::PSH.bits() | TcpFlags::CWR.bits());
        let whole = Whole::any(&mut stream, flags, 0..60_000);
        let (medium, mut pool) = (whole.medium, pool());
        let packet = whole.packet(&mut pool);
        let frames = cut(vec![packet], medium, SegmentChecksums::Complete, &mut pool);
        assert_eq!(frames.len(), whole.count(), "seed {seed}");
        for (n, frame) in frames.iter().enumerate() {
            let layout = SegmentLayout::of(frame, medium).unwrap();
            let pseudo = layout.pseudo(frame).unwrap();
            assert!(pseudo.verifies(&frame[layout.transport..]), "seed {seed}");
            assert!(frame.len() - layout.payload <= whole.segments.size.into());
            if whole.tcp {
                let flags = tcp::TcpSegment::parse(&frame[layout.transport..]).unwrap().flags();
                assert_eq!(flags.contains(TcpFlags::CWR), n == 0);
                assert_eq!(flags.contains(TcpFlags::PSH), n + 1 == frames.len());
            }
        }
        let batch = joined(&frames, medium, &mut pool);
        let [again] = batch.try_into().unwrap();
        assert_eq!(complete(&again, &pool), whole.bytes, "seed {seed}");
        pool.free(again);
        assert_eq!(pool.available(), (512, 8));
    }
}

#[test]
fn what_was_cut_with_its_checksums_left_open_is_joined_to_the_same_super_segment() {
    for seed in 0..200 {
        let mut stream = Seed(seed).stream("open");
        let whole = Whole::any(&mut stream, TcpFlags::ACK, 10_000..10_001);
        let (medium, mut pool) = (whole.medium, pool());
        let packet = whole.packet(&mut pool);
        let mut batch = Vec::new();
        segment_packet(packet, medium, SegmentChecksums::Partial, &mut pool, &mut batch).unwrap();
        assert_eq!(batch.len(), whole.count());
        coalesce(&mut batch, medium, &mut pool);
        assert_eq!(batch.len(), 1, "seed {seed}");
        assert_eq!(batch[0].meta.segments, Some(whole.segments), "seed {seed}");
        assert!(matches!(batch[0].meta.checksum, ChecksumState::Partial { .. }), "seed {seed}");
        assert_eq!(complete(&batch[0], &pool), whole.bytes, "seed {seed}");
        pool.free_all(&mut batch);
        assert_eq!(pool.available(), (512, 8));
    }
}

#[test]
fn a_datagram_without_a_checksum_is_cut_into_datagrams_without() {
    let mut pool = pool();
    let mut whole = path(false, Medium::Ip).udp(7, 9, &[5; 3_000]);
    whole[26..28].fill(0);
    let mut packet = pool.packet_of(&whole).unwrap();
    packet.meta.segments =
        Some(SegmentationInfo { kind: SegmentKind::Udp4, size: 1_000, header_len: 28 });
    let frames = cut(vec![packet], Medium::Ip, SegmentChecksums::Complete, &mut pool);
    assert_eq!(frames.len(), 3);
    assert!(frames.iter().all(|frame| frame[26..28] == [0, 0]));
}

#[test]
fn without_frames_nothing_is_cut_and_what_cannot_be_joined_stays() {
    let mut pool = Pool::new(PoolConfig { count: 3, size: 2_048, large: 1 });
    let whole = path(false, Medium::Ip).udp(7, 9, &[5; 5_000]);
    let mut packet = pool.packet_of(&whole).unwrap();
    packet.meta.segments =
        Some(SegmentationInfo { kind: SegmentKind::Udp4, size: 1_000, header_len: 28 });
    let mut out = Vec::new();
    let (packet, uncut) =
        segment_packet(packet, Medium::Ip, SegmentChecksums::Complete, &mut pool, &mut out)
            .unwrap_err();
    assert_eq!(uncut, crate::segmentation::SegmentError::NoMemory);
    assert!(out.is_empty());
    assert_eq!(pool.available(), (3, 0));
    // The only large frame being in use, two packets of 1,400 bytes find no common one.
    let frames = [1, 2].map(|n| path(false, Medium::Ip).udp(7, 9, &[n; 1_400]));
    let batch = joined(&frames, Medium::Ip, &mut pool);
    assert_eq!(cut(batch, Medium::Ip, SegmentChecksums::Complete, &mut pool), frames);
    pool.free(packet);
    assert_eq!(pool.available(), (3, 1));
}
