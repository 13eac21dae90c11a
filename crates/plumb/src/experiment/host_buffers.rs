//! `host.buffers`: what larger socket buffers give.
//!
//! Both buffers of both sockets; left to the kernel, it makes them as large as it finds the connection needs.
//! Left out: windows, which are bounded by themselves (`super::window_bdp`).

use super::bulk::{self, APART, CONTROL, PLAIN_LINK, RECEIVER_CPU, SENDER_CPU, STREAMED};
use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::path::VETH;
use super::{Experiment, Form};
use crate::plan::Preset;

/// Throughput against socket buffers.
pub static HOST_BUFFERS: Experiment = Experiment {
    id: "host.buffers",
    study: "gigabit",
    question: "How much more does TCP carry with larger socket buffers?",
    hypothesis: "Too small a buffer makes both sides wait for each other; beyond what the connection \
                 needs a larger one gives nothing, and costs cache.",
    factors: &[Factor { levels: |_| words(&[VETH]), ..PLAIN_LINK }, BUFFER, APART, CONTROL],
    responses: &[STREAMED, SENDER_CPU, RECEIVER_CPU],
    form: |setting| {
        let bytes = setting.factors.int(BUFFER.name).and_then(|bytes| u64::try_from(bytes).ok());
        if bytes.is_some_and(|bytes| !(BUFFER_MIN..=BUFFER_MAX).contains(&bytes)) {
            return Form::impossible("a socket buffer has from 4 KiB to 64 MiB here");
        }
        bulk::over_link(setting, |spec| spec.options.buffer = bytes)
    },
};

/// Linux gives no less (SOCK_MIN_SNDBUF is half of it).
const BUFFER_MIN: u64 = 4 << 10;
/// More than any connection needs here.
const BUFFER_MAX: u64 = 64 << 20;

const BUFFER: Factor = Factor {
    name: "buffer",
    meaning: "send and receive buffer of both sockets; default is the kernel's own choice",
    domain: Domain::Buffers,
    levels: |preset| {
        let mut levels = match preset {
            Preset::Quick => numbers(&[16 << 10, 64 << 10, 512 << 10, 4 << 20]),
            Preset::Default => {
                numbers(&[16 << 10, 64 << 10, 256 << 10, 512 << 10, 2 << 20, 16 << 20])
            }
            Preset::Paper => numbers(&[
                16 << 10,
                32 << 10,
                64 << 10,
                128 << 10,
                256 << 10,
                512 << 10,
                1 << 20,
                2 << 20,
                4 << 20,
                8 << 20,
                16 << 20,
            ]),
        };
        levels.push("default".into());
        levels
    },
    applies: always,
    fit: keep,
};
