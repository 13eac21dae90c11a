//! `latency.remote` and `throughput.remote`: a channel between two network namespaces or two hosts,
//! and what experiments over such a path have in common.
//!
//! Left out: what stands between them (`super::path`).

use plumb_base::time::Span;
use plumb_host::harness::spec::{ChannelSpec, PathSpec, RemoteSpec, SocketOptions, Subject, Task};
use plumb_host::local::mechanism::{Mechanism, Wake};

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::latency::LATENCY;
use super::local::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, WAKE};
use super::path::{self, LINK};
use super::throughput::{ACKED, THROUGHPUT};
use super::{Exclusion, Experiment, Form, LaunchGroup, Setting};
use crate::plan::Preset;

/// Half the time of a message and its echo between two hosts.
pub static LATENCY_REMOTE: Experiment = Experiment {
    id: "latency.remote",
    study: "ipc",
    question: "How long does a message take from one host to another?",
    hypothesis: "Remote latency is the local one, the network's delay, and the time that the \
                 slowest link needs for the message; UDP is faster than TCP until a message no \
                 longer fits one datagram.",
    factors: &[REMOTE_MECHANISM, LINK, NEAR_PLACEMENT, BLOCKING, REMOTE_SIZE, CONGESTION],
    responses: &[LATENCY],
    form: |setting| {
        let size = local::size_of(setting.factors);
        measured(setting, Task::Latency { size }, size)
    },
};

/// Both definitions of throughput between two hosts.
pub static THROUGHPUT_REMOTE: Experiment = Experiment {
    id: "throughput.remote",
    study: "ipc",
    question: "How many bytes a second can one host give another?",
    hypothesis: "A long transfer fills the slowest link; acknowledged message by message it gets \
                 one message a round trip, so that delay bounds it and rate does not.",
    factors: &[REMOTE_MECHANISM, LINK, NEAR_PLACEMENT, BLOCKING, REMOTE_SIZE, CONGESTION],
    responses: &[THROUGHPUT, ACKED],
    form: |setting| {
        let size = local::size_of(setting.factors);
        let acked = setting.response == ACKED.name;
        let task = if acked { Task::ThroughputAcked { size } } else { Task::Throughput { size } };
        measured(setting, task, 0)
    },
};

/// TCP and UDP, both versions of IP.
const REMOTE_MECHANISM: Factor = Factor {
    domain: Domain::Mechanisms(is_remote),
    levels: |preset| match preset {
        Preset::Quick => words(&["tcp4", "udp4"]),
        _ => words(&["tcp4", "tcp6", "udp4", "udp6"]),
    },
    ..MECHANISM
};

/// Where worker and peer run. A link is emulated by a third process, on another CPU where there is
/// one: with two, worker and peer share the first.
pub(crate) const NEAR_PLACEMENT: Factor = Factor {
    levels: |preset| match preset {
        Preset::Quick => words(&["same-cpu"]),
        _ => words(&["same-cpu", "other-cpu"]),
    },
    ..PLACEMENT
};

/// Receivers block, as hosts that have something else to do.
pub(crate) const BLOCKING: Factor = Factor { levels: |_| words(&["block"]), fit: keep, ..WAKE };

/// The sizes of the local tables; of a quick run those of the published ranks.
const REMOTE_SIZE: Factor = Factor {
    levels: |preset| match preset {
        Preset::Quick => numbers(&[16, 1 << 10, 64 << 10]),
        _ => numbers(&local::SIZES),
    },
    applies: always,
    ..SIZE
};

/// Whether a mechanism reaches another host.
pub(crate) fn is_remote(mechanism: Mechanism) -> bool {
    matches!(mechanism, Mechanism::Tcp4 | Mechanism::Tcp6 | Mechanism::Udp4 | Mechanism::Udp6)
}

/// The longest that one operation may take: a dozen of them fit a block that somebody waits for.
const OPERATION_MAX: Span = Span::from_ms(1_500);

/// A task over a path, where it takes a time that somebody waits for.
fn measured(setting: &Setting<'_>, task: Task, back: u64) -> Form {
    let size = local::size_of(setting.factors);
    let group = match group(setting) {
        Ok(group) => group,
        Err(exclusion) => return Form::Excluded(exclusion),
    };
    if let Subject::Remote(remote) = &group.subject {
        let operation = Span::from_ns(remote.path.exchange_ns(size, back));
        if operation > OPERATION_MAX {
            return Form::impossible(format!(
                "one operation takes about {operation} over {}, and more than {OPERATION_MAX} is \
                 left out: choose a smaller size",
                remote.path.name
            ));
        }
    }
    Form::Measure { group, task }
}

/// The launch group of a TCP or UDP channel over a path, whatever else the setting varies.
pub(crate) fn over(
    setting: &Setting<'_>,
    mechanism: Mechanism,
    path: PathSpec,
    set: impl FnOnce(&mut SocketOptions),
) -> Result<LaunchGroup, Exclusion> {
    let wake = Wake::Block;
    let placement = local::place(setting, wake)?;
    let congestion = setting.factors.text(CONGESTION.name).filter(|_| local::is_tcp(mechanism));
    let congestion = congestion.map(str::to_owned);
    let mut options = SocketOptions { congestion, ..SocketOptions::default() };
    set(&mut options);
    let channel = ChannelSpec { mechanism, wake, options };
    let subject = Subject::Remote(Box::new(RemoteSpec { channel, path }));
    Ok(LaunchGroup { subject, placement, cpu: None })
}

/// The launch group of a setting: its channel, over the path that it names.
pub(crate) fn group(setting: &Setting<'_>) -> Result<LaunchGroup, Exclusion> {
    let group = local::group(setting)?;
    let Subject::Channel(channel) = group.subject else { return Ok(group) };
    Ok(match path::of(setting.factors)? {
        None => LaunchGroup { subject: Subject::Channel(channel), ..group },
        Some(path) => LaunchGroup {
            subject: Subject::Remote(Box::new(RemoteSpec { channel, path })),
            ..group
        },
    })
}

/// How long a block over a path must be to hold a dozen operations, and some that are lost.
pub(crate) fn block_time(remote: &RemoteSpec, task: &Task) -> Span {
    let path = &remote.path;
    let waits = remote.channel.mechanism.is_lossy() && !matches!(task, Task::Pieces { .. });
    let lossy = if waits { LOSSY_MIN } else { Span::ZERO };
    lossy.max(operations_time(path, task))
}

fn operations_time(path: &PathSpec, task: &Task) -> Span {
    let exchange = |there, back| Span::from_ns(path.exchange_ns(there, back));
    let round_trip = Span::from_ns(path.round_trip_ns);
    match task {
        Task::Latency { size } | Task::Answered { size } => exchange(*size, *size) * OPERATIONS,
        // Each is like the one before. A connection begins with a round trip of its own.
        Task::Connected { size } | Task::Pieces { size } => {
            (exchange(*size, *size) + round_trip) * ATTEMPTS
        }
        Task::ThroughputAcked { size } => exchange(*size, 0) * OPERATIONS,
        // Each transfer pays for its start and its end: it must be long against both.
        Task::Throughput { size } => {
            (exchange(*size, 0) * OPERATIONS).max(round_trip * TRANSFERS_ROUND_TRIPS)
        }
        Task::Behind { size, ahead, count } => {
            exchange(*size + *ahead * u64::from(*count), *size) * OPERATIONS
        }
        // A stream settles within some tens of round trips, and is measured over as many more.
        Task::Steady { interval_ns, .. } => {
            (Span::from_ns(*interval_ns) * INTERVALS).max(round_trip * STEADY_ROUND_TRIPS)
        }
        _ => Span::ZERO,
    }
}

/// A lost datagram is waited for, so that one loss does not take the whole block.
const LOSSY_MIN: Span = Span::from_ms(300);
/// Operations that a block shall hold.
const OPERATIONS: u64 = 12;
/// Attempts of what either gets across or does not.
const ATTEMPTS: u64 = 4;
/// Round trips that the transfers of a block shall last together.
const TRANSFERS_ROUND_TRIPS: u64 = 80;
/// Intervals of a steady stream in a block.
const INTERVALS: u64 = 14;
/// Round trips of a steady stream in a block.
const STEADY_ROUND_TRIPS: u64 = 80;
