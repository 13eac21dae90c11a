//! `plumb net`: what is between two hosts.
//!
//! Left out: the phases (`crate::net::course`), and the page (`plumb_report`).

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use plumb_analysis::document::net::{NetClocks, NetDocument, SCHEMA};
use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_rate, parse_span};
use plumb_base::units::rate::Rate;
use plumb_base::units::{Unit, parse_bytes};
use plumb_host::{clock, stop};
use plumb_net::client::Client;
use plumb_net::measure::live::Progress;
use plumb_net::measure::seat::Seating;
use plumb_net::measure::spec::{DatagramsSpec, Direction, ExchangePart};
use plumb_net::zone::zoned;
use plumb_report::terminal;

use super::output::{Failure, Output};
use super::{Global, VERSION};
use crate::net::course::{Measured, Paced, Wanted, Watcher};
use crate::net::place::{Family, Place, Way, choose, resolve, ssh_host};
use crate::net::reach::{Reached, of_client, reach};
use crate::net::{clocks, digest, install, record};
use crate::problem::{Exit, Problem};
use watch::{Seat, Watch};

pub mod exchange;
pub mod http;
mod kept;
pub mod pair;
pub mod stamp;
mod watch;

/// How long finding the path's MTU may take, unless it is said.
const MTU_USUAL: Span = Span::from_secs(1);

/// What is of measurements with an agent, and of nothing else.
const OF_AGENTS: [&str; 26] = [
    "via",
    "to",
    "install",
    "time",
    "idle",
    "warm_up",
    "only",
    "streams",
    "congestion",
    "window",
    "block",
    "seat",
    "rate",
    "udp",
    "udp_size",
    "mtu",
    "probes",
    "probe_size",
    "interval",
    "drain",
    "rounds",
    "watch",
    "exchange",
    "request",
    "response",
    "connect_each",
];

/// Measure what is between this host and another: rate, latency idle and under load, loss, and cost
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
HOST is what ssh takes: a name, user@host, an address with its zone, [address]:port for another port of ssh.
plumb must be there; --install copies it. netns:NAME is a network namespace of this host,
tls:host the agent that listens there, once paired. Data goes to the
host's own address, to a port that its agent opens for the test.

Examples:
  plumb net user@host                    15 s: rates, latency idle and under load, cost
  plumb net host --install               the same where plumb is not there yet
  plumb net host --streams 4 --only down
  plumb net host --exchange tcp,udp      requests and responses of 64 B, one after another
  plumb net host --udp 50mbit            paced datagrams: loss and where, reordering, jitter, delay each way
  plumb net host --watch                 the same, drawn as it goes; q ends it
  plumb net --via 'docker exec -i box plumb agent --stdio' 172.17.0.2
  plumb net host --pair TOKEN            once, with the token of 'plumb agent --listen --pair'
  plumb net tls:host                     then, with the agent that listens there
  plumb net --iperf3 --help              tests with iperf3's servers, with options of its own
  plumb net --http https://example.org/  a page and its images over every version of HTTP
  plumb net --stamp router               round trips and one-way delays with any STAMP reflector
  plumb net netns:blue --to 10.0.0.2 --json")]
pub struct Net {
    /// The other host
    #[arg(value_name = "HOST", required_unless_present_any = ["via", "show", "http", "stamp"])]
    host: Option<String>,
    /// Print a stored measurement with all of its evidence again: an id, 'last'; measures nothing
    #[arg(long, value_name = "RUN", conflicts_with_all = ["host", "via", "install"])]
    show: Option<String>,
    #[command(flatten)]
    reach: ReachOptions,
    #[command(flatten)]
    measure: MeasureOptions,
    /// Pair with the agent that listens on HOST, by the token that it printed
    #[arg(long, value_name = "TOKEN", requires = "host", help_heading = "Reaching it")]
    #[arg(conflicts_with_all = OF_AGENTS)]
    pair: Option<String>,
    #[command(flatten)]
    exchange: exchange::ExchangeOptions,
    #[command(flatten)]
    page: http::HttpOptions,
    #[command(flatten)]
    stamp: stamp::StampSender,
}

/// How the other host is reached.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reaching it")]
pub struct ReachOptions {
    /// The command that gives an agent's standard streams, instead of ssh
    #[arg(long, value_name = "CMD")]
    via: Option<String>,
    /// The address that data goes to, instead of the host's own
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Copy this plumb to ~/.cache/plumb there first
    #[arg(long)]
    install: bool,
    /// The ssh program with its options
    #[arg(long, value_name = "CMD", default_value = "ssh", env = "PLUMB_SSH")]
    ssh: String,
    /// IPv4 only
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
}

/// Who chooses the CPUs of the threads that move the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Threads {
    Queue,
    Free,
}

impl From<Threads> for Seating {
    fn from(seat: Threads) -> Self {
        match seat {
            Threads::Queue => Self::Queue,
            Threads::Free => Self::Free,
        }
    }
}

/// What is measured.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub struct MeasureOptions {
    /// How long each direction counts
    #[arg(long, short = 't', value_name = "TIME", default_value = "4s", value_parser = parse_span)]
    time: Span,
    /// How long latency is measured idle; 0s leaves it away
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = span_or_none)]
    idle: Span,
    /// Time before it counts [default: 1 s, more where the idle phase found a long round trip; 0.5 s of requests, none of --udp]
    #[arg(long, value_name = "TIME", value_parser = span_or_none)]
    warm_up: Option<Span>,
    /// Measure only these: idle first, then the directions in this order; 'both' is both at once
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    only: Vec<Only>,
    /// TCP connections a direction, a thread each as far as there are CPUs
    #[arg(long, short = 'P', value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,
    /// Congestion control of the senders [default: each host's own]
    #[arg(long, short = 'C', value_name = "NAME")]
    congestion: Option<String>,
    /// Socket buffers at both ends [default: the kernel tunes them]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    window: Option<u64>,
    /// Bytes of one write and of one read
    #[arg(long, value_name = "BYTES", default_value = "128Ki", value_parser = parse_bytes)]
    block: u64,
    /// CPUs of the connections' threads: 'queue' beside the one that serves the flow's receive queue, if the device has
    /// queues; 'free' as the scheduler likes. A thread that serves several connections is always free
    #[arg(long, value_name = "BY", value_enum, default_value_t = Threads::Queue)]
    seat: Threads,
    /// Send no faster: 100mbit [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Send datagrams of RATE instead of bulk TCP, and say which are lost, late or doubled, and where
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    #[arg(conflicts_with_all = ["streams", "congestion", "window", "rate"])]
    udp: Option<Rate>,
    /// Bytes of a datagram's data
    #[arg(long, value_name = "BYTES", default_value_t = 1_400, requires = "udp")]
    #[arg(value_parser = clap::value_parser!(u16).range(40..=65_507))]
    udp_size: u16,
    /// How long finding the longest packet that arrives there may take: 30s without a time, 0s leaves it away
    /// [default: 1s; without probes 0s]
    #[arg(long, value_name = "TIME", value_parser = span_or_none)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "30s")]
    mtu: Option<Span>,
    /// Latency probes a second; 0 for none
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000))]
    probes: u32,
    /// Bytes of a probe's data
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(48..=9_000))]
    probe_size: u16,
    /// Time between two readings of everything
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_span)]
    interval: Span,
    /// How long to wait for what is under way at the end
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_span)]
    drain: Span,
    /// Do all of it so often
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Store nothing
    #[arg(long)]
    no_store: bool,
    /// Draw it as it goes: rates, latency, and what either side waits for; q ends it
    #[arg(long)]
    watch: bool,
}

/// One phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// Latency without load.
    Idle,
    /// From there to here.
    Down,
    /// From here to there.
    Up,
    /// Both directions at once.
    Both,
}

impl Only {
    const fn direction(self) -> Option<Direction> {
        match self {
            Self::Idle => None,
            Self::Down => Some(Direction::Down),
            Self::Up => Some(Direction::Up),
            Self::Both => Some(Direction::Both),
        }
    }
}

fn span_or_none(text: &str) -> Result<Span, String> {
    if matches!(text, "0" | "0s") {
        return Ok(Span::ZERO);
    }
    parse_span(text).map_err(|error| error.to_string())
}

impl MeasureOptions {
    fn wanted(&self, exchanges: Vec<ExchangePart>) -> Wanted {
        let all = self.only.is_empty() && exchanges.is_empty();
        let idle_too = all || self.only.contains(&Only::Idle);
        let mut directions: Vec<Direction> =
            self.only.iter().filter_map(|only| only.direction()).collect();
        if all {
            directions = vec![Direction::Down, Direction::Up];
        }
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Wanted {
            idle: if idle_too { self.idle } else { Span::ZERO },
            time: self.time,
            warm_up: self.warm_up,
            interval: self.interval,
            drain: self.drain,
            directions,
            exchanges,
            streams: self.streams,
            congestion: self.congestion.clone(),
            window_bytes: self.window.map(narrow),
            block_bytes: narrow(self.block),
            rate_bytes_per_second: self.rate.map(|rate| rate.bits_per_second().div_ceil(8)),
            mtu: self
                .mtu
                .or((self.probes > 0).then_some(MTU_USUAL))
                .filter(|&time| time > Span::ZERO),
            udp: self.udp.map(|rate| Paced {
                rate_bits_per_second: rate.bits_per_second(),
                datagram_bytes: self.udp_size,
            }),
            seating: self.seat.into(),
            probes_per_second: self.probes,
            probe_bytes: self.probe_size,
            rounds: self.rounds,
        }
    }
}

impl Net {
    /// Measures, stores and prints.
    ///
    /// # Errors
    /// The host is not reached, or nothing could be measured.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        if let Some(run) = &self.show {
            return kept::show(run, global, output);
        }
        if let Some(page) = &self.page.http {
            self.alone("--http", page, "the page alone: plumb net --http URL")?;
            let keeping = (!self.measure.no_store).then_some(global);
            return self.page.perform(page, self.family(), keeping, output);
        }
        if let Some(target) = self.stamp.target() {
            self.alone("--stamp", target, "the reflector alone: plumb net --stamp HOST")?;
            return self.stamp.perform(target, self.family(), output);
        }
        if let (Some(token), Some(host)) = (&self.pair, &self.host) {
            let host = host.strip_prefix("tls:").unwrap_or(host);
            return pair::pair(host, self.family(), token, output);
        }
        self.between_hosts(global, output)
    }

    /// What has a target of its own goes nowhere else.
    fn alone(&self, option: &str, target: &str, instead: &str) -> Result<(), Problem> {
        let Some(host) = &self.host else { return Ok(()) };
        let why = format!("both '{host}' and {option} {target} are named");
        Err(Problem::usage(why).fix(format!("name {instead}")))
    }

    /// What is measured, where it makes sense.
    fn wanted(&self) -> Result<Wanted, Problem> {
        let wanted = self.measure.wanted(self.exchange.parts());
        if wanted.is_empty() {
            return Err(Problem::usage("nothing is left to measure")
                .fix("leave --only, --idle or --probes away"));
        }
        if wanted.udp.is_some() && wanted.directions.is_empty() {
            return Err(Problem::usage("--udp is of a direction, and none is to be measured")
                .because(
                    "with --exchange or --only, directions are measured where --only names them",
                )
                .fix("add --only down,up, or leave --udp away"));
        }
        let rates = DatagramsSpec::RATE_MIN..=DatagramsSpec::RATE_MAX;
        if wanted.udp.is_some_and(|paced| !rates.contains(&paced.rate_bits_per_second)) {
            return Err(Problem::usage("no test sends datagrams at that rate")
                .fix("give --udp a rate from 1kbit to 400gbit"));
        }
        wanted.check().map_err(|error| Problem::from_message(&error, Exit::Usage))?;
        if self.measure.watch {
            watch::check()?;
        }
        Ok(wanted)
    }

    /// Measures with an agent.
    fn between_hosts(&self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        let place = Place::parse(self.host.as_deref(), self.reach.via.as_deref())?;
        let ssh: Vec<String> = self.reach.ssh.split_whitespace().map(str::to_owned).collect();
        let wanted = self.wanted()?;
        let seat = self.measure.watch.then(Seat::take);
        // A name that nobody knows is said before anything is started.
        let address = self.address(&place, &ssh)?;
        if self.reach.install {
            install::install(&place, &ssh)?;
            output.remark(&format!("copied plumb {VERSION} to {}", place.asked));
        }
        let mut reached = reach(&place, &ssh, VERSION)?;
        let address = match address {
            Some(address) => address,
            None => self.agents_own(&reached.client, &place)?,
        };
        let estimate = wanted.estimate();
        let seconds = estimate.as_secs_f64().ceil();
        let title = format!("{} at {}", place.asked, zoned(address));
        // Longer than usual is mostly not needed.
        let search = wanted.mtu.filter(|&time| time > MTU_USUAL).map_or_else(String::new, |time| {
            format!(", with up to {time} to find the longest packet")
        });
        output.remark(&format!("{title}: about {seconds:.0} s{search}"));
        let created_unix_ms = clock::unix_ms();
        let began_ns = clock::monotonic_ns();
        let stoppable = stop::listen().is_ok();
        let is_stopped = || stoppable && stop::requests() > 0;
        let mut again = || reach(&place, &ssh, VERSION);
        let (measured, note) = if let Some(seat) = seat {
            let mut watch = Watch::start(title, seat, output.style_stderr)?;
            let asked = watch.asked();
            let is_stopped = || is_stopped() || asked.load(Ordering::Relaxed);
            let measured =
                wanted.measure(&mut reached, address, &mut again, &mut watch, &is_stopped);
            (measured, Some(watch.note.clone()))
        } else {
            let mut teller = Teller { output };
            let measured =
                wanted.measure(&mut reached, address, &mut again, &mut teller, &is_stopped);
            teller.finish();
            (measured, None)
        };
        let mut document = document(&place, address, &reached, &measured);
        document.flags.extend(note);
        reached.leave();
        document.created_unix_ms = created_unix_ms;
        document.seconds = Span::from_ns(clock::monotonic_ns() - began_ns).as_secs_f64();
        self.tell(document, &measured, global, output)
    }

    /// Stores and prints what was measured.
    fn tell(
        &self,
        mut document: NetDocument,
        measured: &Measured,
        global: &Global,
        output: &Output,
    ) -> Result<Exit, Failure> {
        let error = measured.error.as_ref().map(of_client);
        if measured.is_empty() {
            return Err(error.unwrap_or_else(|| Problem::trouble("nothing was measured")).into());
        }
        // What cannot be stored is printed nevertheless.
        let stored = if self.measure.no_store {
            Ok(())
        } else {
            let run = |header, document: &NetDocument| record::run(header, document, measured);
            kept::keep(global, output, &mut document, run)
        };
        let printed = print(&document, error, output);
        stored?;
        printed
    }

    /// The address that data goes to, where it is known before the agent is asked.
    fn address(&self, place: &Place, ssh: &[String]) -> Result<Option<SocketAddr>, Problem> {
        let family = self.family();
        let name = match (&self.reach.to, &place.way, &self.host) {
            (Some(to), ..) => to.clone(),
            (None, Way::Ssh { target, .. }, _) => ssh_host(ssh, target),
            (None, Way::Via(_), Some(host)) => host.clone(),
            (None, Way::Paired(host), _) => crate::cli::agent::address::host_and_port(host, 0)?.0,
            (None, Way::Via(_) | Way::Namespace(_), _) => return Ok(None),
        };
        resolve(&name, family).map(Some)
    }

    /// One of the addresses that the agent says it has.
    fn agents_own(&self, client: &Client, place: &Place) -> Result<SocketAddr, Problem> {
        let addresses = &client.welcome().addresses;
        choose(addresses, self.family()).ok_or_else(|| {
            Problem::trouble(format!("no address of '{}' is reached from here", place.asked))
                .because(format!("it says that it has: {}", addresses.join(", ")))
                .fix("name one with --to")
        })
    }

    const fn family(&self) -> Family {
        match (self.reach.ipv4, self.reach.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

fn document(
    place: &Place,
    address: SocketAddr,
    reached: &Reached,
    measured: &Measured,
) -> NetDocument {
    let estimate = clocks::estimate(&measured.phases);
    let estimate = estimate.as_ref();
    let phases: Vec<_> =
        measured.phases.iter().map(|phase| digest::phase(phase, estimate)).collect();
    let searched = measured.search.as_ref().map(|search| &search.outcome);
    let outcomes = || measured.phases.iter().map(|phase| &phase.outcome).chain(searched);
    let facts_here = outcomes().next().map(|outcome| outcome.here.host.clone());
    let facts_there = outcomes()
        .find_map(|outcome| outcome.there.as_ref().ok())
        .map(|report| report.host.clone());
    let (here, there) = (facts_here.unwrap_or_default(), facts_there.unwrap_or_default());
    let lost = measured.phases.iter().filter_map(|phase| phase.outcome.there.as_ref().err());
    let kept = if reached.client.welcome().kept_ns == 0 {
        "; it ended with that connection, and its report with it"
    } else {
        "; its report could not be fetched"
    };
    let mut problems: Vec<String> =
        lost.map(|error| format!("the agent was lost {error}{kept}")).collect();
    problems.extend(measured.phases.iter().flat_map(digest::broken));
    problems.extend(phases.iter().filter_map(digest::cut));
    let error = measured.error.as_ref().filter(|_| !measured.is_stopped());
    problems.extend(error.map(ToString::to_string));
    let ended = if measured.is_stopped() || phases.iter().any(|phase| phase.ended == "stopped") {
        "stopped"
    } else if !problems.is_empty() || phases.iter().any(|phase| phase.ended == "partial") {
        "partial"
    } else {
        "complete"
    };
    let same_machine = digest::is_same_machine(&here, &there);
    let mut document = NetDocument {
        schema: SCHEMA.to_owned(),
        asked: place.asked.clone(),
        address: zoned(address),
        ended: ended.to_owned(),
        problems,
        here: digest::host(&here, VERSION),
        there: digest::host(&there, &reached.client.welcome().program),
        same_machine,
        clocks: estimate.map(clocks::document).or_else(|| {
            clocks::are_same(&here, &there)
                .then(|| NetClocks { same: true, ..NetClocks::default() })
        }),
        mtu: measured.mtu.as_ref().map(digest::mtu),
        phases,
        ..NetDocument::default()
    };
    document.flags = digest::flags(&document);
    document.flags.extend(clocks::flags(&measured.phases, estimate));
    document.flags.extend(measured.phases.iter().filter_map(|phase| {
        let lost = phase.fetched.as_ref()?;
        Some(format!(
            "{}: the control connection was lost {lost}; the agent's report was fetched over another one",
            phase.name
        ))
    }));
    document
}

fn print(document: &NetDocument, error: Option<Problem>, output: &Output) -> Result<Exit, Failure> {
    if output.json {
        output.document(document)?;
    } else {
        output.page(&terminal::net::render(document, output.style))?;
    }
    if let Some(problem) = error.filter(|problem| problem.exit != Exit::Interrupted) {
        return Err(problem.into());
    }
    Ok(match document.ended.as_str() {
        "complete" => Exit::Fine,
        "stopped" => Exit::Interrupted,
        _ => Exit::Trouble,
    })
}

/// A line on standard error that says how far things are.
struct Teller<'a> {
    output: &'a Output,
}

impl Watcher for Teller<'_> {
    fn read(&mut self, name: &'static str, progress: &Progress, left: Span) {
        if !self.output.progress {
            return;
        }
        let now = Span::from_ns(progress.at_ns);
        let planned = Span::from_ns(progress.planned_ns);
        let left = (planned.saturating_sub(now) + left).as_secs_f64();
        let bytes = progress.up_bytes + progress.down_bytes;
        let rate = bytes as f64 / now.as_secs_f64().max(1e-3);
        let rate = if bytes > 0 {
            format!(", {}", Unit::BytesPerSecond.format(rate, 3))
        } else {
            String::new()
        };
        let at = now.as_secs_f64();
        let of = planned.as_secs_f64();
        self.output.draw_line(&format!("{name} {at:.1} of {of:.1} s{rate}, {left:.0} s left"));
    }
}

impl Teller<'_> {
    fn finish(&mut self) {
        if self.output.progress {
            self.output.erase_line();
        }
    }
}
