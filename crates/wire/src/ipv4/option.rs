//! IPv4 options (RFC 791 §3.1): read one by one, and written.
//!
//! Left out: acting on them. Those that no host should send any more (RFC 6814) are read as
//! [`Ipv4Option::Other`].

use crate::malformed::FormatError;
use crate::option_area::{self, NO_OPERATION, OptionArea, OptionItem, OptionsTooLongError};

const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;
const ROUTER_ALERT: u8 = 148;

/// Set in the type of those that every fragment must carry.
const COPIED: u8 = 0x80;

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv4Option<'a> {
    /// Between options, for alignment.
    NoOperation,
    /// Routers write down their addresses.
    RecordRoute(RouteRecord<'a>),
    /// Routers to pass by, others between.
    LooseRoute(RouteRecord<'a>),
    /// Routers to pass by, and no others.
    StrictRoute(RouteRecord<'a>),
    /// Routers write down the time.
    Timestamp {
        /// Where the next goes, from 1 at the option's type.
        pointer: u8,
        /// How many did not fit, and what is written: four bits each.
        overflow_and_flag: u8,
        /// What is written, and room for more.
        data: &'a [u8],
    },
    /// Routers shall look at the packet (RFC 2113); 0 says every one.
    RouterAlert(u16),
    /// Any other.
    Other {
        /// Its type.
        kind: u8,
        /// What follows type and length.
        data: &'a [u8],
    },
}

/// Addresses, and which is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRecord<'a> {
    /// Where the next is, from 1 at the option's type: 4 is the first.
    pub pointer: u8,
    /// The addresses, four bytes each.
    pub addresses: &'a [u8],
}

impl RouteRecord<'_> {
    /// Whether every address has been used up: a source route has come to its end.
    pub fn is_full(&self) -> bool {
        usize::from(self.pointer) > self.addresses.len() + 3
    }
}

impl Ipv4Option<'_> {
    /// Its type, copied flag included.
    pub fn kind(&self) -> u8 {
        match self {
            Self::NoOperation => NO_OPERATION,
            Self::RecordRoute(_) => RECORD_ROUTE,
            Self::LooseRoute(_) => LOOSE_ROUTE,
            Self::StrictRoute(_) => STRICT_ROUTE,
            Self::Timestamp { .. } => TIMESTAMP,
            Self::RouterAlert(_) => ROUTER_ALERT,
            Self::Other { kind, .. } => *kind,
        }
    }

    /// Whether every fragment must carry it, and not the first alone.
    pub fn is_copied(&self) -> bool {
        self.kind() & COPIED != 0
    }
}

impl<'a> OptionItem<'a> for Ipv4Option<'a> {
    const NO_OPERATION: Self = Self::NoOperation;

    fn read(kind: u8, data: &'a [u8]) -> Result<Self, FormatError> {
        let slots = || match data {
            [pointer, addresses @ ..] if addresses.len().is_multiple_of(4) && *pointer >= 4 => {
                Ok(RouteRecord { pointer: *pointer, addresses })
            }
            _ => Err(FormatError::OptionLength),
        };
        Ok(match kind {
            RECORD_ROUTE => Self::RecordRoute(slots()?),
            LOOSE_ROUTE => Self::LooseRoute(slots()?),
            STRICT_ROUTE => Self::StrictRoute(slots()?),
            TIMESTAMP => match data {
                [pointer, overflow_and_flag, data @ ..] if *pointer >= 5 => Self::Timestamp {
                    pointer: *pointer,
                    overflow_and_flag: *overflow_and_flag,
                    data,
                },
                _ => return Err(FormatError::OptionLength),
            },
            ROUTER_ALERT => match data {
                [a, b] => Self::RouterAlert(u16::from_be_bytes([*a, *b])),
                _ => return Err(FormatError::OptionLength),
            },
            _ => Self::Other { kind, data },
        })
    }

    fn write(&self, out: &mut [u8]) -> Option<usize> {
        let (head, data): ([u8; 4], &[u8]) = match *self {
            Self::NoOperation => {
                *out.first_mut()? = NO_OPERATION;
                return Some(1);
            }
            Self::RecordRoute(s) | Self::LooseRoute(s) | Self::StrictRoute(s) => {
                ([self.kind(), 3, s.pointer, 0], s.addresses)
            }
            Self::Timestamp { pointer, overflow_and_flag, data } => {
                ([TIMESTAMP, 4, pointer, overflow_and_flag], data)
            }
            Self::RouterAlert(value) => {
                let [a, b] = value.to_be_bytes();
                ([ROUTER_ALERT, 4, a, b], &[])
            }
            Self::Other { kind, data } => ([kind, 2, 0, 0], data),
        };
        let head_len = usize::from(head[1]);
        let len = head_len + data.len();
        let out = out.get_mut(..len)?;
        out[..head_len].copy_from_slice(&head[..head_len]);
        out[1] = u8::try_from(len).ok()?;
        out[head_len..].copy_from_slice(data);
        Some(len)
    }
}

/// The options in `area`, up to the end that it announces, or its own.
///
/// After an error there are no more.
pub fn items(area: &[u8]) -> impl Iterator<Item = Result<Ipv4Option<'_>, FormatError>> + Clone {
    option_area::items(area)
}

/// An area of these options, filled up with "end of options".
///
/// # Errors
/// [`OptionsTooLongError`] beyond 40 bytes.
pub fn area<'a>(
    items: impl IntoIterator<Item = Ipv4Option<'a>>,
) -> Result<OptionArea, OptionsTooLongError> {
    OptionArea::of(items)
}

/// What every fragment but the first carries of `options`: those with the copied flag
/// (RFC 791 §3.1). Malformed options end where they go wrong.
pub fn copied(options: &[u8]) -> OptionArea {
    let copied = items(options).map_while(Result::ok).filter(Ipv4Option::is_copied);
    area(copied).expect("no more than fitted before")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(area: &[u8]) -> Result<Vec<Ipv4Option<'_>>, FormatError> {
        items(area).collect()
    }

    #[test]
    fn options_are_read_up_to_their_end() {
        let bytes = [1, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0, 99, 1, 1];
        let route = RouteRecord { pointer: 4, addresses: &[0; 4] };
        assert!(!route.is_full());
        let expected = vec![
            Ipv4Option::NoOperation,
            Ipv4Option::RouterAlert(0),
            Ipv4Option::RecordRoute(route),
        ];
        assert_eq!(read(&bytes), Ok(expected));
        assert!(RouteRecord { pointer: 8, addresses: &[0; 4] }.is_full());
    }

    #[test]
    fn a_length_that_leaves_the_area_or_its_own_head_is_refused() {
        for bytes in [&[7][..], &[7, 0], &[7, 1], &[7, 4, 4], &[148, 3, 0], &[131, 3, 3, 0]] {
            let expected = Err(FormatError::OptionLength);
            assert_eq!(items(bytes).last().unwrap(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn only_options_with_the_copied_flag_go_into_later_fragments() {
        let bytes = [7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 0];
        assert_eq!(copied(&bytes).as_bytes(), [148, 4, 0, 0]);
        assert!(copied(&bytes[..7]).is_empty());
    }

    #[test]
    fn more_options_than_there_is_room_for_are_refused() {
        let item = Ipv4Option::Other { kind: 130, data: &[0; 20] };
        assert!(area([item]).is_ok());
        assert_eq!(area([item, item]), Err(OptionsTooLongError));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_and_read_again(bytes in proptest::collection::vec(any::<u8>(), 0..=40)) {
            let read: Vec<_> = items(&bytes).map_while(Result::ok).collect();
            let written = area(read.iter().copied()).unwrap();
            let again: Result<Vec<_>, _> = items(written.as_bytes()).collect();
            prop_assert_eq!(&again, &Ok(read));
            let len = written.len().min(bytes.len());
            let used = items(written.as_bytes()).count();
            if used > 0 && items(&bytes).all(|item| item.is_ok()) {
                let end = written.as_bytes().iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
                prop_assert_eq!(&written.as_bytes()[..end.min(len)], &bytes[..end.min(len)]);
            }
        }
    }
}
