//! Rates: bits a second, from 1200 b/s to 400 Gb/s and beyond.
//!
//! Left out: bytes a second, which throughput is printed in ([`crate::units`]); how long something takes at a
//! rate without rounding (`plumb_link::rate`).

/// Bits a second; never zero, because nothing at all is not a rate but a link that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    bits_per_second: std::num::NonZeroU64,
}

impl Rate {
    /// A rate of whole bits a second; `None` for zero.
    pub const fn from_bits_per_second(bits_per_second: u64) -> Option<Self> {
        match std::num::NonZeroU64::new(bits_per_second) {
            Some(bits_per_second) => Some(Self { bits_per_second }),
            None => None,
        }
    }

    /// Whole bits a second.
    pub const fn bits_per_second(self) -> u64 {
        self.bits_per_second.get()
    }

    /// Bytes a second, with their fraction.
    pub fn bytes_per_second(self) -> f64 {
        self.bits_per_second.get() as f64 / 8.0
    }
}
