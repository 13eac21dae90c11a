//! Internet checksums of whole packets: pseudo-headers, updates in place, checksums left unfinished.
//!
//! Left out: the sum itself (`plumb-copy`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_copy::Sum16;

use crate::ip::IpProtocol;

/// The pseudo-header without its length: both addresses and the protocol, summed.
///
/// RFC 9293 §3.1 for IPv4, RFC 8200 §8.1 for IPv6; the length is that of the transport header and
/// its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PseudoHeader(u64);

impl PseudoHeader {
    /// Between two IPv4 addresses.
    #[inline]
    pub fn v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: IpProtocol) -> Self {
        let sum = u64::from(source.to_bits()) + u64::from(destination.to_bits());
        Self(sum + u64::from(protocol.0))
    }

    /// Between two IPv6 addresses.
    #[inline]
    pub fn v6(source: Ipv6Addr, destination: Ipv6Addr, protocol: IpProtocol) -> Self {
        let sum = words_v6(source) + words_v6(destination);
        Self(sum + u64::from(protocol.0))
    }

    /// Between two addresses of one family; `None` when they are not.
    #[inline]
    pub fn between(source: IpAddr, destination: IpAddr, protocol: IpProtocol) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Self::v4(source, destination, protocol))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Self::v6(source, destination, protocol))
            }
            _ => None,
        }
    }

    /// The sum of the whole pseudo-header, for a transport header and payload of `len` bytes.
    #[inline]
    pub fn sum(self, len: usize) -> Sum16 {
        Sum16::ZERO.add_word(fold(self.0 + len as u64))
    }

    /// The sum of the whole pseudo-header and of these words, which are few.
    #[inline]
    pub(crate) fn sum_with<const N: usize>(self, len: usize, words: [u32; N]) -> Sum16 {
        let words: u64 = words.into_iter().map(u64::from).sum();
        Sum16::ZERO.add_word(fold(self.0 + len as u64 + words))
    }

    /// The checksum over `len` bytes of transport header and payload whose sum, with a zero in the
    /// checksum's place, is `sum`.
    #[inline]
    pub fn checksum(self, len: usize, sum: Sum16) -> u16 {
        (self.sum(len) + sum).finish()
    }

    /// Whether transport header and payload, checksum included, sum to what they should.
    #[inline]
    pub fn verifies(self, segment: &[u8]) -> bool {
        self.checksum(segment.len(), Sum16::of(segment)) == 0
    }

    /// What stands in the checksum's place while the checksum is partial: the pseudo-header's sum,
    /// folded but not complemented (Linux's CHECKSUM_PARTIAL; virtio 1.2 §5.1.6.2).
    #[inline]
    pub fn partial(self, len: usize) -> u16 {
        self.sum(len).folded()
    }
}

/// Sums from `start` to the end and stores the complement at `start + offset`: the rest of a
/// [`partial`](PseudoHeader::partial) checksum. A zero is stored as 0xffff, as Linux does for every
/// protocol: both are zero, and in UDP only one means "none".
///
/// Returns whether there was a field to complete: not when it lies beyond the end.
#[inline]
pub fn complete(packet: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(summed) = packet.get_mut(start..) else { return false };
    let checksum = nonzero(Sum16::of(summed).finish());
    let Some(field) = offset.checked_add(2).and_then(|end| summed.get_mut(offset..end)) else {
        return false;
    };
    field.copy_from_slice(&checksum.to_be_bytes());
    true
}

/// The checksum after one 16-bit word of what it covers changed from `old` to `new`:
/// RFC 1624 eqn. 3, HC' = ~(~HC + ~m + m').
#[inline]
pub fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// A transport checksum that is not taken for "none": 0 becomes 0xffff (RFC 768).
#[inline]
pub const fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// The folded sum of an IP header of 20 bytes, whose words are few enough to be added up in place.
// In the order of a little-endian processor, which RFC 1071 §2 (B) allows, and swapped at the end.
#[inline]
pub(crate) fn sum_header(header: &[u8; 20]) -> u16 {
    let (words, last) = header.as_chunks::<8>();
    let (sum, carry) = u64::from_le_bytes(words[0]).overflowing_add(u64::from_le_bytes(words[1]));
    let last = u32::from_le_bytes(*last.first_chunk().expect("four bytes are left"));
    let (sum, again) = sum.overflowing_add(u64::from(last) + u64::from(carry));
    let sum = sum + u64::from(again);
    fold(sum).swap_bytes()
}

#[inline]
fn words_v6(address: Ipv6Addr) -> u64 {
    let bits = address.octets();
    let (words, _) = bits.as_chunks::<4>();
    words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum()
}

/// All carries added in (RFC 1071 §2): both halves of x + rotate(x) are the sum of x's halves, and
/// the upper one got the carry.
#[inline]
fn fold(sum: u64) -> u16 {
    let wide = sum.wrapping_add(sum.rotate_left(32));
    let half = (wide >> 32) as u32;
    let half = half.wrapping_add(half.rotate_left(16));
    (half >> 16) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1624_section_4_is_updated_to_zero() {
        assert_eq!(updated(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_partial_checksum_completed_is_the_whole_one() {
        let source = Ipv4Addr::new(192, 0, 2, 1);
        let pseudo = PseudoHeader::v4(source, Ipv4Addr::new(192, 0, 2, 2), IpProtocol::UDP);
        let mut segment = vec![0x30, 0x39, 0, 7, 0, 13, 0, 0, b'h', b'e', b'l', b'l', b'o'];
        let whole = nonzero(pseudo.checksum(segment.len(), Sum16::of(&segment)));
        segment[6..8].copy_from_slice(&pseudo.partial(13).to_be_bytes());
        assert!(complete(&mut segment, 0, 6));
        assert_eq!(segment[6..8], whole.to_be_bytes());
        assert!(pseudo.verifies(&segment));
    }

    #[test]
    fn a_partial_checksum_beyond_the_packet_is_left_alone() {
        let mut packet = [1, 2, 3, 4];
        assert!(!complete(&mut packet, 5, 0));
        assert!(!complete(&mut packet, 0, 3));
        assert!(!complete(&mut packet, 0, usize::MAX));
        assert_eq!(packet, [1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn an_update_equals_a_new_sum(
            mut bytes in proptest::collection::vec(any::<u8>(), 1..40),
            at in any::<prop::sample::Index>(),
            new in any::<u16>(),
        ) {
            if bytes.len() % 2 == 1 {
                bytes.push(0);
            }
            // A sum of nothing but zeros is the one whose zero an update may give the other sign.
            bytes.extend([0, 1]);
            let at = at.index(bytes.len() / 2 - 1) * 2;
            let before = Sum16::of(&bytes).finish();
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(updated(before, old, new), Sum16::of(&bytes).finish());
        }

        #[test]
        fn pseudo_headers_sum_as_their_bytes_do(
            source in any::<[u8; 16]>(), destination in any::<[u8; 16]>(), len in 0..0x2_0000_usize,
        ) {
            let pseudo = PseudoHeader::v6(source.into(), destination.into(), IpProtocol::TCP);
            let mut bytes = [source, destination].concat();
            bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
            bytes.extend([0, 0, 0, 6]);
            prop_assert_eq!(pseudo.sum(len).finish(), Sum16::of(&bytes).finish());
            let (a, b): ([u8; 4], [u8; 4]) =
                (source[..4].try_into().unwrap(), destination[..4].try_into().unwrap());
            let pseudo = PseudoHeader::v4(a.into(), b.into(), IpProtocol::TCP);
            let mut bytes = [a, b].concat();
            bytes.extend([0, 6]);
            bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
            prop_assert_eq!(pseudo.sum(len).finish(), Sum16::of(&bytes).finish());
        }
    }
}
