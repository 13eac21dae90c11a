//! What experiments over a channel between two processes have in common: their factors, and the
//! channel that a setting asks for.

use plumb_base::units::parse_bytes;
use plumb_harness::spec::{
    BlockTask, ChannelSpec, LaunchSubject, Mechanism, MessageShape, SocketOptions, WakeMode,
};
use plumb_harness::topology::CpuPlacement;
use plumb_store::record::{FactorLevel, Factors};

use super::PresetLevels::{Found, Numbers, Words};
use super::{Factor, FactorDomain, PresetLevels, link, numbers, words};
use crate::definition::{DesignPoint, Exclusion, LaunchGroup, ResponseVariable};

/// The ten message sizes of the local tables, in bytes (Zhao 2014).
pub const SIZES: [u64; 10] =
    [4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10];

/// Those of a first look, in which are all that a published statement is about.
const FEW_SIZES: PresetLevels = Numbers(&[16, 64, 1 << 10, 4 << 10, 64 << 10, 512 << 10]);

/// Half a round trip.
pub(crate) const LATENCY: ResponseVariable =
    ResponseVariable::time("latency", "half the round trip of a message echoed whole");

/// A long transfer.
pub(crate) const THROUGHPUT: ResponseVariable =
    ResponseVariable::rate("throughput", "a long transfer with one final one-byte acknowledgement");

/// Message by message.
pub(crate) const ACKED: ResponseVariable =
    ResponseVariable::rate("throughput.acked", "one message, one one-byte acknowledgement");

/// The mechanism, any of them.
pub(crate) const MECHANISM: Factor = Factor::new(
    "mechanism",
    "how the bytes cross",
    FactorDomain::Mechanisms(|_| true),
    Found(|_| Mechanism::ALL.map(|mechanism| mechanism.name().into()).to_vec()),
);

/// Where the two processes run.
pub(crate) const PLACEMENT: Factor = Factor::of_words(
    "placement",
    "where the two processes run; other-cpu is the best of the others here, own-host the first CPU of each of \
     two hosts",
    &[
        "same-cpu",
        "other-cpu",
        "smt",
        "same-cache",
        "same-socket",
        "other-socket",
        "scheduler",
        "own-host",
    ],
)
.at(Words(&["same-cpu", "other-cpu"]))
.at_paper(Words(&["same-cpu", "smt", "same-cache", "same-socket", "other-socket", "scheduler"]));

/// Those of the local tables: the scheduler's own choice, which is the paper's, where time allows.
pub(crate) const LOCAL_PLACEMENT: Factor = PLACEMENT
    .at(Words(&["same-cpu", "other-cpu", "scheduler"]))
    .at_quick(Words(&["same-cpu", "other-cpu"]))
    .at_paper(Words(&[
        "same-cpu",
        "smt",
        "same-cache",
        "same-socket",
        "other-socket",
        "scheduler",
    ]));

/// Placements of which the quick preset takes the one on two CPUs.
pub(crate) const ONE_OR_TWO_CPUS: Factor =
    PLACEMENT.at(Words(&["same-cpu", "other-cpu"])).at_quick(Words(&["other-cpu"]));

/// How a receiver waits.
pub(crate) const WAKE: Factor = Factor {
    fit: fit_wakes,
    ..Factor::of_words(
        "wake",
        "how a receiver waits for the next message",
        &["block", "poll", "epoll", "spin"],
    )
    .at(Words(&["block"]))
    .at_paper(Words(&["block", "poll", "epoll", "spin"]))
};

/// Receivers that block, where a mechanism can.
pub(crate) const BLOCK: Factor = WAKE.at(Words(&["block"]));

/// Message size.
pub(crate) const SIZE: Factor = Factor {
    fit: fit_sizes,
    ..Factor::new("size", "message size in bytes", FactorDomain::Sizes, Numbers(&SIZES))
};

/// Those of the local tables, which have every mechanism.
pub(crate) const LOCAL_SIZE: Factor = SIZE.at_quick(FEW_SIZES);

/// Congestion control, of TCP only: set explicitly, because the default differs between hosts.
pub(crate) const CONGESTION: Factor = Factor {
    applies: |first| mechanism_of(first).is_some_and(is_over_tcp),
    labels: &[
        ("bbr", "BBR"),
        ("cubic", "CUBIC"),
        ("newreno", "NewReno"),
        ("reno", "Reno"),
        ("vegas", "Vegas"),
    ],
    ..Factor::new(
        "congestion",
        "TCP congestion control, set on every socket",
        FactorDomain::Congestion,
        Words(&["cubic"]),
    )
};

/// Whether the mechanism is a TCP connection.
pub(crate) fn is_tcp(mechanism: Mechanism) -> bool {
    matches!(
        mechanism,
        Mechanism::Tcp4
            | Mechanism::Tcp6
            | Mechanism::Sendfile
            | Mechanism::TcpZerocopy
            | Mechanism::Uring
    )
}

/// Whether a TCP connection carries it, alone or below a protocol.
fn is_over_tcp(mechanism: Mechanism) -> bool {
    use Mechanism::{Http1Tcp4, Http2Tcp4, TlsTcp4};
    is_tcp(mechanism) || matches!(mechanism, TlsTcp4 | Http1Tcp4 | Http2Tcp4)
}

/// The mechanism of a setting.
pub(crate) fn mechanism_of(factors: &Factors) -> Option<Mechanism> {
    factors.text("mechanism").and_then(Mechanism::from_name)
}

/// Of the preset's wake modes those that the mechanism has, or else its own first one.
fn fit_wakes(first: &Factors, levels: Vec<FactorLevel>) -> Vec<FactorLevel> {
    let Some(mechanism) = mechanism_of(first) else { return levels };
    let has = |level: &FactorLevel| {
        mechanism.wake_modes().iter().any(|w| *level == FactorLevel::from(w.name()))
    };
    let fitting: Vec<FactorLevel> = levels.into_iter().filter(has).collect();
    if fitting.is_empty() { words(&[mechanism.wake_modes()[0].name()]) } else { fitting }
}

/// The preset's sizes, or the one size of a mechanism that has only one.
fn fit_sizes(first: &Factors, levels: Vec<FactorLevel>) -> Vec<FactorLevel> {
    match mechanism_of(first).map(Mechanism::message_shape) {
        Some(MessageShape::Fixed(bytes)) => numbers(&[bytes]),
        _ => levels,
    }
}

/// The size of a setting in bytes; none is 0, which no mechanism accepts.
pub(crate) fn size_of(factors: &Factors) -> u64 {
    level_number(factors, "size")
}

/// A factor's level as a number of any width; 0 where there is none.
pub(crate) fn level_number<N: TryFrom<i64> + Default>(factors: &Factors, name: &str) -> N {
    factors.int(name).and_then(|number| N::try_from(number).ok()).unwrap_or_default()
}

/// The launch group that a setting asks for, with a size checked against its mechanism.
pub(crate) fn group(point: &DesignPoint<'_>) -> Result<LaunchGroup, Exclusion> {
    let factors = point.factors;
    let mechanism =
        mechanism_of(factors).ok_or_else(|| Exclusion::impossible("no mechanism is given"))?;
    let wake = factors.text("wake").and_then(WakeMode::from_name);
    let wake = wake.ok_or_else(|| Exclusion::impossible("no wake mode is given"))?;
    if !mechanism.wake_modes().contains(&wake) {
        let has: Vec<&str> = mechanism.wake_modes().iter().map(|w| w.name()).collect();
        return Err(Exclusion::impossible(format!(
            "{} has no wake mode '{}': it has {}",
            mechanism.name(),
            wake.name(),
            has.join(", ")
        )));
    }
    mechanism
        .check_size(size_of(factors))
        .map_err(|error| Exclusion::impossible(error.to_string()))?;
    let placement = placement_of(point, wake)?;
    let channel = ChannelSpec { mechanism, wake, options: options(factors, mechanism) };
    Ok(LaunchGroup::new(LaunchSubject::Channel(channel), placement))
}

/// The transfer of a setting's response: a long one, or message by message.
pub(crate) fn transfer(point: &DesignPoint<'_>) -> BlockTask {
    let size = size_of(point.factors);
    if point.response == ACKED.name {
        BlockTask::ThroughputAcked { size }
    } else {
        BlockTask::Throughput { size }
    }
}

/// The placement of a setting, where this host has it.
pub(crate) fn placement_of(
    point: &DesignPoint<'_>,
    wake: WakeMode,
) -> Result<CpuPlacement, Exclusion> {
    let name = point.text("placement").unwrap_or("same-cpu");
    let Some(placement) = CpuPlacement::from_name(name) else {
        return Err(Exclusion::impossible(format!("there is no placement '{name}'")));
    };
    let is_apart = link::is_host(point.factors);
    let is_for_two = matches!(placement, CpuPlacement::OwnHost | CpuPlacement::Scheduler);
    if is_apart && !is_for_two {
        return Err(Exclusion::impossible(format!(
            "the CPUs of two hosts are no {name}: choose placement own-host or scheduler"
        )));
    }
    if !is_apart && placement == CpuPlacement::OwnHost {
        return Err(Exclusion::impossible(
            "both processes are on one host: own-host is for link=host alone",
        ));
    }
    if wake == WakeMode::Spin && placement == CpuPlacement::SameCpu {
        return Err(Exclusion::impossible(
            "two processes that spin on one CPU only wait for each other's time slice",
        ));
    }
    if wake == WakeMode::Spin && !is_apart && point.topology.allowed().len() < 2 {
        return Err(Exclusion::unavailable("spinning needs two CPUs, and one is allowed here"));
    }
    point.topology.resolve(placement).map_err(|lack| Exclusion::unavailable(lack.to_string()))
}

/// Prefix of a level of the factor `buffer` that sets one of the two buffers.
pub(crate) const SEND: &str = "send:";
pub(crate) const RECEIVE: &str = "receive:";

/// The size that a setting gives one of both buffers: a number is for both.
fn buffer_of(factors: &Factors, side: &str) -> Option<u64> {
    match factors.level("buffer")? {
        FactorLevel::Int(bytes) => u64::try_from(*bytes).ok(),
        FactorLevel::Text(level) => parse_bytes(level.strip_prefix(side)?).ok(),
    }
}

/// The socket options of a setting; what it does not name is plumb's default.
fn options(factors: &Factors, mechanism: Mechanism) -> SocketOptions {
    let is_on = |name| factors.text(name).map(|level| level == "on");
    let defaults = SocketOptions::default();
    SocketOptions {
        nodelay: is_on("nodelay").unwrap_or(defaults.nodelay),
        quickack: is_on("quickack").unwrap_or(defaults.quickack),
        send_buffer: buffer_of(factors, SEND),
        receive_buffer: buffer_of(factors, RECEIVE),
        congestion: factors
            .text("congestion")
            .filter(|_| is_over_tcp(mechanism))
            .map(str::to_owned),
        ..defaults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mechanism_over_tcp_is_given_its_congestion_control() {
        let over_tcp = Mechanism::ALL.iter().filter(|mechanism| mechanism.name().contains("tcp"));
        for mechanism in over_tcp {
            let factors =
                Factors::default().with("mechanism", mechanism.name()).with("congestion", "cubic");
            assert!((CONGESTION.applies)(&factors), "{}", mechanism.name());
            let given = options(&factors, *mechanism).congestion;
            assert_eq!(given.as_deref(), Some("cubic"), "{}", mechanism.name());
        }
    }
}
