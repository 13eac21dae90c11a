//! Frames that are almost valid: valid ones of every kind, mutated, half of them with repaired checksums.

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_base::seed::{RandomStream, Seed};
use plumb_wire::checksum::PseudoHeader;
use plumb_wire::compose::{self, LinkTemplate, PacketTemplate};
use plumb_wire::ethernet::{EtherType, EthernetFrame, EthernetTag, EthernetTags, MacAddr};
use plumb_wire::icmp::{IcmpMessage, parameter_problem, unreachable_v4, unreachable_v6};
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv6::extension::Ipv6Extension;
use plumb_wire::option::OptionArea;
use plumb_wire::{ipv4, ipv6, ndp, tcp, udp};
use rand::Rng;

/// The longest frame made.
const FRAME_MAX: usize = 2_048;

/// Values at the edges of what length fields, types and offsets mean.
const EDGES: [u16; 20] = [
    0, 1, 2, 3, 4, 5, 7, 8, 19, 20, 28, 39, 40, 60, 0x7fff, 0x8000, 0xff00, 0xfff8, 0xfffe, 0xffff,
];

/// An endless, repeatable supply of frames.
#[derive(Debug)]
pub struct FrameMutator {
    stream: RandomStream,
    corpus: Vec<Vec<u8>>,
}

impl FrameMutator {
    /// Frames between two made-up hosts: the same ones for the same seed.
    pub fn new(seed: Seed) -> Self {
        let here = MacAddr([2, 0, 0, 0, 0, 1]);
        let there = MacAddr([2, 0, 0, 0, 0, 2]);
        let v4 = PacketTemplate::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let v6 = PacketTemplate::new(
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        );
        let link = LinkTemplate::new(here, there);
        Self { stream: seed.stream("mutator"), corpus: corpus(v4.over(link), v6.over(link)) }
    }

    /// Puts the next frame into `out`, in place of what is there.
    pub fn next_frame(&mut self, out: &mut Vec<u8>) {
        out.clear();
        let index = self.below(self.corpus.len());
        out.extend(&self.corpus[index]);
        let changes = [0, 1, 1, 1, 2, 2, 3, 6][self.below(8)];
        for _ in 0..changes {
            self.change(out);
        }
        out.truncate(FRAME_MAX);
        if self.below(2) == 0 {
            repair_checksums(out);
        }
    }

    fn change(&mut self, frame: &mut Vec<u8>) {
        if frame.is_empty() {
            frame.push(0);
        }
        let at = self.place(frame.len());
        match self.below(10) {
            0 | 1 => frame[at] ^= 1 << self.below(8),
            2 => frame[at] = self.stream.next_u64().to_be_bytes()[0],
            3 => frame[at] = frame[at].wrapping_add([1, 255, 4, 252][self.below(4)]),
            4 | 5 => {
                let edge = EDGES[self.below(EDGES.len())].to_be_bytes();
                for (byte, edge) in frame[at..].iter_mut().zip(edge) {
                    *byte = edge;
                }
            }
            6 => frame.truncate(at),
            7 => {
                let more = self.below(64);
                frame.extend((0..more).map(|_| 0xa5));
            }
            8 => {
                // The same headers or options once more.
                let end = frame.len().min(at + [4, 8, 20, 40][self.below(4)]);
                let again = frame[at..end].to_vec();
                frame.splice(at..at, again);
            }
            _ => {
                // Another frame's end, from the same place on.
                let index = self.below(self.corpus.len());
                let other = self.corpus[index].get(at..).unwrap_or_default();
                frame.truncate(at);
                frame.extend(other);
            }
        }
    }

    /// A place in a frame of this length: mostly in its headers.
    fn place(&mut self, len: usize) -> usize {
        let headers = if self.below(8) == 0 { len } else { len.min(96) };
        self.below(headers)
    }

    fn below(&mut self, end: usize) -> usize {
        // The bias of a modulus of 64 random bits is of no importance here.
        let draw = self.stream.next_u64() % u64::try_from(end).expect("fits");
        usize::try_from(draw).expect("below a usize")
    }
}

/// Gives an Ethernet frame the checksums that it should have, as deep as it can be read.
pub fn repair_checksums(frame: &mut [u8]) {
    let Ok(read) = EthernetFrame::parse(frame) else { return };
    let (at, ether_type) = (read.header_len(), read.ether_type());
    let packet = &mut frame[at..];
    match ether_type {
        EtherType::IPV4 => repair_v4(packet),
        EtherType::IPV6 => repair_v6(packet),
        _ => {}
    }
}

fn repair_v4(packet: &mut [u8]) {
    let Ok(read) = ipv4::Ipv4Packet::parse(packet) else { return };
    let (header, header_len, pseudo) = (read.header(), read.header_len(), read.pseudo());
    let len = header_len + read.payload().len();
    header.emit(packet);
    if !header.fragment.is_fragment() {
        repair_transport(header.protocol, Some(pseudo), &mut packet[header_len..len]);
    }
}

fn repair_v6(packet: &mut [u8]) {
    let Ok(read) = ipv6::Ipv6Packet::parse(packet) else { return };
    let mut extensions = read.extensions();
    for extension in extensions.by_ref() {
        match extension {
            Err(_) => return,
            Ok(Ipv6Extension::Fragment(fragment)) if !fragment.is_atomic() => return,
            Ok(_) => {}
        }
    }
    let protocol = extensions.protocol();
    let (at, pseudo) = (extensions.payload_at(), read.pseudo(protocol));
    let end = ipv6::HEADER_LEN + read.payload().len();
    repair_transport(protocol, Some(pseudo), &mut packet[at..end]);
}

fn repair_transport(protocol: IpProtocol, pseudo: Option<PseudoHeader>, segment: &mut [u8]) {
    let (offset, pseudo) = match protocol {
        IpProtocol::UDP => (6, pseudo),
        IpProtocol::TCP => (16, pseudo),
        IpProtocol::ICMPV6 => (2, pseudo),
        IpProtocol::ICMPV4 => (2, None),
        _ => return,
    };
    let partial = pseudo.map_or(0, |pseudo| pseudo.partial(segment.len()));
    if let Some(field) = segment.get_mut(offset..offset + 2) {
        field.copy_from_slice(&partial.to_be_bytes());
        plumb_wire::checksum::complete(segment, 0, offset);
    }
}

/// One valid frame or more of every kind that is parsed.
fn corpus(v4: PacketTemplate, v6: PacketTemplate) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for path in [v4, v6] {
        both_families(path, &mut frames);
    }
    only_v4(v4, &mut frames);
    only_v6(v6, &mut frames);
    frames
}

fn both_families(path: PacketTemplate, frames: &mut Vec<Vec<u8>>) {
    // MSS, SACK permitted, timestamps and window scale, as Linux sends them.
    let options = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 1, 3, 3, 7];
    let options = OptionArea::new(&options).expect("20 bytes");
    let syn =
        tcp::TcpHeader { source_port: 9, destination_port: 80, options, ..Default::default() };
    let data: Vec<u8> = (0..200).collect();
    frames.extend([
        path.udp(7, 7, b"hello"),
        path.udp(1_000, 7, &data),
        path.tcp(tcp::TcpHeader { flags: tcp::TcpFlags::SYN, ..syn }, &[]),
        path.tcp(tcp::TcpHeader { flags: tcp::TcpFlags::ACK, ..syn }, b"data"),
        path.echo_request(1, 2, b"abcdefgh"),
        path.echo_reply(1, 2, b"abcdefgh"),
        path.packet(IpProtocol::NO_NEXT, &[]),
    ]);
    let datagram = PacketTemplate { link: None, ..path }.udp(7, 7, &data);
    let payload = &datagram[datagram.len() - data.len() - udp::HEADER_LEN..];
    frames.extend(path.fragments(77, IpProtocol::UDP, payload, 80));
    let link = path.link.unwrap_or(LinkTemplate::new(MacAddr::UNSPECIFIED, MacAddr::BROADCAST));
    let single = EthernetTags::Single(EthernetTag::vlan(5));
    let outer = EthernetTag { kind: EtherType::PROVIDER_VLAN, control: 7 };
    let double = EthernetTags::Double { outer, inner: EthernetTag::vlan(5) };
    for tags in [single, double] {
        frames.push(path.over(LinkTemplate { tags, ..link }).udp(1, 2, b"tagged"));
    }
}

fn only_v4(path: PacketTemplate, frames: &mut Vec<Vec<u8>>) {
    // Router alert, no operation, record route and loose route.
    let route = [11, 12, 10, 0, 0, 1, 10, 0, 0, 2];
    let options = [&[148, 4, 0, 0, 1, 7][..], &route, &[131], &route].concat();
    let options = OptionArea::new(&options).expect("27 bytes");
    frames.push(PacketTemplate { options, ..path }.udp(1, 2, b"options"));
    let quoted = PacketTemplate { link: None, ..path }.reversed().udp(7, 1_000, b"12345678");
    let redirect = IcmpMessage::Other { kind: 5, code: 1, rest: [192, 0, 2, 254] };
    for message in [
        IcmpMessage::Unreachable { code: unreachable_v4::PORT },
        IcmpMessage::PacketTooBig { mtu: 1_400 },
        IcmpMessage::TimeExceeded { code: 0 },
        IcmpMessage::ParameterProblem { code: 0, pointer: 20 },
        redirect,
    ] {
        frames.push(path.icmp(message, &quoted));
    }
    if let (Some(link), std::net::IpAddr::V4(source), std::net::IpAddr::V4(target)) =
        (path.link, path.source, path.destination)
    {
        frames.push(compose::arp_request(link.source, source, target));
        frames.push(compose::arp_reply(link.source, source, link.destination, target));
    }
}

fn only_v6(path: PacketTemplate, frames: &mut Vec<Vec<u8>>) {
    let udp = [0, 7, 0, 7, 0, 8, 0, 0];
    let alert: (_, &[u8]) = (IpProtocol::HOP_BY_HOP, &[0, 5, 2, 0, 0, 1, 0]);
    let padding: (_, &[u8]) = (IpProtocol::DESTINATION, &[0, 1, 4, 0, 0, 0, 0]);
    let route = [&[2, 0, 0][..], &[1; 20]].concat();
    let atomic: (_, &[u8]) = (IpProtocol::FRAGMENT, &[0, 0, 0, 0, 0, 0, 5]);
    let authenticated = [&[4][..], &[3; 22]].concat();
    let all = [
        alert,
        padding,
        (IpProtocol::ROUTING, &route[..]),
        atomic,
        (IpProtocol::AUTHENTICATION, &authenticated[..]),
        padding,
    ];
    for extensions in [&all[..1], &all] {
        let mut frame = path.extended(extensions, IpProtocol::UDP, &udp);
        repair_checksums(&mut frame);
        frames.push(frame);
    }
    let quoted = PacketTemplate { link: None, ..path }.reversed().udp(7, 1_000, b"12345678");
    for message in [
        IcmpMessage::Unreachable { code: unreachable_v6::PORT },
        IcmpMessage::PacketTooBig { mtu: 1_280 },
        IcmpMessage::TimeExceeded { code: 0 },
        IcmpMessage::ParameterProblem { code: parameter_problem::NEXT_HEADER, pointer: 6 },
    ] {
        frames.push(path.icmp(message, &quoted));
    }
    let (std::net::IpAddr::V6(source), std::net::IpAddr::V6(target), Some(link)) =
        (path.source, path.destination, path.link)
    else {
        return;
    };
    frames.push(compose::neighbor_solicitation(link.source, source, target));
    let (there, here) = (link.destination, link.source);
    frames.push(compose::neighbor_advertisement(there, target, here, source));
    // A prefix of 64 bits, on link and autonomous, with its lifetimes (RFC 4861 §4.6.2), and an MTU of 1,500.
    let prefix = [3, 4, 64, 0xc0, 0, 0x27, 0x8d, 0, 0, 9, 0x3a, 0x80, 0, 0, 0, 0];
    let prefix = [prefix, source.octets()].concat();
    let options = [&prefix[..], &[5, 1, 0, 0, 0, 0, 5, 0xdc, 1, 1], &here.0].concat();
    let advertisement = [&[0; 8], &options[..]].concat();
    let redirect = [&source.octets()[..], &target.octets(), &options].concat();
    let path = PacketTemplate { hop_limit: ndp::HOP_LIMIT, ..path };
    for (kind, rest, body) in
        [(133, [0; 4], &[][..]), (134, [64, 0, 7, 8], &advertisement), (137, [0; 4], &redirect)]
    {
        frames.push(path.icmp(IcmpMessage::Other { kind, code: 0, rest }, body));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_the_same_frames_again() {
        let draw = |seed| {
            let (mut mutator, mut out) = (FrameMutator::new(Seed(seed)), Vec::new());
            (0..100).map(|_| (mutator.next_frame(&mut out), out.clone()).1).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn repairing_what_is_right_changes_nothing() {
        for frame in FrameMutator::new(Seed(0)).corpus {
            let mut repaired = frame.clone();
            repair_checksums(&mut repaired);
            assert_eq!(repaired, frame);
        }
    }
}
