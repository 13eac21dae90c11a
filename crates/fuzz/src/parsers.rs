//! Checks of the parsers over any bytes: none panics or loops, and what was parsed is emitted as it was.

use plumb_conform::outcome::{ScriptError, ScriptPosition};
use plumb_conform::parser;
use plumb_copy::Sum16;
use plumb_wire::capture::CaptureReader;
use plumb_wire::checksum::{self, PseudoHeader};
use plumb_wire::ethernet::{EtherType, EthernetFrame};
use plumb_wire::flow::FiveTuple;
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv6::extension::Ipv6Extension;
use plumb_wire::option::{self, CAPACITY};
use plumb_wire::{arp, icmp, ipv4, ipv6, ndp, tcp, udp};

/// Bytes of the longest header that is compared.
const HEADER_MAX: usize = 64;

/// Packets that quote each other, at most.
const DEPTH_MAX: u32 = 4;

/// Parses `bytes` as an Ethernet frame, and what it carries.
pub fn check_frame(bytes: &[u8]) {
    let (flow, sockets) = (FiveTuple::of_frame(bytes), FiveTuple::of_sockets(bytes));
    // They may differ in what only a first fragment has.
    assert!(sockets.is_none() || flow.is_some());
    let Ok(frame) = EthernetFrame::parse(bytes) else { return };
    assert_written(frame.header_len(), bytes, |out| frame.header().emit(out));
    match frame.ether_type() {
        EtherType::ARP => check_arp(frame.payload()),
        EtherType::IPV4 | EtherType::IPV6 => check_packet(frame.payload()),
        _ => {}
    }
}

/// Parses `bytes` as an IP packet, and what it carries.
pub fn check_packet(bytes: &[u8]) {
    let _ = FiveTuple::of_packet(bytes);
    check_packet_at(bytes, 0);
}

/// Parses `bytes` as a packetdrill script; whether they are one.
pub fn check_script(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Err(error) = parser::parse(&text) else { return true };
    let (ScriptError::Syntax { at, .. } | ScriptError::Unsupported { at, .. }) = error;
    let ScriptPosition { line, column } = at;
    // The end of a text is behind its last line.
    let lines = text.split('\n').count() + 1;
    assert!(line >= 1 && line as usize <= lines, "line {line} of {lines}");
    assert!(column >= 1 && column as usize <= text.len() + 1, "column {column}");
    false
}

/// Parses `bytes` with every parser.
pub fn check_every_parser(bytes: &[u8]) {
    check_frame(bytes);
    check_packet(bytes);
    check_arp(bytes);
    let pseudo = PseudoHeader::v4([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), IpProtocol::UDP);
    check_udp(bytes, pseudo);
    check_tcp(bytes, pseudo);
    check_icmp(bytes, None, 0);
    check_icmp(bytes, Some(pseudo), 0);
    check_options(bytes);
    assert!(ipv6::extension::Ipv6Options::new(bytes, 0).items().count() <= bytes.len());
    let mut completed = bytes.to_vec();
    let start = bytes.first().copied().unwrap_or(0).into();
    checksum::complete(&mut completed, start, bytes.len() / 3);
    assert_eq!(completed.len(), bytes.len());
}

fn check_packet_at(bytes: &[u8], depth: u32) {
    if depth == DEPTH_MAX {
        return;
    }
    match bytes.first().map(|octet| octet >> 4) {
        Some(6) => check_ipv6(bytes, depth),
        _ => check_ipv4(bytes, depth),
    }
}

fn check_arp(bytes: &[u8]) {
    if let Ok(packet) = arp::ArpPacket::parse(bytes) {
        assert_written(arp::LEN, bytes, |out| packet.emit(out));
    }
}

fn check_ipv4(bytes: &[u8], depth: u32) {
    let Ok(packet) = ipv4::Ipv4Packet::parse_quoted(bytes) else {
        assert!(ipv4::Ipv4Packet::parse(bytes).is_err(), "what cannot be quoted cannot be read");
        return;
    };
    check_options(packet.options());
    if let Some(fragment) = packet.fragment() {
        let _ = fragment.end(packet.payload().len());
    }
    if let Ok(whole) = ipv4::Ipv4Packet::parse(bytes) {
        let is_right = whole.verify().is_ok();
        let mut header = [0; ipv4::HEADER_LEN_MAX];
        whole.header().emit(&mut header);
        if !is_right {
            header[10..12].copy_from_slice(&bytes[10..12]);
        }
        assert_eq!(header[..whole.header_len()], bytes[..whole.header_len()]);
        check_change_in_place(bytes, is_right);
    }
    check_transport(packet.protocol(), packet.pseudo(), packet.payload(), depth);
}

/// A header that was right stays so, and none panics.
fn check_change_in_place(bytes: &[u8], was_right: bool) {
    let mut header = [0; ipv4::HEADER_LEN_MAX];
    let len = bytes.len().min(header.len());
    header[..len].copy_from_slice(&bytes[..len]);
    ipv4::decrement_hop_limit(&mut header);
    ipv4::swap_addresses(&mut header);
    let changed = ipv4::Ipv4Packet::parse_quoted(&header).expect("lengths did not change");
    assert!(!was_right || changed.verify().is_ok());
}

fn check_options(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(CAPACITY)];
    assert!(option::items(bytes).count() <= bytes.len());
    assert!(option::copied(bytes).len() <= bytes.len().next_multiple_of(4));
    let read: Vec<&[u8]> = option::items(bytes).map_while(Result::ok).collect();
    assert!(bytes.starts_with(&read.concat()));
}

fn check_ipv6(bytes: &[u8], depth: u32) {
    let Ok(packet) = ipv6::Ipv6Packet::parse_quoted(bytes) else {
        assert!(ipv6::Ipv6Packet::parse(bytes).is_err(), "what cannot be quoted cannot be read");
        return;
    };
    if let Ok(whole) = ipv6::Ipv6Packet::parse(bytes) {
        assert_written(ipv6::HEADER_LEN, bytes, |out| whole.header().emit(out));
    }
    let mut extensions = packet.extensions();
    let mut at = extensions.payload_at();
    let mut is_whole = true;
    while let Some(extension) = extensions.next() {
        let Ok(extension) = extension else {
            assert!(extensions.next().is_none(), "an error ends the walk");
            return;
        };
        check_extension(extension, &bytes[at..extensions.payload_at()]);
        is_whole &=
            !matches!(extension, Ipv6Extension::Fragment(fragment) if !fragment.is_atomic());
        at = extensions.payload_at();
    }
    let protocol = extensions.protocol();
    if is_whole {
        check_transport(protocol, packet.pseudo(protocol), extensions.payload(), depth);
    }
}

fn check_extension(extension: Ipv6Extension<'_>, bytes: &[u8]) {
    let data = match extension {
        Ipv6Extension::HopByHop(options) | Ipv6Extension::Destination(options) => {
            for item in options.items().map_while(Result::ok) {
                let _ = (item.action(), item.is_padding());
                assert!(item.at + item.data.len() <= ipv6::HEADER_LEN + usize::from(u16::MAX));
            }
            return;
        }
        Ipv6Extension::Fragment(fragment) => {
            let _ = fragment.end(bytes.len());
            return;
        }
        Ipv6Extension::Routing { data, .. } | Ipv6Extension::Authentication(data) => data,
    };
    assert!(bytes.ends_with(data), "what was read is what is there");
}

fn check_transport(protocol: IpProtocol, pseudo: PseudoHeader, payload: &[u8], depth: u32) {
    match protocol {
        IpProtocol::UDP => check_udp(payload, pseudo),
        IpProtocol::TCP => check_tcp(payload, pseudo),
        IpProtocol::ICMPV4 => check_icmp(payload, None, depth),
        IpProtocol::ICMPV6 => check_icmp(payload, Some(pseudo), depth),
        _ => {}
    }
}

fn check_udp(bytes: &[u8], pseudo: PseudoHeader) {
    let Ok(datagram) = udp::UdpDatagram::parse(bytes) else { return };
    assert_written(udp::HEADER_LEN, bytes, |out| datagram.header().emit(out));
    let is_right = datagram.verify_v6(pseudo).is_ok();
    assert!(!is_right || datagram.verify_v4(pseudo).is_ok());
    let again = datagram.header().with_checksum(pseudo, Sum16::of(datagram.payload()));
    assert!(!is_right || again == datagram.header());
}

fn check_tcp(bytes: &[u8], pseudo: PseudoHeader) {
    let Ok(segment) = tcp::TcpSegment::parse(bytes) else { return };
    assert_written(segment.header_len(), bytes, |out| segment.header().emit(out));
    if segment.verify(pseudo).is_ok() {
        let payload = segment.payload();
        let again = segment.header().with_checksum(pseudo, payload.len(), Sum16::of(payload));
        // Zero has two signs in one's complement (RFC 1624 §3): either is right.
        let difference = again.checksum.abs_diff(segment.header().checksum);
        assert!(difference == 0 || difference == 0xffff);
    }
}

fn check_icmp(bytes: &[u8], pseudo: Option<PseudoHeader>, depth: u32) {
    let Ok(packet) = icmp::IcmpPacket::parse(bytes, pseudo) else { return };
    let _ = packet.verify();
    let (message, body) = (packet.message(), packet.body());
    let mut written = [0; icmp::HEADER_LEN];
    message.emit(pseudo, body.len(), Sum16::of(body), &mut written);
    assert_eq!(written[0], bytes[0]);
    let again = icmp::IcmpPacket::parse(&written, pseudo).expect("whole");
    assert_eq!(again.message(), message);
    if icmp::forbids_errors(packet.kind(), packet.is_v6()) {
        check_packet_at(body, depth + 1);
    }
    if let (Some(pseudo), Ok(message)) = (pseudo, ndp::NdpMessage::parse(packet)) {
        check_ndp(message, pseudo);
    }
}

fn check_ndp(message: ndp::NdpMessage, pseudo: PseudoHeader) {
    if let ndp::NdpMessage::Router(_) = message {
        return;
    }
    let mut written = vec![0; message.emitted_len()];
    message.emit(pseudo, &mut written);
    let packet = icmp::IcmpPacket::parse(&written, Some(pseudo)).and_then(icmp::IcmpPacket::verify);
    assert_eq!(packet.and_then(ndp::NdpMessage::parse), Ok(message));
}

/// What `emit` writes must be the first `len` bytes of `bytes`.
fn assert_written(len: usize, bytes: &[u8], emit: impl FnOnce(&mut [u8])) {
    let mut out = [0; HEADER_MAX];
    emit(&mut out[..len]);
    assert_eq!(out[..len], bytes[..len], "what was read is written back");
}

/// Reads `file` as a capture file: every record lies in the file, and reading ends. The number of records.
pub fn check_capture(file: &[u8]) -> usize {
    let Ok(mut reader) = CaptureReader::new(file) else { return 0 };
    let within = file.as_ptr_range();
    let mut records = 0;
    for record in reader.by_ref().map_while(Result::ok) {
        let bytes = record.bytes.as_ptr_range();
        assert!(bytes.start >= within.start && bytes.end <= within.end, "a record of the file");
        records += 1;
        assert!(records <= file.len(), "each record takes bytes of its own");
    }
    assert!(reader.next().is_none(), "nothing after the end");
    records
}
