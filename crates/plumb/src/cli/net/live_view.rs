//! `plumb net --watch`: draws the measurement live, on a thread of its own.
//!
//! The thread has its own CPU, which nothing that measures uses, if there are two; else screen and result say so.
//! Passing updates to it never blocks. What limits the agent's senders is known from its report at the end of each phase.
//!
//! The terminal is restored at every end except SIGKILL: on return, on a panic, whose message goes to the restored
//! screen, and on a request to stop. The screen is drawn on standard error, so standard output may go to a file.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::{self, JoinHandle};

use plumb_base::time::Span;
use plumb_net::measure::progress::TestProgress;
use plumb_netdev::lab::DriverPlacement;
use plumb_report::terminal::TerminalStyle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::cli::is_stopped;
use crate::net::test_run::{MeasuredPhase, NetWatcher};
use crate::problem::Problem;
use history::{IntervalWaits, LiveHistory};
use screen::LiveScreenContext;

mod history;
mod screen;

/// Interval of checking keys and updates, and so the shortest between two drawings.
const REFRESH_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Most queued updates; further ones are dropped.
const UPDATES_MAX: usize = 64;

/// An update for the drawing thread.
enum LiveUpdate {
    Progress(&'static str, Box<TestProgress>, Span),
    RemoteWaits(Vec<IntervalWaits>),
}

/// The CPU that draws, if there is one to spare.
#[derive(Debug)]
pub struct DrawingCpu(Option<DriverPlacement>);

impl DrawingCpu {
    /// Moves this thread, and all threads and processes that it starts later, off the CPU that will draw.
    pub fn reserve() -> Self {
        let reserved = DriverPlacement::reserve_last_cpu().ok().flatten();
        Self(reserved.filter(|placement| placement.bind_to_others().is_ok()))
    }
}

/// The live screen; restored when dropped.
#[derive(Debug)]
pub struct LiveView {
    updates: Option<SyncSender<LiveUpdate>>,
    drawing: Option<JoinHandle<()>>,
    stop_requested: Arc<AtomicBool>,
    /// Flag of the result about the drawing CPU.
    pub note: String,
}

/// Checks that there is a terminal.
///
/// # Errors
/// No terminal.
pub fn check() -> Result<(), Problem> {
    if io::stderr().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Problem::usage("there is no terminal to draw on")
        .because("--watch draws on standard error and reads keys from standard input")
        .fix("leave out --watch; only standard output may go to a file or a pipe"))
}

impl LiveView {
    /// Opens the screen and starts drawing.
    ///
    /// # Errors
    /// As the terminal.
    pub fn start(title: String, cpu: DrawingCpu, style: TerminalStyle) -> Result<Self, Problem> {
        let fault = |error: io::Error| {
            Problem::failure("cannot draw on this terminal").because(error).fix("leave out --watch")
        };
        let (note, drawing_cpu) = match cpu.0.as_ref().map(|placement| placement.driver_cpu) {
            Some(cpu) => (
                format!("watched: CPU {cpu} drew, and did not measure"),
                format!("drawn on CPU {cpu}; measured on the others"),
            ),
            None => (
                "watched: drawn by a CPU that also measured".to_owned(),
                "drawn by the only CPU, which also measures: the results are affected".to_owned(),
            ),
        };
        let screen = AlternateScreen::open().map_err(fault)?;
        let (sender, updates) = sync_channel(UPDATES_MAX);
        let stop_requested = Arc::new(AtomicBool::new(false));
        let view = LiveScreenContext { title, drawing_cpu, style };
        let stop = Arc::clone(&stop_requested);
        let work = move || {
            // Best effort.
            cpu.0.and_then(|placement| placement.bind_to_driver_cpu().ok());
            // A closed terminal ends the drawing; its signal ends the measurement.
            show(&updates, &view, &stop).ok();
            drop(screen);
        };
        let drawing = thread::Builder::new().name("draw".to_owned()).spawn(work).map_err(fault)?;
        Ok(Self { updates: Some(sender), drawing: Some(drawing), stop_requested, note })
    }

    /// Set by a key that requests the end.
    pub fn stop_requested(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop_requested)
    }

    fn send(&self, update: LiveUpdate) {
        if let Some(updates) = &self.updates {
            // Dropped if drawing is behind.
            updates.try_send(update).ok();
        }
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        drop(self.updates.take());
        if let Some(drawing) = self.drawing.take() {
            // The message of a panic was printed already.
            drawing.join().ok();
        }
    }
}

impl NetWatcher for LiveView {
    fn progress(&mut self, name: &'static str, progress: &TestProgress, left: Span) {
        self.send(LiveUpdate::Progress(name, Box::new(*progress), left));
    }

    fn phase_ended(&mut self, phase: &MeasuredPhase) {
        if let Ok(report) = &phase.outcome.there {
            self.send(LiveUpdate::RemoteWaits(history::sender_waits(report)));
        }
    }
}

/// Draws until the sender of updates is dropped.
fn show(
    updates: &Receiver<LiveUpdate>,
    view: &LiveScreenContext,
    stop_requested: &AtomicBool,
) -> io::Result<()> {
    let mut history = LiveHistory::default();
    let mut is_new = true;
    let mut drawn_size = (0, 0);
    loop {
        let size = screen_size()?;
        if is_new || size != drawn_size {
            let is_stopping = stop_requested.load(Ordering::Relaxed) || is_stopped();
            draw(&screen::lines(&history, view, size, is_stopping))?;
            drawn_size = size;
        }
        is_new = match next_key() {
            Ok(Some(KeyAction::End)) => {
                stop_requested.store(true, Ordering::Relaxed);
                true
            }
            Ok(key) => key == Some(KeyAction::Redraw),
            // A signal, handled elsewhere.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) => return Err(error),
        };
        loop {
            match updates.try_recv() {
                Ok(LiveUpdate::Progress(name, progress, left)) => {
                    history.add_progress(name, &progress, left);
                }
                Ok(LiveUpdate::RemoteWaits(waits)) => history.add_remote_waits(&waits),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            is_new = true;
        }
    }
}

/// Columns and rows of the terminal.
fn screen_size() -> io::Result<(usize, usize)> {
    let size = tcgetwinsize(io::stderr())?;
    Ok((size.ws_col.into(), size.ws_row.into()))
}

/// The terminal's settings from before the alternate screen, while that is active.
static SAVED_SETTINGS: Mutex<Option<Termios>> = Mutex::new(None);

/// An action of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyAction {
    /// End the measurement.
    End,
    /// Draw again, over what others wrote.
    Redraw,
}

/// The terminal's alternate screen, in raw mode (xterm control sequences 1049 and 25).
struct AlternateScreen;

impl AlternateScreen {
    /// Switches to an empty screen.
    fn open() -> io::Result<Self> {
        restore_at_panics();
        let settings = tcgetattr(io::stdin())?;
        let mut raw = settings.clone();
        raw.make_raw();
        *SAVED_SETTINGS.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
        // Restores, when dropped, what was switched before an error.
        let screen = Self;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        io::stderr().write_all(b"\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }
}

/// Draws every line, unless a panic has restored the terminal.
fn draw(lines: &[String]) -> io::Result<()> {
    let saved = SAVED_SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if saved.is_none() {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let row = |(row, line): (usize, &String)| format!("\x1b[{};1H\x1b[2K{line}", row + 1);
    let screen: String = lines.iter().enumerate().map(row).collect();
    io::stderr().write_all(screen.as_bytes())
}

/// Waits for a key with an action, at most [`REFRESH_INTERVAL`].
fn next_key() -> io::Result<Option<KeyAction>> {
    let stdin = io::stdin();
    if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&REFRESH_INTERVAL))? == 0 {
        return Ok(None);
    }
    // The bytes of a key come in one read: ESC alone is the Escape key; with more behind it, an arrow or function key.
    let mut bytes = [0; 64];
    let len = stdin.lock().read(&mut bytes)?;
    Ok(match &bytes[..len] {
        [] => return Err(io::ErrorKind::UnexpectedEof.into()),
        [b'\x1b', _, ..] => None,
        keys if keys.iter().any(|key| END_KEYS.contains(key)) => Some(KeyAction::End),
        keys if keys.contains(&CONTROL_L) => Some(KeyAction::Redraw),
        _ => None,
    })
}

/// What the keys that end the measurement send in raw mode: q, ESC, Ctrl-C and Ctrl-\.
const END_KEYS: [u8; 5] = [b'q', b'Q', b'\x1b', 0x03, 0x1c];
const CONTROL_L: u8 = 0x0c;

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, once.
fn restore() {
    let mut saved = SAVED_SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(settings) = saved.take() {
        io::stderr().write_all(b"\x1b[?1049l\x1b[?25h").ok();
        tcsetattr(io::stdin(), OptionalActions::Now, &settings).ok();
    }
}

/// Restores the terminal before the message of a panic.
fn restore_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
    });
}
