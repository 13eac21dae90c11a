//! `mirror.rtt` and `stack.contention`: the round trip of a datagram that a stack returns, seen from a
//! client of the kernel's; and what experiments with a mirror have in common.
//!
//! After Kjellerstedt's UDPMirror and UDPSend (1997), whose short frame is Ethernet's shortest and
//! whose long one its longest.

use plumb_base::units::Unit;
use plumb_host::harness::spec::{MirrorDevice, MirrorSpec, MirrorStack, Subject, Task, Turn};
use plumb_host::local::mechanism::Wake;
use plumb_store::record::{Better, Factors, Level};

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::local::{self, PLACEMENT};
use super::{Exclusion, Experiment, Form, LaunchGroup, Response, Setting};
use crate::plan::Preset;

/// Ethernet's shortest and longest frames, without their check sequence.
pub(crate) const FRAMES: [u64; 2] = [60, 1514];

/// The round trip against stacks, devices and ways of waiting.
pub static RTT: Experiment = Experiment {
    id: "mirror.rtt",
    study: "stack",
    question: "How long does a datagram take to a mirror and back, whose stack it crosses there?",
    hypothesis: "A stack in a user process needs no wake-up of a second layer and returns short and \
                 long frames sooner than the kernel's own mirror; in 1997 it needed 20 % longer for \
                 short frames and twice as long for long ones.",
    factors: &[STACK, DEVICE, CHECKSUM, PLACEMENT, WAKE, FRAME, FAMILY],
    responses: &[ROUND_TRIP],
    form: |setting| match spec(setting) {
        // Nothing finishes a checksum for AF_XDP, nor says that it is not finished.
        Ok((mirror, _)) if mirror.offloads && mirror.device == MirrorDevice::Xdp => {
            Form::Meaningless
        }
        Ok((mirror, placement)) => round_trip(setting, mirror, placement),
        Err(form) => *form,
    },
};

/// The same while the kernel decodes every frame too, as it did in 1997.
pub static CONTENTION: Experiment = Experiment {
    id: "stack.contention",
    study: "stack",
    question: "What does it cost a user-level stack that the kernel decodes the same frames?",
    hypothesis: "The two stacks fight for one processor: a mirror is slower when the kernel decodes \
                 every frame down to its address than when it drops them at its first look.",
    factors: &[CONTENDED, STACK, DEVICE, PLACEMENT, WAKE, FRAME],
    responses: &[ROUND_TRIP],
    form: |setting| {
        let contended = setting.factors.text("kernel") == Some("decodes");
        match spec(setting) {
            Ok((mirror, placement)) if mirror.device == MirrorDevice::Packet => {
                round_trip(setting, MirrorSpec { contended, ..mirror }, placement)
            }
            Ok(_) => Form::impossible("only a packet socket shares its frames with the kernel"),
            Err(form) => *form,
        }
    },
};

/// Whose stack.
pub(crate) const STACK: Factor = Factor {
    name: "stack",
    meaning: "whose stack mirrors",
    domain: Domain::Words(&["linux", "plumb", "smoltcp"]),
    levels: |_| words(&["linux", "plumb", "smoltcp"]),
    applies: always,
    // Of the kernel decoding another's frames there is one side only.
    fit: |first, levels| if first.text("kernel").is_some() { words(&["plumb"]) } else { levels },
};

/// Through what.
pub(crate) const DEVICE: Factor = Factor {
    name: "device",
    meaning: "what the mirror's frames come through",
    domain: Domain::Words(&["veth", "tap", "packet", "xdp"]),
    levels: |_| words(&["veth", "tap", "packet", "xdp"]),
    applies: always,
    fit: |first, levels| match first.text("stack") {
        Some("linux") => words(&["veth"]),
        Some("plumb") => without(levels, "veth"),
        Some("smoltcp") => words(&["tap"]),
        _ => words(&["packet"]),
    },
};

/// How both sides wait.
pub(crate) const WAKE: Factor = Factor {
    name: "wake",
    meaning: "how client and mirror wait for the next frame",
    domain: Domain::Words(&["block", "spin"]),
    levels: |_| words(&["block", "spin"]),
    applies: always,
    fit: |first, levels| if first.text("kernel").is_some() { words(&["block"]) } else { levels },
};

/// Frame size.
pub(crate) const FRAME: Factor = Factor {
    name: "frame",
    meaning: "frame size in bytes, Ethernet header included",
    domain: Domain::Sizes,
    levels: |preset| match preset {
        Preset::Quick => numbers(&FRAMES),
        _ => numbers(&[60, 128, 256, 512, 1024, 1514]),
    },
    applies: always,
    fit: |first, levels| if first.text("kernel").is_some() { numbers(&FRAMES) } else { levels },
};

/// Who sums.
const CHECKSUM: Factor = Factor {
    name: "checksum",
    meaning: "whether checksums are computed and verified, or left open between devices of one host",
    domain: Domain::Words(&["computed", "offloaded"]),
    levels: |_| words(&["computed", "offloaded"]),
    applies: always,
    fit: |first, levels| match first.text("stack") {
        Some("smoltcp") => words(&["computed"]),
        _ => levels,
    },
};

const FAMILY: Factor = Factor {
    name: "family",
    meaning: "which Internet protocol",
    domain: Domain::Words(&["ipv4", "ipv6"]),
    levels: |preset| match preset {
        Preset::Quick => words(&["ipv4"]),
        _ => words(&["ipv4", "ipv6"]),
    },
    applies: always,
    fit: keep,
};

const CONTENDED: Factor = Factor {
    name: "kernel",
    meaning: "what the kernel does with the frames that a packet socket sees",
    domain: Domain::Words(&["drops", "decodes"]),
    levels: |_| words(&["drops", "decodes"]),
    applies: always,
    fit: keep,
};

/// A whole round trip.
pub(crate) const ROUND_TRIP: Response = Response {
    name: "rtt",
    unit: Unit::Nanoseconds,
    better: Better::Lower,
    meaning: "round trip of a datagram, from the client's send to its receive",
};

fn without(levels: Vec<Level>, word: &str) -> Vec<Level> {
    levels.into_iter().filter(|level| *level != Level::from(word)).collect()
}

/// The mirror that a setting asks for, and where it runs; or what becomes of the cell instead.
pub(crate) fn spec(
    setting: &Setting<'_>,
) -> Result<(MirrorSpec, plumb_host::topology::Placement), Box<Form>> {
    let factors = setting.factors;
    // An experiment whose first factor is another still mirrors with plumb's stack unless told.
    let stack =
        factors.text("stack").and_then(MirrorStack::from_name).unwrap_or(MirrorStack::Plumb);
    let device = factors.text("device").and_then(MirrorDevice::from_name);
    let device = device.unwrap_or(MirrorDevice::Memory);
    if (stack == MirrorStack::Linux) != (device == MirrorDevice::Veth) {
        return Err(Box::new(Form::impossible(format!(
            "the kernel's stack mirrors at the end of a veth, a user-level one through a device of \
             its own: {} over {} is neither",
            stack.name(),
            device.name()
        ))));
    }
    let wake = factors.text("wake").and_then(Wake::from_name).unwrap_or(Wake::Block);
    if wake == Wake::Spin && factors.text("placement") == Some("same-cpu") {
        return Err(Box::new(Form::Meaningless));
    }
    let placement =
        local::place(setting, wake).map_err(|exclusion| Box::new(Form::Excluded(exclusion)))?;
    let ipv6 = factors.text("family") == Some("ipv6");
    let offloads = factors.text("checksum") == Some("offloaded");
    let mirror = MirrorSpec {
        stack,
        device,
        ipv6,
        wake,
        turn: Turn::Udp,
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

fn round_trip(
    setting: &Setting<'_>,
    mirror: MirrorSpec,
    placement: plumb_host::topology::Placement,
) -> Form {
    match payload(setting.factors, mirror.ipv6) {
        Ok(size) => Form::Measure {
            group: LaunchGroup { subject: Subject::Mirror(mirror), placement, cpu: None },
            task: Task::RoundTrip { size },
        },
        Err(exclusion) => Form::Excluded(exclusion),
    }
}
