//! `plumb net --watch`: the measurement as it goes, drawn by a thread of its own.
//!
//! That thread has a CPU to itself, on which nothing that measures runs, where there are two; where there is one,
//! the screen and the result say so. Telling it never waits. What the agent's senders wait for is known when its
//! report comes, at the end of each phase.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_net::measure::progress::TestProgress;
use plumb_netdev::lab::DriverPlacement;
use plumb_report::terminal::TerminalStyle;

use crate::net::test_run::{MeasuredPhase, NetWatcher};
use crate::problem::Problem;
use history::{IntervalWaits, LiveHistory};
use screen::LiveScreenContext;
use terminal::{AlternateScreen, KeyAction};

mod history;
mod screen;
mod terminal;

/// How often keys and news are looked for, and so how often is drawn at most.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// News that wait to be drawn; what comes on top is left out.
const UPDATES_MAX: usize = 64;

/// What the drawing thread is told.
enum LiveUpdate {
    Progress(&'static str, Box<TestProgress>, Span),
    RemoteWaits(Vec<IntervalWaits>),
}

/// Where is drawn: on a CPU of its own, if there is one.
#[derive(Debug)]
pub struct DrawingCpu(Option<DriverPlacement>);

impl DrawingCpu {
    /// Moves this thread, with all that it starts from now on, off the CPU that is to draw: an agent of this host too.
    pub fn reserve() -> Self {
        Self(
            DriverPlacement::reserve_last_cpu()
                .ok()
                .flatten()
                .filter(|placement| placement.bind_to_others().is_ok()),
        )
    }
}

/// A screen that shows what it is told, until it is dropped.
#[derive(Debug)]
pub struct LiveView {
    updates: Option<SyncSender<LiveUpdate>>,
    drawing: Option<JoinHandle<()>>,
    stop_requested: Arc<AtomicBool>,
    /// What the result is to say of who drew.
    pub note: String,
}

/// Says that there is nothing to draw on, where there is not.
///
/// # Errors
/// No terminal.
pub fn check() -> Result<(), Problem> {
    if terminal::is_interactive() {
        return Ok(());
    }
    Err(Problem::usage("there is no terminal to watch on")
        .because("--watch draws on standard error and hears keys on standard input")
        .fix("leave --watch away; standard output may go to a file or a pipe all the same"))
}

impl LiveView {
    /// Takes the terminal, and draws on it on its CPU.
    ///
    /// # Errors
    /// The terminal's.
    pub fn start(title: String, cpu: DrawingCpu, style: TerminalStyle) -> Result<Self, Problem> {
        let fault = |error: io::Error| {
            Problem::failure("cannot draw on this terminal")
                .because(error)
                .fix("leave --watch away")
        };
        let note = match &cpu.0 {
            Some(placement) => {
                format!(
                    "watched: CPU {} drew, and what measures here was kept off it",
                    placement.driver_cpu
                )
            }
            None => "watched: drawn by a CPU that measured as well".to_owned(),
        };
        let said = match &cpu.0 {
            Some(placement) => {
                format!("drawn on CPU {}; measured on the others", placement.driver_cpu)
            }
            None => "drawn by a CPU that measures too, there is no other: this costs".to_owned(),
        };
        let mut screen = AlternateScreen::open().map_err(fault)?;
        let (news, heard) = sync_channel(UPDATES_MAX);
        let asked = Arc::new(AtomicBool::new(false));
        let view = LiveScreenContext { title, drawing_cpu: said, style };
        let asks = Arc::clone(&asked);
        let work = move || {
            if let Some(placement) = cpu.0 {
                // Where it fails it draws where it may: among those that measure.
                placement.bind_to_driver_cpu().ok();
            }
            // A terminal that is gone ends the drawing, and its signal the measurement.
            show(&mut screen, &heard, &view, &asks).ok();
        };
        let drawing = thread::Builder::new().name("draw".to_owned()).spawn(work).map_err(fault)?;
        Ok(Self { updates: Some(news), drawing: Some(drawing), stop_requested: asked, note })
    }

    /// Whether a key has asked for the end.
    pub fn stop_requested(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop_requested)
    }

    fn send(&self, news: LiveUpdate) {
        if let Some(to) = &self.updates {
            // Drawing that is behind does without.
            to.try_send(news).ok();
        }
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        drop(self.updates.take());
        if let Some(drawing) = self.drawing.take() {
            // It has said itself what it died of.
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

/// Draws until nobody tells any more.
fn show(
    screen: &mut AlternateScreen,
    news: &Receiver<LiveUpdate>,
    view: &LiveScreenContext,
    asked: &AtomicBool,
) -> io::Result<()> {
    let mut history = LiveHistory::default();
    let mut is_new = true;
    loop {
        if is_new {
            let is_stopping =
                asked.load(Ordering::Relaxed) || plumb_harness::stop_signals::stop_requests() > 0;
            screen.draw(|frame| screen::draw(frame, &history, view, is_stopping))?;
        }
        is_new = false;
        match terminal::key(REFRESH_INTERVAL) {
            Ok(Some(KeyAction::End)) => {
                asked.store(true, Ordering::Relaxed);
                is_new = true;
            }
            Ok(Some(KeyAction::Redraw)) => is_new = true,
            Ok(None) => {}
            // A signal; what it asks for is seen elsewhere.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => is_new = true,
            Err(error) => return Err(error),
        }
        loop {
            match news.try_recv() {
                Ok(LiveUpdate::Progress(name, progress, left)) => {
                    history.add_progress(name, &progress, left);
                }
                Ok(LiveUpdate::RemoteWaits(told)) => history.add_remote_waits(&told),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            is_new = true;
        }
    }
}
