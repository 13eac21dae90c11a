//! The terminal while something is watched: its other screen, its keys, and its old state afterwards.
//!
//! However the program ends, but for SIGKILL, the terminal is as it was: by leaving, by a panic, which tells of
//! itself on the screen that was there before, and by a request to stop, which is an ordinary end. It is drawn on
//! standard error, so that standard output may go to a file.

use std::io::{self, IsTerminal as _, Stderr};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{cursor, execute, terminal};

/// Whether this program's own screen is up.
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// What was done at the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
    /// It is to end.
    End,
    /// There may be another size, so that everything is drawn anew.
    Redraw,
}

/// A terminal that shows this program's own screen.
pub struct AlternateScreen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl std::fmt::Debug for AlternateScreen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Screen(…)")
    }
}

/// Whether there is a terminal to draw on, and to hear keys from.
pub fn is_interactive() -> bool {
    io::stderr().is_terminal() && io::stdin().is_terminal()
}

impl AlternateScreen {
    /// Shows an empty screen.
    ///
    /// # Errors
    /// The terminal's.
    pub fn open() -> io::Result<Self> {
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

    /// Draws on it, unless a panic took it away.
    ///
    /// # Errors
    /// The terminal's.
    pub fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        if !IS_ACTIVE.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.terminal.draw(draw).map(|_| ())
    }
}

/// Waits for a key that means something, so long at most.
///
/// # Errors
/// The terminal's.
pub fn key(longest: Duration) -> io::Result<Option<KeyAction>> {
    if !event::poll(longest)? {
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

/// Gives the terminal back, once.
fn restore() {
    if IS_ACTIVE.swap(false, Ordering::AcqRel) {
        execute!(io::stderr(), terminal::LeaveAlternateScreen, cursor::Show).ok();
        terminal::disable_raw_mode().ok();
    }
}

/// What a panic says is said on the screen that stays.
fn restore_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            tell(panic);
        }));
    });
}
