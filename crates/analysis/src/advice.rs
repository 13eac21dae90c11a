//! How long a number of items takes over a path in each way of sending them, and which way to choose.
//!
//! A way is limited by the slowest of what is done in parallel: the sender's processor, the link, the receiver's processor, and the
//! window, of which one passes each round trip. The first batch passes them one after another, and what the congestion window does not
//! let pass at first waits for acknowledgements. Loss is counted as waiting for what was lost.

/// A path and the work on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdvisedWork {
    /// Items.
    pub items: f64,
    /// Bytes of an item.
    pub item_bytes: f64,
    /// Items that need the reply to the one before them, whatever the mode: a share from 0 to 1.
    pub dependent: f64,
    /// Round-trip time without queueing, in nanoseconds.
    pub rtt_ns: f64,
    /// Bytes a second of the link.
    pub rate: f64,
    /// Share of packets that are lost.
    pub loss: f64,
    /// Time of the sender for an item, in nanoseconds.
    pub sender_item_ns: f64,
    /// Time of the receiver for an item.
    pub receiver_item_ns: f64,
    /// Time of either end for a message, beside its items.
    pub message_ns: f64,
    /// Bytes of a packet beside its items: headers.
    pub message_bytes: f64,
}

/// A change of the work or its path, in words.
pub type WorkChange = (&'static str, fn(&AdvisedWork) -> AdvisedWork);

/// A way of sending items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SendingMode {
    /// Each waits for the reply to the one before.
    StopAndWait,
    /// So many messages of an item without a reply.
    Pipelined {
        /// How many; at least one.
        window: f64,
    },
    /// So many items in a message, and no wait between messages.
    Batched {
        /// How many; at least one.
        batch: f64,
    },
}

/// Bytes of a packet's payload, and what is sent before the first acknowledgement: ten of them (RFC 6928).
const PACKET_BYTES: f64 = 1_448.0;
const FIRST_WINDOW: f64 = 10.0 * PACKET_BYTES;

/// A retransmission by fast retransmit takes a round trip more; by the timer, at the end of what is sent, 200 ms at the least in common
/// kernels.
const TIMER_NS: f64 = 200e6;

impl AdvisedWork {
    /// Nanoseconds until the last reply has come back.
    pub fn time_ns(&self, mode: SendingMode) -> f64 {
        let free = self.items * (1.0 - self.dependent);
        let waiting = self.items - free;
        let waited = waiting * self.exchange_ns(1.0) + self.lost_ns(waiting, true);
        let done = match mode {
            _ if free <= 0.0 => 0.0,
            SendingMode::StopAndWait => free * self.exchange_ns(1.0) + self.lost_ns(free, true),
            SendingMode::Pipelined { window } => {
                let limited = self.exchange_ns(1.0) / window.max(1.0);
                let each = self.bottleneck_ns(1.0).max(limited);
                self.exchange_ns(1.0)
                    + (free - 1.0).max(0.0) * each
                    + self.slow_start_ns(free * self.item_bytes, each / self.item_bytes)
                    + self.lost_ns(free, window <= 1.0)
            }
            SendingMode::Batched { batch } => {
                let batch = batch.clamp(1.0, free.max(1.0));
                let messages = (free / batch).ceil();
                let pace = self.wire_ns(batch) / (batch * self.item_bytes);
                self.exchange_ns(batch)
                    + (messages - 1.0) * self.bottleneck_ns(batch)
                    + self.slow_start_ns(free * self.item_bytes, pace)
                    + self.lost_ns(messages, false)
            }
        };
        waited + done
    }

    /// A message of so many items, alone, until its reply, which is a message too.
    fn exchange_ns(&self, batch: f64) -> f64 {
        let reply = self.message_bytes / self.rate * 1e9;
        let ends = batch * (self.sender_item_ns + self.receiver_item_ns) + 4.0 * self.message_ns;
        self.rtt_ns + self.wire_ns(batch) + reply + ends
    }

    /// The longest stage of a message: sender, receiver or wire.
    fn bottleneck_ns(&self, batch: f64) -> f64 {
        let sender = batch * self.sender_item_ns + self.message_ns;
        let receiver = batch * self.receiver_item_ns + self.message_ns;
        sender.max(receiver).max(self.wire_ns(batch))
    }

    /// Its bytes on the link, with those of each packet's headers.
    fn wire_ns(&self, batch: f64) -> f64 {
        let payload = batch * self.item_bytes;
        let packets = (payload / PACKET_BYTES).ceil().max(1.0);
        (packets * self.message_bytes + payload) / self.rate * 1e9
    }

    /// Waits for acknowledgements while the congestion window is smaller than what would be sent meanwhile: it doubles with each round
    /// trip.
    fn slow_start_ns(&self, bytes: f64, pace_ns: f64) -> f64 {
        let (mut window, mut sent, mut waited) = (FIRST_WINDOW, FIRST_WINDOW, 0.0);
        while sent < bytes && window * pace_ns < self.rtt_ns {
            waited += self.rtt_ns - window * pace_ns;
            window *= 2.0;
            sent += window;
        }
        waited
    }

    /// Waits for what was lost of so many messages: by the timer where nothing follows that would show the loss.
    fn lost_ns(&self, messages: f64, is_alone: bool) -> f64 {
        let each = if is_alone { TIMER_NS.max(self.rtt_ns) } else { self.rtt_ns };
        messages * self.loss * each
    }

    /// The least window that a larger one is not faster than.
    pub fn window(&self) -> f64 {
        (self.exchange_ns(1.0) / self.bottleneck_ns(1.0)).ceil().max(1.0)
    }

    /// The batch that takes least time, among the powers of two.
    pub fn batch(&self) -> f64 {
        let mut best = (f64::INFINITY, 1.0);
        let mut batch = 1.0;
        while batch < 2.0 * self.items && batch <= 1e9 {
            let time = self.time_ns(SendingMode::Batched { batch });
            if time < best.0 {
                best = (time, batch);
            }
            batch *= 2.0;
        }
        best.1.min(self.items)
    }

    /// Changes of one thing for the better, in words.
    pub const IMPROVEMENTS: [WorkChange; 7] = [
        ("half the round-trip time", |it| Self { rtt_ns: it.rtt_ns / 2.0, ..*it }),
        ("twice the rate", |it| Self { rate: it.rate * 2.0, ..*it }),
        ("half the time for a message", |it| Self { message_ns: it.message_ns / 2.0, ..*it }),
        ("half the time for an item", |it| Self {
            sender_item_ns: it.sender_item_ns / 2.0,
            receiver_item_ns: it.receiver_item_ns / 2.0,
            ..*it
        }),
        ("half the bytes of an item", |it| Self { item_bytes: it.item_bytes / 2.0, ..*it }),
        ("no loss", |it| Self { loss: 0.0, ..*it }),
        ("no item that waits for a reply", |it| Self { dependent: 0.0, ..*it }),
    ];

    /// The time in a mode with the window or the batch that suits this path.
    pub fn best_time_ns(&self, mode: SendingMode) -> f64 {
        self.time_ns(match mode {
            SendingMode::StopAndWait => mode,
            SendingMode::Pipelined { .. } => SendingMode::Pipelined { window: self.window() },
            SendingMode::Batched { .. } => SendingMode::Batched { batch: self.batch() },
        })
    }

    /// The round-trip time above which the second way is faster by this factor; none if it never is up to 10 s.
    pub fn break_even_ns(
        &self,
        first: SendingMode,
        second: SendingMode,
        factor: f64,
    ) -> Option<f64> {
        let gain = |rtt_ns: f64| {
            let there = Self { rtt_ns, ..*self };
            there.time_ns(first) / there.time_ns(second)
        };
        let (mut low, mut high) = (0.0, 10e9);
        if gain(low) >= factor {
            return Some(low);
        }
        if gain(high) < factor {
            return None;
        }
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if gain(middle) < factor { low = middle } else { high = middle }
        }
        Some(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: AdvisedWork = AdvisedWork {
        items: 1_000.0,
        item_bytes: 20.0,
        dependent: 0.0,
        rtt_ns: 40e6,
        rate: 1.25e6,
        loss: 0.0,
        sender_item_ns: 100.0,
        receiver_item_ns: 200.0,
        message_ns: 5_000.0,
        message_bytes: 60.0,
    };

    #[test]
    fn stop_and_wait_pays_a_round_trip_an_item() {
        let time = WORK.time_ns(SendingMode::StopAndWait);
        assert!((40e9..40.3e9).contains(&time), "{time}");
    }

    #[test]
    fn a_window_beyond_the_advised_one_gains_nothing() {
        let window = WORK.window();
        let at = |window| WORK.time_ns(SendingMode::Pipelined { window });
        assert!((at(window) / at(10.0 * window) - 1.0).abs() < 1e-9);
        assert!(at(window / 2.0) > 1.5 * at(window));
    }

    #[test]
    fn no_power_of_two_beats_the_advised_batch() {
        let best = WORK.time_ns(SendingMode::Batched { batch: WORK.batch() });
        for exponent in 0..11 {
            assert!(WORK.time_ns(SendingMode::Batched { batch: f64::from(1 << exponent) }) >= best);
        }
    }

    #[test]
    fn a_batch_beyond_the_first_window_waits_for_acknowledgements() {
        let fast = AdvisedWork { rate: 1e12, sender_item_ns: 0.0, receiver_item_ns: 0.0, ..WORK };
        let at = |items: f64| {
            AdvisedWork { items, ..fast }.time_ns(SendingMode::Batched { batch: items })
        };
        // 10, 20 and 40 packets pass in three round trips.
        for (packets, trips) in [(10.0, 1.0), (11.0, 2.0), (30.0, 2.0), (31.0, 3.0)] {
            let time = at(packets * PACKET_BYTES / fast.item_bytes);
            assert!((time / fast.rtt_ns - trips).abs() < 0.01, "{packets} packets: {time}");
        }
    }

    #[test]
    fn items_that_depend_on_replies_gain_nothing_by_a_mode() {
        let work = AdvisedWork { dependent: 1.0, ..WORK };
        let waiting = work.time_ns(SendingMode::StopAndWait);
        assert!(
            (work.time_ns(SendingMode::Batched { batch: 100.0 }) - waiting).abs() < 1e-6 * waiting
        );
    }

    #[test]
    fn above_the_break_even_the_second_way_is_faster() {
        let (first, second) = (SendingMode::StopAndWait, SendingMode::Pipelined { window: 64.0 });
        let rtt_ns = WORK.break_even_ns(first, second, 20.0).unwrap();
        let gain = |rtt_ns| {
            let there = AdvisedWork { rtt_ns, ..WORK };
            there.time_ns(first) / there.time_ns(second)
        };
        assert!(gain(rtt_ns * 1.1) > 20.0 && gain(rtt_ns * 0.9) < 20.0, "{rtt_ns}");
    }
}
