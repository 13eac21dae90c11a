//! SYN cookies (RFC 4987 §3.6): the initial sequence number of a SYN-ACK stands for the record of a half-open connection.
//!
//! A cookie is five bits of a minute counter, three of MSS and 24 of a keyed hash over both, the ends and the peer's number. Where the
//! peer sends timestamps, the low bits of ours say what else was agreed, as in Linux; without them nothing else is.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::flow::SipKey;

use super::connection::TcpEnds;
use super::tuple::words;

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

    use proptest::prelude::*;

    use super::*;

    fn ends(port: u16) -> TcpEnds {
        TcpEnds {
            local: SocketAddr::from(([192, 0, 2, 1], 80)),
            remote: SocketAddr::from(([192, 0, 2, 2], port)),
        }
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
