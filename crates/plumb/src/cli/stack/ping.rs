//! `plumb stack ping`: echo requests from plumb's own stack.
//!
//! Left out: requests and replies (`crate::stack::ping`).

use std::net::IpAddr;

use clap::Args;
use plumb_base::time::Span;

use super::finish::{finish, trouble};
use super::options::{StationOptions, StatusReports, parse_span};
use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};
use crate::stack::ping::{Notice, Ping as Application, Request};
use crate::stack::station::{Ended, Finished, Station};

/// Send ICMP echo requests from plumb's own stack, and time the replies
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The first reply, which may include asking for the link address, is not among the statistics.
Exit code 4 when nothing is answered.

Examples:
  plumb stack ping 10.77.0.1 --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack ping fd77::2 --device packet:eth1 --addr fd77::1/64 --count 1000 --interval 1ms
  plumb stack ping 10.0.0.2 --device memory            another plumb in this process")]
pub struct Ping {
    /// Whom to ask
    #[arg(value_name = "ADDRESS")]
    address: IpAddr,
    /// How many requests
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Until Ctrl-C
    #[arg(long, conflicts_with = "count")]
    forever: bool,
    /// Time between two requests
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_span)]
    interval: Span,
    /// How long a reply is waited for
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_span)]
    timeout: Span,
    /// Bytes of data in each
    #[arg(long, value_name = "BYTES", default_value_t = 56)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=65_000))]
    size: u16,
    /// Print no line a reply
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    station: StationOptions,
}

/// Ethernet, ICMP, and the IP header of either family.
const fn overhead(address: IpAddr) -> usize {
    14 + 8 + if address.is_ipv4() { 20 } else { 40 }
}

impl Ping {
    /// Asks, and prints what came back.
    ///
    /// # Errors
    /// The device cannot be opened, or fails; nothing was answered.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let settings = self.station.settings(Some((self.address, Vec::new())))?;
        let station = Station::open(&settings, |text| output.remark(text))?;
        output.remark(&format!("pinging {} from {}", self.address, station.describe()));
        let data_bytes = usize::from(self.size);
        let application = Application::new(Request {
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
        let Finished { application, ended, mut document } =
            station.run(application, |node, now| {
                for notice in node.application.take_notices() {
                    let told = tell(&notice, lines, output);
                    unread = unread.take().or(told.err());
                }
                reports.consider(now, &node.host, || format!("pinging {}", self.address));
                let is_over = node.application.is_over() || unread.is_some();
                is_over.then_some(Ended::Complete)
            });
        if let Some(failure) = unread {
            return Err(failure);
        }
        let ended = ended.of_course(application.is_over());
        ended.name().clone_into(&mut document.ended);
        let begun = application.begun();
        let (exchange, flags) = application.into_result();
        "ping".clone_into(&mut document.command);
        let silent = exchange.answered == 0 && begun > 0;
        let trouble = trouble(ended).or_else(|| silent.then(|| self.silence(begun)));
        document.exchanges = vec![exchange];
        document.flags = flags;
        if silent && document.ended == "complete" {
            "silent".clone_into(&mut document.ended);
        }
        finish(&document, trouble, self.station.stats.is_some(), output)
    }

    fn silence(&self, begun: u64) -> Problem {
        Problem::trouble(format!("{} did not answer", self.address))
            .because(format!("{begun} request(s) were made, and no reply came in time"))
            .fix(
                "check that it is up and on the network of this device; --pcap OUT.pcapng shows what \
                 was sent, and --stats what was dropped",
            )
    }
}

fn tell(notice: &Notice, lines: bool, output: &Output) -> Result<(), Failure> {
    let text = match notice {
        Notice::Failure(text) => {
            output.remark(text);
            return Ok(());
        }
        _ if !lines => return Ok(()),
        Notice::Reply { number, len, hop_limit, rtt } => {
            format!("{number:>6}  {rtt}  {len} B, hop limit {hop_limit}")
        }
        Notice::Lost { number } => format!("{number:>6}  no reply in time"),
    };
    output.page(&output.style.spell(&text))
}
