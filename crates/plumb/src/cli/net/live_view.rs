//! `plumb net --watch`: draws the measurement live, on a thread of its own.
//!
//! The thread has its own CPU, which nothing that measures uses, if there are two; else screen and result say so.
//! Passing updates to it never blocks. What limits the agent's senders is known from its report at the end of each phase.
//!
//! The terminal is restored at every end except SIGKILL: on return, on a panic, whose message goes to the restored
//! screen, and on a request to stop. The screen is drawn on standard error, so standard output may go to a file.

use std::io::{self, IsTerminal as _, Stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_net::measure::progress::TestProgress;
use plumb_netdev::lab::DriverPlacement;
use plumb_report::terminal::TerminalStyle;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{cursor, execute, terminal};

use crate::cli::is_stopped;
use crate::net::test_run::{MeasuredPhase, NetWatcher};
use crate::problem::Problem;
use history::{IntervalWaits, LiveHistory};
use screen::LiveScreenContext;

mod history;
mod screen;

/// Interval of checking keys and updates, and so the shortest between two drawings.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
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
        let mut screen = AlternateScreen::open().map_err(fault)?;
        let (sender, updates) = sync_channel(UPDATES_MAX);
        let stop_requested = Arc::new(AtomicBool::new(false));
        let view = LiveScreenContext { title, drawing_cpu, style };
        let stop = Arc::clone(&stop_requested);
        let work = move || {
            // Best effort.
            cpu.0.and_then(|placement| placement.bind_to_driver_cpu().ok());
            // A closed terminal ends the drawing; its signal ends the measurement.
            show(&mut screen, &updates, &view, &stop).ok();
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
    screen: &mut AlternateScreen,
    updates: &Receiver<LiveUpdate>,
    view: &LiveScreenContext,
    stop_requested: &AtomicBool,
) -> io::Result<()> {
    let mut history = LiveHistory::default();
    let mut is_new = true;
    loop {
        if is_new {
            let is_stopping = stop_requested.load(Ordering::Relaxed) || is_stopped();
            screen.draw(|frame| screen::draw(frame, &history, view, is_stopping))?;
        }
        is_new = false;
        match next_key(REFRESH_INTERVAL) {
            Ok(Some(KeyAction::End)) => {
                stop_requested.store(true, Ordering::Relaxed);
                is_new = true;
            }
            Ok(Some(KeyAction::Redraw)) => is_new = true,
            Ok(None) => {}
            // A signal, handled elsewhere.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => is_new = true,
            Err(error) => return Err(error),
        }
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

/// Whether the alternate screen is active.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// An action of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyAction {
    /// End the measurement.
    End,
    /// Redraw, perhaps in another size.
    Redraw,
}

/// The terminal's alternate screen.
struct AlternateScreen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl AlternateScreen {
    /// Switches to an empty screen.
    fn open() -> io::Result<Self> {
        restore_at_panics();
        terminal::enable_raw_mode()?;
        IS_ACTIVE.store(true, Ordering::Release);
        let opened = execute!(io::stderr(), terminal::EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
        match opened {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws, unless a panic has restored the terminal.
    fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        if !IS_ACTIVE.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.terminal.draw(draw).map(|_| ())
    }
}

/// Waits for a key with an action, at most `timeout`.
fn next_key(timeout: Duration) -> io::Result<Option<KeyAction>> {
    if !event::poll(timeout)? {
        return Ok(None);
    }
    Ok(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(KeyAction::End),
                KeyCode::Char('c' | '\\') if is_control => Some(KeyAction::End),
                KeyCode::Char('l') if is_control => Some(KeyAction::Redraw),
                _ => None,
            }
        }
        Event::Resize(..) => Some(KeyAction::Redraw),
        _ => None,
    })
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, once.
fn restore() {
    if IS_ACTIVE.swap(false, Ordering::AcqRel) {
        execute!(io::stderr(), terminal::LeaveAlternateScreen, cursor::Show).ok();
        terminal::disable_raw_mode().ok();
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
