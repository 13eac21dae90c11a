//! Faults of the wire: loss, disorder, duplication, damage and outages, applied to frames that leave the rate.

use std::mem;

use plumb_base::seed::RandomStream;
use plumb_base::time::{Instant, Span};
use plumb_wire::checksum::complete;
use plumb_wire::ethernet;
use plumb_wire::machine::Medium;
use plumb_wire::packet::ChecksumState;

use crate::chance::{Chance, below};
use crate::frame::{DiscardReason, HopContext, LinkFrame};
use crate::spec::FaultSpec;

/// A fault: a model, and the stream that its random draws come from.
#[derive(Debug)]
pub struct WireFault {
    model: FaultModel,
    stream: RandomStream,
}

#[derive(Debug)]
enum FaultModel {
    /// Each frame is lost independently.
    Loss(Chance),
    GilbertElliott(GilbertElliott),
    Periodic {
        every: u64,
        seen: u64,
    },
    Listed(ListedLoss),
    /// A frame of L bytes survives with probability (1 − BER)^8L; L is the frame's own bytes, without preamble, gap
    /// and check sequence. The chance is kept for the length seen last.
    BitErrors {
        rate: f64,
        known: Option<(usize, Chance)>,
    },
    Reorder {
        chance: Chance,
        by: Span,
    },
    Duplicate(Chance),
    /// One bit behind the Ethernet header changes: an error made inside a device, which no check sequence finds.
    Corrupt(Chance),
    /// The frame is cut behind its link header; it has used the wire at its whole length.
    Truncate(Chance),
    Clog(PeriodicWindow),
    Blackout(PeriodicWindow),
    Partition,
}

/// Loss in bursts: a Markov chain of two states that steps at each frame; it begins good.
///
/// Gilbert, "Capacity of a Burst-Noise Channel" (Bell System Technical Journal 39, 1960); Elliott, "Estimates of Error Rates for
/// Codes on Burst-Noise Channels" (ibid. 42, 1963).
#[derive(Debug)]
struct GilbertElliott {
    is_bad: bool,
    /// The chances of leaving the good and the bad state.
    leaving: [Chance; 2],
    /// The chances of loss in the good and the bad state.
    loss: [Chance; 2],
}

/// Frames lost by number, counted from 1 in the order in which they leave the rate.
#[derive(Debug)]
struct ListedLoss {
    sorted: Vec<u64>,
    next: usize,
    seen: u64,
}

impl ListedLoss {
    /// The numbers may come in any order, and repeatedly.
    fn new(numbers: &[u64]) -> Self {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut list = Self { sorted, next: 0, seen: 0 };
        list.skip(0);
        list
    }

    /// So many frames have passed.
    fn skip(&mut self, seen: u64) {
        self.seen = seen;
        self.next = self.sorted.partition_point(|number| *number <= seen);
    }

    fn is_listed(&mut self) -> bool {
        self.seen += 1;
        let is_next = self.sorted.get(self.next) == Some(&self.seen);
        self.next += usize::from(is_next);
        is_next
    }
}

/// The last `duration` of each `every` since `start`, so that a link begins undisturbed.
#[derive(Clone, Copy, Debug)]
struct PeriodicWindow {
    start: Instant,
    every: Span,
    duration: Span,
}

impl PeriodicWindow {
    fn new(start: Instant, every: Span, duration: Span) -> Self {
        Self { start, every: every.max(Span::from_ps(1)), duration }
    }

    /// When the window that `at` lies in ends; `None` outside.
    fn end(self, at: Instant) -> Option<Instant> {
        let phase = at.saturating_since(self.start).as_ps() % self.every.as_ps();
        let left = self.every - Span::from_ps(phase);
        (left <= self.duration).then(|| at + left)
    }
}

impl FaultModel {
    /// Periodic windows count from `start`.
    fn new(spec: &FaultSpec, start: Instant) -> Self {
        match spec {
            FaultSpec::Loss(share) => Self::Loss(Chance::new(*share)),
            FaultSpec::GilbertElliott { p, r, loss_good, loss_bad } => {
                Self::GilbertElliott(GilbertElliott {
                    is_bad: false,
                    leaving: [*p, *r].map(Chance::new),
                    loss: [*loss_good, *loss_bad].map(Chance::new),
                })
            }
            FaultSpec::Periodic(every) => Self::Periodic { every: *every, seen: 0 },
            FaultSpec::Listed(numbers) => Self::Listed(ListedLoss::new(numbers)),
            FaultSpec::BitErrors(rate) => Self::BitErrors { rate: *rate, known: None },
            FaultSpec::Reorder { share, by } => {
                Self::Reorder { chance: Chance::new(*share), by: *by }
            }
            FaultSpec::Duplicate(share) => Self::Duplicate(Chance::new(*share)),
            FaultSpec::Corrupt(share) => Self::Corrupt(Chance::new(*share)),
            FaultSpec::Truncate(share) => Self::Truncate(Chance::new(*share)),
            FaultSpec::Clog { every, lasting } => {
                Self::Clog(PeriodicWindow::new(start, *every, *lasting))
            }
            FaultSpec::Blackout { every, lasting } => {
                Self::Blackout(PeriodicWindow::new(start, *every, *lasting))
            }
            FaultSpec::Partition => Self::Partition,
        }
    }
}

impl WireFault {
    /// The fault that a description asks for.
    ///
    /// Periodic windows count from `start`; `stream` is what random choices come from.
    pub fn new(spec: &FaultSpec, start: Instant, stream: RandomStream) -> Self {
        Self { model: FaultModel::new(spec, start), stream }
    }

    /// Takes a frame that leaves the wire at `at`, and appends what happens to it to `out`, each with the
    /// moment at which it leaves the wire. Frames of equal moments go on in the order in which they were given.
    pub fn apply(
        &mut self,
        mut at: Instant,
        mut frame: LinkFrame,
        out: &mut Vec<(Instant, LinkFrame)>,
        context: &mut HopContext<'_>,
    ) {
        use DiscardReason::{BitError, Lost, Outage};
        let count = u64::from(frame.count);
        let stream = &mut self.stream;
        let mut copy = None;
        let discarded = match &mut self.model {
            FaultModel::Loss(chance) => chance.draw(stream).then_some(Lost),
            FaultModel::GilbertElliott(chain) => {
                let state = usize::from(chain.is_bad);
                let is_lost = chain.loss[state].draw(stream);
                chain.is_bad ^= chain.leaving[state].draw(stream);
                is_lost.then_some(Lost)
            }
            FaultModel::Periodic { every, seen } => {
                *seen += 1;
                (*every > 0 && seen.is_multiple_of(*every)).then_some(Lost)
            }
            FaultModel::Listed(list) => list.is_listed().then_some(Lost),
            FaultModel::BitErrors { rate, known } => {
                frame_error_chance(*rate, known, frame.packet.len())
                    .draw(stream)
                    .then_some(BitError)
            }
            FaultModel::Reorder { chance, by } => {
                if chance.draw(stream) {
                    context.changes.reordered += count;
                    at += *by;
                }
                None
            }
            FaultModel::Duplicate(chance) => {
                copy = if chance.draw(stream) { context.duplicate(&frame) } else { None };
                None
            }
            FaultModel::Corrupt(chance) => {
                if chance.draw(stream) {
                    flip_one_bit(&mut frame, stream, context);
                }
                None
            }
            FaultModel::Truncate(chance) => {
                if chance.draw(stream) {
                    truncate(&mut frame, stream, context);
                }
                None
            }
            FaultModel::Clog(window) => {
                if let Some(end) = window.end(at) {
                    context.changes.held += count;
                    at = end;
                }
                None
            }
            FaultModel::Blackout(window) => window.end(at).map(|_| Outage),
            FaultModel::Partition => Some(Outage),
        };
        match discarded {
            Some(reason) => context.discard(frame, reason),
            None => out.push((at, frame)),
        }
        out.extend(copy.map(|copy| (at, copy)));
    }

    /// Becomes what `spec` says, where that is a fault of this kind; whether it is. Its counts, its state and its place
    /// among its random draws stay.
    pub fn reconfigure(&mut self, spec: &FaultSpec, start: Instant) -> bool {
        let mut model = FaultModel::new(spec, start);
        if mem::discriminant(&model) != mem::discriminant(&self.model) {
            return false;
        }
        match (&mut model, &self.model) {
            (FaultModel::GilbertElliott(new), FaultModel::GilbertElliott(old)) => {
                new.is_bad = old.is_bad;
            }
            (FaultModel::Periodic { seen, .. }, FaultModel::Periodic { seen: old, .. }) => {
                *seen = *old;
            }
            (FaultModel::Listed(new), FaultModel::Listed(old)) => new.skip(old.seen),
            _ => {}
        }
        self.model = model;
        true
    }
}

fn frame_error_chance(rate: f64, known: &mut Option<(usize, Chance)>, len: usize) -> Chance {
    match *known {
        Some((known, chance)) if known == len => chance,
        _ => known.insert((len, Chance::new(frame_error_rate(rate, len)))).1,
    }
}

/// 1 − (1 − BER)^8L, exact where both are small.
fn frame_error_rate(bit_error_rate: f64, len: usize) -> f64 {
    if bit_error_rate >= 1.0 {
        return 1.0;
    }
    -f64::exp_m1(8.0 * len as f64 * f64::ln_1p(-bit_error_rate))
}

fn flip_one_bit(frame: &mut LinkFrame, stream: &mut RandomStream, context: &mut HopContext<'_>) {
    complete_checksum(frame, context);
    let header = match context.medium {
        Medium::Ethernet => ethernet::HEADER_LEN,
        Medium::Ip => 0,
    };
    let bytes = context.pool.bytes_mut(&mut frame.packet);
    if let Some(bytes) = bytes.get_mut(header..).filter(|bytes| !bytes.is_empty()) {
        let bit = below(stream, bytes.len() as u64 * 8);
        let byte = usize::try_from(bit / 8).expect("an index into a slice");
        bytes[byte] ^= 1 << (bit % 8);
        context.changes.corrupted += u64::from(frame.count);
    }
}

fn truncate(frame: &mut LinkFrame, stream: &mut RandomStream, context: &mut HopContext<'_>) {
    // The least that a device accepts: a link header, or the first byte of a packet, which tells its family.
    let least = match context.medium {
        Medium::Ethernet => ethernet::HEADER_LEN,
        Medium::Ip => 1,
    };
    if let Some(excess) = frame.packet.len().checked_sub(least).filter(|excess| *excess > 0) {
        complete_checksum(frame, context);
        let kept = usize::try_from(below(stream, excess as u64)).expect("less than a frame");
        context.pool.truncate(&mut frame.packet, least + kept);
        frame.packet.meta.segments = None;
        context.changes.truncated += u64::from(frame.count);
    }
}

/// Completes the transport checksum and has the receiver verify it, before a fault changes the bytes.
fn complete_checksum(frame: &mut LinkFrame, context: &mut HopContext<'_>) {
    if let ChecksumState::Partial { start, offset } = frame.packet.meta.checksum {
        let bytes = context.pool.bytes_mut(&mut frame.packet);
        complete(bytes, start.into(), offset.into());
    }
    frame.packet.meta.checksum = ChecksumState::Plain;
}

#[cfg(test)]
mod tests;
