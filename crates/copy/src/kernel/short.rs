//! Sum and copy of a few bytes: headers and the tails of longer pieces, without a loop's setup.
//!
//! Right for any length, quick up to [`MAX`].

/// The length in bytes up to which this is quicker than choosing a kernel.
pub(crate) const MAX: usize = 64;

/// The sum of little-endian words modulo 2⁶⁴−1.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut total = 0u128;
    for word in words {
        total += u128::from(u64::from_le_bytes(*word));
    }
    fold(total + u128::from(last(bytes, tail)))
}

/// The same, and `src` copied to `dst`, which is as long.
#[inline]
pub(crate) fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> u64 {
    let (words, tail) = src.as_chunks::<8>();
    let (into, into_tail) = dst.as_chunks_mut::<8>();
    let mut total = 0u128;
    for (word, into) in words.iter().zip(into) {
        total += u128::from(u64::from_le_bytes(*word));
        *into = *word;
    }
    let total = fold(total + u128::from(last(src, tail)));
    into_tail.copy_from_slice(tail);
    total
}

/// The upper half of a total counts the carries out of the lower one: both in 64 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
pub(super) fn fold(total: u128) -> u64 {
    let (sum, carry) = (total as u64).overflowing_add((total >> 64) as u64);
    sum + u64::from(carry)
}

/// The fewer than eight bytes of `tail`, which end `bytes`, as a word padded with zeros.
#[inline]
fn last(bytes: &[u8], tail: &[u8]) -> u64 {
    if tail.is_empty() {
        return 0;
    }
    if let Some(word) = bytes.last_chunk::<8>() {
        // One load that reaches back over bytes already summed, which the shift drops.
        return u64::from_le_bytes(*word) >> (64 - 8 * tail.len());
    }
    if let (Some(first), Some(end)) = (tail.first_chunk::<4>(), tail.last_chunk::<4>()) {
        let (first, end) = (u32::from_le_bytes(*first), u32::from_le_bytes(*end));
        return u64::from(first) | u64::from(end) << (8 * (tail.len() - 4));
    }
    tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
