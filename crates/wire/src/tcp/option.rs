//! TCP options: read one by one, and written.
//!
//! RFC 9293 §3.2, RFC 7323 (window scale, timestamps), RFC 2018 (selective acknowledgement).
//! Left out: acting on them; the rarer ones, which are [`TcpOption::Other`].

use super::SeqNum;
use crate::malformed::FormatError;
use crate::option_area::{self, NO_OPERATION, OptionArea, OptionItem, OptionsTooLongError};

const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// The most blocks that one selective acknowledgement has room for.
pub const SACK_BLOCKS_MAX: usize = 4;

/// Bytes received out of order: from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// The first.
    pub start: SeqNum,
    /// The one behind the last.
    pub end: SeqNum,
}

/// The blocks of one selective acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [SackBlock; SACK_BLOCKS_MAX],
    len: usize,
}

impl SackBlocks {
    /// The first of `blocks`, as many as there is room for.
    pub fn new(blocks: &[SackBlock]) -> Self {
        let mut sack = Self::default();
        for (slot, block) in sack.blocks.iter_mut().zip(blocks) {
            *slot = *block;
            sack.len += 1;
        }
        sack
    }

    /// The blocks, the most recent first.
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..self.len]
    }

    fn read(data: &[u8]) -> Result<Self, FormatError> {
        let (blocks, rest) = data.as_chunks::<8>();
        if blocks.is_empty() || blocks.len() > SACK_BLOCKS_MAX || !rest.is_empty() {
            return Err(FormatError::OptionLength);
        }
        let mut sack = Self { len: blocks.len(), ..Self::default() };
        for (slot, &[a, b, c, d, e, f, g, h]) in sack.blocks.iter_mut().zip(blocks) {
            slot.start = SeqNum(u32::from_be_bytes([a, b, c, d]));
            slot.end = SeqNum(u32::from_be_bytes([e, f, g, h]));
        }
        Ok(sack)
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Between options, for alignment.
    NoOperation,
    /// The longest payload that the sender takes in one segment.
    Mss(u16),
    /// By how many bits the sender's windows are shifted; more than 14 count as 14
    /// (RFC 7323 §2.3).
    WindowScale(u8),
    /// The sender understands selective acknowledgements.
    SackPermitted,
    /// What arrived out of order.
    Sack(SackBlocks),
    /// The sender's clock, and the receiver's that it last saw.
    Timestamps {
        /// TSval.
        value: u32,
        /// TSecr.
        echo: u32,
    },
    /// Any other.
    Other {
        /// Its kind.
        kind: u8,
        /// What follows kind and length.
        data: &'a [u8],
    },
}

impl<'a> OptionItem<'a> for TcpOption<'a> {
    const NO_OPERATION: Self = Self::NoOperation;

    fn read(kind: u8, data: &'a [u8]) -> Result<Self, FormatError> {
        Ok(match (kind, data) {
            (MSS, &[a, b]) => Self::Mss(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => Self::WindowScale(shift),
            (SACK_PERMITTED, []) => Self::SackPermitted,
            (SACK, _) => Self::Sack(SackBlocks::read(data)?),
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => Self::Timestamps {
                value: u32::from_be_bytes([a, b, c, d]),
                echo: u32::from_be_bytes([e, f, g, h]),
            },
            (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS, _) => {
                return Err(FormatError::OptionLength);
            }
            _ => Self::Other { kind, data },
        })
    }

    fn write(&self, out: &mut [u8]) -> Option<usize> {
        match *self {
            Self::NoOperation => {
                *out.first_mut()? = NO_OPERATION;
                Some(1)
            }
            Self::Mss(mss) => write_one(MSS, &mss.to_be_bytes(), out),
            Self::WindowScale(shift) => write_one(WINDOW_SCALE, &[shift], out),
            Self::SackPermitted => write_one(SACK_PERMITTED, &[], out),
            Self::Timestamps { value, echo } => {
                let data = u64::from(value) << 32 | u64::from(echo);
                write_one(TIMESTAMPS, &data.to_be_bytes(), out)
            }
            Self::Sack(sack) => {
                let mut data = [0; 8 * SACK_BLOCKS_MAX];
                for (slot, block) in data.as_chunks_mut::<8>().0.iter_mut().zip(sack.as_slice()) {
                    let both = u64::from(block.start.0) << 32 | u64::from(block.end.0);
                    *slot = both.to_be_bytes();
                }
                write_one(SACK, &data[..8 * sack.len], out)
            }
            Self::Other { kind, data } => write_one(kind, data, out),
        }
    }
}

#[inline]
fn write_one(kind: u8, data: &[u8], out: &mut [u8]) -> Option<usize> {
    let out = out.get_mut(..2 + data.len())?;
    out[0] = kind;
    out[1] = u8::try_from(out.len()).ok()?;
    out[2..].copy_from_slice(data);
    Some(out.len())
}

/// The options in `area`, up to the end that it announces, or its own.
///
/// After an error there are no more.
#[inline]
pub fn items(area: &[u8]) -> impl Iterator<Item = Result<TcpOption<'_>, FormatError>> + Clone {
    option_area::items(area)
}

/// An area of these options, filled up with "end of options".
///
/// # Errors
/// [`OptionsTooLongError`] beyond 40 bytes.
pub fn area<'a>(
    items: impl IntoIterator<Item = TcpOption<'a>>,
) -> Result<OptionArea, OptionsTooLongError> {
    OptionArea::of(items)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_options_of_a_linux_syn_are_read_and_written_back() {
        let bytes = [
            0x02, 0x04, 0x05, 0xb4, 0x04, 0x02, 0x08, 0x0a, 0x00, 0x9c, 0x27, 0x24, 0x00, 0x00,
            0x00, 0x00, 0x01, 0x03, 0x03, 0x07,
        ];
        let read: Result<Vec<_>, _> = items(&bytes).collect();
        let expected = vec![
            TcpOption::Mss(1_460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 0x009c_2724, echo: 0 },
            TcpOption::NoOperation,
            TcpOption::WindowScale(7),
        ];
        assert_eq!(read.as_ref(), Ok(&expected));
        assert_eq!(area(expected).unwrap().as_bytes(), bytes);
    }

    #[test]
    fn a_length_that_the_option_cannot_have_is_refused() {
        let wrong: [&[u8]; 9] = [
            &[2],
            &[2, 3, 0],
            &[2, 0],
            &[3, 4, 0, 0],
            &[4, 3, 0],
            &[5, 2],
            &[5, 9, 0, 0, 0, 0, 0, 0, 0],
            &[8, 9, 0, 0, 0, 0, 0, 0, 0],
            &[254, 1],
        ];
        for bytes in wrong {
            assert_eq!(items(bytes).last(), Some(Err(FormatError::OptionLength)), "{bytes:?}");
        }
    }

    #[test]
    fn four_blocks_fit_and_a_fifth_is_left_out() {
        let block = |n| SackBlock { start: SeqNum(n), end: SeqNum(n + 10) };
        let blocks = [1, 2, 3, 4, 5].map(block);
        let sack = SackBlocks::new(&blocks);
        assert_eq!(sack.as_slice(), &blocks[..4]);
        let area =
            area([TcpOption::NoOperation, TcpOption::NoOperation, TcpOption::Sack(sack)]).unwrap();
        assert_eq!(items(area.as_bytes()).last(), Some(Ok(TcpOption::Sack(sack))));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_and_read_again(
            bytes in proptest::collection::vec(prop_oneof![0..12_u8, any::<u8>()], 0..=40),
        ) {
            let read: Vec<_> = items(&bytes).map_while(Result::ok).collect();
            let written = area(read.iter().copied()).unwrap();
            let again: Result<Vec<_>, _> = items(written.as_bytes()).collect();
            prop_assert_eq!(again, Ok(read));
        }
    }
}
