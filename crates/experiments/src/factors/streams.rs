//! What experiments over streams have in common: their responses, the streams that a setting asks for, and
//! how long a block of them must be.
//!
//! Left out: what each experiment varies.

use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_harness::spec::WakeMode;
use plumb_harness::spec::{
    BlockTask, LaunchSubject, PathSpec, ProcessTweaks, SocketOptions, TcpStreamsSpec,
};
use plumb_harness::topology::CpuPlacement;
use plumb_store::record::{Better, Factors};

use crate::definition::{CellDecision, DesignPoint, Exclusion, LaunchGroup, ResponseVariable};
use crate::factor::{Factor, FactorDomain, LevelParser, always, keep_levels, numbers, words};
use crate::factors::channel::{self, CONGESTION, PLACEMENT};
use crate::factors::link::{self, LINK, LOOPBACK, VETH};

/// What arrives.
pub(crate) const STREAMED: ResponseVariable = ResponseVariable {
    name: "throughput",
    unit: Unit::BytesPerSecond,
    better: Better::Higher,
    meaning: "bytes a second that arrive, over all streams together",
};

/// What arrives for each second of the sender's CPU: the published figure, MB per CPU-second.
pub(crate) const SENDER_CPU: ResponseVariable = ResponseVariable {
    name: "sender-cpu",
    unit: Unit::BytesPerSecond,
    better: Better::Higher,
    meaning: "bytes that arrive for each second of the sender's CPU",
};

/// The same of the receiver's.
pub(crate) const RECEIVER_CPU: ResponseVariable = ResponseVariable {
    name: "receiver-cpu",
    unit: Unit::BytesPerSecond,
    better: Better::Higher,
    meaning: "bytes that arrive for each second of the receiver's CPU",
};

/// What arrives, and what each side's CPU carries.
pub(crate) const RESPONSES: [ResponseVariable; 3] = [STREAMED, SENDER_CPU, RECEIVER_CPU];

/// What an application gives its socket at a time, in bytes (the published 64 Kbytes).
pub(crate) const MESSAGE: u64 = 64 << 10;

/// TCP, whose congestion control is set explicitly.
pub(crate) const CONGESTION_CONTROL: Factor = Factor { applies: always, ..CONGESTION };

/// Each process on a CPU of its own, as two hosts have it.
pub(crate) const OTHER_CPU_PLACEMENT: Factor =
    Factor { levels: |_| words(&["other-cpu"]), ..PLACEMENT };

/// No network at all, or a virtual Ethernet: what needs no emulation.
pub(crate) const PLAIN_LINK: Factor = Factor {
    meaning: "what stands between the two hosts",
    levels: |_| words(&[LOOPBACK, VETH]),
    ..LINK
};

/// One stream over nothing, as both processes have it by default.
pub(crate) fn one_stream(setting: &DesignPoint<'_>, path: Option<PathSpec>) -> TcpStreamsSpec {
    let congestion = setting.factors.text(CONGESTION_CONTROL.name).map(str::to_owned);
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
    setting: &DesignPoint<'_>,
    set: impl FnOnce(&mut TcpStreamsSpec),
) -> CellDecision {
    let placement = channel::placement_of(setting, WakeMode::Block);
    let spec = link::path_of(setting).map(|path| {
        let mut spec = one_stream(setting, path);
        set(&mut spec);
        spec
    });
    streams_cell(placement, spec)
}

/// Streams as specified, their processes placed so.
pub(crate) fn streams_cell(
    placement: Result<CpuPlacement, Exclusion>,
    spec: Result<TcpStreamsSpec, Exclusion>,
) -> CellDecision {
    let group = placement.and_then(|placement| {
        let subject = LaunchSubject::Streams(Box::new(spec?));
        Ok(LaunchGroup { subject, placement, cpu: None })
    });
    CellDecision::measure(group, BlockTask::Streams { size: MESSAGE })
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

/// Whole numbers from `least` to `most`, for readers of factors.
pub(crate) fn parse_whole_number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match text.trim_end_matches('%').parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("it takes a whole number from {least} to {most}")),
    }
}

/// A factor's level as a number of any width; its least value where there is none.
pub(crate) fn level_number<N: TryFrom<i64> + Default>(factors: &Factors, name: &str) -> N {
    factors.int(name).and_then(|number| N::try_from(number).ok()).unwrap_or_default()
}

/// Streams at once.
pub(crate) const STREAMS: Factor = Factor {
    name: "streams",
    meaning: "TCP connections at once, with a thread each at both ends",
    domain: FactorDomain::Parsed(&LevelParser {
        parse: |text| parse_whole_number(text, 1, STREAMS_MAX).map(Into::into),
        describe: || format!("a number from 1 to {STREAMS_MAX}"),
    }),
    levels: |_| numbers(&[1]),
    applies: always,
    fit: keep_levels,
    labels: &[],
};

/// More threads than that only wait for each other.
const STREAMS_MAX: u64 = 64;
