//! `plumb agent --stamp`: a STAMP session-reflector.
//!
//! Left out: the protocol (`plumb_net::stamp`).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::stamp::{SCHEMA, StampDocument, StampReflected};
use plumb_host::stop;
use plumb_net::stamp;
use plumb_net::stamp::reflector::{Conduct, Counts, serve};
use plumb_net::stamp::timestamp::Format;
use plumb_report::terminal;

use super::address;
use crate::cli::net::stamp::read_key;
use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// How a STAMP reflector answers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "STAMP (RFC 8762)")]
pub struct StampReflector {
    /// Answer the questions of STAMP senders instead, as of 'plumb net --stamp' [default: 127.0.0.1:862]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "")]
    #[arg(group = "mode")]
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
    #[arg(long, value_name = "N", requires = "stamp", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    answers_max: u32,
}

impl StampReflector {
    /// Where to answer, where anything is to be answered.
    pub fn place(&self) -> Option<&str> {
        self.stamp.as_deref()
    }

    /// Answers until told to stop, and prints how often.
    ///
    /// # Errors
    /// The port is taken or not allowed; the key cannot be read.
    pub fn perform(&self, place: &str, output: &Output) -> Result<Exit, Failure> {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, stamp::PORT));
        let address = address::parse(place, default)?;
        let key = self.key.as_deref().map(read_key).transpose()?;
        let authenticated = key.is_some();
        let least = Conduct::default().rate_all;
        let conduct = Conduct {
            stateful: !self.stateless,
            key,
            format: if self.ptp { Format::Ptp } else { Format::Ntp },
            rate_each: self.answers_max,
            rate_all: self.answers_max.max(least),
        };
        let socket = UdpSocket::bind(address).map_err(|error| of_bind(address, error))?;
        let address = socket.local_addr().unwrap_or(address);
        let deaf = |error| Problem::trouble("cannot listen for Ctrl-C").because(error);
        stop::listen().map_err(deaf)?;
        output.remark(&format!("answering STAMP questions on {address} until Ctrl-C"));
        let failed =
            |error| Problem::trouble(format!("answering on {address} failed")).because(error);
        let counts = serve(&socket, conduct, &|| stop::requests() > 0).map_err(failed)?;
        let document = document(address, authenticated, counts);
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::stamp::render(&document, output.style))?;
        }
        Ok(Exit::Fine)
    }
}

fn of_bind(address: SocketAddr, error: io::Error) -> Problem {
    let problem = Problem::trouble(format!("cannot listen on {address}"));
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied => "ports below 1024 are root's: give another, as :8620",
        io::ErrorKind::AddrInUse => "another program has it: give another port, as :8620",
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
