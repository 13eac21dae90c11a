//! `plumb stack ping` and `send`: round trips from plumb's own stack.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use plumb_analysis::document::stack::{SCHEMA, StackDocument, StackRoundTrips};
use plumb_analysis::summary::single_process;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_duration;
use plumb_netdev::host::echo_test::{
    self, EchoAbort, EchoSender, EchoStage, EchoTest, EchoTimeouts, PAYLOAD_MIN, RoundTripSeries,
};
use plumb_netdev::host::ping::{PingApplication, PingEvent, PingRequest};
use plumb_netdev::host::services::{ServiceKind, ServicePort};
use plumb_netdev::host::{self, RunWatch, StackEndReason};
use plumb_report::terminal;
use plumb_stack::host::IpHost;
use plumb_stack::service::HostNode;

use super::host::{OpenedHost, StackHostOptions, install_signal_handlers};
use crate::cli::output::{CliOutput, CommandError, CommandResult};
use crate::problem::{ExitReason, Problem};

/// Prints a result, and then returns the problem that ended the command, if any.
///
/// # Errors
/// That problem; standard output cannot be written.
pub fn finish(
    document: &StackDocument,
    problem: Option<Problem>,
    counters: bool,
    output: &CliOutput,
) -> CommandResult {
    output.show(document, |style| terminal::stack::render(document, counters, style))?;
    problem.map_or(Ok(ExitReason::Success), |problem| Err(problem.into()))
}

/// The round trips with a peer for a document, and flags for their reader.
fn round_trips(remote: &str, series: &RoundTripSeries) -> (StackRoundTrips, Vec<String>) {
    let (rtt, flags) = single_process::summary(&series.samples);
    let exchange = StackRoundTrips {
        remote: remote.to_owned(),
        frame_bytes: series.frame_bytes as u64,
        payload_bytes: series.payload_bytes as u64,
        sent: series.sent,
        answered: series.answered,
        lost: series.lost,
        late: series.late,
        corrupt: series.corrupt,
        errors: series.errors,
        first_ns: series.first_ns,
        rtt,
    };
    (exchange, flags)
}

/// Prints the counters of a running host after the `summary` of its application.
pub fn print_status(host: &IpHost, summary: &str, output: &CliOutput) {
    let counted = host.counters().iter().filter(|(_, count)| *count > 0);
    let counted: Vec<String> = counted.map(|(name, count)| format!("{name} {count}")).collect();
    output.note(&format!("{summary}; {}", counted.join(", ")));
}

/// The problem in the end of a run: a device error.
pub fn device_problem(ended: StackEndReason) -> Option<Problem> {
    match ended {
        StackEndReason::Device(error) => Some(error.into()),
        StackEndReason::Complete | StackEndReason::Duration | StackEndReason::Interrupted => None,
    }
}

/// Send ICMP echo requests from plumb's own stack, and time the replies
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The first reply, whose time may include address resolution, is not part of the statistics.
Exit code 4 if there is no reply.

Examples:
  plumb stack ping 10.77.0.1 --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack ping fd77::2 --device packet:eth1 --addr fd77::1/64 --count 1000 --interval 1ms
  plumb stack ping 10.0.0.2 --device memory            another plumb in this process")]
pub struct StackPingCommand {
    /// Destination
    #[arg(value_name = "ADDRESS")]
    address: IpAddr,
    /// Requests to send
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Send until Ctrl-C
    #[arg(long, conflicts_with = "count")]
    forever: bool,
    /// Time between two requests
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_duration)]
    interval: Span,
    /// How long to wait for a reply
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    timeout: Span,
    /// Payload bytes per request
    #[arg(long, value_name = "BYTES", default_value_t = 56)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=65_000))]
    size: u16,
    /// Print the summary only
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    host: StackHostOptions,
}

/// Bytes of the Ethernet, IP, and ICMP or UDP headers.
const fn header_bytes(address: IpAddr) -> usize {
    14 + 8 + if address.is_ipv4() { 20 } else { 40 }
}

impl StackPingCommand {
    /// Sends requests, and prints the replies and the result.
    ///
    /// # Errors
    /// The device cannot be opened, or fails; there was no reply.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let host = self.host.open(Some((self.address, &[])), output)?;
        output.note(&format!("pinging {} from {}", self.address, host.describe()));
        let data_bytes = usize::from(self.size);
        let request = PingRequest {
            remote: self.address,
            count: (!self.forever).then_some(self.count),
            interval: self.interval,
            timeout: self.timeout,
            data_bytes,
            frame_bytes: data_bytes + header_bytes(self.address),
            identifier: u16::try_from(host.seed.derive("ping").0 >> 48).expect("16 bits"),
        };
        let lines = !output.json && !self.summary;
        let mut failure = None;
        let OpenedHost { attached, facts, .. } = host;
        let watch = RunWatch {
            duration: None,
            status_every: self.host.status_every(),
            notify: &mut |node: &mut HostNode<PingApplication>, is_status_due| {
                for event in node.application.take_events() {
                    failure = failure.take().or(print_event(&event, lines, output).err());
                }
                if is_status_due {
                    print_status(&node.host, &format!("pinging {}", self.address), output);
                }
                failure.is_none()
            },
        };
        let run = attached.ping(request, watch);
        if let Some(failure) = failure {
            return Err(failure);
        }
        let mut document = facts.document("ping", &run);
        let sent = run.application.sent;
        let (series, delays) = run.application.into_result();
        let (exchange, flags) = round_trips(&self.address.to_string(), &series);
        let silent = exchange.answered == 0 && sent > 0;
        let problem = device_problem(run.ended).or_else(|| silent.then(|| self.no_reply(sent)));
        document.exchanges = vec![exchange];
        document.flags.extend(flags.into_iter().chain(delays));
        if silent && document.ended == "complete" {
            "silent".clone_into(&mut document.ended);
        }
        finish(&document, problem, self.host.stats.is_some(), output)
    }

    fn no_reply(&self, sent: u64) -> Problem {
        Problem::failure(format!("{} did not answer", self.address))
            .because(format!("{sent} request(s) sent, none answered in time"))
            .fix(
                "check that it is up and on the network of this device; --pcap OUT.pcapng records \
                 packets, and --stats shows drops",
            )
    }
}

fn print_event(event: &PingEvent, lines: bool, output: &CliOutput) -> Result<(), CommandError> {
    let text = match event {
        PingEvent::Failure(text) => {
            output.note(text);
            return Ok(());
        }
        _ if !lines => return Ok(()),
        PingEvent::Reply { number, len, hop_limit, rtt } => {
            format!("{number:>6}  {rtt}  {len} B, hop limit {hop_limit}")
        }
        PingEvent::Lost { number } => format!("{number:>6}  no reply in time"),
    };
    output.page(&output.style.to_charset(&text))
}

/// Send UDP datagrams one at a time to a mirror, and time the round trips
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Without --device the kernel's stack sends, with it plumb's; the same code times both. By default it
sends 10,000 frames of 60 bytes and 1,000 of 1514 (over IPv6 80 instead of 60, for the same payload).
A first frame of each size resolves addresses and is not part of the statistics.

Exit code 4 if there is no answer, the peer stops answering, or it refuses.

All samples are from one process. To compare stacks use 'plumb run mirror.rtt', which interleaves
repetitions in fresh processes.

Examples:
  plumb stack send 10.77.0.2:1997
  plumb stack send 10.77.0.1:7 --device tap:plumb0 --addr 10.77.0.2/24 --size 60 --count 100000
  plumb stack send 10.0.0.2:1997 --device memory       another plumb in this process")]
pub struct StackSendCommand {
    /// Address of a mirror, or of any service that returns datagrams
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_remote)]
    remote: SocketAddr,
    /// Bytes per Ethernet frame without check sequence; several separated by commas
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_549))]
    size: Vec<u32>,
    /// Round trips per size [default: 10000, and 1000 of frames over 512 bytes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: Option<u64>,
    /// Start no new round trip after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Span>,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    timeout: Span,
    /// Give up after this many consecutive losses
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    max_consecutive_losses: u32,
    #[command(flatten)]
    host: StackHostOptions,
}

/// Default frame sizes, with the number of round trips.
const DEFAULT: [(u32, u64); 2] = [(60, 10_000), (1_514, 1_000)];
/// The IPv6 frame with the payload of a 60-byte IPv4 frame.
const SHORT_V6: u32 = 80;
/// Frames longer than this have fewer round trips by default.
const LONG_FROM: u32 = 512;

impl StackSendCommand {
    /// Sends datagrams, and prints their round trips.
    ///
    /// # Errors
    /// The device cannot be opened, or fails; the peer refuses or is silent.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let timeouts =
            EchoTimeouts { timeout: self.timeout, silent_max: self.max_consecutive_losses };
        let test = EchoTest::new(self.stages()?, timeouts);
        let (mut test, ended, mut document) = if self.host.device.is_some() {
            self.over_plumb(test, output)?
        } else {
            self.over_kernel(test, output)?
        };
        let (abort, unanswered) = (test.abort.take(), test.unanswered());
        for series in test.into_results() {
            let (exchange, flags) = round_trips(&self.remote.to_string(), &series);
            let frame = exchange.frame_bytes;
            document.flags.extend(flags.iter().map(|flag| format!("{frame} B: {flag}")));
            document.exchanges.push(exchange);
        }
        let mut problem = device_problem(ended);
        if let Some(abort) = abort {
            let ended = if matches!(abort, EchoAbort::Silent(_)) { "silent" } else { "refused" };
            ended.clone_into(&mut document.ended);
            problem = Some(self.abort_problem(abort, &document.exchanges));
        } else if let Some(sent) = unanswered {
            let why = format!("{sent} datagram(s) sent, none answered in time");
            problem = problem.or_else(|| Some(self.no_reply(why)));
        }
        finish(&document, problem, self.host.stats.is_some(), output)
    }

    fn stages(&self) -> Result<Vec<EchoStage>, Problem> {
        let is_v6 = self.remote.is_ipv6();
        let headers = header_bytes(self.remote.ip());
        let sizes: Vec<u32> = if self.size.is_empty() {
            let short = if is_v6 { SHORT_V6 } else { DEFAULT[0].0 };
            vec![short, DEFAULT[1].0]
        } else {
            self.size.clone()
        };
        let stage = |frame: u32| {
            let frame_bytes = usize::try_from(frame).expect("a frame is shorter than 4 GiB");
            let count = DEFAULT[usize::from(frame > LONG_FROM)].1;
            match frame_bytes.checked_sub(headers) {
                Some(payload_bytes) if payload_bytes >= PAYLOAD_MIN => {
                    Ok(EchoStage { frame_bytes, payload_bytes, count: self.count.unwrap_or(count) })
                }
                _ => Err(Problem::usage(format!("a frame of {frame} bytes is too short"))
                    .because(format!(
                        "headers have {headers} bytes and the sequence number {PAYLOAD_MIN}"
                    ))
                    .fix(format!("choose --size {} or more", headers + PAYLOAD_MIN))),
            }
        };
        sizes.into_iter().map(stage).collect()
    }

    fn over_plumb(
        &self,
        test: EchoTest,
        output: &CliOutput,
    ) -> Result<(EchoTest, StackEndReason, StackDocument), CommandError> {
        let mirror = ServicePort { kind: ServiceKind::Mirror, port: self.remote.port() };
        let host = self.host.open(Some((self.remote.ip(), &[mirror])), output)?;
        output.note(&format!("to {} from {}", self.remote, host.describe()));
        let OpenedHost { attached, facts, .. } = host;
        let watch = RunWatch {
            duration: self.duration,
            status_every: self.host.status_every(),
            notify: &mut |node: &mut HostNode<EchoSender>, _| {
                let (done, planned) = node.application.test.progress();
                let summary = format!("{done} of {planned} round trips");
                print_status(&node.host, &summary, output);
                true
            },
        };
        let run = attached.run_echo_test(test, self.remote, watch).map_err(|error| {
            Problem::from(error).fix(format!(
                "give the stack an address of {}'s network with --addr, or a gateway with --gateway",
                self.remote
            ))
        })?;
        let document = facts.document("send", &run);
        Ok((run.application.test, run.ended, document))
    }

    fn over_kernel(
        &self,
        mut test: EchoTest,
        output: &CliOutput,
    ) -> Result<(EchoTest, StackEndReason, StackDocument), CommandError> {
        self.host.refuse_without_device()?;
        install_signal_handlers()?;
        output.note(&format!("to {} over the kernel's stack", self.remote));
        let timeline = host::calibrated_clock();
        let begun = timeline.now();
        let wait = self.host.wait.into();
        let ended =
            echo_test::run_over_kernel(&mut test, self.remote, wait, self.duration, timeline)
                .map_err(|error| {
                    Problem::failure(format!("cannot open a UDP socket to {}", self.remote))
                        .because(error)
                        .fix("check the route: ip route get ADDRESS")
                })?;
        let document = StackDocument {
            schema: SCHEMA.to_owned(),
            command: "send".to_owned(),
            stack: "linux".to_owned(),
            seconds: timeline.now().saturating_since(begun).as_secs_f64(),
            ended: ended.name().to_owned(),
            ..StackDocument::default()
        };
        Ok((test, ended, document))
    }

    fn abort_problem(&self, abort: EchoAbort, exchanges: &[StackRoundTrips]) -> Problem {
        match abort {
            EchoAbort::Silent(silent) => {
                let answered: u64 = exchanges.iter().map(|exchange| exchange.answered).sum();
                let sent: u64 = exchanges.iter().map(|exchange| exchange.sent).sum();
                self.no_reply(format!(
                    "the last {silent} datagrams were not answered in time; of all, {answered} of {sent} were"
                ))
            }
            EchoAbort::Refused(why) => {
                Problem::failure(format!("{} cannot be reached", self.remote)).because(why).fix(
                    format!(
                        "start a mirror there: plumb stack mirror --port {} --device …",
                        self.remote.port()
                    ),
                )
            }
        }
    }

    fn no_reply(&self, why: String) -> Problem {
        Problem::failure(format!("{} does not answer", self.remote)).because(why).fix(format!(
            "check that a mirror runs there: plumb stack mirror --port {}, or give a longer --timeout",
            self.remote.port()
        ))
    }
}

pub fn parse_remote(text: &str) -> Result<SocketAddr, String> {
    let remote: SocketAddr = text.parse().map_err(|_| {
        format!("'{text}' is not an address with a port: write 10.77.0.2:1997 or [fd77::2]:1997")
    })?;
    if remote.port() == 0 { Err("port 0 cannot be used".to_owned()) } else { Ok(remote) }
}
