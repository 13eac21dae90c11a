//! Header prediction: a datagram or segment whose headers equal those of an earlier one, save what varies.
//!
//! As in Jacobson's "4BSD header prediction" (1990): what was found out about a flow (the frame is for
//! this host, its source is valid, whose socket it is) holds for every frame with the same bytes until
//! the host's configuration changes. Lengths and checksums are checked each time; everything else takes the
//! general path.

use std::net::SocketAddr;

use plumb_wire::checksum::PseudoHeader;
use plumb_wire::ethernet::EtherType;
use plumb_wire::ip::{Ecn, IpProtocol};
use plumb_wire::machine::{Medium, PortId};
use plumb_wire::packet::{ChecksumState, Packet};
use plumb_wire::{ethernet, ipv4, ipv6, udp};

use crate::ip::IpIngress;
use crate::tcp::TcpId;
use crate::udp::{DatagramEndpoints, UdpId};

/// Where the transport header begins over IPv4 without options, behind Ethernet's.
const TRANSPORT_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
/// Where the transport header begins over IPv6 without extension headers, behind Ethernet's.
const TRANSPORT_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;

/// Where an IPv4 header names what it carries, and an IPv6 header what comes next.
const PROTOCOL_V4: usize = ethernet::HEADER_LEN + 9;
const PROTOCOL_V6: usize = ethernet::HEADER_LEN + 6;

/// Where Ethernet's header says what it carries.
const ETHER_TYPE: usize = 12;

/// Bytes compared over IPv4: all headers up to the ports, in whole words.
const COMPARED_V4: usize = 48;
/// Bytes compared over IPv6.
const COMPARED_V6: usize = 64;

/// Flows remembered of each family; a power of two.
const SLOTS: usize = 16;

/// The flows seen lately.
#[derive(Debug)]
pub(crate) struct HeaderPredictions {
    v4: Box<[Option<HeaderPrediction<COMPARED_V4>>; SLOTS]>,
    v6: Box<[Option<HeaderPrediction<COMPARED_V6>>; SLOTS]>,
}

/// The headers of a flow's frames, and their flow.
#[derive(Clone, Copy, Debug)]
struct HeaderPrediction<const N: usize> {
    /// The bits that are the same in every frame, zero elsewhere.
    same: [u8; N],
    flow: PredictedFlow,
}

/// Whose a flow is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlowOwner {
    Udp(UdpId),
    Tcp(TcpId),
}

/// A flow, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredictedFlow {
    generation: u64,
    pub(crate) ends: DatagramEndpoints,
    pub(crate) owner: FlowOwner,
    pub(crate) ecn: Ecn,
    pub(crate) pseudo: PseudoHeader,
}

/// The first bytes of a frame that may become a prediction. A bare IP packet is taken for a frame whose addresses are zero.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FrameHead {
    V4([u8; COMPARED_V4]),
    V6([u8; COMPARED_V6]),
}

impl FrameHead {
    /// Of a frame as plain as can be: Ethernet if it is there, IP and transport header and nothing between them.
    #[inline]
    pub fn of(ingress: &IpIngress, bytes: &[u8]) -> Option<Self> {
        // No other sequence of headers puts a transport header there.
        match (ingress.at, ingress.source.is_ipv4()) {
            (TRANSPORT_V4, true) => head_of(Medium::Ethernet, bytes).map(Self::V4),
            (TRANSPORT_V6, false) => head_of(Medium::Ethernet, bytes).map(Self::V6),
            (ipv4::HEADER_LEN, true) => head_of(Medium::Ip, bytes).map(Self::V4),
            (ipv6::HEADER_LEN, false) => head_of(Medium::Ip, bytes).map(Self::V6),
            _ => None,
        }
    }

    /// Source and destination port.
    fn ports(&self) -> [u16; 2] {
        let [a, b, c, d] = match self {
            Self::V4(head) => *head[TRANSPORT_V4..].first_chunk().expect("compared as well"),
            Self::V6(head) => *head[TRANSPORT_V6..].first_chunk().expect("compared as well"),
        };
        [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
    }
}

/// The first bytes of a frame, or of a bare IP packet and a link header before it.
#[inline]
fn head_of<const N: usize>(medium: Medium, bytes: &[u8]) -> Option<[u8; N]> {
    if medium == Medium::Ethernet {
        return bytes.first_chunk().copied();
    }
    let mut head = [0; N];
    let packet = &mut head[ethernet::HEADER_LEN..];
    packet.copy_from_slice(bytes.get(..packet.len())?);
    let is_ipv4 = bytes[0] >> 4 == 4;
    let ether_type = if is_ipv4 { EtherType::IPV4 } else { EtherType::IPV6 };
    head[ETHER_TYPE..ethernet::HEADER_LEN].copy_from_slice(&ether_type.0.to_be_bytes());
    Some(head)
}

impl Default for HeaderPredictions {
    fn default() -> Self {
        Self { v4: Box::new([None; SLOTS]), v6: Box::new([None; SLOTS]) }
    }
}

impl HeaderPredictions {
    /// The flow that a frame belongs to, and where in the frame its datagram or segment begins and ends. The checksum of a datagram is
    /// verified, that of a segment is not.
    #[inline]
    pub fn predict(
        &self,
        generation: u64,
        (port, medium): (PortId, Medium),
        packet: &Packet,
        bytes: &[u8],
    ) -> Option<(&PredictedFlow, usize, usize)> {
        if packet.meta.segments.is_some() {
            return None;
        }
        let head: [u8; COMPARED_V4] = head_of(medium, bytes)?;
        let is_ipv4 = head[ETHER_TYPE] == 0x08;
        let protocol = head[if is_ipv4 { PROTOCOL_V4 } else { PROTOCOL_V6 }];
        if protocol != IpProtocol::UDP.0 && protocol != IpProtocol::TCP.0 {
            return None;
        }
        let link = if medium == Medium::Ethernet { ethernet::HEADER_LEN } else { 0 };
        let (flow, at, payload) = if is_ipv4 {
            let flow = self.v4[slot_v4(&head)].as_ref()?.flow(&SAME_V4, &head)?;
            let ip = ipv4::Ipv4Packet::parse(&bytes[link..]).ok()?.verify().ok()?;
            (flow, link + ipv4::HEADER_LEN, ip.payload())
        } else {
            let head: [u8; COMPARED_V6] = head_of(medium, bytes)?;
            let flow = self.v6[slot_v6(&head)].as_ref()?.flow(&SAME_V6, &head)?;
            let ip = ipv6::Ipv6Packet::parse(&bytes[link..]).ok()?;
            (flow, link + ipv6::HEADER_LEN, ip.payload())
        };
        if flow.generation != generation || flow.ends.port != port {
            return None;
        }
        if let FlowOwner::Tcp(_) = flow.owner {
            return Some((flow, at, at + payload.len()));
        }
        let datagram = udp::UdpDatagram::parse(payload).ok()?;
        if packet.meta.checksum == ChecksumState::Plain {
            // Stricter than IPv4: one without a checksum takes the general path.
            datagram.verify_v6(flow.pseudo).ok()?;
        }
        Some((flow, at, at + udp::HEADER_LEN + datagram.payload().len()))
    }

    /// Remembers the flow of a frame that reached a socket.
    pub fn learn(
        &mut self,
        generation: u64,
        head: &FrameHead,
        ingress: &IpIngress,
        owner: FlowOwner,
    ) {
        let [source, destination] = head.ports();
        let ends = DatagramEndpoints {
            local: SocketAddr::new(ingress.destination, destination),
            remote: SocketAddr::new(ingress.source, source),
            port: ingress.port,
        };
        let pseudo = PseudoHeader::between(ingress.source, ingress.destination, ingress.protocol);
        let Some(pseudo) = pseudo else { return };
        let flow = PredictedFlow { generation, ends, owner, ecn: ingress.ecn, pseudo };
        match head {
            FrameHead::V4(head) => {
                let same = std::array::from_fn(|at| head[at] & SAME_V4[at]);
                self.v4[slot_v4(head)] = Some(HeaderPrediction { same, flow });
            }
            FrameHead::V6(head) => {
                let same = std::array::from_fn(|at| head[at] & SAME_V6[at]);
                self.v6[slot_v6(head)] = Some(HeaderPrediction { same, flow });
            }
        }
    }
}

impl<const N: usize> HeaderPrediction<N> {
    #[inline]
    fn flow(&self, mask: &[u8; N], head: &[u8; N]) -> Option<&PredictedFlow> {
        let words = |bytes| <[u8]>::as_chunks::<8>(bytes).0.iter().copied().map(u64::from_ne_bytes);
        let pairs = words(head).zip(words(mask)).zip(words(&self.same));
        let differs = pairs.fold(0, |differs, ((head, mask), same)| differs | (head & mask) ^ same);
        (differs == 0).then_some(&self.flow)
    }
}

/// Bits that are the same in every frame of a flow over IPv4: all but total length,
/// identification, "don't fragment", time to live, header checksum, and what follows the ports.
const SAME_V4: [u8; COMPARED_V4] = {
    let mut mask = without([0xff; COMPARED_V4], &[16, 17, 18, 19, 22, 24, 25], 38);
    mask[20] = 0b1011_1111;
    mask
};

/// The same over IPv6: all but flow label, payload length, hop limit, and what follows the ports.
const SAME_V6: [u8; COMPARED_V6] = {
    let mut mask = without([0xff; COMPARED_V6], &[16, 17, 18, 19, 21], 58);
    mask[15] = 0xf0;
    mask
};

const fn without<const N: usize>(mut mask: [u8; N], bytes: &[usize], from: usize) -> [u8; N] {
    let mut index = 0;
    while index < bytes.len() {
        mask[bytes[index]] = 0;
        index += 1;
    }
    let mut at = from;
    while at < N {
        mask[at] = 0;
        at += 1;
    }
    mask
}

// By the low octets of the source's address and port. Flows that share a slot take the general path.
#[inline]
fn slot_v4(head: &[u8; COMPARED_V4]) -> usize {
    usize::from(head[29] ^ head[35]) % SLOTS
}

#[inline]
fn slot_v6(head: &[u8; COMPARED_V6]) -> usize {
    usize::from(head[37] ^ head[55]) % SLOTS
}
