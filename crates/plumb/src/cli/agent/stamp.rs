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

/// The agent's other modes, which answer no questions.
const OTHERS: [&str; 4] = ["stdio", "listen", "http", "forward"];
/// How many senders may have their whole rate at once, unless the total is given.
const SENDERS_AT_ONCE: u32 = 5;

/// How a STAMP reflector answers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "STAMP (RFC 8762)")]
pub struct StampReflector {
    /// Answer the questions of STAMP senders instead, as of 'plumb net --stamp' [default: 127.0.0.1:862]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "")]
    #[arg(group = "mode")]
    stamp: Option<String>,
    /// Answer only packets sealed with the bytes of this file: the authenticated mode
    #[arg(long, value_name = "FILE", requires = "stamp", conflicts_with_all = OTHERS)]
    key: Option<PathBuf>,
    /// Copy the questions' numbers instead of numbering the answers
    #[arg(long, requires = "stamp", conflicts_with_all = OTHERS)]
    stateless: bool,
    /// Write times as PTP does, not as NTP
    #[arg(long, requires = "stamp", conflicts_with_all = OTHERS)]
    ptp: bool,
    /// The most answers a second to one sender: an IPv4 address, or the /64 network of an IPv6 one
    #[arg(long, value_name = "N", requires = "stamp", conflicts_with_all = OTHERS, default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    answers_max: u32,
    /// The most answers a second in all [default: five times as many as to one sender]
    #[arg(long, value_name = "N", requires = "stamp", conflicts_with_all = OTHERS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=5_000_000))]
    answers_total: Option<u32>,
}

impl StampReflector {
    /// Where to answer, where anything is to be answered.
    pub fn place(&self) -> Option<&str> {
        self.stamp.as_deref()
    }

    /// Answers a second in all.
    fn rate_all(&self) -> u32 {
        self.answers_total.unwrap_or(self.answers_max.saturating_mul(SENDERS_AT_ONCE))
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
        let conduct = Conduct {
            stateful: !self.stateless,
            key,
            format: if self.ptp { Format::Ptp } else { Format::Ntp },
            rate_each: self.answers_max,
            rate_all: self.rate_all(),
            ..Conduct::default()
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
    let Counts { answered, short, unsealed, limited, looped, unsent } = counts;
    StampDocument {
        schema: SCHEMA.to_owned(),
        role: "reflector".to_owned(),
        address: address.to_string(),
        authenticated,
        ended: "complete".to_owned(),
        session: None,
        reflected: Some(StampReflected { answered, short, unsealed, limited, looped, unsent }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        agent: super::super::Agent,
    }

    fn rate_all(words: &str) -> u32 {
        let words = ["agent", "--stamp"].into_iter().chain(words.split_whitespace());
        let words = Words::try_parse_from(words).expect("it parses");
        words.agent.stamp.rate_all()
    }

    #[test]
    fn the_total_goes_with_the_limit_of_one_sender_unless_it_is_given() {
        assert_eq!(rate_all(""), Conduct::default().rate_all);
        assert_eq!(rate_all("--answers-max 100"), 500);
        assert_eq!(rate_all("--answers-max 100 --answers-total 50"), 50);
    }
}
