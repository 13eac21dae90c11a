//! Bodies of fuzz targets: what must hold for whatever bytes come, asserted.
//!
//! They run under cargo-fuzz (`crates/wire/fuzz`) and, over frames from a [`Mutator`], as ordinary
//! tests. What they assert: no parser panics or walks on for ever, and what was read is written
//! back as it was. Left out: capture files, whose body is [`crate::capture::fuzz`].

use plumb_copy::Sum;

use crate::checksum::{self, Pseudo};
use crate::ethernet::{EtherType, Frame};
use crate::flow::FiveTuple;
use crate::ipv6::extension::Extension;
use crate::option_area::CAPACITY;
use crate::protocol::Protocol;
use crate::{arp, icmpv4, icmpv6, ipv4, ipv6, ndp, tcp, udp};

mod mutator;

pub use mutator::{Mutator, repair_checksums};

/// Bytes of the longest header that is compared.
const HEADER_MAX: usize = 64;

/// How many packets a packet may quote in turn.
const DEPTH_MAX: u32 = 4;

/// Reads `bytes` as an Ethernet frame, and what it carries.
pub fn any_frame(bytes: &[u8]) {
    let (flow, sockets) = (FiveTuple::of_frame(bytes), FiveTuple::of_sockets(bytes));
    // They may differ in what only a first fragment has.
    assert!(sockets.is_none() || flow.is_some());
    let Ok(frame) = Frame::parse(bytes) else { return };
    assert_written(frame.header_len(), bytes, |out| frame.header().emit(out));
    match frame.ether_type() {
        EtherType::ARP => any_arp(frame.payload()),
        EtherType::IPV4 | EtherType::IPV6 => any_packet(frame.payload()),
        _ => {}
    }
}

/// Reads `bytes` as an IP packet of the family that they claim, and what it carries.
pub fn any_packet(bytes: &[u8]) {
    let _ = FiveTuple::of_packet(bytes);
    any_packet_at(bytes, 0);
}

/// Hands `bytes` to every parser, whatever they are.
pub fn every_parser(bytes: &[u8]) {
    any_frame(bytes);
    any_packet(bytes);
    any_arp(bytes);
    let pseudo = Pseudo::v4([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), Protocol::UDP);
    any_udp(bytes, pseudo);
    any_tcp(bytes, pseudo);
    any_icmpv4(bytes, 0);
    any_icmpv6(bytes, pseudo, 0);
    any_ipv4_options(bytes);
    any_tcp_options(bytes);
    assert!(ipv6::option::Options::new(bytes).items().count() <= bytes.len());
    let mut completed = bytes.to_vec();
    let start = bytes.first().copied().unwrap_or(0).into();
    checksum::complete(&mut completed, start, bytes.len() / 3);
    assert_eq!(completed.len(), bytes.len());
}

fn any_packet_at(bytes: &[u8], depth: u32) {
    if depth == DEPTH_MAX {
        return;
    }
    match bytes.first().map(|octet| octet >> 4) {
        Some(6) => any_ipv6(bytes, depth),
        _ => any_ipv4(bytes, depth),
    }
}

fn any_arp(bytes: &[u8]) {
    if let Ok(packet) = arp::Packet::parse(bytes) {
        assert_written(arp::LEN, bytes, |out| packet.emit(out));
    }
}

fn any_ipv4(bytes: &[u8], depth: u32) {
    let Ok(packet) = ipv4::Packet::parse_quoted(bytes) else {
        assert!(ipv4::Packet::parse(bytes).is_err(), "what cannot be quoted cannot be read");
        return;
    };
    any_ipv4_options(packet.options());
    if let Some(fragment) = packet.fragment() {
        let _ = fragment.end(packet.payload().len());
    }
    if let Ok(whole) = ipv4::Packet::parse(bytes) {
        let is_right = whole.verify().is_ok();
        let mut header = [0; ipv4::HEADER_LEN_MAX];
        whole.header().emit(&mut header);
        if !is_right {
            header[10..12].copy_from_slice(&bytes[10..12]);
        }
        assert_eq!(header[..whole.header_len()], bytes[..whole.header_len()]);
        any_change_in_place(bytes, is_right);
    }
    any_transport(packet.protocol(), packet.pseudo(), packet.payload(), depth);
}

/// A header that was right stays so, and none panics.
fn any_change_in_place(bytes: &[u8], was_right: bool) {
    let mut header = [0; ipv4::HEADER_LEN_MAX];
    let len = bytes.len().min(header.len());
    header[..len].copy_from_slice(&bytes[..len]);
    ipv4::decrement_hop_limit(&mut header);
    ipv4::swap_addresses(&mut header);
    let changed = ipv4::Packet::parse_quoted(&header).expect("lengths did not change");
    assert!(!was_right || changed.verify().is_ok());
}

fn any_ipv4_options(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(CAPACITY)];
    assert!(ipv4::option::items(bytes).count() <= bytes.len());
    assert!(ipv4::option::copied(bytes).len() <= bytes.len().next_multiple_of(4));
    let read = || ipv4::option::items(bytes).map_while(Result::ok);
    let area = ipv4::option::area(read()).expect("no more than fitted before");
    assert!(ipv4::option::items(area.as_bytes()).eq(read().map(Ok)));
}

fn any_ipv6(bytes: &[u8], depth: u32) {
    let Ok(packet) = ipv6::Packet::parse_quoted(bytes) else {
        assert!(ipv6::Packet::parse(bytes).is_err(), "what cannot be quoted cannot be read");
        return;
    };
    if let Ok(whole) = ipv6::Packet::parse(bytes) {
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
        assert_eq!(at + extension.len(), extensions.payload_at(), "{extension:?}");
        any_extension(extension, extensions.protocol(), &bytes[at..extensions.payload_at()]);
        is_whole &= !matches!(extension, Extension::Fragment(fragment) if !fragment.is_atomic());
        at = extensions.payload_at();
    }
    let protocol = extensions.protocol();
    if is_whole {
        any_transport(protocol, packet.pseudo(protocol), extensions.payload(), depth);
    }
}

fn any_extension(extension: Extension<'_>, next: Protocol, bytes: &[u8]) {
    match extension {
        Extension::HopByHop(options) | Extension::Destination(options) => {
            for item in options.items().map_while(Result::ok) {
                let _ = (item.action(), item.is_padding());
            }
        }
        Extension::Fragment(fragment) => {
            let _ = fragment.end(bytes.len());
            // Its reserved bits are not kept.
            return;
        }
        Extension::Routing { .. } | Extension::Authentication(_) => {}
    }
    let mut written = vec![0; bytes.len()];
    extension.emit(next, &mut written);
    assert_eq!(written, bytes);
}

fn any_transport(protocol: Protocol, pseudo: Pseudo, payload: &[u8], depth: u32) {
    match protocol {
        Protocol::UDP => any_udp(payload, pseudo),
        Protocol::TCP => any_tcp(payload, pseudo),
        Protocol::ICMPV4 => any_icmpv4(payload, depth),
        Protocol::ICMPV6 => any_icmpv6(payload, pseudo, depth),
        _ => {}
    }
}

fn any_udp(bytes: &[u8], pseudo: Pseudo) {
    let Ok(datagram) = udp::Datagram::parse(bytes) else { return };
    assert_written(udp::HEADER_LEN, bytes, |out| datagram.header().emit(out));
    let is_right = datagram.verify_v6(pseudo).is_ok();
    assert!(!is_right || datagram.verify_v4(pseudo).is_ok());
    let again = datagram.header().with_checksum(pseudo, Sum::of(datagram.payload()));
    assert!(!is_right || again == datagram.header());
}

fn any_tcp(bytes: &[u8], pseudo: Pseudo) {
    let Ok(segment) = tcp::Segment::parse(bytes) else { return };
    assert_written(segment.header_len(), bytes, |out| segment.header().emit(out));
    any_tcp_options(segment.options());
    let _ = segment.sequence_len();
    if segment.verify(pseudo).is_ok() {
        let payload = segment.payload();
        let again = segment.header().with_checksum(pseudo, payload.len(), Sum::of(payload));
        // Zero has two signs in one's complement (RFC 1624 §3): either is right.
        let difference = again.checksum.abs_diff(segment.header().checksum);
        assert!(difference == 0 || difference == 0xffff);
    }
}

fn any_tcp_options(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(CAPACITY)];
    assert!(tcp::option::items(bytes).count() <= bytes.len());
    let read = || tcp::option::items(bytes).map_while(Result::ok);
    let area = tcp::option::area(read()).expect("no more than fitted before");
    assert!(tcp::option::items(area.as_bytes()).eq(read().map(Ok)));
}

fn any_icmpv4(bytes: &[u8], depth: u32) {
    let Ok(packet) = icmpv4::Packet::parse(bytes) else { return };
    let _ = packet.verify();
    let message = packet.message();
    assert_eq!(message.kind(), bytes[0]);
    let mut written = [0; icmpv4::HEADER_LEN];
    message.emit(Sum::of(packet.body()), &mut written);
    let again = icmpv4::Packet::parse(&written).expect("whole");
    assert_eq!(again.message(), message);
    if message.is_error() {
        any_packet_at(packet.body(), depth + 1);
    }
}

fn any_icmpv6(bytes: &[u8], pseudo: Pseudo, depth: u32) {
    let Ok(packet) = icmpv6::Packet::parse(bytes) else { return };
    let _ = packet.verify(pseudo);
    let message = packet.message();
    assert_eq!(message.kind(), bytes[0]);
    let mut written = [0; icmpv6::HEADER_LEN];
    let body = packet.body();
    message.emit(pseudo, body.len(), Sum::of(body), &mut written);
    let again = icmpv6::Packet::parse(&written).expect("whole");
    assert_eq!(again.message(), message);
    if message.is_error() {
        any_packet_at(body, depth + 1);
    }
    if let Ok(message) = ndp::Message::parse(packet) {
        any_ndp(message, bytes, pseudo);
    }
}

fn any_ndp(message: ndp::Message<'_>, bytes: &[u8], pseudo: Pseudo) {
    assert_eq!(message.len(), bytes.len());
    let mut written = vec![0; message.len()];
    message.emit(pseudo, &mut written);
    let packet = icmpv6::Packet::parse(&written).and_then(|packet| packet.verify(pseudo));
    assert_eq!(packet.and_then(ndp::Message::parse), Ok(message));
    for item in message.options().items() {
        let mut out = vec![0; item.len()];
        item.emit(&mut out);
        let again = ndp::Options::new(&out).map(|options| options.items().next());
        assert_eq!(again, Ok(Some(item)));
    }
}

/// What `emit` writes must be the first `len` bytes of `bytes`.
fn assert_written(len: usize, bytes: &[u8], emit: impl FnOnce(&mut [u8])) {
    let mut out = [0; HEADER_MAX];
    emit(&mut out[..len]);
    assert_eq!(out[..len], bytes[..len], "what was read is written back");
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;

    use super::*;

    /// Some seconds with little optimisation.
    const FRAMES: usize = 10_000_000;

    #[test]
    fn ten_million_mutated_frames_break_nothing() {
        let seed = Seed(0x57_1fe5);
        println!("seed {seed:?}");
        let mut mutator = Mutator::new(seed);
        let mut parsed = 0;
        let mut bytes = Vec::new();
        for index in 0..FRAMES {
            mutator.next_frame(&mut bytes);
            any_frame(&bytes);
            if index % 16 == 0 {
                every_parser(&bytes);
            }
            parsed += usize::from(FiveTuple::of_frame(&bytes).is_some());
        }
        // Mutations that break every frame at its first header would test nothing behind it.
        assert!(parsed > FRAMES / 4, "{parsed} of {FRAMES} had a flow");
    }

    #[test]
    fn random_bytes_break_nothing() {
        use rand::Rng;
        let mut stream = Seed(1).stream("bytes");
        let mut bytes = vec![0; 256];
        for round in 0..100_000 {
            stream.fill_bytes(&mut bytes);
            bytes[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]][round % 4]);
            every_parser(&bytes[..round % 257]);
        }
    }
}
