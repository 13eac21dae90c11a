//! What experiments with a mirror have in common: their factors, and the round trip of a datagram that a
//! stack returns, seen from a client of the kernel's.
//!
//! After Kjellerstedt's UDPMirror and UDPSend (1997), whose short frame is Ethernet's shortest and
//! whose long one its longest.

use plumb_analysis::summary::MeasuredCell;
use plumb_harness::spec::{
    BlockTask, LaunchSubject, MirrorDevice, MirrorSpec, MirrorStack, MirrorTransport,
    TurnaroundPoint, WakeMode,
};
use plumb_harness::topology::CpuPlacement;
use plumb_store::record::{FactorLevel, Factors};

use super::PresetLevels::Numbers;
use super::{Factor, FactorDomain, channel, numbers, words};
use crate::definition::{CellDecision, DesignPoint, Exclusion, LaunchGroup, ResponseVariable};

/// Ethernet's shortest and longest frames, without their check sequence.
pub(crate) const FRAMES: [u64; 2] = [60, 1514];

/// Whose stack.
pub(crate) const STACK: Factor = Factor {
    // Of the kernel decoding another's frames there is one side only.
    fit: |first, levels| if first.text("kernel").is_some() { words(&["plumb"]) } else { levels },
    ..Factor::of_words("stack", "whose stack mirrors", &["linux", "plumb", "smoltcp"])
};

/// Through what.
pub(crate) const DEVICE: Factor = Factor {
    fit: |first, levels| match first.text("stack") {
        Some("linux") => words(&["veth"]),
        Some("plumb") => without(levels, "veth"),
        Some("smoltcp") => words(&["tap"]),
        _ => words(&["packet"]),
    },
    ..Factor::of_words(
        "device",
        "what the mirror's frames come through",
        &["veth", "tap", "packet", "xdp"],
    )
    .labelled(&[("packet", "packet socket"), ("xdp", "AF_XDP")])
};

/// How both sides wait.
pub(crate) const WAKE: Factor = Factor {
    fit: |first, levels| if first.text("kernel").is_some() { words(&["block"]) } else { levels },
    ..Factor::of_words("wake", "how client and mirror wait for the next frame", &["block", "spin"])
};

/// Frame size.
pub(crate) const FRAME: Factor = Factor {
    fit: |first, levels| if first.text("kernel").is_some() { numbers(&FRAMES) } else { levels },
    ..Factor::new(
        "frame",
        "frame size in bytes, Ethernet header included",
        FactorDomain::Sizes,
        Numbers(&[60, 128, 256, 512, 1024, 1514]),
    )
    .at_quick(Numbers(&FRAMES))
};

/// What carries the message.
pub(crate) const TRANSPORT: Factor = Factor {
    fit: |first, levels| match first.text("stack") {
        Some("smoltcp") => words(&["udp"]),
        _ => levels,
    },
    ..Factor::of_words(
        "transport",
        "whether a message is a datagram, or crosses on a TCP connection that the mirror opened",
        &["udp", "tcp"],
    )
    .labelled(&[("udp", "UDP"), ("tcp", "TCP")])
};

/// Whether a mirror's messages were datagrams, as those of 1997.
pub(crate) fn is_udp(cell: &MeasuredCell<'_>) -> bool {
    cell.text(TRANSPORT.name).is_none_or(|transport| transport == "udp")
}

/// A whole round trip.
pub(crate) const ROUND_TRIP: ResponseVariable =
    ResponseVariable::time("rtt", "round trip of a message, from the client's send to its receive");

fn without(levels: Vec<FactorLevel>, word: &str) -> Vec<FactorLevel> {
    levels.into_iter().filter(|level| *level != FactorLevel::from(word)).collect()
}

/// The mirror that a setting asks for, and where it runs.
pub(crate) fn spec(point: &DesignPoint<'_>) -> Result<(MirrorSpec, CpuPlacement), Exclusion> {
    // An experiment whose first factor is another still mirrors with plumb's stack unless told.
    let stack = point.text("stack").and_then(MirrorStack::from_name);
    let stack = stack.unwrap_or(MirrorStack::Plumb);
    let device = point.text("device").and_then(MirrorDevice::from_name);
    let device = device.unwrap_or(MirrorDevice::Memory);
    if (stack == MirrorStack::Linux) != (device == MirrorDevice::Veth) {
        return Err(Exclusion::impossible(format!(
            "the kernel's stack mirrors at the end of a veth, a user-level one through a device of \
             its own: {} over {} is neither",
            stack.name(),
            device.name()
        )));
    }
    let wake = point.text("wake").and_then(WakeMode::from_name).unwrap_or(WakeMode::Block);
    if wake == WakeMode::Spin && point.text("placement") == Some("same-cpu") {
        return Err(Exclusion::NotApplicable);
    }
    let placement = channel::placement_of(point, wake)?;
    let mirror = MirrorSpec {
        stack,
        device,
        ipv6: point.text("family") == Some("ipv6"),
        transport: point
            .text(TRANSPORT.name)
            .and_then(MirrorTransport::from_name)
            .unwrap_or_default(),
        wake,
        turnaround: TurnaroundPoint::Udp,
        offloads: point.text("checksum") == Some("offloaded"),
        contended: false,
        batch: 1,
        capture: None,
    };
    Ok((mirror, placement))
}

/// Bytes of a message's headers, Ethernet's included: of a datagram 14 + 20 + 8, or 14 + 40 + 8; of a segment with timestamps 24 more.
const fn headers(mirror: &MirrorSpec) -> u64 {
    let ip = if mirror.ipv6 { 40 } else { 20 };
    let transport = match mirror.transport {
        MirrorTransport::Udp => 8,
        MirrorTransport::Tcp => 32,
    };
    14 + ip + transport
}

/// The message's payload in a frame of the setting's size.
pub(crate) fn payload(factors: &Factors, mirror: &MirrorSpec) -> Result<u64, Exclusion> {
    let frame: u64 = channel::level_number(factors, "frame");
    let headers = headers(mirror);
    let shortest = headers + 8;
    if frame < shortest && (frame != 60 || shortest <= 60) {
        return Err(Exclusion::impossible(format!(
            "a frame of {frame} bytes does not hold the headers ({headers}) and a number of 8 bytes"
        )));
    }
    if frame > 1514 {
        return Err(Exclusion::impossible(format!(
            "a frame of {frame} bytes is longer than Ethernet's 1514"
        )));
    }
    // Ethernet's shortest frame is too short for IPv6 or TCP and a number: the shortest that is not.
    Ok(frame.max(shortest) - headers)
}

/// The round trip of the setting's frame through a mirror.
pub(crate) fn round_trip(
    point: &DesignPoint<'_>,
    mirror: MirrorSpec,
    placement: CpuPlacement,
) -> CellDecision {
    let size = payload(point.factors, &mirror)?;
    let group = LaunchGroup::new(LaunchSubject::Mirror(mirror), placement);
    Ok((group, BlockTask::RoundTrip { size }))
}
