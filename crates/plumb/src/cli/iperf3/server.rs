//! `plumb agent --iperf3`: a server that iperf3's clients, and plumb's, can test with.
//!
//! Left out: plumb's own protocol, with its encryption and pairing: this one has neither.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Args;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_rate;
use plumb_base::units::rate::Rate;
use plumb_host::stop;
use plumb_net::iperf3::PORT;
use plumb_net::iperf3::report::Report;
use plumb_net::iperf3::server::{Notice, Options, Server, ServerError};
use plumb_net::iperf3::session::Limits;

use super::client::parse_time;
use super::page;
use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// Serve iperf3's clients: its protocol, one test after another or several at a time
#[derive(Clone, Debug, Args)]
#[command(
    bin_name = "plumb agent --iperf3",
    after_help = "\
Without an address it listens on this machine's loopback only, port 5201. The protocol knows neither
encryption nor whom it is talking to: anyone who reaches the port can use this machine's network, up
to --max-time and --max-bitrate. Datagrams go only to hosts whose control connection stands.

A second client is turned away while a test runs, as iperf3 does it; with --tests N there may be N at
a time, and each result says how long others ran beside it ('plumb.overlap').

With --json each test is one document on a line of its own, as of 'plumb net --iperf3 --json'.

Examples:
  plumb agent --iperf3                        for clients of this machine
  plumb agent --iperf3 :5201                  for everybody, IPv4 and IPv6
  plumb agent --iperf3 10.0.0.1 --one-off     one test, then the end
  plumb agent --iperf3 '[fe80::1%eth0]:5201' --tests 4 --max-bitrate 1gbit"
)]
pub struct Agent {
    /// Where to listen: ADDRESS, ADDRESS:PORT, or :PORT for every address
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_place)]
    place: Option<Place>,
    /// End after one test
    #[arg(short = '1', long)]
    one_off: bool,
    /// Tests at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    tests: u16,
    /// Longest test
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_time)]
    max_time: Span,
    /// Most bits a second of all streams of a test together
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    max_bitrate: Option<Rate>,
    /// Most streams of a test in each direction
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=128))]
    max_streams: u32,
}

/// The addresses to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place(Vec<SocketAddr>);

fn both(v4: Ipv4Addr, v6: Ipv6Addr, port: u16) -> Place {
    Place(vec![SocketAddr::new(v4.into(), port), SocketAddr::new(v6.into(), port)])
}

fn parse_place(text: &str) -> Result<Place, String> {
    let fault =
        || format!("'{text}' is no address to listen on: write 10.0.0.1, [::1]:5201 or :5201");
    let bare = text.strip_prefix(':').or_else(|| text.strip_prefix("*:")).unwrap_or(text);
    if let Ok(port) = bare.parse() {
        return Ok(both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Place(vec![SocketAddr::new(address, PORT)]));
    }
    // A zone has a name, which only the resolver knows.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().map_err(|_| fault())?)
        }
        _ => (text, PORT),
    };
    let family = plumb_net::iperf3::dial::Family::Any;
    let found = plumb_net::iperf3::dial::resolve(host, port, family).map_err(|_| fault())?;
    found.into_iter().next().map(|address| Place(vec![address])).ok_or_else(fault)
}

impl Agent {
    /// Serves until Ctrl-C.
    ///
    /// # Errors
    /// The port is taken, or the kernel has no means left.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let Self { place, one_off, tests, max_time, max_bitrate, max_streams } = self;
        let place = place.unwrap_or_else(|| both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST, PORT));
        let options = Options {
            addresses: place.0,
            tests_max: tests.into(),
            one_off,
            limits: Limits { duration: max_time, bitrate: max_bitrate, streams: max_streams },
            interval: Span::from_secs(1),
        };
        stop::listen()
            .map_err(|error| Problem::trouble("cannot listen for Ctrl-C").because(error))?;
        let server = bind(options)?;
        let addresses = server.addresses().unwrap_or_default();
        let names: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        output.remark(&format!("serving iperf3's clients on {}", names.join(" and ")));
        let mut broken = None;
        let mut tell = |notice| {
            if let Err(failure) = told(notice, output) {
                broken.get_or_insert(failure);
            }
        };
        server.serve(&mut || stop::requests() > 0, &mut tell).map_err(|error| problem(&error))?;
        broken.map_or(Ok(Exit::Fine), Err)
    }
}

/// Where IPv6 is not there, IPv4 is served alone.
fn bind(options: Options) -> Result<Server, Problem> {
    let wildcard = options.addresses.len() == 2;
    match Server::bind(options.clone()) {
        Err(ServerError::Listen { address, why })
            if wildcard && address.is_ipv6() && why.kind() != std::io::ErrorKind::AddrInUse =>
        {
            let addresses = options.addresses.into_iter().filter(SocketAddr::is_ipv4).collect();
            Server::bind(Options { addresses, ..options }).map_err(|error| problem(&error))
        }
        other => other.map_err(|error| problem(&error)),
    }
}

fn problem(error: &ServerError) -> Problem {
    let problem = Problem::trouble("the iperf3 server cannot run").because(error);
    match error {
        ServerError::Listen { address, why } if why.kind() == std::io::ErrorKind::AddrInUse => {
            problem.fix(format!(
                "choose another port, or end what has it: ss -ltnp sport = {}",
                address.port()
            ))
        }
        _ => problem,
    }
}

fn told(notice: Notice, output: &Output) -> Result<(), Failure> {
    match notice {
        Notice::Began { client } => output.remark(&format!("{client}: a test begins")),
        Notice::Failed { client, why } => output.remark(&format!("{client}: no test: {why}")),
        Notice::Refused { client } => {
            output.remark(&format!("{client}: turned away, there is no room for another test"));
        }
        Notice::Ended(test) => {
            let report = Report::of(&test);
            if output.json {
                let line = serde_json::to_string(&report).map_err(|error| {
                    Problem::trouble("cannot write the result as JSON").because(error)
                })?;
                return output.page(&line);
            }
            if test.record.is_some() {
                output.page(&page::test(&test, &report, output.style))?;
            }
            if let Some(error) = &test.error {
                output.remark(&format!("{}: {error}", test.remote));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Vec<String> {
        parse_place(text).unwrap().0.iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn a_place_is_an_address_a_port_or_both() {
        assert_eq!(places("10.0.0.1"), ["10.0.0.1:5201"]);
        assert_eq!(places("10.0.0.1:80"), ["10.0.0.1:80"]);
        assert_eq!(places("::1"), ["[::1]:5201"]);
        assert_eq!(places("[::1]:80"), ["[::1]:80"]);
        assert_eq!(places(":80"), ["0.0.0.0:80", "[::]:80"]);
        assert!(parse_place("10.0.0.1:port").is_err());
    }
}
