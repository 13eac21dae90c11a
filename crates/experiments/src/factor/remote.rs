//! A channel between two network namespaces or two hosts, and what experiments over such a path have in common.

use plumb_base::time::Span;
use plumb_harness::spec::{
    BlockTask, ChannelSpec, LaunchSubject, Mechanism, PathSpec, RemoteSpec, SocketOptions, WakeMode,
};

use super::PresetLevels::{Numbers, Words};
use super::channel::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, WAKE};
use super::{Factor, FactorDomain, keep_levels, link};
use crate::definition::{CellDecision, DesignPoint, Exclusion, LaunchGroup};

/// TCP and UDP, both versions of IP.
pub(crate) const REMOTE_MECHANISM: Factor =
    Factor { domain: FactorDomain::Mechanisms(is_remote), ..MECHANISM }
        .at(Words(&["tcp4", "tcp6", "udp4", "udp6"]))
        .at_quick(Words(&["tcp4", "udp4"]));

/// Where worker and peer run. A link is emulated by a third process, on another CPU where there is
/// one: with two, worker and peer share the first.
pub(crate) const ONE_HOST_PLACEMENT: Factor =
    PLACEMENT.at(Words(&["same-cpu", "other-cpu"])).at_quick(Words(&["same-cpu"]));

/// Both on one CPU, whatever the preset.
pub(crate) const SAME_CPU: Factor = PLACEMENT.at(Words(&["same-cpu"]));

/// Receivers block, as hosts that have something else to do.
pub(crate) const BLOCKING_WAKE: Factor = Factor { fit: keep_levels, ..WAKE }.at(Words(&["block"]));

/// The sizes of the local tables; of a quick run those of the published ranks.
pub(crate) const REMOTE_SIZE: Factor = SIZE.at_quick(Numbers(&[16, 1 << 10, 64 << 10]));

/// Whether a mechanism reaches another host.
pub(crate) fn is_remote(mechanism: Mechanism) -> bool {
    matches!(mechanism, Mechanism::Tcp4 | Mechanism::Tcp6 | Mechanism::Udp4 | Mechanism::Udp6)
}

/// The longest that one operation may take: a dozen of them fit a block that somebody waits for.
const OPERATION_MAX: Span = Span::from_ms(1_500);

/// A task over a path, where it takes a time that somebody waits for.
pub(crate) fn bounded_cell(point: &DesignPoint<'_>, task: BlockTask, back: u64) -> CellDecision {
    let size = channel::size_of(point.factors);
    let group = group(point)?;
    if let LaunchSubject::Remote(remote) = &group.subject {
        let operation = Span::from_ns(remote.path.exchange_ns(size, back));
        if operation > OPERATION_MAX {
            return Err(Exclusion::impossible(format!(
                "one operation takes about {operation} over {}, and more than {OPERATION_MAX} is \
                 left out: choose a smaller size",
                remote.path.name
            )));
        }
    }
    Ok((group, task))
}

/// The launch group of a TCP or UDP channel over a path, whatever else the setting varies.
pub(crate) fn launch_group_over(
    point: &DesignPoint<'_>,
    mechanism: Mechanism,
    path: PathSpec,
    set: impl FnOnce(&mut SocketOptions),
) -> Result<LaunchGroup, Exclusion> {
    let wake = WakeMode::Block;
    let placement = channel::placement_of(point, wake)?;
    let congestion = point.text(CONGESTION.name).filter(|_| channel::is_tcp(mechanism));
    let congestion = congestion.map(str::to_owned);
    let mut options = SocketOptions { congestion, ..SocketOptions::default() };
    set(&mut options);
    let channel = ChannelSpec { mechanism, wake, options };
    Ok(LaunchGroup::new(LaunchSubject::Remote(Box::new(RemoteSpec { channel, path })), placement))
}

/// The launch group of a setting: its channel, over the path that it names.
fn group(point: &DesignPoint<'_>) -> Result<LaunchGroup, Exclusion> {
    let mut group = channel::group(point)?;
    if let (Some(path), LaunchSubject::Channel(channel)) = (link::path_of(point)?, &group.subject) {
        if !is_remote(channel.mechanism) {
            return Err(Exclusion::impossible(format!(
                "{} stays on one host: choose link=loopback, or one of tcp4, tcp6, udp4, udp6",
                channel.mechanism.name()
            )));
        }
        let channel = channel.clone();
        group.subject = LaunchSubject::Remote(Box::new(RemoteSpec { channel, path }));
    }
    Ok(group)
}

/// How long a block over a path must be to hold a dozen operations, and some that are lost.
pub(crate) fn block_time(remote: &RemoteSpec, task: &BlockTask) -> Span {
    let path = &remote.path;
    let waits =
        remote.channel.mechanism.is_lossy() && !matches!(task, BlockTask::ReplyPackets { .. });
    let lossy = if waits { LOSSY_MIN } else { Span::ZERO };
    lossy.max(operations_time(path, task))
}

fn operations_time(path: &PathSpec, task: &BlockTask) -> Span {
    let exchange = |there, back| Span::from_ns(path.exchange_ns(there, back));
    let round_trip = Span::from_ns(path.round_trip_ns);
    match task {
        BlockTask::Latency { size } | BlockTask::AnsweredShare { size } => {
            exchange(*size, *size) * OPERATIONS
        }
        // Each is like the one before. A connection begins with a round trip of its own.
        BlockTask::ConnectedShare { size } | BlockTask::ReplyPackets { size } => {
            (exchange(*size, *size) + round_trip) * ATTEMPTS
        }
        BlockTask::ThroughputAcked { size } => exchange(*size, 0) * OPERATIONS,
        // Each transfer pays for its start and its end: it must be long against both.
        BlockTask::Throughput { size } => {
            (exchange(*size, 0) * OPERATIONS).max(round_trip * TRANSFERS_ROUND_TRIPS)
        }
        BlockTask::RoundTripBehindLoad { size, ahead, count } => {
            exchange(*size + *ahead * u64::from(*count), *size) * OPERATIONS
        }
        // A stream settles within some tens of round trips, and is measured over as many more.
        BlockTask::SteadyRate { interval_ns, .. } => {
            (Span::from_ns(*interval_ns) * INTERVALS).max(round_trip * STEADY_ROUND_TRIPS)
        }
        _ => Span::ZERO,
    }
}

/// A lost datagram is waited for, so that one loss does not take the whole block.
const LOSSY_MIN: Span = Span::from_ms(300);
/// Operations in a block.
const OPERATIONS: u64 = 12;
/// Attempts of what either gets across or does not.
const ATTEMPTS: u64 = 4;
/// Length of all transfers of a block, in round trips.
const TRANSFERS_ROUND_TRIPS: u64 = 80;
/// Intervals of a steady stream in a block.
const INTERVALS: u64 = 14;
/// Round trips of a steady stream in a block.
const STEADY_ROUND_TRIPS: u64 = 80;

/// What an application gives its socket at a time.
pub(crate) const MESSAGE: u64 = 4 << 10;

/// And long enough that its last message weighs little.
pub(crate) const INTERVAL_MIN: Span = Span::from_ms(40);
