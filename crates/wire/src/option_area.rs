//! The options of an IPv4 or TCP header: at most 40 bytes, a multiple of four.
//!
//! Left out: what the options say (`ipv4::option`, `tcp::option`).

use std::fmt;

/// Room for options: a header has 4 bits to count 32-bit words, five of which are its own.
pub const CAPACITY: usize = 40;

/// The bytes behind a fixed header, as they are sent.
#[derive(Clone, Copy)]
pub struct OptionArea {
    bytes: [u8; CAPACITY],
    len: u8,
}

/// Options that need more than [`CAPACITY`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("options of more than 40 bytes do not fit into a header: leave some out")]
pub struct NoRoom;

impl OptionArea {
    /// No options.
    pub const EMPTY: Self = Self { bytes: [0; CAPACITY], len: 0 };

    /// These bytes, filled up with zeros ("end of options") to a multiple of four.
    ///
    /// # Errors
    /// [`NoRoom`] beyond [`CAPACITY`].
    #[inline]
    pub fn new(options: &[u8]) -> Result<Self, NoRoom> {
        let mut area = Self::EMPTY;
        if options.is_empty() {
            return Ok(area);
        }
        area.bytes.get_mut(..options.len()).ok_or(NoRoom)?.copy_from_slice(options);
        area.len = u8::try_from(options.len().next_multiple_of(4)).map_err(|_| NoRoom)?;
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
