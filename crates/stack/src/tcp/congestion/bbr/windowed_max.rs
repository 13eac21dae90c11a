//! What BBR remembers of recent rounds: the greatest delivery rate, and by how much acknowledgements came in bursts.

use plumb_base::time::{Instant, Span};

use crate::tcp::congestion::{AckEvent, bytes_in};

/// A maximum over a window of rounds, from the three best samples (Kathleen Nichols' algorithm, Linux's `win_minmax.c`).
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowedMax {
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
pub(super) struct AckAggregation {
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
mod tests {
    use super::*;

    #[test]
    fn the_maximum_of_the_window_is_kept_and_an_older_one_is_not() {
        let values =
            [5, 9, 3, 7, 1, 8, 2, 2, 2, 2, 2, 2, 2, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
        let mut max = WindowedMax::new(10);
        for (round, &value) in (0..).zip(&values) {
            max.update(round, value);
            let at = usize::try_from(round).unwrap();
            let within = |rounds| *values[at.saturating_sub(rounds)..=at].iter().max().unwrap();
            // Three samples stand for the window: never more than its maximum, never less than that of its last quarter.
            assert!(max.get() <= within(10), "{} in round {round}", max.get());
            assert!(max.get() >= within(2), "{} in round {round}", max.get());
        }
        assert_eq!(max.get(), 1);
        max.update(100, 4);
        assert_eq!(max.get(), 4);
    }

    #[test]
    fn a_burst_of_acknowledgements_is_compensated_for_ten_rounds_at_most() {
        let ack = |ms, delivered| {
            let now = Instant::ORIGIN + Span::from_ms(ms);
            AckEvent { now, delivered, ..crate::tcp::congestion::bottleneck::ack_of(delivered) }
        };
        let mut aggregation = AckAggregation::default();
        // 1 MB/s: 1,000 bytes a millisecond.
        for ms in 1..=100 {
            aggregation.update(1_000_000, 1 << 20, &ack(ms, 1_000), false);
        }
        assert!(aggregation.extra(1_000_000) <= 1_000, "{aggregation:?}");
        aggregation.update(1_000_000, 1 << 20, &ack(120, 20_000), false);
        let extra = aggregation.extra(1_000_000);
        assert!((20_000..=21_000).contains(&extra), "{extra}");
        assert_eq!(aggregation.extra(100_000), 10_000, "no more than a tenth of a second");
        for round in 0..10 {
            aggregation.update(1_000_000, 1 << 20, &ack(1_000 + round, 1_000), true);
        }
        assert!(aggregation.extra(1_000_000) < 20_000);
    }
}
