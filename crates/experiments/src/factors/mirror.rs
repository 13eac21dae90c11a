//! `mirror.rtt` and `stack.contention`: the round trip of a datagram that a stack returns, seen from a
//! client of the kernel's; and what experiments with a mirror have in common.
//!
//! After Kjellerstedt's UDPMirror and UDPSend (1997), whose short frame is Ethernet's shortest and
//! whose long one its longest.

use plumb_base::units::Unit;
use plumb_harness::spec::WakeMode;
use plumb_harness::spec::{
    BlockTask, LaunchSubject, MirrorDevice, MirrorSpec, MirrorStack, TurnaroundPoint,
};
use plumb_store::record::{Better, FactorLevel, Factors};

use crate::definition::{CellDecision, DesignPoint, Exclusion, LaunchGroup, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, numbers, words};
use crate::factors::channel::{self};
use crate::preset::RunPreset;

/// Ethernet's shortest and longest frames, without their check sequence.
pub(crate) const FRAMES: [u64; 2] = [60, 1514];

/// Whose stack.
pub(crate) const STACK: Factor = Factor {
    name: "stack",
    meaning: "whose stack mirrors",
    domain: FactorDomain::Words(&["linux", "plumb", "smoltcp"]),
    levels: |_| words(&["linux", "plumb", "smoltcp"]),
    applies: always,
    // Of the kernel decoding another's frames there is one side only.
    fit: |first, levels| if first.text("kernel").is_some() { words(&["plumb"]) } else { levels },
    labels: &[],
};

/// Through what.
pub(crate) const DEVICE: Factor = Factor {
    name: "device",
    meaning: "what the mirror's frames come through",
    domain: FactorDomain::Words(&["veth", "tap", "packet", "xdp"]),
    levels: |_| words(&["veth", "tap", "packet", "xdp"]),
    applies: always,
    fit: |first, levels| match first.text("stack") {
        Some("linux") => words(&["veth"]),
        Some("plumb") => without(levels, "veth"),
        Some("smoltcp") => words(&["tap"]),
        _ => words(&["packet"]),
    },
    labels: &[("packet", "packet socket"), ("xdp", "AF_XDP")],
};

/// How both sides wait.
pub(crate) const WAKE: Factor = Factor {
    name: "wake",
    meaning: "how client and mirror wait for the next frame",
    domain: FactorDomain::Words(&["block", "spin"]),
    levels: |_| words(&["block", "spin"]),
    applies: always,
    fit: |first, levels| if first.text("kernel").is_some() { words(&["block"]) } else { levels },
    labels: &[],
};

/// Frame size.
pub(crate) const FRAME: Factor = Factor {
    name: "frame",
    meaning: "frame size in bytes, Ethernet header included",
    domain: FactorDomain::Sizes,
    levels: |context| match context.preset {
        RunPreset::Quick => numbers(&FRAMES),
        _ => numbers(&[60, 128, 256, 512, 1024, 1514]),
    },
    applies: always,
    fit: |first, levels| if first.text("kernel").is_some() { numbers(&FRAMES) } else { levels },
    labels: &[],
};

/// A whole round trip.
pub(crate) const ROUND_TRIP: ResponseVariable = ResponseVariable {
    name: "rtt",
    unit: Unit::Nanoseconds,
    better: Better::Lower,
    meaning: "round trip of a datagram, from the client's send to its receive",
};

fn without(levels: Vec<FactorLevel>, word: &str) -> Vec<FactorLevel> {
    levels.into_iter().filter(|level| *level != FactorLevel::from(word)).collect()
}

/// The mirror that a setting asks for, and where it runs; or what becomes of the cell instead.
pub(crate) fn spec(
    setting: &DesignPoint<'_>,
) -> Result<(MirrorSpec, plumb_harness::topology::CpuPlacement), Box<CellDecision>> {
    let factors = setting.factors;
    // An experiment whose first factor is another still mirrors with plumb's stack unless told.
    let stack =
        factors.text("stack").and_then(MirrorStack::from_name).unwrap_or(MirrorStack::Plumb);
    let device = factors.text("device").and_then(MirrorDevice::from_name);
    let device = device.unwrap_or(MirrorDevice::Memory);
    if (stack == MirrorStack::Linux) != (device == MirrorDevice::Veth) {
        return Err(Box::new(CellDecision::impossible(format!(
            "the kernel's stack mirrors at the end of a veth, a user-level one through a device of \
             its own: {} over {} is neither",
            stack.name(),
            device.name()
        ))));
    }
    let wake = factors.text("wake").and_then(WakeMode::from_name).unwrap_or(WakeMode::Block);
    if wake == WakeMode::Spin && factors.text("placement") == Some("same-cpu") {
        return Err(Box::new(CellDecision::NotApplicable));
    }
    let placement = channel::placement_of(setting, wake)
        .map_err(|exclusion| Box::new(CellDecision::Excluded(exclusion)))?;
    let ipv6 = factors.text("family") == Some("ipv6");
    let offloads = factors.text("checksum") == Some("offloaded");
    let mirror = MirrorSpec {
        stack,
        device,
        ipv6,
        wake,
        turnaround: TurnaroundPoint::Udp,
        offloads,
        contended: false,
        batch: 1,
    };
    Ok((mirror, placement))
}

/// Bytes of a datagram's headers, Ethernet's included: 14 + 20 + 8, or 14 + 40 + 8.
const fn headers(ipv6: bool) -> u64 {
    if ipv6 { 62 } else { 42 }
}

/// The datagram's payload in a frame of the setting's size.
pub(crate) fn payload(factors: &Factors, ipv6: bool) -> Result<u64, Exclusion> {
    let frame = factors.int("frame").and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let shortest = headers(ipv6) + 8;
    if frame < shortest && !(ipv6 && frame == 60) {
        return Err(Exclusion::Impossible(format!(
            "a frame of {frame} bytes does not hold the headers ({}) and a number of 8 bytes",
            headers(ipv6)
        )));
    }
    if frame > 1514 {
        return Err(Exclusion::Impossible(format!(
            "a frame of {frame} bytes is longer than Ethernet's 1514"
        )));
    }
    // Ethernet's shortest frame is too short for IPv6 and a number: the shortest that is not.
    Ok(frame.max(shortest) - headers(ipv6))
}

pub(crate) fn round_trip(
    setting: &DesignPoint<'_>,
    mirror: MirrorSpec,
    placement: plumb_harness::topology::CpuPlacement,
) -> CellDecision {
    match payload(setting.factors, mirror.ipv6) {
        Ok(size) => CellDecision::Measure {
            group: LaunchGroup { subject: LaunchSubject::Mirror(mirror), placement, cpu: None },
            task: BlockTask::RoundTrip { size },
        },
        Err(exclusion) => CellDecision::Excluded(exclusion),
    }
}
