//! `stack.replay`: frames from memory through a stack and back, without network and kernel: the better
//! method that Kjellerstedt (1997) proposed.

use plumb_base::units::Unit;
use plumb_host::harness::spec::{MirrorDevice, MirrorSpec, MirrorStack, Subject, Task, Turn};
use plumb_host::local::mechanism::Wake;
use plumb_host::topology::Placement;
use plumb_store::record::Better;

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::mirror::STACK;
use super::{Experiment, Form, LaunchGroup, Response};

/// Nanoseconds a packet, by where it turns round and what is summed.
pub static REPLAY: Experiment = Experiment {
    id: "stack.replay",
    study: "stack",
    question: "How long does a stack need for a packet when nothing else is in its way?",
    hypothesis: "plumb's stack mirrors a short frame in under 100 ns, twice as fast as smoltcp's; \
                 leaving the checksum out shortens the time significantly for long frames, and one \
                 pass for copy and sum beats two.",
    factors: &[
        STACK,
        Factor {
            name: "turn",
            meaning: "where a packet turns round, and what is summed",
            domain: Domain::Words(&TURNS),
            levels: |_| words(&TURNS),
            applies: |first| first.text("stack") == Some("plumb"),
            fit: keep,
        },
        Factor {
            name: "cache",
            meaning: "whether a packet's payload is in the caches when it comes",
            domain: Domain::Words(&["warm", "cold"]),
            levels: |_| words(&["warm", "cold"]),
            applies: |first| first.text("stack") == Some("plumb"),
            fit: keep,
        },
        Factor {
            name: "frame",
            meaning: "frame size in bytes, Ethernet header included",
            domain: Domain::Sizes,
            levels: |_| numbers(&[60, 1514, LONGEST]),
            applies: always,
            fit: |first, levels| match first.text("stack") {
                // smoltcp's shape here has Ethernet's MTU.
                Some("smoltcp") => levels.into_iter().filter(|l| *l != LONGEST.into()).collect(),
                _ => levels,
            },
        },
    ],
    responses: &[Response {
        name: "packet",
        unit: Unit::Nanoseconds,
        better: Better::Lower,
        meaning: "time of one packet, from a batch of them",
    }],
    form: |setting| {
        let factors = setting.factors;
        let stack = factors.text("stack").and_then(MirrorStack::from_name);
        let Some(stack @ (MirrorStack::Plumb | MirrorStack::Smoltcp)) = stack else {
            return Form::Meaningless;
        };
        let mirror = MirrorSpec {
            stack,
            device: MirrorDevice::Memory,
            ipv6: false,
            wake: Wake::Spin,
            turn: turn(factors.text("turn").unwrap_or("udp")),
            offloads: false,
            contended: false,
            batch: 64,
        };
        let frame = factors.int("frame").and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        if !(60..=LONGEST).contains(&frame) {
            return Form::impossible(format!("a frame has 60 to {LONGEST} bytes, not {frame}"));
        }
        let cold = factors.text("cache") == Some("cold");
        let placement = Placement::SameCpu;
        let group = LaunchGroup { subject: Subject::Mirror(mirror), placement, cpu: None };
        Form::Measure { group, task: Task::Replay { frame, cold } }
    },
};

/// The longest IPv4 datagram in an Ethernet frame without limit.
const LONGEST: u64 = 14 + 65_535;

const TURNS: [&str; 6] = ["udp", "udp-unsummed", "fused", "separate", "copied-unsummed", "swap"];

fn turn(name: &str) -> Turn {
    match name {
        "udp-unsummed" => Turn::UdpUnsummed,
        "fused" => Turn::Fused,
        "separate" => Turn::Separate,
        "copied-unsummed" => Turn::CopiedUnsummed,
        "swap" => Turn::Swap,
        _ => Turn::Udp,
    }
}
