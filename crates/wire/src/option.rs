//! The options of an IPv4 or TCP header, at most 40 bytes; those of IPv4 (RFC 791 §3.1) one by one.

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

const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
/// Routers to pass by, others between.
pub const LOOSE_ROUTE: u8 = 131;
/// Routers to pass by, and no others.
pub const STRICT_ROUTE: u8 = 137;
const ROUTER_ALERT: u8 = 148;

/// Set in the type of those that every fragment must carry.
const COPIED: u8 = 0x80;

/// The options in `area`, up to the end that it announces, or its own: each whole, its type first.
///
/// After an error there are no more.
pub fn items(mut area: &[u8]) -> impl Iterator<Item = Result<&[u8], FormatError>> + Clone {
    std::iter::from_fn(move || {
        let rest = std::mem::take(&mut area);
        let len = match *rest {
            [] | [END, ..] => return None,
            [NO_OPERATION, ..] => 1,
            [_, len, ..] => usize::from(len),
            _ => return Some(Err(FormatError::OptionLength)),
        };
        let split = rest.split_at_checked(len).filter(|(option, _)| is_sound(option));
        let Some((option, behind)) = split else { return Some(Err(FormatError::OptionLength)) };
        area = behind;
        Some(Ok(option))
    })
}

/// Whether an option has a length that its type can have, and points to where something can be.
fn is_sound(option: &[u8]) -> bool {
    match *option {
        [RECORD_ROUTE | LOOSE_ROUTE | STRICT_ROUTE, _, ref route @ ..] => {
            matches!(route, [pointer, addresses @ ..]
                if *pointer >= 4 && addresses.len().is_multiple_of(4))
        }
        [TIMESTAMP, _, ref times @ ..] => matches!(times, [pointer, _, ..] if *pointer >= 5),
        [ROUTER_ALERT, _, ref value @ ..] => value.len() == 2,
        _ => matches!(*option, [NO_OPERATION] | [_, _, ..]),
    }
}

/// What every fragment but the first carries of `options`: those with the copied flag
/// (RFC 791 §3.1). Malformed options end where they go wrong.
pub fn copied(options: &[u8]) -> OptionArea {
    let copied = items(options).map_while(Result::ok).filter(|option| option[0] & COPIED != 0);
    let (mut bytes, mut len) = ([0; CAPACITY], 0);
    for option in copied {
        bytes[len..len + option.len()].copy_from_slice(option);
        len += option.len();
    }
    OptionArea::new(&bytes[..len]).expect("no more than fitted before")
}

/// Options that need more than [`CAPACITY`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("options of more than 40 bytes do not fit into a header: leave some out")]
pub struct OptionsTooLongError;

impl OptionArea {
    /// No options.
    pub const EMPTY: Self = Self { bytes: [0; CAPACITY], len: 0 };

    /// TCP's timestamps alone, aligned as RFC 7323 appendix A has them.
    #[inline]
    pub const fn timestamps(value: u32, echo: u32) -> Self {
        let words = 0x0101_080a_u128 << 96 | (value as u128) << 64 | (echo as u128) << 32;
        let (written, mut bytes) = (words.to_be_bytes(), [0; CAPACITY]);
        bytes.split_at_mut(written.len()).0.copy_from_slice(&written);
        Self { bytes, len: 12 }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_what_their_bytes_say() {
        let bytes = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(
            OptionArea::timestamps(0x0102_0304, 0x0506_0708),
            OptionArea::new(&bytes).unwrap()
        );
    }

    #[test]
    fn ipv4_options_are_read_up_to_their_end() {
        let bytes = [1, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0, 99, 1, 1];
        let expected: Vec<&[u8]> = vec![&[1], &[148, 4, 0, 0], &[7, 7, 4, 0, 0, 0, 0]];
        assert_eq!(items(&bytes).collect::<Result<Vec<_>, _>>(), Ok(expected));
    }

    // MUST-68.
    #[test]
    fn a_length_that_the_option_cannot_have_is_refused() {
        let pointers: [&[u8]; 3] = [&[7, 4, 4, 0], &[131, 3, 3], &[68, 4, 4, 0]];
        let lengths: [&[u8]; 6] =
            [&[7], &[7, 0], &[7, 1], &[7, 4, 4], &[148, 3, 0], &[131, 3, 3, 0]];
        for bytes in lengths.into_iter().chain(pointers) {
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
        assert!(OptionArea::new(&[130; CAPACITY]).is_ok());
        assert_eq!(OptionArea::new(&[130; CAPACITY + 1]), Err(OptionsTooLongError));
    }
}
