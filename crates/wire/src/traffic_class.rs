//! The octet of an IP header that says how to treat a packet: DSCP (RFC 2474) above ECN (RFC 3168).
//!
//! IPv4 calls it type of service, IPv6 traffic class. Left out: the code points' meanings.

use crate::ecn::Ecn;

/// Six bits of differentiated services, two of congestion notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// Of a code point, of which the low six bits count, and the ECN field.
    #[inline]
    pub const fn new(dscp: u8, ecn: Ecn) -> Self {
        Self(dscp << 2 | ecn.bits())
    }

    /// The differentiated services code point, 0 to 63.
    #[inline]
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// The congestion notification field.
    #[inline]
    pub const fn ecn(self) -> Ecn {
        Ecn::from_bits(self.0)
    }

    /// The same with another ECN field.
    #[inline]
    #[must_use]
    pub const fn with_ecn(self, ecn: Ecn) -> Self {
        Self(self.0 & !0b11 | ecn.bits())
    }
}

impl From<Ecn> for TrafficClass {
    #[inline]
    fn from(ecn: Ecn) -> Self {
        Self::new(0, ecn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_splits_into_its_two_fields_and_back() {
        for octet in 0..=255 {
            let class = TrafficClass(octet);
            assert_eq!(TrafficClass::new(class.dscp(), class.ecn()), class);
            let marked = class.with_ecn(Ecn::Congestion);
            assert_eq!((marked.dscp(), marked.ecn()), (class.dscp(), Ecn::Congestion));
        }
    }
}
