//! Connections that send: turns, frames, and what devices do.

use plumb_wire::packet::{ChecksumState, SegmentKind};
use plumb_wire::segmentation::{SegmentChecksums, segment_packet};

use super::*;
use crate::tcp::config::BufferLimits;

/// With so large an initial window that only turns end what a connection sends.
fn eager() -> TcpConfig {
    // PSH then does not depend on how many segments are made at once.
    let personality =
        Personality { initial_window: 200, pushes_super_segments: false, ..Personality::linux() };
    TcpConfig { personality, send_buffer: BufferLimits::fixed(200_000), ..TcpConfig::default() }
}

/// Connections whose peers take up to 1 MiB each.
fn open(
    bench: &mut HostFixture,
    family: Family,
    listener: ListenerId,
    ports: &[u16],
) -> Vec<TcpId> {
    let mut ids = Vec::new();
    for port in ports {
        let mut peer = RawPeer::new(family, *port);
        let syn = peer.frame_with(SYN, &[2, 4, 5, 180, 1, 3, 3, 5], &[]);
        peer.hear(&only(&bench.exchange(&syn)));
        peer.seq += 1;
        bench.give(&peer.frame(ACK, b""));
        ids.push(bench.host.tcp_accept(listener).unwrap());
    }
    assert!(bench.take().is_empty());
    ids
}

/// To which ports frames went, one after the other, and how many bytes of payload to each.
fn runs(frames: &[Heard]) -> Vec<(u16, usize)> {
    let mut runs: Vec<(u16, usize)> = Vec::new();
    for frame in frames {
        let port = frame.header.destination_port;
        match runs.last_mut() {
            Some(last) if last.0 == port => last.1 += frame.payload.len(),
            _ => runs.push((port, frame.payload.len())),
        }
    }
    runs
}

#[test]
fn connections_send_in_turns_of_64_kib_whatever_the_device_takes_at_once() {
    for family in Family::both() {
        for batch in [7, 1_000] {
            let (mut bench, listener) = listening_with(family, 8, eager());
            let ids = open(&mut bench, family, listener, &[1, 2, 3]);
            for id in &ids {
                assert_eq!(bench.host.tcp_send(bench.now, *id, &vec![5; 100_000]), Ok(100_000));
            }
            let mut frames = Vec::new();
            loop {
                let mut taken = Vec::new();
                bench.host.poll_packets(bench.now, PORT, &mut taken, batch, &mut bench.pool);
                assert!(taken.len() <= batch);
                if taken.is_empty() {
                    break;
                }
                frames.extend(taken.iter().map(|packet| Heard::of(bench.pool.bytes(packet))));
                bench.pool.free_all(&mut taken);
            }
            let mss = bench.host.tcp_info(ids[0]).unwrap().mss;
            let turn = 65_536_usize.next_multiple_of(mss.into());
            let expected = [turn, 100_000 - turn].map(|len| [(1, len), (2, len), (3, len)]);
            assert_eq!(runs(&frames), expected.concat(), "batches of {batch}");
            bench.account();
        }
    }
}

/// What a connection sends of 20,001 bytes through a device that takes so many frames at once; there is something to be SACKed.
fn sent_through(
    family: Family,
    capabilities: DeviceCapabilities,
    is_marked: bool,
    batch: usize,
) -> Vec<Vec<u8>> {
    let mut bench = HostFixture::of(HostConfig::default(), capabilities);
    bench.introduce(family.peer, PEER_MAC);
    let local = SocketAddr::new(family.ours, 80);
    let listener = bench.host.tcp_listen(local, 8, eager()).unwrap();
    let mut peer = RawPeer::new(family, 9_000).stamped();
    let marks = TcpFlags::ECE | TcpFlags::CWR;
    let syn = peer.frame_with(SYN | marks, &[2, 4, 5, 180, 1, 3, 3, 5, 1, 1, 4, 2], &[]);
    let syn_ack = bench.exchange(&syn);
    peer.ack = u32::from_be_bytes(*syn_ack[0][family.transport_at() + 4..].first_chunk().unwrap());
    (peer.seq, peer.ack) = (peer.seq + 1, peer.ack.wrapping_add(1));
    bench.give(&peer.frame(ACK, b""));
    let id = bench.host.tcp_accept(listener).unwrap();
    if is_marked {
        bench.host.tcp_send(bench.now, id, &vec![5; 20_000]).unwrap();
        bench.take();
        for flags in [ACK | TcpFlags::ECE, ACK] {
            peer.ack = peer.ack.wrapping_add(10_000);
            bench.give(&peer.frame(flags, b""));
        }
    }
    let ahead = RawPeer { seq: peer.seq + 100, ..peer };
    bench.give(&ahead.frame(ACK, b"ahead"));
    bench.take();
    let bytes: Vec<u8> = (0..20_001_usize).map(|at| (at * 7).to_le_bytes()[0]).collect();
    bench.host.tcp_send(bench.now, id, &bytes).unwrap();
    bench.host.tcp_shutdown(bench.now, id).unwrap();
    let mut frames = Vec::new();
    loop {
        let mut taken = Vec::new();
        bench.host.poll_packets(bench.now, PORT, &mut taken, batch, &mut bench.pool);
        if taken.is_empty() {
            return frames;
        }
        frames.extend(taken.iter().map(|packet| bench.pool.bytes(packet).to_vec()));
        bench.pool.free_all(&mut taken);
    }
}

#[test]
fn segments_of_a_run_are_those_sent_one_by_one() {
    for family in Family::both() {
        let offloads = DeviceCapabilities { checksum_tx: true, ..ETHERNET };
        for (capabilities, is_marked) in [(ETHERNET, false), (ETHERNET, true), (offloads, false)] {
            let single = sent_through(family, capabilities, is_marked, 1);
            assert!(single.len() >= if is_marked { 4 } else { 14 });
            for batch in [2, 5, 1_000] {
                let run = sent_through(family, capabilities, is_marked, batch);
                assert!(run == single, "{batch} at once");
            }
            if capabilities == ETHERNET {
                let sent = heard(&single);
                let flags: Vec<_> = sent.iter().map(|heard| heard.header.flags).collect();
                assert_eq!(flags[0].contains(TcpFlags::CWR), is_marked);
                assert!(!flags[1].contains(TcpFlags::CWR), "it is said once");
                assert!(sent.iter().all(|heard| heard.options().sack_blocks().count() == 1));
            }
        }
    }
}

#[test]
fn segments_wait_for_a_free_frame_and_are_not_lost() {
    for family in Family::both() {
        let (mut bench, _, id) = connected(family);
        let mut held: Vec<Packet> = std::iter::from_fn(|| bench.pool.allocate()).collect();
        assert_eq!(bench.host.tcp_send(bench.now, id, b"data"), Ok(4));
        assert!(bench.take().is_empty());
        let retry = bench.host.deadline().expect("it will be tried again");
        assert!(retry > bench.now && retry <= bench.now + Span::from_ms(1), "and not at once");
        bench.pass(Span::from_ms(10));
        assert!(bench.take().is_empty());
        assert!(bench.host.deadline().is_some_and(|at| at > bench.now));
        bench.pool.free_all(&mut held);
        assert_eq!(only(&bench.take()).payload, b"data");
        assert_eq!(bench.host.tcp_info(id).unwrap().retransmitted, 0);
        bench.account();
    }
}

const OFFLOADS: DeviceCapabilities =
    DeviceCapabilities { checksum_tx: true, segments_tcp: true, ..ETHERNET };

/// A bench on such a device.
fn offloading(family: Family, capabilities: DeviceCapabilities) -> (HostFixture, ListenerId) {
    let mut bench = HostFixture::of(HostConfig::default(), capabilities);
    bench.introduce(family.peer, PEER_MAC);
    let local = SocketAddr::new(family.ours, 80);
    let listener = bench.host.tcp_listen(local, 8, eager()).unwrap();
    (bench, listener)
}

/// A connection of a device that completes checksums, and its peer.
fn open_offloaded(
    bench: &mut HostFixture,
    family: Family,
    listener: ListenerId,
) -> (RawPeer, TcpId) {
    let mut peer = RawPeer::new(family, 1);
    bench.give(&peer.syn());
    let mut packet = polled(bench).pop().expect("a SYN-ACK");
    let ChecksumState::Partial { start, offset } = packet.meta.checksum else {
        panic!("the device completes it");
    };
    let bytes = bench.pool.bytes_mut(&mut packet);
    assert!(plumb_wire::checksum::complete(bytes, start.into(), offset.into()));
    peer.hear(&Heard::of(bytes));
    bench.pool.free(packet);
    peer.seq += 1;
    bench.give(&peer.frame(ACK, b""));
    (peer, bench.host.tcp_accept(listener).unwrap())
}

fn polled(bench: &mut HostFixture) -> Vec<Packet> {
    let mut batch = Vec::new();
    bench.host.poll_packets(bench.now, PORT, &mut batch, 10, &mut bench.pool);
    batch
}

/// The segments that a device makes of a packet.
fn cut(bench: &mut HostFixture, packet: Packet) -> Vec<Heard> {
    let mut pieces = Vec::new();
    let (medium, checksums) = (Medium::Ethernet, SegmentChecksums::Complete);
    segment_packet(packet, medium, checksums, &mut bench.pool, &mut pieces).unwrap();
    let heard = pieces.iter().map(|piece| Heard::of(bench.pool.bytes(piece))).collect();
    bench.pool.free_all(&mut pieces);
    heard
}

#[test]
fn device_that_segments_gets_super_segments_while_large_frames_last() {
    for family in Family::both() {
        let (mut bench, listener) = offloading(family, OFFLOADS);
        let (_, id) = open_offloaded(&mut bench, family, listener);
        bench.host.tcp_send(bench.now, id, &vec![5; 30_000]).unwrap();
        let [packet] = polled(&mut bench).try_into().unwrap();
        let info = packet.meta.segments.unwrap();
        let v4 = family.ours.is_ipv4();
        let (kind, headers) = if v4 { (SegmentKind::Tcp4, 54) } else { (SegmentKind::Tcp6, 74) };
        assert_eq!((info.kind, info.header_len), (kind, headers));
        let pieces = cut(&mut bench, packet);
        assert_eq!(pieces.iter().map(|piece| piece.payload.len()).sum::<usize>(), 30_000);
        // Without large frames there are ordinary segments.
        let mut held: Vec<Packet> =
            std::iter::from_fn(|| bench.pool.allocate_for(60_000)).collect();
        bench.host.tcp_send(bench.now, id, &[6; 4_000]).unwrap();
        let mut batch = polled(&mut bench);
        assert!(batch.len() == 2 && batch.iter().all(|packet| packet.meta.segments.is_none()));
        bench.pool.free_all(&mut batch);
        bench.pool.free_all(&mut held);
        bench.account();
    }
}

#[test]
fn payload_that_stays_with_the_host_is_that_of_its_segment() {
    for family in Family::both() {
        let capabilities = DeviceCapabilities { gathers: true, ..OFFLOADS };
        let (mut bench, listener) = offloading(family, capabilities);
        let (mut peer, id) = open_offloaded(&mut bench, family, listener);
        let (mut stayed, mut parted) = (0, 0);
        // Together more than the send buffer: what stays there lies in two pieces now and then.
        for round in 0..8 {
            let data: Vec<u8> =
                (0..50_000_u32).map(|at| (at / 3 + round).to_le_bytes()[0]).collect();
            assert_eq!(bench.host.tcp_send(bench.now, id, &data), Ok(data.len()));
            let mut received: Vec<u8> = Vec::new();
            for packet in polled(&mut bench) {
                let tail = bench.host.tail(&packet);
                stayed += usize::from(packet.tail != 0);
                parted += usize::from(!tail[1].is_empty());
                let whole = [bench.pool.bytes(&packet), tail[0], tail[1]].concat();
                let mut joined = bench.pool.packet_of(&whole).unwrap();
                joined.meta = packet.meta;
                bench.pool.free(packet);
                for piece in cut(&mut bench, joined) {
                    received.extend(&piece.payload);
                    peer.hear(&piece);
                }
            }
            assert!(received == data, "round {round}");
            bench.give(&peer.frame(ACK, b""));
        }
        assert!(stayed >= 8 && parted >= 1, "{stayed} stayed, {parted} parted");
        bench.account();
        bench.finish();
    }
}

#[test]
fn idle_connection_gives_its_send_buffer_back() {
    for family in Family::both() {
        let (mut bench, listener) = listening_with(family, 8, eager());
        let mut peer = RawPeer::new(family, 9_000);
        peer.open(&mut bench);
        let id = bench.host.tcp_accept(listener).unwrap();
        assert_eq!(bench.host.tcp_send(bench.now, id, &vec![7; 150_000]), Ok(150_000));
        loop {
            let sent = heard(&bench.take());
            let Some(last) = sent.last() else { break };
            peer.hear(last);
            bench.give(&peer.frame(ACK, b""));
        }
        let memory = |bench: &HostFixture| bench.host.tcp_info(id).unwrap().memory;
        assert!(memory(&bench) >= 150_000, "what is soon filled again is not made anew");
        bench.pass(Span::from_secs(2));
        assert_eq!(memory(&bench), 0);
    }
}
