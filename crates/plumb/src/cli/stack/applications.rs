//! `plumb stack ping`, `send`, `serve` and `mirror`: applications on plumb's own stack.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use plumb_analysis::document::stack::{SCHEMA, StackDocument, StackRoundTrips};
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_report::terminal;

use crate::cli::output::{CliOutput, CommandError};
use crate::cli::stack::options::{StackHostOptions, StatusReports};
use crate::problem::{ExitReason, Problem, nearest};
use crate::stack::attached_host::{
    self, AttachedHost, OfferedServices, ServiceKind, ServicePort, StackEndReason, StackRunResult,
};
use crate::stack::echo_test::{
    self, EchoAbort, EchoSender, EchoStage, EchoTest, EchoTimeouts, PAYLOAD_MIN,
};
use crate::stack::ping::{PingApplication as Application, PingEvent, PingRequest};

/// Prints what came of it, then the trouble that ended it, if any did.
///
/// # Errors
/// That trouble; standard output cannot be written.
pub fn finish(
    document: &StackDocument,
    trouble: Option<Problem>,
    counters: bool,
    output: &CliOutput,
) -> Result<ExitReason, CommandError> {
    if output.json {
        output.document(document)?;
    } else {
        output.page(&terminal::stack::render(document, counters, output.style))?;
    }
    match trouble {
        Some(problem) => Err(problem.into()),
        None => Ok(ExitReason::Success),
    }
}

/// The trouble in the end of a run: only a device makes any.
pub fn device_problem(ended: StackEndReason) -> Option<Problem> {
    match ended {
        StackEndReason::Device(error) => Some(error.into()),
        StackEndReason::Complete | StackEndReason::Duration | StackEndReason::Interrupted => None,
    }
}

/// Send ICMP echo requests from plumb's own stack, and time the replies
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The first reply, which may include asking for the link address, is not among the statistics.
Exit code 4 when nothing is answered.

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
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_span)]
    interval: Span,
    /// How long to wait for a reply
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_span)]
    timeout: Span,
    /// Payload bytes per request
    #[arg(long, value_name = "BYTES", default_value_t = 56)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=65_000))]
    size: u16,
    /// Print the summary only
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    station: StackHostOptions,
}

/// Ethernet, ICMP, and the IP header of either family.
const fn overhead(address: IpAddr) -> usize {
    14 + 8 + if address.is_ipv4() { 20 } else { 40 }
}

impl StackPingCommand {
    /// Asks, and prints what came back.
    ///
    /// # Errors
    /// The device cannot be opened, or fails; nothing was answered.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let settings = self.station.settings(Some((self.address, Vec::new())))?;
        let station = AttachedHost::open(&settings, |text| output.note(text))?;
        output.note(&format!("pinging {} from {}", self.address, station.describe()));
        let data_bytes = usize::from(self.size);
        let application = Application::new(PingRequest {
            remote: self.address,
            count: (!self.forever).then_some(self.count),
            interval: self.interval,
            timeout: self.timeout,
            data_bytes,
            frame_bytes: data_bytes + overhead(self.address),
            identifier: u16::try_from(settings.seed.derive("ping").0 >> 48).expect("16 bits"),
        });
        let lines = !output.json && !self.summary;
        let mut reports = StatusReports::new(&self.station, output);
        let mut unread = None;
        let StackRunResult { application, ended, mut document } =
            station.run(application, |node, now| {
                for notice in node.application.take_events() {
                    let told = print_notice(&notice, lines, output);
                    unread = unread.take().or(told.err());
                }
                reports.print_if_due(now, &node.host, || format!("pinging {}", self.address));
                let is_over = node.application.is_over() || unread.is_some();
                is_over.then_some(StackEndReason::Complete)
            });
        if let Some(failure) = unread {
            return Err(failure);
        }
        let ended = ended.of_echo_test(application.is_over());
        ended.name().clone_into(&mut document.ended);
        let begun = application.begun();
        let (exchange, flags) = application.into_result();
        "ping".clone_into(&mut document.command);
        let silent = exchange.answered == 0 && begun > 0;
        let trouble = device_problem(ended).or_else(|| silent.then(|| self.silence(begun)));
        document.exchanges = vec![exchange];
        document.flags = flags;
        if silent && document.ended == "complete" {
            "silent".clone_into(&mut document.ended);
        }
        finish(&document, trouble, self.station.stats.is_some(), output)
    }

    fn silence(&self, begun: u64) -> Problem {
        Problem::failure(format!("{} did not answer", self.address))
            .because(format!("{begun} request(s) were made, and no reply came in time"))
            .fix(
                "check that it is up and on the network of this device; --pcap OUT.pcapng shows what \
                 was sent, and --stats what was dropped",
            )
    }
}

fn print_notice(notice: &PingEvent, lines: bool, output: &CliOutput) -> Result<(), CommandError> {
    let text = match notice {
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
Without --device the kernel's stack sends, with it plumb's own; the same code times both. By default
10,000 frames of 60 bytes and 1,000 of 1514, as on Ethernet (over IPv6 the short ones have 80 bytes,
for the same payload). One more before each size finds the peer and is not among the statistics.

Exit code 4 when nothing is answered, or the peer falls silent or refuses.

All samples are from one process: to compare stacks, run 'plumb run mirror.rtt', which repeats in
fresh processes and interleaves.

Examples:
  plumb stack send 10.77.0.2:1997
  plumb stack send 10.77.0.1:7 --device tap:plumb0 --addr 10.77.0.2/24 --size 60 --count 100000
  plumb stack send 10.0.0.2:1997 --device memory       to another plumb in this process")]
pub struct StackSendCommand {
    /// A mirror, or any service that returns datagrams
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_remote)]
    remote: SocketAddr,
    /// Bytes of a frame, as on Ethernet without its check sequence; several after commas
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_549))]
    size: Vec<u32>,
    /// Round trips at each size [default: 10000, and 1000 of frames over 512 bytes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: Option<u64>,
    /// Start no new round trip after this time
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    duration: Option<Span>,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_span)]
    timeout: Span,
    /// Give up after this many consecutive losses
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    max_consecutive_losses: u32,
    #[command(flatten)]
    station: StackHostOptions,
}

/// Short and long frames of the default, and how many.
const DEFAULT: [(u32, u64); 2] = [(60, 10_000), (1_514, 1_000)];
/// The shortest frame with an IPv6 datagram of the payload of a 60-byte frame.
const SHORT_V6: u32 = 80;
/// Longer frames are fewer by default.
const LONG_FROM: u32 = 512;

impl StackSendCommand {
    /// Sends, and prints how long it took.
    ///
    /// # Errors
    /// The device cannot be opened, or fails; the peer refuses or is silent.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let patience =
            EchoTimeouts { timeout: self.timeout, silent_max: self.max_consecutive_losses };
        let course = EchoTest::new(self.remote.to_string(), self.stages()?, patience);
        let (course, ended, mut document) = if self.station.device.is_some() {
            self.over_plumb(course, output)?
        } else {
            self.over_kernel(course, output)?
        };
        let ended = ended.of_echo_test(course.is_over());
        ended.name().clone_into(&mut document.ended);
        let (halt, unanswered) = (course.halt().cloned(), course.unanswered());
        let (exchanges, flags) = course.into_results();
        "send".clone_into(&mut document.command);
        let mut trouble = device_problem(ended);
        if let Some(halt) = halt {
            let word = if matches!(halt, EchoAbort::Silent(_)) { "silent" } else { "refused" };
            word.clone_into(&mut document.ended);
            trouble = Some(self.explain(&halt, &exchanges));
        } else if let Some(begun) = unanswered {
            let why = format!("{begun} datagram(s) sent, none answered in time");
            trouble = trouble.or_else(|| Some(self.no_reply(why)));
        }
        document.exchanges = exchanges;
        document.flags = flags;
        finish(&document, trouble, self.station.stats.is_some(), output)
    }

    fn stages(&self) -> Result<Vec<EchoStage>, Problem> {
        let is_v6 = self.remote.is_ipv6();
        let headers = 14 + 8 + if is_v6 { 40 } else { 20 };
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
                        "headers take {headers} bytes and the number of each datagram {PAYLOAD_MIN}"
                    ))
                    .fix(format!("choose --size {} or more", headers + PAYLOAD_MIN))),
            }
        };
        sizes.into_iter().map(stage).collect()
    }

    fn over_plumb(
        &self,
        course: EchoTest,
        output: &CliOutput,
    ) -> Result<(EchoTest, StackEndReason, StackDocument), CommandError> {
        let mirror = ServicePort { kind: ServiceKind::Mirror, port: self.remote.port() };
        let settings = self.station.settings(Some((self.remote.ip(), vec![mirror])))?;
        let mut station = AttachedHost::open(&settings, |text| output.note(text))?;
        output.note(&format!("to {} from {}", self.remote, station.describe()));
        let timeline = station.timeline;
        let sender = EchoSender::open(&mut station.host, self.remote, course, timeline)?;
        let mut reports = StatusReports::new(&self.station, output);
        let begun = timeline.now();
        let finished = station.run(sender, |node, now| {
            let course = &node.application.test;
            reports.print_if_due(now, &node.host, || {
                let (done, planned) = course.progress();
                format!("{done} of {planned} round trips")
            });
            end_reason(course, self.duration, now.saturating_since(begun))
        });
        Ok((finished.application.test, finished.ended, finished.document))
    }

    fn over_kernel(
        &self,
        mut course: EchoTest,
        output: &CliOutput,
    ) -> Result<(EchoTest, StackEndReason, StackDocument), CommandError> {
        self.station.refuse_without_device()?;
        attached_host::install_signal_handlers()?;
        output.note(&format!("to {} over the kernel's stack", self.remote));
        let timeline = attached_host::timeline();
        let begun = timeline.now();
        let wait = self.station.wait.into();
        let ended =
            echo_test::run_over_kernel(&mut course, self.remote, wait, timeline, |course, now| {
                end_reason(course, self.duration, now.saturating_since(begun))
            })?;
        let document = StackDocument {
            schema: SCHEMA.to_owned(),
            stack: "linux".to_owned(),
            seconds: timeline.now().saturating_since(begun).as_secs_f64(),
            ended: ended.name().to_owned(),
            ..StackDocument::default()
        };
        Ok((course, ended, document))
    }

    fn explain(&self, halt: &EchoAbort, exchanges: &[StackRoundTrips]) -> Problem {
        match halt {
            EchoAbort::Silent(silent) => {
                let answered: u64 = exchanges.iter().map(|exchange| exchange.answered).sum();
                let sent: u64 = exchanges.iter().map(|exchange| exchange.sent).sum();
                self.no_reply(format!(
                    "the last {silent} datagrams were not answered in time, {answered} of {sent} in all \
                     were"
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
            "check that something mirrors there: plumb stack mirror --port {}, or a longer --timeout",
            self.remote.port()
        ))
    }
}

/// Why it is enough, if it is: nothing is drawn meanwhile, which would be in what is timed.
fn end_reason(course: &EchoTest, duration: Option<Span>, elapsed: Span) -> Option<StackEndReason> {
    if course.is_over() {
        return Some(StackEndReason::Complete);
    }
    duration.is_some_and(|duration| elapsed >= duration).then_some(StackEndReason::Duration)
}

fn parse_remote(text: &str) -> Result<SocketAddr, String> {
    let remote: SocketAddr = text.parse().map_err(|_| {
        format!("'{text}' is no address and port: write 10.77.0.2:1997 or [fd77::2]:1997")
    })?;
    if remote.port() == 0 { Err("port 0 cannot be sent to".to_owned()) } else { Ok(remote) }
}

/// Return every UDP datagram to its sender, from plumb's own stack
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A datagram is returned where it lies, without a copy: one answer for one datagram. The stack answers
ARP, neighbor discovery and ping as well. Ctrl-C ends it, with its counts.

Over IPv6 no switch is told of its multicast groups (no MLD): one that snoops may keep questions for
its address away. Neighbours then need it by hand: ip neigh replace ADDRESS lladdr MAC dev INTERFACE

Examples:
  plumb stack mirror --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack mirror --device packet:eth1 --addr 192.0.2.7/24 --wait spin --port 7
  plumb stack lab --far tap -- plumb stack mirror --device tap:plumb0 --addr 10.77.0.2/24")]
pub struct StackMirrorCommand {
    /// UDP port
    #[arg(long, value_name = "PORT", default_value_t = ServiceKind::Mirror.port())]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    #[command(flatten)]
    limits: ServeLimits,
    #[command(flatten)]
    station: StackHostOptions,
}

/// Offer echo, discard and a mirror over UDP, from plumb's own stack
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
echo copies each datagram out and a copy of it back (RFC 862), discard drops it (RFC 863), mirror
returns it where it lies. None ever sends more than it was sent. Ctrl-C ends it, with its counts.
Over IPv6 no switch is told of its multicast groups (no MLD): see 'plumb stack mirror --help'.

Examples:
  plumb stack serve --device tap:plumb0 --addr 10.77.0.2/24 --addr fd77::2/64
  plumb stack serve --device xdp:eth1 --addr 192.0.2.7/24 --service echo,discard
  plumb stack serve --device packet:eth1 --addr 192.0.2.7/24 --service mirror:7 --stats=1s")]
pub struct StackServeCommand {
    /// What to offer, each perhaps at another port
    #[arg(long, value_name = "SERVICE[:PORT],…", value_delimiter = ',', value_parser = parse_offer)]
    #[arg(default_value = "echo,discard,mirror")]
    service: Vec<ServicePort>,
    #[command(flatten)]
    limits: ServeLimits,
    #[command(flatten)]
    station: StackHostOptions,
}

/// When it is enough.
#[derive(Clone, Debug, Args)]
pub struct ServeLimits {
    /// Exit after this many datagrams
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Exit after this time
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    duration: Option<Span>,
}

impl StackMirrorCommand {
    /// Mirrors until it is told to stop.
    ///
    /// # Errors
    /// The device cannot be opened, or fails.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let offers = [ServicePort { kind: ServiceKind::Mirror, port: self.port }];
        serve("mirror", &offers, &self.limits, &self.station, output)
    }
}

impl StackServeCommand {
    /// Serves until it is told to stop.
    ///
    /// # Errors
    /// The device cannot be opened, or fails.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        serve("serve", &self.service, &self.limits, &self.station, output)
    }
}

fn serve(
    command: &str,
    offers: &[ServicePort],
    limits: &ServeLimits,
    options: &StackHostOptions,
    output: &CliOutput,
) -> Result<ExitReason, CommandError> {
    let settings = options.settings(None)?;
    let mut station = AttachedHost::open(&settings, |text| output.note(text))?;
    let services = OfferedServices::open(&mut station.host, offers)
        .map_err(|error| Problem::from_message(&error.to_string(), ExitReason::Usage))?;
    let words: Vec<String> = offers.iter().map(ServicePort::to_string).collect();
    output.note(&format!("{}: {}; Ctrl-C ends it", station.describe(), words.join(", ")));
    let mut reports = StatusReports::new(options, output);
    let begun = station.driver.now();
    let finished = station.run(services, |node, now| {
        for notice in node.application.take_notices() {
            output.note(&notice);
        }
        let services = &node.application;
        reports.print_if_due(now, &node.host, || format!("{} datagrams", services.received()));
        if limits.count.is_some_and(|count| services.received() >= count) {
            return Some(StackEndReason::Complete);
        }
        let is_over = limits.duration.is_some_and(|span| now.saturating_since(begun) >= span);
        is_over.then_some(StackEndReason::Duration)
    });
    let mut document = finished.document;
    command.clone_into(&mut document.command);
    document.services = finished.application.counts();
    finish(&document, device_problem(finished.ended), options.stats.is_some(), output)
}

fn parse_offer(text: &str) -> Result<ServicePort, String> {
    let (name, port) = text.split_once(':').unwrap_or((text, ""));
    let names = ServiceKind::ALL.map(ServiceKind::name);
    let Some(kind) = ServiceKind::ALL.into_iter().find(|kind| kind.name() == name) else {
        let hint = nearest(name, names).map(|name| format!("did you mean '{name}'? "));
        let hint = hint.unwrap_or_default();
        return Err(format!(
            "there is no service '{name}'; {hint}choose from: {}",
            names.join(", ")
        ));
    };
    let port = if port.is_empty() { Ok(kind.port()) } else { port.parse() };
    match port {
        Ok(port) if port > 0 => Ok(ServicePort { kind, port }),
        _ => Err(format!("'{text}' names no port: write {name}:{}", kind.port())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read_with_and_without_ports() {
        assert_eq!(parse_offer("echo"), Ok(ServicePort { kind: ServiceKind::Echo, port: 7 }));
        assert_eq!(parse_offer("mirror:7"), Ok(ServicePort { kind: ServiceKind::Mirror, port: 7 }));
        for (text, told) in [
            ("miror", "did you mean 'mirror'?"),
            ("zebra", "choose from: mirror, echo, discard"),
            ("echo:0", "names no port"),
            ("echo:x", "names no port"),
        ] {
            let said = parse_offer(text).unwrap_err();
            assert!(said.contains(told), "{said}");
        }
    }
}
