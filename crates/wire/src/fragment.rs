//! What a fragment says of its place in a datagram, for both families.
//!
//! RFC 791 §3.2, RFC 8200 §4.5. Left out: putting datagrams together, and taking them apart.

use crate::malformed::FormatError;
use crate::protocol::IpProtocol;

/// Bytes of an IPv6 fragment header.
pub const HEADER_LEN: usize = 8;

/// The most bytes that fragments may add up to: what a 16-bit length can say.
const DATAGRAM_MAX: usize = 65_535;

/// The place of one fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Which datagram, among those of one source, destination (and protocol, in IPv4); 16 bits in
    /// IPv4.
    pub identification: u32,
    /// Where its data begin in the datagram's payload, in bytes; a multiple of 8.
    pub offset: u16,
    /// Whether more follow.
    pub more: bool,
}

impl Fragment {
    /// Whether it is a whole datagram (RFC 6946: an atomic fragment).
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Where its `len` bytes of data end in the datagram's payload.
    ///
    /// # Errors
    /// [`FormatError::Fragment`] when they are none, are not a multiple of 8 though more follow, or
    /// end beyond what a length field can say.
    #[inline]
    pub fn end(&self, len: usize) -> Result<usize, FormatError> {
        let end = usize::from(self.offset) + len;
        if len == 0 || end > DATAGRAM_MAX || (self.more && !len.is_multiple_of(8)) {
            return Err(FormatError::Fragment);
        }
        Ok(end)
    }

    /// Writes an IPv6 fragment header, before data of `next`, to the first [`HEADER_LEN`] bytes of
    /// `out`. Panics when `out` is shorter.
    #[inline]
    pub fn emit_v6(&self, next: IpProtocol, out: &mut [u8]) {
        let out: &mut [u8; HEADER_LEN] = out.first_chunk_mut().expect("room for the header");
        let [a, b] = (self.offset & !7 | u16::from(self.more)).to_be_bytes();
        let [c, d, e, f] = self.identification.to_be_bytes();
        *out = [next.0, 0, a, b, c, d, e, f];
    }

    /// Reads an IPv6 fragment header, whose first octet says what follows it.
    #[inline]
    pub(crate) fn parse_v6(bytes: [u8; HEADER_LEN]) -> Self {
        let [_, _, a, b, c, d, e, f] = bytes;
        Self {
            identification: u32::from_be_bytes([c, d, e, f]),
            offset: u16::from_be_bytes([a, b & !7]),
            more: b & 1 == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn impossible_fragments_are_refused() {
        let at = |offset, more| Fragment { identification: 1, offset, more };
        assert_eq!(at(0, true).end(8), Ok(8));
        assert_eq!(at(8, false).end(3), Ok(11));
        assert_eq!(at(0, true).end(9), Err(FormatError::Fragment));
        assert_eq!(at(16, false).end(0), Err(FormatError::Fragment));
        assert_eq!(at(65_528, false).end(7), Ok(65_535));
        assert_eq!(at(65_528, false).end(8), Err(FormatError::Fragment));
    }

    proptest! {
        #[test]
        fn a_header_emitted_is_read_back(
            identification in any::<u32>(), offset in 0..8_192_u16, more in any::<bool>(),
        ) {
            let fragment = Fragment { identification, offset: offset * 8, more };
            let mut bytes = [0xee; HEADER_LEN];
            fragment.emit_v6(IpProtocol::UDP, &mut bytes);
            prop_assert_eq!(bytes[0], IpProtocol::UDP.0);
            prop_assert_eq!(Fragment::parse_v6(bytes), fragment);
        }

        #[test]
        fn bytes_read_are_emitted_again_but_for_reserved_bits(mut bytes in any::<[u8; HEADER_LEN]>()) {
            bytes[1] = 0;
            bytes[3] &= !0b110;
            let mut again = [0; HEADER_LEN];
            Fragment::parse_v6(bytes).emit_v6(IpProtocol(bytes[0]), &mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
