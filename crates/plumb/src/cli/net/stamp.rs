//! `plumb net --stamp`: a STAMP session with any reflector.
//!
//! Left out: the protocol (`plumb_net::stamp`).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::document::stamp::{
    SCHEMA, StampClock, StampDocument, StampSession, StampSpread, StampStep, StampWay,
};
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_host::stop;
use plumb_net::measure::delay::{Estimate, OneWay};
use plumb_net::stamp::report::{Direction, Spread, StampReport};
use plumb_net::stamp::seal::Key;
use plumb_net::stamp::sender::{COUNT_MAX, Plan, run};
use plumb_net::stamp::timestamp::Format;
use plumb_net::stamp::{self};
use plumb_report::terminal;

use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// A key shorter than this is guessed; RFC 2104 asks for as many bytes as the digest has.
const KEY_BYTES_MIN: usize = 8;

/// What is asked of a STAMP reflector.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "STAMP (RFC 8762)")]
pub struct StampSender {
    /// Ask a STAMP reflector instead, which may be a router's; nothing else of plumb is needed there
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "host")]
    stamp: Option<String>,
    /// How many questions
    #[arg(long, value_name = "N", default_value_t = 100, requires = "stamp")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    count: u32,
    /// Time from one question to the next
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_span)]
    #[arg(requires = "stamp")]
    spacing: Span,
    /// Seal packets with the bytes of this file: the authenticated mode
    #[arg(long, value_name = "FILE", requires = "stamp")]
    key: Option<PathBuf>,
    /// Bytes of padding after each packet
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "stamp")]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=9_000))]
    padding: u16,
    /// Write times as PTP does, not as NTP
    #[arg(long, requires = "stamp")]
    ptp: bool,
}

impl StampSender {
    /// Whether a reflector is to be asked.
    pub const fn is_wanted(&self) -> bool {
        self.stamp.is_some()
    }

    /// Asks, and prints what came of it.
    ///
    /// # Errors
    /// An unknown host, no key, or nothing answered.
    pub fn perform(&self, output: &Output) -> Result<Exit, Failure> {
        let target = self.stamp.as_deref().unwrap_or_default();
        let address = resolve(target)?;
        let key = self.key.as_deref().map(read_key).transpose()?;
        let plan = Plan {
            count: self.count,
            spacing: self.spacing,
            key,
            session: session_id(),
            format: if self.ptp { Format::Ptp } else { Format::Ntp },
            padding: usize::from(self.padding),
            ..Plan::default()
        };
        let socket = connect(address)?;
        stop::listen().map_err(|error| Problem::trouble("cannot listen for Ctrl-C").because(error))?;
        let takes = self.spacing * u64::from(self.count.saturating_sub(1));
        output.remark(&format!("asking {address} {} times in {takes}", self.count));
        let report = run(&socket, &plan, &|| stop::requests() > 0).map_err(|error| {
            Problem::trouble(format!("asking {address} failed")).because(error)
        })?;
        let document = document(address, &plan, &report);
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::stamp::render(&document, output.style))?;
        }
        if report.cut_short {
            return Ok(Exit::Interrupted);
        }
        if report.tally.unique == 0 {
            return Err(silence(address, &report).into());
        }
        Ok(Exit::Fine)
    }
}

/// Tells sessions from the same port apart, should an earlier one's answers still come.
fn session_id() -> u16 {
    let number = plumb_host::clock::entropy().unwrap_or(u64::from(std::process::id()));
    u16::try_from(number >> 48).unwrap_or(1).max(1)
}

/// The address of `host`, `host:port`, `[address]:port` or an address alone, with a zone or without.
fn resolve(target: &str) -> Result<SocketAddr, Problem> {
    let (host, port) = split(target);
    let fix = "give HOST, HOST:PORT or [ADDRESS]:PORT; a link-local address with its zone, fe80::1%eth0";
    let port = match port {
        None => stamp::PORT,
        Some(text) => text.parse().map_err(|_| {
            Problem::usage(format!("'{text}' is not a port")).fix("give a number from 1 to 65535")
        })?,
    };
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| {
        Problem::usage(format!("'{host}' is not known")).because(error).fix(fix)
    })?;
    let none = || Problem::usage(format!("'{host}' has no address")).fix(fix);
    addresses.next().ok_or_else(none)
}

fn split(target: &str) -> (&str, Option<&str>) {
    if let Some((address, rest)) = target.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, rest.strip_prefix(':'));
    }
    match target.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (target, None),
    }
}

fn connect(address: SocketAddr) -> Result<UdpSocket, Problem> {
    let any: SocketAddr = if address.is_ipv6() {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(address)?;
        Ok(socket)
    });
    socket.map_err(|error| {
        Problem::trouble(format!("{address} cannot be reached")).because(error).fix(
            "check the route to it; a link-local address needs its zone, as in [fe80::1%eth0]:862",
        )
    })
}

/// The bytes of a file, without the newline that editors end it with.
///
/// # Errors
/// It cannot be read, or holds too little.
pub fn read_key(path: &Path) -> Result<Key, Problem> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| {
        Problem::usage(format!("the key in {shown} cannot be read")).because(error)
    })?;
    let secret = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    if secret.len() < KEY_BYTES_MIN {
        return Err(Problem::usage(format!("the key in {shown} is too short"))
            .because(format!("{} bytes are guessed", secret.len()))
            .fix(format!("head -c 32 /dev/urandom | base64 > {shown}, and give both sides the same")));
    }
    Ok(Key::new(secret))
}

fn silence(address: SocketAddr, report: &StampReport) -> Problem {
    let problem = Problem::trouble(format!("{address} did not answer"));
    if report.unsealed > 0 {
        return problem
            .because(format!("{} answers were sealed with another key", report.unsealed))
            .fix("give both sides the same key file");
    }
    problem
        .because(format!("{} questions were asked, and no answer came in time", report.sent))
        .fix(
            "check that a reflector listens there in the same mode, on UDP port 862 unless told otherwise: \
             'plumb agent --stamp ADDRESS:PORT', with --key where this side has one",
        )
}

fn document(address: SocketAddr, plan: &Plan, report: &StampReport) -> StampDocument {
    let ended = match report {
        _ if report.cut_short => "interrupted",
        _ if report.tally.unique == 0 => "silent",
        _ => "complete",
    };
    let told = match report.lost_where {
        Direction::Told { forward, backward, .. } => Some((forward, backward)),
        Direction::NothingLost => Some((0, 0)),
        Direction::NotTold => None,
    };
    let session = StampSession {
        sent: report.sent,
        answered: report.tally.unique,
        lost: report.tally.lost,
        lost_forward: told.map(|told| told.0),
        lost_backward: told.map(|told| told.1),
        duplicates: report.tally.duplicates,
        reordered: report.tally.reordered,
        unsealed: report.unsealed,
        foreign: report.foreign,
        round_trip: report.round_trip.as_ref().map(spread),
        dwell: report.dwell.as_ref().map(spread),
        forward: report.forward.as_ref().map(way),
        backward: report.backward.as_ref().map(way),
        clock: report.clock.as_ref().map(clock),
        reflector_synchronised: report.reflector_synchronised,
        reflector_error_ns: report.reflector_error_ns,
        reflector_format: report.reflector_format.map(|format| {
            match format {
                Format::Ntp => "ntp",
                Format::Ptp => "ptp",
            }
            .to_owned()
        }),
        sender_synchronised: report.sender_synchronised,
        sender_error_ns: report.sender_error_ns,
        ttl_forward: report.ttl_forward,
        ttl_backward: report.ttl_backward,
        unrecognised_tlvs: report.unrecognised_tlvs,
    };
    StampDocument {
        schema: SCHEMA.to_owned(),
        role: "sender".to_owned(),
        address: address.to_string(),
        authenticated: plan.key.is_some(),
        ended: ended.to_owned(),
        session: Some(session),
        reflected: None,
    }
}

const fn spread(spread: &Spread) -> StampSpread {
    let Spread { min_ns, p50_ns, p90_ns, p99_ns, max_ns } = *spread;
    StampSpread { min_ns, p50_ns, p90_ns, p99_ns, max_ns }
}

const fn way(way: &OneWay) -> StampWay {
    StampWay {
        least_ns: way.least_ns,
        bound_ns: way.bound_ns,
        above_p50_ns: way.above_p50_ns,
        above_p90_ns: way.above_p90_ns,
        above_p99_ns: way.above_p99_ns,
        above_max_ns: way.above_max_ns,
    }
}

fn clock(estimate: &Estimate) -> StampClock {
    let first = &estimate.segments[0];
    let since = |moment: u64| moment.saturating_sub(first.from_ns);
    StampClock {
        offset_ns: first.offset_ns,
        bound_ns: estimate.bound_ns(),
        drift_ppm: first.drift_ppm,
        drift_ppm_min: first.drift_ppm_min,
        drift_ppm_max: first.drift_ppm_max,
        steps: estimate
            .steps
            .iter()
            .map(|step| StampStep {
                after_ns: since(step.after_ns),
                before_ns: since(step.before_ns),
                size_ns: step.size_ns,
                proved: step.proved,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_taken_as_people_write_them() {
        assert_eq!(split("router"), ("router", None));
        assert_eq!(split("router:8620"), ("router", Some("8620")));
        assert_eq!(split("[fe80::1%eth0]:8620"), ("fe80::1%eth0", Some("8620")));
        assert_eq!(split("[::1]"), ("::1", None));
        assert_eq!(split("fe80::1%eth0"), ("fe80::1%eth0", None));
        assert_eq!(resolve("127.0.0.1").unwrap().to_string(), "127.0.0.1:862");
        assert_eq!(resolve("::1").unwrap().to_string(), "[::1]:862");
        assert!(resolve("127.0.0.1:99999").is_err());
    }
}
