//! How a device whose packets appear in memory spends the time until one does.
//!
//! Left out: the kernel call in which it sleeps.

use plumb_base::time::Span;
use plumb_sys::clock::{Clock, read_ns};

use super::Wait;

/// The longest that a spinning wait goes on before it returns, so that whoever drives it can look
/// at its reasons to stop, and the device at whether it still exists.
const TURN: Span = Span::from_ms(10);

/// Looks at the memory this often between two readings of the clock.
const LOOKS: u32 = 64;

/// What a wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// Something is ready.
    Ready,
    /// Nothing within the time for spinning; the wait is over.
    Over,
    /// Nothing within the time for spinning; sleep for the rest, for ever when absent.
    Sleep(Option<Span>),
}

/// Spins as long as `wait` and `timeout` say.
#[inline]
pub(super) fn spin(wait: Wait, timeout: Option<Span>, is_ready: impl Fn() -> bool) -> Idle {
    if is_ready() {
        return Idle::Ready;
    }
    let limit = match wait {
        Wait::Block => return Idle::Sleep(timeout),
        Wait::Poll(limit) => limit,
        Wait::Spin => TURN,
    };
    let limit = timeout.map_or(limit, |timeout| timeout.min(limit));
    if spin_for(limit, is_ready) {
        return Idle::Ready;
    }
    let rest = timeout.map(|timeout| timeout.saturating_sub(limit));
    if wait == Wait::Spin || rest == Some(Span::ZERO) { Idle::Over } else { Idle::Sleep(rest) }
}

fn spin_for(limit: Span, is_ready: impl Fn() -> bool) -> bool {
    let start = read_ns(Clock::Monotonic);
    loop {
        for _ in 0..LOOKS {
            if is_ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if read_ns(Clock::Monotonic).saturating_sub(start) >= limit.as_ns() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_blocking_wait_sleeps_at_once_and_a_polling_one_for_what_is_left() {
        let second = Some(Span::from_secs(1));
        assert_eq!(spin(Wait::Block, second, || false), Idle::Sleep(second));
        let polling = Wait::Poll(Span::from_us(10));
        assert_eq!(spin(polling, None, || false), Idle::Sleep(None));
        let Idle::Sleep(Some(rest)) = spin(polling, second, || false) else { panic!("sleeps") };
        assert_eq!(rest, Span::from_us(999_990));
        assert_eq!(spin(polling, Some(Span::from_us(5)), || false), Idle::Over);
    }

    #[test]
    fn a_spinning_wait_never_sleeps_and_sees_what_arrives() {
        assert_eq!(spin(Wait::Spin, None, || false), Idle::Over);
        let looks = Cell::new(0);
        let arrives = || {
            looks.set(looks.get() + 1);
            looks.get() > 1_000
        };
        assert_eq!(spin(Wait::Spin, None, arrives), Idle::Ready);
    }
}
