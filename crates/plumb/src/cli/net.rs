//! `plumb net`: measures the network between two hosts.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use clap::Args;
use plumb_analysis::document::host::{PAIR_SCHEMA, PairDocument};
use plumb_base::time::Span;
use plumb_net::measure::progress::TestProgress;
use plumb_net::measure::test_spec::DatagramsSpec;
use plumb_net::test_client::{AgentClient, AgentClientError};
use plumb_remote::address::with_zone;
use plumb_remote::secure;
use plumb_remote::secure::PairingToken;
use plumb_report::terminal::format_bit_rate;
use plumb_result::net::{Direction, NetDocument, NetEnding};
use rustix::net::{SocketType, sockopt};

use crate::VERSION;
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::stamp::StampSenderOptions;
use crate::cli::{GlobalOptions, handle_stop_signals, is_stopped};
use crate::net::address::host_and_port;
use crate::net::agent_connection::{connect, install, problem_from_client_error};
use crate::net::document::document;
use crate::net::host_target::{
    AddressFamily, HostTarget, ReachMethod, choose_address, resolve, ssh_host,
};
use crate::net::paired_agent;
use crate::net::stored_run::StoredDocument as _;
use crate::net::summary::summarize;
use crate::net::test_run::{NetMeasurement, NetTestPlan, NetWatcher};
use crate::problem::{ExitReason, Problem};

use live_view::{DrawingCpu, LiveView};
use options::{ExchangeOptions, MTU_TIME_DEFAULT, MeasureOptions, ROUNDS_DEFAULT};

pub mod http;
mod live_view;
mod options;
pub mod stored_document;

/// Options valid only with an agent; `--time` and `--interval` are those of `--stamp` too.
pub(super) const AGENT_OPTIONS: [&str; 26] = [
    "via",
    "to",
    "install",
    "idle",
    "warm_up",
    "only",
    "streams",
    "congestion",
    "window",
    "length",
    "cpu_placement",
    "rate",
    "reverse",
    "datagrams",
    "udp",
    "udp_size",
    "mtu",
    "probes",
    "probe_size",
    "drain_timeout",
    "rounds",
    "watch",
    "request_response",
    "request",
    "response",
    "connect_per_request",
];

/// Measure the network to another host: rate, latency idle and under load, loss, and CPU cost
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
HOST is a host as for ssh: a name, user@host, an address with its zone, or [address]:port for another ssh port.
plumb must be installed there; --install copies it. netns:NAME is a network namespace of this host, tls:host a
paired agent that listens there. Data goes to the host's address and a port that its agent opens for the test.

Examples:
  plumb net user@host                    15 s: rates, latency idle and under load, CPU cost
  plumb net host --rounds 20             the same in 20 rounds: narrower intervals
  plumb net host --install               the same, copying plumb there first
  plumb net host --streams 4 --only down
  plumb net host --request-response tcp,udp   requests and responses of 64 B, one after another
  plumb net host --udp 50mbit            paced datagrams: loss and where, reordering, jitter, one-way delay
  plumb net host --watch                 the same, drawn live; q ends it
  plumb net --via 'docker exec -i box plumb agent --stdio' 172.17.0.2
  plumb net host --pair TOKEN            once, with the token of 'plumb agent --listen --pair'
  plumb net tls:host                     then, with the agent that listens there
  plumb net --iperf3 --help              tests with iperf3's servers, with options of its own
  plumb net --http https://example.org/  a page and its images over every version of HTTP
  plumb net --stamp router               round trips and one-way delay to any STAMP reflector
  plumb net netns:blue --to 10.0.0.2 --json

Exit codes: 0 measured, 1 the path was cut meanwhile, 2 usage, 4 a measurement failed or did not end, 130 interrupted.")]
pub struct NetCommand {
    /// The other host
    #[arg(value_name = "HOST", required_unless_present_any = ["via", "show", "http", "stamp"])]
    host: Option<String>,
    /// Print a stored measurement: an id or 'last'; measures nothing
    #[arg(long, value_name = "RUN", conflicts_with_all = ["host", "via", "install"])]
    show: Option<String>,
    #[command(flatten)]
    reach: ReachOptions,
    #[command(flatten)]
    measure: MeasureOptions,
    /// Pair with the agent that listens on HOST, with the token that it printed
    #[arg(long, value_name = "TOKEN", requires = "host", help_heading = "Reaching it")]
    #[arg(conflicts_with_all = AGENT_OPTIONS)]
    #[arg(conflicts_with_all = ["time", "interval"])]
    pair: Option<String>,
    #[command(flatten)]
    exchange: ExchangeOptions,
    #[command(flatten)]
    page: http::HttpOptions,
    #[command(flatten)]
    stamp: StampSenderOptions,
}

/// How the other host is reached.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reaching it")]
pub struct ReachOptions {
    /// Command that starts the agent, instead of ssh; its standard streams are the connection
    #[arg(long, value_name = "CMD")]
    via: Option<String>,
    /// Destination address of the data, instead of the host's own
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Copy this program to ~/.cache/plumb there first
    #[arg(long)]
    install: bool,
    /// ssh command with its options
    #[arg(long, value_name = "CMD", default_value = "ssh", env = "PLUMB_SSH")]
    ssh: String,
    /// IPv4 only
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
}

impl NetCommand {
    /// Measures, stores and prints.
    ///
    /// # Errors
    /// The host cannot be reached, or nothing could be measured.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        if let Some(run) = &self.show {
            return stored_document::show(run, self.measure.details, global, output);
        }
        if let Some(page) = &self.page.http {
            self.reject_host("--http", page, "the page alone: plumb net --http URL")?;
            let store = (!self.measure.no_store).then_some(global);
            return self.page.perform(page, self.family(), store, output);
        }
        if let Some(target) = self.stamp.target() {
            self.reject_host("--stamp", target, "the reflector alone: plumb net --stamp HOST")?;
            let MeasureOptions { time, interval, .. } = self.measure;
            return self.stamp.perform(target, self.family(), time, interval, output);
        }
        if let (Some(token), Some(host)) = (&self.pair, &self.host) {
            let host = host.strip_prefix("tls:").unwrap_or(host);
            return pair(host, self.family(), token, output);
        }
        self.between_hosts(global, output)
    }

    /// Rejects HOST beside an option that names its own target.
    fn reject_host(&self, option: &str, target: &str, instead: &str) -> Result<(), Problem> {
        let Some(host) = &self.host else { return Ok(()) };
        let what = format!("both '{host}' and {option} {target} are given");
        Err(Problem::usage(what).fix(format!("give {instead}")))
    }

    /// The test plan of the options.
    fn test_plan(&self) -> Result<NetTestPlan, Problem> {
        let wanted = self.measure.test_plan(self.exchange.parts());
        if wanted.is_empty() {
            return Err(Problem::usage("nothing is left to measure")
                .fix("leave out --only, --idle or --probes"));
        }
        if wanted.udp.is_some() && wanted.directions.is_empty() {
            return Err(Problem::usage("--udp needs a direction")
                .because(
                    "with --request-response or --only, only the directions of --only are measured",
                )
                .fix("add --only down,up, or leave out --udp"));
        }
        let rates = DatagramsSpec::RATE_MIN..=DatagramsSpec::RATE_MAX;
        if wanted.udp.is_some_and(|paced| !rates.contains(&paced.rate_bits_per_second)) {
            return Err(Problem::usage("the rate of --udp is out of range")
                .fix("give --udp a rate from 1kbit to 400gbit"));
        }
        wanted.check().map_err(Problem::rejected)?;
        if self.measure.watch {
            live_view::check()?;
        }
        Ok(wanted)
    }

    /// Measures with an agent.
    fn between_hosts(&self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let place = HostTarget::parse(self.host.as_deref(), self.reach.via.as_deref())?;
        place.check_rights()?;
        let ssh: Vec<String> = self.reach.ssh.split_whitespace().map(str::to_owned).collect();
        let wanted = self.test_plan()?;
        check_congestion(&wanted)?;
        let drawing_cpu = self.measure.watch.then(DrawingCpu::reserve);
        // An unknown name is an error before anything is started.
        let address = self.address(&place, &ssh)?;
        if self.reach.install {
            install(&place, &ssh)?;
            output.note(&format!("copied plumb {VERSION} to {}", place.requested));
        }
        let mut reached = connect(&place, &ssh, VERSION)?;
        let address = match address {
            Some(address) => address,
            None => self.agent_address(&reached.client, &place)?,
        };
        let estimate = wanted.estimate();
        let seconds = estimate.as_secs_f64().ceil();
        let title = format!("{} at {}", place.requested, with_zone(address));
        // The estimate includes a short path MTU search only: longer ones mostly end early.
        let search = wanted
            .mtu
            .filter(|&time| time > MTU_TIME_DEFAULT)
            .map_or_else(String::new, |time| format!(", with up to {time} for the path MTU"));
        let longer = if wanted.is_brief { ", longer where round trips exceed 20 ms" } else { "" };
        output.note(&format!("{title}: about {seconds:.0} s{search}{longer}"));
        if wanted.rounds < ROUNDS_DEFAULT && !self.measure.no_store {
            let rounds = if wanted.rounds == 1 { "1 round has" } else { "so few rounds have" };
            output.note(&format!(
                "{rounds} no interval and cannot be compared with another run: --rounds {ROUNDS_DEFAULT} can"
            ));
        }
        let created_unix_ms = plumb_clock::unix_ms();
        let began_ns = plumb_clock::monotonic_ns();
        handle_stop_signals()?;
        let mut again = || connect(&place, &ssh, VERSION);
        let (measured, note) = if let Some(drawing_cpu) = drawing_cpu {
            let mut watch = LiveView::start(title, drawing_cpu, output.style_stderr)?;
            let requested = watch.stop_requested();
            let is_stopped = || is_stopped() || requested.load(Ordering::Relaxed);
            let measured =
                wanted.measure(&mut reached, address, &mut again, &mut watch, &is_stopped);
            (measured, Some(watch.note.clone()))
        } else {
            let mut progress = ProgressLine { output };
            let measured =
                wanted.measure(&mut reached, address, &mut again, &mut progress, &is_stopped);
            progress.finish();
            (measured, None)
        };
        let mut document = document(&place.requested, address, &reached, &measured);
        document.flags.extend(note);
        document.summary = summarize(&document);
        reached.close();
        document.created_unix_ms = created_unix_ms;
        document.seconds = Span::from_ns(plumb_clock::monotonic_ns() - began_ns).as_secs_f64();
        self.store_and_print(document, &measured, global, output)
    }

    /// Stores and prints what was measured.
    fn store_and_print(
        &self,
        mut document: NetDocument,
        measured: &NetMeasurement,
        global: &GlobalOptions,
        output: &CliOutput,
    ) -> CommandResult {
        let error = measured.error.as_ref().map(problem_from_client_error);
        // A test that was refused leaves nothing but what was looked for before it.
        let is_refused = matches!(measured.error, Some(AgentClientError::Refused(_)));
        if measured.is_empty() || is_refused && measured.phases.is_empty() {
            return Err(error.unwrap_or_else(|| Problem::failure("nothing was measured")).into());
        }
        // Printed even where it cannot be stored.
        let stored = if self.measure.no_store {
            Ok(())
        } else {
            stored_document::store(global, output, &mut document)
        };
        let details = self.measure.details;
        output.show(&document, |style| document.page(details, style))?;
        stored?;
        if let Some(problem) = error.filter(|problem| problem.exit != ExitReason::Interrupted) {
            return Err(problem.into());
        }
        Ok(match document.ended {
            NetEnding::Complete if !document.outages.is_empty() => ExitReason::CheckFailed,
            NetEnding::Complete => ExitReason::Success,
            NetEnding::Stopped => ExitReason::Interrupted,
            NetEnding::Partial => ExitReason::Failure,
        })
    }

    /// The destination of the data, if it is known without the agent.
    fn address(&self, place: &HostTarget, ssh: &[String]) -> Result<Option<SocketAddr>, Problem> {
        let family = self.family();
        let name = match (&self.reach.to, &place.method, &self.host) {
            (Some(to), ..) => to.clone(),
            (None, ReachMethod::Ssh { target, .. }, _) => ssh_host(ssh, target),
            (None, ReachMethod::Via(_), Some(host)) => host.clone(),
            (None, ReachMethod::Paired(host), _) => host_and_port(host, 0)?.0,
            (None, ReachMethod::Via(_) | ReachMethod::Namespace(_), _) => return Ok(None),
        };
        resolve(&name, family).map(Some)
    }

    /// The destination of the data, one of the agent's addresses.
    fn agent_address(
        &self,
        client: &AgentClient,
        place: &HostTarget,
    ) -> Result<SocketAddr, Problem> {
        let addresses = &client.welcome().addresses;
        choose_address(addresses, self.family()).ok_or_else(|| {
            Problem::failure(format!("no address of '{}' is reachable from here", place.requested))
                .because(format!("its addresses are {}", addresses.join(", ")))
                .fix("name one with --to")
        })
    }

    const fn family(&self) -> AddressFamily {
        match (self.reach.ipv4, self.reach.ipv6) {
            (true, _) => AddressFamily::V4,
            (_, true) => AddressFamily::V6,
            _ => AddressFamily::Any,
        }
    }
}

/// Checks before anything is measured that this host has the congestion control with which it is to send.
fn check_congestion(wanted: &NetTestPlan) -> Result<(), Problem> {
    let Some(name) = &wanted.congestion else { return Ok(()) };
    if !wanted.directions.iter().any(|direction| direction.each().contains(&Direction::Up)) {
        return Ok(());
    }
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, SocketType::STREAM, None);
    let set = socket.and_then(|socket| sockopt::set_tcp_congestion(&socket, name));
    let Err(error) = set else { return Ok(()) };
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = known.unwrap_or_default();
    Err(Problem::usage(format!("this host cannot send with the congestion control '{name}'"))
        .because(format!(
            "{error}; it has {}",
            known.split_whitespace().collect::<Vec<_>>().join(", ")
        ))
        .suggest(name, known.split_whitespace()))
}

/// Progress line on standard error.
struct ProgressLine<'a> {
    output: &'a CliOutput,
}

impl NetWatcher for ProgressLine<'_> {
    fn progress(&mut self, name: &'static str, progress: &TestProgress, left: Span) {
        if !self.output.progress {
            return;
        }
        let planned = Span::from_ns(progress.planned_ns);
        // Time beyond the planned duration is the end phase.
        let now = Span::from_ns(progress.at_ns).min(planned);
        let left = (planned.saturating_sub(now) + left).as_secs_f64();
        let bytes = progress.up_bytes + progress.down_bytes;
        let rate = bytes as f64 / now.as_secs_f64().max(1e-3);
        let rate = if bytes > 0 { format!(", {}", format_bit_rate(rate)) } else { String::new() };
        let at = now.as_secs_f64();
        let of = planned.as_secs_f64();
        self.output.draw_line(&format!("{name} {at:.1} of {of:.1} s{rate}, {left:.0} s left"));
    }

    fn notice(&mut self, text: &str) {
        self.finish();
        self.output.note(text);
    }
}

impl ProgressLine<'_> {
    fn finish(&self) {
        if self.output.progress {
            self.output.erase_line();
        }
    }
}

/// Pairs this host with the agent that listens on `host`.
///
/// # Errors
/// The agent refuses, or does not answer.
fn pair(host: &str, family: AddressFamily, token: &str, output: &CliOutput) -> CommandResult {
    let token = token.parse::<PairingToken>().map_err(Problem::rejected)?;
    let remote = paired_agent::remote(host, family)?;
    let fingerprint = secure::connect::pair(
        &paired_agent::identity()?,
        &paired_agent::peers()?,
        &remote,
        &paired_agent::own_name(),
        &token,
    )
    .map_err(Problem::failed)?;
    let document = PairDocument {
        schema: PAIR_SCHEMA.to_owned(),
        agent: remote.name,
        fingerprint: fingerprint.to_string(),
    };
    output.show(&document, |_| {
        let PairDocument { agent, fingerprint, .. } = &document;
        format!(
            "Paired with {agent}, whose key is {fingerprint}.\nMeasure:\n  plumb net tls:{host}\n"
        )
    })?;
    Ok(ExitReason::Success)
}
