//! `mtu.path`: what becomes of jumbo packets on a path with a smaller hop, and of a small urgent packet
//! behind them.
//!
//! Over UDP, whose datagrams nobody cuts but IP. Left out: what TCP does about it.

use plumb_base::units::Unit;
use plumb_host::harness::spec::Task;
use plumb_host::local::mechanism::Mechanism;
use plumb_store::record::Better;

use super::factor::{Domain, Factor, always, keep, numbers, words};
use super::remote::{self, NEAR_PLACEMENT};
use super::{Experiment, Form, Response, path};
use crate::plan::Preset;

/// Delivery and blocking against packet size and what the path takes.
pub static MTU_PATH: Experiment = Experiment {
    id: "mtu.path",
    study: "gigabit",
    question: "What do jumbo packets cost on a path that they do not fit, and what those behind them?",
    hypothesis: "Jumbo packets arrive only where every hop takes them or may cut them; a small \
                 packet behind them waits for as long as the slowest hop needs for their bytes.",
    factors: &[
        PATH,
        Factor {
            name: "fragments",
            meaning: "whether routers may cut a packet: don't-fragment set or clear",
            domain: Domain::Words(&["forbidden", "allowed"]),
            levels: |_| words(&["forbidden", "allowed"]),
            applies: always,
            fit: keep,
        },
        PACKET,
        RATE,
        AHEAD,
        Factor { levels: |_| words(&["same-cpu"]), ..NEAR_PLACEMENT },
    ],
    responses: &[
        Response {
            name: "delivered",
            unit: Unit::Share,
            better: Better::Higher,
            meaning: "share of packets of this size that are answered in kind",
        },
        Response {
            name: "urgent",
            unit: Unit::Nanoseconds,
            better: Better::Lower,
            meaning: "round trip of a small packet sent right behind those ahead",
        },
    ],
    form: |setting| {
        let factors = setting.factors;
        let text = |name: &str| factors.text(name).unwrap_or_default();
        let number = |name: &str| {
            factors.int(name).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
        };
        let (packet, ahead) = (number(PACKET.name), number(AHEAD.name));
        let Some(payload) = packet.checked_sub(HEADERS).filter(|_| packet <= JUMBO) else {
            return Form::impossible(format!("a packet has from {HEADERS} to {JUMBO} bytes here"));
        };
        let task = if setting.response == "delivered" {
            if ahead > 0 {
                return Form::Meaningless;
            }
            Task::Answered { size: payload }
        } else {
            // Cutting and losing would mix two causes.
            if text(PATH.name) != "jumbo" || text("fragments") != "allowed" {
                return Form::Meaningless;
            }
            let count = u32::try_from(ahead).unwrap_or(u32::MAX);
            Task::Behind { size: URGENT, ahead: payload, count }
        };
        let narrow = match text(PATH.name) {
            "narrow" => "1500",
            "black-hole" => "1500/silent",
            _ => "9000",
        };
        let rate = text(RATE.name);
        let hop = |mtu: &str| format!("rate={rate},delay=100us,limit=256packets,mtu={mtu}");
        let link = format!("{};{}", hop("9000"), hop(narrow));
        let mtu = u32::try_from(JUMBO).unwrap_or(u32::MAX);
        let name = format!("{} {rate}", text(PATH.name));
        let fragments = text("fragments") == "allowed";
        match path::link(&name, &link, mtu) {
            Ok(path) => {
                let group = remote::over(setting, Mechanism::Udp4, path, |options| {
                    options.fragments = Some(fragments);
                });
                Form::of(group, task)
            }
            Err(exclusion) => Form::Excluded(exclusion),
        }
    },
};

/// The usual MTU of jumbo frames.
const JUMBO: u64 = 9_000;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;
/// Bytes of the urgent message.
const URGENT: u64 = 64;

const PATH: Factor = Factor {
    name: "path",
    meaning: "what the second hop takes: jumbo packets, 1500 bytes and tells, or 1500 and is silent",
    domain: Domain::Words(&["jumbo", "narrow", "black-hole"]),
    levels: |_| words(&["jumbo", "narrow", "black-hole"]),
    applies: always,
    fit: keep,
};

const PACKET: Factor = Factor {
    name: "packet",
    meaning: "bytes of a packet, IP's header included",
    domain: Domain::Sizes,
    levels: |preset| match preset {
        Preset::Quick => numbers(&[1_500, JUMBO]),
        _ => numbers(&[576, 1_500, 4_352, JUMBO]),
    },
    applies: always,
    fit: keep,
};

const RATE: Factor =
    Factor { meaning: "rate of both hops", levels: |_| words(&["10mbit", "1gbit"]), ..path::RATE };

const AHEAD: Factor = Factor {
    name: "ahead",
    meaning: "packets sent right before the urgent one",
    domain: Domain::UpTo(AHEAD_MAX),
    levels: |preset| match preset {
        Preset::Quick => numbers(&[0, 8]),
        _ => numbers(&[0, 1, 8]),
    },
    applies: always,
    fit: keep,
};

/// More would not fit the sender's buffer.
const AHEAD_MAX: u64 = 16;
