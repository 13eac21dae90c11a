//! `plumb display serve`: a display for clients on sockets, a thread each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use clap::Args;
use plumb_base::units::{format_bytes, parse_bytes};
use plumb_display::scene::SceneLimits;
use plumb_display::server::DisplayLimits;
use plumb_display_page::clients::{DisplayClients, PresentClient};
use plumb_display_page::server::DisplayPage;
use plumb_experiments::display::connection::{DisplayAddress, DisplayStream, serve};

use super::{accept_clients, announce, listen};
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::{handle_stop_signals, is_stopped};
use crate::problem::{ExitReason, Problem};

/// Run a display for clients on this host
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
It listens on loopback by default. The protocol (docs/display-protocol.md) has neither encryption nor
authentication: whoever reaches an address may draw, within the limits, on a display of its own. Frames
are kept in memory; a client gets one as PNG when it asks for it. Ctrl-C ends it and prints what was done.

--http serves a page that shows what all clients draw, and draws itself, over a WebSocket whose delay
and rate can be chosen. Beyond loopback it is for those who have the token of the address that is printed.

Examples:
  plumb display serve
  plumb display serve --http :8080
  plumb display serve unix:/tmp/display :1985 --memory 64Mi
  plumb display bench --connect unix:/tmp/display")]
pub struct DisplayServeCommand {
    /// Where to listen: unix:PATH, ADDRESS:PORT, or :PORT on loopback
    #[arg(value_name = "ADDRESS", default_value = ":1985")]
    addresses: Vec<DisplayAddress>,
    /// Serve a page too: ADDRESS:PORT, or :PORT on loopback
    #[arg(long, value_name = "ADDRESS", value_parser = parse_page_address)]
    http: Option<SocketAddr>,
    /// Memory of a client's drawings and frames together
    #[arg(long, value_name = "BYTES", default_value = "256Mi", value_parser = parse_memory)]
    memory: usize,
    /// Clients at a time
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4_096))]
    max_clients: u32,
}

/// Least memory of a client.
const MEMORY_MIN: u64 = 1 << 20;

pub(super) fn parse_memory(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    let enough = usize::try_from(bytes).ok().filter(|_| bytes >= MEMORY_MIN);
    enough.ok_or_else(|| format!("a client needs {} at least", format_bytes(MEMORY_MIN)))
}

/// An address without `unix:`; with a port, as pages have no usual one here.
fn parse_page_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("'{text}' is not the address of a page: write 127.0.0.1:8080 or :8080");
    let with_loopback = format!("127.0.0.1{text}");
    let text = if text.starts_with(':') { &with_loopback } else { text };
    text.parse().map_err(|_| wrong())
}

impl DisplayServeCommand {
    /// Serves until it is stopped.
    ///
    /// # Errors
    /// An address that cannot be listened at.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let listeners = listen(&self.addresses)?;
        // A fourth for frames, the rest for drawings.
        let limits = DisplayLimits {
            scene: SceneLimits { memory: self.memory / 4 * 3, ..SceneLimits::default() },
            frames: self.memory / 4,
            ..DisplayLimits::default()
        };
        let clients = DisplayClients::new(self.max_clients);
        let page = self.http.map(|address| {
            DisplayPage::bind(address, Arc::clone(&clients), limits).map_err(|error| {
                Problem::failure(format!("cannot serve a page at {address}"))
                    .because(error)
                    .fix("name another address, or end what listens there")
            })
        });
        let page = page.transpose()?;
        handle_stop_signals()?;
        announce("display", &listeners, output)?;
        let page = page.map(|page| {
            output.note(&format!("page at {}", page.url()));
            thread::Builder::new().name("page".to_owned()).spawn(move || page.run(is_stopped))
        });
        let page = page.transpose();
        let page =
            page.map_err(|error| Problem::failure("cannot serve the page").because(error))?;
        let is_shown = page.is_some();
        accept_clients(&listeners, is_stopped, |stream| {
            if let Some(client) = clients.admit(stream.kind()) {
                return serve_client(stream, limits, client, is_shown);
            }
            stream.shut_down();
            Ok(())
        })?;
        if let Some(Ok(Err(error))) = page.map(thread::JoinHandle::join) {
            return Err(Problem::failure("the page ended").because(error).into());
        }
        let total = clients.total();
        let counts = &total.counts;
        let plural = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        output.note(&format!(
            "{}, {}, {}, {}",
            plural(total.clients, "client"),
            plural(counts.messages, "message"),
            plural(counts.items, "item"),
            plural(counts.frames, "frame"),
        ));
        if total.broken > 0 {
            output.note(&format!("{} broke", plural(total.broken, "connection")));
        }
        let present = clients.present() as u64;
        if present > 0 {
            output.note(&format!("{} still connected, not counted", plural(present, "client")));
        }
        for (code, count) in &counts.refused {
            output.note(&format!("refused {count}: {code}"));
        }
        Ok(ExitReason::Success)
    }
}

fn serve_client(
    stream: DisplayStream,
    limits: DisplayLimits,
    mut client: PresentClient,
    is_shown: bool,
) -> Result<(), Problem> {
    let serving = move || {
        let mut observe = |display: &_| client.observe(display);
        let (counts, ended) = serve(stream, limits, is_shown.then_some(&mut observe));
        client.leave(&counts, ended.is_err());
    };
    thread::Builder::new()
        .name("client".to_owned())
        .spawn(serving)
        .map(drop)
        .map_err(|error| Problem::failure("cannot start a thread for a client").because(error))
}
