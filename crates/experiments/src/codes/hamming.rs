//! The extended Hamming code of 8 bits for 4: corrects one wrong bit and detects two (Hamming 1950).
//!
//! Bit 0 is the parity of all; bits 1 to 7 are at the positions of the code of 7 bits, where 1, 2 and 4 are the check bits.

use super::DecodedWord;

/// Positions of the bits of data.
const DATA: [u32; 4] = [3, 5, 6, 7];

/// The word of four bits of data.
pub(crate) fn encode(data: u8) -> u8 {
    let placed = DATA.iter().enumerate().fold(0, |word, (bit, at)| word | (data >> bit & 1) << at);
    // The check bits make the exclusive or of the positions of all set bits zero.
    let word = placed | check_bits(syndrome(placed));
    word | parity(word)
}

/// What a word of eight bits says.
pub(crate) fn decode(word: u8) -> DecodedWord {
    let (at, is_odd) = (syndrome(word), parity(word) == 1);
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
fn syndrome(word: u8) -> u8 {
    (1..8).filter(|at| word >> at & 1 == 1).fold(0, |sum, at| sum ^ at)
}

/// The bits at positions 1, 2 and 4 of a syndrome.
fn check_bits(syndrome: u8) -> u8 {
    (0..3).fold(0, |word, bit| word | (syndrome >> bit & 1) << (1 << bit))
}

fn parity(word: u8) -> u8 {
    u8::try_from(word.count_ones() & 1).expect("one bit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_survives_one_error_and_shows_two() {
        for data in 0..16 {
            let word = encode(data);
            let is = |corrected| DecodedWord::Data { data: data.into(), corrected };
            assert_eq!(decode(word), is(0));
            for first in 0..8 {
                assert_eq!(decode(word ^ 1 << first), is(1), "{data} {first}");
                for second in 0..first {
                    assert_eq!(decode(word ^ 1 << first ^ 1 << second), DecodedWord::Uncorrectable);
                }
            }
        }
    }
}
