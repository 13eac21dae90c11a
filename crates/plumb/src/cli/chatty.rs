//! `plumb chatty`: what the turns of a capture's TCP connections cost.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::dialogue::AssumedChange;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_experiments::segment_capture;
use plumb_report::{html, terminal};

use super::export::{check_writable, write_file};
use super::output::{CliOutput, CommandResult};
use crate::problem::{ExitReason, Problem};

/// Show the dependent round trips of a capture's TCP connections, and what removing them would save
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A request that acknowledges the response before it costs a round trip; one that was sent earlier does not. Payload is
not interpreted, so that any protocol over TCP can be looked at: of TLS and HTTP/2 turns and times are seen, requests
are not; of QUIC nothing. A capture of headers is enough (tcpdump -s 128). Savings are upper bounds: a capture does
not show which requests need the content of earlier responses.

Examples:
  tcpdump -i eth0 -s 128 -w app.pcap tcp port 6379
  plumb chatty app.pcap
  plumb chatty app.pcapng --rtt 2ms --batch 50
  plumb chatty app.pcapng -o waterfall.html
  plumb chatty app.pcapng --json | jq '.sum.savings'")]
pub struct ChattyCommand {
    /// The capture, pcap or pcapng
    #[arg(value_name = "FILE.pcapng")]
    file: PathBuf,
    /// Round-trip time after moving closer
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_span)]
    rtt: Span,
    /// Requests of a batch
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batch: u64,
    /// Draw the round trips of every connection in this page
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
}

impl ChattyCommand {
    /// Reads the capture, and prints what its connections show.
    ///
    /// # Errors
    /// The file cannot be read, or is no capture; the page cannot be written.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        if let Some(page) = &self.output {
            check_writable(page)?;
        }
        let name = self.file.display().to_string();
        let unreadable = |why: &dyn std::fmt::Display| {
            Problem::usage(format!("cannot read '{name}'")).because(why)
        };
        let len = fs::metadata(&self.file).map_err(|error| unreadable(&error))?.len();
        if len > segment_capture::FILE_MAX {
            let why =
                format!("it has {len} bytes, and at most {} are read", segment_capture::FILE_MAX);
            return Err(unreadable(&why)
                .fix("cut it with 'editcap -c', or keep headers only with 'editcap -s 128'")
                .into());
        }
        let bytes = fs::read(&self.file).map_err(|error| unreadable(&error))?;
        let change = AssumedChange { near_rtt_ns: self.rtt.as_ns(), batch: self.batch };
        let document =
            segment_capture::turns(&name, &bytes, change).map_err(|error| unreadable(&error))?;
        if document.connections.is_empty() {
            let reasons: Vec<String> = document
                .ignored
                .iter()
                .map(|ignored| format!("{} packets are {}", ignored.packets, ignored.reason))
                .chain(document.notes)
                .collect();
            let problem = Problem::usage(format!("'{name}' has no TCP segment"));
            let problem =
                if reasons.is_empty() { problem } else { problem.because(reasons.join("; ")) };
            return Err(problem.fix("capture TCP: tcpdump -s 128 -w FILE.pcap tcp").into());
        }
        if let Some(page) = &self.output {
            write_file(page, html::chatty(&document, env!("CARGO_PKG_VERSION")).as_bytes())?;
        }
        output.show(&document, |style| terminal::chatty::render(&document, style))?;
        Ok(ExitReason::Success)
    }
}
