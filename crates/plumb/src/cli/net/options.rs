//! `plumb net`: options of phases, streams, datagrams, probes, and requests and responses.

use clap::{Args, ValueEnum};
use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_duration, parse_rate};
use plumb_base::units::{Rate, parse_bytes};
use plumb_net::measure::request_response::{PER_SECOND_MAX, RequestPacing};
use plumb_net::measure::test_spec::{RequestResponsePart, TransferDirection};
use plumb_net::measure::thread::ThreadPlacementPolicy;
use plumb_result::net::RequestTransport;

use crate::net::test_run::{DatagramLoad, NetTestPlan, ROUNDS_FOR_INTERVAL};

/// Default time limit of the path MTU search.
pub(super) const MTU_TIME_DEFAULT: Span = Span::from_secs(1);
/// Default duration of a direction.
const TIME_DEFAULT: Span = Span::from_secs(4);
/// Default time between two samples.
const INTERVAL_DEFAULT: Span = Span::from_ms(200);
/// Default probes a second, and those of one of several rounds.
const PROBES_DEFAULT: u32 = 200;
const ROUND_PROBES: u32 = 500;
/// Default rate of `-u`, as iperf3 has it.
const DATAGRAM_RATE: u64 = 1 << 20;
/// Default duration of the idle phase.
const IDLE_DEFAULT: Span = Span::from_secs(2);
/// Rounds of a measurement whose phases are not given: as many as an interval takes.
pub(super) const ROUNDS_DEFAULT: u32 = ROUNDS_FOR_INTERVAL;
/// The same of one of several rounds, which together take 15 s.
const ROUND_TIME: Span = Span::from_ms(500);
const ROUND_INTERVAL: Span = Span::from_ms(100);
/// So long that a p99 over six rounds is mostly bounded by its interval.
const ROUND_IDLE: Span = Span::from_ms(400);

/// How the CPUs of the data threads are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlacementOption {
    RxQueue,
    Scheduler,
}

impl From<PlacementOption> for ThreadPlacementPolicy {
    fn from(placement: PlacementOption) -> Self {
        match placement {
            PlacementOption::RxQueue => Self::Queue,
            PlacementOption::Scheduler => Self::Free,
        }
    }
}

/// Phases, streams, datagrams and probes.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub struct MeasureOptions {
    /// Duration of each direction in a round, or of the --stamp session [default: 500ms in each of six rounds, longer
    /// with long round trips; 4s in one round; 100 packets of --stamp]
    #[arg(long, short = 't', value_name = "TIME", value_parser = parse_duration)]
    pub(super) time: Option<Span>,
    /// Duration of the idle latency phase; 0s skips it [default: 400ms in each of several rounds, 2s in one]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    idle: Option<Span>,
    /// Warm-up, not counted [default: 1s, 200ms in each of six rounds, longer with long round trips; 0.5s for requests,
    /// none for --udp]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    warm_up: Option<Span>,
    /// Measure only these phases: idle first, then the directions in this order; 'both' is both at once
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    only: Vec<PhaseOption>,
    /// TCP connections per direction, one thread each up to the number of CPUs
    #[arg(long, short = 'P', value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,
    /// Congestion control algorithm of the senders [default: each host's own]
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Socket buffer size at both ends [default: tuned by the kernel]
    #[arg(long, short, value_name = "BYTES", value_parser = parse_bytes)]
    window: Option<u64>,
    /// Bytes per write and read
    #[arg(long, short, value_name = "BYTES", default_value = "128Ki", value_parser = parse_bytes)]
    length: u64,
    /// CPUs of the data threads: 'rx-queue' near the CPU of the flow's receive queue, if the device has queues;
    /// 'scheduler' as the kernel chooses. A thread with several connections is always placed by the scheduler
    #[arg(long, value_name = "BY", value_enum, default_value_t = PlacementOption::RxQueue)]
    cpu_placement: PlacementOption,
    /// Limit the sending rate: 100mbit [default: unlimited]
    #[arg(long, short = 'b', visible_alias = "bitrate", value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Only from the other host to this one: --only down
    #[arg(long, short = 'R', conflicts_with = "only")]
    reverse: bool,
    /// UDP datagrams, at the rate of -b or 1 Mb/s, from this host to the other one, as iperf3 has it; --udp RATE measures
    /// both directions
    #[arg(short = 'u', id = "datagrams", conflicts_with_all = ["streams", "congestion", "window", "udp"])]
    datagrams: bool,
    /// Send UDP datagrams at RATE instead of bulk TCP; count losses by place, late datagrams and duplicates
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    #[arg(conflicts_with_all = ["streams", "congestion", "window", "rate"])]
    udp: Option<Rate>,
    /// Payload bytes per datagram
    #[arg(long, value_name = "BYTES", default_value_t = 1_400, requires = "udp")]
    #[arg(value_parser = clap::value_parser!(u16).range(40..=65_507))]
    udp_size: u16,
    /// Time limit of the path MTU search: 30s without a value, 0s skips it [default: 1s; without probes 0s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "30s")]
    mtu: Option<Span>,
    /// Latency probes per second; 0 for none [default: 200; 500 in each of six brief rounds]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
    probes: Option<u32>,
    /// Payload bytes per probe
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(48..=9_000))]
    probe_size: u16,
    /// Time between two samples, or two packets of --stamp [default: 200ms; 20ms of --stamp]
    #[arg(long, short, value_name = "TIME", value_parser = parse_duration)]
    pub(super) interval: Option<Span>,
    /// How long to wait for data in flight at the end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    drain_timeout: Span,
    /// Measure everything N times in turn; six rounds or more have intervals [default: 6; 1 where phases or their
    /// durations are given]
    #[arg(long, alias = "repeat", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
    /// Print every phase in full after the summary
    #[arg(long)]
    pub(super) details: bool,
    /// Do not store the result
    #[arg(long)]
    pub(super) no_store: bool,
    /// Draw rates, latency and what limits either side, live; q ends it
    #[arg(long)]
    pub(super) watch: bool,
}

/// One phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PhaseOption {
    /// Latency without load.
    Idle,
    /// From the other host to this one.
    Down,
    /// From this host to the other one.
    Up,
    /// Both directions at once.
    Both,
}

impl PhaseOption {
    const fn direction(self) -> Option<TransferDirection> {
        match self {
            Self::Idle => None,
            Self::Down => Some(TransferDirection::Down),
            Self::Up => Some(TransferDirection::Up),
            Self::Both => Some(TransferDirection::Both),
        }
    }
}

impl MeasureOptions {
    /// The test plan of these options.
    pub fn test_plan(&self, exchanges: Vec<RequestResponsePart>) -> NetTestPlan {
        let only: &[PhaseOption] = match (self.reverse, self.datagrams) {
            (true, _) => &[PhaseOption::Down],
            (false, true) if self.only.is_empty() => &[PhaseOption::Up],
            _ => &self.only,
        };
        let all = only.is_empty() && exchanges.is_empty();
        let idle_too = all || only.contains(&PhaseOption::Idle);
        let mut directions: Vec<TransferDirection> =
            only.iter().filter_map(|only| only.direction()).collect();
        let default_rate = Rate::from_bits_per_second(DATAGRAM_RATE);
        let (rate, udp) =
            if self.datagrams { (None, self.rate.or(default_rate)) } else { (self.rate, self.udp) };
        if all {
            directions = vec![TransferDirection::Down, TransferDirection::Up];
        }
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let is_given = self.time.or(self.idle).or(self.warm_up).is_some();
        let is_usual = all && !is_given && udp.is_none() && !self.watch;
        let rounds = self.rounds.unwrap_or(if is_usual { ROUNDS_DEFAULT } else { 1 });
        let is_brief = is_usual && rounds > 1;
        let probes = self.probes.unwrap_or(if is_brief { ROUND_PROBES } else { PROBES_DEFAULT });
        let usual = |brief: Span, one: Span| if is_brief { brief } else { one };
        NetTestPlan {
            idle: match self.idle {
                _ if !idle_too => Span::ZERO,
                idle => idle.unwrap_or_else(|| usual(ROUND_IDLE, IDLE_DEFAULT)),
            },
            time: self.time.unwrap_or_else(|| usual(ROUND_TIME, TIME_DEFAULT)),
            warm_up: self.warm_up,
            interval: self.interval.unwrap_or_else(|| usual(ROUND_INTERVAL, INTERVAL_DEFAULT)),
            drain: self.drain_timeout,
            directions,
            exchanges,
            streams: self.streams,
            congestion: self.congestion.clone(),
            window_bytes: self.window.map(narrow),
            block_bytes: narrow(self.length),
            rate_bytes_per_second: rate.map(|rate| rate.bits_per_second().div_ceil(8)),
            mtu: self
                .mtu
                .or((probes > 0).then_some(MTU_TIME_DEFAULT))
                .filter(|&time| time > Span::ZERO),
            udp: udp.map(|rate| DatagramLoad {
                rate_bits_per_second: rate.bits_per_second(),
                datagram_bytes: self.udp_size,
            }),
            placement: self.cpu_placement.into(),
            probes_per_second: probes,
            probe_bytes: self.probe_size,
            rounds,
            is_brief,
        }
    }
}

/// Options of requests and responses.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Requests and responses")]
pub struct ExchangeOptions {
    /// Measure requests and responses over these, one phase each; other phases only if given with --only
    #[arg(long, alias = "rr", value_name = "TRANSPORTS", value_delimiter = ',')]
    request_response: Vec<TransportOption>,
    /// Bytes per request
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = parse_bytes)]
    #[arg(requires = "request_response")]
    request: u64,
    /// Bytes per response [default: as a request]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "request_response")]
    response: Option<u64>,
    /// Requests per second, evenly spaced, each timed from its due time [default: one after another]
    #[arg(long, value_name = "N", requires = "request_response")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(PER_SECOND_MAX)))]
    request_rate: Option<u32>,
    /// One connection per request: connect, send, close
    #[arg(long, requires = "request_response", conflicts_with = "request_rate")]
    connect_per_request: bool,
}

/// Transport of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportOption {
    /// TCP
    Tcp,
    /// UDP; without retransmission
    Udp,
    /// TLS 1.3 over TCP
    Tls,
    /// QUIC
    Quic,
}

impl TransportOption {
    const fn transport(self) -> RequestTransport {
        match self {
            Self::Tcp => RequestTransport::Tcp,
            Self::Udp => RequestTransport::Udp,
            Self::Tls => RequestTransport::Tls,
            Self::Quic => RequestTransport::Quic,
        }
    }
}

impl ExchangeOptions {
    /// The requested parts, one phase each.
    pub fn parts(&self) -> Vec<RequestResponsePart> {
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let pacing = match self.request_rate {
            _ if self.connect_per_request => RequestPacing::Connect,
            Some(per_second) => RequestPacing::Open { per_second },
            None => RequestPacing::Closed,
        };
        let part = |over: &TransportOption| RequestResponsePart {
            transport: over.transport(),
            request_bytes: narrow(self.request),
            response_bytes: narrow(self.response.unwrap_or(self.request)),
            pacing,
        };
        self.request_response.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: MeasureOptions,
    }

    fn plan(line: &str) -> NetTestPlan {
        let words = ["net"].into_iter().chain(line.split_whitespace());
        CommandLine::try_parse_from(words).unwrap().options.test_plan(Vec::new())
    }

    #[test]
    fn six_brief_rounds_unless_phases_are_given() {
        let usual = plan("");
        assert_eq!((usual.rounds, usual.is_brief), (6, true));
        assert_eq!((plan("--rounds 20").rounds, plan("--rounds 20").is_brief), (20, true));
        for given in ["-t 2", "--idle 1s", "--only down", "-R", "-u", "--udp 1mbit", "--watch"] {
            let plan = plan(given);
            assert_eq!((plan.rounds, plan.is_brief), (1, false), "{given}");
        }
        let long = plan("-t 2 --rounds 6");
        assert_eq!((long.time, long.rounds, long.is_brief), (Span::from_secs(2), 6, false));
    }

    #[test]
    fn options_that_hands_know_mean_what_they_mean_elsewhere() {
        assert_eq!(plan("-R").directions, [TransferDirection::Down]);
        assert_eq!(plan("-b 10M").rate_bytes_per_second, Some(1_250_000));
        let datagrams = plan("-u -b 10M");
        assert_eq!(datagrams.directions, [TransferDirection::Up]);
        assert_eq!(datagrams.udp.map(|paced| paced.rate_bits_per_second), Some(10_000_000));
        assert_eq!(datagrams.rate_bytes_per_second, None);
        assert_eq!(plan("-u").udp.map(|paced| paced.rate_bits_per_second), Some(1 << 20));
        assert_eq!(plan("-t 2 -i 0.5").interval, Span::from_ms(500));
    }
}
