//! `plumb net --stamp`: a STAMP session with any reflector.
//!
//! Left out: the protocol (`plumb_net::stamp`).

use std::io::Read as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::document::stamp::{
    SCHEMA, StampClock, StampDocument, StampSession, StampSpread, StampStep, StampWay,
};
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_host::stop;
use plumb_net::measure::delay::{Estimate, OneWay};
use plumb_net::stamp;
use plumb_net::stamp::report::{Direction, Spread, StampReport};
use plumb_net::stamp::seal::Key;
use plumb_net::stamp::sender::{COUNT_MAX, Plan, run};
use plumb_net::stamp::timestamp::Format;
use plumb_report::terminal;

use crate::cli::agent::address::host_and_port;
use crate::cli::output::{Failure, Output};
use crate::net::place::Family;
use crate::problem::{Exit, Problem};

/// Keys of fewer bytes are found by trying.
const KEY_BYTES_MIN: usize = 8;
/// Nobody's key has more.
const KEY_BYTES_MAX: u64 = 65_536;
/// Questions where nobody says how many.
const COUNT: u32 = 100;
/// As close as questions may follow each other: as often as a reflector of plumb's answers one sender.
const SPACING_MIN: Span = Span::from_us(100);
const SPACING_MAX: Span = Span::from_secs(3_600);

/// What is asked of a STAMP reflector.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "STAMP (RFC 8762)")]
pub struct StampSender {
    /// Ask a STAMP reflector instead, which may be a router's: nothing of plumb is needed there
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = super::OF_AGENTS)]
    stamp: Option<String>,
    /// How many questions [default: 100]
    #[arg(long, value_name = "N", requires = "stamp")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    count: Option<u32>,
    /// Ask for so long instead
    #[arg(long, value_name = "TIME", requires = "stamp", conflicts_with = "count")]
    #[arg(value_parser = parse_span)]
    lasting: Option<Span>,
    /// Time from one question to the next
    #[arg(long, value_name = "TIME", requires = "stamp", default_value = "20ms")]
    #[arg(value_parser = parse_spacing)]
    spacing: Span,
    /// Seal packets with the bytes of this file: the authenticated mode
    #[arg(long, value_name = "FILE", requires = "stamp")]
    key: Option<PathBuf>,
    /// Bytes of padding after each packet
    #[arg(long, value_name = "BYTES", requires = "stamp", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=9_000))]
    padding: u16,
    /// Write times as PTP does, not as NTP
    #[arg(long, requires = "stamp")]
    ptp: bool,
}

fn parse_spacing(text: &str) -> Result<Span, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    if (SPACING_MIN..=SPACING_MAX).contains(&span) {
        Ok(span)
    } else {
        Err(format!("questions follow each other after {SPACING_MIN} to {SPACING_MAX}"))
    }
}

impl StampSender {
    /// Whom to ask, where a reflector is to be asked.
    pub fn target(&self) -> Option<&str> {
        self.stamp.as_deref()
    }

    /// Asks, and prints what came of it.
    ///
    /// # Errors
    /// An unknown host, no key, or nothing answered.
    pub fn perform(&self, target: &str, family: Family, output: &Output) -> Result<Exit, Failure> {
        let address = resolve(target, family)?;
        let key = self.key.as_deref().map(read_key).transpose()?;
        let plan = Plan {
            count: self.questions()?,
            spacing: self.spacing,
            key,
            session: session_id()?,
            format: if self.ptp { Format::Ptp } else { Format::Ntp },
            padding: usize::from(self.padding),
            ..Plan::default()
        };
        let socket = connect(address)?;
        let deaf = |error| Problem::trouble("cannot listen for Ctrl-C").because(error);
        stop::listen().map_err(deaf)?;
        let takes = self.spacing * u64::from(plan.count.saturating_sub(1));
        output.remark(&format!("asking {address} {} times in {takes}", plan.count));
        let failed = |error| Problem::trouble(format!("asking {address} failed")).because(error);
        let report = run(&socket, &plan, &|| stop::requests() > 0).map_err(failed)?;
        let document = document(address, &plan, &report);
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::stamp::render(&document, output.style))?;
        }
        match document.ended.as_str() {
            "interrupted" => Ok(Exit::Interrupted),
            "silent" => Err(silence(address, &report).into()),
            _ => Ok(Exit::Fine),
        }
    }

    /// How many questions there are to be.
    fn questions(&self) -> Result<u32, Problem> {
        let Some(lasting) = self.lasting else { return Ok(self.count.unwrap_or(COUNT)) };
        let count = lasting.as_ns() / self.spacing.as_ns().max(1);
        let count = u32::try_from(count).ok().filter(|count| *count <= COUNT_MAX);
        let count = count.ok_or_else(|| {
            Problem::usage(format!("more than {COUNT_MAX} questions fit into {lasting}"))
                .fix("ask for a shorter time, or with a longer --spacing")
        })?;
        Ok(count.max(1))
    }
}

/// Tells sessions from the same port apart, should an earlier one's answers still come; never zero, which
/// reflectors take for none.
fn session_id() -> Result<u16, Problem> {
    let number = plumb_host::clock::entropy().map_err(|error| {
        Problem::trouble("cannot read random bits from /dev/urandom").because(error)
    })?;
    Ok(u16::try_from(number >> 48).unwrap_or(u16::MAX).max(1))
}

/// The address of `host`, `host:port`, `[address]:port` or an address alone, with a zone or without.
fn resolve(target: &str, family: Family) -> Result<SocketAddr, Problem> {
    let (host, port) = host_and_port(target, stamp::PORT)?;
    let unknown = || {
        Problem::usage(format!("the host '{host}' is not known")).fix(
            "check the name, or give an address; a link-local one with its zone, as fe80::1%eth0",
        )
    };
    let found = (host.as_str(), port).to_socket_addrs();
    let found: Vec<SocketAddr> = found.map_err(|error| unknown().because(error))?.collect();
    family.of(&host, &found)?.first().copied().ok_or_else(unknown)
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
/// It cannot be read, or is no key.
pub fn read_key(path: &Path) -> Result<Key, Problem> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(KEY_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| {
        Problem::usage(format!("the key in {shown} cannot be read")).because(error)
    })?;
    let secret = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let made = "head -c 32 /dev/urandom | base64 >";
    let fault = |why: &str| {
        Problem::usage(format!("what is in {shown} is no key"))
            .because(why)
            .fix(format!("{made} {shown}, and give both sides the same"))
    };
    if secret.len() < KEY_BYTES_MIN {
        return Err(fault(&format!("{} bytes are found by trying", secret.len())));
    }
    if secret.len() as u64 > KEY_BYTES_MAX {
        return Err(fault("it is longer than 64 KiB"));
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
        Direction::Told { forward, backward, unknown } => Some((forward, backward, unknown)),
        Direction::NothingLost => Some((0, 0, 0)),
        Direction::NotTold => None,
    };
    let session = StampSession {
        sent: report.sent,
        answered: report.tally.unique,
        lost: report.tally.lost,
        lost_forward: told.map(|told| told.0),
        lost_backward: told.map(|told| told.1),
        lost_last: told.map(|told| told.2),
        duplicates: report.tally.duplicates,
        reordered: report.tally.reordered,
        unsealed: report.unsealed,
        foreign: report.foreign,
        sessionless: report.sessionless,
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
        unrecognised_tlvs: report.flagged_tlvs.unrecognised,
        malformed_tlvs: report.flagged_tlvs.malformed,
        unsealed_tlvs: report.flagged_tlvs.unsealed,
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
        assert_eq!(resolve("127.0.0.1", Family::Any).unwrap().to_string(), "127.0.0.1:862");
        assert_eq!(resolve("127.0.0.1:8620", Family::Any).unwrap().to_string(), "127.0.0.1:8620");
        assert_eq!(resolve("::1", Family::Any).unwrap().to_string(), "[::1]:862");
        assert_eq!(resolve("[::1]:8620", Family::Any).unwrap().to_string(), "[::1]:8620");
        assert!(resolve("127.0.0.1:99999", Family::Any).is_err());
        assert!(resolve("no-such-host.invalid", Family::Any).is_err());
    }

    #[test]
    fn questions_are_neither_closer_than_a_reflector_answers_nor_hours_apart() {
        assert_eq!(parse_spacing("1ms"), Ok(Span::from_ms(1)));
        for text in ["0s", "99us", "2h", "soon"] {
            assert!(parse_spacing(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_that_is_guessed_or_endless_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        for (content, is_key) in [("secret!\n", false), ("secret!!", true), ("", false)] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read_key(&path).is_ok(), is_key, "{content:?}");
        }
        assert!(read_key(Path::new("/dev/zero")).is_err());
        assert!(read_key(&directory.path().join("none")).is_err());
    }
}
