//! Block codes against bit errors: a word of data with check bits, from which a few flipped bits are found again.

pub(crate) mod golay;
pub(crate) mod hamming;

/// The message of a word, and whether it was corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodedWord {
    /// The data, and how many bits were flipped; more than the code promises to find may look like fewer.
    Data {
        /// The bits of data.
        data: u16,
        /// Bits that were corrected.
        corrected: u32,
    },
    /// More bits are wrong than can be corrected.
    Uncorrectable,
}
