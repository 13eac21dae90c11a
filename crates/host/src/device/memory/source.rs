//! Frames from memory, once or for ever, as fast as they are taken or by their own times.
//!
//! Each is copied into a frame of the pool, which is part of what this device costs; what is sent is
//! counted and freed. Left out: where the frames come from (`super::super::pcap`).

use std::ops::Range;

use plumb_base::time::{Instant, Span};
use plumb_sys::timer;
use plumb_wire::mac::MacAddr;
use plumb_wire::medium::Capabilities;
use plumb_wire::packet::{HEADROOM, LARGE_FRAME, Packet, Pool};

use crate::device::{Device, DeviceCounters, DeviceError};

/// How often all frames are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// So many times.
    Times(u64),
    /// For ever.
    Forever,
}

/// A device at which given frames arrive.
#[derive(Debug)]
pub struct Source {
    name: String,
    capabilities: Capabilities,
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    /// The next frame.
    next: usize,
    /// Rounds left, this one included; none is for ever.
    rounds: Option<u64>,
    /// Whether frames wait for their time.
    paced: bool,
    /// When this round's first frame came.
    began: Option<Instant>,
    /// The last moment that a caller told.
    now: Instant,
    counters: DeviceCounters,
}

/// A frame: where its bytes are, and when it comes, from the first.
#[derive(Clone, Debug)]
struct Frame {
    range: Range<usize>,
    after: Span,
}

impl Source {
    /// These frames, as fast as they are taken.
    pub fn new<'a>(
        capabilities: Capabilities,
        frames: impl IntoIterator<Item = &'a [u8]>,
        repeat: Repeat,
    ) -> Self {
        let frames = frames.into_iter().map(|bytes| (Span::ZERO, bytes));
        Self::with("memory".to_owned(), capabilities, frames, repeat, false)
    }

    /// These frames, each so long after the first.
    pub fn paced<'a>(
        capabilities: Capabilities,
        frames: impl IntoIterator<Item = (Span, &'a [u8])>,
        repeat: Repeat,
    ) -> Self {
        Self::with("memory".to_owned(), capabilities, frames, repeat, true)
    }

    pub(in crate::device) fn with<'a>(
        name: String,
        capabilities: Capabilities,
        frames: impl IntoIterator<Item = (Span, &'a [u8])>,
        repeat: Repeat,
        paced: bool,
    ) -> Self {
        let mut bytes = Vec::new();
        let mut list = Vec::new();
        for (after, frame) in frames {
            let start = bytes.len();
            bytes.extend_from_slice(frame);
            list.push(Frame { range: start..bytes.len(), after });
        }
        let rounds = match repeat {
            Repeat::Forever => None,
            Repeat::Times(times) => Some(times),
        };
        Self {
            name,
            capabilities,
            bytes,
            frames: list,
            next: 0,
            rounds,
            paced,
            began: None,
            now: Instant::ORIGIN,
            counters: DeviceCounters::default(),
        }
    }

    fn is_finished(&self) -> bool {
        self.rounds == Some(0) || self.frames.is_empty()
    }

    /// How long until the next frame's time.
    fn due_in(&self, now: Instant) -> Span {
        match (self.paced, self.began, self.frames.get(self.next)) {
            (true, Some(began), Some(frame)) => (began + frame.after).saturating_since(now),
            _ => Span::ZERO,
        }
    }
}

impl Device for Source {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn mac(&self) -> Option<MacAddr> {
        None
    }

    /// # Errors
    /// [`DeviceError::Finished`] after the last frame of the last round.
    #[inline]
    fn receive(
        &mut self,
        now: Instant,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) -> Result<usize, DeviceError> {
        self.now = now;
        let mut count = 0;
        for _ in 0..max {
            if self.is_finished() {
                if count > 0 {
                    break;
                }
                return Err(DeviceError::Finished);
            }
            if self.paced {
                self.began.get_or_insert(now);
                if self.due_in(now) > Span::ZERO {
                    break;
                }
            }
            let range = self.frames[self.next].range.clone();
            if let Some(mut packet) = pool.packet_of(&self.bytes[range.clone()]) {
                packet.meta.received = now;
                self.counters.rx_packets += 1;
                self.counters.rx_bytes += packet.len() as u64;
                batch.push(packet);
                count += 1;
            } else if self.paced || !fits(pool, range.len()) {
                // It came, and nobody had room for it.
                self.counters.rx_dropped += 1;
            } else {
                // It comes when there is room.
                break;
            }
            self.next += 1;
            if self.next == self.frames.len() {
                self.next = 0;
                self.began = None;
                self.rounds = self.rounds.map(|rounds| rounds - 1);
            }
        }
        Ok(count)
    }

    #[inline]
    fn transmit(&mut self, batch: &mut Vec<Packet>, pool: &mut Pool) -> Result<(), DeviceError> {
        self.counters.tx_packets += batch.len() as u64;
        for packet in batch.drain(..) {
            self.counters.tx_bytes += packet.len() as u64;
            pool.free(packet);
        }
        Ok(())
    }

    /// Sleeps until the next frame's time; there is always one at once where frames are not paced.
    fn wait(&mut self, timeout: Option<Span>, _: &mut Pool) -> Result<bool, DeviceError> {
        let due = self.due_in(self.now);
        let nap = timeout.map_or(due, |timeout| due.min(timeout));
        if nap > Span::ZERO && !self.is_finished() {
            self.counters.calls += 1;
            if !timer::sleep_ns(nap.as_ps().div_ceil(1_000)) {
                return Ok(false);
            }
        }
        Ok(due <= nap)
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

/// Whether a pool has frames that can hold so many bytes, free or not.
fn fits(pool: &Pool, len: usize) -> bool {
    let frames = pool.frames();
    let max = if frames.large > 0 { LARGE_FRAME } else { frames.size as usize };
    HEADROOM + len <= max
}

#[cfg(test)]
mod tests {
    use plumb_wire::medium::Medium;
    use plumb_wire::packet::Frames;

    use super::*;

    const PLAIN: Capabilities = Capabilities::plain(Medium::Ethernet, 1_500);

    fn take(source: &mut Source, pool: &mut Pool, now: Instant, max: usize) -> Vec<Vec<u8>> {
        let mut batch = Vec::new();
        source.receive(now, &mut batch, max, pool).unwrap();
        let taken = batch.iter().map(|packet| pool.bytes(packet).to_vec()).collect();
        source.transmit(&mut batch, pool).unwrap();
        taken
    }

    #[test]
    fn frames_come_in_order_as_many_times_as_asked_and_then_no_more() {
        let mut pool = Pool::new(Frames::default());
        let frames: [&[u8]; 2] = [b"one", b"two"];
        let mut source = Source::new(PLAIN, frames, Repeat::Times(2));
        assert_eq!(take(&mut source, &mut pool, Instant::ORIGIN, 3), [b"one", b"two", b"one"]);
        assert_eq!(take(&mut source, &mut pool, Instant::ORIGIN, 3), [b"two"]);
        let end = source.receive(Instant::ORIGIN, &mut Vec::new(), 3, &mut pool);
        assert!(matches!(end, Err(DeviceError::Finished)), "{end:?}");
        let counters = source.counters();
        assert_eq!((counters.rx_packets, counters.rx_bytes), (4, 12));
        assert_eq!((counters.tx_packets, counters.tx_bytes), (4, 12));
        assert_eq!(pool.available().0, 1_024);
    }

    #[test]
    fn one_frame_for_ever_waits_for_room_and_is_never_dropped() {
        let mut pool = Pool::new(Frames { count: 3, size: 256, large: 0 });
        let frames: [&[u8]; 1] = [b"frame"];
        let mut source = Source::new(PLAIN, frames, Repeat::Forever);
        let mut batch = Vec::new();
        assert_eq!(source.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap(), 3);
        assert_eq!(source.counters().rx_dropped, 0);
        pool.free_all(&mut batch);
        assert_eq!(source.receive(Instant::ORIGIN, &mut batch, 2, &mut pool).unwrap(), 2);
        pool.free_all(&mut batch);
    }

    #[test]
    fn a_frame_that_no_pool_frame_holds_is_dropped_and_passed_over() {
        let mut pool = Pool::new(Frames { count: 3, size: 256, large: 0 });
        let frames: [&[u8]; 2] = [&[0; 200], b"frame"];
        let mut source = Source::new(PLAIN, frames, Repeat::Forever);
        assert_eq!(take(&mut source, &mut pool, Instant::ORIGIN, 4), [b"frame", b"frame"]);
        assert_eq!(source.counters().rx_dropped, 2);
    }

    #[test]
    fn paced_frames_keep_their_distance_in_every_round() {
        let mut pool = Pool::new(Frames::default());
        let ms = |ms| Instant::ORIGIN + Span::from_ms(ms);
        let frames: [(Span, &[u8]); 2] = [(Span::ZERO, b"one"), (Span::from_ms(10), b"two")];
        let mut source = Source::paced(PLAIN, frames, Repeat::Times(2));
        assert_eq!(take(&mut source, &mut pool, ms(100), 8), [b"one"]);
        assert!(take(&mut source, &mut pool, ms(109), 8).is_empty());
        assert!(!source.wait(Some(Span::from_us(100)), &mut pool).unwrap(), "1 ms is left");
        // The second round begins with the frame that ends the first.
        assert_eq!(take(&mut source, &mut pool, ms(110), 8), [b"two", b"one"]);
        assert_eq!(take(&mut source, &mut pool, ms(120), 8), [b"two"]);
    }
}
