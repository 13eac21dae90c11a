//! `plumb stack send`: one datagram at a time to a mirror, timed, over the kernel's stack or plumb's.
//!
//! Left out: what is sent when (`crate::stack::course`).

use std::net::SocketAddr;

use clap::Args;
use plumb_analysis::document::stack::{Exchange, SCHEMA, StackDocument};
use plumb_base::time::Span;

use super::finish::{finish, trouble};
use super::options::{StationOptions, StatusReports, parse_span};
use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};
use crate::stack::course::{Course, Halt, PAYLOAD_MIN, Patience, Stage};
use crate::stack::kernel;
use crate::stack::sender::Sender;
use crate::stack::service::{Kind, Offer};
use crate::stack::station::{self, Ended, Station};

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
pub struct Send {
    /// The mirror, or whatever returns datagrams
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_remote)]
    remote: SocketAddr,
    /// Bytes of a frame, as on Ethernet without its check sequence; several after commas
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_549))]
    size: Vec<u32>,
    /// Round trips at each size [default: 10000, and 1000 of frames over 512 bytes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: Option<u64>,
    /// Begin no new round trip after this long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    duration: Option<Span>,
    /// How long an answer is waited for
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_span)]
    timeout: Span,
    /// Give up after so many in a row without an answer
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    give_up: u32,
    #[command(flatten)]
    station: StationOptions,
}

/// Short and long frames of the default, and how many.
const DEFAULT: [(u32, u64); 2] = [(60, 10_000), (1_514, 1_000)];
/// The shortest frame with an IPv6 datagram of the payload of a 60-byte frame.
const SHORT_V6: u32 = 80;
/// Longer frames are fewer by default.
const LONG_FROM: u32 = 512;

impl Send {
    /// Sends, and prints how long it took.
    ///
    /// # Errors
    /// The device cannot be opened, or fails; the peer refuses or is silent.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let patience = Patience { timeout: self.timeout, silent_max: self.give_up };
        let course = Course::new(self.remote.to_string(), self.stages()?, patience);
        let (course, ended, mut document) = if self.station.device.is_some() {
            self.over_plumb(course, output)?
        } else {
            self.over_kernel(course, output)?
        };
        let ended = ended.of_course(course.is_over());
        ended.name().clone_into(&mut document.ended);
        let (halt, unanswered) = (course.halt().cloned(), course.unanswered());
        let (exchanges, flags) = course.into_results();
        "send".clone_into(&mut document.command);
        let mut trouble = trouble(ended);
        if let Some(halt) = halt {
            let word = if matches!(halt, Halt::Silent(_)) { "silent" } else { "refused" };
            word.clone_into(&mut document.ended);
            trouble = Some(self.explain(&halt, &exchanges));
        } else if let Some(begun) = unanswered {
            let why = format!("{begun} datagram(s) sent, none answered in time");
            trouble = trouble.or_else(|| Some(self.silence(why)));
        }
        document.exchanges = exchanges;
        document.flags = flags;
        finish(&document, trouble, self.station.stats.is_some(), output)
    }

    fn stages(&self) -> Result<Vec<Stage>, Problem> {
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
                    Ok(Stage { frame_bytes, payload_bytes, count: self.count.unwrap_or(count) })
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
        course: Course,
        output: &Output,
    ) -> Result<(Course, Ended, StackDocument), Failure> {
        let mirror = Offer { kind: Kind::Mirror, port: self.remote.port() };
        let settings = self.station.settings(Some((self.remote.ip(), vec![mirror])))?;
        let mut station = Station::open(&settings, |text| output.remark(text))?;
        output.remark(&format!("to {} from {}", self.remote, station.describe()));
        let timeline = station.timeline;
        let sender = Sender::open(&mut station.host, self.remote, course, timeline)?;
        let mut reports = StatusReports::new(&self.station, output);
        let begun = timeline.now();
        let finished = station.run(sender, |node, now| {
            let course = &node.application.course;
            reports.consider(now, &node.host, || {
                let (done, planned) = course.progress();
                format!("{done} of {planned} round trips")
            });
            enough(course, self.duration, now.saturating_since(begun))
        });
        Ok((finished.application.course, finished.ended, finished.document))
    }

    fn over_kernel(
        &self,
        mut course: Course,
        output: &Output,
    ) -> Result<(Course, Ended, StackDocument), Failure> {
        self.station.refuse_without_device()?;
        station::listen()?;
        output.remark(&format!("to {} over the kernel's stack", self.remote));
        let timeline = station::timeline();
        let begun = timeline.now();
        let wait = self.station.wait.into();
        let ended = kernel::run(&mut course, self.remote, wait, timeline, |course, now| {
            enough(course, self.duration, now.saturating_since(begun))
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

    fn explain(&self, halt: &Halt, exchanges: &[Exchange]) -> Problem {
        match halt {
            Halt::Silent(silent) => {
                let answered: u64 = exchanges.iter().map(|exchange| exchange.answered).sum();
                let sent: u64 = exchanges.iter().map(|exchange| exchange.sent).sum();
                self.silence(format!(
                    "the last {silent} datagrams were not answered in time, {answered} of {sent} in all \
                     were"
                ))
            }
            Halt::Refused(why) => Problem::trouble(format!("{} cannot be reached", self.remote))
                .because(why)
                .fix(format!(
                    "start a mirror there: plumb stack mirror --port {} --device …",
                    self.remote.port()
                )),
        }
    }

    fn silence(&self, why: String) -> Problem {
        Problem::trouble(format!("{} does not answer", self.remote)).because(why).fix(format!(
            "check that something mirrors there: plumb stack mirror --port {}, or a longer --timeout",
            self.remote.port()
        ))
    }
}

/// Why it is enough, if it is: nothing is drawn meanwhile, which would be in what is timed.
fn enough(course: &Course, duration: Option<Span>, elapsed: Span) -> Option<Ended> {
    if course.is_over() {
        return Some(Ended::Complete);
    }
    duration.is_some_and(|duration| elapsed >= duration).then_some(Ended::Duration)
}

fn parse_remote(text: &str) -> Result<SocketAddr, String> {
    let remote: SocketAddr = text.parse().map_err(|_| {
        format!("'{text}' is no address and port: write 10.77.0.2:1997 or [fd77::2]:1997")
    })?;
    if remote.port() == 0 { Err("port 0 is nobody's".to_owned()) } else { Ok(remote) }
}
