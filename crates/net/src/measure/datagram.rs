//! Datagrams at a paced rate: who sent what, what came, what did not, where it was lost, and how long it took.
//!
//! All times are nanoseconds of the CLOCK_MONOTONIC_RAW of the host that read them: no clock that is set enters
//! a difference, and [`super::clock_offset`] relates two hosts' clocks.
//!
//! Of how long datagrams took are kept extremes, jitter, and a sample in bounded memory: when the room is full every second
//! sample is given up, and from then on every second datagram is passed over, so that the samples are always evenly spread
//! over all that came.

use plumb_result::net::NetLossLocations;
use receiver::ReceiverReport;
use sender::SenderReport;
use serde::{Deserialize, Serialize};

pub mod drops;
pub mod endpoint;
pub mod receiver;
pub mod sender;
pub mod sequence_tracker;

/// Divides what was lost of one stream by place.
pub fn locate(sender: &SenderReport, receiver: &ReceiverReport) -> NetLossLocations {
    let lost = sender.count.saturating_sub(receiver.tally.unique);
    let refused = sender.refused.min(lost);
    // A copy that found no room lost nothing, so there may be more such drops than losses.
    let receiver_buffer = receiver.overflow.min(lost - refused);
    let dropped_later = sender.queue_dropped.unwrap_or(0).saturating_sub(sender.refused);
    let sender_queue = refused + dropped_later.min(lost - refused - receiver_buffer);
    let mut sender_host = sender.drops.grown();
    let dropped = sender.queue_dropped.filter(|&count| count > 0);
    sender_host.extend(dropped.map(|count| ("queue".to_owned(), count)));
    NetLossLocations {
        sender_queue,
        path: lost - sender_queue - receiver_buffer,
        receiver_buffer,
        receiver_buffer_at_least: receiver.joined && receiver.overflow > 0,
        sender_host,
        receiver_host: receiver.drops.grown(),
    }
}

/// Samples that are kept at most; at least half of them where as many came.
pub const SAMPLES_MAX: usize = 8192;

/// When one datagram left and how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitSample {
    /// When it left, by the sender's clock.
    pub sent_ns: u64,
    /// Arrival by the receiver's clock less departure by the sender's.
    pub transit_ns: i64,
}

/// The transit times of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitTrace {
    /// A sample was taken of every so many datagrams.
    pub every: u64,
    /// The samples, in order of arrival.
    pub samples: Vec<TransitSample>,
    /// The least of all transit times, sampled or not.
    pub least: Option<TransitSample>,
    /// The greatest of all.
    pub greatest: Option<TransitSample>,
    seen: u64,
}

impl TransitTrace {
    /// Nothing yet; the memory is taken at once.
    pub fn new() -> Self {
        Self { every: 1, samples: Vec::with_capacity(SAMPLES_MAX), ..Self::default() }
    }

    /// Enters one datagram.
    #[inline]
    pub fn record(&mut self, sent_ns: u64, arrived_ns: u64) -> TransitSample {
        let transit_ns = arrived_ns.wrapping_sub(sent_ns).cast_signed();
        let sample = TransitSample { sent_ns, transit_ns };
        if self.least.is_none_or(|least| transit_ns < least.transit_ns) {
            self.least = Some(sample);
        }
        if self.greatest.is_none_or(|greatest| transit_ns > greatest.transit_ns) {
            self.greatest = Some(sample);
        }
        if self.seen.is_multiple_of(self.every) {
            if self.samples.len() == SAMPLES_MAX {
                let mut index = 0_usize;
                self.samples.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every *= 2;
            }
            if self.seen.is_multiple_of(self.every) {
                self.samples.push(sample);
            }
        }
        self.seen += 1;
        sample
    }
}

/// Interarrival jitter as RFC 3550 §6.4.1 defines it: a sixteenth of each new difference of transit times is entered.
#[derive(Clone, Copy, Debug, Default)]
pub struct InterarrivalJitter {
    estimate_ns: f64,
    transit_ns: Option<i64>,
}

impl InterarrivalJitter {
    /// Enters a datagram by how long it took: arrival less departure, by whatever clocks.
    ///
    /// The first has nothing to differ from, and changes nothing.
    #[inline]
    pub fn record(&mut self, transit_ns: i64) {
        if let Some(before) = self.transit_ns.replace(transit_ns) {
            let difference = transit_ns.wrapping_sub(before).unsigned_abs() as f64;
            self.estimate_ns += (difference - self.estimate_ns) / 16.0;
        }
    }

    /// The estimate.
    pub const fn estimate_ns(self) -> f64 {
        self.estimate_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_stay_evenly_spread_and_few_and_no_extreme_is_missed() {
        let mut trace = TransitTrace::new();
        let count = 100_000_u64;
        for number in 0..count {
            let transit = if number == 77_777 { 5 } else { 1000 + number % 7 };
            trace.record(number * 10, number * 10 + transit);
        }
        assert!(trace.samples.len() > SAMPLES_MAX / 2 && trace.samples.len() <= SAMPLES_MAX);
        for (index, sample) in trace.samples.iter().enumerate() {
            assert_eq!(sample.sent_ns, u64::try_from(index).unwrap() * trace.every * 10);
        }
        assert_eq!(trace.least.unwrap().transit_ns, 5);
        assert_eq!(trace.greatest.unwrap().transit_ns, 1006);
    }

    #[test]
    fn a_receiver_whose_clock_is_behind_gives_a_negative_transit() {
        assert_eq!(TransitTrace::new().record(1_000, 400).transit_ns, -600);
    }

    #[test]
    fn a_constant_transit_has_no_jitter_whatever_the_clocks_are_apart() {
        let mut jitter = InterarrivalJitter::default();
        (0..100).for_each(|_| jitter.record(-7_000_000_000));
        assert!(jitter.estimate_ns().abs() < 1e-9);
    }

    #[test]
    fn an_alternating_transit_comes_to_its_difference_by_sixteenths() {
        let mut jitter = InterarrivalJitter::default();
        jitter.record(0);
        jitter.record(1600);
        assert!((jitter.estimate_ns() - 100.0).abs() < 1e-9);
        (0..500).for_each(|i| jitter.record(if i % 2 == 0 { 0 } else { 1600 }));
        assert!((jitter.estimate_ns() - 1600.0).abs() < 1.0, "{}", jitter.estimate_ns());
    }
}
