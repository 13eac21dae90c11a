//! `plumb net --iperf3`: a test with an iperf3 server or with plumb's.

use std::io;
use std::net::IpAddr;

use clap::Args;
use plumb_base::time::Span;
use plumb_base::units::quantity::{parse_duration, parse_rate};
use plumb_base::units::{Rate, parse_bytes};
use plumb_interop::iperf3::client::{self, Iperf3ClientError, Iperf3ClientOptions};
use plumb_interop::iperf3::control::Iperf3ControlError;
use plumb_interop::iperf3::parameters::{
    Iperf3Direction, Iperf3Parameters, Iperf3TestLength, Iperf3Transport,
};
use plumb_interop::iperf3::record::Iperf3Test;
use plumb_interop::iperf3::report;
use plumb_interop::iperf3::sockets::{Iperf3AddressFamily, Iperf3SocketError};

use super::page;
use crate::cli::output::{CliOutput, CommandError, CommandResult};
use crate::cli::{handle_stop_signals, is_stopped};
use crate::problem::{ExitReason, Problem};

/// Test with an iperf3 server: iperf3's protocol, options and JSON
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
#[derive(Clone, Debug, Args)]
#[command(
    bin_name = "plumb net --iperf3",
    after_help = "\
The other side is 'iperf3 -s' of version 3.0 or later, or 'plumb agent --iperf3'. The result is the
receiver's count after draining: data sent before the end counts as received.

--json prints iperf3's document with all members of 'iperf3 --json' (start, intervals, end, error), and
two more: 'schema' (plumb.iperf3/1) and 'plumb', with each stream's datagrams lost, reordered and
duplicated, the bytes drained, the CPU time, and the same of the other side if it is plumb.
'plumb import iperf3' reads it.

Sizes: k = 1000, Ki = 1024. Rates are in bits per second: 10M, 2.5gbit.

Examples:
  plumb net --iperf3 HOST                        10 s up
  plumb net --iperf3 HOST --reverse -P 4         four streams down
  plumb net --iperf3 HOST --bidir -t 30          both ways
  plumb net --iperf3 HOST --udp -b 50M           datagrams at 50 Mb/s
  plumb net --iperf3 fe80::1%eth0 -n 1Gi --json"
)]
pub struct Iperf3ClientCommand {
    /// The server: a name or an address, link-local ones with their zone
    host: String,
    /// Its port
    #[arg(short, long, value_name = "PORT", default_value_t = plumb_interop::iperf3::PORT)]
    port: u16,
    /// How long to measure, in whole seconds
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = parse_seconds)]
    time: u32,
    /// Bytes to transfer over all streams, instead of --time
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = parse_bytes)]
    #[arg(conflicts_with = "time")]
    bytes: Option<u64>,
    /// Blocks to transfer over all streams, instead of --time
    #[arg(short = 'k', long, value_name = "N", conflicts_with_all = ["time", "bytes"])]
    blockcount: Option<u64>,
    /// Whole seconds to omit at the start
    #[arg(short = 'O', long, value_name = "TIME", default_value = "0", value_parser = parse_seconds)]
    omit: u32,
    /// Time between two reports
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Span,
    /// Reverse direction: the server sends
    #[arg(short = 'R', long, help_heading = "Streams")]
    reverse: bool,
    /// Both directions at once, over separate streams
    #[arg(long, conflicts_with = "reverse", help_heading = "Streams")]
    bidir: bool,
    /// Streams in each direction
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, help_heading = "Streams")]
    parallel: u32,
    /// UDP instead of TCP
    #[arg(short, long, help_heading = "Streams")]
    udp: bool,
    /// Target bitrate per stream, 0 for no limit; with /N, bursts of N blocks [default: 1048576 for UDP,
    /// unlimited for TCP]
    #[arg(short, long, value_name = "RATE[/N]", value_parser = parse_paced)]
    #[arg(help_heading = "Streams")]
    bitrate: Option<BitrateAndBurst>,
    /// Bitrate per stream, paced by the kernel
    #[arg(long, value_name = "RATE", value_parser = parse_rate, help_heading = "Streams")]
    fq_rate: Option<Rate>,
    /// Bytes per block or datagram [default: 128Ki for TCP, one packet for UDP]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_bytes)]
    #[arg(help_heading = "Streams")]
    length: Option<u64>,
    /// 64-bit counters in UDP datagrams
    #[arg(long, help_heading = "Streams")]
    udp_counters_64bit: bool,
    /// Repeating pattern instead of random bytes
    #[arg(long, help_heading = "Streams")]
    repeating_payload: bool,
    /// Send without copying
    #[arg(short = 'Z', long, help_heading = "Streams")]
    zerocopy: bool,
    /// Discard received data in the kernel
    #[arg(long, help_heading = "Streams")]
    skip_rx_copy: bool,
    /// Socket buffer size
    #[arg(short, long, value_name = "SIZE", value_parser = parse_bytes)]
    #[arg(help_heading = "Sockets")]
    window: Option<u64>,
    /// TCP maximum segment size
    #[arg(short = 'M', long, value_name = "BYTES", help_heading = "Sockets")]
    set_mss: Option<u32>,
    /// Congestion control algorithm
    #[arg(short = 'C', long, value_name = "NAME", help_heading = "Sockets")]
    congestion: Option<String>,
    /// Disable Nagle's algorithm
    #[arg(short = 'N', long, help_heading = "Sockets")]
    no_delay: bool,
    /// Set the IPv4 don't-fragment bit
    #[arg(long, help_heading = "Sockets")]
    dont_fragment: bool,
    /// Type of service or traffic class, as 16, 0x10 or 020
    #[arg(short = 'S', long, value_name = "N", value_parser = parse_octet)]
    #[arg(help_heading = "Sockets")]
    tos: Option<u8>,
    /// Differentiated services: a number, or a name as ef, cs1, af21
    #[arg(long, value_name = "NAME", value_parser = parse_dscp, conflicts_with = "tos")]
    #[arg(help_heading = "Sockets")]
    dscp: Option<u8>,
    /// Local address to bind
    #[arg(short = 'B', long, value_name = "ADDRESS", help_heading = "Sockets")]
    bind: Option<IpAddr>,
    /// IPv4 only
    #[arg(short = '4', long, help_heading = "Sockets")]
    version4: bool,
    /// IPv6 only
    #[arg(short = '6', long, conflicts_with = "version4", help_heading = "Sockets")]
    version6: bool,
    /// Connection timeout
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    #[arg(help_heading = "Sockets")]
    connect_timeout: Span,
    /// Fetch the server's report too
    #[arg(long, help_heading = "Report")]
    get_server_output: bool,
    /// Title of the test
    #[arg(short = 'T', long, value_name = "TEXT", help_heading = "Report")]
    title: Option<String>,
    /// Text that goes into the reports of both sides
    #[arg(long, value_name = "TEXT", help_heading = "Report")]
    extra_data: Option<String>,
}

/// A rate, none for no limit, and the blocks per burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitrateAndBurst {
    rate: Option<Rate>,
    burst: u32,
}

/// Default UDP bitrate of iperf3.
const DATAGRAM_RATE: u64 = 1 << 20;

fn parse_paced(text: &str) -> Result<BitrateAndBurst, String> {
    let (rate, burst) = text.split_once('/').unwrap_or((text, "0"));
    let burst = burst.parse::<u32>().ok().filter(|burst| *burst <= 1_000);
    let burst = burst.ok_or("a burst has up to 1000 blocks, as in 10M/100")?;
    let rate = if rate.trim() == "0" {
        None
    } else {
        Some(parse_rate(rate).map_err(|error| error.to_string())?)
    };
    Ok(BitrateAndBurst { rate, burst })
}

/// Reads whole seconds: `10`, `10s`, `2min`.
fn parse_seconds(text: &str) -> Result<u32, String> {
    let span = parse_duration(text).map_err(|error| error.to_string())?;
    let seconds = u32::try_from(span.as_ns() / 1_000_000_000).ok();
    seconds
        .filter(|seconds| Span::from_secs(u64::from(*seconds)) == span)
        .ok_or_else(|| "iperf3's protocol has whole seconds: write 10 or 10s".to_owned())
}

fn parse_interval(text: &str) -> Result<Span, String> {
    let span = parse_duration(text).map_err(|error| error.to_string())?;
    if (Span::from_ms(10)..=Span::from_secs(3_600)).contains(&span) {
        Ok(span)
    } else {
        Err("the interval must be between 10ms and 1h".to_owned())
    }
}

fn parse_octet(text: &str) -> Result<u8, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => u8::from_str_radix(text, 8),
        None => text.parse(),
    };
    parsed.map_err(|_| "write a number from 0 to 255, as 16, 0x10 or 020".to_owned())
}

/// The octet of a DSCP given by number or by name (RFC 2474, RFC 2597, RFC 3246).
fn parse_dscp(text: &str) -> Result<u8, String> {
    let fault = || "write a number from 0 to 63, ef, va, be, cs0 to cs7 or af11 to af43".to_owned();
    let name = text.to_ascii_lowercase();
    let digits = |prefix: &str| name.strip_prefix(prefix).and_then(|rest| rest.parse::<u8>().ok());
    let bits = match name.as_str() {
        "ef" => 46,
        "va" => 44,
        "be" => 0,
        _ => {
            let selector = digits("cs").filter(|class| *class < 8).map(|class| class * 8);
            let assured = digits("af").and_then(|number| {
                let (class, drop) = (number / 10, number % 10);
                ((1..=4).contains(&class) && (1..=3).contains(&drop)).then(|| class * 8 + drop * 2)
            });
            let plain = || parse_octet(text).ok().filter(|bits| *bits < 64);
            selector.or(assured).or_else(plain).ok_or_else(fault)?
        }
    };
    Ok(bits << 2)
}

/// A size as the protocol's 32 bits.
fn to_u32(size: Option<u64>, option: &str) -> Result<Option<u32>, Problem> {
    let narrow = |size| u32::try_from(size);
    size.map(narrow).transpose().map_err(|_| Problem::usage(format!("{option} is too large")))
}

impl Iperf3ClientCommand {
    fn options(self) -> Result<Iperf3ClientOptions, Problem> {
        let protocol = if self.udp { Iperf3Transport::Udp } else { Iperf3Transport::Tcp };
        let paced = self.bitrate.unwrap_or(BitrateAndBurst {
            rate: Rate::from_bits_per_second(if self.udp { DATAGRAM_RATE } else { 0 }),
            burst: 0,
        });
        let direction = match (self.reverse, self.bidir) {
            (true, _) => Iperf3Direction::Reverse,
            (false, true) => Iperf3Direction::Both,
            (false, false) => Iperf3Direction::Forward,
        };
        let extent = match (self.bytes, self.blockcount) {
            (Some(bytes), _) => Iperf3TestLength::Bytes(bytes),
            (None, Some(blocks)) => Iperf3TestLength::Blocks(blocks),
            (None, None) => Iperf3TestLength::Seconds(self.time),
        };
        let family = match (self.version4, self.version6) {
            (true, _) => Iperf3AddressFamily::V4,
            (false, true) => Iperf3AddressFamily::V6,
            (false, false) => Iperf3AddressFamily::Any,
        };
        let parameters = Iperf3Parameters {
            protocol,
            direction,
            length_limit: extent,
            omit_seconds: self.omit,
            streams: self.parallel,
            bitrate: paced.rate,
            burst: paced.burst,
            pacing: self.fq_rate,
            window: to_u32(self.window, "--window")?,
            mss: self.set_mss,
            type_of_service: self.tos.or(self.dscp).unwrap_or(0),
            no_delay: self.no_delay,
            no_fragments: self.dont_fragment,
            congestion: self.congestion,
            wide_counters: self.udp_counters_64bit,
            repeating: self.repeating_payload,
            zerocopy: self.zerocopy,
            skip_copy: self.skip_rx_copy,
            server_report: self.get_server_output,
            title: self.title,
            extra: self.extra_data,
            ..Iperf3Parameters::default()
        };
        Ok(Iperf3ClientOptions {
            host: self.host,
            port: self.port,
            family,
            bind: self.bind,
            connect_timeout: self.connect_timeout,
            interval: self.interval,
            length: to_u32(self.length, "--length")?,
            parameters,
        })
    }

    /// Runs the test and prints its result.
    ///
    /// # Errors
    /// The test ended early; its partial result is printed first.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let options = self.options()?;
        handle_stop_signals()?;
        let mut show = |progress| {
            if !output.json {
                output.note(&page::progress(&progress));
            }
        };
        let result = client::run(&options, &is_stopped, &mut show);
        let (test, error) = match result {
            Ok(test) => (Some(test), None),
            Err(failure) => (failure.partial.map(|test| *test), Some(failure.error)),
        };
        if let Some(test) = &test {
            print(test, output)?;
        }
        match error {
            Some(error) => Err(problem(&options, &error).into()),
            None => Ok(ExitReason::Success),
        }
    }
}

fn print(test: &Iperf3Test, output: &CliOutput) -> Result<(), CommandError> {
    let report = report::document(test);
    if output.json {
        return output.document(&report);
    }
    // A test that did not begin has no page.
    if test.record.is_some() {
        output.page(&page::test(test, &report, output.style))
    } else {
        Ok(())
    }
}

/// An error with its fix.
fn problem(options: &Iperf3ClientOptions, error: &Iperf3ClientError) -> Problem {
    let (host, port) = (&options.host, options.port);
    let problem = Problem::failure(format!("the iperf3 test with {host} failed")).because(error);
    match error {
        Iperf3ClientError::Stopped => Problem { exit: ExitReason::Interrupted, ..problem },
        Iperf3ClientError::Parameters(_) => Problem { exit: ExitReason::Usage, ..problem },
        Iperf3ClientError::Socket { error: Iperf3SocketError::UnknownHost { .. }, .. } => {
            let named = host.rsplit_once(':').filter(|(name, _)| !name.contains(':'));
            let named = named.and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
            Problem { exit: ExitReason::Usage, ..problem }.fix(match named {
                Some((name, port)) => format!("give the port as an option: {name} --port {port}"),
                None => "check the name with 'getent hosts'".to_owned(),
            })
        }
        Iperf3ClientError::Socket { error: Iperf3SocketError::Source { .. }, .. } => {
            Problem { exit: ExitReason::Usage, ..problem }
                .fix("give an address of this host with --bind; 'ip address' lists them")
        }
        Iperf3ClientError::Socket { error: Iperf3SocketError::Connect { why, .. }, .. } => {
            match why.kind() {
                io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::TimedOut => problem.fix(format!(
                    "start a server there: plumb agent --iperf3 :{port}, or iperf3 -s -p {port}"
                )),
                _ => problem.fix("check the address and the route to it: ip route get ADDRESS"),
            }
        }
        Iperf3ClientError::Control { error: Iperf3ControlError::Busy, .. } => problem.fix(
            "wait for its test to end; 'plumb agent --iperf3 --max-tests 4' runs several at a time",
        ),
        Iperf3ClientError::Control { error: Iperf3ControlError::UnknownByte(_), .. } => {
            problem.fix(format!("check what listens on port {port} there: ss -ltnp"))
        }
        Iperf3ClientError::UdpHandshake { .. } => {
            problem.fix(format!("open UDP port {port} in the firewall, or test TCP, without --udp"))
        }
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitrates_with_bursts_are_parsed() {
        let rate = Rate::from_bits_per_second;
        assert_eq!(parse_paced("10M"), Ok(BitrateAndBurst { rate: rate(10_000_000), burst: 0 }));
        assert_eq!(
            parse_paced("1gbit/100"),
            Ok(BitrateAndBurst { rate: rate(1_000_000_000), burst: 100 })
        );
        assert_eq!(parse_paced("0"), Ok(BitrateAndBurst { rate: None, burst: 0 }));
        assert!(parse_paced("10M/x").is_err() && parse_paced("fast").is_err());
    }

    #[test]
    fn dscp_names_have_their_standard_numbers() {
        for (name, octet) in
            [("ef", 0xB8), ("CS1", 0x20), ("af21", 0x48), ("af43", 0x98), ("10", 0x28), ("be", 0)]
        {
            assert_eq!(parse_dscp(name), Ok(octet), "{name}");
        }
        assert!(parse_dscp("af51").is_err() && parse_dscp("64").is_err());
        assert_eq!((parse_octet("0x10"), parse_octet("020")), (Ok(16), Ok(16)));
        assert!(parse_octet("256").is_err());
    }

    #[test]
    fn interval_is_seconds_or_a_time() {
        assert_eq!(parse_interval("0.5"), Ok(Span::from_ms(500)));
        assert_eq!(parse_interval("250ms"), Ok(Span::from_ms(250)));
        assert!(parse_interval("0").is_err());
    }
}
