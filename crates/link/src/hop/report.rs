//! What one direction of one hop reports.
//!
//! Left out: whether it can be true, which the report checks itself.

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::{Instant, Span};

use super::Hop;
use super::account::Account;
use crate::context::{Changes, Discards, Sums};
use crate::frame::Frame;
use crate::line::Line;
use crate::report::{DirectionReport, Law, Tally};

impl Hop {
    /// What it did up to `now`, under this name.
    pub fn report(&self, now: Instant, name: String) -> DirectionReport {
        let Account { lengths, sojourns, .. } = &self.account;
        let mut report = self.form(name, lengths.clone(), sojourns.clone());
        self.fill(now, &mut report);
        report
    }

    /// The same into a form, whose empty distributions are exchanged for those of what happened since the last time.
    pub fn hand_over(&mut self, now: Instant, is_changed: bool, form: &mut DirectionReport) {
        std::mem::swap(&mut self.account.lengths, &mut form.queue_lengths);
        std::mem::swap(&mut self.account.sojourns, &mut form.sojourns);
        if is_changed {
            form.text = self.made.spec.to_string();
        }
        self.fill(now, form);
    }

    fn form(&self, name: String, queue_lengths: Histogram, sojourns: Histogram) -> DirectionReport {
        DirectionReport {
            name,
            text: self.made.spec.to_string(),
            elapsed: Span::ZERO,
            entered: Tally::default(),
            left: Tally::default(),
            discards: Discards::default(),
            marked: 0,
            changes: Changes::default(),
            limit: self.made.limit,
            waiting: Tally::default(),
            sending: Tally::default(),
            in_flight: Tally::default(),
            queue_lengths,
            sojourns,
            used_bits: 0.0,
            offered_bits: 0.0,
            law: Law::default(),
        }
    }

    /// Everything that is counted.
    fn fill(&self, now: Instant, report: &mut DirectionReport) {
        let account = &self.account;
        let backlog = self.queue.backlog();
        let (held, line) = (count(&self.held), count(&self.line));
        let sending = self.sending.as_ref();
        let under_way = sending.map_or(0.0, |sending| {
            let span = |to: Instant| to.saturating_since(sending.begun).as_ps() as f64;
            sending.bits as f64 * span(now.min(sending.finish)) / span(sending.finish).max(1.0)
        });
        let offered = account.offered + account.offered_since(now, self.made.mean);
        report.elapsed = now.saturating_since(account.since);
        report.entered = tally(account.entered);
        report.left = tally(account.left);
        report.discards = account.discards;
        report.marked = account.marked;
        report.changes = account.changes;
        report.limit = self.made.limit;
        report.waiting = Tally { frames: backlog.frames, bytes: backlog.bytes };
        report.sending = sending.map_or(Tally::default(), |sending| one(&sending.frame));
        let (frames, bytes) = (held.frames + line.frames, held.bytes + line.bytes);
        report.in_flight = Tally { frames, bytes };
        report.used_bits = account.used as f64 + under_way;
        report.offered_bits = offered as f64 / crate::rate::SECOND as f64;
        report.law = account.law(now, backlog.frames);
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
