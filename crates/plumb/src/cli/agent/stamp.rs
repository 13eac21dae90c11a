//! `plumb agent --stamp`: a STAMP session-reflector.
//!
//! Left out: the protocol (`plumb_net::stamp`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::stamp::{SCHEMA, StampDocument, StampReflected};
use plumb_host::stop;
use plumb_net::stamp::reflector::{Conduct, Counts, serve};
use plumb_net::stamp::timestamp::Format;
use plumb_net::stamp::{self};
use plumb_report::terminal;

use crate::cli::net::stamp::read_key;
use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// How a STAMP reflector answers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "STAMP (RFC 8762)")]
pub struct StampReflector {
    /// Answer STAMP questions instead, here [default: 127.0.0.1:862, for this host alone]
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "127.0.0.1")]
    stamp: Option<String>,
    /// Answer only packets sealed with the bytes of this file: the authenticated mode
    #[arg(long, value_name = "FILE", requires = "stamp")]
    key: Option<PathBuf>,
    /// Copy the questions' numbers instead of numbering the answers
    #[arg(long, requires = "stamp")]
    stateless: bool,
    /// Write times as PTP does, not as NTP
    #[arg(long, requires = "stamp")]
    ptp: bool,
    /// The most answers a second to one sender
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "stamp")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    answers_max: u32,
}

impl StampReflector {
    /// Whether questions are to be answered.
    pub const fn is_wanted(&self) -> bool {
        self.stamp.is_some()
    }

    /// Answers until told to stop, and prints how many.
    ///
    /// # Errors
    /// The port is taken or not allowed; the key cannot be read.
    pub fn perform(&self, output: &Output) -> Result<Exit, Failure> {
        let address = parse(self.stamp.as_deref().unwrap_or_default())?;
        let key = self.key.as_deref().map(read_key).transpose()?;
        let authenticated = key.is_some();
        let conduct = Conduct {
            stateful: !self.stateless,
            key,
            format: if self.ptp { Format::Ptp } else { Format::Ntp },
            rate_each: self.answers_max,
            ..Conduct::default()
        };
        let socket = UdpSocket::bind(address).map_err(|error| of_bind(address, error))?;
        let address = socket.local_addr().unwrap_or(address);
        stop::listen().map_err(|error| Problem::trouble("cannot listen for Ctrl-C").because(error))?;
        output.remark(&format!("answering STAMP questions on {address} until Ctrl-C"));
        let counts = serve(&socket, conduct, &|| stop::requests() > 0).map_err(|error| {
            Problem::trouble(format!("answering on {address} failed")).because(error)
        })?;
        let document = document(address, authenticated, counts);
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::stamp::render(&document, output.style))?;
        }
        Ok(Exit::Fine)
    }
}

/// An address, with a port or without.
fn parse(text: &str) -> Result<SocketAddr, Problem> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let alone = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, stamp::PORT));
    let port = || {
        let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
        port.map(|port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
    };
    text.parse().or(alone).or_else(|_| port()).map_err(|_| {
        Problem::usage(format!("'{text}' is not an address of this host"))
            .fix("give ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; 0.0.0.0 or [::] for every address")
    })
}

fn of_bind(address: SocketAddr, error: std::io::Error) -> Problem {
    let problem = Problem::trouble(format!("cannot listen on {address}"));
    let fix = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "ports below 1024 need root: give another, ADDRESS:8620",
        std::io::ErrorKind::AddrInUse => "another program has it: give another port, ADDRESS:8620",
        _ => "give an address of this host",
    };
    problem.because(error).fix(fix)
}

fn document(address: SocketAddr, authenticated: bool, counts: Counts) -> StampDocument {
    let Counts { answered, short, unsealed, limited, unsent } = counts;
    StampDocument {
        schema: SCHEMA.to_owned(),
        role: "reflector".to_owned(),
        address: address.to_string(),
        authenticated,
        ended: "complete".to_owned(),
        session: None,
        reflected: Some(StampReflected { answered, short, unsealed, limited, unsent }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_listen_is_taken_as_people_write_it_and_loopback_unless_said() {
        for (text, expected) in [
            ("127.0.0.1", "127.0.0.1:862"),
            ("0.0.0.0:8620", "0.0.0.0:8620"),
            ("::", "[::]:862"),
            ("[::1]:8620", "[::1]:8620"),
            (":8620", "127.0.0.1:8620"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), expected);
        }
        assert!(parse("router").is_err());
    }
}
