//! `plumb agent`: the other side of `plumb net`.
//!
//! Left out: what it does (`plumb_net::agent`).

use std::net::{IpAddr, SocketAddr};

use clap::{ArgGroup, Args};
use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_rate, parse_span};
use plumb_base::units::rate::Rate;
use plumb_net::agent::{Agent as Server, Limits};
use plumb_net::protocol::session::Timing;
use plumb_net::transport::Stream;

use super::VERSION;
use super::output::{Failure, Output};
use crate::problem::{Exit, Problem};

pub mod address;
pub mod forward;
pub mod http;
pub mod listen;
pub mod stamp;

/// The modes that measure nothing between hosts, and so have no limits of tests.
const WITHOUT_TESTS: [&str; 3] = ["http", "stamp", "forward"];
/// The modes that nobody else can come to.
const NOT_LISTENING: [&str; 4] = ["stdio", "http", "stamp", "forward"];
/// How long a daemon keeps a report for a client that went away.
const KEPT: Span = Span::from_secs(300);

/// Be the other side of 'plumb net': started by it over ssh, or by hand
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("mode")))]
#[command(override_usage = "plumb agent <--stdio|--listen|--http|--stamp|--iperf3> [OPTIONS]")]
#[command(after_help = "\
'plumb net user@host' starts this on the other host by itself; nobody needs to type it. Data is taken on
a port of its own, for as long as a test lasts, and only from whoever shows the test's token.

Examples:
  ssh host plumb agent --stdio           what 'plumb net host' does
  plumb agent --listen --pair            a daemon, and a token for 'plumb net HOST --pair TOKEN'
  plumb agent --listen 192.0.2.7         the daemon again, for those that have been paired
  plumb agent --http 0.0.0.0             the page for 'plumb net --http HOST'
  plumb agent --stamp 0.0.0.0:8620       answers for 'plumb net --stamp HOST:8620'
  plumb agent --iperf3 --help            serves iperf3's clients, with options of its own
  plumb net --via 'docker exec -i box plumb agent --stdio' 172.17.0.2")]
pub struct Agent {
    /// Speak to whoever started it, over standard input and output; ends with them
    #[arg(long, group = "mode")]
    stdio: bool,
    /// Be a daemon, over mutual TLS, for hosts that have been paired [default: every address, port 8479]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "")]
    #[arg(group = "mode")]
    listen: Option<String>,
    /// Take one pairing: print a token that is good once, for ten minutes
    #[arg(long, requires = "listen", conflicts_with_all = NOT_LISTENING)]
    pair: bool,
    /// Be a web server with one page and its images [default: 127.0.0.1:8480]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "")]
    #[arg(group = "mode")]
    http: Option<String>,
    /// Lead standard input and output to an agent that listens elsewhere
    #[arg(long, value_name = "HOST", group = "mode", hide = true)]
    forward: Option<String>,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    stamp: stamp::StampReflector,
}

/// What an agent allows.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// The most that a test may send, and have taken: 100mbit [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    #[arg(conflicts_with_all = WITHOUT_TESTS)]
    rate_max: Option<Rate>,
    /// The longest test
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_span)]
    #[arg(conflicts_with_all = WITHOUT_TESTS)]
    duration_max: Span,
    /// The most streams of one test in each direction
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    #[arg(conflicts_with_all = WITHOUT_TESTS)]
    streams_max: u16,
    /// Clients of a daemon at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    #[arg(requires = "listen", conflicts_with_all = NOT_LISTENING)]
    peers: u16,
    /// Tests of a daemon at a time
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    #[arg(requires = "listen", conflicts_with_all = NOT_LISTENING, conflicts_with = "data_port")]
    tests: u16,
    /// Take data at this port instead of any, UDP at those after it too; allows one test at a time
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    #[arg(conflicts_with_all = WITHOUT_TESTS)]
    data_port: u16,
}

impl LimitOptions {
    /// The limits of a daemon.
    fn of_daemon(&self) -> Limits {
        Limits {
            peers_max: self.peers.into(),
            tests_max: if self.data_port == 0 { self.tests.into() } else { 1 },
            kept: KEPT,
            ..self.of_one()
        }
    }

    /// Those of an agent whose only client started it: nobody can come back to that process.
    fn of_one(&self) -> Limits {
        Limits {
            rate_max: self.rate_max.map(|rate| rate.bits_per_second().div_ceil(8)),
            duration_max: self.duration_max,
            streams_max: self.streams_max,
            peers_max: 1,
            tests_max: 1,
            kept: Span::ZERO,
            data_port: self.data_port,
            ..Limits::default()
        }
    }
}

impl Agent {
    /// Serves.
    ///
    /// # Errors
    /// The session ended before its time.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        if let Some(place) = &self.http {
            return http::serve(place, output);
        }
        if let Some(place) = self.stamp.place() {
            return self.stamp.perform(place, output);
        }
        if let Some(host) = &self.forward {
            return forward::forward(host);
        }
        if let Some(place) = &self.listen {
            let place = listen::address(place)?;
            let limits = Limits { data_address: only(place), ..self.limits.of_daemon() };
            let agent = Server::new(VERSION, limits, Timing::default());
            let clients = self.limits.peers.into();
            return listen::listen(place, self.pair, clients, agent, output);
        }
        if !self.stdio {
            return Err(Problem::usage("nothing says how this agent is reached")
                .fix("choose one of --stdio, --listen, --http, --stamp and --iperf3")
                .into());
        }
        let agent = Server::new(VERSION, self.limits.of_one(), Timing::default());
        agent.serve(Stream::of_standard_streams()).map_err(|error| {
            Problem::from_message(&format!("the agent's session ended {error}"), Exit::Trouble)
        })?;
        Ok(Exit::Fine)
    }
}

/// The address that data is taken at, where a daemon listens at one alone. One of a single link is none without it.
fn only(place: SocketAddr) -> Option<IpAddr> {
    let is_linked = matches!(place, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local());
    Some(place.ip()).filter(|address| !address.is_unspecified() && !is_linked)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        agent: Agent,
    }

    fn parse(words: &str) -> Result<Agent, clap::Error> {
        let words = ["agent"].into_iter().chain(words.split_whitespace());
        Words::try_parse_from(words).map(|words| words.agent)
    }

    #[test]
    fn the_limits_of_a_daemon_are_what_is_given() {
        let limits = |words| parse(words).expect("it parses").limits.of_daemon();
        let usual = limits("--listen");
        assert_eq!((usual.peers_max, usual.tests_max), (16, 4));
        let given = limits("--listen --peers 40 --tests 9 --rate-max 8kbit");
        assert_eq!((given.peers_max, given.tests_max, given.rate_max), (40, 9, Some(1_000)));
        assert_eq!(limits("--listen --data-port 7000").tests_max, 1);
    }

    #[test]
    fn an_option_that_its_mode_does_not_know_is_refused() {
        for words in [
            "--http --rate-max 1mbit",
            "--http --data-port 7000",
            "--stamp --rate-max 1mbit",
            "--stamp --duration-max 1s",
            "--stdio --pair",
            "--stdio --tests 2",
            "--stdio --peers 2",
            "--listen --data-port 7000 --tests 2",
            "--stdio --ptp",
            "--listen --answers-max 7",
            "--http --answers-total 7",
        ] {
            assert!(parse(words).is_err(), "{words}");
        }
        for words in ["--stdio --rate-max 1mbit --data-port 7000", "--listen --pair --tests 2"] {
            assert!(parse(words).is_ok(), "{words}");
        }
    }
}
