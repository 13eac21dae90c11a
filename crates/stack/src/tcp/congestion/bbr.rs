//! BBR version 1 (Cardwell et al. 2016), as Linux's `tcp_bbr.c`: sends at the rate that the path has lately delivered, with
//! twice its bandwidth-delay product in flight.
//!
//! Left out: the detection of policers (`lt_bw`), and the exclusion of delayed acknowledgements from the least round-trip time.

use std::cmp::Ordering;

use plumb_base::time::{Instant, Span};

use super::{
    AckEvent, CongestionControl, CongestionSignal, CongestionWindow, RateSample, bytes_in,
    bytes_per_second,
};
use crate::tcp::pacing::quantum;

/// Gains are in 1/256.
const UNIT: u64 = 256;
/// 2/ln 2: doubles the rate each round trip …
const HIGH_GAIN: u64 = UNIT * 2_885 / 1_000 + 1;
/// … and its inverse.
const DRAIN_GAIN: u64 = UNIT * 1_000 / 2_885;
/// In flight, as a multiple of the bandwidth-delay product: acknowledgements may be delayed and batched.
const CWND_GAIN: u64 = UNIT * 2;
/// Rates of the phases of PROBE_BW: more, to find more; less, to drain what that has queued; six at the rate.
const CYCLE: [u64; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// Rounds of the window of the bandwidth.
const BANDWIDTH_ROUNDS: u64 = CYCLE.len() as u64 + 2;
/// The path is full when three rounds add less than a quarter.
const FULL_PERCENT: u64 = 125;
const FULL_ROUNDS: u8 = 3;
/// A least round-trip time as old as this is measured anew …
const RTT_MIN_AGE: Span = Span::from_secs(10);
/// … with four segments in flight, for so long.
const PROBE_RTT: Span = Span::from_ms(200);
const SEGMENTS_MIN: u64 = 4;
/// Round-trip time before it has been measured.
const RTT_GUESS: Span = Span::from_ms(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrMode {
    /// The rate doubles until it finds the path's.
    Startup,
    /// What that queued is drained.
    Drain,
    /// The path is used, and probed for more.
    ProbeBandwidth,
    /// The window is small, so that the queue drains and the round-trip time shows.
    ProbeRtt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrRecovery {
    None,
    /// Loss was noticed with this acknowledgement.
    Entered,
    /// The first round: a segment out for each in.
    Conserving,
    /// Later rounds, and after a timeout.
    Later,
}

/// A model of the path: its bandwidth and its round-trip time.
#[expect(clippy::struct_excessive_bools, reason = "each is of another of the model's estimators")]
#[derive(Clone, Debug)]
pub struct Bbr {
    mode: BbrMode,
    recovery: BbrRecovery,
    /// Bytes delivered in all.
    delivered: u64,
    /// Greatest delivery rate of the last rounds, in bytes a second.
    bandwidth: WindowedMax,
    round: u64,
    /// The round ends when what was sent after so much was delivered is acknowledged.
    round_end: u64,
    is_round_start: bool,
    rtt_min: Option<Span>,
    rtt_min_at: Instant,
    cycle_index: usize,
    cycle_at: Instant,
    full_bandwidth: u64,
    full_rounds: u8,
    is_full: bool,
    probe_rtt_end: Option<Instant>,
    is_probe_rtt_round_over: bool,
    /// What is sent while between so many and so many bytes were delivered is limited by a small window: no sample of the path.
    limited: (u64, u64),
    /// The window to return to.
    cwnd_prior: u64,
    is_restarted: bool,
    has_rtt: bool,
    /// Bytes a second; 0 before the first acknowledgement.
    rate: u64,
    aggregation: AckAggregation,
    random: u64,
}

impl Bbr {
    /// BBR at its start. `seed` decides the phases in which it begins to probe.
    pub fn new(seed: u64) -> Self {
        Self {
            mode: BbrMode::Startup,
            recovery: BbrRecovery::None,
            delivered: 0,
            bandwidth: WindowedMax::new(BANDWIDTH_ROUNDS),
            round: 0,
            round_end: 0,
            is_round_start: false,
            rtt_min: None,
            rtt_min_at: Instant::ORIGIN,
            cycle_index: 0,
            cycle_at: Instant::ORIGIN,
            full_bandwidth: 0,
            full_rounds: 0,
            is_full: false,
            probe_rtt_end: None,
            is_probe_rtt_round_over: false,
            limited: (0, 0),
            cwnd_prior: 0,
            is_restarted: false,
            has_rtt: false,
            rate: 0,
            aggregation: AckAggregation::default(),
            random: seed,
        }
    }

    fn pacing_gain(&self) -> u64 {
        match self.mode {
            BbrMode::Startup => HIGH_GAIN,
            BbrMode::Drain => DRAIN_GAIN,
            BbrMode::ProbeBandwidth => CYCLE[self.cycle_index],
            BbrMode::ProbeRtt => UNIT,
        }
    }

    fn cwnd_gain(&self) -> u64 {
        match self.mode {
            BbrMode::Startup | BbrMode::Drain => HIGH_GAIN,
            BbrMode::ProbeBandwidth => CWND_GAIN,
            BbrMode::ProbeRtt => UNIT,
        }
    }

    /// Counts rounds and keeps the greatest rate.
    fn update_bandwidth(&mut self, rate: Option<&RateSample>) {
        self.is_round_start = false;
        let Some(sample) = rate else { return };
        if sample.delivered_before >= self.round_end {
            self.round_end = self.delivered;
            self.round += 1;
            self.is_round_start = true;
            if self.recovery == BbrRecovery::Conserving {
                self.recovery = BbrRecovery::Later;
            }
        }
        let bandwidth = sample.bytes_per_second();
        if !self.is_limited(sample) || bandwidth >= self.bandwidth.get() {
            self.bandwidth.update(self.round, bandwidth);
        }
    }

    fn is_limited(&self, sample: &RateSample) -> bool {
        let (from, until) = self.limited;
        sample.is_app_limited || (from..until).contains(&sample.delivered_before)
    }

    /// Phases of PROBE_BW last a round-trip time; the first until it has filled the pipe or lost, the second until it is empty.
    fn update_cycle(&mut self, window: &CongestionWindow, ack: &AckEvent) {
        if self.mode != BbrMode::ProbeBandwidth {
            return;
        }
        let lasted = ack.now.saturating_since(self.cycle_at) > self.rtt_min.unwrap_or(Span::ZERO);
        let gain = self.pacing_gain();
        let is_over = match gain.cmp(&UNIT) {
            Ordering::Greater => {
                let flight = ack.flight_before + quantum(self.rate, window.mss);
                lasted && (ack.lost > 0 || flight >= self.budget(window, gain))
            }
            Ordering::Less => lasted || ack.flight_before <= self.budget(window, UNIT),
            Ordering::Equal => lasted,
        };
        if is_over {
            self.cycle_index = (self.cycle_index + 1) % CYCLE.len();
            self.cycle_at = ack.now;
        }
    }

    fn update_full(&mut self, rate: Option<&RateSample>) {
        if self.is_full || !self.is_round_start || rate.is_none_or(|sample| self.is_limited(sample))
        {
            return;
        }
        let bandwidth = self.bandwidth.get();
        if u128::from(bandwidth) * 100 >= u128::from(self.full_bandwidth) * u128::from(FULL_PERCENT)
        {
            self.full_bandwidth = bandwidth;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.is_full = self.full_rounds >= FULL_ROUNDS;
    }

    fn update_drain(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        if self.mode == BbrMode::Startup && self.is_full {
            self.mode = BbrMode::Drain;
            window.ssthresh = self.budget(window, UNIT);
        }
        if self.mode == BbrMode::Drain && ack.flight <= self.budget(window, UNIT) {
            self.probe_bandwidth(ack.now);
        }
    }

    /// PROBE_BW begins in a phase drawn by lot, never in the one that drains.
    fn probe_bandwidth(&mut self, now: Instant) {
        self.mode = BbrMode::ProbeBandwidth;
        // Knuth's MMIX generator: only the phases of one connection depend on it.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let lot = usize::try_from((self.random >> 33) % 7).expect("below 7");
        self.cycle_index = (CYCLE.len() - lot) % CYCLE.len();
        self.cycle_at = now;
    }

    fn update_rtt_min(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        let is_expired = self.rtt_min.is_some() && ack.now > self.rtt_min_at + RTT_MIN_AGE;
        if let Some(rtt) = ack.rtt
            && (is_expired || self.rtt_min.is_none_or(|least| rtt < least))
        {
            self.rtt_min = Some(rtt);
            self.rtt_min_at = ack.now;
        }
        if is_expired && !self.is_restarted && self.mode != BbrMode::ProbeRtt {
            self.mode = BbrMode::ProbeRtt;
            self.save_window(window);
            self.probe_rtt_end = None;
            self.limited.0 = self.delivered;
        }
        if self.mode == BbrMode::ProbeRtt {
            self.probe_rtt(window, ack);
        }
        if ack.delivered > 0 {
            self.is_restarted = false;
        }
    }

    fn probe_rtt(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        self.limited.1 = self.delivered + ack.flight + 1;
        match self.probe_rtt_end {
            None if ack.flight <= SEGMENTS_MIN * u64::from(window.mss) => {
                self.probe_rtt_end = Some(ack.now + PROBE_RTT);
                self.is_probe_rtt_round_over = false;
                self.round_end = self.delivered;
            }
            None => {}
            Some(end) => {
                self.is_probe_rtt_round_over |= self.is_round_start;
                if self.is_probe_rtt_round_over && ack.now > end {
                    self.rtt_min_at = ack.now;
                    window.cwnd = window.cwnd.max(self.cwnd_prior);
                    self.mode = BbrMode::Startup;
                    if self.is_full {
                        self.probe_bandwidth(ack.now);
                    }
                }
            }
        }
    }

    fn update_rate(&mut self, window: &CongestionWindow, ack: &AckEvent) {
        if !self.has_rtt
            && let Some(srtt) = ack.srtt
        {
            self.has_rtt = true;
            self.rate = initial_rate(window, srtt);
        }
        let rate = paced(self.bandwidth.get(), self.pacing_gain());
        if self.is_full || rate > self.rate {
            self.rate = rate;
        }
    }

    fn update_window(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        let mss = u64::from(window.mss);
        let floor = SEGMENTS_MIN * mss;
        if ack.delivered > 0 && !self.conserve(window, ack) {
            let target = self.target(window);
            let grown = window.cwnd.saturating_add(ack.delivered);
            if self.is_full {
                window.cwnd = grown.min(target);
            } else if window.cwnd < target || self.delivered < window.initial {
                window.cwnd = grown;
            }
            window.cwnd = window.cwnd.max(floor);
        }
        if self.mode == BbrMode::ProbeRtt {
            window.cwnd = window.cwnd.min(floor);
        }
    }

    /// Losses leave the window; in the first round of recovery a segment leaves for each that arrives. Returns whether that
    /// decides.
    fn conserve(&mut self, window: &mut CongestionWindow, ack: &AckEvent) -> bool {
        let conserved = ack.flight + ack.delivered;
        window.cwnd = window.cwnd.saturating_sub(ack.lost).max(u64::from(window.mss));
        if self.recovery == BbrRecovery::Entered {
            self.recovery = BbrRecovery::Conserving;
            self.round_end = self.delivered;
            window.cwnd = conserved;
        }
        if self.recovery != BbrRecovery::Conserving {
            return false;
        }
        window.cwnd = window.cwnd.max(conserved);
        true
    }

    /// The window to have.
    fn target(&self, window: &CongestionWindow) -> u64 {
        let bandwidth = self.bandwidth.get();
        let product = self.bandwidth_delay_product(window, self.cwnd_gain());
        let extra = if self.is_full { self.aggregation.extra(bandwidth) } else { 0 };
        self.with_quanta(window, product + extra)
    }

    /// What `gain` times the bandwidth-delay product needs in flight.
    fn budget(&self, window: &CongestionWindow, gain: u64) -> u64 {
        self.with_quanta(window, self.bandwidth_delay_product(window, gain))
    }

    fn bandwidth_delay_product(&self, window: &CongestionWindow, gain: u64) -> u64 {
        match self.rtt_min {
            None => window.initial,
            Some(rtt) => bytes_in(self.bandwidth.get(), rtt).saturating_mul(gain) / UNIT,
        }
    }

    /// Room for a quantum waiting to leave, one in the device and one being acknowledged.
    fn with_quanta(&self, window: &CongestionWindow, bytes: u64) -> u64 {
        let mss = u64::from(window.mss);
        let even = bytes
            .saturating_add(3 * quantum(self.rate, window.mss))
            .div_ceil(2 * mss)
            .saturating_mul(2 * mss);
        let probes = self.mode == BbrMode::ProbeBandwidth && self.cycle_index == 0;
        even.saturating_add(if probes { 2 * mss } else { 0 })
    }

    fn save_window(&mut self, window: &CongestionWindow) {
        let is_own = self.recovery == BbrRecovery::None && self.mode != BbrMode::ProbeRtt;
        self.cwnd_prior = if is_own { window.cwnd } else { self.cwnd_prior.max(window.cwnd) };
    }
}

/// `gain` times `bandwidth`, less a percent, so that a queue drains.
fn paced(bandwidth: u64, gain: u64) -> u64 {
    bandwidth.saturating_mul(gain) / UNIT / 100 * 99
}

fn initial_rate(window: &CongestionWindow, srtt: Span) -> u64 {
    paced(bytes_per_second(window.cwnd, srtt), HIGH_GAIN)
}

impl CongestionControl for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        let rate = ack.rate.as_ref().filter(|sample| sample.interval != Span::ZERO);
        self.delivered =
            rate.map_or(self.delivered + ack.delivered, |sample| sample.delivered_total);
        self.update_bandwidth(rate);
        if rate.is_some() {
            self.aggregation.update(self.bandwidth.get(), window.cwnd, ack, self.is_round_start);
        }
        self.update_cycle(window, ack);
        self.update_full(rate);
        self.update_drain(window, ack);
        self.update_rtt_min(window, ack);
        self.update_rate(window, ack);
        self.update_window(window, ack);
    }

    /// Marks are not reacted to. Loss keeps the window for when recovery is over.
    fn on_congestion(
        &mut self,
        window: &mut CongestionWindow,
        _now: Instant,
        _flight: u64,
        signal: CongestionSignal,
    ) {
        if signal == CongestionSignal::Loss {
            self.save_window(window);
            self.recovery = BbrRecovery::Entered;
        }
    }

    fn on_timeout(
        &mut self,
        window: &mut CongestionWindow,
        _now: Instant,
        _flight: u64,
        _first: bool,
    ) {
        self.save_window(window);
        self.recovery = BbrRecovery::Later;
        self.full_bandwidth = 0;
    }

    fn on_recovered(&mut self, window: &mut CongestionWindow, _now: Instant) {
        if self.recovery != BbrRecovery::None {
            self.recovery = BbrRecovery::None;
            window.cwnd = window.cwnd.max(self.cwnd_prior);
        }
    }

    fn on_spurious(&mut self, _window: &mut CongestionWindow) {
        self.full_bandwidth = 0;
        self.full_rounds = 0;
    }

    fn on_sent(&mut self, _window: &CongestionWindow, now: Instant, len: u64, flight: u64) {
        // Data after silence: they say nothing of how long an old round-trip time holds.
        if flight > len || self.delivered == 0 || self.recovery != BbrRecovery::None {
            return;
        }
        self.is_restarted = true;
        self.aggregation.restart(now);
        match self.mode {
            BbrMode::ProbeBandwidth => self.rate = paced(self.bandwidth.get(), UNIT),
            BbrMode::ProbeRtt => self.is_probe_rtt_round_over = true,
            BbrMode::Startup | BbrMode::Drain => {}
        }
    }

    fn pacing_rate(&self, window: &CongestionWindow, srtt: Option<Span>) -> Option<u64> {
        let rate =
            if self.rate > 0 { self.rate } else { initial_rate(window, srtt.unwrap_or(RTT_GUESS)) };
        Some(rate)
    }

    fn governs_recovery(&self) -> bool {
        true
    }
}

/// A maximum over a window of rounds, from the three best samples (Kathleen Nichols' algorithm, Linux's `win_minmax.c`).
#[derive(Clone, Copy, Debug)]
struct WindowedMax {
    window: u64,
    /// Round and value, the best first.
    best: [(u64, u64); 3],
}

impl WindowedMax {
    pub const fn new(window: u64) -> Self {
        Self { window, best: [(0, 0); 3] }
    }

    pub const fn get(&self) -> u64 {
        self.best[0].1
    }

    pub fn update(&mut self, round: u64, value: u64) {
        let sample = (round, value);
        if value >= self.best[0].1 || round - self.best[2].0 > self.window {
            self.best = [sample; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best[1..].fill(sample);
        } else if value >= self.best[2].1 {
            self.best[2] = sample;
        }
        self.age(sample);
    }

    /// Passes on from what is too old, and takes a second and third best from later parts of the window.
    fn age(&mut self, sample: (u64, u64)) {
        let [first, second, third] = self.best;
        let age = sample.0 - first.0;
        if age > self.window {
            self.best = [second, third, sample];
            if sample.0 - second.0 > self.window {
                self.best = [third, sample, sample];
            }
        } else if second.0 == first.0 && age > self.window / 4 {
            self.best[1..].fill(sample);
        } else if third.0 == second.0 && age > self.window / 2 {
            self.best[2] = sample;
        }
    }
}

/// Windows of five to ten rounds of the burst are remembered …
const ROUNDS: u8 = 5;
/// … of which a tenth of a second is compensated for.
const EXTRA_MAX: Span = Span::from_ms(100);
/// A burst is counted anew after so many bytes.
const EPOCH_MAX: u64 = 1 << 30;

/// Bytes acknowledged beyond what the bandwidth explains: so much more must be in flight, or the pipe runs dry between bursts.
#[derive(Clone, Copy, Debug, Default)]
struct AckAggregation {
    epoch_at: Instant,
    epoch_acked: u64,
    most: [u64; 2],
    index: usize,
    rounds: u8,
}

impl AckAggregation {
    /// Nothing was in flight before `now`.
    pub fn restart(&mut self, now: Instant) {
        self.epoch_at = now;
        self.epoch_acked = 0;
    }

    pub fn update(&mut self, bandwidth: u64, cwnd: u64, ack: &AckEvent, is_round_start: bool) {
        if ack.delivered == 0 {
            return;
        }
        if is_round_start {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                self.rounds = 0;
                self.index ^= 1;
                self.most[self.index] = 0;
            }
        }
        let mut expected = bytes_in(bandwidth, ack.now.saturating_since(self.epoch_at));
        if self.epoch_acked <= expected || self.epoch_acked + ack.delivered >= EPOCH_MAX {
            self.restart(ack.now);
            expected = 0;
        }
        self.epoch_acked += ack.delivered;
        let extra = self.epoch_acked.saturating_sub(expected).min(cwnd);
        self.most[self.index] = self.most[self.index].max(extra);
    }

    /// Bytes by which the window shall exceed the model.
    pub fn extra(&self, bandwidth: u64) -> u64 {
        self.most[0].max(self.most[1]).min(bytes_in(bandwidth, EXTRA_MAX))
    }
}

#[cfg(test)]
mod tests;
