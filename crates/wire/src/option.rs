//! The options of an IPv4 or TCP header, at most 40 bytes; those of IPv4 (RFC 791 §3.1) read and written one by one.

use std::fmt;

use crate::malformed::FormatError;

/// Room for options: a header has 4 bits to count 32-bit words, five of which are its own.
pub const CAPACITY: usize = 40;

/// The bytes behind a fixed header, as they are sent.
#[derive(Clone, Copy)]
pub struct OptionArea {
    bytes: [u8; CAPACITY],
    len: u8,
}

/// Behind it there are no options: one byte, without a length.
const END: u8 = 0;
/// Between options, for alignment: one byte, without a length.
const NO_OPERATION: u8 = 1;

/// The options in `area`, up to the end that it announces, or its own.
///
/// After an error there are no more.
pub fn items(area: &[u8]) -> impl Iterator<Item = Result<Ipv4Option<'_>, FormatError>> + Clone {
    OptionIter { rest: area }
}

#[derive(Clone)]
struct OptionIter<'a> {
    rest: &'a [u8],
}

impl<'a> OptionIter<'a> {
    fn pull(&mut self) -> Result<Option<Ipv4Option<'a>>, FormatError> {
        let rest = std::mem::take(&mut self.rest);
        let Some((&kind, tail)) = rest.split_first() else { return Ok(None) };
        if kind == END {
            return Ok(None);
        }
        if kind == NO_OPERATION {
            self.rest = tail;
            return Ok(Some(Ipv4Option::NoOperation));
        }
        let len = tail.first().ok_or(FormatError::OptionLength)?;
        let data = rest.get(2..usize::from(*len)).ok_or(FormatError::OptionLength)?;
        let item = Ipv4Option::read(kind, data)?;
        self.rest = &rest[usize::from(*len)..];
        Ok(Some(item))
    }
}

impl<'a> Iterator for OptionIter<'a> {
    type Item = Result<Ipv4Option<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pull().transpose()
    }
}

/// Options that need more than [`CAPACITY`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("options of more than 40 bytes do not fit into a header: leave some out")]
pub struct OptionsTooLongError;

impl OptionArea {
    /// No options.
    pub const EMPTY: Self = Self { bytes: [0; CAPACITY], len: 0 };

    /// These bytes, filled up with zeros ("end of options") to a multiple of four.
    ///
    /// # Errors
    /// [`OptionsTooLongError`] beyond [`CAPACITY`].
    #[inline]
    pub fn new(options: &[u8]) -> Result<Self, OptionsTooLongError> {
        let mut area = Self::EMPTY;
        if options.is_empty() {
            return Ok(area);
        }
        area.bytes.get_mut(..options.len()).ok_or(OptionsTooLongError)?.copy_from_slice(options);
        area.len =
            u8::try_from(options.len().next_multiple_of(4)).map_err(|_| OptionsTooLongError)?;
        Ok(area)
    }

    /// These options, filled up with "end of options".
    ///
    /// # Errors
    /// [`OptionsTooLongError`] beyond [`CAPACITY`].
    pub fn of<'a>(
        items: impl IntoIterator<Item = Ipv4Option<'a>>,
    ) -> Result<Self, OptionsTooLongError> {
        let mut bytes = [0; CAPACITY];
        let mut len = 0;
        for item in items {
            len += item.write(&mut bytes[len..]).ok_or(OptionsTooLongError)?;
        }
        Self::new(&bytes[..len])
    }

    /// The bytes, a multiple of four.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// Bytes in the header.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for OptionArea {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialEq for OptionArea {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for OptionArea {}

impl fmt::Debug for OptionArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OptionArea({:02x?})", self.as_bytes())
    }
}

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

impl<'a> Ipv4Option<'a> {
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
        match *self {
            Self::NoOperation => {
                *out.first_mut()? = NO_OPERATION;
                Some(1)
            }
            Self::RecordRoute(s) | Self::LooseRoute(s) | Self::StrictRoute(s) => {
                write_one(self.kind(), &[s.pointer], s.addresses, out)
            }
            Self::Timestamp { pointer, overflow_and_flag, data } => {
                write_one(TIMESTAMP, &[pointer, overflow_and_flag], data, out)
            }
            Self::RouterAlert(value) => write_one(ROUTER_ALERT, &value.to_be_bytes(), &[], out),
            Self::Other { kind, data } => write_one(kind, &[], data, out),
        }
    }
}

/// What every fragment but the first carries of `options`: those with the copied flag
/// (RFC 791 §3.1). Malformed options end where they go wrong.
pub fn copied(options: &[u8]) -> OptionArea {
    let copied = items(options).map_while(Result::ok).filter(Ipv4Option::is_copied);
    OptionArea::of(copied).expect("no more than fitted before")
}

/// Writes type and length, and what follows them.
fn write_one(kind: u8, head: &[u8], data: &[u8], out: &mut [u8]) -> Option<usize> {
    let out = out.get_mut(..2 + head.len() + data.len())?;
    out[0] = kind;
    out[1] = u8::try_from(out.len()).ok()?;
    let (front, back) = out[2..].split_at_mut(head.len());
    front.copy_from_slice(head);
    back.copy_from_slice(data);
    Some(out.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ipv4_options_are_read_up_to_their_end() {
        let bytes = [1, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0, 99, 1, 1];
        let route = RouteRecord { pointer: 4, addresses: &[0; 4] };
        let expected = vec![
            Ipv4Option::NoOperation,
            Ipv4Option::RouterAlert(0),
            Ipv4Option::RecordRoute(route),
        ];
        assert_eq!(items(&bytes).collect::<Result<Vec<_>, _>>(), Ok(expected));
        assert!(!route.is_full());
        assert!(RouteRecord { pointer: 8, addresses: &[0; 4] }.is_full());
    }

    #[test]
    fn a_length_that_the_option_cannot_have_is_refused() {
        for bytes in [&[7][..], &[7, 0], &[7, 1], &[7, 4, 4], &[148, 3, 0], &[131, 3, 3, 0]] {
            assert_eq!(items(bytes).last(), Some(Err(FormatError::OptionLength)), "{bytes:?}");
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
        assert!(OptionArea::of([item]).is_ok());
        assert_eq!(OptionArea::of([item, item]), Err(OptionsTooLongError));
    }

    proptest! {
        #[test]
        fn ipv4_options_read_are_written_and_read_again(bytes in proptest::collection::vec(any::<u8>(), 0..=40)) {
            let read: Vec<Ipv4Option<'_>> = items(&bytes).map_while(Result::ok).collect();
            let written = OptionArea::of(read.iter().copied()).unwrap();
            let again: Result<Vec<_>, _> = items(written.as_bytes()).collect();
            let used = read.len();
            prop_assert_eq!(&again, &Ok(read));
            let len = written.len().min(bytes.len());
            if used > 0 && items(&bytes).all(|item| item.is_ok()) {
                let end = written.as_bytes().iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
                prop_assert_eq!(&written.as_bytes()[..end.min(len)], &bytes[..end.min(len)]);
            }
        }
    }
}
