//! `plumb display agent`: applications that share a connection to a display, or know none.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use clap::Args;
use plumb_display::agent::{APPLICATIONS, AgentSession};
use plumb_display::client::{ClientMode, ClientStep};
use plumb_display::text_page::TextPage;
use plumb_display::transport::{DisplayConnection, DriveError};
use plumb_display::workload::VIEW;
use plumb_experiments::display::connection::{
    DisplayAddress, DisplayStream, SocketTransport, serve_application,
};

use super::{accept_clients, announce, listen};
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::{handle_stop_signals, is_stopped};
use crate::problem::{ExitReason, Problem};

/// Represent applications to a display: forward what changes, or show text
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Applications speak the display's protocol to the agent, which has one connection to the display for up to 16 of
them. It keeps what each has drawn, so that one that draws everything anew costs the display only what differs:
over a slow link, put the agent at the application's end. With --text it is the application, and shows what it
reads as a terminal of 80 by 48 characters would, until the end of its input.

Examples:
  plumb display agent --to 192.0.2.7 unix:/tmp/near
  make 2>&1 | plumb display agent --text --to :1985 --png log.png")]
pub struct DisplayAgentCommand {
    /// Where to listen for applications: unix:PATH, ADDRESS:PORT, or :PORT on loopback
    #[arg(value_name = "ADDRESS", default_value = ":1986", conflicts_with = "text")]
    addresses: Vec<DisplayAddress>,
    /// The display
    #[arg(long, value_name = "ADDRESS", default_value = ":1985")]
    to: DisplayAddress,
    /// Memory of an application's drawings
    #[arg(long, value_name = "BYTES", default_value = "16Mi", value_parser = super::serve::parse_memory)]
    memory: usize,
    /// Show standard input
    #[arg(long)]
    text: bool,
    /// Where to write the last picture to
    #[arg(long, value_name = "FILE", requires = "text")]
    png: Option<PathBuf>,
}

/// Bytes of input shown at once.
const READ: usize = 16 << 10;
/// Bytes written at once.
const WRITE: usize = 32 << 10;

/// The connection to the display, and the places of applications that are taken.
#[derive(Debug)]
struct AgentState {
    display: Mutex<DisplayConnection<SocketTransport>>,
    places: Mutex<BTreeSet<u32>>,
    /// Why the display is gone.
    lost: Mutex<Option<DriveError>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DisplayAgentCommand {
    /// Serves until it is stopped or the display is gone; with `--text` until its input ends.
    ///
    /// # Errors
    /// There is no display, it goes, or an address cannot be listened at.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let lost = |why: String| {
            Problem::failure(format!("no display at {}", self.to))
                .because(why)
                .fix("start one with 'plumb display serve', or name another with --to")
        };
        let stream = DisplayStream::connect(&self.to).map_err(|error| lost(error.to_string()))?;
        let opened = DisplayConnection::open(SocketTransport::new(stream));
        let display = opened.map_err(|error| lost(error.to_string()))?;
        if self.text {
            return self.show_text(display).map_err(|error| lost(error.to_string()).into());
        }
        let listeners = listen(&self.addresses)?;
        handle_stop_signals()?;
        announce("agent", &listeners, output)?;
        let (places, gone) = (Mutex::default(), Mutex::default());
        let state = Arc::new(AgentState { display: Mutex::new(display), places, lost: gone });
        let is_over = || is_stopped() || lock(&state.lost).is_some();
        accept_clients(&listeners, is_over, |stream| serve(stream, self.memory, &state))?;
        // Waits for what is being forwarded to end; nothing new begins.
        let _display = lock(&state.display);
        match lock(&state.lost).take() {
            Some(error) => Err(lost(error.to_string()).into()),
            None => Ok(ExitReason::Success),
        }
    }

    fn show_text(
        &self,
        mut display: DisplayConnection<SocketTransport>,
    ) -> Result<ExitReason, DriveError> {
        let mut page = TextPage::default();
        display.perform(&page.begin(), ClientMode::BATCHED, WRITE)?;
        let (mut input, mut buffer) = (std::io::stdin().lock(), vec![0; READ]);
        while let len @ 1.. = input.read(&mut buffer)? {
            display.perform(&page.write(&buffer[..len]), ClientMode::BATCHED, WRITE)?;
        }
        if let Some(path) = &self.png {
            display.perform(&[ClientStep::Picture { view: VIEW }], ClientMode::BATCHED, WRITE)?;
            std::fs::write(path, display.client.take_picture().unwrap_or_default())?;
        }
        Ok(ExitReason::Success)
    }
}

/// Serves an application in a thread of its own, where a place is free.
fn serve(stream: DisplayStream, memory: usize, state: &Arc<AgentState>) -> Result<(), Problem> {
    let mut places = lock(&state.places);
    let Some(place) = (0..APPLICATIONS).find(|place| !places.contains(place)) else {
        stream.shut_down();
        return Ok(());
    };
    places.insert(place);
    let state = Arc::clone(state);
    let serving = move || {
        let session = AgentSession::new(place, memory);
        if let Err(error) = serve_application(stream, session, &state.display) {
            lock(&state.lost).get_or_insert(error);
        }
        lock(&state.places).remove(&place);
    };
    let started = thread::Builder::new().name("application".to_owned()).spawn(serving);
    started.map(drop).map_err(|error| {
        Problem::failure("cannot start a thread for an application").because(error)
    })
}
