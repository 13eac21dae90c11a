//! For tests: one sender over one bottleneck, segment by segment in virtual time, without a protocol: numbers are never sent twice.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};

use super::{
    AckEvent, CongestionAlgorithm, CongestionChoice, CongestionControl, CongestionSignal,
    CongestionWindow,
};
use crate::tcp::delivery_rate::{DeliveryRate, DeliverySnapshot};
use crate::tcp::pacing::SegmentPacer;

const MSS: u64 = 1_000;

/// An acknowledgement of `acked` bytes in sequence, of a window that is used in full.
pub(super) const fn ack_of(acked: u64) -> AckEvent {
    let now = Instant::after_origin(Span::from_secs(1));
    AckEvent {
        now,
        received: now,
        acked,
        delivered: acked,
        lost: 0,
        flight: 0,
        flight_before: acked,
        rtt: Some(Span::from_ms(100)),
        srtt: Some(Span::from_ms(100)),
        is_cwnd_limited: true,
        in_recovery: false,
        ecn_echo: false,
        rate: None,
        una: acked,
        nxt: acked,
    }
}

/// A path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathUnderTest {
    /// Bytes a second.
    pub rate: u64,
    /// Round-trip time of an empty queue.
    pub rtt: Span,
    /// Bytes that may wait.
    pub buffer: u64,
    /// Every so many segments one is lost.
    pub loss_period: Option<u64>,
}

impl PathUnderTest {
    /// So fast that nothing waits; 100 ms.
    pub const fn wide() -> Self {
        Self { rate: 100_000_000_000, rtt: Span::from_ms(100), buffer: u64::MAX, loss_period: None }
    }

    /// 100 Mb/s, 40 ms, a buffer of four times the product of both.
    pub const fn long() -> Self {
        Self { rate: 12_500_000, rtt: Span::from_ms(40), buffer: 2_000_000, loss_period: None }
    }

    /// Sends for so long.
    pub fn run(self, choice: CongestionChoice, span: Span) -> PathOutcome {
        let mut sender = TestSender::new(self, choice.build(true, 1));
        while sender.now < Instant::ORIGIN + span {
            if sender.now < Instant::ORIGIN + span / 4 {
                sender.outcome = PathOutcome { cwnd_min: u64::MAX, ..PathOutcome::default() };
            }
            sender.send();
            sender.advance();
        }
        let measured = (span - span / 4).as_secs_f64();
        let mut outcome = sender.outcome;
        outcome.goodput = outcome.delivered as f64 / measured;
        outcome.segments_in_flight = outcome.goodput / MSS as f64 * self.rtt.as_secs_f64();
        outcome.queue_mean =
            outcome.rtt_sum / outcome.delivered as f64 * MSS as f64 - self.rtt.as_secs_f64();
        outcome
    }
}

/// What happened in the last three quarters of the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathOutcome {
    /// Bytes.
    pub delivered: u64,
    /// Bytes a second.
    pub goodput: f64,
    /// Mean over time, where nothing waits.
    pub segments_in_flight: f64,
    /// Mean wait of a segment, in seconds.
    pub queue_mean: f64,
    /// Least window, in bytes.
    pub cwnd_min: u64,
    /// Times that loss was signalled.
    pub signals: u64,
    rtt_sum: f64,
}

/// A segment under way.
struct SegmentUnderWay {
    /// From 1 on.
    number: u64,
    sent_at: Instant,
    snapshot: DeliverySnapshot,
    /// `None`: it is lost.
    acked_at: Option<Instant>,
}

struct TestSender {
    path: PathUnderTest,
    algorithm: CongestionAlgorithm,
    window: CongestionWindow,
    now: Instant,
    next_number: u64,
    link_free_at: Instant,
    under_way: VecDeque<SegmentUnderWay>,
    delivery: DeliveryRate,
    pacer: SegmentPacer,
    is_cwnd_limited: bool,
    rtt_min: Span,
    srtt: Option<Span>,
    recovery_end: Option<u64>,
    outcome: PathOutcome,
}

impl TestSender {
    fn new(path: PathUnderTest, mut algorithm: CongestionAlgorithm) -> Self {
        let mut window =
            CongestionWindow { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: 1_000, initial: 10 * MSS };
        algorithm.on_start(&mut window);
        Self {
            path,
            algorithm,
            window,
            now: Instant::ORIGIN,
            next_number: 0,
            link_free_at: Instant::ORIGIN,
            under_way: VecDeque::new(),
            delivery: DeliveryRate::new(),
            pacer: SegmentPacer::new(1_000),
            is_cwnd_limited: false,
            rtt_min: Span::from_secs(1_000),
            srtt: None,
            recovery_end: None,
            outcome: PathOutcome::default(),
        }
    }

    fn flight(&self) -> u64 {
        self.under_way.len() as u64 * MSS
    }

    fn send(&mut self) {
        while self.flight() + MSS <= self.window.cwnd {
            let rate = self.algorithm.pacing_rate(&self.window, self.srtt);
            if let Some(rate) = rate {
                if self.pacer.allowance(self.now, rate, 1_000) == 0 {
                    return;
                }
                self.pacer.on_sent(self.now, MSS, rate);
            }
            let snapshot = self.delivery.on_sent(self.now, self.flight());
            let acked_at = self.transmit();
            let number = self.next_number;
            self.under_way.push_back(SegmentUnderWay {
                number,
                sent_at: self.now,
                snapshot,
                acked_at,
            });
            self.algorithm.on_sent(&self.window, self.now, MSS, self.flight());
        }
        self.is_cwnd_limited = true;
    }

    fn transmit(&mut self) -> Option<Instant> {
        self.next_number += 1;
        let waiting = super::bytes_in(self.path.rate, self.link_free_at.saturating_since(self.now));
        let is_lost =
            self.path.loss_period.is_some_and(|period| self.next_number.is_multiple_of(period));
        if is_lost || waiting + MSS > self.path.buffer {
            return None;
        }
        let time = Span::from_secs(MSS) / self.path.rate;
        self.link_free_at = self.link_free_at.max(self.now) + time;
        Some(self.link_free_at + self.path.rtt)
    }

    /// The next acknowledgement, turn of the pacer, or timeout.
    fn advance(&mut self) {
        let acked_at = self.under_way.iter().find_map(|segment| segment.acked_at);
        let is_paced = self.flight() + MSS <= self.window.cwnd;
        match acked_at {
            Some(at) if !is_paced || at <= self.pacer.ready_at() => {
                self.now = self.now.max(at);
                self.acknowledge();
            }
            _ if is_paced => self.now = self.pacer.ready_at(),
            Some(_) => unreachable!("the first arm"),
            None => self.time_out(),
        }
    }

    fn time_out(&mut self) {
        self.now += Span::from_secs(1);
        let flight = self.flight();
        self.algorithm.on_timeout(&mut self.window, self.now, flight, true);
        self.window.cwnd = MSS;
        self.under_way.clear();
        self.recovery_end = None;
        self.algorithm.on_recovered(&mut self.window, self.now);
    }

    fn acknowledge(&mut self) {
        let flight_before = self.flight();
        let mut lost = 0;
        let segment = loop {
            let segment = self.under_way.pop_front().expect("one is to be acknowledged");
            if segment.acked_at.is_some() {
                break segment;
            }
            lost += MSS;
        };
        let rtt = self.now - segment.sent_at;
        self.rtt_min = self.rtt_min.min(rtt);
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
        self.delivery.on_delivered(self.now, MSS, segment.sent_at, &segment.snapshot);
        if lost > 0 && self.recovery_end.is_none() {
            self.recovery_end = Some(self.next_number);
            self.outcome.signals += 1;
            let signal = CongestionSignal::Loss;
            self.algorithm.on_congestion(&mut self.window, self.now, flight_before, signal);
            if !self.algorithm.governs_recovery() {
                self.window.cwnd = self.window.ssthresh;
            }
        } else if self.recovery_end.is_some_and(|end| segment.number >= end) {
            self.recovery_end = None;
            self.algorithm.on_recovered(&mut self.window, self.now);
        }
        let ack = AckEvent {
            now: self.now,
            received: self.now,
            lost,
            flight: self.flight(),
            flight_before,
            rtt: Some(rtt),
            srtt: self.srtt,
            is_cwnd_limited: self.is_cwnd_limited,
            in_recovery: self.recovery_end.is_some(),
            rate: self.delivery.sample(self.now, Some(self.rtt_min)),
            una: segment.number * MSS,
            nxt: self.next_number * MSS,
            ..ack_of(MSS)
        };
        if self.recovery_end.is_none() || self.algorithm.governs_recovery() {
            self.algorithm.on_ack(&mut self.window, &ack);
        }
        self.is_cwnd_limited = false;
        self.outcome.delivered += MSS;
        self.outcome.rtt_sum += rtt.as_secs_f64();
        self.outcome.cwnd_min = self.outcome.cwnd_min.min(self.window.cwnd);
    }
}
