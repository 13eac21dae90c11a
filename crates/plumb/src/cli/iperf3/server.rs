//! `plumb agent --iperf3`: a server for clients of iperf3 and plumb.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Args;
use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_base::units::quantity::{parse_duration, parse_rate};
use plumb_interop::iperf3::server::{
    Iperf3Server, Iperf3ServerError, Iperf3ServerEvent, Iperf3ServerOptions,
};
use plumb_interop::iperf3::session::Iperf3Limits;
use plumb_interop::iperf3::{PORT, report};
use plumb_remote::log_limit::LogLimit;

use super::page;
use crate::cli::output::{CliOutput, CommandError, CommandResult};
use crate::cli::{handle_stop_signals, is_stopped};
use crate::net::address;
use crate::problem::{ExitReason, Problem};

/// Most lines a minute about clients that got no test, and about tests.
const NOTES_PER_MINUTE: u32 = 60;

/// Serve iperf3 clients, one test after another or several at a time
#[derive(Clone, Debug, Args)]
#[command(
    bin_name = "plumb agent --iperf3",
    after_help = "\
Without an address it listens on loopback only, port 5201. The protocol has neither encryption nor
authentication: anyone who reaches the port can use this machine's network, up to --max-time and
--max-bitrate. Datagrams are sent only to hosts with an open control connection.

A second client is refused while a test runs, as by iperf3; with --max-tests N there may be N tests at
a time, and each result says how long others overlapped it ('plumb.overlap').

With --json each test is one line with the document of 'plumb net --iperf3 --json'.

Examples:
  plumb agent --iperf3                        for clients on this machine
  plumb agent --iperf3 :5201                  for everyone, IPv4 and IPv6
  plumb agent --iperf3 10.0.0.1 --one-off     exit after one test
  plumb agent --iperf3 '[fe80::1%eth0]:5201' --max-tests 4 --max-bitrate 1gbit"
)]
pub struct Iperf3ServerCommand {
    /// Address to listen on: ADDRESS, ADDRESS:PORT, or :PORT for every address
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_place)]
    place: Option<Iperf3ListenAddresses>,
    /// Exit after one test
    #[arg(short = '1', long)]
    one_off: bool,
    /// Most tests at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    max_tests: u16,
    /// Longest test
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration)]
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
        || format!("'{text}' is not an address to listen on: write 10.0.0.1, [::1]:5201 or :5201");
    let bare = text.strip_prefix(':').or_else(|| text.strip_prefix("*:")).unwrap_or(text);
    if let Ok(port) = bare.parse() {
        return Ok(both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, port));
    }
    if text.is_empty() {
        return Err(fault());
    }
    let default = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let address = address::parse(text, default).map_err(|_| fault())?;
    Ok(Iperf3ListenAddresses(vec![address]))
}

impl Iperf3ServerCommand {
    /// Serves until Ctrl-C.
    ///
    /// # Errors
    /// The port is in use, or the kernel is out of resources.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let Self { place, one_off, max_tests, max_time, max_bitrate, max_streams } = self;
        let place = place.unwrap_or_else(|| both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST, PORT));
        let options = Iperf3ServerOptions {
            addresses: place.0,
            tests_max: max_tests.into(),
            one_off,
            limits: Iperf3Limits { duration: max_time, bitrate: max_bitrate, streams: max_streams },
            interval: Span::from_secs(1),
        };
        handle_stop_signals()?;
        let server = bind(options)?;
        let addresses = server.addresses().unwrap_or_default();
        let names: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        output.note(&format!("serving iperf3 clients on {}", names.join(" and ")));
        let mut failure = None;
        let mut limits = [NOTES_PER_MINUTE; 2].map(LogLimit::new);
        let mut report = |event| {
            if let Err(error) = print_event(event, output, &mut limits) {
                failure.get_or_insert(error);
            }
        };
        server.serve(&mut is_stopped, &mut report).map_err(|error| problem(&error))?;
        failure.map_or(Ok(ExitReason::Success), Err)
    }
}

/// Binds the addresses; without IPv6 on this host, IPv4 alone.
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
                "choose another port, or stop the program that uses it: ss -ltnp sport = {}",
                address.port()
            ))
        }
        _ => problem,
    }
}

/// Prints an event; refused clients and tests have a limit each, so that neither hides the other.
fn print_event(
    event: Iperf3ServerEvent,
    output: &CliOutput,
    [refusals, tests]: &mut [LogLimit; 2],
) -> Result<(), CommandError> {
    match event {
        Iperf3ServerEvent::Began { client } => {
            output.note_limited(tests, &format!("{client}: test started"));
        }
        Iperf3ServerEvent::Failed { client, why } => {
            output.note_limited(refusals, &format!("{client}: no test: {why}"));
        }
        Iperf3ServerEvent::Refused { client } => {
            let text = format!("{client}: refused, too many tests are running");
            output.note_limited(refusals, &text);
        }
        Iperf3ServerEvent::Ended(test) => {
            let report = report::document(&test);
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
                output.note_limited(tests, &format!("{}: {error}", test.remote));
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
    fn listen_address_is_an_address_a_port_or_both() {
        assert_eq!(places("10.0.0.1"), ["10.0.0.1:5201"]);
        assert_eq!(places("10.0.0.1:80"), ["10.0.0.1:80"]);
        assert_eq!(places("::1"), ["[::1]:5201"]);
        assert_eq!(places("[::1]:80"), ["[::1]:80"]);
        assert_eq!(places(":80"), ["0.0.0.0:80", "[::]:80"]);
        assert!(parse_place("10.0.0.1:port").is_err());
    }
}
