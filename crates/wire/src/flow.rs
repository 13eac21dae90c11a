//! The flow of a packet: its five-tuple, and the keyed hash behind every table that a peer's packets look up.

use std::net::IpAddr;

use plumb_base::seed::Seed;
use rand::Rng;

use crate::ethernet::{EtherType, EthernetFrame};
use crate::ip::IpProtocol;
use crate::ipv6::extension::Ipv6Extension;
use crate::{ipv4, ipv6};

/// Who sends to whom, over which transport. Ports are 0 where there are none, and in fragments:
/// only the first has them, and all must belong to one flow. [`FiveTuple::of_sockets`] reads them there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple {
    /// Who sends.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// What the IP packet carries behind every extension header.
    pub protocol: IpProtocol,
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
}

impl FiveTuple {
    /// The flow of an Ethernet frame; `None` for other than IP, and for what is malformed.
    #[inline]
    pub fn of_frame(bytes: &[u8]) -> Option<Self> {
        Self::of_ethernet(bytes, PortScope::Whole)
    }

    /// The same with the ports of a datagram's first fragment too: between which sockets the whole
    /// of it is.
    #[inline]
    pub fn of_sockets(bytes: &[u8]) -> Option<Self> {
        Self::of_ethernet(bytes, PortScope::First)
    }

    #[inline]
    fn of_ethernet(bytes: &[u8], ports: PortScope) -> Option<Self> {
        let frame = EthernetFrame::parse(bytes).ok()?;
        match frame.ether_type() {
            EtherType::IPV4 => Self::v4(&ipv4::Ipv4Packet::parse(frame.payload()).ok()?, ports),
            EtherType::IPV6 => Self::v6(&ipv6::Ipv6Packet::parse(frame.payload()).ok()?, ports),
            _ => None,
        }
    }

    /// The flow of an IP packet of either family; `None` for what is malformed.
    #[inline]
    pub fn of_packet(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::v4(&ipv4::Ipv4Packet::parse(bytes).ok()?, PortScope::Whole),
            6 => Self::v6(&ipv6::Ipv6Packet::parse(bytes).ok()?, PortScope::Whole),
            _ => None,
        }
    }

    #[inline]
    fn v4(packet: &ipv4::Ipv4Packet<'_>, of: PortScope) -> Option<Self> {
        let field = packet.fragment_field();
        let has_ports = of.are_in(field.offset(), field.more());
        let payload = has_ports.then(|| packet.payload());
        let (source_port, destination_port) = ports(packet.protocol(), payload)?;
        let (source, destination) = (packet.source().into(), packet.destination().into());
        let protocol = packet.protocol();
        Some(Self { source, destination, protocol, source_port, destination_port })
    }

    #[inline]
    fn v6(packet: &ipv6::Ipv6Packet<'_>, of: PortScope) -> Option<Self> {
        let mut extensions = packet.extensions();
        let mut has_ports = true;
        for extension in extensions.by_ref() {
            if let Ipv6Extension::Fragment(fragment) = extension.ok()? {
                has_ports = of.are_in(fragment.offset, fragment.more);
            }
        }
        let protocol = extensions.protocol();
        let payload = has_ports.then(|| extensions.payload());
        let (source_port, destination_port) = ports(protocol, payload)?;
        let (source, destination) = (packet.source().into(), packet.destination().into());
        Some(Self { source, destination, protocol, source_port, destination_port })
    }

    /// The same for equal flows and different for others: what a keyed hash takes. IPv4 addresses
    /// are written as IPv6 ones mapped to them.
    #[inline]
    pub fn words(&self) -> [u64; 5] {
        let [a, b] = mapped_words(self.source);
        let [c, d] = mapped_words(self.destination);
        let ports = u64::from(self.source_port) << 16 | u64::from(self.destination_port);
        [a, b, c, d, u64::from(self.protocol.0) << 32 | ports]
    }
}

/// Which packets' ports count.
#[derive(Clone, Copy, Debug)]
enum PortScope {
    /// Those of whole datagrams.
    Whole,
    /// Those of first fragments too.
    First,
}

impl PortScope {
    /// Whether a packet has them: what is at the front of a datagram, and, for some, all of it.
    #[inline]
    const fn are_in(self, offset: u16, more: bool) -> bool {
        offset == 0 && (!more || matches!(self, Self::First))
    }
}

#[inline]
fn mapped_words(address: IpAddr) -> [u64; 2] {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    halves(address.octets())
}

/// The ports at the front of a transport's header; `payload` is `None` where they do not count.
#[inline]
fn ports(protocol: IpProtocol, payload: Option<&[u8]>) -> Option<(u16, u16)> {
    match (protocol, payload) {
        (IpProtocol::UDP | IpProtocol::TCP, Some(payload)) => {
            let &[a, b, c, d] = payload.first_chunk()?;
            Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
        }
        _ => Some((0, 0)),
    }
}

/// A key of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SipKey {
    k0: u64,
    k1: u64,
}

impl SipKey {
    /// The key that a seed gives to `label`.
    pub fn new(seed: Seed, label: &str) -> Self {
        let mut stream = seed.stream(label);
        Self { k0: stream.next_u64(), k1: stream.next_u64() }
    }

    /// The hash of `N` words, as SipHash-1-3 of their `8 × N` little-endian bytes.
    #[inline]
    pub fn hash<const N: usize>(self, words: [u64; N]) -> u64 {
        let mut state = SipState {
            v0: self.k0 ^ 0x736f_6d65_7073_6575,
            v1: self.k1 ^ 0x646f_7261_6e64_6f6d,
            v2: self.k0 ^ 0x6c79_6765_6e65_7261,
            v3: self.k1 ^ 0x7465_6462_7974_6573,
        };
        for word in words {
            state.absorb(word);
        }
        // The last block holds the length modulo 256 in its top byte, and here nothing else.
        state.absorb(((8 * N) as u64) << 56);
        state.v2 ^= 0xff;
        state.round();
        state.round();
        state.round();
        state.v0 ^ state.v1 ^ state.v2 ^ state.v3
    }
}

/// Sixteen bytes as two words.
#[inline]
pub fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let (words, _) = bytes.as_chunks::<8>();
    [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1])]
}

/// An address of either family as two words; an IPv4 one is the low half of the second.
#[inline]
pub fn address_words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [0, u64::from(address.to_bits())],
        IpAddr::V6(address) => halves(address.octets()),
    }
}

struct SipState {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl SipState {
    #[inline]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hasher};

    /// The standard library's hasher is SipHash-1-3 with a key of zeros.
    fn reference(words: &[u64]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for word in words {
            hasher.write(&word.to_le_bytes());
        }
        hasher.finish()
    }

    #[test]
    fn it_is_the_hash_that_the_standard_library_computes() {
        let zero = SipKey { k0: 0, k1: 0 };
        let mut stream = Seed(1).stream("words");
        for _ in 0..1_000 {
            let words: [u64; 5] = std::array::from_fn(|_| stream.next_u64());
            assert_eq!(zero.hash([]), reference(&[]));
            assert_eq!(zero.hash([words[0]]), reference(&words[..1]));
            assert_eq!(zero.hash([words[0], words[1]]), reference(&words[..2]));
            assert_eq!(zero.hash(words), reference(&words));
        }
    }

    #[test]
    fn another_key_gives_another_hash() {
        let (one, two) = (SipKey::new(Seed(1), "a"), SipKey::new(Seed(1), "b"));
        assert_ne!(one, two);
        assert_ne!(one.hash([7]), two.hash([7]));
        assert_eq!(one.hash([7]), SipKey::new(Seed(1), "a").hash([7]));
    }
}
