//! IPv6 extension headers (RFC 8200 §4): walked one by one, and written.
//!
//! Left out: acting on them. Encrypted payloads (RFC 4303) end the walk, as does everything that
//! is no extension.

use super::HEADER_LEN;
use crate::ip::{self, Fragment, IpProtocol};
use crate::malformed::FormatError;

/// The most extension headers that a packet may have: nobody needs more, and a long chain costs
/// its receiver (RFC 9098 §7). RFC 8504 §5.3 allows a limit.
pub const EXTENSIONS_MAX: usize = 8;

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Extension<'a> {
    /// For every router: only directly behind the IPv6 header.
    HopByHop(Ipv6Options<'a>),
    /// For the destination.
    Destination(Ipv6Options<'a>),
    /// Routers to pass by.
    Routing {
        /// Which kind of route.
        kind: u8,
        /// How many addresses are still to be visited: at the last destination 0.
        segments_left: u8,
        /// What follows these, as the kind says; 8n + 4 bytes.
        data: &'a [u8],
    },
    /// The packet is a fragment; of one that is not atomic nothing behind it is walked.
    Fragment(Fragment),
    /// Authentication (RFC 4302): what follows next header and length; 4n + 2 bytes.
    Authentication(&'a [u8]),
}

impl<'a> Ipv6Extension<'a> {
    /// Its number in the header before it.
    pub const fn protocol(&self) -> IpProtocol {
        match self {
            Self::HopByHop(_) => IpProtocol::HOP_BY_HOP,
            Self::Destination(_) => IpProtocol::DESTINATION,
            Self::Routing { .. } => IpProtocol::ROUTING,
            Self::Fragment(_) => IpProtocol::FRAGMENT,
            Self::Authentication(_) => IpProtocol::AUTHENTICATION,
        }
    }

    /// Bytes of it.
    pub fn emitted_len(&self) -> usize {
        match self {
            Self::HopByHop(options) | Self::Destination(options) => 2 + options.as_bytes().len(),
            Self::Routing { data, .. } => 4 + data.len(),
            Self::Fragment(_) => ip::FRAGMENT_HEADER_LEN,
            Self::Authentication(data) => 2 + data.len(),
        }
    }

    /// Writes it, before a header of `next`, to the first [`Ipv6Extension::emitted_len`] bytes of `out`.
    ///
    /// Panics when `out` is shorter, or its own length is none that an extension header can have.
    pub fn emit(&self, next: IpProtocol, out: &mut [u8]) {
        let len = self.emitted_len();
        let units = match self {
            Self::Fragment(fragment) => return fragment.emit_v6(next, out),
            // RFC 4302 §2.2: in 32-bit words, minus 2.
            Self::Authentication(_) => len.is_multiple_of(4).then(|| (len / 4).checked_sub(2)),
            _ => len.is_multiple_of(8).then(|| (len / 8).checked_sub(1)),
        };
        let units = units.flatten().and_then(|units| u8::try_from(units).ok());
        let units = units.expect("an extension's length is a multiple that fits its field");
        let out = &mut out[..len];
        (out[0], out[1]) = (next.0, units);
        match self {
            Self::HopByHop(options) | Self::Destination(options) => {
                out[2..].copy_from_slice(options.as_bytes());
            }
            Self::Routing { kind, segments_left, data } => {
                (out[2], out[3]) = (*kind, *segments_left);
                out[4..].copy_from_slice(data);
            }
            Self::Authentication(data) => out[2..].copy_from_slice(data),
            Self::Fragment(_) => {}
        }
    }

    fn read(protocol: IpProtocol, bytes: &'a [u8], at: usize) -> Result<Self, FormatError> {
        let options = Ipv6Options { bytes: bytes.get(2..).unwrap_or_default(), at: at + 2 };
        Ok(match (protocol, bytes) {
            (IpProtocol::HOP_BY_HOP, _) => Self::HopByHop(options),
            (IpProtocol::DESTINATION, _) => Self::Destination(options),
            (IpProtocol::ROUTING, [_, _, kind, segments_left, data @ ..]) => {
                Self::Routing { kind: *kind, segments_left: *segments_left, data }
            }
            (IpProtocol::AUTHENTICATION, [_, _, data @ ..]) => Self::Authentication(data),
            (IpProtocol::FRAGMENT, _) => {
                let header = bytes.first_chunk().ok_or(FormatError::Truncated)?;
                Self::Fragment(Fragment::parse_v6(*header))
            }
            _ => return Err(FormatError::Truncated),
        })
    }
}

/// A walk along the extension headers: an iterator over them, and what comes behind.
///
/// After an error there are no more, and what comes behind is not known.
#[derive(Clone, Debug)]
pub struct Ipv6Extensions<'a> {
    next: IpProtocol,
    rest: &'a [u8],
    /// Where `rest` begins, from the first byte of the IPv6 header.
    at: usize,
    /// Where the octet is that says `next`.
    next_at: usize,
    read: usize,
    /// Nothing behind can be walked: an error, or a fragment that is not whole.
    ended: bool,
}

impl<'a> Ipv6Extensions<'a> {
    /// The walk of an IPv6 packet's payload.
    #[inline]
    pub(super) fn new(next: IpProtocol, payload: &'a [u8]) -> Self {
        Self { next, rest: payload, at: HEADER_LEN, next_at: 6, read: 0, ended: false }
    }

    /// What comes next: when the walk is over, what the packet carries.
    ///
    /// [`IpProtocol::HOP_BY_HOP`] when such a header stands where it must not: as good as unknown
    /// (RFC 8200 §4).
    #[inline]
    pub const fn protocol(&self) -> IpProtocol {
        self.next
    }

    /// What has not been walked: in the end, the transport's header and payload, or the data of a
    /// fragment.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.rest
    }

    /// Where [`Ipv6Extensions::payload`] begins, in bytes from the first of the IPv6 header.
    #[inline]
    pub const fn payload_at(&self) -> usize {
        self.at
    }

    /// Where the octet is that says [`Ipv6Extensions::protocol`], likewise: what a parameter problem
    /// points to when nobody knows it.
    #[inline]
    pub const fn protocol_at(&self) -> usize {
        self.next_at
    }

    fn pull(&mut self) -> Result<Ipv6Extension<'a>, FormatError> {
        if self.read == EXTENSIONS_MAX {
            return Err(FormatError::Extensions);
        }
        let &[next, units, ..] = self.rest else { return Err(FormatError::Truncated) };
        let len = match self.next {
            IpProtocol::AUTHENTICATION => (usize::from(units) + 2) * 4,
            IpProtocol::FRAGMENT => ip::FRAGMENT_HEADER_LEN,
            _ => (usize::from(units) + 1) * 8,
        };
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(FormatError::Truncated)?;
        let extension = Ipv6Extension::read(self.next, bytes, self.at)?;
        if let Ipv6Extension::Fragment(fragment) = extension {
            self.ended = !fragment.is_atomic();
        }
        self.next_at = self.at;
        self.next = IpProtocol(next);
        self.at += len;
        self.rest = rest;
        self.read += 1;
        Ok(extension)
    }
}

impl<'a> Iterator for Ipv6Extensions<'a> {
    type Item = Result<Ipv6Extension<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let first = self.read == 0;
        let extends = match self.next {
            IpProtocol::HOP_BY_HOP => first,
            IpProtocol::ROUTING
            | IpProtocol::FRAGMENT
            | IpProtocol::AUTHENTICATION
            | IpProtocol::DESTINATION => true,
            _ => false,
        };
        if !extends || self.ended {
            return None;
        }
        let pulled = self.pull();
        self.ended |= pulled.is_err();
        Some(pulled)
    }
}

/// One byte of padding, without a length.
pub const PAD_1: u8 = 0;
/// Padding of two bytes and more.
pub const PAD_N: u8 = 1;
/// Routers shall look at the packet (RFC 2711).
pub const ROUTER_ALERT: u8 = 5;
/// The payload's length in 32 bits (RFC 2675).
pub const JUMBO: u8 = 0xc2;

/// What to do with a packet that carries an option nobody here knows: its type's high two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownOptionAction {
    /// 00: pass over the option.
    Skip,
    /// 01: drop the packet.
    Drop,
    /// 10: drop it and report a parameter problem.
    Report,
    /// 11: drop it, and report a parameter problem unless it was sent to a group.
    ReportUnlessMulticast,
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// Its type.
    pub kind: u8,
    /// What follows type and length.
    pub data: &'a [u8],
    /// Where its type is, in bytes from the first of the IPv6 header.
    pub at: usize,
}

impl Ipv6Option<'_> {
    /// Whether it is padding.
    #[inline]
    pub const fn is_padding(&self) -> bool {
        matches!(self.kind, PAD_1 | PAD_N)
    }

    /// What to do when nobody knows it.
    #[inline]
    pub const fn action(&self) -> UnknownOptionAction {
        match self.kind >> 6 {
            0 => UnknownOptionAction::Skip,
            1 => UnknownOptionAction::Drop,
            2 => UnknownOptionAction::Report,
            _ => UnknownOptionAction::ReportUnlessMulticast,
        }
    }
}

/// The options of one extension header, padding included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Options<'a> {
    pub(super) bytes: &'a [u8],
    /// Where `bytes` begin, from the first of the IPv6 header.
    pub(super) at: usize,
}

impl<'a> Ipv6Options<'a> {
    /// Options to be emitted: `bytes` as from [`write()`], a multiple of 8 with the two bytes that
    /// stand before them.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The options as they came.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// One by one. After an error there are no more.
    #[inline]
    pub fn items(
        &self,
    ) -> impl Iterator<Item = Result<Ipv6Option<'a>, FormatError>> + Clone + use<'a> {
        Ipv6OptionIter { rest: self.bytes, at: self.at }
    }
}

#[derive(Clone)]
struct Ipv6OptionIter<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Ipv6OptionIter<'a> {
    fn pull(&mut self) -> Result<Option<Ipv6Option<'a>>, FormatError> {
        let (rest, at) = (std::mem::take(&mut self.rest), self.at);
        let Some((&kind, tail)) = rest.split_first() else { return Ok(None) };
        let (data, len): (&[u8], _) = if kind == PAD_1 {
            (&[], 1)
        } else {
            let (&len, tail) = tail.split_first().ok_or(FormatError::OptionLength)?;
            (tail.get(..usize::from(len)).ok_or(FormatError::OptionLength)?, 2 + usize::from(len))
        };
        self.rest = &rest[len..];
        self.at += len;
        Ok(Some(Ipv6Option { kind, data, at }))
    }
}

impl<'a> Iterator for Ipv6OptionIter<'a> {
    type Item = Result<Ipv6Option<'a>, FormatError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.pull().transpose()
    }
}

/// Writes options of these types and data to `out`, and padding until they and the two bytes
/// before them are a multiple of 8 long.
///
/// Returns the bytes written; `None` when `out` is too short or data longer than 255 bytes.
pub fn write<'a>(
    options: impl IntoIterator<Item = (u8, &'a [u8])>,
    out: &mut [u8],
) -> Option<usize> {
    let mut len = 0;
    for (kind, data) in options {
        len += write_one(kind, data, out.get_mut(len..)?)?;
    }
    let padding = (len + 2).next_multiple_of(8) - 2 - len;
    len += match padding {
        0 => 0,
        1 => write_one(PAD_1, &[], out.get_mut(len..)?)?,
        more => write_one(PAD_N, &[0; 8][..more - 2], out.get_mut(len..)?)?,
    };
    Some(len)
}

fn write_one(kind: u8, data: &[u8], out: &mut [u8]) -> Option<usize> {
    if kind == PAD_1 {
        *out.first_mut()? = PAD_1;
        return Some(1);
    }
    let out = out.get_mut(..2 + data.len())?;
    out[0] = kind;
    out[1] = u8::try_from(data.len()).ok()?;
    out[2..].copy_from_slice(data);
    Some(out.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAD_4: [u8; 6] = [1, 4, 0, 0, 0, 0];

    /// The payload of a packet with these extensions before `last` and `data`, and its first
    /// header's number.
    fn chain(
        extensions: &[Ipv6Extension<'_>],
        last: IpProtocol,
        data: &[u8],
    ) -> (IpProtocol, Vec<u8>) {
        let mut payload = Vec::new();
        let nexts = extensions.iter().skip(1).map(Ipv6Extension::protocol).chain([last]);
        for (extension, next) in extensions.iter().zip(nexts) {
            let from = payload.len();
            payload.resize(from + extension.emitted_len(), 0xee);
            extension.emit(next, &mut payload[from..]);
        }
        payload.extend(data);
        (extensions.first().map_or(last, Ipv6Extension::protocol), payload)
    }

    /// The same without where options stand, which a chain to be emitted does not know.
    fn unplaced(extension: Ipv6Extension<'_>) -> Ipv6Extension<'_> {
        match extension {
            Ipv6Extension::HopByHop(options) => {
                Ipv6Extension::HopByHop(Ipv6Options::new(options.as_bytes()))
            }
            Ipv6Extension::Destination(options) => {
                Ipv6Extension::Destination(Ipv6Options::new(options.as_bytes()))
            }
            other => other,
        }
    }

    fn extension() -> impl Strategy<Value = Ipv6Extension<'static>> {
        const BYTES: [u8; 44] = [7; 44];
        let options = || (0..4_usize).prop_map(|n| Ipv6Options::new(&BYTES[..n * 8 + 6]));
        let atomic = any::<u32>()
            .prop_map(|identification| Fragment { identification, ..Fragment::default() });
        prop_oneof![
            options().prop_map(Ipv6Extension::Destination),
            (any::<u8>(), any::<u8>(), 0..4_usize).prop_map(|(kind, segments_left, n)| {
                Ipv6Extension::Routing { kind, segments_left, data: &BYTES[..n * 8 + 4] }
            }),
            atomic.prop_map(Ipv6Extension::Fragment),
            (1..5_usize).prop_map(|n| Ipv6Extension::Authentication(&BYTES[..n * 4 + 6])),
        ]
    }

    #[test]
    fn the_walk_tells_where_everything_is() {
        let hop = Ipv6Extension::HopByHop(Ipv6Options::new(&PAD_4));
        let fragment =
            Ipv6Extension::Fragment(Fragment { identification: 1, ..Fragment::default() });
        let (first, payload) = chain(&[hop, fragment], IpProtocol::UDP, b"data");
        let mut walk = Ipv6Extensions::new(first, &payload);
        let Some(Ok(Ipv6Extension::HopByHop(options))) = walk.next() else { panic!("hop by hop") };
        assert_eq!(options.items().next().unwrap().unwrap().at, 42);
        assert_eq!((walk.protocol_at(), walk.payload_at()), (40, 48));
        assert_eq!(walk.next(), Some(Ok(fragment)));
        assert_eq!(walk.next(), None);
        assert_eq!((walk.protocol_at(), walk.payload_at()), (48, 56));
        assert_eq!((walk.protocol(), walk.payload()), (IpProtocol::UDP, &b"data"[..]));
    }

    #[test]
    fn nothing_behind_a_fragment_is_walked() {
        let fragment = Fragment { identification: 1, offset: 8, more: true };
        let options = Ipv6Extension::Destination(Ipv6Options::new(&PAD_4));
        let (first, payload) =
            chain(&[Ipv6Extension::Fragment(fragment), options], IpProtocol::UDP, &[]);
        let mut walk = Ipv6Extensions::new(first, &payload);
        assert_eq!(walk.next(), Some(Ok(Ipv6Extension::Fragment(fragment))));
        assert_eq!((walk.next(), walk.protocol()), (None, IpProtocol::DESTINATION));
        assert_eq!(walk.payload().len(), 8);
    }

    #[test]
    fn hop_by_hop_options_in_second_place_are_as_good_as_unknown() {
        let options = Ipv6Options::new(&PAD_4);
        let both = [Ipv6Extension::Destination(options), Ipv6Extension::HopByHop(options)];
        let (first, payload) = chain(&both, IpProtocol::UDP, &[]);
        let mut walk = Ipv6Extensions::new(first, &payload);
        assert!(walk.by_ref().all(|extension| extension.is_ok()));
        assert_eq!((walk.protocol(), walk.protocol_at()), (IpProtocol::HOP_BY_HOP, 40));
    }

    #[test]
    fn a_chain_longer_than_the_limit_is_refused() {
        let options = Ipv6Extension::Destination(Ipv6Options::new(&PAD_4));
        let (first, payload) = chain(&[options; EXTENSIONS_MAX], IpProtocol::UDP, &[]);
        assert!(Ipv6Extensions::new(first, &payload).all(|extension| extension.is_ok()));
        let (first, payload) = chain(&[options; EXTENSIONS_MAX + 1], IpProtocol::UDP, &[]);
        let mut walk = Ipv6Extensions::new(first, &payload);
        assert_eq!(walk.by_ref().last(), Some(Err(FormatError::Extensions)));
        assert_eq!(walk.next(), None);
    }

    #[test]
    fn a_chain_cut_anywhere_is_truncated() {
        let fragment = Ipv6Extension::Fragment(Fragment::default());
        let routing = Ipv6Extension::Routing { kind: 0, segments_left: 0, data: &[0; 20] };
        let (first, payload) = chain(&[routing, fragment], IpProtocol::UDP, &[]);
        for len in 0..payload.len() {
            let last = Ipv6Extensions::new(first, &payload[..len]).last();
            assert_eq!(last, Some(Err(FormatError::Truncated)), "{len}");
        }
    }

    proptest! {
        #[test]
        fn a_chain_emitted_is_read_back(
            extensions in proptest::collection::vec(extension(), 0..=EXTENSIONS_MAX),
            data in any::<[u8; 3]>(),
        ) {
            let (first, payload) = chain(&extensions, IpProtocol::TCP, &data);
            let mut walk = Ipv6Extensions::new(first, &payload);
            let read: Result<Vec<_>, _> = walk.by_ref().collect();
            let read: Vec<_> = read.unwrap().into_iter().map(unplaced).collect();
            prop_assert_eq!(&read, &extensions);
            prop_assert_eq!((walk.protocol(), walk.payload()), (IpProtocol::TCP, &data[..]));
            // And what was read is emitted again.
            prop_assert_eq!(chain(&read, IpProtocol::TCP, &data), (first, payload.clone()));
        }
    }

    #[test]
    fn a_router_alert_of_rfc_2711_is_read_with_its_padding() {
        let bytes = [5, 2, 0, 0, 1, 0];
        let items: Result<Vec<_>, _> = Ipv6Options { bytes: &bytes, at: 42 }.items().collect();
        let alert = Ipv6Option { kind: ROUTER_ALERT, data: &[0, 0], at: 42 };
        let padding = Ipv6Option { kind: PAD_N, data: &[], at: 46 };
        assert_eq!(items, Ok(vec![alert, padding]));
        assert!(padding.is_padding() && !alert.is_padding());
        let mut written = [0xee; 6];
        assert_eq!(write([(ROUTER_ALERT, &[0, 0][..])], &mut written), Some(6));
        assert_eq!(written, bytes);
    }

    #[test]
    fn the_type_of_an_unknown_option_says_what_to_do() {
        let action = |kind| Ipv6Option { kind, data: &[], at: 0 }.action();
        assert_eq!(action(0x1e), UnknownOptionAction::Skip);
        assert_eq!(action(0x5e), UnknownOptionAction::Drop);
        assert_eq!(action(0x9e), UnknownOptionAction::Report);
        assert_eq!(action(JUMBO), UnknownOptionAction::ReportUnlessMulticast);
    }

    #[test]
    fn a_length_that_leaves_the_header_is_refused() {
        for bytes in [&[5][..], &[5, 1], &[0, 1, 2, 9]] {
            let last = Ipv6Options::new(bytes).items().last();
            assert_eq!(last, Some(Err(FormatError::OptionLength)), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            options in proptest::collection::vec(
                (2..=255_u8, proptest::collection::vec(any::<u8>(), 0..20)), 0..5),
        ) {
            let mut bytes = [0; 256];
            let each = options.iter().map(|(kind, data)| (*kind, data.as_slice()));
            let len = write(each, &mut bytes).unwrap();
            prop_assert_eq!((len + 2) % 8, 0);
            let read: Result<Vec<_>, _> = Ipv6Options::new(&bytes[..len]).items().collect();
            let read: Vec<_> = read.unwrap().into_iter().filter(|item| !item.is_padding())
                .map(|item| (item.kind, item.data.to_vec())).collect();
            prop_assert_eq!(read, options);
        }

        #[test]
        fn bytes_read_are_written_again(bytes in proptest::collection::vec(0..6_u8, 14)) {
            let read: Result<Vec<_>, _> = Ipv6Options::new(&bytes).items().collect();
            // Bytes that end in the middle of an option are the other test's.
            if let Ok(items) = read {
                let mut again = [0; 14];
                let items = items.iter().map(|item| (item.kind, item.data));
                prop_assert_eq!(write(items, &mut again), Some(14));
                prop_assert_eq!(&again[..], &bytes);
            }
        }
    }
}
