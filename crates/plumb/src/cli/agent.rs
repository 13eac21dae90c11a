//! `plumb agent`: the other side of `plumb net`, and of `plumb run --host`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use clap::{ArgGroup, Args};
use plumb_analysis::document::host::{AGENT_SCHEMA, AgentDocument};
use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_base::units::quantity::{parse_duration, parse_rate};
use plumb_harness::supervisor::LaunchService;
use plumb_interop::http;
use plumb_interop::http::server::{HttpServer, HttpServerLimits};
use plumb_net::service::LoadService;
use plumb_remote::agent::MeasurementAgent;
use plumb_remote::control_stream::ControlStream;
use plumb_remote::log_limit::LogLimit;
use plumb_remote::secure::admission::AdmissionRefusal;
use plumb_remote::secure::{
    self, ListenerEvent, ListenerLimits, PairingToken, SecureListener, SecureStream, SessionService,
};
use plumb_remote::service::{AgentLimits, TaskService};
use plumb_remote::session::SessionTiming;

use crate::VERSION;
use crate::cli::output::{CliOutput, CommandError};
use crate::cli::stamp::StampReflectorOptions;
use crate::net::{address, paired_agent};
use crate::problem::{ExitReason, Problem};

/// Modes without tests, and so without limits of tests.
const MODES_WITHOUT_TESTS: [&str; 3] = ["http", "stamp", "forward"];
/// Modes that are not a daemon.
const MODES_NOT_LISTENING: [&str; 4] = ["stdio", "http", "stamp", "forward"];
/// Lines a minute about connections that came to nothing, which anybody can make.
const FAILURES_PER_MINUTE: u32 = 20;
/// Lines a minute about sessions and pairings.
const SESSION_LINES_PER_MINUTE: u32 = 120;
/// How long a daemon keeps a report for a client that went away.
const REPORT_RETENTION: Span = Span::from_secs(300);

/// The other side of 'plumb net': started by it over ssh, or by hand
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("mode")))]
#[command(override_usage = "plumb agent <--stdio|--listen|--http|--stamp|--iperf3> [OPTIONS]")]
#[command(after_help = "\
'plumb net user@host' starts this on the other host by itself. Data is accepted on a port of its own, for as
long as a test lasts, and only with the test's token.

Examples:
  ssh host plumb agent --stdio           what 'plumb net host' does
  plumb agent --listen --pair            a daemon, with a token for 'plumb net HOST --pair TOKEN'
  plumb agent --listen 192.0.2.7         the daemon again, for paired hosts
  plumb agent --http 0.0.0.0             the page for 'plumb net --http HOST'
  plumb agent --stamp 0.0.0.0:8620       a reflector for 'plumb net --stamp HOST:8620'
  plumb agent --iperf3 --help            a server for iperf3's clients, with options of its own
  plumb net --via 'docker exec -i box plumb agent --stdio' 172.17.0.2")]
pub struct AgentCommand {
    /// Serve one client over standard input and output; ends with them
    #[arg(long, group = "mode")]
    stdio: bool,
    /// Be a daemon over mutual TLS, for paired hosts [default: every address, port 8479]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "")]
    #[arg(group = "mode")]
    listen: Option<String>,
    /// Allow one pairing: print a token that is valid once, for ten minutes
    #[arg(long, requires = "listen", conflicts_with_all = MODES_NOT_LISTENING)]
    pair: bool,
    /// Be a web server with one page and its images [default: 127.0.0.1:8480]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "")]
    #[arg(group = "mode")]
    http: Option<String>,
    /// Connect standard input and output to an agent that listens elsewhere
    #[arg(long, value_name = "HOST", group = "mode", hide = true)]
    forward: Option<String>,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    pub(super) stamp: StampReflectorOptions,
}

/// Limits of an agent.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Highest rate of a test in each direction: 100mbit [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    #[arg(conflicts_with_all = MODES_WITHOUT_TESTS)]
    max_bitrate: Option<Rate>,
    /// Longest test
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    #[arg(conflicts_with_all = MODES_WITHOUT_TESTS)]
    max_time: Span,
    /// Most streams of one test in each direction
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    #[arg(conflicts_with_all = MODES_WITHOUT_TESTS)]
    max_streams: u16,
    /// Most clients of a daemon at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    #[arg(requires = "listen", conflicts_with_all = MODES_NOT_LISTENING)]
    max_clients: u16,
    /// Most tests of a daemon at a time
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    #[arg(requires = "listen", conflicts_with_all = MODES_NOT_LISTENING, conflicts_with = "data_port")]
    max_tests: u16,
    /// Accept data at this port, UDP also at those after it; allows one test at a time [default: any port]
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    #[arg(conflicts_with_all = MODES_WITHOUT_TESTS)]
    data_port: u16,
}

impl LimitOptions {
    /// The limits of a daemon.
    fn for_daemon(&self) -> AgentLimits {
        AgentLimits {
            clients_max: self.max_clients.into(),
            tests_max: if self.data_port == 0 { self.max_tests.into() } else { 1 },
            report_retention: REPORT_RETENTION,
            ..self.for_stdio()
        }
    }

    /// Those of an agent whose only client started it: nobody can come back to that process.
    fn for_stdio(&self) -> AgentLimits {
        AgentLimits {
            rate_max: self.max_bitrate.map(|rate| rate.bits_per_second().div_ceil(8)),
            duration_max: self.max_time,
            streams_max: self.max_streams,
            clients_max: 1,
            tests_max: 1,
            report_retention: Span::ZERO,
            data_port: self.data_port,
            ..AgentLimits::default()
        }
    }
}

impl AgentCommand {
    /// Serves.
    ///
    /// # Errors
    /// The session ended before its time.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        if let Some(place) = &self.http {
            return serve_http(place, output);
        }
        if let Some(place) = self.stamp.listen_address() {
            return self.stamp.perform(place, output);
        }
        if let Some(host) = &self.forward {
            return forward(host);
        }
        if let Some(place) = &self.listen {
            let place = address::parse(place, address::any(secure::DEFAULT_PORT))?;
            let limits =
                AgentLimits { data_address: single_address(place), ..self.limits.for_daemon() };
            let agent =
                MeasurementAgent::new(VERSION, limits, SessionTiming::default(), daemon_services());
            let clients = self.limits.max_clients.into();
            return listen(place, self.pair, clients, agent, output);
        }
        if !self.stdio {
            return Err(Problem::usage("the mode of the agent is missing")
                .fix("choose one of --stdio, --listen, --http, --stamp and --iperf3")
                .into());
        }
        let agent = MeasurementAgent::new(
            VERSION,
            self.limits.for_stdio(),
            SessionTiming::default(),
            stdio_services(),
        );
        agent
            .serve(ControlStream::from_stdio())
            .map_err(|error| Problem::failed(format!("the agent's session ended {error}")))?;
        Ok(ExitReason::Success)
    }
}

/// The address that data is taken at, where a daemon listens at one alone. One of a single link is none without it.
fn single_address(place: SocketAddr) -> Option<IpAddr> {
    let is_linked = matches!(place, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local());
    Some(place.ip()).filter(|address| !address.is_unspecified() && !is_linked)
}

/// Serves sessions and says what happens.
struct AgentSessions<'a> {
    agent: Arc<MeasurementAgent>,
    output: &'a CliOutput,
    /// Apart, so that nobody who is not paired can hide what those do who are.
    failures: Mutex<LogLimit>,
    sessions: Mutex<LogLimit>,
}

impl SessionService for AgentSessions<'_> {
    fn serve(&self, stream: SecureStream, peer: &str) {
        let outcome = stream
            .into_stream(peer)
            .map_err(|error| error.to_string())
            .and_then(|stream| self.agent.serve(stream).map_err(|error| error.to_string()));
        if let Err(error) = outcome {
            self.say(&self.sessions, &format!("{peer}: {error}"));
        }
    }

    fn on_event(&self, event: &ListenerEvent) {
        let text = match event {
            ListenerEvent::Began { from, peer } => format!("{peer} connected from {from}"),
            ListenerEvent::Ended { from, peer } => format!("{peer} disconnected ({from})"),
            ListenerEvent::Paired { from, peer, fingerprint } => {
                format!("paired with {peer} from {from}, key {fingerprint}")
            }
            ListenerEvent::Refused { from, refusal } => match refusal {
                AdmissionRefusal::NotPaired { client } => {
                    format!("refused {from}: its key {client} is not paired")
                }
                refusal => format!("refused {from}: {refusal}"),
            },
            ListenerEvent::Failed { from, reason } => {
                format!("handshake with {from} failed: {reason}")
            }
            ListenerEvent::Rejected { from } => {
                format!("refused {from}: too many unauthenticated connections")
            }
        };
        let limit = match event {
            ListenerEvent::Began { .. }
            | ListenerEvent::Ended { .. }
            | ListenerEvent::Paired { .. } => &self.sessions,
            ListenerEvent::Refused { .. }
            | ListenerEvent::Failed { .. }
            | ListenerEvent::Rejected { .. } => &self.failures,
        };
        self.say(limit, &text);
    }
}

impl AgentSessions<'_> {
    fn say(&self, limit: &Mutex<LogLimit>, text: &str) {
        self.output.note_limited(&mut limit.lock().unwrap_or_else(PoisonError::into_inner), text);
    }
}

/// Listens on `address` until it is stopped, for so many clients at a time; with `pairs`, takes one pairing.
///
/// # Errors
/// The address is not to be had, or this host has no key.
fn listen(
    address: SocketAddr,
    pairs: bool,
    clients: usize,
    agent: Arc<MeasurementAgent>,
    output: &CliOutput,
) -> Result<ExitReason, CommandError> {
    let identity = paired_agent::identity()?;
    let listener = SecureListener::bind(
        address,
        &identity,
        paired_agent::peers()?,
        ListenerLimits::of_clients(clients),
    )
    .map_err(Problem::failed)?;
    let address = listener.address().map_err(Problem::failed)?;
    let token = pairs.then(PairingToken::generate).transpose().map_err(Problem::failed)?;
    let fingerprint = identity.fingerprint().to_string();
    let shown = token.as_ref().map(ToString::to_string);
    if let Some(token) = token {
        listener.open_pairing(token);
    }
    if output.json {
        output.document(&AgentDocument {
            schema: AGENT_SCHEMA.to_owned(),
            mode: "listen".to_owned(),
            address: address.to_string(),
            fingerprint,
            token: shown,
        })?;
    } else {
        let mut page = format!("Listening on {address} until Ctrl-C, with the key {fingerprint}\n");
        if let Some(token) = shown {
            let port = address.port();
            let host = if port == secure::DEFAULT_PORT {
                "HOST".to_owned()
            } else {
                format!("HOST:{port}")
            };
            page.push_str("Once, within ten minutes, on the other host:\n");
            page.extend(["  plumb net ", &host, " --pair ", &token, "\n"]);
        }
        output.page(&page)?;
    }
    plumb_harness::stop_signals::count_stop_requests().ok();
    let [failures, sessions] =
        [FAILURES_PER_MINUTE, SESSION_LINES_PER_MINUTE].map(|most| Mutex::new(LogLimit::new(most)));
    let sessions = AgentSessions { agent, output, failures, sessions };
    thread::scope(|scope| {
        let running = scope.spawn(|| listener.run(&sessions));
        // Signals interrupt this thread's wait, or are seen after it.
        while plumb_harness::stop_signals::stop_requests() == 0 && !running.is_finished() {
            thread::park_timeout(std::time::Duration::from_millis(100));
        }
        listener.stop();
        running.join().unwrap_or_else(|_| Err(io::Error::other("plumb has a bug")))
    })
    .map_err(Problem::failed)?;
    Ok(ExitReason::Success)
}

/// Serves on `place` until it is stopped.
///
/// # Errors
/// The address is not to be had, or this host has no key.
fn serve_http(place: &str, output: &CliOutput) -> Result<ExitReason, CommandError> {
    let default = SocketAddr::from(([127, 0, 0, 1], http::DEFAULT_PORT));
    let address = address::parse(place, default)?;
    let identity = paired_agent::identity()?;
    let server = HttpServer::bind(address, &identity, HttpServerLimits::default())
        .map_err(Problem::failed)?;
    let address = server.address().map_err(Problem::failed)?;
    let fingerprint = server.fingerprint().to_string();
    if output.json {
        output.document(&AgentDocument {
            schema: AGENT_SCHEMA.to_owned(),
            mode: "http".to_owned(),
            address: address.to_string(),
            fingerprint,
            token: None,
        })?;
    } else {
        output.page(&format!(
            "One page of 10 kB with 12 images of 40 kB, until Ctrl-C:\n  http://{address}/   HTTP/1.1 and \
             HTTP/2\n  https://{address}/  the same over TLS 1.3, and HTTP/3 over QUIC\n\
             Its certificate is {fingerprint}\nMeasure it:\n  plumb net --http {address}\n"
        ))?;
    }
    plumb_harness::stop_signals::count_stop_requests().ok();
    let counts = server.counts();
    server.run(|| plumb_harness::stop_signals::stop_requests() > 0).map_err(Problem::failed)?;
    let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    output.note(&format!(
        "served {} requests on {} connections; {} were refused, {} ended with an error",
        read(&counts.requests),
        read(&counts.connections),
        read(&counts.refused),
        read(&counts.failed),
    ));
    Ok(ExitReason::Success)
}

/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 64 << 10;

/// Passes on both directions until either ends.
///
/// # Errors
/// The agent is not there, or does not know this host.
fn forward(host: &str) -> Result<ExitReason, CommandError> {
    let (mut reader, mut writer, closer) = paired_agent::connect_to(host)?
        .split()
        .map_err(|error| paired_agent::lost(host, &error))?;
    // Ends with the process, which has nothing to do once the agent has said its last word.
    thread::spawn(move || {
        pass(&mut io::stdin().lock(), &mut writer).ok();
        closer.shutdown(Shutdown::Both).ok();
    });
    pass(&mut reader, &mut io::stdout().lock()).ok();
    Ok(ExitReason::Success)
}

fn pass(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                to.write_all(&piece[..len])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What a daemon does. Launches start processes, and are for whoever can log in here.
fn daemon_services() -> Vec<Box<dyn TaskService>> {
    vec![Box::new(LoadService)]
}

/// What an agent does for whoever started it.
fn stdio_services() -> Vec<Box<dyn TaskService>> {
    vec![Box::new(LoadService), Box::new(LaunchService)]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct ParsedAgentArgs {
        #[command(flatten)]
        agent: AgentCommand,
    }

    fn parse(words: &str) -> Result<AgentCommand, clap::Error> {
        let words = ["agent"].into_iter().chain(words.split_whitespace());
        ParsedAgentArgs::try_parse_from(words).map(|words| words.agent)
    }

    #[test]
    fn the_limits_of_a_daemon_are_what_is_given() {
        let limits = |words| parse(words).expect("it parses").limits.for_daemon();
        let usual = limits("--listen");
        assert_eq!((usual.clients_max, usual.tests_max), (16, 4));
        let given = limits("--listen --max-clients 40 --max-tests 9 --max-bitrate 8kbit");
        assert_eq!((given.clients_max, given.tests_max, given.rate_max), (40, 9, Some(1_000)));
        assert_eq!(limits("--listen --data-port 7000").tests_max, 1);
    }

    #[test]
    fn an_option_that_its_mode_does_not_know_is_refused() {
        for words in [
            "--http --max-bitrate 1mbit",
            "--http --data-port 7000",
            "--stamp --max-bitrate 1mbit",
            "--stamp --max-time 1s",
            "--stdio --pair",
            "--stdio --max-tests 2",
            "--stdio --max-clients 2",
            "--listen --data-port 7000 --max-tests 2",
            "--stdio --ptp",
            "--listen --max-rate-per-client 7",
            "--http --max-rate 7",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        for words in
            ["--stdio --max-bitrate 1mbit --data-port 7000", "--listen --pair --max-tests 2"]
        {
            assert!(parse(words).is_ok(), "{words}");
        }
    }
}
