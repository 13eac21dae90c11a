//! The options of an IPv4 or TCP header: at most 40 bytes, a multiple of four, read and written one by one.
//!
//! Left out: what the options say (`ipv4::option`, `tcp::option`).

use std::fmt;
use std::marker::PhantomData;

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
pub(crate) const NO_OPERATION: u8 = 1;

/// One option, as its protocol understands it.
pub(crate) trait OptionItem<'a>: Sized {
    /// The one that is but a byte between others.
    const NO_OPERATION: Self;

    /// That of a type and of what follows type and length.
    fn read(kind: u8, data: &'a [u8]) -> Result<Self, FormatError>;

    /// Writes it to the front of `out` and gives its length, or `None` without room.
    fn write(&self, out: &mut [u8]) -> Option<usize>;
}

/// The options in `area`, up to the end that it announces, or its own.
///
/// After an error there are no more.
#[inline]
pub(crate) fn items<'a, I: OptionItem<'a>>(area: &'a [u8]) -> OptionIter<'a, I> {
    OptionIter { rest: area, of: PhantomData }
}

pub(crate) struct OptionIter<'a, I> {
    rest: &'a [u8],
    of: PhantomData<I>,
}

impl<I> Clone for OptionIter<'_, I> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, I: OptionItem<'a>> OptionIter<'a, I> {
    #[inline]
    fn pull(&mut self) -> Result<Option<I>, FormatError> {
        let rest = std::mem::take(&mut self.rest);
        let Some((&kind, tail)) = rest.split_first() else { return Ok(None) };
        if kind == END {
            return Ok(None);
        }
        if kind == NO_OPERATION {
            self.rest = tail;
            return Ok(Some(I::NO_OPERATION));
        }
        let len = tail.first().ok_or(FormatError::OptionLength)?;
        let data = rest.get(2..usize::from(*len)).ok_or(FormatError::OptionLength)?;
        let item = I::read(kind, data)?;
        self.rest = &rest[usize::from(*len)..];
        Ok(Some(item))
    }
}

impl<'a, I: OptionItem<'a>> Iterator for OptionIter<'a, I> {
    type Item = Result<I, FormatError>;

    #[inline]
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
    pub(crate) fn of<'a, I: OptionItem<'a>>(
        items: impl IntoIterator<Item = I>,
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
