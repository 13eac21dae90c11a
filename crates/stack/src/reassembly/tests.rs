//! What reassembly promises, against datagrams that were cut, shuffled, overlapped and starved.

use plumb_base::seed::{RandomStream, Seed};
use plumb_wire::ip::{Ecn, FRAGMENT_HEADER_LEN, Fragment, IpProtocol, TrafficClass};
use plumb_wire::packet::PoolConfig;
use rand::RngExt;
use rand::seq::SliceRandom;

use super::*;
use crate::fragmentation::fragment_packet;

const START: Instant = Instant::ORIGIN;

fn pool() -> Pool {
    Pool::new(PoolConfig { count: 256, size: 2_048, large: 12 })
}

fn reassembly() -> Reassembly {
    Reassembly::new(ReassemblyConfig::default())
}

/// A whole IP packet that carries `data` as UDP, which is not looked at.
fn datagram(v6: bool, source: u8, identification: u16, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len()).unwrap();
    let mut bytes = if v6 {
        let address = |host: u8| [0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host].into();
        let header = ipv6::Ipv6Header::new(address(source), address(255), IpProtocol::UDP, len);
        let mut bytes = vec![0; ipv6::HEADER_LEN];
        header.emit(&mut bytes);
        bytes
    } else {
        let header = ipv4::Ipv4Header {
            identification,
            fragment: ipv4::FragmentField::WHOLE,
            ..ipv4::Ipv4Header::new(
                [192, 0, 2, source].into(),
                [192, 0, 2, 255].into(),
                IpProtocol::UDP,
                len,
            )
        };
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes
    };
    bytes.extend(data);
    bytes
}

fn pieces(packet: &[u8], mtu: usize, identification: u32, pool: &mut Pool) -> Vec<Vec<u8>> {
    let packet = pool.packet_of(packet).unwrap();
    let mut out = Vec::new();
    fragment_packet(packet, mtu, identification, pool, &mut out).unwrap();
    let pieces = out.iter().map(|piece| pool.bytes(piece).to_vec()).collect();
    pool.free_all(&mut out);
    pieces
}

/// One fragment made by hand, from byte `offset` of the data.
fn piece(
    v6: bool,
    source: u8,
    identification: u16,
    offset: u16,
    more: bool,
    data: &[u8],
) -> Vec<u8> {
    let mut whole = datagram(v6, source, identification, data);
    let place = Fragment { identification: identification.into(), offset, more };
    if v6 {
        let mut header = [0; FRAGMENT_HEADER_LEN];
        place.emit_v6(IpProtocol(whole[6]), &mut header);
        whole.splice(40..40, header);
        whole[6] = IpProtocol::FRAGMENT.0;
        let len = u16::try_from(whole.len() - 40).unwrap();
        whole[4..6].copy_from_slice(&len.to_be_bytes());
    } else {
        let header = ipv4::Ipv4Header {
            fragment: ipv4::FragmentField::of(&place),
            ..ipv4::Ipv4Packet::parse(&whole).unwrap().header()
        };
        header.emit(&mut whole);
    }
    whole
}

fn bytes(len: usize, stream: &mut RandomStream) -> Vec<u8> {
    (0..len).map(|_| stream.random()).collect()
}

/// Whole, kept, or why not; frames are freed, and of a whole datagram the bytes are given.
fn feed(
    reassembly: &mut Reassembly,
    now: Instant,
    piece: &[u8],
    pool: &mut Pool,
) -> Result<Option<Vec<u8>>, FragmentDrop> {
    let packet = pool.packet_of(piece).unwrap();
    match reassembly.handle_fragment(now, packet, pool) {
        ReassemblyOutcome::Complete(packet) => {
            let bytes = pool.bytes(&packet).to_vec();
            pool.free(packet);
            Ok(Some(bytes))
        }
        ReassemblyOutcome::Kept => Ok(None),
        ReassemblyOutcome::Dropped(packet, refused) => {
            assert_eq!(pool.bytes(&packet), piece, "given back as it came");
            pool.free(packet);
            Err(refused)
        }
    }
}

#[test]
fn a_datagram_survives_being_cut_shuffled_duplicated_and_put_together() {
    println!("seed 1");
    let mut stream = Seed(1).stream("shuffle");
    let (mut pool, mut reassembly) = (pool(), reassembly());
    for round in 0..400_u16 {
        let v6 = round % 2 == 1;
        let header = if v6 { 40 } else { 20 };
        let len = stream.random_range(200..if round % 8 < 2 { 65_535 - header } else { 5_000 });
        let mtu = stream.random_range(1_280..=1_500).min(len + header - 1);
        let packet = datagram(v6, 1, round, &bytes(len, &mut stream));
        let mut all = pieces(&packet, mtu, round.into(), &mut pool);
        all.shuffle(&mut stream);
        let mut whole = None;
        for (i, piece) in all.iter().enumerate() {
            assert_eq!(whole, None, "whole only with the last");
            whole = feed(&mut reassembly, START, piece, &mut pool).unwrap();
            if whole.is_none() {
                let twice = &all[stream.random_range(0..=i)];
                assert_eq!(
                    feed(&mut reassembly, START, twice, &mut pool),
                    Err(FragmentDrop::Duplicate)
                );
            }
        }
        let whole = whole.unwrap();
        assert_eq!(whole, packet, "round {round}");
        assert!(reassembly.is_empty());
        assert_eq!(reassembly.deadline(), None);
        assert_eq!(pool.available(), (256, 12));
    }
}

#[test]
fn an_overlap_condemns_the_datagram_and_what_comes_of_it_later() {
    for v6 in [false, true] {
        let (mut pool, mut reassembly) = (pool(), reassembly());
        let data = [7; 64];
        let first = piece(v6, 1, 9, 0, true, &data[..32]);
        let mut other = first.clone();
        *other.last_mut().unwrap() ^= 1;
        for (overlap, refused) in [
            (piece(v6, 1, 9, 24, true, &data[24..48]), FragmentDrop::Overlap),
            (piece(v6, 1, 9, 0, true, &data[..40]), FragmentDrop::Overlap),
            (other, FragmentDrop::Overlap),
        ] {
            assert_eq!(feed(&mut reassembly, START, &first, &mut pool), Ok(None));
            assert_eq!(feed(&mut reassembly, START, &overlap, &mut pool), Err(refused));
            let last = piece(v6, 1, 9, 32, false, &data[32..]);
            for late in [&last, &first] {
                let late = feed(&mut reassembly, START, late, &mut pool);
                assert_eq!(late, Err(FragmentDrop::DatagramDiscarded));
            }
            assert_eq!((reassembly.len(), reassembly.held_bytes()), (1, 0));
            assert_eq!(pool.available(), (256, 12));
            // Its time over, its number is free again.
            let over = START + Span::from_secs(60);
            assert!(reassembly.poll_expired(over, &mut pool).unwrap().is_none());
            assert_eq!(reassembly.poll_expired(over, &mut pool).map(|_| ()), None);
        }
    }
}

#[test]
fn impossible_fragments_are_refused_for_what_is_wrong() {
    for v6 in [false, true] {
        let (mut pool, mut reassembly) = (pool(), reassembly());
        let mut refused = |piece: &[u8]| feed(&mut reassembly, START, piece, &mut pool);
        assert_eq!(refused(&piece(v6, 1, 1, 0, true, &[0; 15])), Err(FragmentDrop::Unaligned));
        assert_eq!(refused(&piece(v6, 1, 2, 65_528, false, &[0; 8])), Err(FragmentDrop::TooLong));
        assert_eq!(refused(&piece(v6, 1, 3, 8, false, &[])), Err(FragmentDrop::Impossible));
        // Two ends.
        assert_eq!(refused(&piece(v6, 1, 4, 16, false, &[0; 8])), Ok(None));
        assert_eq!(refused(&piece(v6, 1, 4, 8, false, &[0; 8])), Err(FragmentDrop::Impossible));
        assert_eq!(refused(&piece(v6, 1, 5, 16, true, &[0; 8])), Ok(None));
        assert_eq!(refused(&piece(v6, 1, 5, 8, false, &[0; 8])), Err(FragmentDrop::Impossible));
        assert_eq!(refused(&piece(v6, 1, 6, 8, false, &[0; 8])), Ok(None));
        assert_eq!(refused(&piece(v6, 1, 6, 16, true, &[0; 8])), Err(FragmentDrop::Impossible));
    }
}

#[test]
fn a_first_fragment_of_ipv6_must_hold_the_whole_header_chain() {
    let (mut pool, mut reassembly) = (pool(), reassembly());
    let mut packet = piece(true, 1, 1, 0, true, &[60, 1, 0, 0, 0, 0, 0, 0]);
    packet[40] = IpProtocol::DESTINATION.0;
    let result = feed(&mut reassembly, START, &packet, &mut pool);
    assert_eq!(result, Err(FragmentDrop::HeaderChain));
}

#[test]
fn congestion_marks_are_combined_as_rfc_3168_says() {
    use Ecn::{Capable0, Capable1, Congestion, NotCapable};
    for v6 in [false, true] {
        for (one, two, combined) in [
            (NotCapable, NotCapable, Some(NotCapable)),
            (Capable0, Capable0, Some(Capable0)),
            (Capable1, Capable1, Some(Capable1)),
            (Capable0, Congestion, Some(Congestion)),
            (Congestion, Capable1, Some(Congestion)),
            (NotCapable, Congestion, None),
            (Capable0, NotCapable, None),
        ] {
            let (mut pool, mut reassembly) = (pool(), reassembly());
            let marked = |offset, more, ecn| {
                let mut bytes = piece(v6, 1, 1, offset, more, &[0; 8]);
                if v6 {
                    bytes[1] |= TrafficClass::from(ecn).0 << 4;
                } else {
                    ipv4::set_traffic_class(&mut bytes, TrafficClass::from(ecn));
                }
                bytes
            };
            assert_eq!(feed(&mut reassembly, START, &marked(0, true, one), &mut pool), Ok(None));
            let last = pool.packet_of(&marked(8, false, two)).unwrap();
            match reassembly.handle_fragment(START, last, &mut pool) {
                ReassemblyOutcome::Complete(packet) => {
                    assert_eq!(Some(packet.meta.ecn), combined);
                    let bytes = pool.bytes(&packet);
                    let field = if v6 {
                        ipv6::Ipv6Packet::parse(bytes).unwrap().traffic_class()
                    } else {
                        ipv4::Ipv4Packet::parse(bytes).unwrap().verify().unwrap().traffic_class()
                    };
                    assert_eq!(Some(field.ecn()), combined);
                }
                ReassemblyOutcome::Dropped(_, refused) => {
                    assert_eq!((refused, combined), (FragmentDrop::MixedEcn, None));
                }
                ReassemblyOutcome::Kept => panic!("nothing is missing"),
            }
        }
    }
}

#[test]
fn a_timeout_gives_the_first_fragment_if_there_was_one_and_leaves_nothing() {
    for v6 in [false, true] {
        let (mut pool, mut reassembly) = (pool(), reassembly());
        let first = piece(v6, 1, 1, 0, true, &[5; 16]);
        feed(&mut reassembly, START, &first, &mut pool).unwrap();
        feed(&mut reassembly, START, &piece(v6, 1, 1, 24, true, &[6; 8]), &mut pool).unwrap();
        let later = START + Span::from_secs(1);
        feed(&mut reassembly, later, &piece(v6, 1, 2, 8, false, &[7; 8]), &mut pool).unwrap();
        let timeout = Span::from_secs(if v6 { 60 } else { 30 });
        assert_eq!(reassembly.deadline(), Some(START + timeout));
        assert!(reassembly.poll_expired(START + (timeout - Span::from_ps(1)), &mut pool).is_none());
        let quoted = reassembly.poll_expired(START + timeout, &mut pool).unwrap().unwrap();
        assert_eq!(pool.bytes(&quoted), first);
        pool.free(quoted);
        assert_eq!(reassembly.deadline(), Some(later + timeout));
        assert!(reassembly.poll_expired(later + timeout, &mut pool).unwrap().is_none());
        assert_eq!(reassembly.deadline(), None);
        assert_eq!(pool.available(), (256, 12));
    }
}

#[test]
fn fragment_floods_hold_bounded_memory() {
    println!("seed 2");
    let mut stream = Seed(2).stream("flood");
    let (mut pool, mut reassembly) = (pool(), reassembly());
    let config = ReassemblyConfig::default();
    let mut gaps = 0;
    for round in 0..30_000_u32 {
        let v6 = stream.random_bool(0.5);
        let (source, identification, offset) = match round / 10_000 {
            // One datagram of eight-byte fragments, every second of which never comes.
            0 => (1, u16::try_from(round / 5_000).unwrap(), stream.random_range(0..4_000_u16) * 16),
            // Everybody begins everything.
            1 => (stream.random(), stream.random(), stream.random_range(0..8_190_u16) * 8),
            // One source begins everything, each time with a large frame's worth.
            _ => (3, stream.random(), 60_000),
        };
        let data = [source; 8];
        let flood = piece(v6, source, identification, offset, true, &data);
        let result = feed(&mut reassembly, START, &flood, &mut pool);
        gaps += u32::from(result == Err(FragmentDrop::TooManyGaps));
        assert!(reassembly.len() <= config.datagrams);
        assert!(reassembly.held_bytes() <= config.bytes);
        if round / 10_000 == 2 {
            let (ordinary, _) = pool.available();
            assert!(ordinary >= 256 - config.datagrams);
        }
    }
    assert!(gaps >= 2, "{gaps}");
    assert!(reassembly.evicted() > 9_000);
    // A whole datagram is reassembled all the same.
    let packet = datagram(false, 200, 1, &bytes(4_000, &mut stream));
    let all = pieces(&packet, 1_500, 0, &mut pool);
    let whole =
        all.iter().filter_map(|piece| feed(&mut reassembly, START, piece, &mut pool).unwrap());
    assert_eq!(whole.last(), Some(packet));
    while reassembly.poll_expired(START + Span::from_secs(60), &mut pool).is_some() {}
    assert_eq!(reassembly.held_bytes(), 0);
    assert_eq!(pool.available(), (256, 12));
}

#[test]
fn one_source_cannot_evict_the_others() {
    let (mut pool, mut reassembly) = (pool(), reassembly());
    let first = piece(false, 1, 1, 0, true, &[1; 8]);
    feed(&mut reassembly, START, &first, &mut pool).unwrap();
    for identification in 0..1_000 {
        let flood = piece(false, 2, identification, 0, true, &[2; 8]);
        feed(&mut reassembly, START, &flood, &mut pool).unwrap();
    }
    assert_eq!(reassembly.len(), 1 + ReassemblyConfig::default().datagrams_per_source);
    let last = piece(false, 1, 1, 8, false, &[1; 8]);
    assert!(feed(&mut reassembly, START, &last, &mut pool).unwrap().is_some());
}

#[test]
fn without_frames_a_fragment_is_refused_and_nothing_is_lost() {
    let mut pool = Pool::new(PoolConfig { count: 2, size: 2_048, large: 0 });
    let mut reassembly = reassembly();
    let far = piece(false, 1, 1, 8_000, true, &[1; 8]);
    assert_eq!(feed(&mut reassembly, START, &far, &mut pool), Err(FragmentDrop::Memory));
    assert!(reassembly.is_empty());
    assert_eq!(pool.available(), (2, 0));
}
