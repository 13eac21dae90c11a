//! `window.bdp`: what a window lets through a long fat pipe.
//!
//! The kernel's TCP over an emulated link, its receiver's window bounded and nothing else: buffers at
//! both sides never bound it first. Left out: what congestion controls do to each other.

use plumb_base::time::Span;
use plumb_base::units::quantity::{format_span, parse_span};
use plumb_host::harness::spec::Task;
use plumb_host::local::mechanism::Mechanism;
use plumb_store::record::Factors;

use super::factor::{Domain, Factor, Reader, always, keep, numbers, words};
use super::local::CONGESTION;
use super::remote::{self, NEAR_PLACEMENT};
use super::throughput::THROUGHPUT;
use super::{Experiment, Form, path};
use crate::plan::Preset;

/// Throughput against window, round trip and rate.
pub static WINDOW_BDP: Experiment = Experiment {
    id: "window.bdp",
    study: "gigabit",
    question: "How much of a link does a TCP window of this size fill?",
    hypothesis: "A steady transfer gets the smaller of the link's rate and one window a round \
                 trip: 64 KiB fill a short pipe and leave a long one almost empty.",
    factors: &[
        WINDOW,
        RTT,
        RATE,
        QUEUE,
        Factor {
            applies: always,
            levels: |preset| match preset {
                Preset::Quick => words(&["cubic"]),
                _ => words(&["reno", "cubic", "bbr"]),
            },
            ..CONGESTION
        },
        Factor { levels: |_| words(&["same-cpu"]), ..NEAR_PLACEMENT },
    ],
    responses: &[THROUGHPUT],
    form: |setting| {
        let factors = setting.factors;
        let (Some(rtt), Some(rate)) = (rtt_of(factors), factors.text(RATE.name)) else {
            return Form::impossible("no round trip or no rate is given");
        };
        let queue = factors.text(QUEUE.name).unwrap_or("1bdp");
        let text = format!("rate={rate},delay={},limit={queue}", format_span(rtt / 2));
        let name = format!("{rate} {}", format_span(rtt));
        let path = match path::link(&name, &text, 1500) {
            Ok(path) => path,
            Err(exclusion) => return Form::Excluded(exclusion),
        };
        let window = factors.int(WINDOW.name).and_then(|bytes| u64::try_from(bytes).ok());
        let interval = (rtt * INTERVAL_ROUND_TRIPS).max(INTERVAL_MIN);
        let task = Task::Steady { size: MESSAGE, interval_ns: interval.as_ns() };
        let group = remote::over(setting, Mechanism::Tcp4, path, |options| {
            options.window = window;
        });
        Form::of(group, task)
    },
};

/// What an application gives its socket at a time.
pub(crate) const MESSAGE: u64 = 4 << 10;

/// An interval holds many bursts: a window's bytes come once a round trip.
const INTERVAL_ROUND_TRIPS: u64 = 10;

/// And long enough that its last message weighs little.
pub(crate) const INTERVAL_MIN: Span = Span::from_ms(40);

const WINDOW: Factor = Factor {
    name: "window",
    meaning: "the most that the receiver offers; default leaves it to the kernel",
    domain: Domain::Buffers,
    levels: |preset| match preset {
        Preset::Quick => numbers(&[64 << 10, 4 << 20]),
        Preset::Default => numbers(&[8 << 10, 64 << 10, 512 << 10, 4 << 20]),
        Preset::Paper => {
            numbers(&[8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20])
        }
    },
    applies: always,
    fit: keep,
};

const RTT: Factor = Factor {
    name: "rtt",
    meaning: "delay of the link there and back",
    domain: Domain::Read(&Reader {
        parse: |text| match parse_span(text) {
            Ok(span) if span > Span::ZERO => Ok(format_span(span).as_str().into()),
            Ok(_) => Err("a round trip takes some time: write it like 20ms".to_owned()),
            Err(error) => Err(error.to_string()),
        },
        describe: || "a length of time such as 20ms".to_owned(),
    }),
    levels: |preset| match preset {
        Preset::Quick => words(&["1ms", "20ms"]),
        Preset::Default => words(&["1ms", "20ms", "100ms"]),
        Preset::Paper => words(&["100us", "1ms", "10ms", "20ms", "50ms", "100ms", "300ms"]),
    },
    applies: always,
    fit: keep,
};

const RATE: Factor = Factor {
    meaning: "rate of the link, Ethernet's header counted",
    levels: |preset| match preset {
        Preset::Quick => words(&["100mbit"]),
        Preset::Default => words(&["10mbit", "100mbit"]),
        Preset::Paper => words(&["10mbit", "100mbit", "1gbit"]),
    },
    ..path::RATE
};

const QUEUE: Factor = Factor {
    name: "queue",
    meaning: "room of the link's queue, in products of its rate and its round trip",
    domain: Domain::Words(&["0.25bdp", "0.5bdp", "1bdp", "2bdp"]),
    levels: |_| words(&["1bdp"]),
    applies: always,
    fit: keep,
};

fn rtt_of(factors: &Factors) -> Option<Span> {
    factors.text(RTT.name).and_then(|text| parse_span(text).ok())
}
