//! What writes a connection that neither has all its bytes at once nor as many as it can: lines at a rate, or what another
//! connection brought.

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::Instant;

use crate::scenario::TimedWrites;

/// Bytes that a host holds of a connection that it passes on to another, at most.
pub(crate) const RELAY_BUFFER: u64 = 32 << 10;

/// The application at the ends of a connection.
#[derive(Clone, Debug, Default)]
pub struct FlowApplication {
    /// When it writes, if it does so at times.
    pub writes: Option<TimedWrites>,
    /// The connection whose bytes are passed on by this one.
    pub upstream: Option<u32>,
    /// The connection that passes this one's bytes on.
    pub downstream: Option<u32>,
    /// The connection at whose beginning the bytes that end here are written at times.
    pub origin: Option<u32>,
    /// Bytes to be written now.
    pub ready: u64,
    /// Bytes that were read.
    pub read: u64,
    /// From when a write was due until it was read, where it ends.
    pub delays: SparseHistogram,
    /// When it wrote first.
    begun: Option<Instant>,
    /// Writes that were due so far.
    made: u64,
}

impl FlowApplication {
    /// Makes what is due by `now`, the first at the first call; when the next is.
    pub fn make(&mut self, now: Instant) -> Option<Instant> {
        let writes = self.writes?;
        let begun = *self.begun.get_or_insert(now);
        let due = now.saturating_since(begun).as_ps() / writes.interval.as_ps().max(1) + 1;
        self.ready += (due - self.made) * u64::from(writes.bytes);
        self.made = due;
        Some(begun + writes.interval * due)
    }

    /// When it wrote first, and how.
    pub fn times(&self) -> Option<(Instant, TimedWrites)> {
        Some((self.begun?, self.writes?))
    }

    /// Bytes have been read where they end, that were written at these times.
    pub fn end_reading(&mut self, now: Instant, len: u64, times: (Instant, TimedWrites)) {
        let (begun, writes) = times;
        let known = self.read / u64::from(writes.bytes);
        self.read += len;
        for number in known..self.read / u64::from(writes.bytes) {
            self.delays.record(now.saturating_since(begun + writes.interval * number).as_ns());
        }
    }
}
