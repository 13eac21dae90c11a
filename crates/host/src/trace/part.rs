//! The parts of a round trip, and which two events are the edges of which part.
//!
//! Left out: which events belong to a round trip (`super::path`).

use super::timeline::Call;

/// Which way the message is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leg {
    /// From the worker to the peer.
    Out,
    /// With the peer, from the end of its receiving to the start of its answer.
    Peer,
    /// From the peer back to the worker.
    Back,
}

impl Leg {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Peer => "peer",
            Self::Back => "back",
        }
    }
}

/// A named part of a round trip: everything between two events that follow each other on the
/// message's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
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
    Sleep,
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
    Others,
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

impl Part {
    /// All of them, in the order of a table.
    pub const ALL: [Self; 19] = [
        Self::CallEntry,
        Self::SendPath,
        Self::Device,
        Self::ReceivePath,
        Self::WakeUp,
        Self::WakeAndSwitch,
        Self::SendReturn,
        Self::BetweenCalls,
        Self::Sleep,
        Self::Idle,
        Self::Switch,
        Self::ReceiveCall,
        Self::CopyAndReturn,
        Self::NeedlessWake,
        Self::Others,
        Self::PeerUser,
        Self::PeerCalls,
        Self::CallExit,
        Self::Unexplained,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallEntry => "call entry",
            Self::SendPath => "send path",
            Self::Device => "device",
            Self::ReceivePath => "receive path",
            Self::WakeUp => "wake-up",
            Self::WakeAndSwitch => "wake-up and switch",
            Self::SendReturn => "send returns",
            Self::BetweenCalls => "user space between calls",
            Self::Sleep => "receive call sleeps",
            Self::Idle => "idle",
            Self::Switch => "context switch",
            Self::ReceiveCall => "receive call",
            Self::CopyAndReturn => "copy and return",
            Self::NeedlessWake => "needless wake-up",
            Self::Others => "other tasks",
            Self::PeerUser => "peer in user space",
            Self::PeerCalls => "peer's other calls",
            Self::CallExit => "call exit",
            Self::Unexplained => "unexplained",
        }
    }

    /// Its name in results: words joined by hyphens.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::CallEntry => "call-entry",
            Self::SendPath => "send-path",
            Self::Device => "device",
            Self::ReceivePath => "receive-path",
            Self::WakeUp => "wake-up",
            Self::WakeAndSwitch => "wake-up-and-switch",
            Self::SendReturn => "send-returns",
            Self::BetweenCalls => "user-space-between-calls",
            Self::Sleep => "receive-call-sleeps",
            Self::Idle => "idle",
            Self::Switch => "context-switch",
            Self::ReceiveCall => "receive-call",
            Self::CopyAndReturn => "copy-and-return",
            Self::NeedlessWake => "needless-wake-up",
            Self::Others => "other-tasks",
            Self::PeerUser => "peer-in-user-space",
            Self::PeerCalls => "peer-other-calls",
            Self::CallExit => "call-exit",
            Self::Unexplained => "unexplained",
        }
    }
}

/// One of the two processes, as a leg sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Sender,
    Receiver,
}

/// A point on a message's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// The worker's first clock read.
    Start,
    /// Its last.
    End,
    Enter(By, Call),
    Exit(By, Call),
    /// The receiver is being woken, or is runnable.
    Waking,
    Woken,
    /// The sender is.
    WakingSender,
    /// The CPU turns to one of the two.
    To(By),
    ToIdle,
    ToStranger,
    DeviceQueue,
    DeviceTransmit,
    DeviceReceive,
    StackReceive,
    DataReady,
    Copy,
}

/// The part between two points of a leg that follow each other.
pub(super) fn between(leg: Leg, from: Point, to: Point) -> Part {
    match (from, to) {
        // A receiving call that sleeps lets the other task in.
        (Point::Enter(..), Point::ToStranger) => Part::Sleep,
        (Point::ToStranger, _) | (_, Point::ToStranger) => Part::Others,
        _ if leg == Leg::Peer => with_peer(from, to),
        _ => on_the_way(from, to),
    }
}

/// With the peer, which is the sender: of the answer.
fn with_peer(from: Point, to: Point) -> Part {
    use Point::{Enter, Exit, To, ToIdle};
    match (from, to) {
        (Exit(..), Enter(..)) => Part::PeerUser,
        (Exit(..), To(By::Receiver)) | (To(By::Receiver), To(By::Sender)) => Part::NeedlessWake,
        (To(By::Sender), Enter(..) | Exit(..)) => Part::Switch,
        (To(_) | ToIdle, _) | (_, To(_) | ToIdle) => Part::Unexplained,
        _ => Part::PeerCalls,
    }
}

/// From one process to the other.
fn on_the_way(from: Point, to: Point) -> Part {
    use Point::{
        Copy, DataReady, DeviceQueue, DeviceReceive, DeviceTransmit, End, Enter, Exit,
        StackReceive, Start, To, ToIdle, Waking, WakingSender, Woken,
    };
    match (from, to) {
        (Start, Enter(By::Sender, _)) => Part::CallEntry,
        (
            Enter(By::Sender, Call::Send),
            DeviceQueue | DeviceTransmit | DataReady | Waking | Exit(By::Sender, _),
        )
        | (DeviceQueue, DeviceTransmit) => Part::SendPath,
        (DeviceTransmit, DeviceReceive | StackReceive | Waking)
        | (DeviceReceive, StackReceive | Waking)
        // A device's answer is put straight into the receive path by the process that writes it.
        | (Enter(By::Sender, Call::Send), DeviceReceive | StackReceive) => Part::Device,
        (StackReceive, DataReady | Waking) => Part::ReceivePath,
        // The turn to the receiver follows at once on another CPU, or where it preempts.
        (DataReady, Waking | Woken | To(By::Receiver))
        | (Waking, Woken | To(By::Receiver))
        | (Woken, To(By::Receiver)) => Part::WakeUp,
        (DataReady | Waking | Woken, Copy | Exit(By::Receiver, _)) => Part::WakeAndSwitch,
        (Waking | Woken | DataReady | DeviceTransmit | StackReceive, Exit(By::Sender, _)) => {
            Part::SendReturn
        }
        (Exit(By::Sender, _), Enter(By::Sender, _))
        | (Exit(By::Receiver, _), Enter(By::Receiver, _)) => Part::BetweenCalls,
        (
            Enter(By::Sender, Call::Receive | Call::Other) | Exit(By::Sender, _),
            To(By::Receiver) | ToIdle,
        ) => Part::Sleep,
        (ToIdle, To(_) | Waking | Woken) => Part::Idle,
        (To(By::Receiver), Copy | Exit(By::Receiver, _) | Enter(By::Receiver, _))
        | (To(By::Sender), Exit(By::Sender, _) | Enter(By::Sender, _)) => Part::Switch,
        (Enter(By::Receiver, _), Copy | Exit(By::Receiver, _)) => Part::ReceiveCall,
        (Copy, Exit(By::Receiver, _) | WakingSender) => Part::CopyAndReturn,
        (WakingSender, Exit(By::Receiver, _))
        | (Exit(By::Receiver, _), To(By::Sender))
        | (To(_), To(_)) => Part::NeedlessWake,
        (Exit(By::Receiver, _) | To(By::Receiver), End) => Part::CallExit,
        _ => Part::Unexplained,
    }
}
