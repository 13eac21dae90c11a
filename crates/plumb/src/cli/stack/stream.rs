//! `plumb stack get` and `transfer`: one connection of plumb's own TCP.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::document::stack::{StackConnection, StackConnectionSample, StackHttpResponse};
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_duration;
use plumb_base::units::{Unit, parse_bytes};
use plumb_interop::http::target::HttpTarget;
use plumb_netdev::host::http_get::{HttpGet, HttpGetError, HttpReadError};
use plumb_netdev::host::services::{ServiceKind, ServicePort};
use plumb_netdev::host::stream_client::{StreamClient, StreamFailure, StreamFigures};
use plumb_netdev::host::stream_transfer::{
    StreamLimits, StreamPayload, StreamTransfer, StreamTransferError,
};
use plumb_netdev::host::{RunWatch, StackEndReason};
use plumb_report::{html, value};
use plumb_stack::service::HostNode;
use plumb_stack::tcp::TcpInfo;
use plumb_stack::tcp::config::TcpConfig;
use plumb_stack::tcp::congestion::CongestionChoice;

use super::applications::{device_problem, finish, parse_remote, print_status};
use super::host::{OpenedHost, StackHostOptions};
use crate::cli::export::{check_writable, write_file};
use crate::cli::output::{CliOutput, CommandError, CommandResult};
use crate::problem::{ExitReason, Problem};
use crate::recording::refuse_overwrite;

/// Duration of a transfer without another limit.
const DURATION: Span = Span::from_secs(10);

/// Options of a connection.
#[derive(Clone, Debug, Args)]
struct StreamOptions {
    /// Congestion control: reno, newreno, vegas, cubic, bbr or fixed:BYTES
    #[arg(long, value_name = "NAME", default_value_t)]
    congestion: CongestionChoice,
    /// Give up after this time without an answer or progress
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    timeout: Span,
}

impl StreamOptions {
    /// Opens the stack and a connection to `remote`, where another stack in memory offers `service`.
    fn connect(
        &self,
        options: &StackHostOptions,
        remote: SocketAddr,
        service: ServiceKind,
        output: &CliOutput,
    ) -> Result<(OpenedHost, StreamClient), Problem> {
        let service = ServicePort { kind: service, port: remote.port() };
        let mut host = options.open(Some((remote.ip(), &[service])), output)?;
        let config = TcpConfig { congestion: self.congestion, ..TcpConfig::default() };
        let client = host.attached.connect(remote, config, self.timeout).map_err(|error| {
            let problem = Problem::from(error);
            let fix = format!(
                "give the stack an address of {}'s network with --addr, or a gateway with --gateway",
                remote.ip()
            );
            if problem.fix.is_some() { problem } else { problem.fix(fix) }
        })?;
        Ok((host, client))
    }
}

/// Get a file over HTTP/1.1 by plumb's own TCP
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The body goes to standard output, or to the file that -o names. Names of hosts are looked up by this
machine's resolver. Redirections are not followed, and https is not spoken.

Exit code 4 if the server cannot be reached, breaks off, or answers with a status other than 200 to 299.

Examples:
  plumb stack get http://10.77.0.1:8000/big.iso -o big.iso --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack get http://10.0.0.2/README.md --device memory     another plumb serves this directory")]
pub struct StackGetCommand {
    /// What to get, such as http://10.77.0.1:8000/big.iso
    #[arg(value_name = "URL")]
    url: String,
    /// Write the body to this file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    stream: StreamOptions,
    #[command(flatten)]
    host: StackHostOptions,
}

impl StackGetCommand {
    /// Gets the file.
    ///
    /// # Errors
    /// An invalid URL, a local file that cannot be written, a device or a connection that fails, an unsuccessful status.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let target = parse_url(&self.url)?;
        if output.json && self.output.is_none() {
            return Err(Problem::usage(
                "the body and the document cannot both go to standard output",
            )
            .because("--json prints a document there")
            .fix("write the body to a file: -o FILE")
            .into());
        }
        let remote = self.resolve(&target)?;
        let sink = self.sink()?;
        let (host, client) = self.stream.connect(&self.host, remote, ServiceKind::Http, output)?;
        output.note(&format!("getting {} from {}", self.url, host.describe()));
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: plumb\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            target.path,
            target.authority()
        );
        let OpenedHost { attached, facts, .. } = host;
        let get = HttpGet::new(client, request.into_bytes(), sink);
        let watch = RunWatch {
            duration: None,
            status_every: self.host.status_every(),
            notify: &mut |node: &mut HostNode<HttpGet>, is_status_due| {
                node.application.client.notices.drain(..).for_each(|notice| output.note(&notice));
                let received = node.application.response.received;
                if is_status_due {
                    print_status(&node.host, &format!("{received} bytes"), output);
                }
                draw_progress(received, node.application.response.length, output);
                node.application.on_reported();
                true
            },
        };
        let run = attached.get(get, watch);
        erase_progress(output);
        let mut document = facts.document("get", &run);
        let get = &run.application;
        let mut connection = described(&get.client, "receive", self.stream.congestion);
        connection.bytes = get.response.received;
        connection.error = get.error.as_ref().map(ToString::to_string);
        connection.http = Some(StackHttpResponse {
            url: self.url.clone(),
            status: get.response.status,
            length: get.response.length,
        });
        finish_rate(
            &mut connection,
            get.client.samples().last().map(|sample| sample.at),
            &get.client,
        );
        document.connections = vec![connection];
        let problem = self.problem(get, run.ended);
        if get.error.is_some() {
            "failed".clone_into(&mut document.ended);
        }
        if self.output.is_some() || output.json {
            return finish(&document, problem, self.host.stats.is_some(), output);
        }
        problem.map_or(Ok(ExitReason::Success), |problem| Err(problem.into()))
    }

    fn resolve(&self, target: &HttpTarget) -> Result<SocketAddr, Problem> {
        let addresses = target.resolve().map_err(|error| {
            Problem::failure(format!("the host of {} has no address", self.url))
                .because(error)
                .fix("give its address: http://192.0.2.7/PATH or http://[2001:db8::7]/PATH")
        })?;
        let is_ours = |address: &&SocketAddr| {
            self.host.addr.is_empty()
                || self.host.addr.iter().any(|(own, _)| own.is_ipv4() == address.is_ipv4())
        };
        let found = addresses.iter().find(is_ours).or(addresses.first()).copied();
        found.ok_or_else(|| Problem::failure(format!("the host of {} has no address", self.url)))
    }

    fn sink(&self) -> Result<Box<dyn Write + Send>, Problem> {
        Ok(match &self.output {
            Some(path) => Box::new(created(path, self.host.pcap.as_deref())?),
            None => Box::new(io::stdout()),
        })
    }

    fn problem(&self, get: &HttpGet, ended: StackEndReason) -> Option<Problem> {
        let problem = match &get.error {
            None => None,
            Some(HttpGetError::Stream(failure)) => Some(stream_problem(*failure)),
            Some(HttpGetError::Response(HttpReadError::Write(error))) => {
                Some(not_written(self.output.as_deref(), error))
            }
            Some(HttpGetError::Response(error)) => Some(Problem::failed(error)),
        };
        let response = &get.response;
        let unsuccessful = || {
            let is_complete = response.is_complete() && !response.is_success();
            is_complete.then(|| match &response.location {
                Some(location) => {
                    Problem::failure(format!("{} has moved (status {})", self.url, response.status))
                        .fix(format!("get it from there: {location}"))
                }
                None => Problem::failure(format!("the server refused {}", self.url))
                    .because(format!("its answer has status {}", response.status))
                    .fix("check the path of the URL"),
            })
        };
        let interrupted = || {
            let is_interrupted = matches!(ended, StackEndReason::Interrupted);
            is_interrupted.then(|| {
                Problem::from_message(
                    "interrupted; the file is not complete",
                    ExitReason::Interrupted,
                )
            })
        };
        problem.or_else(unsuccessful).or_else(interrupted).or_else(|| device_problem(ended))
    }
}

/// Send or receive bulk data over one connection of plumb's own TCP
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Sends a pattern to a service that reads to the end, or with --receive takes what the peer sends. The peer
is any TCP: 'plumb stack serve', socat, inetd's discard and chargen. Without --bytes, --file or --duration
it takes 10 s. The rate is over the time from the opened connection until the last byte was acknowledged,
or received.

--json prints figures over time (window, bytes in flight, round trips, retransmissions), -o draws them.

Exit code 4 if the connection fails.

Examples:
  plumb stack transfer 10.77.0.1:9 --device tap:plumb0 --addr 10.77.0.2/24 --bytes 1Gi
  plumb stack transfer 10.77.0.1:19 --receive --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack transfer 10.77.0.1:5000 --file disk.img --device packet:eth1 --addr 10.77.0.2/24
  plumb stack transfer 10.0.0.2:9 --device memory --congestion bbr -o bbr.html")]
pub struct StackTransferCommand {
    /// The peer
    #[arg(value_name = "ADDRESS:PORT", value_parser = parse_remote)]
    remote: SocketAddr,
    /// Receive instead of sending
    #[arg(long)]
    receive: bool,
    /// Bytes to move
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    bytes: Option<u64>,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Span>,
    /// Send this file, or write to it what is received
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Draw the figures over time in this page
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
    #[command(flatten)]
    stream: StreamOptions,
    #[command(flatten)]
    host: StackHostOptions,
}

impl StackTransferCommand {
    /// Moves the data and prints the result.
    ///
    /// # Errors
    /// A local file, the device or the connection fails.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        if let Some(path) = &self.output {
            let taken = self.file.iter().chain(&self.host.pcap).map(PathBuf::as_path);
            refuse_overwrite("page", path, taken)?;
            check_writable(path)?;
        }
        let payload = self.payload()?;
        let limits = StreamLimits {
            bytes: self.bytes,
            duration: self
                .duration
                .or_else(|| (self.bytes.is_none() && self.file.is_none()).then_some(DURATION)),
        };
        let service = if self.receive { ServiceKind::Source } else { ServiceKind::Discard };
        let (host, client) = self.stream.connect(&self.host, self.remote, service, output)?;
        let verb = if self.receive { "receiving from" } else { "sending to" };
        output.note(&format!("{verb} {} from {}", self.remote, host.describe()));
        let OpenedHost { attached, facts, .. } = host;
        let watch = RunWatch {
            duration: None,
            status_every: self.host.status_every(),
            notify: &mut |node: &mut HostNode<StreamTransfer>, is_status_due| {
                node.application.client.notices.drain(..).for_each(|notice| output.note(&notice));
                let bytes = node.application.bytes;
                if is_status_due {
                    print_status(&node.host, &format!("{bytes} bytes"), output);
                }
                draw_progress(bytes, self.bytes, output);
                node.application.on_reported();
                true
            },
        };
        let run = attached.transfer(StreamTransfer::new(client, payload, limits), watch);
        erase_progress(output);
        let mut document = facts.document("transfer", &run);
        let transfer = &run.application;
        let direction = if self.receive { "receive" } else { "send" };
        let mut connection = described(&transfer.client, direction, self.stream.congestion);
        connection.bytes = transfer.bytes;
        connection.error = transfer.error.as_ref().map(ToString::to_string);
        finish_rate(&mut connection, transfer.duration(), &transfer.client);
        document.connections = vec![connection];
        let problem = transfer.error.as_ref().map(|error| self.problem(error));
        if problem.is_some() {
            "failed".clone_into(&mut document.ended);
        }
        if let Some(path) = &self.output {
            let page = html::connection(&document, env!("CARGO_PKG_VERSION"));
            write_file(path, page.as_bytes())?;
        }
        let problem = problem.or_else(|| device_problem(run.ended));
        finish(&document, problem, self.host.stats.is_some(), output)
    }

    fn payload(&self) -> Result<StreamPayload, CommandError> {
        let Some(path) = &self.file else {
            return Ok(if self.receive {
                StreamPayload::Receive(None)
            } else {
                StreamPayload::Send(None)
            });
        };
        if self.receive {
            let file = created(path, self.host.pcap.as_deref())?;
            return Ok(StreamPayload::Receive(Some(Box::new(file))));
        }
        let file = File::open(path).map_err(|error| {
            Problem::usage(format!("cannot read {}", path.display()))
                .because(error)
                .fix("name a file that exists and that you may read")
        })?;
        Ok(StreamPayload::Send(Some(Box::new(file))))
    }

    fn problem(&self, error: &StreamTransferError) -> Problem {
        match error {
            StreamTransferError::Stream(failure) => stream_problem(*failure),
            StreamTransferError::Write(error) => not_written(self.file.as_deref(), error),
            StreamTransferError::Read(error) => {
                let path = self.file.as_deref().unwrap_or(Path::new(""));
                Problem::failure(format!("cannot read {}", path.display())).because(error)
            }
        }
    }
}

/// A URL of plain HTTP.
fn parse_url(url: &str) -> Result<HttpTarget, Problem> {
    let wrong = |why: &str| {
        Problem::usage(format!("'{url}' is not a URL that can be got"))
            .because(why)
            .fix("write http://HOST/PATH or http://HOST:PORT/PATH")
    };
    let target = HttpTarget::parse(url).map_err(|error| wrong(&error.to_string()))?;
    if target.is_plumb {
        return Err(wrong("it has no scheme"));
    }
    if target.is_encrypted {
        return Err(wrong("plumb's stack does not speak TLS"));
    }
    if target.port == 0 { Err(wrong("port 0 cannot be used")) } else { Ok(target) }
}

/// A new file for what is received, which must not be the recording.
fn created(path: &Path, recording: Option<&Path>) -> Result<File, Problem> {
    refuse_overwrite("file", path, recording)?;
    File::create(path).map_err(|error| {
        Problem::usage(format!("cannot write {}", path.display()))
            .because(error)
            .fix("name a file in a directory that exists and that you may write to")
    })
}

fn not_written(path: Option<&Path>, error: &io::Error) -> Problem {
    let name = path.map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
    Problem::failure(format!("cannot write to {name}"))
        .because(error)
        .fix("what was received is not complete; free some space, or name another file")
}

fn stream_problem(failure: StreamFailure) -> Problem {
    Problem::failed(failure)
}

fn draw_progress(bytes: u64, of: Option<u64>, output: &CliOutput) {
    if output.progress {
        let size = |bytes: u64| value::plain(Unit::Bytes, bytes as f64);
        let of = of.map_or_else(String::new, |of| format!(" of {}", size(of)));
        output.draw_line(&format!("{}{of}", size(bytes)));
    }
}

fn erase_progress(output: &CliOutput) {
    if output.progress {
        output.erase_line();
    }
}

/// A connection for a document, but for what it moved.
fn described(
    client: &StreamClient,
    direction: &str,
    congestion: CongestionChoice,
) -> StackConnection {
    let is_sending = direction == "send";
    let ns = |span: Option<Span>| span.map(Span::as_ns_f64);
    let mut connection = StackConnection {
        local: client.local.to_string(),
        remote: client.remote.to_string(),
        direction: direction.to_owned(),
        congestion: congestion.to_string(),
        setup_ns: ns(client.setup()),
        series: client.samples().iter().map(|figures| sample(figures, is_sending)).collect(),
        ..StackConnection::default()
    };
    if let Some(TcpInfo { mss, sent, received, srtt, rtt_min, .. }) = client.figures() {
        connection.mss = mss.into();
        connection.segments_sent = sent.segments;
        connection.segments_received = received.segments;
        connection.retransmits = sent.retransmits;
        connection.timeouts = sent.timeouts;
        connection.out_of_order = received.out_of_order;
        connection.srtt_ns = ns(srtt);
        connection.rtt_min_ns = ns(rtt_min);
    }
    connection
}

fn sample(figures: &StreamFigures, is_sending: bool) -> StackConnectionSample {
    let info = &figures.info;
    StackConnectionSample {
        seconds: figures.at.as_secs_f64(),
        bytes: if is_sending { info.delivered } else { info.received.bytes },
        cwnd_bytes: info.cwnd,
        ssthresh_bytes: (info.ssthresh != u64::MAX).then_some(info.ssthresh),
        flight_bytes: info.flight,
        send_window_bytes: info.send_window,
        receive_window_bytes: info.receive_window,
        srtt_ns: info.srtt.map(Span::as_ns_f64),
        retransmits: info.sent.retransmits,
    }
}

/// Sets the time that the data took, and the rate.
fn finish_rate(connection: &mut StackConnection, duration: Option<Span>, client: &StreamClient) {
    if client.opened().is_some() {
        let seconds = duration.unwrap_or(Span::ZERO).as_secs_f64();
        connection.seconds = seconds;
        connection.bytes_per_second = connection.bytes as f64 / seconds.max(1e-9);
    }
}
