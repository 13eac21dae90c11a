//! Sum and copy of a few bytes: headers and the tails of longer pieces, without a loop's setup.
//!
//! Right for any length, quick up to [`MAX`].

/// The length in bytes up to which this is quicker than choosing a kernel.
pub(crate) const MAX: usize = 64;

/// The sum of little-endian words modulo 2⁶⁴−1.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let mut total = 0u128;
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        total += add(block);
    }
    let (halves, rest) = rest.as_chunks::<16>();
    for half in halves {
        total += add(half);
    }
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        total += add(word);
    }
    fold(total + u128::from(last(bytes, tail)))
}

/// The same, and `src` copied to `dst`, which is as long.
#[inline]
pub(crate) fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> u64 {
    let dst = &mut dst[..src.len()];
    copy_last(src, dst);
    let mut total = 0u128;
    let (blocks, rest) = src.as_chunks::<32>();
    let (into_blocks, into_rest) = dst.as_chunks_mut::<32>();
    for (block, into) in blocks.iter().zip(into_blocks) {
        total += add(block);
        *into = *block;
    }
    let (halves, rest) = rest.as_chunks::<16>();
    let (into_halves, into_rest) = into_rest.as_chunks_mut::<16>();
    for (half, into) in halves.iter().zip(into_halves) {
        total += add(half);
        *into = *half;
    }
    let (words, tail) = rest.as_chunks::<8>();
    let (into_words, _) = into_rest.as_chunks_mut::<8>();
    for (word, into) in words.iter().zip(into_words) {
        total += add(word);
        *into = *word;
    }
    fold(total + u128::from(last(src, tail)))
}

/// Copies the last eight bytes, or all when there are fewer.
#[inline]
fn copy_last(src: &[u8], dst: &mut [u8]) {
    if let (Some(from), Some(into)) = (src.last_chunk::<8>(), dst.last_chunk_mut()) {
        *into = *from;
    } else if let (Some(first), Some(last)) = (src.first_chunk::<4>(), src.last_chunk::<4>()) {
        dst[..4].copy_from_slice(first);
        dst[src.len() - 4..].copy_from_slice(last);
    } else {
        for (from, into) in src.iter().zip(dst) {
            *into = *from;
        }
    }
}

/// The sum of the words of 8, 16 or 32 bytes.
#[inline]
fn add<const N: usize>(bytes: &[u8; N]) -> u128 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u128::from(u64::from_le_bytes(*word))).sum()
}

/// Two sums modulo 2⁶⁴−1.
#[inline]
pub(crate) const fn plus(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// The upper half of a total counts the carries out of the lower one: both in 64 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
pub(super) fn fold(total: u128) -> u64 {
    plus(total as u64, (total >> 64) as u64)
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
