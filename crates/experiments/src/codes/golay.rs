//! The extended binary Golay code of 24 bits for 12: corrects three wrong bits and detects four (Golay 1949).
//!
//! Systematic: 12 bits of data, 11 check bits by the generator polynomial, and the parity of all. A syndrome of 12 bits names one of the 2,325
//! patterns of up to three errors, or none.

use std::sync::LazyLock;

use super::DecodedWord;

/// x¹¹ + x¹⁰ + x⁶ + x⁵ + x⁴ + x² + 1.
const GENERATOR: u32 = 0xc75;
/// Bits of a word.
const BITS: u32 = 24;

/// The pattern of errors of each syndrome; `None` where there are more than three.
static PATTERNS: LazyLock<Vec<Option<u32>>> = LazyLock::new(|| {
    let mut patterns = vec![None; 1 << 12];
    for pattern in up_to_three() {
        patterns[syndrome(pattern)] = Some(pattern);
    }
    patterns
});

/// The word of twelve bits of data.
pub(crate) fn encode(data: u16) -> u32 {
    let data = u32::from(data & 0xfff) << 11;
    let word = data | remainder(data);
    word << 1 | word.count_ones() & 1
}

/// What a word of 24 bits says.
pub(crate) fn decode(word: u32) -> DecodedWord {
    let Some(pattern) = PATTERNS[syndrome(word)] else { return DecodedWord::Uncorrectable };
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
fn syndrome(word: u32) -> usize {
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
    fn every_word_survives_every_pattern_of_three_errors() {
        let patterns: BTreeSet<u32> = up_to_three().collect();
        assert_eq!(patterns.len(), 1 + 24 + 276 + 2_024);
        for data in 0..1 << 12 {
            let word = encode(data);
            for pattern in &patterns {
                let found = decode(word ^ pattern);
                let expected = DecodedWord::Data { data, corrected: pattern.count_ones() };
                assert!(found == expected, "{data} {pattern:#x}: {found:?}");
            }
        }
    }

    #[test]
    fn words_differ_in_eight_bits_and_four_errors_show() {
        let word = encode(0x5a5);
        let least = (0..1 << 12)
            .filter(|data| *data != 0x5a5)
            .map(|data| (encode(data) ^ word).count_ones())
            .min();
        assert_eq!(least, Some(8));
        assert_eq!(decode(word ^ 0b1111), DecodedWord::Uncorrectable);
        assert_eq!(decode(word ^ 0x81_0081), DecodedWord::Uncorrectable);
    }
}
