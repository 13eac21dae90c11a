//! Standard output for results, standard error for messages, and the style of both.
//!
//! Everything is written through [`CliOutput`], which lets no control character of foreign text through, except the live view (`net::live_view`) and forwarded streams
//! (`agent::forward`).

use std::io::{self, IsTerminal, Write};

use plumb_remote::log_limit::LogLimit;
use plumb_report::printable;
use plumb_report::terminal::{TerminalStyle, TextRole};
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use super::{ColorChoice, GlobalOptions};
use crate::problem::{ExitReason, Problem};

/// Narrowest page; a narrower terminal wraps its lines.
const WIDTH_MIN: u16 = 40;
/// Widest page: longer lines are hard to read.
const WIDTH_MAX: u16 = 160;
/// Width of a page that goes to no terminal.
const WIDTH_DEFAULT: u16 = 80;

/// Where and how a command prints.
#[derive(Clone, Debug)]
pub struct CliOutput {
    /// Print results as one JSON document.
    pub json: bool,
    /// Style of standard output.
    pub style: TerminalStyle,
    /// Style of standard error.
    pub style_stderr: TerminalStyle,
    /// Print only errors on standard error.
    pub quiet: bool,
    /// Whether a progress bar may be drawn.
    pub progress: bool,
}

/// Why a command ended early.
#[derive(Debug)]
pub enum CommandError {
    /// Something went wrong.
    Problem(Problem),
    /// Standard output was closed by its reader, as in `plumb show last | head`; not a failure.
    StdoutClosed,
}

impl<E: Into<Problem>> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self::Problem(error.into())
    }
}

/// The exit code of a command, or why it ended early.
pub type CommandResult = Result<ExitReason, CommandError>;

impl CliOutput {
    /// From the options and the environment of this process.
    pub fn from_environment(global: &GlobalOptions) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let unicode = !global.ascii && locale_is_unicode(&variable);
        let stdout_is_terminal = io::stdout().is_terminal();
        let stderr_is_terminal = io::stderr().is_terminal();
        let columns = variable("COLUMNS");
        let width = |is_terminal| width(is_terminal, columns.as_deref());
        let color = |is_terminal| colors(global.color, is_terminal, &variable);
        Self {
            json: global.json,
            style: TerminalStyle {
                color: color(stdout_is_terminal),
                unicode,
                width: width(stdout_is_terminal),
            },
            style_stderr: TerminalStyle {
                color: color(stderr_is_terminal),
                unicode,
                width: width(stderr_is_terminal),
            },
            quiet: global.quiet,
            progress: stderr_is_terminal && !global.quiet && !global.no_progress,
        }
    }

    /// Writes a page to standard output, ended by a newline.
    ///
    /// # Errors
    /// [`CommandError::StdoutClosed`] if its reader closed it; a problem for any other failure.
    pub fn page(&self, text: &str) -> Result<(), CommandError> {
        self.bytes(self.style.printable(text).as_bytes())?;
        if text.is_empty() || text.ends_with('\n') { Ok(()) } else { self.bytes(b"\n") }
    }

    /// Writes bytes to standard output.
    ///
    /// # Errors
    /// As [`CliOutput::page`].
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), CommandError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => CommandError::StdoutClosed,
            _ => Problem::failure("cannot write to standard output").because(error).into(),
        })
    }

    /// Writes one JSON document to standard output.
    ///
    /// # Errors
    /// As [`CliOutput::page`].
    pub fn document<T: Serialize>(&self, document: &T) -> Result<(), CommandError> {
        let text = serde_json::to_string_pretty(document)
            .map_err(|error| Problem::failure("cannot write the result as JSON").because(error))?;
        self.page(&(printable::json(&text) + "\n"))
    }

    /// Prints a result: the document with `--json`, else the page made for standard output's style.
    ///
    /// # Errors
    /// As [`CliOutput::page`].
    pub fn show<T: Serialize>(
        &self,
        document: &T,
        page: impl FnOnce(TerminalStyle) -> String,
    ) -> Result<(), CommandError> {
        if self.json { self.document(document) } else { self.page(&page(self.style)) }
    }

    /// Prints a message on standard error, unless `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.message(text);
        }
    }

    /// Like [`Self::note`], for what others can make happen: a flood of it fills no log and, where nobody reads
    /// standard error, blocks no server.
    pub fn note_limited(&self, limit: &mut LogLimit, text: &str) {
        match limit.admit(plumb_clock::now()) {
            None => {}
            Some(0) => self.note(text),
            Some(left_out) => self.note(&format!("{text} ({left_out} before it are left out)")),
        }
    }

    /// Prints a message on standard error, even with `--quiet`.
    pub fn message(&self, text: &str) {
        stderr_line(&self.style_stderr.printable(&self.style_stderr.to_charset(text)));
    }

    /// Redraws the status line on standard error; cut to the width, since a second row could not be erased.
    pub fn draw_line(&self, text: &str) {
        let room = usize::from(self.style_stderr.width.saturating_sub(1));
        let text = self.style_stderr.to_charset(text);
        let text: String = printable::line(&text).chars().take(room).collect();
        io::stderr().lock().write_all(format!("\r\x1b[K{text}").as_bytes()).ok();
    }

    /// Shows a status in the terminal's title, for when a command owns the rows. The first call saves the old
    /// title (xterm window manipulation 22, restored by 23).
    pub fn draw_title(&self, text: &str, is_first: bool) {
        let keep = if is_first { "\x1b[22;2t" } else { "" };
        let text = self.style_stderr.to_charset(text);
        let text = printable::line(&text);
        io::stderr().lock().write_all(format!("{keep}\x1b]2;{text}\x07").as_bytes()).ok();
    }

    /// Restores the saved title.
    pub fn restore_title(&self) {
        io::stderr().lock().write_all(b"\x1b[23;2t").ok();
    }

    /// Erases the status line.
    pub fn erase_line(&self) {
        io::stderr().lock().write_all(b"\r\x1b[K").ok();
    }

    /// Prints an error on standard error.
    pub fn print_problem(&self, problem: &Problem) {
        let text = printable::lines(&problem.to_string()).into_owned();
        let (what, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let mark = self.style_stderr.paint(TextRole::Bad, "error:");
        let gap = if rest.is_empty() { "" } else { "\n" };
        stderr_line(&format!("{mark} {}{gap}{}", what, self.style_stderr.to_charset(rest)));
    }
}

/// Writes a line to standard error, which may be painted; ignores that it may be closed.
pub fn stderr_line(text: &str) {
    let text = TerminalStyle { color: true, unicode: true, width: 0 }.printable(text);
    let mut stderr = io::stderr().lock();
    stderr.write_all(format!("{text}\n").as_bytes()).ok();
}

/// Whether to use color: the option, then NO_COLOR (no-color.org), then CLICOLOR_FORCE, then whether it is a
/// terminal.
fn colors(
    choice: ColorChoice,
    is_terminal: bool,
    variable: &impl Fn(&str) -> Option<String>,
) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if variable("NO_COLOR").is_some() => false,
        ColorChoice::Auto if variable("CLICOLOR_FORCE").is_some_and(|v| v != "0") => true,
        ColorChoice::Auto => is_terminal && variable("TERM").is_none_or(|term| term != "dumb"),
    }
}

/// Whether the locale has Unicode (locale(7)). No locale at all mostly means a container in a Unicode terminal.
fn locale_is_unicode(variable: &impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
    locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

fn width(is_terminal: bool, columns: Option<&str>) -> u16 {
    let asked = columns.and_then(|columns| columns.parse::<u16>().ok());
    let sizes = || [tcgetwinsize(io::stdout()), tcgetwinsize(io::stderr())];
    let seen = || sizes().into_iter().flatten().find(|_| is_terminal).map(|size| size.ws_col);
    asked.or_else(seen).unwrap_or(WIDTH_DEFAULT).clamp(WIDTH_MIN, WIDTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_width_is_clamped() {
        assert_eq!(width(false, None), 80);
        assert_eq!(width(false, Some("40")), 40);
        assert_eq!(width(false, Some("3")), 40);
        assert_eq!(width(false, Some("many")), 80);
    }
}
