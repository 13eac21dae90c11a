//! Follows a message through the events of one round trip.
//!
//! On one CPU everything is in sequence, so every event of that CPU is on the path. Across CPUs the
//! path leaves the sender's CPU when the sender wakes the receiver, and goes on with the receiver's
//! first event on its own CPU: what the sender does meanwhile delays nothing and is not counted.

use super::tracepoint::{SyscallKind, TraceEvent, TraceEventKind};

/// One round trip, in ticks of the worker's clock, read right before and right after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// Before the message is sent.
    pub(crate) start: u64,
    /// After the answer is received.
    pub(crate) end: u64,
}

/// The two processes of an exchange, by the numbers of their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TracedThreads {
    /// The one that sends first, and reads the clock.
    pub(crate) worker: u32,
    /// The one that answers.
    pub(crate) peer: u32,
}

/// A stretch of a round trip between two neighbouring points of the message's path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PathSegment {
    pub(super) leg: RoundTripLeg,
    pub(super) part: PathPart,
    pub(super) ticks: u64,
    /// Half of each edge that is an event, and all events that were passed over inside.
    pub(super) events: f64,
}

/// Cuts a round trip at its events; none when the worker has no event in it.
///
/// The stretches' ticks sum to the trip's.
pub(super) fn cut(
    trip: RoundTrip,
    events: &[TraceEvent],
    shape: TracedThreads,
    out: &mut Vec<PathSegment>,
) -> bool {
    out.clear();
    let Some(first) = events.iter().find(|event| event.thread == shape.worker) else {
        return false;
    };
    let mut cutter = PathCutter {
        shape,
        leg: RoundTripLeg::Out,
        at: trip.start,
        point: PathPoint::Start,
        passed: 0.0,
        out,
    };
    let mut cpu = first.cpu;
    let mut index = 0;
    while let Some(event) = events.get(index) {
        index += 1;
        if event.cpu != cpu {
            continue;
        }
        cutter.take(event);
        if let Some(there) = cutter.next_on_other_cpu(event, &events[index..]) {
            index += there;
            cpu = events[index].cpu;
        }
    }
    cutter.finish(trip.end);
    true
}

struct PathCutter<'a> {
    shape: TracedThreads,
    leg: RoundTripLeg,
    at: u64,
    point: PathPoint,
    passed: f64,
    out: &'a mut Vec<PathSegment>,
}

impl PathCutter<'_> {
    fn sender(&self) -> u32 {
        match self.leg {
            RoundTripLeg::Out => self.shape.worker,
            RoundTripLeg::Peer | RoundTripLeg::Back => self.shape.peer,
        }
    }

    fn receiver(&self) -> u32 {
        match self.leg {
            RoundTripLeg::Out => self.shape.peer,
            RoundTripLeg::Peer | RoundTripLeg::Back => self.shape.worker,
        }
    }

    /// Ends a stretch at an event on the path.
    fn take(&mut self, event: &TraceEvent) {
        // The peer's first call after receiving that can send begins the way back.
        let answers = self.leg == RoundTripLeg::Peer
            && event.kind == TraceEventKind::Enter(SyscallKind::Send);
        let Some(point) = self.point_of(event) else {
            self.passed += 1.0;
            return;
        };
        self.push(event.at, point, 0.5);
        if answers && event.thread == self.shape.peer {
            self.leg = RoundTripLeg::Back;
        } else if self.leg == RoundTripLeg::Out
            && matches!(point, PathPoint::Exit(PathSide::Receiver, _))
        {
            self.leg = RoundTripLeg::Peer;
            self.point = PathPoint::Exit(PathSide::Sender, SyscallKind::Receive);
        }
    }

    fn finish(mut self, end: u64) {
        self.push(end, PathPoint::End, 0.0);
    }

    fn push(&mut self, at: u64, point: PathPoint, edge: f64) {
        let before = if self.point == PathPoint::Start { 0.0 } else { 0.5 };
        self.out.push(PathSegment {
            leg: self.leg,
            part: between(self.leg, self.point, point),
            ticks: at.saturating_sub(self.at),
            events: before + std::mem::take(&mut self.passed) + edge,
        });
        self.at = at.max(self.at);
        self.point = point;
    }

    /// What an event is to this leg; none when it says nothing about it.
    fn point_of(&self, event: &TraceEvent) -> Option<PathPoint> {
        let by = |thread: u32| {
            if thread == self.sender() {
                Some(PathSide::Sender)
            } else if thread == self.receiver() {
                Some(PathSide::Receiver)
            } else {
                None
            }
        };
        Some(match event.kind {
            TraceEventKind::Enter(call) => PathPoint::Enter(by(event.thread)?, call),
            TraceEventKind::Exit(call) => PathPoint::Exit(by(event.thread)?, call),
            TraceEventKind::Waking(thread) if thread == self.receiver() => PathPoint::Waking,
            TraceEventKind::Woken(thread) if thread == self.receiver() => PathPoint::Woken,
            TraceEventKind::Waking(thread) if thread == self.sender() => PathPoint::WakingSender,
            TraceEventKind::Waking(_) | TraceEventKind::Woken(_) => return None,
            TraceEventKind::Switch { to: 0, .. } => PathPoint::ToIdle,
            TraceEventKind::Switch { to, .. } => by(to).map_or(PathPoint::ToOther, PathPoint::To),
            TraceEventKind::DeviceTransmit => PathPoint::DeviceTransmit,
            TraceEventKind::StackReceive => PathPoint::StackReceive,
            TraceEventKind::DataReady => PathPoint::DataReady,
            TraceEventKind::Copy => PathPoint::Copy,
        })
    }

    /// How far on the path's next event is when this one hands the message to another CPU.
    fn next_on_other_cpu(&self, event: &TraceEvent, after: &[TraceEvent]) -> Option<usize> {
        if self.leg == RoundTripLeg::Peer {
            return None;
        }
        let receiver = self.receiver();
        let wakes = |event: &TraceEvent| event.kind == TraceEventKind::Waking(receiver);
        // Where the receiver is seen next: chosen by its scheduler, or, if it never slept, in its
        // call.
        let appears = after.iter().position(|later| match later.kind {
            TraceEventKind::Switch { to, .. } => to == receiver,
            // Not of its last send, which it may still be in when the message arrives.
            TraceEventKind::Exit(SyscallKind::Receive | SyscallKind::Other)
            | TraceEventKind::Copy => later.thread == receiver,
            _ => false,
        })?;
        let there = after[appears].cpu;
        if there == event.cpu {
            return None;
        }
        let before = &after[..appears];
        let hands = match event.kind {
            TraceEventKind::Waking(_) => wakes(event),
            TraceEventKind::DataReady => !before.iter().any(wakes),
            TraceEventKind::Enter(SyscallKind::Send) => {
                event.thread == self.sender()
                    && !before.iter().any(|e| wakes(e) || e.kind == TraceEventKind::DataReady)
            }
            _ => false,
        };
        if !hands {
            return None;
        }
        // Its becoming runnable over there is seen first, if anybody looks.
        let woken = before
            .iter()
            .position(|later| later.cpu == there && later.kind == TraceEventKind::Woken(receiver));
        Some(woken.unwrap_or(appears))
    }
}

/// Which way the message is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RoundTripLeg {
    /// From the worker to the peer.
    Out,
    /// With the peer, from the end of its receiving to the start of its answer.
    Peer,
    /// From the peer back to the worker.
    Back,
}

/// A named part of a round trip: everything between two events that follow each other on the
/// message's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathPart {
    /// From the worker's clock read into its first system call.
    CallEntry,
    /// In the sending call: to the driver, or to the receiver's queue where there is no device.
    SendPath,
    /// From the driver's taking the frame to the start of the receive path.
    Device,
    /// From the start of the receive path to the socket's queue.
    ReceivePath,
    /// Waking the receiver: to its being runnable, and across CPUs until its CPU turns to it.
    WakeUp,
    /// As [`Self::WakeUp`] and [`Self::Switch`] together, where the turn to the receiver was not
    /// seen: it never slept, or the kernel does not trace its idle task.
    WakeAndSwitch,
    /// On one CPU: the rest of the sending call, after the receiver was woken.
    SendReturn,
    /// A process in user space between two of its calls, on the message's path.
    BetweenCalls,
    /// On one CPU: the sender's next call until the CPU turns to the receiver.
    ReceiveSleeps,
    /// The CPU has nothing to run.
    Idle,
    /// From the scheduler's choice until the receiver runs again inside its call: the context
    /// switch and the return from waiting.
    Switch,
    /// A receiving call that did not have to sleep.
    ReceiveCall,
    /// Copying the message to the receiver, and the rest of its call.
    CopyAndReturn,
    /// Receiving wakes the other side as if it waited for room to send: waking it, and its turn on
    /// this CPU until it sleeps again.
    NeedlessWake,
    /// Another task has the CPU.
    OtherTasks,
    /// The peer in user space, between receiving and answering.
    PeerUser,
    /// The peer's other calls between receiving and answering.
    PeerCalls,
    /// From the end of the worker's last call to its clock read.
    CallExit,
    /// Between two events that are the edges of nothing known: the work of an interrupt, or of a
    /// tracepoint that this kernel lacks.
    Unexplained,
}

// In the order of a table.
names!(PathPart {
    CallEntry = "call-entry",
    SendPath = "send-path",
    Device = "device",
    ReceivePath = "receive-path",
    WakeUp = "wake-up",
    WakeAndSwitch = "wake-up-and-switch",
    SendReturn = "send-returns",
    BetweenCalls = "user-space-between-calls",
    ReceiveSleeps = "receive-call-sleeps",
    Idle = "idle",
    Switch = "context-switch",
    ReceiveCall = "receive-call",
    CopyAndReturn = "copy-and-return",
    NeedlessWake = "needless-wake-up",
    OtherTasks = "other-tasks",
    PeerUser = "peer-in-user-space",
    PeerCalls = "peer-other-calls",
    CallExit = "call-exit",
    Unexplained = "unexplained",
});

/// One of the two processes, as a leg sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathSide {
    Sender,
    Receiver,
}

/// A point on a message's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathPoint {
    /// The worker's first clock read.
    Start,
    /// Its last.
    End,
    Enter(PathSide, SyscallKind),
    Exit(PathSide, SyscallKind),
    /// The receiver is being woken, or is runnable.
    Waking,
    Woken,
    /// The sender is.
    WakingSender,
    /// The CPU turns to one of the two.
    To(PathSide),
    ToIdle,
    ToOther,
    DeviceTransmit,
    StackReceive,
    DataReady,
    Copy,
}

/// The part between two points of a leg that follow each other.
fn between(leg: RoundTripLeg, from: PathPoint, to: PathPoint) -> PathPart {
    match (from, to) {
        // A receiving call that sleeps lets the other task in.
        (PathPoint::Enter(..), PathPoint::ToOther) => PathPart::ReceiveSleeps,
        (PathPoint::ToOther, _) | (_, PathPoint::ToOther) => PathPart::OtherTasks,
        _ if leg == RoundTripLeg::Peer => with_peer(from, to),
        _ => on_the_way(from, to),
    }
}

/// With the peer, which is the sender: of the answer.
fn with_peer(from: PathPoint, to: PathPoint) -> PathPart {
    use PathPoint::{Enter, Exit, To, ToIdle};
    match (from, to) {
        (Exit(..), Enter(..)) => PathPart::PeerUser,
        (Exit(..), To(PathSide::Receiver)) | (To(PathSide::Receiver), To(PathSide::Sender)) => {
            PathPart::NeedlessWake
        }
        (To(PathSide::Sender), Enter(..) | Exit(..)) => PathPart::Switch,
        (To(_) | ToIdle, _) | (_, To(_) | ToIdle) => PathPart::Unexplained,
        _ => PathPart::PeerCalls,
    }
}

/// From one process to the other.
fn on_the_way(from: PathPoint, to: PathPoint) -> PathPart {
    use PathPoint::{
        Copy, DataReady, DeviceTransmit, End, Enter, Exit, StackReceive, Start, To, ToIdle, Waking,
        WakingSender, Woken,
    };
    match (from, to) {
        (Start, Enter(PathSide::Sender, _)) => PathPart::CallEntry,
        (
            Enter(PathSide::Sender, SyscallKind::Send),
            DeviceTransmit | DataReady | Waking | Exit(PathSide::Sender, _),
        ) => PathPart::SendPath,
        (DeviceTransmit, StackReceive | Waking)
        // A device's answer is put straight into the receive path by the process that writes it.
        | (Enter(PathSide::Sender, SyscallKind::Send), StackReceive) => PathPart::Device,
        (StackReceive, DataReady | Waking) => PathPart::ReceivePath,
        // The turn to the receiver follows at once on another CPU, or where it preempts.
        (DataReady, Waking | Woken | To(PathSide::Receiver))
        | (Waking, Woken | To(PathSide::Receiver))
        | (Woken, To(PathSide::Receiver)) => PathPart::WakeUp,
        (DataReady | Waking | Woken, Copy | Exit(PathSide::Receiver, _)) => PathPart::WakeAndSwitch,
        (Waking | Woken | DataReady | DeviceTransmit | StackReceive, Exit(PathSide::Sender, _)) => {
            PathPart::SendReturn
        }
        (Exit(PathSide::Sender, _), Enter(PathSide::Sender, _))
        | (Exit(PathSide::Receiver, _), Enter(PathSide::Receiver, _)) => PathPart::BetweenCalls,
        (
            Enter(PathSide::Sender, SyscallKind::Receive | SyscallKind::Other) | Exit(PathSide::Sender, _),
            To(PathSide::Receiver) | ToIdle,
        ) => PathPart::ReceiveSleeps,
        (ToIdle, To(_) | Waking | Woken) => PathPart::Idle,
        (To(PathSide::Receiver), Copy | Exit(PathSide::Receiver, _) | Enter(PathSide::Receiver, _))
        | (To(PathSide::Sender), Exit(PathSide::Sender, _) | Enter(PathSide::Sender, _)) => PathPart::Switch,
        (Enter(PathSide::Receiver, _), Copy | Exit(PathSide::Receiver, _)) => PathPart::ReceiveCall,
        (Copy, Exit(PathSide::Receiver, _) | WakingSender) => PathPart::CopyAndReturn,
        (WakingSender, Exit(PathSide::Receiver, _))
        | (Exit(PathSide::Receiver, _), To(PathSide::Sender))
        | (To(_), To(_)) => PathPart::NeedlessWake,
        (Exit(PathSide::Receiver, _) | To(PathSide::Receiver), End) => PathPart::CallExit,
        _ => PathPart::Unexplained,
    }
}

#[cfg(test)]
mod tests;
