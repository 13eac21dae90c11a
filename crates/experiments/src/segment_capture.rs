//! The TCP segments of a capture file, for [`plumb_analysis::dialogue`].

use std::net::{IpAddr, SocketAddr};

use plumb_analysis::dialogue::{AssumedChange, CaptureTurns, SegmentRecord};
use plumb_analysis::document::advise::{ChattyDocument, IgnoredPackets};
use plumb_wire::capture::{CaptureError, CaptureReader, CapturedPacket};
use plumb_wire::ethernet::{EtherType, EthernetFrame};
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv4;
use plumb_wire::ipv6::{self, Ipv6Packet};
use plumb_wire::machine::Medium;
use plumb_wire::tcp::{TcpFlags, TcpSegment};

/// Bytes of a file that is read at all.
pub const FILE_MAX: u64 = 1 << 30;

/// Why a packet is no segment of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IgnoredReason {
    NotIp,
    Fragment,
    Quic,
    NotTcp,
    Cut,
    Malformed,
}

impl IgnoredReason {
    const ALL: [Self; 6] =
        [Self::NotIp, Self::Fragment, Self::Quic, Self::NotTcp, Self::Cut, Self::Malformed];

    const fn text(self) -> &'static str {
        match self {
            Self::NotIp => "neither IPv4 nor IPv6, or of a link type that is not read",
            Self::Fragment => "IP fragments",
            Self::Quic => {
                "UDP of port 443, as QUIC uses: its acknowledgments are encrypted, so its turns cannot be told"
            }
            Self::NotTcp => "not TCP",
            Self::Cut => {
                "cut before the end of the TCP header: capture with a larger snapshot length (tcpdump -s 128)"
            }
            Self::Malformed => "malformed",
        }
    }
}

/// What the connections of a capture show.
///
/// # Errors
/// The file is no capture, or nothing of it can be read.
pub fn turns(
    file: &str,
    bytes: &[u8],
    change: AssumedChange,
) -> Result<ChattyDocument, CaptureError> {
    let mut turns = CaptureTurns::default();
    let mut ignored = [0_u64; IgnoredReason::ALL.len()];
    let mut fault = None;
    for packet in CaptureReader::new(bytes)? {
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => {
                fault = Some(error);
                break;
            }
        };
        match segment(&packet) {
            Ok(segment) => turns.take(&segment),
            Err(reason) => ignored[reason as usize] += 1,
        }
    }
    let ignored = IgnoredReason::ALL
        .into_iter()
        .zip(ignored)
        .filter(|(_, packets)| *packets > 0)
        .map(|(reason, packets)| IgnoredPackets { reason: reason.text().to_owned(), packets })
        .collect();
    let mut document = turns.finish(file, change, ignored);
    if let Some(fault) = fault {
        document.notes.insert(0, format!("The end of the file is not read: {fault}."));
    }
    Ok(document)
}

/// The segment of a packet.
fn segment<'a>(packet: &CapturedPacket<'a>) -> Result<SegmentRecord<'a>, IgnoredReason> {
    let cooked = packet.link_type.cooked_header_len();
    let bytes = match (packet.link_type.medium(), cooked) {
        (None, None) => return Err(IgnoredReason::NotIp),
        (None, Some(len)) => packet.bytes.get(len..).ok_or(IgnoredReason::Cut)?,
        (Some(Medium::Ip), _) => packet.bytes,
        (Some(Medium::Ethernet), _) => {
            let frame = EthernetFrame::parse(packet.bytes).map_err(|_| IgnoredReason::Malformed)?;
            match frame.ether_type() {
                EtherType::IPV4 | EtherType::IPV6 => frame.payload(),
                _ => return Err(IgnoredReason::NotIp),
            }
        }
    };
    // Bytes of the packet that were not kept, for packets whose length field says nothing: those that a device is to segment.
    let before = packet.bytes.len() - bytes.len();
    let whole = usize::try_from(packet.original_len).unwrap_or(0).saturating_sub(before);
    match bytes.first().map(|first| first >> 4) {
        Some(4) => segment_v4(packet.time_ns, bytes, whole),
        Some(6) => segment_v6(packet.time_ns, bytes, whole),
        _ => Err(IgnoredReason::NotIp),
    }
}

fn segment_v4(
    time_ns: u64,
    bytes: &[u8],
    whole: usize,
) -> Result<SegmentRecord<'_>, IgnoredReason> {
    if bytes.len() < ipv4::HEADER_LEN {
        return Err(IgnoredReason::Cut);
    }
    let header_len = usize::from(bytes[0] & 0xf) * 4;
    let said = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    let total = if said == 0 { whole } else { said };
    let protocol = IpProtocol(bytes[9]);
    if u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff != 0 {
        return Err(IgnoredReason::Fragment);
    }
    if header_len < ipv4::HEADER_LEN || total < header_len {
        return Err(IgnoredReason::Malformed);
    }
    let end = bytes.len().min(total);
    let transport = bytes.get(header_len..end).ok_or(IgnoredReason::Cut)?;
    let address =
        |at: usize| IpAddr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    of_transport(time_ns, (address(12), address(16)), protocol, transport, total - header_len)
}

fn segment_v6(
    time_ns: u64,
    bytes: &[u8],
    whole: usize,
) -> Result<SegmentRecord<'_>, IgnoredReason> {
    if bytes.len() < ipv6::HEADER_LEN {
        return Err(IgnoredReason::Cut);
    }
    let said = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    let total = if said == 0 { whole } else { said + ipv6::HEADER_LEN };
    let packet = Ipv6Packet::parse_quoted(&bytes[..bytes.len().min(total)])
        .map_err(|_| IgnoredReason::Malformed)?;
    let mut extensions = packet.extensions();
    for extension in extensions.by_ref() {
        if let ipv6::extension::Ipv6Extension::Fragment(fragment) =
            extension.map_err(|_| IgnoredReason::Malformed)?
            && !fragment.is_atomic()
        {
            return Err(IgnoredReason::Fragment);
        }
    }
    let transport = extensions.payload();
    let lies_at = packet.payload().len() - transport.len();
    let len = total.saturating_sub(ipv6::HEADER_LEN + lies_at);
    let ends = (packet.source().into(), packet.destination().into());
    of_transport(time_ns, ends, extensions.protocol(), transport, len)
}

/// The segment of a transport's bytes, of which there were `len`.
fn of_transport(
    time_ns: u64,
    (source, destination): (IpAddr, IpAddr),
    protocol: IpProtocol,
    bytes: &[u8],
    len: usize,
) -> Result<SegmentRecord<'_>, IgnoredReason> {
    if protocol == IpProtocol::UDP {
        let is_quic = [0, 2].iter().any(|at| bytes.get(*at..at + 2) == Some(&[0x01, 0xbb]));
        return Err(if is_quic { IgnoredReason::Quic } else { IgnoredReason::NotTcp });
    }
    if protocol != IpProtocol::TCP {
        return Err(IgnoredReason::NotTcp);
    }
    let is_cut = bytes.len() < len;
    let fault = if is_cut { IgnoredReason::Cut } else { IgnoredReason::Malformed };
    let tcp = TcpSegment::parse(bytes).map_err(|_| fault)?;
    let payload = len.checked_sub(tcp.header_len()).ok_or(IgnoredReason::Malformed)?;
    let flags = tcp.flags();
    Ok(SegmentRecord {
        time_ns,
        source: SocketAddr::new(source, tcp.source_port()),
        destination: SocketAddr::new(destination, tcp.destination_port()),
        seq: tcp.seq(),
        ack: flags.contains(TcpFlags::ACK).then(|| tcp.ack()),
        is_syn: flags.contains(TcpFlags::SYN),
        is_fin: flags.contains(TcpFlags::FIN),
        is_reset: flags.contains(TcpFlags::RST),
        len: u32::try_from(payload).map_err(|_| IgnoredReason::Malformed)?,
        head: tcp.payload(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use plumb_wire::capture::LinkType;
    use plumb_wire::compose::PacketTemplate;
    use plumb_wire::pcapng;
    use plumb_wire::tcp::TcpHeader;

    use super::*;

    const CHANGE: AssumedChange = AssumedChange { near_rtt_ns: 1_000_000, batch: 10 };
    const RTT_NS: u64 = 40_000_000;

    /// A capture at the client of so many requests, each after the response to the last.
    fn capture(requests: u32) -> Vec<u8> {
        capture_as(LinkType::RAW, 0, requests)
    }

    /// The same with so many bytes before each packet.
    fn capture_as(link_type: LinkType, before: usize, requests: u32) -> Vec<u8> {
        let mut file = Vec::new();
        pcapng::begin(&mut file, "test");
        pcapng::interface(&mut file, link_type, "eth0", 0);
        let there = PacketTemplate::new(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut put = |time_ns, is_back: bool, (seq, ack): (u32, u32), flags, payload: &[u8]| {
            let (source_port, destination_port) = if is_back { (80, 4_000) } else { (4_000, 80) };
            let header = TcpHeader {
                source_port,
                destination_port,
                seq,
                ack,
                flags,
                ..TcpHeader::default()
            };
            let template = if is_back { there.reversed() } else { there };
            let packet = [vec![0; before], template.tcp(header, payload)].concat();
            pcapng::packet(&mut file, 0, time_ns, None, &packet);
        };
        put(0, false, (0, 0), TcpFlags::SYN, b"");
        put(RTT_NS, true, (0, 1), TcpFlags::SYN | TcpFlags::ACK, b"");
        put(RTT_NS, false, (1, 1), TcpFlags::ACK, b"");
        for index in 0..requests {
            let at = RTT_NS * u64::from(index + 1);
            let (asked, said) = (1 + index * 6, 1 + index * 9);
            put(at, false, (asked, said), TcpFlags::ACK, b"GET /\n");
            put(at + RTT_NS, true, (said, asked + 6), TcpFlags::ACK, b"some text");
        }
        file
    }

    #[test]
    fn every_waited_request_of_a_capture_is_a_round_trip() {
        let document = turns("a", &capture(13), CHANGE).unwrap();
        let found = &document.connections[0];
        assert_eq!((found.round_trips, found.turns), (13, 25));
        assert_eq!((found.client_bytes, found.server_bytes), (13 * 6, 13 * 9));
        assert_eq!(
            (found.client.as_str(), found.captured_at.as_str()),
            ("10.0.0.1:4000", "client")
        );
        assert_eq!(found.savings[0].saved_ns, 12 * RTT_NS);
        assert!(document.ignored.is_empty(), "{:?}", document.ignored);
    }

    #[test]
    fn captures_of_any_interface_and_of_other_systems_loopback_are_read() {
        for (link_type, before) in [(113, 16), (276, 20), (0, 4), (108, 4)] {
            let file = capture_as(LinkType(link_type), before, 3);
            let document = turns("a", &file, CHANGE).unwrap();
            assert_eq!(document.sum.round_trips, 3, "{link_type}: {:?}", document.ignored);
        }
    }

    #[test]
    fn a_capture_cut_anywhere_is_read_as_far_as_it_is_whole() {
        let file = capture(5);
        for end in 0..file.len() {
            match turns("a", &file[..end], CHANGE) {
                Ok(document) => assert!(document.sum.round_trips <= 5),
                Err(error) => assert!(end < 200, "cut at {end}: {error}"),
            }
        }
    }

    #[test]
    fn a_damaged_capture_never_panics() {
        let file = capture(5);
        for at in 0..file.len() {
            for value in [0, 0x45, 0x60, 0x7f, 0xff] {
                let mut damaged = file.clone();
                damaged[at] = value;
                turns("a", &damaged, CHANGE).ok();
            }
        }
    }

    #[test]
    fn packets_that_are_no_segments_are_counted_by_reason() {
        let mut file = Vec::new();
        pcapng::begin(&mut file, "test");
        pcapng::interface(&mut file, LinkType::RAW, "eth0", 0);
        let there = PacketTemplate::new(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        for packet in [
            there.udp(1_000, 443, b"quic"),
            there.udp(1_000, 53, b"name"),
            vec![0x45, 0],
            vec![1, 2, 3],
        ] {
            pcapng::packet(&mut file, 0, 0, None, &packet);
        }
        let document = turns("a", &file, CHANGE).unwrap();
        assert!(document.connections.is_empty());
        let counts: Vec<u64> = document.ignored.iter().map(|ignored| ignored.packets).collect();
        assert_eq!(counts, [1, 1, 1, 1], "{:?}", document.ignored);
    }
}
