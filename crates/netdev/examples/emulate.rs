//! What a link really does on this machine, seen by sockets of Linux at both its ends: how exact its
//! delay and its rate are, and how much it carries. `make race-link` runs it, and its peers beside it.
//!
//! The driver has the last CPU to itself, the application the first. Each line that it prints is a JSON
//! object.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example prints, and may give up")]

use std::str::FromStr;

use plumb_netdev::emulator::TimerPrecision;

#[path = "emulate/bed.rs"]
mod bed;
#[path = "emulate/measure.rs"]
mod measure;
#[path = "emulate/steal.rs"]
mod steal;

use bed::{BenchBed, BenchWire};

const USAGE: &str = "usage: emulate MEASURE --wire tap|tap-plain|packet|xdp|tbf|none|bare [--precision busy|hybrid|timer]
    [--rate BITS] [--delay MICROSECONDS] [--limit 1MB|64p|1bdp] [--seconds N] [--size BYTES] [--load SHARE]
    [--congestion NAME] [--window BYTES] [--burst SEGMENTS] [--acknowledge each]
  delay      one-way delay error of datagrams that load a link of --rate to --load; over `bare`,
             how late a thread is that only spins
  rate       what a link of --rate carries when it is offered more
  datagrams  most datagrams that cross
  stream     most of a TCP stream that crosses";

/// What is measured, and over what.
#[derive(Clone, Debug)]
pub(crate) struct BenchTask {
    pub(crate) wire: BenchWire,
    pub(crate) precision: TimerPrecision,
    /// Bits a second; absent: no limit.
    pub(crate) rate: Option<u64>,
    pub(crate) delay_us: u64,
    /// What may wait, as a link's text says it.
    pub(crate) limit: String,
    pub(crate) seconds: f64,
    /// Bytes of a datagram's payload.
    pub(crate) size: usize,
    /// Share of the rate that is offered.
    pub(crate) load: f64,
    /// The largest window that the receiver of a stream offers.
    pub(crate) window: Option<i32>,
    /// How TCP shall behave, where not as the kernel does by default.
    pub(crate) congestion: Option<String>,
    /// Most segments that Linux hands to the device at once.
    pub(crate) burst: Option<u32>,
    /// Whether the receiver of a stream acknowledges each segment at once.
    pub(crate) acknowledges_each: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((measure, rest)) = arguments.split_first() else { return println!("{USAGE}") };
    let task = parse(rest);
    if task.wire == BenchWire::Bare {
        return measure::bare(&task);
    }
    let bed = BenchBed::new(&task);
    let mut delays = None;
    match measure.as_str() {
        "delay" => delays = Some(measure::delay(&bed, &task)),
        "rate" => measure::rate(&bed, &task),
        "datagrams" => measure::datagrams(&bed, &task),
        "stream" => measure::stream(&bed, &task),
        _ => println!("{USAGE}"),
    }
    let left = bed.end();
    if let Some(delays) = delays {
        let taken = left.as_ref().map_or(&[][..], |left| &left.taken);
        measure::print_delay(&task, &delays, taken);
    }
    if let Some(left) = left {
        left.print(measure, &task);
    }
}

fn parse(arguments: &[String]) -> BenchTask {
    let mut task = BenchTask {
        wire: BenchWire::Tap,
        precision: TimerPrecision::Busy,
        rate: None,
        delay_us: 0,
        limit: "1MB".to_owned(),
        seconds: 2.0,
        size: 1_472,
        load: 0.5,
        window: None,
        congestion: None,
        burst: None,
        acknowledges_each: false,
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { panic!("{pair:?} needs a value\n{USAGE}") };
        match name.as_str() {
            "--wire" => task.wire = BenchWire::named(value),
            "--precision" => {
                task.precision = match value.as_str() {
                    "timer" => TimerPrecision::Timer,
                    "hybrid" => TimerPrecision::Hybrid { spin: None },
                    _ => TimerPrecision::Busy,
                }
            }
            "--rate" => task.rate = Some(number(value)),
            "--delay" => task.delay_us = number(value),
            "--limit" => task.limit.clone_from(value),
            "--seconds" => task.seconds = number(value),
            "--size" => task.size = number(value),
            "--load" => task.load = number(value),
            "--window" => task.window = Some(number(value)),
            "--acknowledge" => task.acknowledges_each = value == "each",
            "--burst" => task.burst = Some(number(value)),
            "--congestion" => task.congestion = Some(value.clone()),
            _ => panic!("there is no option {name}\n{USAGE}"),
        }
    }
    task
}

fn number<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is not a number in range\n{USAGE}"))
}
