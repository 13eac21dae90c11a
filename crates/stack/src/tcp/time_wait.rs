//! TIME-WAIT.

use plumb_base::time::{Instant, Span};

use super::handshake::TimestampClock;
use super::seq::SeqNum;

/// What a connection in TIME-WAIT leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWaitState {
    /// The next sequence number that we would send.
    pub snd_nxt: SeqNum,
    /// The next that we expect.
    pub rcv_nxt: SeqNum,
    /// Our window, as it is written.
    pub window: u16,
    /// The peer's latest timestamp, where both use them.
    pub timestamp: Option<u32>,
    /// Our timestamp clock.
    pub clock: TimestampClock,
    /// When it ends.
    pub until: Instant,
    /// How long it lasts, after a FIN that comes again.
    pub duration: Span,
}
