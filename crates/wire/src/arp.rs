//! Address resolution between IPv4 and Ethernet (RFC 826).
//!
//! Left out: other kinds of addresses, and whom to believe.

use std::net::Ipv4Addr;

use crate::ethernet::MacAddr;
use crate::malformed::FormatError;

/// Bytes of a packet.
pub const LEN: usize = 28;

/// Hardware type Ethernet, protocol type IPv4, address lengths 6 and 4.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// What a packet asks or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// 1: who has the target address?
    Request,
    /// 2: the sender has the sender address.
    Reply,
    /// Any other: reverse resolution and the like.
    Other(u16),
}

impl ArpOperation {
    /// The number sent.
    pub const fn number(self) -> u16 {
        match self {
            Self::Request => 1,
            Self::Reply => 2,
            Self::Other(number) => number,
        }
    }
}

impl From<u16> for ArpOperation {
    fn from(number: u16) -> Self {
        match number {
            1 => Self::Request,
            2 => Self::Reply,
            other => Self::Other(other),
        }
    }
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpPacket {
    /// What it asks or says.
    pub operation: ArpOperation,
    /// Ethernet address of the sender.
    pub source_mac: MacAddr,
    /// IPv4 address of the sender; unspecified in a probe (RFC 5227).
    pub source: Ipv4Addr,
    /// Ethernet address of the target; of no meaning in a request.
    pub target_mac: MacAddr,
    /// IPv4 address of the target.
    pub target: Ipv4Addr,
}

impl ArpPacket {
    /// Reads one; padding behind it is passed over.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], or [`FormatError::AddressKind`] for others than Ethernet and IPv4.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let bytes: &[u8; LEN] = bytes.first_chunk().ok_or(FormatError::Truncated)?;
        if bytes[..6] != KIND {
            return Err(FormatError::AddressKind);
        }
        let mac = |at: usize| MacAddr(std::array::from_fn(|index| bytes[at + index]));
        let address =
            |at: usize| Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|index| bytes[at + index]));
        Ok(Self {
            operation: u16::from_be_bytes([bytes[6], bytes[7]]).into(),
            source_mac: mac(8),
            source: address(14),
            target_mac: mac(18),
            target: address(24),
        })
    }

    /// Writes it to the first [`LEN`] bytes of `out`.
    ///
    /// Panics when `out` is shorter.
    pub fn emit(&self, out: &mut [u8]) {
        let out: &mut [u8; LEN] = out.first_chunk_mut().expect("room for the packet");
        out[..6].copy_from_slice(&KIND);
        out[6..8].copy_from_slice(&self.operation.number().to_be_bytes());
        out[8..14].copy_from_slice(&self.source_mac.0);
        out[14..18].copy_from_slice(&self.source.octets());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..].copy_from_slice(&self.target.octets());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ethernet::tests::mac;

    #[test]
    fn a_request_as_linux_sends_it_is_read() {
        let bytes = [
            0, 1, 8, 0, 6, 4, 0, 1, // Ethernet, IPv4, request
            0x52, 0x54, 0, 0x12, 0x34, 0x56, 10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2,
        ];
        let packet = ArpPacket::parse(&bytes).unwrap();
        assert_eq!(packet.operation, ArpOperation::Request);
        assert_eq!(packet.source_mac.to_string(), "52:54:00:12:34:56");
        assert_eq!(packet.source, Ipv4Addr::new(10, 0, 2, 15));
        assert_eq!(packet.target, Ipv4Addr::new(10, 0, 2, 2));
        assert_eq!(ArpPacket::parse(&bytes[..27]), Err(FormatError::Truncated));
        for at in 0..6 {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(ArpPacket::parse(&other), Err(FormatError::AddressKind));
        }
    }

    proptest! {
        #[test]
        fn a_packet_emitted_is_read_back(
            operation in any::<u16>(), source_mac in mac(), target_mac in mac(),
            source in any::<Ipv4Addr>(), target in any::<Ipv4Addr>(),
        ) {
            let operation = operation.into();
            let packet = ArpPacket { operation, source_mac, source, target_mac, target };
            let mut bytes = [0xee; LEN + 2];
            packet.emit(&mut bytes);
            prop_assert_eq!(ArpPacket::parse(&bytes), Ok(packet));
        }
    }
}
