//! IPv4 packets (RFC 791).
//!
//! Left out: what a host does with them; jumbo super-segments, whose length field is zero.

use std::net::Ipv4Addr;

use plumb_copy::Sum16;

use crate::checksum::{PseudoHeader, sum_header, updated};
use crate::ip::{Fragment, IpProtocol, TrafficClass};
use crate::malformed::FormatError;
use crate::option::OptionArea;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header.
pub const HEADER_LEN_MAX: usize = 60;
/// Bytes of the longest packet.
pub const PACKET_LEN_MAX: usize = 65_535;
/// The MTU that every link has (RFC 791 §3.2).
pub const MTU_MIN: usize = 68;

/// Flags and fragment offset: 16 bits, as they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentField(pub u16);

impl FragmentField {
    /// May be fragmented, and is not.
    pub const WHOLE: Self = Self(0);
    /// Must not be fragmented, and is not.
    pub const DONT_FRAGMENT: Self = Self(0x4000);
    const MORE: u16 = 0x2000;

    /// Of a fragment; of its identification the header has a field of its own.
    #[inline]
    pub const fn of(fragment: &Fragment) -> Self {
        let more = if fragment.more { Self::MORE } else { 0 };
        Self(fragment.offset >> 3 | more)
    }

    /// Whether routers must not fragment it.
    #[inline]
    pub const fn dont_fragment(self) -> bool {
        self.0 & Self::DONT_FRAGMENT.0 != 0
    }

    /// Whether more fragments follow.
    #[inline]
    pub const fn more(self) -> bool {
        self.0 & Self::MORE != 0
    }

    /// Where the payload belongs in the datagram's, in bytes.
    #[inline]
    pub const fn offset(self) -> u16 {
        (self.0 & 0x1fff) << 3
    }

    /// Whether the packet is a part of a datagram.
    #[inline]
    pub const fn is_fragment(self) -> bool {
        self.0 & 0x3fff != 0
    }
}

/// A packet whose header has been read, and whose padding has been cut off.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Packet<'a> {
    fixed: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4Packet<'a> {
    /// Reads the header. What lies beyond the total length is padding and is cut off.
    ///
    /// The checksum is not looked at: see [`Ipv4Packet::verify`].
    ///
    /// # Errors
    /// `FormatError::Version`, [`HeaderLength`](FormatError::HeaderLength),
    /// [`Length`](FormatError::Length) or [`Truncated`](FormatError::Truncated).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (packet, total_len) = Self::parse_header(bytes)?;
        let len = total_len - HEADER_LEN - packet.options.len();
        let payload = packet.payload.get(..len).ok_or(FormatError::Truncated)?;
        Ok(Self { payload, ..packet })
    }

    /// Reads the packet that an ICMP error quotes: its payload may be shorter than it says.
    ///
    /// # Errors
    /// As [`Ipv4Packet::parse`]; [`FormatError::Truncated`] only when the header is not whole.
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (packet, total_len) = Self::parse_header(bytes)?;
        let len = total_len - HEADER_LEN - packet.options.len();
        let payload = packet.payload.get(..len).unwrap_or(packet.payload);
        Ok(Self { payload, ..packet })
    }

    /// The packet, its payload not yet cut, and its total length.
    #[inline]
    fn parse_header(bytes: &'a [u8]) -> Result<(Self, usize), FormatError> {
        let (fixed, rest) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(FormatError::Truncated)?;
        if fixed[0] >> 4 != 4 {
            return Err(FormatError::Version);
        }
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        let options_len = header_len.checked_sub(HEADER_LEN).ok_or(FormatError::HeaderLength)?;
        let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if total_len < header_len {
            return Err(FormatError::Length);
        }
        let (options, payload) =
            rest.split_at_checked(options_len).ok_or(FormatError::Truncated)?;
        Ok((Self { fixed, options, payload }, total_len))
    }

    /// The packet, if its header's checksum is right.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    #[inline]
    pub fn verify(self) -> Result<Self, FormatError> {
        let mut sum = sum_header(self.fixed);
        if !self.options.is_empty() {
            sum = sum_with_options(sum, self.options);
        }
        if sum == 0xffff { Ok(self) } else { Err(FormatError::Checksum) }
    }

    /// Type of service.
    #[inline]
    pub fn traffic_class(&self) -> TrafficClass {
        TrafficClass(self.fixed[1])
    }

    /// Which datagram a fragment belongs to.
    #[inline]
    pub fn identification(&self) -> u16 {
        u16::from_be_bytes([self.fixed[4], self.fixed[5]])
    }

    /// Flags and fragment offset.
    #[inline]
    pub fn fragment_field(&self) -> FragmentField {
        FragmentField(u16::from_be_bytes([self.fixed[6], self.fixed[7]]))
    }

    /// Its place in a datagram, if it is a fragment of one.
    #[inline]
    pub fn fragment(&self) -> Option<Fragment> {
        let field = self.fragment_field();
        field.is_fragment().then(|| Fragment {
            identification: self.identification().into(),
            offset: field.offset(),
            more: field.more(),
        })
    }

    /// Time to live: how many more routers may pass it on.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.fixed[8]
    }

    /// What it carries.
    #[inline]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.fixed[9])
    }

    /// Who sent it.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Who it is for.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Its options, as they came: see [`crate::option::items`].
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Bytes of header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// What the checksum of its transport covers beside the payload.
    #[inline]
    pub fn pseudo(&self) -> PseudoHeader {
        PseudoHeader::v4(self.source(), self.destination(), self.protocol())
    }

    /// The header by itself.
    #[inline]
    pub fn header(&self) -> Ipv4Header {
        Ipv4Header {
            traffic_class: self.traffic_class(),
            payload_len: u16::try_from(self.payload.len()).expect("cut to a 16-bit length"),
            identification: self.identification(),
            fragment: self.fragment_field(),
            hop_limit: self.hop_limit(),
            protocol: self.protocol(),
            source: self.source(),
            destination: self.destination(),
            options: OptionArea::new(self.options).expect("a header has room for 40 bytes"),
        }
    }
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Type of service.
    pub traffic_class: TrafficClass,
    /// Bytes that follow the header.
    pub payload_len: u16,
    /// Which datagram a fragment belongs to.
    pub identification: u16,
    /// Flags and fragment offset.
    pub fragment: FragmentField,
    /// Time to live.
    pub hop_limit: u8,
    /// What follows.
    pub protocol: IpProtocol,
    /// Who sends it.
    pub source: Ipv4Addr,
    /// Who it is for.
    pub destination: Ipv4Addr,
    /// Options.
    pub options: OptionArea,
}

impl Ipv4Header {
    /// Of a whole packet of `payload_len` bytes without options: hop limit 64, must not be
    /// fragmented, identification 0 (RFC 6864: an atomic datagram needs none).
    #[inline]
    pub const fn new(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: IpProtocol,
        payload_len: u16,
    ) -> Self {
        Self {
            traffic_class: TrafficClass(0),
            payload_len,
            identification: 0,
            fragment: FragmentField::DONT_FRAGMENT,
            hop_limit: 64,
            protocol,
            source,
            destination,
            options: OptionArea::EMPTY,
        }
    }

    /// Bytes of it, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// What the checksum of its transport covers beside the payload.
    #[inline]
    pub fn pseudo(&self) -> PseudoHeader {
        PseudoHeader::v4(self.source, self.destination, self.protocol)
    }

    /// Writes it, with its checksum, to the first [`Ipv4Header::header_len`] bytes of `out`.
    ///
    /// Panics when `out` is shorter, and when header and payload are more than
    /// [`PACKET_LEN_MAX`] bytes: whoever cuts packets knows how long they may be.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let options = self.options.as_bytes();
        let header_len = HEADER_LEN + options.len();
        let (fixed, rest) = out.split_first_chunk_mut().expect("room for the header");
        let version = u8::try_from(0x40 | (header_len / 4)).expect("at most 0x4f");
        let total_len =
            self.payload_len.checked_add(u16::try_from(header_len).expect("at most 60"));
        let [len_high, len_low] = total_len.expect("a packet's length fits").to_be_bytes();
        let [id_high, id_low] = self.identification.to_be_bytes();
        let [fragment_high, fragment_low] = self.fragment.0.to_be_bytes();
        let [a, b, c, d] = self.source.octets();
        let [e, f, g, h] = self.destination.octets();
        let class = self.traffic_class.0;
        let protocol = self.protocol.0;
        let hop_limit = self.hop_limit;
        #[rustfmt::skip]
        let words: [u8; HEADER_LEN] = [
            version, class, len_high, len_low,
            id_high, id_low, fragment_high, fragment_low,
            hop_limit, protocol, 0, 0,
            a, b, c, d,
            e, f, g, h,
        ];
        let mut sum = sum_header(&words);
        if !options.is_empty() {
            rest[..options.len()].copy_from_slice(options);
            sum = sum_with_options(sum, options);
        }
        *fixed = words;
        fixed[10..12].copy_from_slice(&(!sum).to_be_bytes());
    }
}

/// Out of the way of the many packets without options.
#[cold]
fn sum_with_options(sum: u16, options: &[u8]) -> u16 {
    (Sum16::ZERO.add_word(sum) + Sum16::of(options)).folded()
}

/// Counts one router in the header at the front of `packet`, in place: hop limit and checksum.
///
/// Returns the hop limit left; `None`, and nothing changed, when there is none to take.
///
/// Panics when `packet` has no whole header: parse it first.
#[inline]
pub fn decrement_hop_limit(packet: &mut [u8]) -> Option<u8> {
    let header: &mut [u8; HEADER_LEN] = packet.first_chunk_mut().expect("a whole header");
    let left = header[8].checked_sub(1)?;
    patch(header, 8, [left, header[9]]);
    Some(left)
}

/// Changes type of service in the header at the front of `packet`, in place, checksum included.
///
/// Panics when `packet` has no whole header: parse it first.
#[inline]
pub fn set_traffic_class(packet: &mut [u8], class: TrafficClass) {
    let header: &mut [u8; HEADER_LEN] = packet.first_chunk_mut().expect("a whole header");
    patch(header, 0, [header[0], class.0]);
}

/// Exchanges source and destination in the header at the front of `packet`: the checksum stays
/// right, and so does the transport's.
///
/// Panics when `packet` has no whole header: parse it first.
#[inline]
pub fn swap_addresses(packet: &mut [u8]) {
    let header: &mut [u8; HEADER_LEN] = packet.first_chunk_mut().expect("a whole header");
    let [.., a, b, c, d, e, f, g, h] = *header;
    header[12..].copy_from_slice(&[e, f, g, h, a, b, c, d]);
}

#[inline]
fn patch(header: &mut [u8; HEADER_LEN], at: usize, word: [u8; 2]) {
    let old = u16::from_be_bytes([header[at], header[at + 1]]);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let checksum = updated(checksum, old, u16::from_be_bytes(word));
    header[at..at + 2].copy_from_slice(&word);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests;
