//! Raw samples as bytes, without loss.
//!
//! Timings are whole multiples of a picosecond or of half a nanosecond more often than not, and
//! neighbours are alike; so they are stored as differences of scaled integers where that gives
//! back the very same doubles, and as plain doubles where it does not. Left out: histograms, which
//! arrive encoded.
//!
//! Shape: one byte, then the samples. Byte 0: little-endian IEEE 754 doubles. Byte 1 + e, for e
//! from 0 to 3: LEB128 of the zigzag difference between successive samples times 10^e. No bytes
//! at all: no samples.

/// The first byte of plain doubles.
const PLAIN: u8 = 0;

/// Largest power of ten tried: thousandths, picoseconds where samples are nanoseconds.
const EXPONENT_MAX: u8 = 3;

/// 2^53: every whole number up to it is a double.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The bytes of some samples.
pub(super) fn encode(samples: &[f64]) -> Vec<u8> {
    if samples.is_empty() {
        return Vec::new();
    }
    (0..=EXPONENT_MAX).find_map(|exponent| encode_differences(samples, exponent)).unwrap_or_else(
        || std::iter::once(PLAIN).chain(samples.iter().flat_map(|x| x.to_le_bytes())).collect(),
    )
}

/// The samples behind some bytes, or what is wrong with the bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<f64>, &'static str> {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Ok(Vec::new());
    };
    match kind {
        PLAIN => {
            let (words, tail) = rest.as_chunks::<8>();
            if !tail.is_empty() {
                return Err("samples end in the middle of a number");
            }
            Ok(words.iter().map(|word| f64::from_le_bytes(*word)).collect())
        }
        kind if kind <= EXPONENT_MAX + 1 => decode_differences(rest, kind - 1),
        _ => Err("samples in an encoding this version does not know"),
    }
}

/// Encodes as differences of integers times 10^-exponent; none if a sample would change.
fn encode_differences(samples: &[f64], exponent: u8) -> Option<Vec<u8>> {
    let scale = 10f64.powi(i32::from(exponent));
    let mut bytes = Vec::with_capacity(samples.len() * 3 + 1);
    bytes.push(exponent + 1);
    let mut previous = 0_i64;
    for &sample in samples {
        let scaled = (sample * scale).round();
        // Integers beyond 2^53 are not all doubles.
        if !(-EXACT_MAX..=EXACT_MAX).contains(&scaled) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a whole number within ±2^53")]
        let whole = scaled as i64;
        if (whole as f64 / scale).to_bits() != sample.to_bits() {
            return None;
        }
        encode_leb128(zigzag(whole - previous), &mut bytes);
        previous = whole;
    }
    Some(bytes)
}

fn decode_differences(mut bytes: &[u8], exponent: u8) -> Result<Vec<f64>, &'static str> {
    let scale = 10f64.powi(i32::from(exponent));
    let mut samples = Vec::with_capacity(bytes.len() / 2);
    let mut whole = 0_i64;
    while !bytes.is_empty() {
        let (step, rest) = decode_leb128(bytes)?;
        whole = whole.checked_add(unzigzag(step)).ok_or("samples overflow")?;
        samples.push(whole as f64 / scale);
        bytes = rest;
    }
    Ok(samples)
}

/// Small magnitudes of either sign as small numbers.
fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}

fn encode_leb128(mut n: u64, bytes: &mut Vec<u8>) {
    while n >= 0x80 {
        bytes.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    bytes.push(n.to_le_bytes()[0]);
}

fn decode_leb128(bytes: &[u8]) -> Result<(u64, &[u8]), &'static str> {
    let mut n = 0_u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if index == 9 && bits > 1 {
            return Err("samples overflow");
        }
        n |= bits << (7 * index);
        if byte < 0x80 {
            return Ok((n, &bytes[index + 1..]));
        }
    }
    Err("samples end in the middle of a number")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(samples: &[f64]) -> Vec<u64> {
        samples.iter().map(|x| x.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn any_doubles_come_back_bit_for_bit(samples: Vec<f64>) {
            prop_assert_eq!(bits(&decode(&encode(&samples)).unwrap()), bits(&samples));
        }

        #[test]
        fn any_picoseconds_come_back_bit_for_bit(ps: Vec<i32>) {
            let samples: Vec<f64> = ps.iter().map(|&ps| f64::from(ps) / 1000.0).collect();
            prop_assert_eq!(bits(&decode(&encode(&samples)).unwrap()), bits(&samples));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes: Vec<u8>) {
            if let Ok(samples) = decode(&bytes) {
                prop_assert_eq!(bits(&decode(&encode(&samples)).unwrap()), bits(&samples));
            }
        }
    }

    #[test]
    fn specials_survive() {
        let samples = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::MIN_POSITIVE, -1e300];
        assert_eq!(bits(&decode(&encode(&samples)).unwrap()), bits(&samples));
    }

    #[test]
    fn ordinary_latencies_take_less_than_half_the_space_of_doubles() {
        let samples: Vec<f64> =
            (0..1000).map(|i| 2500.0 + f64::from((i * 7919) % 400) + 0.5).collect();
        assert!(encode(&samples).len() < 1000 * 8 / 2, "{}", encode(&samples).len());
    }
}
