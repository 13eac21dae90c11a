//! `plumb stack serve` and `mirror`: services on plumb's own stack.

use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::stack::{ServiceCount, StreamServiceCount};
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_duration;
use plumb_netdev::host::RunWatch;
use plumb_netdev::host::http_server::FileDirectory;
use plumb_netdev::host::served_socket::StreamServiceCounts;
use plumb_netdev::host::services::{OfferedServices, ServiceKind, ServicePort};
use plumb_stack::service::{HostNode, ServiceCounts};
use plumb_stack::tcp::congestion::CongestionChoice;

use super::applications::{device_problem, finish, print_status};
use super::host::{OpenedHost, StackHostOptions, served_directory};
use crate::cli::output::{CliOutput, CommandResult};
use crate::problem::{Problem, nearest};

/// Return every UDP datagram to its sender, from plumb's own stack
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Each datagram is returned in place, without a copy. The stack also answers ARP, neighbor discovery and
ping. Ctrl-C ends it and prints the counts.

The stack does not send MLD reports: a switch with MLD snooping may drop neighbor solicitations for its
IPv6 address. Then set it on neighbors: ip neigh replace ADDRESS lladdr MAC dev INTERFACE

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
    host: StackHostOptions,
}

/// Offer echo, discard, a source of bytes, files over HTTP, and a mirror, from plumb's own stack
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Over UDP echo returns a copy of each datagram (RFC 862), discard drops it (RFC 863), mirror returns it in
place; none sends more than it receives. Over TCP echo returns what it receives, discard drops it, source
sends until the peer closes, and http serves the files of --directory by GET and HEAD, never one outside of
it. At most 256 connections are served at a time; more wait, and a full queue drops SYNs.

Ctrl-C ends it and prints the counts. For IPv6 behind a switch with MLD snooping see
'plumb stack mirror --help'.

Examples:
  plumb stack serve --device tap:plumb0 --addr 10.77.0.2/24 --addr fd77::2/64
  plumb stack serve --device xdp:eth1 --addr 192.0.2.7/24 --service echo,discard
  plumb stack serve --device packet:eth1 --addr 192.0.2.7/24 --service mirror:7 --stats=1s
  plumb stack serve --device tap:plumb0 --addr 10.77.0.2/24 --directory . --service http:8080")]
pub struct StackServeCommand {
    /// Services, each with an optional port
    #[arg(long, value_name = "SERVICE[:PORT],…", value_delimiter = ',', value_parser = parse_offer)]
    #[arg(default_value = "echo,discard,mirror,source")]
    service: Vec<ServicePort>,
    /// Serve the files of this directory over HTTP, at port 80 unless --service says another
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Congestion control of TCP: reno, newreno, vegas, cubic, bbr or fixed:BYTES
    #[arg(long, value_name = "NAME", default_value_t)]
    congestion: CongestionChoice,
    #[command(flatten)]
    limits: ServeLimits,
    #[command(flatten)]
    host: StackHostOptions,
}

/// When to exit.
#[derive(Clone, Debug, Args)]
pub struct ServeLimits {
    /// Exit after this many datagrams
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Exit after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Span>,
}

impl StackMirrorCommand {
    /// Runs a mirror until it is stopped.
    ///
    /// # Errors
    /// The device cannot be opened, or fails.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let offers = [ServicePort { kind: ServiceKind::Mirror, port: self.port }];
        let what = ServedServices {
            command: "mirror",
            offers: &offers,
            files: None,
            congestion: CongestionChoice::default(),
        };
        serve(what, &self.limits, &self.host, output)
    }
}

impl StackServeCommand {
    /// Runs the services until it is stopped.
    ///
    /// # Errors
    /// The device cannot be opened, or fails.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let mut offers = self.service;
        let has_http = offers.iter().any(|offer| offer.kind == ServiceKind::Http);
        let files = match &self.directory {
            None if has_http => {
                return Err(Problem::usage("http has no files to serve")
                    .because("no directory was named")
                    .fix("add --directory DIR")
                    .into());
            }
            None => None,
            Some(directory) => {
                if !has_http {
                    let kind = ServiceKind::Http;
                    offers.push(ServicePort { kind, port: kind.port() });
                }
                Some(served_directory(directory)?)
            }
        };
        let congestion = self.congestion;
        let what = ServedServices { command: "serve", offers: &offers, files, congestion };
        serve(what, &self.limits, &self.host, output)
    }
}

/// What is served, and as which command.
struct ServedServices<'a> {
    command: &'a str,
    offers: &'a [ServicePort],
    files: Option<FileDirectory>,
    congestion: CongestionChoice,
}

fn serve(
    what: ServedServices<'_>,
    limits: &ServeLimits,
    options: &StackHostOptions,
    output: &CliOutput,
) -> CommandResult {
    let ServedServices { command, offers, files, congestion } = what;
    let mut host = options.open(None, output)?;
    let mut services =
        OfferedServices::open_with(&mut host.attached.host, offers, files, congestion)?;
    services.count_max = limits.count;
    let names: Vec<String> = offers.iter().map(ServicePort::to_string).collect();
    output.note(&format!("{}: {}; Ctrl-C ends it", host.describe(), names.join(", ")));
    let OpenedHost { attached, facts, .. } = host;
    let watch = RunWatch {
        duration: limits.duration,
        status_every: options.status_every(),
        notify: &mut |node: &mut HostNode<OfferedServices>, is_status_due| {
            node.application.notices.drain(..).for_each(|notice| output.note(&notice));
            if is_status_due {
                let (datagrams, connections) =
                    (node.application.received(), node.application.accepted());
                let summary = format!("{datagrams} datagrams, {connections} connections");
                print_status(&node.host, &summary, output);
            }
            true
        },
    };
    let run = attached.serve(services, watch);
    let mut document = facts.document(command, &run);
    document.services = service_counts(&run.application);
    document.stream_services = stream_counts(&run.application);
    finish(&document, device_problem(run.ended), options.stats.is_some(), output)
}

/// The counts of services for a document.
pub fn service_counts(services: &OfferedServices) -> Vec<ServiceCount> {
    let count = |(service, counts): (ServicePort, ServiceCounts)| ServiceCount {
        name: service.kind.name().to_owned(),
        port: service.port,
        received: counts.received,
        bytes: counts.bytes,
        answered: counts.sent,
        from_service: counts.from_service,
        to_group: counts.to_group,
        failed: counts.failed,
    };
    services.counts().into_iter().map(count).collect()
}

/// The same of services over TCP.
fn stream_counts(services: &OfferedServices) -> Vec<StreamServiceCount> {
    let count = |(service, counts): (ServicePort, StreamServiceCounts)| StreamServiceCount {
        name: service.kind.name().to_owned(),
        port: service.port,
        connections: counts.connections,
        received_bytes: counts.received,
        sent_bytes: counts.sent,
        requests: counts.requests,
        refused: counts.refused,
        failed: counts.failed,
        idle: counts.idle,
    };
    services.stream_counts().into_iter().map(count).collect()
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
        _ => Err(format!("'{text}' has no valid port: write {name}:{}", kind.port())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_optional_ports() {
        assert_eq!(parse_offer("echo"), Ok(ServicePort { kind: ServiceKind::Echo, port: 7 }));
        assert_eq!(parse_offer("mirror:7"), Ok(ServicePort { kind: ServiceKind::Mirror, port: 7 }));
        assert!(parse_offer("miror").unwrap_err().contains("'mirror'?"));
        for text in ["zebra", "echo:0", "echo:x"] {
            assert!(parse_offer(text).is_err(), "{text}");
        }
    }
}
