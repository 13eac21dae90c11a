//! The bytes that a source sends: known from their place in the stream, so that a receiver can check them.

/// Length of the repeated sequence: a prime, so that no shift by a power of two goes unnoticed.
const PERIOD: usize = 251;
/// Periods kept.
const PERIODS: usize = 262;

/// Byte `n` of the stream is `n` modulo 251.
#[derive(Clone, Debug)]
pub struct BytePattern(Box<[u8]>);

impl BytePattern {
    /// Precomputes some periods.
    pub fn new() -> Self {
        let byte = |at| u8::try_from(at % PERIOD).expect("less than 251");
        Self((0..PERIOD * PERIODS).map(byte).collect())
    }

    /// Fills `room` with the stream from `offset` on, as far as it goes at once; how many bytes that were.
    pub fn fill(&self, offset: u64, room: &mut [u8]) -> usize {
        let phase = usize::try_from(offset % PERIOD as u64).expect("less than 251");
        let bytes = &self.0[phase..];
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        len
    }
}

impl Default for BytePattern {
    fn default() -> Self {
        Self::new()
    }
}
