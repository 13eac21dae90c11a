//! `plumb net --watch`: the measurement as it goes, drawn by a thread of its own.
//!
//! That thread has a CPU to itself, on which nothing that measures runs, where there are two; where there is one,
//! the screen and the result say so. Telling it never waits. What the agent's senders wait for is known when its
//! report comes, at the end of each phase. Left out: what is measured (`crate::net::course`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plumb_base::time::Span;
use plumb_host::lab::Seats;
use plumb_net::measure::live::Progress;
use plumb_report::terminal::Style;

use crate::net::course::{Phase, Watcher};
use crate::problem::Problem;
use history::{History, Told};
use screen::View;
use terminal::{Key, Screen};

mod history;
mod screen;
mod terminal;

/// How often keys and news are looked for, and so how often is drawn at most.
const LOOK: Duration = Duration::from_millis(100);
/// News that wait to be drawn; what comes on top is left out.
const NEWS_MAX: usize = 64;

/// What the drawing thread is told.
enum News {
    Read(&'static str, Box<Progress>, Span),
    Heard(Vec<Told>),
}

/// Where is drawn: on a CPU of its own, if there is one.
#[derive(Debug)]
pub struct Seat(Option<Seats>);

impl Seat {
    /// Moves this thread, with all that it starts from now on, off the CPU that is to draw: an agent of this host too.
    pub fn take() -> Self {
        Self(Seats::divide().ok().flatten().filter(|seats| seats.join_others().is_ok()))
    }
}

/// A screen that shows what it is told, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    news: Option<SyncSender<News>>,
    drawing: Option<JoinHandle<()>>,
    asked: Arc<AtomicBool>,
    /// What the result is to say of who drew.
    pub note: String,
}

/// Says that there is nothing to draw on, where there is not.
///
/// # Errors
/// No terminal.
pub fn check() -> Result<(), Problem> {
    if terminal::is_there() {
        return Ok(());
    }
    Err(Problem::usage("there is no terminal to watch on")
        .because("--watch draws on standard error and hears keys on standard input")
        .fix("leave --watch away; standard output may go to a file or a pipe all the same"))
}

impl Watch {
    /// Takes the terminal, and draws on it from the seat.
    ///
    /// # Errors
    /// The terminal's.
    pub fn start(title: String, seat: Seat, style: Style) -> Result<Self, Problem> {
        let fault = |error: io::Error| {
            Problem::trouble("cannot draw on this terminal")
                .because(error)
                .fix("leave --watch away")
        };
        let note = match &seat.0 {
            Some(seats) => {
                format!("watched: CPU {} drew, and what measures here was kept off it", seats.own)
            }
            None => "watched: drawn by a CPU that measured as well".to_owned(),
        };
        let said = match &seat.0 {
            Some(seats) => format!("drawn on CPU {}; measured on the others", seats.own),
            None => "drawn by a CPU that measures too, there is no other: this costs".to_owned(),
        };
        let mut screen = Screen::open().map_err(fault)?;
        let (news, heard) = sync_channel(NEWS_MAX);
        let asked = Arc::new(AtomicBool::new(false));
        let view = View { title, seat: said, style };
        let asks = Arc::clone(&asked);
        let work = move || {
            if let Some(seats) = seat.0 {
                // Where it fails it draws where it may: among those that measure.
                seats.take_own().ok();
            }
            // A terminal that is gone ends the drawing, and its signal the measurement.
            show(&mut screen, &heard, &view, &asks).ok();
        };
        let drawing = thread::Builder::new().name("draw".to_owned()).spawn(work).map_err(fault)?;
        Ok(Self { news: Some(news), drawing: Some(drawing), asked, note })
    }

    /// Whether a key has asked for the end.
    pub fn asked(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    fn tell(&self, news: News) {
        if let Some(to) = &self.news {
            // Drawing that is behind does without.
            to.try_send(news).ok();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.news.take());
        if let Some(drawing) = self.drawing.take() {
            // It has said itself what it died of.
            drawing.join().ok();
        }
    }
}

impl Watcher for Watch {
    fn read(&mut self, name: &'static str, progress: &Progress, left: Span) {
        self.tell(News::Read(name, Box::new(*progress), left));
    }

    fn ended(&mut self, phase: &Phase) {
        if let Ok(report) = &phase.outcome.there {
            self.tell(News::Heard(history::told(report)));
        }
    }
}

/// Draws until nobody tells any more.
fn show(
    screen: &mut Screen,
    news: &Receiver<News>,
    view: &View,
    asked: &AtomicBool,
) -> io::Result<()> {
    let mut history = History::default();
    let mut is_new = true;
    loop {
        if is_new {
            let is_stopping = asked.load(Ordering::Relaxed) || plumb_host::stop::requests() > 0;
            screen.draw(|frame| screen::draw(frame, &history, view, is_stopping))?;
        }
        is_new = false;
        match terminal::key(LOOK) {
            Ok(Some(Key::End)) => {
                asked.store(true, Ordering::Relaxed);
                is_new = true;
            }
            Ok(Some(Key::Redraw)) => is_new = true,
            Ok(None) => {}
            // A signal; what it asks for is seen elsewhere.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => is_new = true,
            Err(error) => return Err(error),
        }
        loop {
            match news.try_recv() {
                Ok(News::Read(name, progress, left)) => history.read(name, &progress, left),
                Ok(News::Heard(told)) => history.hear(&told),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
            is_new = true;
        }
    }
}
