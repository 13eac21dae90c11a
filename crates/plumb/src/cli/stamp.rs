//! `plumb net --stamp` and `plumb agent --stamp`: STAMP session-sender and session-reflector (RFC 8762).

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::{Path, PathBuf};

use clap::Args;
use plumb_base::time::Span;
use plumb_interop::stamp;
use plumb_interop::stamp::packet::StampKey;
use plumb_interop::stamp::reflector::{ReflectorOptions, serve};
use plumb_interop::stamp::sender::{COUNT_MAX, SessionSenderOptions, run};
use plumb_report::terminal;
use plumb_result::stamp::{
    SCHEMA, StampDocument, StampEnding, StampRole, StampSession, TimestampFormat,
};

use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::{handle_stop_signals, is_stopped, seed_or_random};
use crate::net::address::{self, host_and_port};
use crate::net::host_target::AddressFamily;
use crate::problem::{ExitReason, Problem};

/// Shorter keys are easy to brute-force.
const KEY_BYTES_MIN: usize = 8;
/// Longer files are not keys.
const KEY_BYTES_MAX: u64 = 65_536;
/// Default number of packets.
const COUNT: u32 = 100;
/// Default rate limit of plumb's reflector for one sender.
const INTERVAL_MIN: Span = Span::from_us(100);
const INTERVAL_MAX: Span = Span::from_secs(3_600);
/// Default time between two packets.
const INTERVAL_DEFAULT: Span = Span::from_ms(20);

/// Options of a STAMP session-sender.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "STAMP (RFC 8762)")]
pub struct StampSenderOptions {
    /// Measure with a STAMP reflector, such as a router; needs no plumb there
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = super::net::AGENT_OPTIONS)]
    stamp: Option<String>,
    /// Packets to send [default: 100]
    #[arg(long, value_name = "N", requires = "stamp", conflicts_with = "time")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(COUNT_MAX)))]
    count: Option<u32>,
    /// Authenticated mode, with the key in this file
    #[arg(long, value_name = "FILE", requires = "stamp")]
    key: Option<PathBuf>,
    /// Bytes of padding per packet
    #[arg(long, value_name = "BYTES", requires = "stamp", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=9_000))]
    padding: u16,
    /// Timestamps in PTP format instead of NTP
    #[arg(long, requires = "stamp")]
    ptp: bool,
}

fn check_interval(interval: Option<Span>) -> Result<Span, Problem> {
    let interval = interval.unwrap_or(INTERVAL_DEFAULT);
    if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        return Ok(interval);
    }
    Err(Problem::usage(format!("an interval of {interval} is out of range"))
        .fix(format!("give --interval between {INTERVAL_MIN} and {INTERVAL_MAX}")))
}

impl StampSenderOptions {
    /// The reflector, if --stamp was given.
    pub fn target(&self) -> Option<&str> {
        self.stamp.as_deref()
    }

    /// Runs the session and prints its result.
    ///
    /// # Errors
    /// An unknown host, no key, or no answer.
    pub fn perform(
        &self,
        target: &str,
        family: AddressFamily,
        time: Option<Span>,
        interval: Option<Span>,
        output: &CliOutput,
    ) -> CommandResult {
        let interval = check_interval(interval)?;
        let address = resolve(target, family)?;
        let key = self.key.as_deref().map(read_key).transpose()?;
        let plan = SessionSenderOptions {
            count: self.packets(time, interval)?,
            interval,
            key,
            session: session_id()?,
            format: if self.ptp { TimestampFormat::Ptp } else { TimestampFormat::Ntp },
            padding: usize::from(self.padding),
            ..SessionSenderOptions::default()
        };
        let socket = connect(address)?;
        handle_stop_signals()?;
        let takes = interval * u64::from(plan.count.saturating_sub(1));
        output.note(&format!("sending {} packets to {address} in {takes}", plan.count));
        let failed =
            |error| Problem::failure(format!("the session with {address} failed")).because(error);
        let (session, ended) = run(&socket, &plan, &is_stopped).map_err(failed)?;
        let document = StampDocument {
            schema: SCHEMA.to_owned(),
            role: StampRole::Sender,
            address: address.to_string(),
            authenticated: plan.key.is_some(),
            ended,
            session: Some(session.clone()),
            reflected: None,
        };
        output.show(&document, |style| terminal::stamp::render(&document, style))?;
        match ended {
            StampEnding::Interrupted => Ok(ExitReason::Interrupted),
            StampEnding::Silent => Err(no_reply(address, &session).into()),
            StampEnding::Complete => Ok(ExitReason::Success),
        }
    }

    fn packets(&self, time: Option<Span>, interval: Span) -> Result<u32, Problem> {
        let Some(time) = time else { return Ok(self.count.unwrap_or(COUNT)) };
        let count = time.as_ns() / interval.as_ns().max(1);
        let count = u32::try_from(count).ok().filter(|count| *count <= COUNT_MAX);
        let count = count.ok_or_else(|| {
            Problem::usage(format!("a session of {time} would have more than {COUNT_MAX} packets"))
                .fix("give a shorter --time or a longer --interval")
        })?;
        Ok(count.max(1))
    }
}

/// A random session identifier, never zero, which means none (RFC 8972). Distinguishes late answers of an earlier
/// session from the same port.
fn session_id() -> Result<u16, Problem> {
    let bits = seed_or_random(None)?.0 >> 48;
    Ok(u16::try_from(bits).expect("16 bits").max(1))
}

/// The address of `host`, `host:port`, `[address]:port` or an address, with or without a zone.
fn resolve(target: &str, family: AddressFamily) -> Result<SocketAddr, Problem> {
    let (host, port) = host_and_port(target, stamp::PORT)?;
    let unknown = || {
        Problem::usage(format!("the host '{host}' is unknown")).fix(
            "check the name, or give an address; link-local ones with their zone, as in fe80::1%eth0",
        )
    };
    let found = (host.as_str(), port).to_socket_addrs();
    let found: Vec<SocketAddr> = found.map_err(|error| unknown().because(error))?.collect();
    family.filter_addresses(&host, &found)?.first().copied().ok_or_else(unknown)
}

fn connect(address: SocketAddr) -> Result<UdpSocket, Problem> {
    let socket = || {
        let socket = UdpSocket::bind((address::unspecified(address.ip()), 0))?;
        socket.connect(address)?;
        Ok(socket)
    };
    socket().map_err(|error: io::Error| {
        Problem::failure(format!("{address} cannot be reached")).because(error).fix(
            "check the route to it; a link-local address needs its zone, as in [fe80::1%eth0]:862",
        )
    })
}

/// Reads a key from a file, without a trailing newline.
///
/// # Errors
/// It cannot be read, or is not a key.
pub fn read_key(path: &Path) -> Result<StampKey, Problem> {
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
        Problem::usage(format!("{shown} does not hold a key"))
            .because(why)
            .fix(format!("{made} {shown}, and give both sides the same"))
    };
    if secret.len() < KEY_BYTES_MIN {
        return Err(fault(&format!(
            "{} bytes are shorter than {KEY_BYTES_MIN}: easy to brute-force",
            secret.len()
        )));
    }
    if secret.len() as u64 > KEY_BYTES_MAX {
        return Err(fault("it is longer than 64 KiB"));
    }
    Ok(StampKey::new(secret))
}

fn no_reply(address: SocketAddr, report: &StampSession) -> Problem {
    let problem = Problem::failure(format!("{address} did not answer"));
    if report.unsealed > 0 {
        return problem
            .because(format!("{} answers had an invalid HMAC", report.unsealed))
            .fix("give both sides the same key file");
    }
    problem.because(format!("{} packets were sent, none was answered in time", report.sent)).fix(
        "check that a reflector listens there in the same mode, on UDP port 862 by default: \
             'plumb agent --stamp ADDRESS:PORT', with --key if this side has one",
    )
}

/// The agent's other modes.
const OTHER_MODES: [&str; 4] = ["stdio", "listen", "http", "forward"];
/// Senders that may have their full rate at once, unless the total is given.
const SENDERS_AT_ONCE: u32 = 5;

/// Options of a STAMP session-reflector.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "STAMP (RFC 8762)")]
pub struct StampReflectorOptions {
    /// Run a STAMP reflector for 'plumb net --stamp' [default: 127.0.0.1:862]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "")]
    #[arg(group = "mode")]
    stamp: Option<String>,
    /// Authenticated mode, with the key in this file
    #[arg(long, value_name = "FILE", requires = "stamp", conflicts_with_all = OTHER_MODES)]
    key: Option<PathBuf>,
    /// Stateless mode: copy sequence numbers instead of numbering the answers
    #[arg(long, requires = "stamp", conflicts_with_all = OTHER_MODES)]
    stateless: bool,
    /// Timestamps in PTP format instead of NTP
    #[arg(long, requires = "stamp", conflicts_with_all = OTHER_MODES)]
    ptp: bool,
    /// Answers per second to one client: an IPv4 address or an IPv6 /64 network
    #[arg(long, value_name = "N", requires = "stamp", conflicts_with_all = OTHER_MODES, default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_rate_per_client: u32,
    /// Answers per second in all [default: five times --max-rate-per-client]
    #[arg(long, value_name = "N", requires = "stamp", conflicts_with_all = OTHER_MODES)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=5_000_000))]
    max_rate: Option<u32>,
}

impl StampReflectorOptions {
    /// The address to listen on, if --stamp was given.
    pub fn listen_address(&self) -> Option<&str> {
        self.stamp.as_deref()
    }

    /// Answers per second in all.
    fn rate_all(&self) -> u32 {
        self.max_rate.unwrap_or(self.max_rate_per_client.saturating_mul(SENDERS_AT_ONCE))
    }

    /// Runs the reflector until it is stopped, and prints its counters.
    ///
    /// # Errors
    /// The port is in use or not permitted; the key cannot be read.
    pub fn perform(&self, place: &str, output: &CliOutput) -> CommandResult {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, stamp::PORT));
        let address = address::parse(place, default)?;
        let key = self.key.as_deref().map(read_key).transpose()?;
        let authenticated = key.is_some();
        let options = ReflectorOptions {
            stateful: !self.stateless,
            key,
            format: if self.ptp { TimestampFormat::Ptp } else { TimestampFormat::Ntp },
            rate_per_sender: self.max_rate_per_client,
            rate_total: self.rate_all(),
            ..ReflectorOptions::default()
        };
        let socket = UdpSocket::bind(address).map_err(|error| bind_problem(address, error))?;
        let address = socket.local_addr().unwrap_or(address);
        handle_stop_signals()?;
        output.note(&format!("STAMP reflector on {address} until Ctrl-C"));
        let failed =
            |error| Problem::failure(format!("the reflector on {address} failed")).because(error);
        let document = StampDocument {
            schema: SCHEMA.to_owned(),
            role: StampRole::Reflector,
            address: address.to_string(),
            authenticated,
            reflected: Some(serve(&socket, options, &is_stopped).map_err(failed)?),
            ..StampDocument::default()
        };
        output.show(&document, |style| terminal::stamp::render(&document, style))?;
        Ok(ExitReason::Success)
    }
}

fn bind_problem(address: SocketAddr, error: io::Error) -> Problem {
    let problem = Problem::failure(format!("cannot listen on {address}"));
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need root; choose another, such as :8620"
        }
        io::ErrorKind::AddrInUse => "another program uses it; choose another port, such as :8620",
        _ => "give an address of this host",
    };
    problem.because(error).fix(fix)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn targets_are_names_or_addresses_with_optional_port() {
        let resolved = |text| resolve(text, AddressFamily::Any).ok().map(|found| found.to_string());
        for (text, address) in [
            ("127.0.0.1", Some("127.0.0.1:862")),
            ("127.0.0.1:8620", Some("127.0.0.1:8620")),
            ("::1", Some("[::1]:862")),
            ("[::1]:8620", Some("[::1]:8620")),
            ("127.0.0.1:99999", None),
            ("no-such-host.invalid", None),
        ] {
            assert_eq!(resolved(text).as_deref(), address, "{text}");
        }
    }

    #[test]
    fn interval_is_checked() {
        assert_eq!(check_interval(None), Ok(INTERVAL_DEFAULT));
        for interval in [Span::ZERO, Span::from_us(99), Span::from_secs(7_200)] {
            assert!(check_interval(Some(interval)).is_err(), "{interval}");
        }
    }

    #[test]
    fn short_and_endless_keys_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        for (content, is_key) in [("secret!\n", false), ("secret!!", true), ("", false)] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read_key(&path).is_ok(), is_key, "{content:?}");
        }
        assert!(read_key(Path::new("/dev/zero")).is_err());
        assert!(read_key(&directory.path().join("none")).is_err());
    }

    #[derive(Parser)]
    struct ParsedReflectorArgs {
        #[command(flatten)]
        agent: crate::cli::agent::AgentCommand,
    }

    fn rate_all(words: &str) -> u32 {
        let words = ["agent", "--stamp"].into_iter().chain(words.split_whitespace());
        let words = ParsedReflectorArgs::try_parse_from(words).expect("it parses");
        words.agent.stamp.rate_all()
    }

    #[test]
    fn total_rate_follows_the_limit_of_one_sender() {
        assert_eq!(rate_all(""), ReflectorOptions::default().rate_total);
        assert_eq!(rate_all("--max-rate-per-client 100"), 500);
        assert_eq!(rate_all("--max-rate-per-client 100 --max-rate 50"), 50);
    }
}
