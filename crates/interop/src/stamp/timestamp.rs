//! Times on the wire: NTP's and PTP's 64 bits, and the estimate of their error (RFC 4656 §4.1.2, RFC 8186).
//!
//! Left out: leap seconds, which the real-time clock smears or repeats, and PTP's own time scale: the seconds
//! written are those of the real-time clock in either format.

use plumb_result::stamp::TimestampFormat;
use plumb_sys::probe;

const NS: u64 = 1_000_000_000;

/// How wrong a time may be, in sixteen bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEstimate {
    /// Whether the clock is synchronised to UTC by an outside source.
    pub synchronised: bool,
    /// How the times beside it are written.
    pub format: TimestampFormat,
    /// The error is `multiplier` × 2^(`scale` − 32) seconds.
    pub scale: u8,
    /// Never zero.
    pub multiplier: u8,
}

impl ErrorEstimate {
    /// What the kernel says of this host's real-time clock now.
    pub fn here(format: TimestampFormat) -> Self {
        match probe::clock_discipline() {
            Ok(error) => {
                let ns = error.maximum_us.saturating_mul(1000);
                Self::of(error.is_synchronized, format, ns)
            }
            Err(_) => Self::of(false, format, u64::MAX),
        }
    }

    /// An error of so many nanoseconds, rounded up to what can be written.
    pub fn of(synchronised: bool, format: TimestampFormat, error_ns: u64) -> Self {
        let units = (u128::from(error_ns) << 32).div_ceil(u128::from(NS)).max(1);
        let mut scale = 0_u8;
        while units.div_ceil(1 << scale) > 255 && scale < 63 {
            scale += 1;
        }
        let multiplier = u8::try_from(units.div_ceil(1 << scale)).unwrap_or(255);
        Self { synchronised, format, scale, multiplier }
    }

    /// The error in nanoseconds, rounded.
    pub fn ns(self) -> f64 {
        f64::from(self.multiplier) * 2f64.powi(i32::from(self.scale) - 32) * 1e9
    }

    /// The sixteen bits.
    pub fn write(self) -> u16 {
        let s = u16::from(self.synchronised) << 15;
        let z = u16::from(self.format == TimestampFormat::Ptp) << 14;
        s | z | u16::from(self.scale & 0x3f) << 8 | u16::from(self.multiplier)
    }

    /// Reads sixteen bits; a multiplier of zero, which is not allowed, is kept as it is.
    pub fn read(bits: u16) -> Self {
        let [high, multiplier] = bits.to_be_bytes();
        let format = if high & 0x40 == 0 { TimestampFormat::Ntp } else { TimestampFormat::Ptp };
        Self { synchronised: high & 0x80 != 0, format, scale: high & 0x3f, multiplier }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_written_as_the_formats_say() {
        // 1970 is 2,208,988,800 s after 1900; half a second is 2^31.
        assert_eq!(TimestampFormat::Ntp.write(500_000_000), 2_208_988_800 << 32 | 1 << 31);
        assert_eq!(TimestampFormat::Ptp.write(1_500_000_000), (1 << 32) + 500_000_000);
        // The era of 2036: 7 February, 06:28:16.
        assert_eq!(TimestampFormat::Ntp.write(2_085_978_496 * NS) >> 32, 0);
        assert_eq!(TimestampFormat::Ntp.read(0), 2_085_978_496 * NS);
    }

    #[test]
    fn an_unsynchronised_clock_says_so_and_an_error_is_never_zero() {
        let none = ErrorEstimate::of(false, TimestampFormat::Ntp, 0);
        assert_eq!((none.write() >> 8, none.multiplier), (0, 1));
        let synchronised = ErrorEstimate::of(true, TimestampFormat::Ptp, 1_000_000).write();
        assert_eq!(synchronised >> 14, 0b11);
        assert!(ErrorEstimate::here(TimestampFormat::Ntp).multiplier > 0);
    }

    proptest! {
        #[test]
        fn every_nanosecond_comes_back(unix_ns in 0..4_294_967_295_000_000_000_u64) {
            for format in [TimestampFormat::Ntp, TimestampFormat::Ptp] {
                prop_assert_eq!(format.read(format.write(unix_ns)), unix_ns);
            }
        }

        #[test]
        fn an_error_is_written_as_itself_or_a_little_more(error_ns in 1..16_000_000_000_u64) {
            let written = ErrorEstimate::of(true, TimestampFormat::Ntp, error_ns);
            prop_assert!(written.ns() >= error_ns as f64 * 0.999_999);
            prop_assert!(written.ns() <= error_ns as f64 * 1.01 + 1.0, "{written:?}");
            prop_assert_eq!(ErrorEstimate::read(written.write()), written);
        }

        #[test]
        fn any_bits_are_a_time_and_an_estimate(bits: u64, estimate: u16) {
            let _ = (TimestampFormat::Ntp.read(bits), TimestampFormat::Ptp.read(bits));
            prop_assert_eq!(ErrorEstimate::read(estimate).write(), estimate);
        }
    }
}
