//! IPv6 extension headers (RFC 8200 §4), walked one by one.
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
    fn read(protocol: IpProtocol, bytes: &'a [u8], at: usize) -> Result<Self, FormatError> {
        let options = Ipv6Options::new(bytes.get(2..).unwrap_or_default(), at + 2);
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
const PAD_1: u8 = 0;
/// Padding of two bytes and more.
const PAD_N: u8 = 1;

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
    bytes: &'a [u8],
    /// Where `bytes` begin, from the first of the IPv6 header.
    at: usize,
}

impl<'a> Ipv6Options<'a> {
    /// Those in these bytes, which begin at `at` from the first of the IPv6 header.
    pub const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// One by one. After an error there are no more.
    #[inline]
    pub fn items(
        &self,
    ) -> impl Iterator<Item = Result<Ipv6Option<'a>, FormatError>> + Clone + use<'a> {
        let Self { mut bytes, mut at } = *self;
        std::iter::from_fn(move || {
            let rest = std::mem::take(&mut bytes);
            let option = match *rest {
                [] => return None,
                [PAD_1, ..] => Some(1),
                [_, len, ..] => Some(2 + usize::from(len)),
                _ => None,
            };
            let split = option.and_then(|len| rest.split_at_checked(len));
            let Some((option, behind)) = split else { return Some(Err(FormatError::OptionLength)) };
            let data = option.get(2..).unwrap_or_default();
            let item = Ipv6Option { kind: option[0], data, at };
            at += option.len();
            bytes = behind;
            Some(Ok(item))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DESTINATION: u8 = IpProtocol::DESTINATION.0;
    const UDP: u8 = IpProtocol::UDP.0;
    /// Destination or hop-by-hop options before a header of UDP, of others: padding alone.
    const BEFORE_UDP: [u8; 8] = [UDP, 0, 1, 4, 0, 0, 0, 0];
    const BEFORE_DESTINATION: [u8; 8] = [DESTINATION, 0, 1, 4, 0, 0, 0, 0];

    #[test]
    fn the_walk_tells_what_everything_is_and_where() {
        let chain: [&[u8]; 6] = [
            &[IpProtocol::ROUTING.0, 0, 5, 2, 0, 0, 1, 0],
            &[IpProtocol::FRAGMENT.0, 0, 99, 3, 7, 7, 7, 7],
            &[IpProtocol::AUTHENTICATION.0, 0, 0, 0, 0, 0, 0, 9],
            &[DESTINATION, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
            &[UDP, 0, 1, 4, 0, 0, 0, 0],
            b"data",
        ];
        let payload = chain.concat();
        let mut walk = Ipv6Extensions::new(IpProtocol::HOP_BY_HOP, &payload);
        let alert = Ipv6Options::new(&chain[0][2..], 42);
        let fragment = Fragment { identification: 9, ..Fragment::default() };
        for (expected, protocol_at, payload_at) in [
            (Ipv6Extension::HopByHop(alert), 40, 48),
            (Ipv6Extension::Routing { kind: 99, segments_left: 3, data: &[7; 4] }, 48, 56),
            (Ipv6Extension::Fragment(fragment), 56, 64),
            (Ipv6Extension::Authentication(&[2; 10]), 64, 76),
            (Ipv6Extension::Destination(Ipv6Options::new(&chain[4][2..], 78)), 76, 84),
        ] {
            assert_eq!(walk.next(), Some(Ok(expected)));
            assert_eq!((walk.protocol_at(), walk.payload_at()), (protocol_at, payload_at));
        }
        assert_eq!(walk.next(), None);
        assert_eq!((walk.protocol(), walk.payload()), (IpProtocol::UDP, &b"data"[..]));
        // A router alert of RFC 2711, with its padding.
        let items: Result<Vec<_>, _> = alert.items().collect();
        let [alert, padding] = [(5, &[0, 0][..], 42), (PAD_N, &[], 46)]
            .map(|(kind, data, at)| Ipv6Option { kind, data, at });
        assert_eq!(items, Ok(vec![alert, padding]));
        assert!(padding.is_padding() && !alert.is_padding());
    }

    #[test]
    fn nothing_behind_a_fragment_is_walked() {
        let payload = [&[DESTINATION, 0, 0, 9, 0, 0, 0, 1][..], &BEFORE_UDP].concat();
        let mut walk = Ipv6Extensions::new(IpProtocol::FRAGMENT, &payload);
        let fragment = Fragment { identification: 1, offset: 8, more: true };
        assert_eq!(walk.next(), Some(Ok(Ipv6Extension::Fragment(fragment))));
        assert_eq!((walk.next(), walk.protocol()), (None, IpProtocol::DESTINATION));
        assert_eq!(walk.payload().len(), 8);
    }

    #[test]
    fn hop_by_hop_options_in_second_place_are_as_good_as_unknown() {
        let payload = [[IpProtocol::HOP_BY_HOP.0, 0, 1, 4, 0, 0, 0, 0], BEFORE_UDP].concat();
        let mut walk = Ipv6Extensions::new(IpProtocol::DESTINATION, &payload);
        assert!(walk.by_ref().all(|extension| extension.is_ok()));
        assert_eq!((walk.protocol(), walk.protocol_at()), (IpProtocol::HOP_BY_HOP, 40));
    }

    #[test]
    fn a_chain_longer_than_the_limit_is_refused() {
        for (longer, expected) in [(0, None), (1, Some(Err(FormatError::Extensions)))] {
            let options = BEFORE_DESTINATION.repeat(EXTENSIONS_MAX - 1 + longer);
            let payload = [&options[..], &BEFORE_UDP].concat();
            let mut walk = Ipv6Extensions::new(IpProtocol::DESTINATION, &payload);
            assert_eq!(walk.by_ref().find(Result::is_err), expected);
            assert_eq!(walk.next(), None);
        }
    }

    #[test]
    fn a_chain_cut_anywhere_is_truncated() {
        let payload =
            [&[IpProtocol::FRAGMENT.0, 2][..], &[0; 22], &[UDP, 0, 0, 0, 0, 0, 0, 0]].concat();
        for len in 0..payload.len() {
            let last = Ipv6Extensions::new(IpProtocol::ROUTING, &payload[..len]).last();
            assert_eq!(last, Some(Err(FormatError::Truncated)), "{len}");
        }
    }

    #[test]
    fn the_type_of_an_unknown_option_says_what_to_do() {
        let action = |kind| Ipv6Option { kind, data: &[], at: 0 }.action();
        assert_eq!(action(0x1e), UnknownOptionAction::Skip);
        assert_eq!(action(0x5e), UnknownOptionAction::Drop);
        assert_eq!(action(0x9e), UnknownOptionAction::Report);
        assert_eq!(action(0xc2), UnknownOptionAction::ReportUnlessMulticast);
    }

    #[test]
    fn a_length_that_leaves_the_header_is_refused() {
        for bytes in [&[5][..], &[5, 1], &[0, 1, 2, 9]] {
            let last = Ipv6Options::new(bytes, 0).items().last();
            assert_eq!(last, Some(Err(FormatError::OptionLength)), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn options_are_the_bytes_in_their_order(bytes in proptest::collection::vec(0..6_u8, 14)) {
            let mut again = Vec::new();
            for item in Ipv6Options::new(&bytes, 0).items().map_while(Result::ok) {
                prop_assert_eq!(item.at, again.len());
                again.push(item.kind);
                if item.kind != PAD_1 {
                    again.push(u8::try_from(item.data.len()).unwrap());
                    again.extend(item.data);
                }
            }
            prop_assert_eq!(&bytes[..again.len()], &again);
        }
    }
}
