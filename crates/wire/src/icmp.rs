//! What the messages of ICMP for IPv4 and for IPv6 have in common: eight octets, of which the first
//! four are type, code and checksum, and a body.
//!
//! Left out: what they say (`icmpv4`, `icmpv6`).

use std::marker::PhantomData;

use plumb_copy::Sum16;

use crate::checksum::updated;
use crate::malformed::FormatError;

/// Bytes before the body.
pub const HEADER_LEN: usize = 8;

/// Codes of a message that a packet or its parts were under way too long (RFC 792, RFC 4443 §3.3).
pub mod time_exceeded {
    /// The hop limit was used up.
    pub const HOP_LIMIT: u8 = 0;
    /// Fragments were missing for too long.
    pub const REASSEMBLY: u8 = 1;
}

/// A message as it came, over IP of version `V`.
#[derive(Clone, Copy, Debug)]
pub struct IcmpPacket<'a, V> {
    fixed: &'a [u8; HEADER_LEN],
    body: &'a [u8],
    version: PhantomData<V>,
}

impl<'a, V> IcmpPacket<'a, V> {
    /// Reads a message.
    ///
    /// The checksum is not looked at: that is what `verify` is for.
    ///
    /// # Errors
    /// [`FormatError::Truncated`]: also for less than eight octets, which no known message has.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (fixed, body) = bytes.split_first_chunk().ok_or(FormatError::Truncated)?;
        Ok(Self { fixed, body, version: PhantomData })
    }

    /// Its type.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.fixed[0]
    }

    /// Its code.
    #[inline]
    pub fn code(&self) -> u8 {
        self.fixed[1]
    }

    /// The last four of the eight octets.
    #[inline]
    pub fn rest(&self) -> [u8; 4] {
        let [.., a, b, c, d] = *self.fixed;
        [a, b, c, d]
    }

    /// The same as two numbers: of an echo, whose request it belongs to, and which.
    #[inline]
    pub(crate) fn halves(&self) -> (u16, u16) {
        let [a, b, c, d] = self.rest();
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }

    /// What follows the eight octets: an echo's data, or the beginning of the packet at fault.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The message, if its checksum, which `of` makes of its length and sum, is right.
    #[inline]
    pub(crate) fn checked(self, of: impl FnOnce(usize, Sum16) -> u16) -> Result<Self, FormatError> {
        let sum = Sum16::of(self.fixed) + Sum16::of(self.body);
        match of(HEADER_LEN + self.body.len(), sum) {
            0 => Ok(self),
            _ => Err(FormatError::Checksum),
        }
    }
}

/// Writes the eight `octets`, with the checksum that `of` makes of their sum, to the front of `out`.
/// Panics when `out` is shorter.
#[inline]
pub(crate) fn emit(octets: [u8; HEADER_LEN], of: impl FnOnce(Sum16) -> u16, out: &mut [u8]) {
    let out: &mut [u8; HEADER_LEN] = out.first_chunk_mut().expect("room for the message");
    *out = octets;
    let checksum = of(Sum16::of(out));
    out[2..4].copy_from_slice(&checksum.to_be_bytes());
}

/// Gives the message at the front of `message` another type, and the checksum that `settled` makes of
/// the updated one.
///
/// Panics when `message` has no eight octets: parse it first.
#[inline]
pub(crate) fn set_kind(message: &mut [u8], kind: u8, settled: impl FnOnce(u16) -> u16) {
    let fixed: &mut [u8; HEADER_LEN] = message.first_chunk_mut().expect("a whole message");
    let old = u16::from_be_bytes([fixed[0], fixed[1]]);
    let checksum = u16::from_be_bytes([fixed[2], fixed[3]]);
    fixed[0] = kind;
    let new = u16::from_be_bytes([fixed[0], fixed[1]]);
    let checksum = settled(updated(checksum, old, new));
    fixed[2..4].copy_from_slice(&checksum.to_be_bytes());
}
