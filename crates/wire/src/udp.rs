//! UDP datagrams (RFC 768).
//!
//! Left out: sockets; UDP-Lite; jumbograms, whose length field is zero.

use plumb_copy::Sum16;

use crate::checksum::{self, PseudoHeader};
use crate::malformed::FormatError;

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;
/// Bytes of the longest payload that a length field can announce.
pub const PAYLOAD_LEN_MAX: usize = 65_535 - HEADER_LEN;
/// Where in the header the checksum is.
pub const CHECKSUM_OFFSET: u16 = 6;

/// A datagram whose header has been read.
#[derive(Clone, Copy, Debug)]
pub struct UdpDatagram<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> UdpDatagram<'a> {
    /// Reads the header. What lies beyond its length is cut off.
    ///
    /// The checksum is not looked at: see [`UdpDatagram::verify_v4`] and [`UdpDatagram::verify_v6`].
    ///
    /// # Errors
    /// [`FormatError::Truncated`] or [`FormatError::Length`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let datagram = Self::parse_quoted(bytes)?;
        let len = usize::from(datagram.header().length);
        let len = len.checked_sub(HEADER_LEN).ok_or(FormatError::Length)?;
        let payload = datagram.payload.get(..len).ok_or(FormatError::Truncated)?;
        Ok(Self { payload, ..datagram })
    }

    /// Reads the datagram that an ICMP error quotes: its payload may be shorter than it says.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] when the header is not whole.
    #[inline]
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (fixed, payload) = bytes.split_first_chunk().ok_or(FormatError::Truncated)?;
        Ok(Self { fixed, payload })
    }

    /// The datagram, if it came over IPv4 with the right checksum or with none.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    #[inline]
    pub fn verify_v4(self, pseudo: PseudoHeader) -> Result<Self, FormatError> {
        if self.checksum() == 0 { Ok(self) } else { self.verify_present(pseudo) }
    }

    /// The datagram, if it came over IPv6 with the right checksum.
    ///
    /// # Errors
    /// [`FormatError::ChecksumAbsent`] (RFC 8200 §8.1) or [`FormatError::Checksum`].
    #[inline]
    pub fn verify_v6(self, pseudo: PseudoHeader) -> Result<Self, FormatError> {
        if self.checksum() == 0 {
            Err(FormatError::ChecksumAbsent)
        } else {
            self.verify_present(pseudo)
        }
    }

    #[inline]
    fn verify_present(self, pseudo: PseudoHeader) -> Result<Self, FormatError> {
        if self.verifies(pseudo, Sum16::of(self.payload)) {
            Ok(self)
        } else {
            Err(FormatError::Checksum)
        }
    }

    /// Whether the checksum, which must be there, is right for a payload with this sum: for whoever
    /// summed it while copying it.
    #[inline]
    pub fn verifies(&self, pseudo: PseudoHeader, payload: Sum16) -> bool {
        let [a, b, c, d, e, f, g, h] = *self.fixed;
        let words = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
        let sum = pseudo.sum_with(HEADER_LEN + self.payload.len(), words);
        (sum + payload).finish() == 0
    }

    /// The sender's port; 0 says that it expects no answer.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[0], self.fixed[1]])
    }

    /// The receiver's port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// The checksum; 0 when there is none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.fixed[6], self.fixed[7]])
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header by itself.
    #[inline]
    pub fn header(&self) -> UdpHeader {
        UdpHeader {
            source_port: self.source_port(),
            destination_port: self.destination_port(),
            length: u16::from_be_bytes([self.fixed[4], self.fixed[5]]),
            checksum: self.checksum(),
        }
    }
}

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Bytes of header and payload.
    pub length: u16,
    /// The checksum; 0 for none.
    pub checksum: u16,
}

impl UdpHeader {
    /// Before `payload_len` bytes, without a checksum.
    ///
    /// Panics beyond [`PAYLOAD_LEN_MAX`].
    #[inline]
    pub fn new(source_port: u16, destination_port: u16, payload_len: usize) -> Self {
        let length = u16::try_from(HEADER_LEN + payload_len).expect("a datagram's length fits");
        Self { source_port, destination_port, length, checksum: 0 }
    }

    /// The same with its checksum over a payload of this sum; a computed 0 becomes 0xffff.
    #[inline]
    #[must_use]
    pub fn with_checksum(self, pseudo: PseudoHeader, payload: Sum16) -> Self {
        let ports = u32::from(self.source_port) << 16 | u32::from(self.destination_port);
        let sum = pseudo.sum_with(usize::from(self.length), [ports, self.length.into()]);
        Self { checksum: checksum::nonzero((sum + payload).finish()), ..self }
    }

    /// The same with a partial checksum, which the device completes.
    #[inline]
    #[must_use]
    pub fn with_partial(self, pseudo: PseudoHeader) -> Self {
        Self { checksum: pseudo.partial(usize::from(self.length)), ..self }
    }

    /// Writes it to the first [`HEADER_LEN`] bytes of `out`. Panics when `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out: &mut [u8; HEADER_LEN] = out.first_chunk_mut().expect("room for the header");
        out[..2].copy_from_slice(&self.source_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        out[4..6].copy_from_slice(&self.length.to_be_bytes());
        out[6..].copy_from_slice(&self.checksum.to_be_bytes());
    }
}

/// Exchanges the ports in the header at the front of `datagram`: the checksum stays right.
///
/// Panics when `datagram` has no whole header: parse it first.
#[inline]
pub fn swap_ports(datagram: &mut [u8]) {
    let ports: &mut [u8; 4] = datagram.first_chunk_mut().expect("a whole header");
    let [a, b, c, d] = *ports;
    *ports = [c, d, a, b];
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::ip::IpProtocol;

    fn pseudo_v4() -> PseudoHeader {
        PseudoHeader::v4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2), IpProtocol::UDP)
    }

    fn datagram(header: UdpHeader, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        header.emit(&mut bytes);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn a_computed_zero_is_sent_as_all_ones() {
        let bare = UdpHeader::new(0, 0, 2);
        let sum = bare.with_checksum(pseudo_v4(), Sum16::ZERO).checksum;
        // A payload equal to the checksum brings the sum to all ones, whose complement is zero.
        let payload = sum.to_be_bytes();
        let header = bare.with_checksum(pseudo_v4(), Sum16::of(&payload));
        assert_eq!(header.checksum, 0xffff);
        let bytes = datagram(header, &payload);
        assert!(UdpDatagram::parse(&bytes).unwrap().verify_v4(pseudo_v4()).is_ok());
    }

    #[test]
    fn no_checksum_is_believed_over_ipv4_and_refused_over_ipv6() {
        let bytes = datagram(UdpHeader::new(1, 2, 3), b"abc");
        let datagram = UdpDatagram::parse(&bytes).unwrap();
        assert!(datagram.verify_v4(pseudo_v4()).is_ok());
        let pseudo = PseudoHeader::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, IpProtocol::UDP);
        assert_eq!(datagram.verify_v6(pseudo).err(), Some(FormatError::ChecksumAbsent));
    }

    #[test]
    fn a_length_that_cannot_be_is_named() {
        let short = UdpHeader { length: 7, ..UdpHeader::new(1, 2, 0) };
        assert_eq!(UdpDatagram::parse(&datagram(short, &[])).err(), Some(FormatError::Length));
        let long = UdpHeader::new(1, 2, 1);
        assert_eq!(UdpDatagram::parse(&datagram(long, &[])).err(), Some(FormatError::Truncated));
        assert!(UdpDatagram::parse_quoted(&datagram(long, &[])).is_ok());
        assert_eq!(UdpDatagram::parse(&[0; 7]).err(), Some(FormatError::Truncated));
        let cut = datagram(UdpHeader::new(1, 2, 1), &[5, 6]);
        assert_eq!(UdpDatagram::parse(&cut).unwrap().payload(), &[5]);
    }

    proptest! {
        #[test]
        fn a_datagram_made_is_read_back_and_verifies(
            source in any::<u16>(), destination in any::<u16>(),
            payload in proptest::collection::vec(any::<u8>(), 0..200), wrong in any::<u16>(),
        ) {
            let header = UdpHeader::new(source, destination, payload.len())
                .with_checksum(pseudo_v4(), Sum16::of(&payload));
            let mut bytes = datagram(header, &payload);
            let read = UdpDatagram::parse(&bytes).unwrap().verify_v4(pseudo_v4()).unwrap();
            prop_assert_eq!(read.header(), header);
            prop_assert_eq!(read.payload(), &payload);
            swap_ports(&mut bytes);
            let read = UdpDatagram::parse(&bytes).unwrap().verify_v4(pseudo_v4()).unwrap();
            prop_assert_eq!((read.source_port(), read.destination_port()), (destination, source));
            let other = wrong != 0 && wrong != header.checksum;
            bytes[6..8].copy_from_slice(&wrong.to_be_bytes());
            let verified = UdpDatagram::parse(&bytes).unwrap().verify_v4(pseudo_v4());
            prop_assert_eq!(verified.is_err(), other);
        }
    }
}
