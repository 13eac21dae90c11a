//! High dynamic range histograms: every sample kept in little room, to three significant digits.
//!
//! A face over `hdrhistogram` that fixes the precision, the counter and the stored form (V2 with
//! deflate, readable by the HdrHistogram tools of other languages). Left out: what a count unit is
//! worth, which is stored beside the histogram.

use std::io::Read;

use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

/// Significant decimal digits kept of each value.
const DIGITS: u8 = 3;
/// Magic number of a compressed V2 histogram: 0x1c849304 and 0x10 for its word size of one byte.
const COOKIE_COMPRESSED: u32 = 0x1c84_9314;
/// Magic number of a V2 histogram.
const COOKIE: u32 = 0x1c84_9313;
/// Bytes of a V2 header: cookie, payload length, offset, digits, lowest, highest, ratio.
const HEADER: usize = 40;
/// Counters a histogram over all of `u64` has at three digits, rounded up.
const MAX_COUNTERS: u64 = 57_344;
/// The longest V2 form: nine bytes for each counter.
const MAX_INFLATED: u64 = MAX_COUNTERS * 9 + HEADER as u64;
/// The most samples one stored histogram may claim: eighteen minutes of one a nanosecond, when a
/// block lasts seconds. Keeps the sum of millions of histograms countable.
const MAX_SAMPLES: u64 = 1 << 40;

/// A histogram of whole numbers with a relative error of at most 0.1 %.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    inner: hdrhistogram::Histogram<u64>,
}

impl Histogram {
    /// An empty histogram, which grows as larger values come.
    pub fn new() -> Self {
        let inner = hdrhistogram::Histogram::new(DIGITS).expect("three digits are allowed");
        Self { inner }
    }

    /// Adds one sample. Allocates only when the value is larger than any before.
    pub fn record(&mut self, count_units: u64) {
        self.record_n(count_units, 1);
    }

    /// Adds `n` samples of one value.
    pub fn record_n(&mut self, count_units: u64, n: u64) {
        self.inner.record_n(count_units, n).expect("a growing histogram takes every value");
    }

    /// Adds every sample of another histogram; the only sound way to combine percentiles.
    pub fn merge(&mut self, other: &Self) {
        self.inner.add(&other.inner).expect("a growing histogram takes every other");
    }

    /// An empty one that takes every value that this one has without growing.
    #[must_use]
    pub fn empty_like(&self) -> Self {
        Self { inner: hdrhistogram::Histogram::new_from(&self.inner) }
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The value at or below which the share `p` of the samples lies; 0 when empty.
    pub fn quantile(&self, p: f64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        // The representative of a counter is its highest value, which may exceed the maximum.
        self.inner.value_at_quantile(p.clamp(0.0, 1.0)).min(self.max())
    }

    /// The smallest sample, rounded down to three digits; 0 when empty.
    pub fn min(&self) -> u64 {
        if self.is_empty() { 0 } else { self.inner.min() }
    }

    /// The largest sample, rounded up to three digits; 0 when empty.
    pub fn max(&self) -> u64 {
        self.inner.max()
    }

    /// Each value that was recorded, ascending, with how often: the middle of its counter's range.
    pub fn iter_recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.inner.iter_recorded().map(|step| {
            (self.inner.median_equivalent(step.value_iterated_to()), step.count_at_value())
        })
    }

    /// The stored form: HdrHistogram V2, compressed with deflate.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.inner, &mut bytes)
            .expect("counts stay below 2^63 and memory does not fail to take bytes");
        bytes
    }

    /// Reads the stored form.
    ///
    /// Safe on any bytes: work and memory are bounded before anything is believed.
    ///
    /// # Errors
    ///
    /// [`HistogramDecodeError`] when the bytes are not a V2 histogram with deflate of three digits.
    pub fn decode(bytes: &[u8]) -> Result<Self, HistogramDecodeError> {
        let inflated = inflate(bytes)?;
        let payload = check_header(&inflated)?;
        check_counts(payload)?;
        let mut inner = Deserializer::new()
            .deserialize::<u64, _>(&mut inflated.as_slice())
            .map_err(|error| HistogramDecodeError::Malformed(error.to_string()))?;
        inner.auto(true);
        Ok(Self { inner })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes that are not a stored histogram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistogramDecodeError {
    /// Too short, cut off, or not deflate.
    #[error(
        "the histogram is cut off or not compressed as it says ({0}); the stored block is damaged"
    )]
    Damaged(String),
    /// Does not begin as a compressed V2 histogram does.
    #[error("the bytes do not begin as an HdrHistogram V2 with deflate; another format was stored")]
    Cookie,
    /// A histogram of another shape than the ones stored here.
    #[error("the histogram has a shape that is not stored here: {0}; export it with 3 digits")]
    Shape(String),
    /// Counters that cannot be true.
    #[error("the histogram's counters are inconsistent: {0}; the stored block is damaged")]
    Malformed(String),
}

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, HistogramDecodeError> {
    if big_endian_u32(bytes, 0)? != COOKIE_COMPRESSED {
        return Err(HistogramDecodeError::Cookie);
    }
    let length = big_endian_u32(bytes, 4)? as usize;
    let compressed = bytes.get(8..).and_then(|rest| rest.get(..length)).ok_or_else(|| {
        HistogramDecodeError::Damaged(format!("{length} compressed bytes announced"))
    })?;
    let mut inflated = Vec::new();
    ZlibDecoder::new(compressed)
        .take(MAX_INFLATED + 1)
        .read_to_end(&mut inflated)
        .map_err(|error| HistogramDecodeError::Damaged(error.to_string()))?;
    if inflated.len() as u64 > MAX_INFLATED {
        return Err(HistogramDecodeError::Shape(
            "it inflates beyond any histogram of 3 digits".to_owned(),
        ));
    }
    Ok(inflated)
}

/// The encoded counters, when the header describes a histogram of this module.
fn check_header(inflated: &[u8]) -> Result<&[u8], HistogramDecodeError> {
    if big_endian_u32(inflated, 0)? != COOKIE {
        return Err(HistogramDecodeError::Cookie);
    }
    let digits = big_endian_u32(inflated, 12)?;
    if digits != u32::from(DIGITS) {
        return Err(HistogramDecodeError::Shape(format!("{digits} significant digits")));
    }
    let payload = inflated.get(HEADER..).unwrap_or_default();
    let announced = big_endian_u32(inflated, 4)?;
    if announced as usize != payload.len() {
        return Err(HistogramDecodeError::Damaged(format!(
            "{announced} bytes of counters announced, {} present",
            payload.len()
        )));
    }
    Ok(payload)
}

/// Walks the counters as the decoder will, so that its arithmetic cannot overflow.
fn check_counts(mut payload: &[u8]) -> Result<(), HistogramDecodeError> {
    let malformed = |what: &str| HistogramDecodeError::Malformed(what.to_owned());
    let (mut index, mut samples) = (0_u64, 0_u64);
    while !payload.is_empty() {
        let (word, rest) = split_varint(payload).ok_or_else(|| malformed("a number is cut off"))?;
        payload = rest;
        // Zigzag: even words are counts, odd ones runs of empty counters.
        let magnitude = (word >> 1) + (word & 1);
        if word & 1 == 1 {
            index = index.saturating_add(magnitude);
        } else {
            index = index.saturating_add(1);
            samples = samples.saturating_add(magnitude);
        }
        if index > MAX_COUNTERS {
            return Err(malformed("it has more counters than 64-bit values need"));
        }
        if samples > MAX_SAMPLES {
            return Err(malformed("it claims more samples than can have been taken"));
        }
    }
    Ok(())
}

/// One LEB128 number of at most nine bytes, the ninth taken whole.
fn split_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (position, &byte) in bytes.iter().enumerate().take(9) {
        let last = position == 8;
        let bits = if last { byte } else { byte & 0x7f };
        value |= u64::from(bits) << (7 * position);
        if last || byte & 0x80 == 0 {
            return Some((value, &bytes[position + 1..]));
        }
    }
    None
}

fn big_endian_u32(bytes: &[u8], offset: usize) -> Result<u32, HistogramDecodeError> {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map(|word| u32::from_be_bytes(*word))
        .ok_or_else(|| HistogramDecodeError::Damaged(format!("{} bytes", bytes.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::floor_index;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for &value in values {
            histogram.record(value);
        }
        histogram
    }

    proptest! {
        #[test]
        fn storing_and_reading_changes_nothing(
            values in proptest::collection::vec(any::<u64>(), 0..200)
        ) {
            let histogram = of(&values);
            let back = Histogram::decode(&histogram.encode()).expect("what was just encoded");
            prop_assert_eq!(&back, &histogram);
            prop_assert_eq!(back.len(), values.len() as u64);
            prop_assert_eq!(back.max(), histogram.max());
        }

        #[test]
        fn quantiles_are_true_to_three_digits(
            mut values in proptest::collection::vec(1_u64..1_000_000_000_000, 1..300),
            p in 0.0_f64..1.0,
        ) {
            let histogram = of(&values);
            values.sort_unstable();
            let rank = (p * values.len() as f64).ceil().max(1.0);
            let exact = values[floor_index(rank) - 1] as f64;
            let found = histogram.quantile(p) as f64;
            prop_assert!((found - exact).abs() <= 0.001 * exact + 1.0, "{} for {}", found, exact);
        }

        #[test]
        fn merging_is_recording_both(
            a in proptest::collection::vec(0_u64..1_000_000, 0..100),
            b in proptest::collection::vec(any::<u64>(), 0..100),
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both: Vec<u64> = a.into_iter().chain(b).collect();
            prop_assert_eq!(merged, of(&both));
        }

        #[test]
        fn hostile_bytes_are_refused_or_read_never_worse(
            bytes in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            let _ = Histogram::decode(&bytes);
            let _ = Histogram::decode(&compressed(&bytes));
            let _ = Histogram::decode(&compressed(&with_header(3, 1, 1 << 40, &bytes)));
        }

        #[test]
        fn damaged_histograms_are_refused_or_read_never_worse(
            values in proptest::collection::vec(any::<u64>(), 1..50),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = of(&values).encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(mut histogram) = Histogram::decode(&bytes) {
                histogram.record(u64::MAX);
                histogram.merge(&of(&values));
                let _ = histogram.encode();
            }
        }

        #[test]
        fn headers_with_any_bounds_are_refused_or_read(
            digits in 0_u32..8, low in any::<u64>(), high in any::<u64>(), payload in any::<[u8; 12]>()
        ) {
            let _ = Histogram::decode(&compressed(&with_header(digits, low, high, &payload)));
        }
    }

    /// The V2 form of these counters.
    fn with_header(digits: u32, low: u64, high: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = COOKIE.to_be_bytes().to_vec();
        bytes.extend(u32::try_from(payload.len()).expect("short").to_be_bytes());
        bytes.extend(0_u32.to_be_bytes());
        bytes.extend(digits.to_be_bytes());
        bytes.extend(low.to_be_bytes());
        bytes.extend(high.to_be_bytes());
        bytes.extend(1.0_f64.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut deflated = Vec::new();
        flate2::read::ZlibEncoder::new(bytes, flate2::Compression::fast())
            .read_to_end(&mut deflated)
            .expect("memory does not fail");
        let mut framed = COOKIE_COMPRESSED.to_be_bytes().to_vec();
        framed.extend(u32::try_from(deflated.len()).expect("short").to_be_bytes());
        framed.extend(deflated);
        framed
    }

    #[test]
    fn what_could_make_the_decoder_overflow_is_named() {
        let bomb = vec![0; 40_000_000];
        assert!(matches!(
            Histogram::decode(&compressed(&bomb)),
            Err(HistogramDecodeError::Shape(_))
        ));
        let digits = with_header(5, 1, u64::MAX, &[2]);
        assert!(matches!(
            Histogram::decode(&compressed(&digits)),
            Err(HistogramDecodeError::Shape(_))
        ));
        // Nine bytes of ones: a run of 2^63 empty counters, whose negation overflows.
        let run = with_header(3, 1, u64::MAX, &[0xff; 9]);
        assert!(matches!(
            Histogram::decode(&compressed(&run)),
            Err(HistogramDecodeError::Malformed(_))
        ));
        let mut claim = of(&[1, 2, 3]).encode();
        claim[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(Histogram::decode(&claim), Err(HistogramDecodeError::Damaged(_))));
        assert_eq!(Histogram::decode(b"not a histogram"), Err(HistogramDecodeError::Cookie));
    }

    #[test]
    fn an_empty_histogram_survives_and_says_zero() {
        let back = Histogram::decode(&Histogram::default().encode()).expect("empty");
        assert!(back.is_empty() && back.iter_recorded().next().is_none());
        assert_eq!((back.min(), back.max(), back.quantile(0.5)), (0, 0, 0));
    }

    #[test]
    fn recorded_values_come_back_with_their_counts() {
        let recorded: Vec<(u64, u64)> = of(&[7, 7, 900, 40]).iter_recorded().collect();
        assert_eq!(recorded, vec![(7, 2), (40, 1), (900, 1)]);
    }
}
