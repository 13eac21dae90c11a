//! `scaling.loopback`, `scaling.lan` and `scaling.wan`: what a second of CPU carries within a machine, and over
//! networks of several rates and delays.
//!
//! Bytes for each second of the sender's CPU, because networks are filled by any processor and would hide it.
//! Left out: the processors that it is to be compared over, which are other machines' results.

use plumb_analysis::ladder::METROPOLITAN;

use super::bulk::{self, CONTROL, RECEIVER_CPU, SENDER_CPU, STREAMED};
use super::factor::{Domain, Factor, words};
use super::path::{LINK, LOOPBACK, VETH};
use super::remote::NEAR_PLACEMENT;
use super::{Experiment, Response};
use crate::plan::Preset;

/// A stream over local networks.
pub static SCALING_LAN: Experiment = Experiment {
    id: "scaling.lan",
    study: "scaling",
    question: "How much does a second of CPU carry over a local network?",
    hypothesis: "A slow network is filled whatever the processor; each byte costs its sender more CPU \
                 on a slower network, which wakes it for fewer bytes at a time.",
    factors: &[
        Factor {
            levels: |_| words(&["ethernet-10m", "lan-100m", "lan-1g", "lan-10g", VETH]),
            ..LINK
        },
        Factor { levels: |_| words(&["same-cpu"]), ..NEAR_PLACEMENT },
        CONTROL,
    ],
    responses: &RESPONSES,
    form: |setting| bulk::over_link(setting, |_| {}),
};

/// A stream over longer networks.
pub static SCALING_WAN: Experiment = Experiment {
    id: "scaling.wan",
    study: "scaling",
    question: "How much does a second of CPU carry over a metropolitan and a wide-area network?",
    hypothesis: "Delay costs no CPU: each byte costs as much as on a local network of the same rate.",
    factors: &[
        Factor {
            levels: |preset| match preset {
                Preset::Quick => words(&["lan-1g", METROPOLITAN, "transatlantic"]),
                _ => words(&["ethernet-10m", "lan-1g", METROPOLITAN, "transatlantic"]),
            },
            ..LINK
        },
        Factor { levels: |_| words(&["same-cpu"]), ..NEAR_PLACEMENT },
        CONTROL,
    ],
    responses: &RESPONSES,
    form: |setting| bulk::over_link(setting, |_| {}),
};

/// A stream within one machine.
pub static SCALING_LOOPBACK: Experiment = Experiment {
    id: "scaling.loopback",
    study: "scaling",
    question: "How much does TCP carry between two processes of one machine?",
    hypothesis: "It carries more the faster the processor is, but not as much more.",
    factors: &[
        Factor { domain: Domain::Words(&[LOOPBACK]), levels: |_| words(&[LOOPBACK]), ..LINK },
        Factor { levels: |_| words(&["same-cpu", "other-cpu"]), ..NEAR_PLACEMENT },
        CONTROL,
    ],
    responses: &RESPONSES,
    form: |setting| bulk::over_link(setting, |_| {}),
};

const RESPONSES: [Response; 3] = [STREAMED, SENDER_CPU, RECEIVER_CPU];
