//! `host.coalescing`: what receiving in batches gives, and what it costs the single message.
//!
//! Over a virtual Ethernet whose devices take no more than a packet at a time, so that there is something to
//! join. Left out: a device's interrupt timer, which a virtual Ethernet has not; the packets that a user-level
//! stack takes at a time, which `stack.replay` and the mirrors have as they are.

use plumb_host::harness::spec::{DeviceOptions, PathSpec, SocketOptions, Task, Wire};
use plumb_host::local::mechanism::{Mechanism, Wake};

use super::bulk::{self, APART, CONTROL, RECEIVER_CPU, SENDER_CPU, STREAMED};
use super::factor::{Domain, Factor, always, keep, words};
use super::latency::LATENCY;
use super::path::VETH;
use super::{Experiment, Form, local, path, remote};

/// Throughput and latency against batching at the receiver.
pub static HOST_COALESCING: Experiment = Experiment {
    id: "host.coalescing",
    study: "gigabit",
    question: "What does it give, and what does it cost, to receive in batches?",
    hypothesis: "Joined packets and fewer wake-ups carry more for the same CPU; a single message is \
                 the later for them, except where its receiver asks instead of sleeping.",
    factors: &[RECEIVE, APART, CONTROL],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU, LATENCY],
    form: |setting| {
        if let Err(exclusion) =
            path::as_devices_are("switch it with 'ethtool -K DEVICE gro on|off'")
        {
            return Form::Excluded(exclusion);
        }
        let receive = setting.factors.text(RECEIVE.name).unwrap_or("each");
        let busy_poll_us = (receive == "busy-poll").then_some(BUSY_POLL_US);
        let path = veth(matches!(receive, "joined" | "busy-poll"));
        let set = |options: &mut SocketOptions| options.busy_poll_us = busy_poll_us;
        if setting.response == LATENCY.name {
            if receive == "low-water" {
                return Form::impossible(
                    "a message shorter than the low-water mark waits until others have filled it",
                );
            }
            let group = remote::over(setting, Mechanism::Tcp4, path, set);
            return Form::of(group, Task::Latency { size: SMALL });
        }
        let mut spec = bulk::spec(setting, Some(path));
        set(&mut spec.options);
        spec.low_water = (receive == "low-water").then_some(LOW_WATER);
        bulk::form(local::place(setting, Wake::Block), Ok(spec))
    },
};

/// Bytes of the message whose latency is measured.
const SMALL: u64 = 64;
/// Microseconds that a receiver asks before it sleeps: the value that net.core.busy_read is advised to have
/// (Documentation/admin-guide/sysctl/net.rst).
const BUSY_POLL_US: u32 = 50;
/// Bytes that must wait before a receiver is woken: half a message.
const LOW_WATER: u32 = 32 << 10;

/// A virtual Ethernet that carries packets and nothing longer.
fn veth(coalescing: bool) -> PathSpec {
    PathSpec {
        name: format!("{VETH}, {}", if coalescing { "joined" } else { "each" }),
        wire: Wire::Veth,
        mtu: 1500,
        round_trip_ns: 0,
        rate: None,
        device: DeviceOptions { segmentation: Some(false), coalescing: Some(coalescing) },
    }
}

const RECEIVE: Factor = Factor {
    name: "receive",
    meaning: "how packets come in: each by itself, joined (GRO, in batches), the same and its receiver \
              asks for 50 µs before it sleeps, or each and the receiver is woken for 32 KiB",
    domain: Domain::Words(&LEVELS),
    levels: |_| words(&LEVELS),
    applies: always,
    fit: keep,
};

const LEVELS: [&str; 4] = ["each", "joined", "busy-poll", "low-water"];
