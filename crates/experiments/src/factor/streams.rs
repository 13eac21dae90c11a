//! What experiments over streams have in common: their responses, the streams that a setting asks for, and
//! how long a block of them must be.

use plumb_base::time::Span;
use plumb_harness::spec::{
    BlockTask, LaunchSubject, PathSpec, ProcessTweaks, SocketOptions, TcpStreamsSpec, WakeMode,
};
use plumb_harness::topology::CpuPlacement;

use super::PresetLevels::Words;
use super::channel::{self, CONGESTION, PLACEMENT};
use super::link::{self, LINK, LOOPBACK, VETH};
use super::{Factor, always};
use crate::definition::{CellDecision, DesignPoint, LaunchGroup, ResponseVariable};

/// What arrives.
pub(crate) const STREAMED: ResponseVariable =
    ResponseVariable::rate("throughput", "bytes a second that arrive, over all streams together");

/// What arrives for each second of the sender's CPU: the published figure, MB per CPU-second.
pub(crate) const SENDER_CPU: ResponseVariable =
    ResponseVariable::rate("sender-cpu", "bytes that arrive for each second of the sender's CPU");

/// The same of the receiver's.
pub(crate) const RECEIVER_CPU: ResponseVariable = ResponseVariable::rate(
    "receiver-cpu",
    "bytes that arrive for each second of the receiver's CPU",
);

/// What arrives, and what each side's CPU carries.
pub(crate) const RESPONSES: [ResponseVariable; 3] = [STREAMED, SENDER_CPU, RECEIVER_CPU];

/// What an application gives its socket at a time, in bytes (the published 64 Kbytes).
pub(crate) const MESSAGE: u64 = 64 << 10;

/// TCP, whose congestion control is set explicitly.
pub(crate) const CONGESTION_CONTROL: Factor = Factor { applies: always, ..CONGESTION };

/// Each process on a CPU of its own, as two hosts have it.
pub(crate) const OTHER_CPU_PLACEMENT: Factor = PLACEMENT.at(Words(&["other-cpu"]));

/// No network at all, or a virtual Ethernet: what needs no emulation.
pub(crate) const PLAIN_LINK: Factor =
    Factor { meaning: "what stands between the two hosts", ..LINK }.at(Words(&[LOOPBACK, VETH]));

/// One stream, as both processes have it by default.
fn one_stream(point: &DesignPoint<'_>, path: Option<PathSpec>) -> TcpStreamsSpec {
    let congestion = point.text(CONGESTION_CONTROL.name).map(str::to_owned);
    TcpStreamsSpec {
        path,
        streams: 1,
        cpus: None,
        cpu_percent: 100,
        options: SocketOptions { congestion, ..SocketOptions::default() },
        low_water: None,
        tweaks: ProcessTweaks::default(),
    }
}

/// A setting's streams over the link that it names, each process where the setting places it.
pub(crate) fn over_link(
    point: &DesignPoint<'_>,
    set: impl FnOnce(&mut TcpStreamsSpec),
) -> CellDecision {
    streams_cell(point, channel::placement_of(point, WakeMode::Block)?, set)
}

/// A setting's streams over the link that it names, placed so.
pub(crate) fn streams_cell(
    point: &DesignPoint<'_>,
    placement: CpuPlacement,
    set: impl FnOnce(&mut TcpStreamsSpec),
) -> CellDecision {
    let mut spec = one_stream(point, link::path_of(point)?);
    set(&mut spec);
    Ok(cell_of(spec, placement))
}

/// One stream over this path, each process where the setting places it.
pub(crate) fn over_path(
    point: &DesignPoint<'_>,
    path: PathSpec,
    set: impl FnOnce(&mut TcpStreamsSpec),
) -> CellDecision {
    let placement = channel::placement_of(point, WakeMode::Block)?;
    let mut spec = one_stream(point, Some(path));
    set(&mut spec);
    Ok(cell_of(spec, placement))
}

fn cell_of(spec: TcpStreamsSpec, placement: CpuPlacement) -> (LaunchGroup, BlockTask) {
    let group = LaunchGroup::new(LaunchSubject::Streams(Box::new(spec)), placement);
    (group, BlockTask::Streams { size: MESSAGE })
}

/// How long a block of streams must be: for its intervals to hold many packets, and for its streams to have
/// settled for most of it.
pub(crate) fn block_time(spec: &TcpStreamsSpec, usual: Span) -> Span {
    let shortest = (usual * SHORTEST).max(SHORTEST_MIN);
    let Some(path) = &spec.path else { return shortest };
    let sending = path.rate.map_or(Span::ZERO, |rate| {
        let ns = u128::from(BYTES) * 8 * 1_000_000_000 / u128::from(rate.max(1));
        Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
    });
    shortest.max(sending).max(Span::from_ns(path.round_trip_ns) * ROUND_TRIPS)
}

/// Blocks of a preset that one of streams lasts.
const SHORTEST: u64 = 6;
const SHORTEST_MIN: Span = Span::from_ms(240);
/// Bytes that a block carries over a slow link, at least.
const BYTES: u64 = 1_500_000;
/// Round trips that a block lasts: a window grows twofold in each, until it fills the link.
const ROUND_TRIPS: u64 = 50;
