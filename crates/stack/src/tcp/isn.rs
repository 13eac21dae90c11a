//! Initial sequence numbers (RFC 6528), offsets of timestamp clocks (RFC 7323 §5.4), unpredictable from outside and monotonic for
//! each pair of ends; and SYN cookies (RFC 4987 §3.6), by which the number of a SYN-ACK stands for the record of a half-open
//! connection.
//!
//! A cookie is five bits of a minute counter, three of MSS and 24 of a keyed hash over both, the ends and the peer's number. Where the
//! peer sends timestamps, the low bits of ours say what else was agreed, as in Linux; without them nothing else is.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::flow::SipKey;

use super::connection::TcpEnds;
use super::handshake::TimestampClock;
use super::tuple::words;

/// The secrets that the numbers depend on.
#[derive(Debug)]
pub(super) struct InitialNumbers {
    number: SipKey,
    clock: SipKey,
}

impl InitialNumbers {
    pub fn new(seed: Seed) -> Self {
        Self {
            number: SipKey::new(seed, "initial sequence numbers"),
            clock: SipKey::new(seed, "timestamp offsets"),
        }
    }

    /// ISN = M + F(ends, secret), M a clock of 4 µs (RFC 6528 §3).
    pub fn number(&self, now: Instant, ends: &TcpEnds) -> u32 {
        let ticks = now.since_origin().as_ps() / 4_000_000;
        low_half(ticks).wrapping_add(low_half(self.number.hash(words(ends))))
    }

    /// The timestamp clock of a pair of ends.
    pub fn clock(&self, ends: &TcpEnds) -> TimestampClock {
        TimestampClock::new(low_half(self.clock.hash(words(ends))))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn low_half(word: u64) -> u32 {
    word as u32
}

/// The MSS that a cookie can stand for: the largest that is no larger than the peer's.
const SIZES: [u16; 8] = [64, 536, 1_220, 1_300, 1_400, 1_440, 1_460, 8_960];

/// A cookie holds in the minute that it was made in and in the next.
const MINUTES: u64 = 2;
/// How long cookies are accepted after the last was sent.
pub(super) const LIFETIME: Span = Span::from_secs(60 * MINUTES);

const HASH: u32 = 0x00ff_ffff;

/// The secret that cookies depend on.
#[derive(Debug)]
pub(super) struct SynCookies(SipKey);

impl SynCookies {
    pub fn new(seed: Seed) -> Self {
        Self(SipKey::new(seed, "SYN cookies"))
    }

    /// The cookie for a SYN with the number `irs`, and the MSS that it stands for.
    pub fn make(&self, now: Instant, ends: &TcpEnds, irs: u32, mss: u16) -> (u32, u16) {
        let size = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0);
        (self.cookie(minute(now), ends, irs, size), SIZES[size])
    }

    /// The MSS that a cookie stands for, if it is one for a SYN with the number `irs`.
    pub fn check(&self, now: Instant, ends: &TcpEnds, irs: u32, cookie: u32) -> Option<u16> {
        let size = (cookie >> 24 & 7) as usize;
        let minute = minute(now);
        (0..MINUTES.min(minute + 1))
            .any(|age| self.cookie(minute - age, ends, irs, size) == cookie)
            .then_some(SIZES[size])
    }

    fn cookie(&self, minute: u64, ends: &TcpEnds, irs: u32, size: usize) -> u32 {
        let [a, b, c, d, ports] = words(ends);
        let hash = self.0.hash([a, b, c, d, ports, u64::from(irs) << 32 | size as u64, minute]);
        let low = u32::try_from(hash & u64::from(HASH)).expect("24 bits");
        let minute = u32::try_from(minute % 32).expect("five bits");
        minute << 27 | u32::try_from(size).expect("three bits") << 24 | low
    }
}

fn minute(now: Instant) -> u64 {
    now.since_origin().as_ns() / 60_000_000_000
}

/// What the low bits of a timestamp say was agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CookieOptions {
    /// Shift of the peer's window, if both scale.
    pub window_scale: Option<u8>,
    /// Whether both use SACK.
    pub sack: bool,
    /// Whether both use ECN.
    pub ecn: bool,
}

/// Four bits of window scale, 15 for none; SACK; ECN.
const OPTION_BITS: u32 = 0x3f;

impl CookieOptions {
    /// The latest timestamp up to `clock` that says so.
    pub fn encode(self, clock: u32) -> u32 {
        let scale = self.window_scale.map_or(15, u32::from);
        let bits = scale | u32::from(self.sack) << 4 | u32::from(self.ecn) << 5;
        let value = clock & !OPTION_BITS | bits;
        if bits > clock & OPTION_BITS { value.wrapping_sub(OPTION_BITS + 1) } else { value }
    }

    /// What the timestamp `echoed` says.
    pub fn decode(echoed: u32) -> Self {
        let scale = u8::try_from(echoed & 15).expect("four bits");
        Self {
            window_scale: (scale < 15).then_some(scale),
            sack: echoed & 1 << 4 != 0,
            ecn: echoed & 1 << 5 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use plumb_base::time::Span;
    use proptest::prelude::*;

    use super::*;

    fn ends(port: u16) -> TcpEnds {
        TcpEnds {
            local: SocketAddr::from(([192, 0, 2, 1], port)),
            remote: SocketAddr::from(([192, 0, 2, 2], 80)),
        }
    }

    // MUST-8.
    #[test]
    fn number_of_a_pair_grows_by_one_in_four_microseconds() {
        let numbers = InitialNumbers::new(Seed(1));
        let start = Instant::ORIGIN + Span::from_secs(1);
        let first = numbers.number(start, &ends(7));
        // Twice round the 32 bits.
        for us in [4, 400, 17_179_869_184_u64, 34_359_738_368] {
            let later = numbers.number(start + Span::from_us(us), &ends(7));
            assert_eq!(u64::from(later.wrapping_sub(first)), (us / 4) & 0xffff_ffff);
        }
    }

    // MUST-9.
    #[test]
    fn numbers_of_other_ends_and_seeds_are_unrelated() {
        let (one, two) = (InitialNumbers::new(Seed(1)), InitialNumbers::new(Seed(2)));
        let at = Instant::ORIGIN;
        let distances: std::collections::BTreeSet<u32> = (1_000..1_256)
            .map(|port| one.number(at, &ends(port + 1)).wrapping_sub(one.number(at, &ends(port))))
            .collect();
        assert_eq!(distances.len(), 256);
        assert_ne!(one.number(at, &ends(7)), two.number(at, &ends(7)));
        assert_ne!(one.clock(&ends(7)), one.clock(&ends(8)));
    }

    fn at(secs: u64) -> Instant {
        Instant::ORIGIN + Span::from_secs(secs)
    }

    #[test]
    fn cookie_holds_for_its_minute_and_the_next_only() {
        let cookies = SynCookies::new(Seed(1));
        for (mss, expected) in [(64, 64), (1_000, 536), (1_460, 1_460), (9_000, 8_960)] {
            let (cookie, stands_for) = cookies.make(at(59), &ends(7), 5, mss);
            assert_eq!(stands_for, expected);
            for secs in [59, 60, 119] {
                assert_eq!(cookies.check(at(secs), &ends(7), 5, cookie), Some(expected));
            }
            for secs in [120, 59 + 32 * 60] {
                assert_eq!(cookies.check(at(secs), &ends(7), 5, cookie), None, "after {secs} s");
            }
        }
    }

    #[test]
    fn cookie_of_another_connection_or_with_a_bit_changed_is_refused() {
        let cookies = SynCookies::new(Seed(1));
        let (cookie, _) = cookies.make(at(100), &ends(7), 5, 1_460);
        assert_eq!(cookies.check(at(100), &ends(8), 5, cookie), None);
        assert_eq!(cookies.check(at(100), &ends(7), 6, cookie), None);
        for bit in 0..32 {
            assert_eq!(cookies.check(at(100), &ends(7), 5, cookie ^ 1 << bit), None, "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn options_survive_in_a_timestamp_that_is_not_in_the_future(
            clock in any::<u32>(), scale in 0_u8..=15, sack in any::<bool>(), ecn in any::<bool>(),
        ) {
            let window_scale = Some(scale).filter(|scale| *scale < 15);
            let options = CookieOptions { window_scale, sack, ecn };
            let value = options.encode(clock);
            prop_assert_eq!(CookieOptions::decode(value), options);
            prop_assert!(clock.wrapping_sub(value) < 64);
        }
    }
}
