//! Follows a message through the events of one round trip.
//!
//! On one CPU everything is in sequence, so every event of that CPU is on the path. Across CPUs the
//! path leaves the sender's CPU when the sender wakes the receiver, and goes on with the receiver's
//! first event on its own CPU: what the sender does meanwhile delays nothing and is not counted.
//! Left out: names of parts (`super::part`) and sums (`super::breakdown`).

use super::part::{By, Leg, Part, Point, between};
use super::timeline::{Call, Event, Kind};

/// One round trip, in ticks of the worker's clock, read right before and right after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// Before the message is sent.
    pub start: u64,
    /// After the answer is received.
    pub end: u64,
}

/// The two processes of an exchange, by the numbers of their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The one that sends first, and reads the clock.
    pub worker: u32,
    /// The one that answers.
    pub peer: u32,
}

/// A stretch of a round trip between two neighbouring points of the message's path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub(super) leg: Leg,
    pub(super) part: Part,
    pub(super) edges: (Point, Point),
    pub(super) ticks: u64,
    /// Half of each edge that is an event, and all events that were passed over inside.
    pub(super) events: f64,
}

/// Cuts a round trip at its events; none when the worker has no event in it.
///
/// The stretches' ticks sum to the trip's.
pub(super) fn cut(trip: RoundTrip, events: &[Event], shape: Shape, out: &mut Vec<Stretch>) -> bool {
    out.clear();
    let Some(first) = events.iter().find(|event| event.thread == shape.worker) else {
        return false;
    };
    let mut cutter =
        Cutter { shape, leg: Leg::Out, at: trip.start, point: Point::Start, passed: 0.0, out };
    let mut cpu = first.cpu;
    let mut index = 0;
    while let Some(event) = events.get(index) {
        index += 1;
        if event.cpu != cpu {
            continue;
        }
        cutter.take(event);
        if let Some(there) = cutter.hand_over(event, &events[index..]) {
            index += there;
            cpu = events[index].cpu;
        }
    }
    cutter.finish(trip.end);
    true
}

struct Cutter<'a> {
    shape: Shape,
    leg: Leg,
    at: u64,
    point: Point,
    passed: f64,
    out: &'a mut Vec<Stretch>,
}

impl Cutter<'_> {
    fn sender(&self) -> u32 {
        match self.leg {
            Leg::Out => self.shape.worker,
            Leg::Peer | Leg::Back => self.shape.peer,
        }
    }

    fn receiver(&self) -> u32 {
        match self.leg {
            Leg::Out => self.shape.peer,
            Leg::Peer | Leg::Back => self.shape.worker,
        }
    }

    /// Ends a stretch at an event on the path.
    fn take(&mut self, event: &Event) {
        // The peer's first call after receiving that can send begins the way back.
        let answers = self.leg == Leg::Peer && event.kind == Kind::Enter(Call::Send);
        let Some(point) = self.point_of(event) else {
            self.passed += 1.0;
            return;
        };
        self.push(event.at, point, 0.5);
        if answers && event.thread == self.shape.peer {
            self.leg = Leg::Back;
        } else if self.leg == Leg::Out && matches!(point, Point::Exit(By::Receiver, _)) {
            self.leg = Leg::Peer;
            self.point = Point::Exit(By::Sender, Call::Receive);
        }
    }

    fn finish(mut self, end: u64) {
        self.push(end, Point::End, 0.0);
    }

    fn push(&mut self, at: u64, point: Point, edge: f64) {
        let before = if self.point == Point::Start { 0.0 } else { 0.5 };
        self.out.push(Stretch {
            leg: self.leg,
            part: between(self.leg, self.point, point),
            edges: (self.point, point),
            ticks: at.saturating_sub(self.at),
            events: before + std::mem::take(&mut self.passed) + edge,
        });
        self.at = at.max(self.at);
        self.point = point;
    }

    /// What an event is to this leg; none when it says nothing about it.
    fn point_of(&self, event: &Event) -> Option<Point> {
        let by = |thread: u32| {
            if thread == self.sender() {
                Some(By::Sender)
            } else if thread == self.receiver() {
                Some(By::Receiver)
            } else {
                None
            }
        };
        Some(match event.kind {
            Kind::Enter(call) => Point::Enter(by(event.thread)?, call),
            Kind::Exit(call) => Point::Exit(by(event.thread)?, call),
            Kind::Waking(thread) if thread == self.receiver() => Point::Waking,
            Kind::Woken(thread) if thread == self.receiver() => Point::Woken,
            Kind::Waking(thread) if thread == self.sender() => Point::WakingSender,
            Kind::Waking(_) | Kind::Woken(_) => return None,
            Kind::Switch { to: 0, .. } => Point::ToIdle,
            Kind::Switch { to, .. } => by(to).map_or(Point::ToStranger, Point::To),
            Kind::DeviceQueue => Point::DeviceQueue,
            Kind::DeviceTransmit => Point::DeviceTransmit,
            Kind::DeviceReceive => Point::DeviceReceive,
            Kind::StackReceive => Point::StackReceive,
            Kind::DataReady => Point::DataReady,
            Kind::Copy => Point::Copy,
        })
    }

    /// How far on the path's next event is when this one hands the message to another CPU.
    fn hand_over(&self, event: &Event, after: &[Event]) -> Option<usize> {
        if self.leg == Leg::Peer {
            return None;
        }
        let receiver = self.receiver();
        let wakes = |event: &Event| event.kind == Kind::Waking(receiver);
        // Where the receiver is seen next: chosen by its scheduler, or, if it never slept, in its
        // call.
        let appears = after.iter().position(|later| match later.kind {
            Kind::Switch { to, .. } => to == receiver,
            // Not of its last send, which it may still be in when the message arrives.
            Kind::Exit(Call::Receive | Call::Other) | Kind::Copy => later.thread == receiver,
            _ => false,
        })?;
        let there = after[appears].cpu;
        if there == event.cpu {
            return None;
        }
        let before = &after[..appears];
        let hands = match event.kind {
            Kind::Waking(_) => wakes(event),
            Kind::DataReady => !before.iter().any(wakes),
            Kind::Enter(Call::Send) => {
                event.thread == self.sender()
                    && !before.iter().any(|e| wakes(e) || e.kind == Kind::DataReady)
            }
            _ => false,
        };
        if !hands {
            return None;
        }
        // Its becoming runnable over there is seen first, if anybody looks.
        let woken = before
            .iter()
            .position(|later| later.cpu == there && later.kind == Kind::Woken(receiver));
        Some(woken.unwrap_or(appears))
    }
}

#[cfg(test)]
mod tests;
