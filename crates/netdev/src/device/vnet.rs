//! The virtio header before each packet of a TAP or packet socket: what it says about checksum and
//! segmentation, both ways (virtio 1.2 §5.1.6, `linux/virtio_net.h`).
//!
//! Pure. The fields are in the machine's own byte order, as the kernel has them unless told
//! otherwise.

use plumb_wire::machine::Medium;
use plumb_wire::packet::{ChecksumState, PacketMeta, SegmentKind, SegmentationInfo};

/// Bytes of the header.
pub const HEADER_LEN: usize = 10;

/// The transport checksum is to be completed.
const NEEDS_CHECKSUM: u8 = 1;
/// The transport checksum was verified.
const CHECKSUM_VALID: u8 = 2;
const SEGMENTS_NONE: u8 = 0;
const SEGMENTS_TCP4: u8 = 1;
const SEGMENTS_TCP6: u8 = 4;
const SEGMENTS_UDP: u8 = 5;
/// Beside the kind of TCP: the first segment carries CWR, which the others must not.
const SEGMENTS_ECN: u8 = 0x80;

const TCP_CHECKSUM_OFFSET: u16 = 16;
const UDP_CHECKSUM_OFFSET: u16 = 6;
const UDP_HEADER_LEN: u16 = 8;
const TCP_FLAGS_OFFSET: usize = 13;
const TCP_FLAG_CWR: u8 = 0x80;

/// What a header says about its packet; `None` where it cannot be true of this packet.
#[inline]
pub fn parse(
    header: [u8; HEADER_LEN],
    medium: Medium,
    packet: &[u8],
) -> Option<(ChecksumState, Option<SegmentationInfo>)> {
    let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let checksum = if header[0] & NEEDS_CHECKSUM != 0 {
        let (start, offset) = (field(6), field(8));
        if usize::from(start) + usize::from(offset) + 2 > packet.len() {
            return None;
        }
        ChecksumState::Partial { start, offset }
    } else if header[0] & CHECKSUM_VALID != 0 {
        ChecksumState::Verified
    } else {
        ChecksumState::Plain
    };
    if header[1] == SEGMENTS_NONE {
        return Some((checksum, None));
    }
    let segments = segments(header[1], field(4), checksum, medium, packet)?;
    Some((checksum, Some(segments)))
}

fn segments(
    kind: u8,
    size: u16,
    checksum: ChecksumState,
    medium: Medium,
    packet: &[u8],
) -> Option<SegmentationInfo> {
    // virtio 1.2 §5.1.6.2: a driver that sets a segment type must set NEEDS_CSUM as well.
    let ChecksumState::Partial { start, offset } = checksum else { return None };
    let kind = match kind & !SEGMENTS_ECN {
        SEGMENTS_TCP4 => SegmentKind::Tcp4,
        SEGMENTS_TCP6 => SegmentKind::Tcp6,
        SEGMENTS_UDP if ip_version(medium, packet)? == 4 => SegmentKind::Udp4,
        SEGMENTS_UDP if ip_version(medium, packet)? == 6 => SegmentKind::Udp6,
        _ => return None,
    };
    // The header's own hdr_len is a hint that Linux fills with what lies in its first buffer.
    let (transport_len, checksum_offset) = match kind {
        SegmentKind::Tcp4 | SegmentKind::Tcp6 => {
            let octet = packet.get(usize::from(start) + 12)?;
            (u16::from(octet >> 4) * 4, TCP_CHECKSUM_OFFSET)
        }
        SegmentKind::Udp4 | SegmentKind::Udp6 => (UDP_HEADER_LEN, UDP_CHECKSUM_OFFSET),
    };
    let header_len = start.checked_add(transport_len)?;
    let whole = size > 0 && usize::from(header_len) < packet.len() && offset == checksum_offset;
    whole.then_some(SegmentationInfo { kind, size, header_len })
}

fn ip_version(medium: Medium, packet: &[u8]) -> Option<u8> {
    let mut at = 0;
    if medium == Medium::Ethernet {
        at = 14;
        // IEEE 802.1Q and 802.1ad tags.
        while matches!(packet.get(at - 2..at)?, [0x81, 0x00] | [0x88, 0xa8]) {
            at += 4;
        }
    }
    packet.get(at).map(|octet| octet >> 4)
}

/// The header for a packet that shall be sent.
#[inline]
pub fn emit(meta: &PacketMeta, packet: &[u8]) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    let ChecksumState::Partial { start, offset } = meta.checksum else {
        return header;
    };
    header[0] = NEEDS_CHECKSUM;
    header[6..8].copy_from_slice(&start.to_ne_bytes());
    header[8..10].copy_from_slice(&offset.to_ne_bytes());
    if let Some(SegmentationInfo { kind, size, header_len }) = meta.segments {
        let cwr = packet
            .get(usize::from(start) + TCP_FLAGS_OFFSET)
            .is_some_and(|flags| flags & TCP_FLAG_CWR != 0);
        let ecn = if cwr { SEGMENTS_ECN } else { 0 };
        header[1] = match kind {
            SegmentKind::Tcp4 => SEGMENTS_TCP4 | ecn,
            SegmentKind::Tcp6 => SEGMENTS_TCP6 | ecn,
            SegmentKind::Udp4 | SegmentKind::Udp6 => SEGMENTS_UDP,
        };
        header[2..4].copy_from_slice(&header_len.to_ne_bytes());
        header[4..6].copy_from_slice(&size.to_ne_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tcp4_frame() -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 32 + 3000];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[34 + 12] = 0x80;
        frame
    }

    fn udp_frame(version: u8, tags: usize) -> (Vec<u8>, u16) {
        let ip = 14 + 4 * tags;
        let transport = ip + if version == 4 { 20 } else { 40 };
        let mut frame = vec![0; transport + 8 + 5000];
        for tag in 0..tags {
            frame[12 + 4 * tag..14 + 4 * tag].copy_from_slice(&[0x81, 0x00]);
        }
        frame[ip] = version << 4;
        (frame, u16::try_from(transport).unwrap())
    }

    #[test]
    fn what_is_emitted_is_what_is_parsed() {
        let tcp = tcp4_frame();
        let partial = ChecksumState::Partial { start: 34, offset: 16 };
        let segments = SegmentationInfo { kind: SegmentKind::Tcp4, size: 1448, header_len: 66 };
        let meta =
            PacketMeta { checksum: partial, segments: Some(segments), ..PacketMeta::default() };
        let parsed = parse(emit(&meta, &tcp), Medium::Ethernet, &tcp);
        assert_eq!(parsed, Some((partial, Some(segments))));

        for (version, tags) in [(4, 0), (6, 0), (4, 1), (6, 2)] {
            let (frame, start) = udp_frame(version, tags);
            let kind = if version == 4 { SegmentKind::Udp4 } else { SegmentKind::Udp6 };
            let partial = ChecksumState::Partial { start, offset: 6 };
            let segments = SegmentationInfo { kind, size: 1200, header_len: start + 8 };
            let meta =
                PacketMeta { checksum: partial, segments: Some(segments), ..PacketMeta::default() };
            let parsed = parse(emit(&meta, &frame), Medium::Ethernet, &frame);
            assert_eq!(parsed, Some((partial, Some(segments))), "version {version}, {tags} tags");
        }
    }

    #[test]
    fn the_header_is_in_the_bytes_that_linux_writes() {
        // From a kernel's own TAP: NEEDS_CSUM, TCPV4, hdr_len 66, gso_size 1448, start 34, offset 16.
        if cfg!(target_endian = "little") {
            let header = [1, 1, 66, 0, 0xa8, 0x05, 34, 0, 16, 0];
            let (checksum, segments) = parse(header, Medium::Ethernet, &tcp4_frame()).unwrap();
            assert_eq!(checksum, ChecksumState::Partial { start: 34, offset: 16 });
            assert_eq!(segments.unwrap().size, 1448);
        }
    }

    #[test]
    fn a_congestion_window_reduced_flag_is_announced() {
        let mut tcp = tcp4_frame();
        let meta = PacketMeta {
            checksum: ChecksumState::Partial { start: 34, offset: 16 },
            segments: Some(SegmentationInfo {
                kind: SegmentKind::Tcp4,
                size: 1448,
                header_len: 66,
            }),
            ..PacketMeta::default()
        };
        assert_eq!(emit(&meta, &tcp)[1], 1);
        tcp[34 + 13] |= 0x80;
        assert_eq!(emit(&meta, &tcp)[1], 0x81);
        assert!(parse(emit(&meta, &tcp), Medium::Ethernet, &tcp).is_some());
    }

    #[test]
    fn impossible_headers_are_refused() {
        let frame = tcp4_frame();
        let last = u16::try_from(frame.len()).unwrap() - 2;
        for (why, flags, kind, size, start, offset) in [
            ("a checksum outside of the packet", 1, 0, 0, 65_000_u16, 16_u16),
            ("no checksum wanted", 0, 1, 1_448_u16, 34, 16),
            ("segments of nothing", 1, 1, 0, 34, 16),
            ("UDP's checksum in TCP", 1, 1, 1_448, 34, 6),
            ("UFO was not asked for", 1, 3, 1_448, 34, 6),
            ("no such kind", 1, 77, 1_448, 34, 6),
            ("no TCP header there", 1, 1, 1_448, last, 0),
        ] {
            let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
            header[4..6].copy_from_slice(&size.to_ne_bytes());
            header[6..8].copy_from_slice(&start.to_ne_bytes());
            header[8..10].copy_from_slice(&offset.to_ne_bytes());
            assert_eq!(parse(header, Medium::Ethernet, &frame), None, "{why}");
        }
    }

    proptest! {
        #[test]
        fn no_header_and_no_packet_panics(
            header in any::<[u8; HEADER_LEN]>(),
            packet in prop::collection::vec(any::<u8>(), 0..200),
            ip in any::<bool>(),
        ) {
            let medium = if ip { Medium::Ip } else { Medium::Ethernet };
            if let Some((checksum, segments)) = parse(header, medium, &packet) {
                if let ChecksumState::Partial { start, offset } = checksum {
                    prop_assert!(usize::from(start + offset) + 2 <= packet.len());
                }
                if let Some(segments) = segments {
                    prop_assert!(usize::from(segments.header_len) < packet.len());
                }
            }
        }
    }
}
