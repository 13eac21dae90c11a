//! `mtu.path`: what becomes of jumbo packets on a path with a smaller hop, and of a small urgent packet
//! behind them.
//!
//! Over UDP, whose datagrams nobody cuts but IP, and over TCP, which cuts its own once it has learnt what
//! the path takes. Left out: what a host does that looks for it by itself (RFC 4821).

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
    hypothesis: "Jumbo packets arrive only where every hop takes them or may cut them, and then in \
                 pieces; TCP sends smaller ones where a hop tells it to, and hangs where none does; \
                 a small packet behind jumbos waits for as long as the slowest hop needs for their \
                 bytes.",
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
            name: "pieces",
            unit: Unit::Count,
            better: Better::Lower,
            meaning: "packets in which a datagram of this size arrives",
        },
        Response {
            name: "connected",
            unit: Unit::Share,
            better: Better::Higher,
            meaning: "share of TCP connections that carry a segment of this size and its answer",
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
        let over_tcp = setting.response == "connected";
        let headers = if over_tcp { HEADERS_TCP } else { HEADERS };
        let Some(payload) = packet.checked_sub(headers).filter(|_| packet <= JUMBO) else {
            return Form::impossible(format!("a packet has from {headers} to {JUMBO} bytes here"));
        };
        let is_cut = text("fragments") == "allowed";
        let task = match setting.response {
            "urgent" => {
                // Cutting and losing would mix two causes.
                if text(PATH.name) != "jumbo" || !is_cut {
                    return Form::Meaningless;
                }
                let count = u32::try_from(ahead).unwrap_or(u32::MAX);
                Task::Behind { size: URGENT, ahead: payload, count }
            }
            _ if ahead > 0 => return Form::Meaningless,
            // Nobody cuts where nothing is too long, and nothing arrives in a black hole either way.
            "connected" if is_cut && text(PATH.name) != "narrow" => return Form::Meaningless,
            "connected" => Task::Connected { size: payload },
            // What does not arrive has no pieces.
            "pieces" if text(PATH.name) == "black-hole" || !is_cut => return Form::Meaningless,
            "pieces" => Task::Pieces { size: payload },
            _ => Task::Answered { size: payload },
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
        let mechanism = if over_tcp { Mechanism::Tcp4 } else { Mechanism::Udp4 };
        match path::link(&name, &link, mtu) {
            Ok(path) => {
                let group = remote::over(setting, mechanism, path, |options| {
                    options.fragments = Some(is_cut);
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
/// Bytes of the headers of IPv4 and TCP, with the option of timestamps.
const HEADERS_TCP: u64 = 52;
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
