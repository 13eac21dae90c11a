//! What one direction of one hop reports.
//!
//! Left out: whether it can be true, which the report checks itself.

use plumb_base::time::Instant;

use super::Hop;
use crate::context::Sums;
use crate::frame::Frame;
use crate::line::Line;
use crate::report::{DirectionReport, Tally};

impl Hop {
    /// What it did up to `now`, under this name.
    pub fn report(&self, now: Instant, name: String) -> DirectionReport {
        let account = &self.account;
        let backlog = self.queue.backlog();
        let (held, line) = (count(&self.held), count(&self.line));
        let sending = self.sending.as_ref();
        let under_way = sending.map_or(0.0, |sending| {
            let span = |to: Instant| to.saturating_since(sending.begun).as_ps() as f64;
            sending.bits as f64 * span(now.min(sending.finish)) / span(sending.finish).max(1.0)
        });
        let offered = account.offered + account.offered_since(now, self.made.mean);
        DirectionReport {
            name,
            text: self.made.spec.to_string(),
            elapsed: now.saturating_since(account.since),
            entered: tally(account.entered),
            left: tally(account.left),
            discards: account.discards,
            marked: account.marked,
            changes: account.changes,
            limit: self.made.limit,
            waiting: Tally { frames: backlog.frames, bytes: backlog.bytes },
            sending: sending.map_or(Tally::default(), |sending| one(&sending.frame)),
            in_flight: Tally { frames: held.frames + line.frames, bytes: held.bytes + line.bytes },
            queue_lengths: account.lengths.clone(),
            sojourns: account.sojourns.clone(),
            used_bits: account.used as f64 + under_way,
            offered_bits: offered as f64 / crate::rate::SECOND as f64,
            law: account.law(now, backlog.frames),
        }
    }
}

fn tally(sums: Sums) -> Tally {
    Tally { frames: sums.frames, bytes: sums.bytes }
}

fn one(frame: &Frame) -> Tally {
    Tally { frames: frame.count.into(), bytes: frame.wire_len.into() }
}

fn count(line: &Line) -> Tally {
    line.frames().map(one).fold(Tally::default(), |sum, one| Tally {
        frames: sum.frames + one.frames,
        bytes: sum.bytes + one.bytes,
    })
}
