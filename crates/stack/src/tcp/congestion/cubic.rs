//! CUBIC (RFC 9438): after loss the window is a cubic function of time, flat where loss came last.
//!
//! Integers throughout: time in steps of 2⁻²⁰ s, so that cubes are shifted rather than divided, in 128 bits. A window of two
//! segments and one of 2⁶⁴ bytes are computed alike; beyond that they saturate.

use plumb_base::time::{Instant, Span};

use super::hystart::SlowStart;
use super::reno::used_window;
use super::{AckEvent, CongestionControl, CongestionSignal, CongestionWindow};

/// β, the factor of the window after a signal (§4.6): 0.7.
const BETA_TENTHS: u64 = 7;
/// (1 + β) / 2, of fast convergence (§4.7): 0.85.
const CONVERGENCE_PERCENT: u64 = 85;
/// α of the Reno-friendly region, 3(1 - β)/(1 + β) (§4.3): 9/17.
const ALPHA_NUMERATOR: u64 = 9;
const ALPHA_DENOMINATOR: u64 = 17;
/// C (§4.2), 0.4 segments a second³, in 2⁻³⁰.
const C: u128 = 429_496_730;
/// Times count up to here, 36 hours: the cube of more, times the largest segment, would not fit 128 bits.
const TICKS_MAX: u64 = 1 << 37;

/// A time in congestion avoidance between two signals.
#[derive(Clone, Copy, Debug)]
struct CubicEpoch {
    /// When it began; moved on by times in which the application limited what was sent (§4.2, §5.8).
    start: Instant,
    /// Time to reach `origin`, in ticks (K).
    k: u64,
    /// The window at which the curve is flat, in bytes.
    origin: u64,
    /// The window that Reno would have (W_est).
    reno_window: u64,
    /// Remainder of `reno_window`, in 1/17 of a byte times the window.
    reno_credit: u64,
    /// Remainder of the window, in bytes times the window.
    credit: u128,
}

/// What a signal changes, and a spurious one puts back (§4.9).
#[derive(Clone, Copy, Debug, Default)]
struct CubicState {
    /// The window before the last signal, less after fast convergence (W_max).
    window_max: u64,
    /// The window when the threshold was last set (cwnd_prior).
    window_prior: u64,
    /// `None`: it begins with the next acknowledgement in congestion avoidance.
    epoch: Option<CubicEpoch>,
}

/// The default of Linux, and of this stack.
#[derive(Clone, Debug)]
pub struct Cubic {
    slow_start: SlowStart,
    state: CubicState,
    before_signal: CubicState,
    /// Until then the epoch has been accounted for.
    accounted_until: Instant,
}

impl Cubic {
    /// CUBIC at its start.
    pub fn new(hystart: bool) -> Self {
        Self {
            slow_start: SlowStart::new(hystart),
            state: CubicState::default(),
            before_signal: CubicState::default(),
            accounted_until: Instant::ORIGIN,
        }
    }

    /// Time since the last call is no part of the epoch where `is_idle`.
    fn account(&mut self, now: Instant, is_idle: bool) {
        if is_idle && let Some(epoch) = &mut self.state.epoch {
            epoch.start += now.saturating_since(self.accounted_until.max(epoch.start));
        }
        self.accounted_until = now;
    }

    /// The threshold after a signal; what follows is a new epoch.
    fn reduce(&mut self, window: &mut CongestionWindow, flight: u64) {
        self.before_signal = self.state;
        // Fast convergence: below the last maximum, somebody else needs the rest (§4.7).
        let converges = window.cwnd < self.state.window_max;
        let window_max =
            if converges { scale(window.cwnd, CONVERGENCE_PERCENT, 100) } else { window.cwnd };
        self.state = CubicState { window_max, window_prior: window.cwnd, epoch: None };
        window.ssthresh = scale(used_window(window, flight), BETA_TENTHS, 10).max(window.floor());
    }

    /// Congestion avoidance (§4.2 to §4.5).
    fn avoid(&mut self, window: &mut CongestionWindow, ack: &AckEvent, acked: u64) {
        let prior = self.state.window_prior;
        let window_max = self.state.window_max;
        let epoch =
            self.state.epoch.get_or_insert_with(|| CubicEpoch::begin(window, window_max, ack.now));
        epoch.grow_reno_window(window, acked, prior);
        let elapsed = ack.now.saturating_since(epoch.start);
        if epoch.window_at(elapsed, window.mss) < epoch.reno_window {
            window.cwnd = window.cwnd.max(epoch.reno_window);
            return;
        }
        let target = epoch.window_at(elapsed + ack.srtt.unwrap_or(Span::ZERO), window.mss);
        let target = target.clamp(window.cwnd, window.cwnd.saturating_add(window.cwnd / 2));
        epoch.credit += u128::from(acked) * u128::from(target - window.cwnd);
        let cwnd = u128::from(window.cwnd);
        window.cwnd =
            window.cwnd.saturating_add(u64::try_from(epoch.credit / cwnd).unwrap_or(u64::MAX));
        epoch.credit %= cwnd;
    }
}

impl CubicEpoch {
    fn begin(window: &CongestionWindow, window_max: u64, now: Instant) -> Self {
        let distance = window_max.saturating_sub(window.cwnd);
        Self {
            start: now,
            k: time_to_origin(distance, window.mss),
            origin: window_max.max(window.cwnd),
            reno_window: window.cwnd,
            reno_credit: 0,
            credit: 0,
        }
    }

    /// W_cubic(t) = C(t - K)³ + origin, in bytes (§4.2).
    fn window_at(&self, elapsed: Span, mss: u32) -> u64 {
        let elapsed = ticks(elapsed);
        let distance = u128::from(elapsed.abs_diff(self.k).min(TICKS_MAX));
        let cube = distance * distance * distance;
        // The cube is in 2⁻⁶⁰ s³, C in 2⁻³⁰: half is shifted out before, so that the product fits, and half after.
        let bytes = (cube >> 30).saturating_mul(C * u128::from(mss)) >> 60;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if elapsed < self.k {
            self.origin.saturating_sub(bytes)
        } else {
            self.origin.saturating_add(bytes)
        }
    }

    /// W_est grows by α segments a window, and by one beyond `prior` (§4.3).
    fn grow_reno_window(&mut self, window: &CongestionWindow, acked: u64, prior: u64) {
        let alpha = if self.reno_window < prior { ALPHA_NUMERATOR } else { ALPHA_DENOMINATOR };
        let divisor = window.cwnd.saturating_mul(ALPHA_DENOMINATOR);
        self.reno_credit =
            self.reno_credit.saturating_add(acked.saturating_mul(u64::from(window.mss) * alpha));
        self.reno_window = self.reno_window.saturating_add(self.reno_credit / divisor);
        self.reno_credit %= divisor;
    }
}

/// `bytes` · `numerator` / `denominator`.
fn scale(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(numerator) / u128::from(denominator))
        .unwrap_or(u64::MAX)
}

/// Steps of 2⁻²⁰ s.
fn ticks(span: Span) -> u64 {
    let us = (span.as_ps() / 1_000_000).min(TICKS_MAX);
    (us << 20) / 1_000_000
}

/// K = ∛(distance / C), in ticks, of a distance in bytes (§4.2).
fn time_to_origin(distance: u64, mss: u32) -> u64 {
    // 1 / C = 5/2; a second³ is 2⁶⁰ ticks³: 2⁶⁴ · 5 · 2⁶⁰ fits 128 bits.
    cube_root(((u128::from(distance) * 5) << 60) / (2 * u128::from(mss)))
}

/// ∛`number`, rounded down: bit by bit.
fn cube_root(number: u128) -> u64 {
    let mut root = 0_u128;
    for bit in (0..=42).rev() {
        let candidate = root | 1 << bit;
        if candidate * candidate <= number / candidate {
            root = candidate;
        }
    }
    u64::try_from(root).expect("43 bits")
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        self.account(ack.now, !ack.is_cwnd_limited);
        let acked = self.slow_start.grow(window, ack);
        if ack.is_cwnd_limited && !window.in_slow_start() {
            self.avoid(window, ack, acked);
        }
    }

    fn on_congestion(
        &mut self,
        window: &mut CongestionWindow,
        _now: Instant,
        flight: u64,
        _signal: CongestionSignal,
    ) {
        self.reduce(window, flight);
    }

    fn on_timeout(
        &mut self,
        window: &mut CongestionWindow,
        _now: Instant,
        flight: u64,
        first: bool,
    ) {
        if first {
            self.reduce(window, flight);
            // K is 0 and W_max the window with which congestion avoidance begins (§4.8).
            self.state.window_max = 0;
        }
        self.slow_start.on_timeout();
    }

    fn on_spurious(&mut self, _window: &mut CongestionWindow) {
        self.state = self.before_signal;
    }

    /// The window is no longer that of the epoch.
    fn on_idle(&mut self, _window: &mut CongestionWindow, _now: Instant, _idle: Span) {
        self.state.epoch = None;
    }

    fn on_sent(&mut self, _window: &CongestionWindow, now: Instant, len: u64, flight: u64) {
        if flight <= len {
            // Nothing was in flight: the time without is not part of the epoch.
            self.account(now, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionChoice;
    use super::super::bottleneck::{PathUnderTest, ack_of};
    use super::*;

    const MSS: u64 = 1_000;

    fn window(cwnd: u64, ssthresh: u64) -> CongestionWindow {
        CongestionWindow { cwnd, ssthresh, mss: 1_000, initial: 10 * MSS }
    }

    /// Loses at `cwnd`, without recovery.
    fn lose(cubic: &mut Cubic, window: &mut CongestionWindow, now: Instant) {
        cubic.on_congestion(window, now, window.cwnd, CongestionSignal::Loss);
        window.cwnd = window.ssthresh;
        cubic.on_recovered(window, now);
    }

    /// A round trip of 100 ms of acknowledgements, evenly spread.
    fn round(cubic: &mut Cubic, window: &mut CongestionWindow, now: &mut Instant) {
        let segments = (window.cwnd / MSS).max(1);
        for _ in 0..segments {
            *now += Span::from_ms(100) / segments;
            cubic.on_ack(window, &AckEvent { now: *now, ..ack_of(MSS) });
        }
    }

    #[test]
    fn the_cube_root_is_exact() {
        for root in [0_u128, 1, 2, 3, 1_000, (1 << 20) - 1, 1 << 30, (1 << 42) + 12_345] {
            let cube = root * root * root;
            assert_eq!(u128::from(cube_root(cube)), root);
            assert_eq!(u128::from(cube_root(cube + 3 * root * root)), root);
            if root > 0 {
                assert_eq!(u128::from(cube_root(cube - 1)), root - 1);
            }
        }
    }

    #[test]
    fn the_curve_is_that_of_the_rfc_for_every_size_of_window() {
        for (window_max, mss) in
            [(2_920, 1_460), (1_000_000, 1_460), (100_000_000, 536), (1 << 40, 65_483)]
        {
            let mss_f64 = f64::from(mss);
            let k = (window_max as f64 * 0.3 / mss_f64 / 0.4).cbrt();
            let cwnd = scale(window_max, 7, 10);
            let window = CongestionWindow { cwnd, ssthresh: cwnd, mss, initial: 14_600 };
            let epoch = CubicEpoch::begin(&window, window_max, Instant::ORIGIN);
            for part in [0.0, 0.01, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0] {
                let t = part * k;
                let expected = 0.4 * (t - k).powi(3) * mss_f64 + window_max as f64;
                let computed = epoch.window_at(Span::from_secs_f64(t), mss) as f64;
                let error = (computed - expected).abs();
                assert!(
                    error < 3.0 + expected * 1e-5,
                    "{computed} for {expected} at {part} K of {window_max}"
                );
            }
        }
    }

    #[test]
    fn acknowledgements_let_the_window_follow_the_curve() {
        let mut cubic = Cubic::new(false);
        let mut window = window(1_000 * MSS, 1_000 * MSS);
        let mut now = Instant::ORIGIN + Span::from_secs(1);
        lose(&mut cubic, &mut window, now);
        assert_eq!(window.cwnd, 700 * MSS);
        let start = now;
        let k = (300.0_f64 / 0.4).cbrt();
        for _ in 0..180 {
            round(&mut cubic, &mut window, &mut now);
            let t = (now - start).as_secs_f64();
            let expected = 0.4 * (t - k).powi(3) + 1_000.0;
            let segments = window.cwnd as f64 / MSS as f64;
            assert!(
                (segments / expected - 1.0).abs() < 0.01,
                "{segments} for {expected} after {t} s"
            );
        }
    }

    #[test]
    fn small_windows_grow_by_nine_seventeenths_until_the_prior_one_then_as_reno() {
        let mut cubic = Cubic::new(false);
        let mut window = window(20 * MSS, 20 * MSS);
        let mut now = Instant::ORIGIN + Span::from_secs(1);
        // An RTT of 1 ms: the cubic function has no time to grow.
        let mut short = |cubic: &mut Cubic, window: &mut CongestionWindow| {
            let before = window.cwnd;
            let mut left = before;
            while left > 0 {
                now += Span::from_us(50);
                let acked = left.min(MSS);
                let ack = AckEvent { now, srtt: Some(Span::from_ms(1)), ..ack_of(acked) };
                cubic.on_ack(window, &ack);
                left -= acked;
            }
            window.cwnd - before
        };
        lose(&mut cubic, &mut window, Instant::ORIGIN);
        for _ in 0..10 {
            let growth = short(&mut cubic, &mut window);
            assert!(growth.abs_diff(MSS * 9 / 17) < 25, "{growth}");
        }
        while window.cwnd < 20 * MSS {
            short(&mut cubic, &mut window);
        }
        let growth = short(&mut cubic, &mut window);
        assert!(growth.abs_diff(MSS) < 50, "{growth}");
    }

    #[test]
    fn a_second_loss_below_the_maximum_gives_up_more() {
        let mut cubic = Cubic::new(false);
        let mut window = window(100 * MSS, 100 * MSS);
        lose(&mut cubic, &mut window, Instant::ORIGIN);
        assert_eq!(cubic.state.window_max, 100 * MSS);
        lose(&mut cubic, &mut window, Instant::ORIGIN);
        assert_eq!((window.cwnd, cubic.state.window_max), (49 * MSS, 70 * MSS * 85 / 100));
    }

    #[test]
    fn time_without_data_is_no_part_of_the_epoch() {
        let (mut busy, mut idle) = (Cubic::new(false), Cubic::new(false));
        let start = Instant::ORIGIN + Span::from_secs(1);
        let mut windows = [window(1_000 * MSS, 1_000 * MSS); 2];
        let mut times = [start; 2];
        lose(&mut busy, &mut windows[0], start);
        lose(&mut idle, &mut windows[1], start);
        for n in 0..40 {
            round(&mut busy, &mut windows[0], &mut times[0]);
            round(&mut idle, &mut windows[1], &mut times[1]);
            if n == 20 {
                // Nothing to send for 5 s, then an unfilled window for 5 s.
                times[1] += Span::from_secs(5);
                idle.on_sent(&windows[1], times[1], MSS, MSS);
                for _ in 0..50 {
                    times[1] += Span::from_ms(100);
                    let ack = AckEvent { now: times[1], is_cwnd_limited: false, ..ack_of(MSS) };
                    idle.on_ack(&mut windows[1], &ack);
                }
            }
        }
        assert_eq!(windows[0].cwnd, windows[1].cwnd);
    }

    #[test]
    fn a_spurious_signal_leaves_the_curve_as_it_was() {
        let (mut calm, mut fooled) = (Cubic::new(false), Cubic::new(false));
        let start = Instant::ORIGIN + Span::from_secs(1);
        let mut windows = [window(1_000 * MSS, 1_000 * MSS); 2];
        let mut times = [start; 2];
        lose(&mut calm, &mut windows[0], start);
        lose(&mut fooled, &mut windows[1], start);
        for n in 0..100 {
            round(&mut calm, &mut windows[0], &mut times[0]);
            round(&mut fooled, &mut windows[1], &mut times[1]);
            if n == 30 {
                let before = windows[1];
                lose(&mut fooled, &mut windows[1], times[1]);
                windows[1] = before;
                fooled.on_spurious(&mut windows[1]);
            }
        }
        assert_eq!(windows[0], windows[1]);
    }

    #[test]
    fn the_least_and_the_largest_windows_grow_within_bounds() {
        for (cwnd, mss) in [(2_000, 1_000), (2, 1), (1 << 34, 1_460), (u64::MAX / 2, 65_495)] {
            let mut cubic = Cubic::new(true);
            let mut window = CongestionWindow { cwnd, ssthresh: cwnd, mss, initial: 10 };
            for later in [1, 1_000, 100_000, 10_000_000] {
                let now = Instant::ORIGIN + Span::from_secs(later);
                lose(&mut cubic, &mut window, now);
                let before = window.cwnd;
                for n in 0..100 {
                    let acked = (before / 100).max(1);
                    let now = now + Span::from_secs(n * 50_000);
                    cubic.on_ack(&mut window, &AckEvent { now, ..ack_of(acked) });
                }
                assert!(window.cwnd >= before);
                assert!(
                    window.cwnd <= before.saturating_mul(2).max(before + 100),
                    "{before}: {window:?}"
                );
            }
        }
    }

    /// RFC 9438 §5.1: 1.054 · RTT^¾ / p^¾, and what Reno has where that is more. Periodic loss leaves CUBIC at whichever window
    /// it came to of those that reproduce themselves, a tenth around the formula: it is flat where the loss comes.
    #[test]
    fn periodic_loss_gives_the_window_of_the_rfc() {
        let cubic = 1.054 * (0.1_f64 * 1e4).powf(0.75);
        let reno = 1.22 * 1e3_f64.sqrt();
        for (period, rtt_ms, expected) in [(1_000, 10, reno), (10_000, 100, cubic)] {
            let rtt = Span::from_ms(rtt_ms);
            let path = PathUnderTest { rtt, loss_period: Some(period), ..PathUnderTest::wide() };
            let outcome = path.run(CongestionChoice::Cubic, rtt * 6_000);
            let ratio = outcome.segments_in_flight / expected;
            assert!((0.9..1.1).contains(&ratio), "one in {period}: {ratio} of {expected} segments");
        }
    }
}
