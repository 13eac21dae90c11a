//! Block codes against bit errors: a word of data with check bits, from which a few flipped bits are found again.
//!
//! The extended Hamming code of 8 bits for 4 corrects one wrong bit and detects two (Hamming 1950): bit 0 is the parity of all,
//! bits 1 to 7 are at the positions of the code of 7 bits, where 1, 2 and 4 are the check bits. The extended binary Golay code
//! of 24 bits for 12 corrects three and detects four (Golay 1949): 12 bits of data, 11 check bits by the generator polynomial,
//! and the parity of all; a syndrome of 12 bits names one of the 2,325 patterns of up to three errors, or none.

use std::sync::LazyLock;

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

/// Positions of the bits of data.
const DATA: [u32; 4] = [3, 5, 6, 7];

/// The word of four bits of data.
pub(crate) fn hamming_encode(data: u8) -> u8 {
    let placed = DATA.iter().enumerate().fold(0, |word, (bit, at)| word | (data >> bit & 1) << at);
    // The check bits make the exclusive or of the positions of all set bits zero.
    let word = placed | check_bits(hamming_syndrome(placed));
    word | parity(word)
}

/// Decodes a word of eight bits.
pub(crate) fn hamming_decode(word: u8) -> DecodedWord {
    let (at, is_odd) = (hamming_syndrome(word), parity(word) == 1);
    let corrected = match (at, is_odd) {
        (0, false) => word,
        // One wrong bit, be it the parity's own.
        (at, true) => word ^ 1 << at,
        (_, false) => return DecodedWord::Uncorrectable,
    };
    let data = DATA
        .iter()
        .enumerate()
        .fold(0, |data, (bit, at)| data | u16::from(corrected >> at & 1) << bit);
    DecodedWord::Data { data, corrected: u32::from(is_odd) }
}

/// The exclusive or of the positions of the bits that are set.
fn hamming_syndrome(word: u8) -> u8 {
    (1..8).filter(|at| word >> at & 1 == 1).fold(0, |sum, at| sum ^ at)
}

/// The bits at positions 1, 2 and 4 of a syndrome.
fn check_bits(syndrome: u8) -> u8 {
    (0..3).fold(0, |word, bit| word | (syndrome >> bit & 1) << (1 << bit))
}

fn parity(word: u8) -> u8 {
    u8::try_from(word.count_ones() & 1).expect("one bit")
}

/// x¹¹ + x¹⁰ + x⁶ + x⁵ + x⁴ + x² + 1.
const GENERATOR: u32 = 0xc75;
/// Bits of a word.
const BITS: u32 = 24;

/// The pattern of errors of each syndrome; `None` where there are more than three.
static PATTERNS: LazyLock<Vec<Option<u32>>> = LazyLock::new(|| {
    let mut patterns = vec![None; 1 << 12];
    for pattern in up_to_three() {
        patterns[golay_syndrome(pattern)] = Some(pattern);
    }
    patterns
});

/// The word of twelve bits of data.
pub(crate) fn golay_encode(data: u16) -> u32 {
    let data = u32::from(data & 0xfff) << 11;
    let word = data | remainder(data);
    word << 1 | word.count_ones() & 1
}

/// Decodes a word of 24 bits.
pub(crate) fn golay_decode(word: u32) -> DecodedWord {
    let Some(pattern) = PATTERNS[golay_syndrome(word)] else { return DecodedWord::Uncorrectable };
    let data = (word ^ pattern) >> 12 & 0xfff;
    DecodedWord::Data {
        data: u16::try_from(data).expect("twelve bits"),
        corrected: pattern.count_ones(),
    }
}

/// What is left of 23 bits by the generator.
fn remainder(mut word: u32) -> u32 {
    for bit in (11..23).rev() {
        if word >> bit & 1 == 1 {
            word ^= GENERATOR << (bit - 11);
        }
    }
    word
}

/// The remainder, and the parity of all.
fn golay_syndrome(word: u32) -> usize {
    (remainder(word >> 1) << 1 | word.count_ones() & 1) as usize
}

/// Every pattern of up to three errors.
fn up_to_three() -> impl Iterator<Item = u32> {
    let bits = || (0..BITS).map(|bit| 1_u32 << bit).chain([0]);
    bits().flat_map(move |a| bits().flat_map(move |b| bits().map(move |c| a | b | c)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_survives_one_error_and_shows_two() {
        for data in 0..16 {
            let word = hamming_encode(data);
            let is = |corrected| DecodedWord::Data { data: data.into(), corrected };
            assert_eq!(hamming_decode(word), is(0));
            for first in 0..8 {
                assert_eq!(hamming_decode(word ^ 1 << first), is(1), "{data} {first}");
                for second in 0..first {
                    assert_eq!(
                        hamming_decode(word ^ 1 << first ^ 1 << second),
                        DecodedWord::Uncorrectable
                    );
                }
            }
        }
    }

    #[test]
    fn every_word_survives_every_pattern_of_three_errors() {
        let patterns: BTreeSet<u32> = up_to_three().collect();
        assert_eq!(patterns.len(), 1 + 24 + 276 + 2_024);
        for data in 0..1 << 12 {
            let word = golay_encode(data);
            for pattern in &patterns {
                let found = golay_decode(word ^ pattern);
                let expected = DecodedWord::Data { data, corrected: pattern.count_ones() };
                assert!(found == expected, "{data} {pattern:#x}: {found:?}");
            }
        }
    }

    #[test]
    fn words_differ_in_eight_bits_and_four_errors_show() {
        let word = golay_encode(0x5a5);
        let least = (0..1 << 12)
            .filter(|data| *data != 0x5a5)
            .map(|data| (golay_encode(data) ^ word).count_ones())
            .min();
        assert_eq!(least, Some(8));
        assert_eq!(golay_decode(word ^ 0b1111), DecodedWord::Uncorrectable);
        assert_eq!(golay_decode(word ^ 0x81_0081), DecodedWord::Uncorrectable);
    }
}
