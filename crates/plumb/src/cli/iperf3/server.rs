//! `plumb agent --iperf3`: a server that iperf3's clients, and plumb's, can test with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Args;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_rate;
use plumb_base::units::rate::Rate;
use plumb_harness::stop_signals;
use plumb_interop::iperf3::PORT;
use plumb_interop::iperf3::report::Iperf3Report;
use plumb_interop::iperf3::server::{
    Iperf3Server, Iperf3ServerError, Iperf3ServerEvent, Iperf3ServerOptions,
};
use plumb_interop::iperf3::session::Iperf3Limits;

use super::client::parse_time;
use super::page;
use crate::cli::output::{CliOutput, CommandError};
use crate::problem::{ExitReason, Problem};

/// Serve iperf3's clients: its protocol, one test after another or several at a time
#[derive(Clone, Debug, Args)]
#[command(
    bin_name = "plumb agent --iperf3",
    after_help = "\
Without an address it listens on this machine's loopback only, port 5201. The protocol knows neither
encryption nor whom it is talking to: anyone who reaches the port can use this machine's network, up
to --max-time and --max-bitrate. Datagrams go only to hosts whose control connection stands.

A second client is refused while a test runs, as iperf3 does it; with --max-tests N there may be N at
a time, and each result says how long others ran beside it ('plumb.overlap').

With --json each test is one document on a line of its own, as of 'plumb net --iperf3 --json'.

Examples:
  plumb agent --iperf3                        for clients of this machine
  plumb agent --iperf3 :5201                  for everyone, IPv4 and IPv6
  plumb agent --iperf3 10.0.0.1 --one-off     one test, then the end
  plumb agent --iperf3 '[fe80::1%eth0]:5201' --max-tests 4 --max-bitrate 1gbit"
)]
pub struct Iperf3ServerCommand {
    /// Where to listen: ADDRESS, ADDRESS:PORT, or :PORT for every address
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_place)]
    place: Option<Iperf3ListenAddresses>,
    /// End after one test
    #[arg(short = '1', long)]
    one_off: bool,
    /// Most tests at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    max_tests: u16,
    /// Longest test
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_time)]
    max_time: Span,
    /// Highest bitrate of a test, over all streams
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    max_bitrate: Option<Rate>,
    /// Most streams of a test in each direction
    #[arg(long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=128))]
    max_streams: u32,
}

/// The addresses to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Iperf3ListenAddresses(Vec<SocketAddr>);

fn both(v4: Ipv4Addr, v6: Ipv6Addr, port: u16) -> Iperf3ListenAddresses {
    Iperf3ListenAddresses(vec![SocketAddr::new(v4.into(), port), SocketAddr::new(v6.into(), port)])
}

fn parse_place(text: &str) -> Result<Iperf3ListenAddresses, String> {
    let fault =
        || format!("'{text}' is no address to listen on: write 10.0.0.1, [::1]:5201 or :5201");
    let bare = text.strip_prefix(':').or_else(|| text.strip_prefix("*:")).unwrap_or(text);
    if let Ok(port) = bare.parse() {
        return Ok(both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Iperf3ListenAddresses(vec![SocketAddr::new(address, PORT)]));
    }
    // A zone has a name, which only the resolver knows.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().map_err(|_| fault())?)
        }
        _ => (text, PORT),
    };
    let family = plumb_interop::iperf3::sockets::Iperf3AddressFamily::Any;
    let found = plumb_interop::iperf3::sockets::resolve(host, port, family).map_err(|_| fault())?;
    found.into_iter().next().map(|address| Iperf3ListenAddresses(vec![address])).ok_or_else(fault)
}

impl Iperf3ServerCommand {
    /// Serves until Ctrl-C.
    ///
    /// # Errors
    /// The port is taken, or the kernel has no means left.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let Self { place, one_off, max_tests, max_time, max_bitrate, max_streams } = self;
        let place = place.unwrap_or_else(|| both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST, PORT));
        let options = Iperf3ServerOptions {
            addresses: place.0,
            tests_max: max_tests.into(),
            one_off,
            limits: Iperf3Limits { duration: max_time, bitrate: max_bitrate, streams: max_streams },
            interval: Span::from_secs(1),
        };
        stop_signals::count_stop_requests()
            .map_err(|error| Problem::failure("cannot listen for Ctrl-C").because(error))?;
        let server = bind(options)?;
        let addresses = server.addresses().unwrap_or_default();
        let names: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        output.note(&format!("serving iperf3's clients on {}", names.join(" and ")));
        let mut broken = None;
        let mut tell = |notice| {
            if let Err(failure) = print_event(notice, output) {
                broken.get_or_insert(failure);
            }
        };
        server
            .serve(&mut || stop_signals::stop_requests() > 0, &mut tell)
            .map_err(|error| problem(&error))?;
        broken.map_or(Ok(ExitReason::Success), Err)
    }
}

/// Where IPv6 is not there, IPv4 is served alone.
fn bind(options: Iperf3ServerOptions) -> Result<Iperf3Server, Problem> {
    let wildcard = options.addresses.len() == 2;
    match Iperf3Server::bind(options.clone()) {
        Err(Iperf3ServerError::Listen { address, why })
            if wildcard && address.is_ipv6() && why.kind() != std::io::ErrorKind::AddrInUse =>
        {
            let addresses = options.addresses.into_iter().filter(SocketAddr::is_ipv4).collect();
            Iperf3Server::bind(Iperf3ServerOptions { addresses, ..options })
                .map_err(|error| problem(&error))
        }
        other => other.map_err(|error| problem(&error)),
    }
}

fn problem(error: &Iperf3ServerError) -> Problem {
    let problem = Problem::failure("the iperf3 server cannot run").because(error);
    match error {
        Iperf3ServerError::Listen { address, why }
            if why.kind() == std::io::ErrorKind::AddrInUse =>
        {
            problem.fix(format!(
                "choose another port, or end what has it: ss -ltnp sport = {}",
                address.port()
            ))
        }
        _ => problem,
    }
}

fn print_event(notice: Iperf3ServerEvent, output: &CliOutput) -> Result<(), CommandError> {
    match notice {
        Iperf3ServerEvent::Began { client } => output.note(&format!("{client}: a test begins")),
        Iperf3ServerEvent::Failed { client, why } => {
            output.note(&format!("{client}: no test: {why}"));
        }
        Iperf3ServerEvent::Refused { client } => {
            output.note(&format!("{client}: refused, too many tests are running"));
        }
        Iperf3ServerEvent::Ended(test) => {
            let report = Iperf3Report::of(&test);
            if output.json {
                let line = serde_json::to_string(&report).map_err(|error| {
                    Problem::failure("cannot write the result as JSON").because(error)
                })?;
                return output.page(&line);
            }
            if test.record.is_some() {
                output.page(&page::test(&test, &report, output.style))?;
            }
            if let Some(error) = &test.error {
                output.note(&format!("{}: {error}", test.remote));
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
