//! Explicit congestion notification: the two bits of an IP header (RFC 3168 §5).
//!
//! Left out: what a transport makes of them.

/// The ECN field of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// 00: not ECN-capable transport.
    #[default]
    NotCapable,
    /// 01: ECN-capable transport (1); the L4S identifier (RFC 9331).
    Capable1,
    /// 10: ECN-capable transport (0).
    Capable0,
    /// 11: congestion experienced.
    Congestion,
}

impl Ecn {
    /// The field's two bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotCapable => 0b00,
            Self::Capable1 => 0b01,
            Self::Capable0 => 0b10,
            Self::Congestion => 0b11,
        }
    }

    /// The field in the low two bits of a type-of-service or traffic-class octet.
    #[inline]
    pub const fn from_bits(octet: u8) -> Self {
        match octet & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            _ => Self::Congestion,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_survives_both_ways_whatever_the_other_bits_are() {
        for octet in 0..=255 {
            assert_eq!(Ecn::from_bits(octet).bits(), octet & 0b11);
        }
    }
}
