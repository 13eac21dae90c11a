//! How fast a connection's data are delivered: samples for congestion controls that model the path.
//!
//! draft-cheng-iccrg-delivery-rate-estimation-02, as Linux's `tcp_rate.c`.

use plumb_base::time::{Instant, Span};

use super::congestion::RateSample;

/// What had been delivered when a segment was sent, kept with the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliverySnapshot {
    /// Bytes delivered before, twice; the lowest bit: the application had nothing more to send.
    delivered_and_limited: u64,
    /// When the last of them was.
    delivered_at: Instant,
    /// When the first segment of the sample that this one ends was sent.
    first_sent_at: Instant,
}

impl DeliverySnapshot {
    const fn delivered(&self) -> u64 {
        self.delivered_and_limited >> 1
    }

    const fn is_app_limited(&self) -> bool {
        self.delivered_and_limited & 1 == 1
    }
}

/// The estimator of a connection.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryRate {
    /// Bytes delivered so far (C.delivered).
    delivered: u64,
    /// When the last of them was (C.delivered_time).
    delivered_at: Instant,
    /// When the newest segment that was delivered was sent (C.first_sent_time).
    first_sent_at: Instant,
    /// What is sent until so much has been delivered was limited by the application; 0: it was not.
    app_limited_until: u64,
    /// The newest segment delivered since the last sample: when it was sent, and its snapshot.
    newest: Option<(Instant, DeliverySnapshot)>,
}

impl DeliveryRate {
    /// The estimator of a new connection.
    pub const fn new() -> Self {
        Self {
            delivered: 0,
            delivered_at: Instant::ORIGIN,
            first_sent_at: Instant::ORIGIN,
            app_limited_until: 0,
            newest: None,
        }
    }

    /// A segment leaves, for the first time or again. `unacknowledged`: bytes from `snd_una` to `snd_nxt` before it.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, unacknowledged: u64) -> DeliverySnapshot {
        if unacknowledged == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        DeliverySnapshot {
            delivered_and_limited: self.delivered << 1 | u64::from(self.app_limited_until != 0),
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
        }
    }

    /// `len` bytes of a segment are acknowledged or SACKed for the first time. Call it for every segment of an
    /// acknowledgement, then [`DeliveryRate::sample`].
    #[inline]
    pub fn on_delivered(
        &mut self,
        now: Instant,
        len: u64,
        sent_at: Instant,
        snapshot: &DeliverySnapshot,
    ) {
        self.delivered += len;
        self.delivered_at = now;
        let is_newer = self
            .newest
            .is_none_or(|(at, before)| (sent_at, snapshot.delivered()) >= (at, before.delivered()));
        if is_newer {
            self.newest = Some((sent_at, *snapshot));
        }
    }

    /// The sample of an acknowledgement, after every [`DeliveryRate::on_delivered`] of it. `None` where it delivered nothing,
    /// and where the interval is shorter than `rtt_min`, which only batched acknowledgements make it (§4.3).
    pub fn sample(&mut self, now: Instant, rtt_min: Option<Span>) -> Option<RateSample> {
        if self.app_limited_until != 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let (sent_at, snapshot) = self.newest.take()?;
        self.first_sent_at = sent_at;
        let sending = sent_at.saturating_since(snapshot.first_sent_at);
        let acknowledging = now.saturating_since(snapshot.delivered_at);
        let interval = sending.max(acknowledging);
        if interval == Span::ZERO || rtt_min.is_some_and(|rtt_min| interval < rtt_min) {
            return None;
        }
        Some(RateSample {
            delivered: self.delivered - snapshot.delivered(),
            interval,
            delivered_before: snapshot.delivered(),
            delivered_total: self.delivered,
            is_app_limited: snapshot.is_app_limited(),
        })
    }

    /// The application has no more to send, though more than `flight` bytes could be in flight: samples until those are
    /// delivered say nothing of the path (§3.4). Call it when there is nothing unsent, nothing lost that is not
    /// retransmitted, and the window is not full.
    pub fn on_app_limited(&mut self, flight: u64) {
        self.app_limited_until = (self.delivered + flight).max(1);
    }

    /// Bytes delivered so far.
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }
}

impl Default for DeliveryRate {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1_000;

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Span::from_ms(ms)
    }

    /// Sends a segment every millisecond from 100 ms on, and has each acknowledged 50 ms later.
    fn steady(rate: &mut DeliveryRate, segments: u64) -> Vec<DeliverySnapshot> {
        let mut snapshots = Vec::new();
        for ms in 0..segments + 50 {
            if ms >= 50 {
                let index = usize::try_from(ms - 50).unwrap();
                rate.on_delivered(at(100 + ms), MSS, at(50 + ms), &snapshots[index]);
                if ms + 1 < segments + 50 {
                    rate.sample(at(100 + ms), None);
                }
            }
            if ms < segments {
                snapshots.push(rate.on_sent(at(100 + ms), ms.min(50) * MSS));
            }
        }
        snapshots
    }

    #[test]
    fn a_steady_sender_is_measured_exactly() {
        let mut rate = DeliveryRate::new();
        steady(&mut rate, 200);
        let sample = rate.sample(at(349), Some(Span::from_ms(50))).unwrap();
        assert_eq!(sample.interval, Span::from_ms(50));
        assert_eq!(sample.bytes_per_second(), 1_000_000);
        assert_eq!((sample.delivered_before, sample.delivered_total), (150 * MSS, 200 * MSS));
    }

    #[test]
    fn compressed_acknowledgements_do_not_raise_the_rate() {
        let mut rate = DeliveryRate::new();
        let snapshots: Vec<_> = (0..10).map(|ms| rate.on_sent(at(ms), ms * MSS)).collect();
        // All ten arrive together: sending took 9 ms, so the rate is that of ten segments in 100 ms, the longer one.
        for (ms, snapshot) in snapshots.iter().enumerate() {
            rate.on_delivered(at(100), MSS, at(ms as u64), snapshot);
        }
        let sample = rate.sample(at(100), None).unwrap();
        assert_eq!((sample.delivered, sample.interval), (10 * MSS, Span::from_ms(100)));
        // Ten more, sent over 90 ms, acknowledged within 1 ms: the time to send them bounds the rate.
        let snapshots: Vec<_> = (0..10).map(|n| rate.on_sent(at(100 + 10 * n), n * MSS)).collect();
        rate.on_delivered(at(240), 9 * MSS, at(180), &snapshots[8]);
        rate.sample(at(240), None);
        let burst = rate.on_sent(at(241), 1);
        rate.on_delivered(at(242), MSS, at(241), &burst);
        let sample = rate.sample(at(242), None).unwrap();
        assert_eq!(sample.interval, Span::from_ms(61), "from the segment sent at 180 ms");
    }

    #[test]
    fn the_segment_sent_last_decides() {
        let mut rate = DeliveryRate::new();
        let old = rate.on_sent(at(0), 0);
        rate.on_delivered(at(40), MSS, at(0), &old);
        rate.sample(at(40), None);
        let newer = rate.on_sent(at(50), MSS);
        // A retransmission of the old one's neighbour, acknowledged together, in the other order.
        rate.on_delivered(at(100), MSS, at(50), &newer);
        rate.on_delivered(at(100), MSS, at(0), &old);
        let sample = rate.sample(at(100), None).unwrap();
        assert_eq!((sample.delivered_before, sample.delivered), (MSS, 2 * MSS));
        assert_eq!(sample.interval, Span::from_ms(60));
    }

    #[test]
    fn an_interval_shorter_than_the_least_rtt_is_no_sample() {
        for (rtt_min, is_sampled) in [(10, true), (11, false)] {
            let mut rate = DeliveryRate::new();
            let snapshot = rate.on_sent(at(0), 0);
            rate.on_delivered(at(10), MSS, at(0), &snapshot);
            let sample = rate.sample(at(10), Some(Span::from_ms(rtt_min)));
            assert_eq!(sample.is_some(), is_sampled);
            assert_eq!(rate.sample(at(10), None), None, "nothing was delivered since");
        }
    }

    #[test]
    fn samples_are_limited_by_the_application_until_its_data_are_delivered() {
        let mut rate = DeliveryRate::new();
        let first = rate.on_sent(at(0), 0);
        rate.on_app_limited(MSS);
        let second = rate.on_sent(at(5), MSS);
        rate.on_delivered(at(50), MSS, at(0), &first);
        assert!(!rate.sample(at(50), None).unwrap().is_app_limited, "sent before");
        rate.on_delivered(at(55), MSS, at(5), &second);
        assert!(rate.sample(at(55), None).unwrap().is_app_limited);
        let third = rate.on_sent(at(56), 0);
        rate.on_delivered(at(106), MSS, at(56), &third);
        assert!(!rate.sample(at(106), None).unwrap().is_app_limited);
    }

    #[test]
    fn idle_time_is_no_part_of_a_sample() {
        let mut rate = DeliveryRate::new();
        let first = rate.on_sent(at(0), 0);
        rate.on_delivered(at(50), MSS, at(0), &first);
        rate.sample(at(50), None);
        let later = rate.on_sent(at(10_000), 0);
        rate.on_delivered(at(10_050), MSS, at(10_000), &later);
        assert_eq!(rate.sample(at(10_050), None).unwrap().interval, Span::from_ms(50));
    }
}
