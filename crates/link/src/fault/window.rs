//! Faults by the clock: clogged for a while, dark for a while, dark for ever.
//!
//! Left out: windows of random length.

use plumb_base::time::{Instant, Span};

use super::Fault;
use crate::context::{Context, Reason};
use crate::frame::Frame;
use crate::spec::FaultSpec;

/// The last `lasting` of each `every` since `start`, so that a link begins undisturbed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    start: Instant,
    every: Span,
    lasting: Span,
}

impl Window {
    pub(super) fn new(start: Instant, every: Span, lasting: Span) -> Self {
        Self { start, every: every.max(Span::from_ps(1)), lasting }
    }

    /// When the window that `at` lies in ends; `None` outside.
    fn end(self, at: Instant) -> Option<Instant> {
        let phase = at.saturating_since(self.start).as_ps() % self.every.as_ps();
        let left = self.every - Span::from_ps(phase);
        (left <= self.lasting).then(|| at + left)
    }
}

/// Frames in the window are held, and go at its end, all at once and in order.
#[derive(Debug)]
pub(super) struct Clog(pub(super) Window);

impl Fault for Clog {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        let end = self.0.end(at);
        context.changes.held += u64::from(frame.count) * u64::from(end.is_some());
        out.push((end.unwrap_or(at), frame));
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Clog { every, lasting } = spec else { return false };
        self.0 = Window::new(self.0.start, *every, *lasting);
        true
    }
}

/// Frames in the window are lost.
#[derive(Debug)]
pub(super) struct Blackout(pub(super) Window);

impl Fault for Blackout {
    fn strike(
        &mut self,
        at: Instant,
        frame: Frame,
        out: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        match self.0.end(at) {
            Some(_) => context.discard(frame, Reason::Dark),
            None => out.push((at, frame)),
        }
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        let FaultSpec::Blackout { every, lasting } = spec else { return false };
        self.0 = Window::new(self.0.start, *every, *lasting);
        true
    }
}

/// Every frame is lost.
#[derive(Debug)]
pub(super) struct Partition;

impl Fault for Partition {
    fn strike(
        &mut self,
        _: Instant,
        frame: Frame,
        _: &mut Vec<(Instant, Frame)>,
        context: &mut Context<'_>,
    ) {
        context.discard(frame, Reason::Dark);
    }

    fn retune(&mut self, spec: &FaultSpec) -> bool {
        matches!(spec, FaultSpec::Partition)
    }
}
