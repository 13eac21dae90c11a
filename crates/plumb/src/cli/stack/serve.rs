//! `plumb stack serve` and `plumb stack mirror`: services over UDP on plumb's own stack.
//!
//! Left out: the services (`crate::stack::service`).

use clap::Args;
use plumb_base::time::Span;

use super::finish::{finish, trouble};
use super::options::{StationOptions, StatusReports, parse_span};
use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem, nearest};
use crate::stack::service::{Kind, Offer, Services};
use crate::stack::station::{Ended, Station};

/// Return every UDP datagram to whoever sent it, from plumb's own stack
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A datagram is returned where it lies, without a copy: one answer for one datagram. The stack answers
ARP, neighbour discovery and ping as well. Ctrl-C ends it, with its counts.

Over IPv6 no switch is told of its multicast groups (no MLD): one that snoops may keep questions for
its address away. Neighbours then need it by hand: ip neigh replace ADDRESS lladdr MAC dev INTERFACE

Examples:
  plumb stack mirror --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack mirror --device packet:eth1 --addr 192.0.2.7/24 --wait spin --port 7
  plumb stack lab --far tap -- plumb stack mirror --device tap:plumb0 --addr 10.77.0.2/24")]
pub struct Mirror {
    /// UDP port
    #[arg(long, value_name = "PORT", default_value_t = Kind::Mirror.port())]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    station: StationOptions,
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
pub struct Serve {
    /// What to offer, each perhaps at another port
    #[arg(long, value_name = "SERVICE[:PORT],…", value_delimiter = ',', value_parser = parse_offer)]
    #[arg(default_value = "echo,discard,mirror")]
    service: Vec<Offer>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    station: StationOptions,
}

/// When it is enough.
#[derive(Clone, Debug, Args)]
pub struct Limits {
    /// End after so many datagrams
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this long
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    duration: Option<Span>,
}

impl Mirror {
    /// Mirrors until it is told to stop.
    ///
    /// # Errors
    /// The device cannot be opened, or fails.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let offers = [Offer { kind: Kind::Mirror, port: self.port }];
        serve("mirror", &offers, &self.limits, &self.station, output)
    }
}

impl Serve {
    /// Serves until it is told to stop.
    ///
    /// # Errors
    /// The device cannot be opened, or fails.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        serve("serve", &self.service, &self.limits, &self.station, output)
    }
}

fn serve(
    command: &str,
    offers: &[Offer],
    limits: &Limits,
    options: &StationOptions,
    output: &Output,
) -> Result<Exit, Failure> {
    let settings = options.settings(None)?;
    let mut station = Station::open(&settings, |text| output.remark(text))?;
    let services = Services::open(&mut station.host, offers)
        .map_err(|error| Problem::from_message(&error.to_string(), Exit::Usage))?;
    let words: Vec<String> = offers.iter().map(Offer::to_string).collect();
    output.remark(&format!("{}: {}; Ctrl-C ends it", station.describe(), words.join(", ")));
    let mut reports = StatusReports::new(options, output);
    let begun = station.driver.now();
    let finished = station.run(services, |node, now| {
        for notice in node.application.take_notices() {
            output.remark(&notice);
        }
        let services = &node.application;
        reports.consider(now, &node.host, || format!("{} datagrams", services.received()));
        if limits.count.is_some_and(|count| services.received() >= count) {
            return Some(Ended::Complete);
        }
        let is_over = limits.duration.is_some_and(|span| now.saturating_since(begun) >= span);
        is_over.then_some(Ended::Duration)
    });
    let mut document = finished.document;
    command.clone_into(&mut document.command);
    document.services = finished.application.counts();
    finish(&document, trouble(finished.ended), options.stats.is_some(), output)
}

fn parse_offer(text: &str) -> Result<Offer, String> {
    let (name, port) = text.split_once(':').unwrap_or((text, ""));
    let names = Kind::ALL.map(Kind::name);
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == name) else {
        let hint = nearest(name, names).map(|name| format!("did you mean '{name}'? "));
        let hint = hint.unwrap_or_default();
        return Err(format!(
            "there is no service '{name}'; {hint}choose from: {}",
            names.join(", ")
        ));
    };
    let port = if port.is_empty() { Ok(kind.port()) } else { port.parse() };
    match port {
        Ok(port) if port > 0 => Ok(Offer { kind, port }),
        _ => Err(format!("'{text}' names no port: write {name}:{}", kind.port())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read_with_and_without_ports() {
        assert_eq!(parse_offer("echo"), Ok(Offer { kind: Kind::Echo, port: 7 }));
        assert_eq!(parse_offer("mirror:7"), Ok(Offer { kind: Kind::Mirror, port: 7 }));
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
