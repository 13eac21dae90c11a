//! What every element of a link is given: where frames end that go no further, and the account of it.
//!
//! Left out: the account's report; what an IP header looks like.

use plumb_wire::ecn::Ecn;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Packet, Pool};

use crate::frame::Frame;
use crate::header;

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
    /// It was to be cut, and is no packet that can be.
    Malformed,
    /// There was no memory for it: no frame of the pool was free.
    NoMemory,
}

impl Reason {
    /// Every reason, in the order of a report.
    pub const ALL: [Self; 10] = [
        Self::Full,
        Self::Early,
        Self::Policed,
        Self::Lost,
        Self::BitError,
        Self::Dark,
        Self::TooLong,
        Self::Expired,
        Self::Malformed,
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
            Self::Malformed => "malformed",
            Self::NoMemory => "no_memory",
        }
    }
}

/// What went no further, by reason: frames and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards {
    frames: [u64; Reason::ALL.len()],
    bytes: [u64; Reason::ALL.len()],
    all: Sums,
}

/// Frames, their bytes, and when they reached the element: its account needs the sums of all three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub frames: u64,
    pub bytes: u64,
    /// The sum of [`Frame::arrived`] over frames, in picoseconds.
    pub arrived: u128,
}

impl Sums {
    #[inline]
    pub fn add(&mut self, frame: &Frame) {
        self.frames += u64::from(frame.count);
        self.bytes += u64::from(frame.wire_len);
        let arrived = frame.arrived.since_origin().as_ps();
        self.arrived += u128::from(arrived) * u128::from(frame.count);
    }
}

impl Discards {
    /// Frames and bytes of one reason.
    pub fn of(&self, reason: Reason) -> (u64, u64) {
        (self.frames[reason as usize], self.bytes[reason as usize])
    }

    /// Frames and bytes in all.
    pub fn total(&self) -> (u64, u64) {
        (self.all.frames, self.all.bytes)
    }

    pub(crate) fn all(&self) -> Sums {
        self.all
    }

    fn add(&mut self, frame: &Frame, reason: Reason) {
        self.frames[reason as usize] += u64::from(frame.count);
        self.bytes[reason as usize] += u64::from(frame.wire_len);
        self.all.add(frame);
    }
}

/// What the wire did to frames that it delivered: frames and bytes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Frames that arrived a second time: these come on top of what came in.
    pub duplicated: u64,
    /// Bytes of these, as the rate counts them.
    pub duplicated_bytes: u64,
    /// Frames sent later than others behind them.
    pub reordered: u64,
    /// Frames with a bit changed.
    pub corrupted: u64,
    /// Frames cut short.
    pub truncated: u64,
    /// Frames held while the wire was clogged.
    pub held: u64,
}

/// Where the elements of one direction of one hop put what ends in them.
#[derive(Debug)]
pub struct Context<'a> {
    /// The frames' memory.
    pub pool: &'a mut Pool,
    /// What a frame's first byte belongs to.
    pub medium: Medium,
    /// What was discarded so far.
    pub discards: &'a mut Discards,
    /// Frames marked "congestion experienced" so far.
    pub marked: &'a mut u64,
    /// What the wire did so far.
    pub changes: &'a mut Changes,
}

impl Context<'_> {
    /// Ends a frame.
    pub fn discard(&mut self, frame: Frame, reason: Reason) {
        self.discards.add(&frame, reason);
        self.pool.free(frame.packet);
    }

    /// Marks a frame "congestion experienced" (RFC 3168 §5) where its sender is capable of ECN;
    /// whether it was. The IP header's bytes and checksum are changed in place.
    pub fn mark(&mut self, frame: &mut Frame) -> bool {
        if !header::mark(self.medium, self.pool.bytes_mut(&mut frame.packet)) {
            return false;
        }
        frame.packet.meta.ecn = Ecn::Congestion;
        *self.marked += u64::from(frame.count);
        true
    }

    /// A second frame with the same bytes; `None` when no memory is left for it, which is counted.
    pub fn duplicate(&mut self, frame: &Frame) -> Option<Frame> {
        self.changes.duplicated += u64::from(frame.count);
        self.changes.duplicated_bytes += u64::from(frame.wire_len);
        let Some(packet) = self.copy_of(&frame.packet) else {
            self.discards.add(frame, Reason::NoMemory);
            return None;
        };
        Some(Frame { packet, ..*frame })
    }

    fn copy_of(&mut self, packet: &Packet) -> Option<Packet> {
        let mut copy = self.pool.allocate_for(packet.len())?;
        copy.meta = packet.meta;
        let whole = self.pool.append_from(&mut copy, packet, 0..packet.len(), |from, to| {
            to.copy_from_slice(from);
        });
        debug_assert!(whole, "allocated for so many bytes");
        Some(copy)
    }
}
