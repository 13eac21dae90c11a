//! What TCP costs: plumb's stack, smoltcp's and Linux's at the same tasks in the same program. `make race-tcp` runs it.
//!
//! Every launch is a process that does one task and prints one JSON object. A program of its own, not part of plumb.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use plumb_wire::ethernet::MacAddr;

mod application;
mod connections;
mod memory;
mod smoltcp_host;
mod tap;

use application::SocketApi;
use connections::Spread;
use memory::{BareCopies, BulkTransfer, PlumbPair, SmoltcpPair};
use tap::BulkDirection;

const USAGE: &str = "usage: plumb-race-tcp TASK [--stack plumb|smoltcp|linux|iperf3|copies] [--api in-place|slices] [--buffer BYTES] [--seconds N]
    [--cpus NEAR,FAR] [--count N] [--spread hot|uniform] [--segments N]
  memory     a bulk transfer between two hosts in one thread
  up         a bulk transfer from a stack on a TAP to Linux, or over a veth from Linux
  down       the same from Linux
  exchange   round trips of 64 bytes from Linux to the stack and back
  connections  segments of 64 bytes and their acknowledgements on one or any of so many connections in memory";

/// Where a server listens.
const PORT: u16 = 5_301;

/// Bytes that are compared before the time is taken.
const CHECKED: u64 = 64 << 20;

/// Turns between two looks at the clock.
const TURNS: usize = 16;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostSide {
    /// Who opens.
    Near,
    /// Who listens.
    Far,
}

impl HostSide {
    const BOTH: [Self; 2] = [Self::Near, Self::Far];

    const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }

    const fn mac(self) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, self as u8 + 1])
    }

    const fn ip(self) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, self as u8 + 1)
    }
}

/// Whose TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RacedStack {
    Plumb,
    Smoltcp,
    Linux,
    /// Linux's, with iperf3 as the application of both ends.
    Iperf3,
    /// No stack: what copies alone take.
    Copies,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct RaceOptions {
    stack: RacedStack,
    api: SocketApi,
    /// Bytes of each of a connection's buffers.
    buffer: usize,
    seconds: f64,
    /// Where Linux's side of a TAP runs, and where the stack's does.
    cpus: (u32, u32),
    /// Connections, on which of them segments are sent, and how many; for so long where that is not said.
    count: u32,
    spread: Spread,
    segments: Option<u64>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(answer) => {
            #[expect(clippy::print_stdout, reason = "its answer")]
            {
                println!("{answer}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "why there is none")]
            {
                eprintln!("plumb-race-tcp: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<serde_json::Value> {
    let (task, rest) = arguments.split_first().context(USAGE)?;
    let options = parse(rest)?;
    match task.as_str() {
        "memory" => bulk_in_memory(&options),
        "up" => bulk_over_device(BulkDirection::Up, &options),
        "down" => bulk_over_device(BulkDirection::Down, &options),
        "exchange" if options.stack == RacedStack::Iperf3 => bail!("iperf3 has no exchanges"),
        "exchange" => tap::exchange(&options),
        "connections" => connections::measure(&options),
        _ => bail!("there is no task {task}\n{USAGE}"),
    }
}

fn bulk_over_device(
    direction: BulkDirection,
    options: &RaceOptions,
) -> anyhow::Result<serde_json::Value> {
    match options.stack {
        RacedStack::Iperf3 => tap::iperf3(direction, options),
        _ => tap::bulk(direction, options),
    }
}

fn parse(arguments: &[String]) -> anyhow::Result<RaceOptions> {
    let mut options = RaceOptions {
        stack: RacedStack::Plumb,
        api: SocketApi::InPlace,
        buffer: 256 << 10,
        seconds: 1.0,
        cpus: (0, 0),
        count: 10,
        spread: Spread::Hot,
        segments: None,
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { bail!("{pair:?} needs a value\n{USAGE}") };
        match (name.as_str(), value.as_str()) {
            ("--stack", "plumb") => options.stack = RacedStack::Plumb,
            ("--stack", "smoltcp") => options.stack = RacedStack::Smoltcp,
            ("--stack", "copies") => options.stack = RacedStack::Copies,
            ("--stack", "linux") => options.stack = RacedStack::Linux,
            ("--stack", "iperf3") => options.stack = RacedStack::Iperf3,
            ("--cpus", cpus) => {
                let (near, far) = cpus.split_once(',').context("--cpus has two numbers")?;
                options.cpus = (near.parse().context("--cpus")?, far.parse().context("--cpus")?);
            }
            ("--count", count) => options.count = count.parse().context("--count")?,
            ("--spread", "hot") => options.spread = Spread::Hot,
            ("--spread", "uniform") => options.spread = Spread::Uniform,
            ("--segments", count) => options.segments = Some(count.parse().context("--segments")?),
            ("--api", "in-place") => options.api = SocketApi::InPlace,
            ("--api", "slices") => options.api = SocketApi::Slices,
            ("--buffer", bytes) => options.buffer = bytes.parse().context("--buffer")?,
            ("--seconds", seconds) => options.seconds = seconds.parse().context("--seconds")?,
            _ => bail!("there is no option {name} {value}\n{USAGE}"),
        }
    }
    Ok(options)
}

fn bulk_in_memory(options: &RaceOptions) -> anyhow::Result<serde_json::Value> {
    let (bytes, ns) = match options.stack {
        RacedStack::Plumb => transfer(PlumbPair::new(options), options),
        RacedStack::Smoltcp => transfer(SmoltcpPair::new(options), options),
        RacedStack::Copies => transfer(BareCopies::new(), options),
        RacedStack::Linux | RacedStack::Iperf3 => {
            bail!("Linux's stack is not in memory: up or down")
        }
    };
    Ok(serde_json::json!({ "bytes_per_second": bytes as f64 / (ns as f64 * 1e-9) }))
}

/// Bytes received, and nanoseconds.
fn transfer(mut pair: impl BulkTransfer, options: &RaceOptions) -> (u64, u64) {
    let (mut source, mut sink) = application::stream(options.buffer, true);
    while sink.received < CHECKED {
        pair.turn(&mut source, &mut sink);
    }
    sink.stop_checking();
    let (first, begun) = (sink.received, plumb_clock::monotonic_ns());
    loop {
        for _ in 0..TURNS {
            pair.turn(&mut source, &mut sink);
        }
        let passed = plumb_clock::monotonic_ns() - begun;
        if passed as f64 >= options.seconds * 1e9 {
            return (sink.received - first, passed);
        }
    }
}
